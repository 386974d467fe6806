"""A process ages events automatically in the background."""

from __future__ import annotations

import asyncio
from datetime import datetime, timedelta

from mica.store.protocol import BLOCK_EVENTS
from mica.store.reference.files import ReferenceFiles
from mica.store.reference.state import ReferenceState
from mica.testing import HandClock
from mica.upkeep import ageing
from mica.upkeep.ageing import Ageing


class CountingFiles(ReferenceFiles):
    """The files of a store that counts how often it is asked to age."""

    def __init__(self, due: int) -> None:
        super().__init__(ReferenceState())
        self.due = due
        self.asked = 0
        self.before: datetime | None = None

    async def age(self, before: datetime, *, limit: int = 8_192, at_least: int = 1) -> int:
        self.asked += 1
        self.before = before
        done, self.due = min(self.due, limit), max(0, self.due - limit)
        return done if done >= at_least else 0


async def test_an_idle_process_ages_events_by_itself() -> None:
    """keeps: E-03. Events stay hot for a day; ageing runs once an hour, never while events are being stored."""
    files, clock = CountingFiles(due=20_000), HandClock()
    slept: list[float] = []
    asleep, awake = asyncio.Event(), asyncio.Event()

    async def sleep(seconds: float) -> None:
        slept.append(seconds)
        asleep.set()
        await awake.wait()
        awake.clear()

    async def turn() -> None:
        asleep.clear()
        awake.set()
        await asleep.wait()

    background = Ageing(files, now=clock, sleep=sleep)
    await asleep.wait()
    background.disturb()
    await turn()
    assert files.asked == 0
    await turn()
    assert (files.asked, files.due) == (4, 0)
    assert files.before == clock() - timedelta(hours=24)
    assert slept == [ageing.QUIET_S, ageing.QUIET_S, ageing.EVERY_S]
    await background.close()


def test_events_stay_hot_for_a_day() -> None:
    """keeps: E-03"""
    assert timedelta(hours=24) == ageing.HOT
    assert BLOCK_EVENTS <= 8_192

"""The fold: it leaves the time to those who emit, until so much waits that it must hurry."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from mica.model import Appended, Event
from mica.observe import folding as folding_module
from mica.observe.context import Here
from mica.observe.folding import BATCH_MAX, Folding
from mica.observe.journal import Journal

BACKLOG = 5 * BATCH_MAX


class Flood:
    """A store into which events come faster than it takes them, and how long the fold waited in between."""

    def __init__(self, folder: Path) -> None:
        self.stored = 0
        self.naps: list[float] = []
        self.reached = asyncio.Event()
        self._folder = folder

    async def append(self, events: Sequence[Event]) -> Appended:
        for _ in range(2 * BATCH_MAX):
            self.journal.emit("more")
        self.stored += len(events)
        if self.stored >= BACKLOG:
            self.reached.set()
        return Appended(stored=len(events))

    async def nap(self, seconds: float) -> None:
        self.naps.append(seconds)
        await asyncio.Event().wait()  # for ever: what goes on did not wait

    @asynccontextmanager
    async def folding(self) -> AsyncIterator[None]:
        folding = Folding(self.append, self._folder)
        self.journal = Journal(self._folder, space="test", base=Here(), clock=None, wake=folding.wake)
        for _ in range(BACKLOG):
            self.journal.emit("step")
        folding.begin(self.journal)
        try:
            yield
        finally:
            folding._task.cancel()
            await asyncio.wait([folding._task])
            self.journal.close()


@pytest.fixture
def flood(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Flood:
    flood = Flood(tmp_path)
    monkeypatch.setattr(folding_module, "GATHER_S", 0)
    return flood


async def test_a_backlog_beyond_its_limit_is_stored_without_a_pause(
    flood: Flood, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The journal is bounded: above a limit storing comes before leaving time to others."""
    monkeypatch.setattr(folding_module, "HURRY_BYTES", 1)
    async with flood.folding():
        async with asyncio.timeout(60):  # what would wait for ever fails after that
            await flood.reached.wait()
    assert flood.stored >= BACKLOG


async def test_below_the_limit_the_fold_takes_a_small_share_of_the_time(
    flood: Flood, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is emitted without a pause waits in segments; the fold takes one batch and leaves the rest of the time."""
    slept = asyncio.Event()
    sleep = asyncio.sleep

    async def nap(seconds: float) -> None:
        if seconds == 0:
            return await sleep(0)
        slept.set()
        return await flood.nap(seconds)

    monkeypatch.setattr(asyncio, "sleep", nap)
    async with flood.folding():
        await slept.wait()
    monkeypatch.undo()
    assert flood.stored <= BATCH_MAX
    assert len(flood.naps) == 1

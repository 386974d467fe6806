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
    """A store into which events come faster than it takes them. Who waits there for a time waits for ever."""

    def __init__(self, folder: Path) -> None:
        self.stored = 0
        self.naps = 0
        self.changed = asyncio.Event()
        self.loop: asyncio.AbstractEventLoop | None = None  # of the fold: other threads have their own
        self._folder = folder

    async def append(self, events: Sequence[Event]) -> Appended:
        for _ in range(2 * BATCH_MAX):
            self.journal.emit("more")
        self.stored += len(events)
        if self.stored >= BACKLOG:
            self.changed.set()
        return Appended(stored=len(events))

    async def nap(self) -> None:
        self.naps += 1
        self.changed.set()
        await asyncio.Event().wait()

    @asynccontextmanager
    async def folding(self) -> AsyncIterator[None]:
        self.loop = asyncio.get_running_loop()
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
    sleep = asyncio.sleep

    async def nap(seconds: float) -> None:
        is_folds = asyncio.get_running_loop() is flood.loop
        await (flood.nap() if seconds and is_folds else sleep(seconds))

    monkeypatch.setattr(folding_module, "GATHER_S", 0)
    monkeypatch.setattr(asyncio, "sleep", nap)
    return flood


async def test_a_backlog_beyond_its_limit_is_stored_without_a_pause(
    flood: Flood, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The journal is bounded: above a limit storing comes before leaving time to others."""
    monkeypatch.setattr(folding_module, "HURRY_BYTES", 1)
    async with flood.folding():
        await flood.changed.wait()
    assert (flood.naps, flood.stored >= BACKLOG) == (0, True)


async def test_below_the_limit_the_fold_takes_a_small_share_of_the_time(flood: Flood) -> None:
    """What is emitted without a pause waits in segments; the fold takes one batch and leaves the rest of the time."""
    async with flood.folding():
        await flood.changed.wait()
    assert (flood.naps, flood.stored <= BATCH_MAX) == (1, True)

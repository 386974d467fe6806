"""The fold: it yields to emitting code, until the backlog reaches its limit."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from mica.errors import StoreBusy
from mica.events import fold as folding_module
from mica.events.context import Here
from mica.events.fold import BATCH_MAX, BURST_EVENTS, JournalFold
from mica.events.journal import Journal
from mica.events.leftovers import leftovers
from mica.model.event import Appended, Event, EventId

BACKLOG = 5 * BATCH_MAX


async def find_nothing(_: Sequence[EventId]) -> list[Event]:
    """What an empty store answers."""
    return []


class Flood:
    """A store that receives events faster than it can store them. A sleep with a duration never ends."""

    def __init__(self, folder: Path) -> None:
        self.stored = 0
        self.naps = 0
        self.bursts = 0  # bursts still to emit, one whenever the fold collects events
        self.stored_at_bursts: list[int] = []
        self.changed = asyncio.Event()
        self.loop: asyncio.AbstractEventLoop | None = None  # the loop of the fold; other threads have others
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

    def burst(self) -> None:
        if self.bursts:
            self.bursts -= 1
            self.stored_at_bursts.append(self.stored)
            for _ in range(BURST_EVENTS):
                self.journal.emit("burst")

    @asynccontextmanager
    async def folding(self) -> AsyncIterator[None]:
        self.loop = asyncio.get_running_loop()
        folding = JournalFold(self.append, find_nothing, self._folder)
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
        if is_folds and not seconds:
            flood.burst()
        await (flood.nap() if seconds and is_folds else sleep(seconds))

    monkeypatch.setattr(folding_module, "GATHER_S", 0)
    monkeypatch.setattr(asyncio, "sleep", nap)
    return flood


async def test_a_backlog_over_its_limit_is_stored_without_a_pause(
    flood: Flood, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The journal is bounded: above a limit storing takes priority over other work."""
    monkeypatch.setattr(folding_module, "HURRY_BYTES", 1)
    async with flood.folding():
        await flood.changed.wait()
    assert (flood.naps, flood.stored >= BACKLOG) == (0, True)


async def test_below_the_limit_the_fold_uses_a_small_share_of_the_time(flood: Flood) -> None:
    """Events of a steady stream wait in segments; the fold stores one batch and then yields."""
    async with flood.folding():
        await flood.changed.wait()
    assert (flood.naps, flood.stored <= BATCH_MAX) == (1, True)


async def test_a_burst_is_stored_when_it_ends(flood: Flood, monkeypatch: pytest.MonkeyPatch) -> None:
    """During a burst the fold waits, because storing would slow down the emitting code."""
    monkeypatch.setattr(folding_module, "LULL_S", 3_600)
    flood.bursts = 5
    async with flood.folding():
        await flood.changed.wait()
    assert (flood.stored_at_bursts, flood.stored > 0) == ([0] * 5, True)


async def test_an_endless_burst_is_stored_too(flood: Flood, monkeypatch: pytest.MonkeyPatch) -> None:
    """The fold waits for a lull, but not forever: other processes read only stored events."""
    monkeypatch.setattr(folding_module, "LULL_S", 0)
    flood.bursts = 1_000_000
    async with flood.folding():
        await flood.changed.wait()
    assert flood.stored > 0


async def test_later_events_are_stored_without_a_read(tmp_path: Path) -> None:
    """After a pause the fold restarts automatically."""
    stored: list[str] = []
    changed = asyncio.Event()

    async def append(events: Sequence[Event]) -> Appended:
        stored.extend(event.name for event in events)
        changed.set()
        return Appended(stored=len(events))

    folding = JournalFold(append, find_nothing, tmp_path)
    journal = Journal(tmp_path, space="test", base=Here(), clock=None, wake=folding.wake)
    folding.begin(journal)
    for name in ("one", "two", "three"):
        changed.clear()
        journal.emit(name)
        async with asyncio.timeout(60):
            await changed.wait()
        for _ in range(100):  # the fold is idle and waits to be woken
            await asyncio.sleep(0)
    await folding.close()
    journal.close()

    assert stored == ["one", "two", "three"]


async def test_single_events_are_batched_before_they_are_stored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each append is a disk sync; one per mark would delay callers that wait for `durable`."""
    gathered: list[int] = []  # number of appends whenever the fold collects events
    appends = 0
    enough = asyncio.Event()
    sleep, own = asyncio.sleep, asyncio.get_running_loop()

    async def nap(seconds: float) -> None:
        if seconds == folding_module.GATHER_S and asyncio.get_running_loop() is own:
            gathered.append(appends)
        await sleep(0)

    async def append(events: Sequence[Event]) -> Appended:
        nonlocal appends
        appends += 1
        journal.emit("step")  # another mark arrives while this one is stored
        if appends == 5:
            enough.set()
        return Appended(stored=len(events))

    monkeypatch.setattr(asyncio, "sleep", nap)
    folding = JournalFold(append, find_nothing, tmp_path)
    journal = Journal(tmp_path, space="test", base=Here(), clock=None, wake=folding.wake)
    journal.emit("step")
    folding.begin(journal)
    try:
        await enough.wait()
    finally:
        folding._task.cancel()
        await asyncio.wait([folding._task])
        journal.close()

    assert gathered[:5] == [0, 1, 2, 3, 4]


async def test_closing_does_not_wait_again_for_a_busy_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """keeps: U-04. A command that failed after a minute because the file is locked does not wait another minute."""
    monkeypatch.setattr(folding_module, "CLOSE_S", 0.01)
    attempts = 0

    async def append(_: Sequence[Event]) -> Appended:
        nonlocal attempts
        attempts += 1
        if attempts > 1:
            await asyncio.Event().wait()
        raise StoreBusy("locked for a minute")

    folding = JournalFold(append, find_nothing, tmp_path)
    journal = Journal(tmp_path, space="test", base=Here(), clock=None, wake=folding.wake)
    folding.begin(journal)
    journal.emit("step")
    with pytest.raises(StoreBusy):
        await folding.flush()

    async with asyncio.timeout(30):
        await folding.close()

    assert journal.waiting_events == 1
    journal.close()


async def test_a_closing_memory_releases_segments_of_dead_writers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its claim ends even if closing takes no time, so the next process can take over."""
    monkeypatch.setattr(folding_module, "CLOSE_S", 0)

    async def append(events: Sequence[Event]) -> Appended:
        return Appended(stored=len(events))

    folding = JournalFold(append, find_nothing, tmp_path)
    journal = Journal(tmp_path, space="test", base=Here(), clock=None, wake=folding.wake)
    folding.begin(journal)
    for _ in range(5):
        dead = Journal(tmp_path, space="test", base=Here(), clock=None, wake=lambda: None)
        dead.emit("step")
        dead.close()

    await folding.close()

    unclaimed = list(leftovers(tmp_path))
    for each in unclaimed:
        each.close()
    assert len(unclaimed) == 5
    journal.close()

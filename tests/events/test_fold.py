"""The fold: it leaves the time to those who emit, until so much waits that it must hurry."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from mica.errors import StoreBusy
from mica.events import fold as folding_module
from mica.events.context import Here
from mica.events.fold import BATCH_MAX, BURST_EVENTS, Folding
from mica.events.journal import Journal
from mica.events.leftovers import leftovers
from mica.model.event import Appended, Event

BACKLOG = 5 * BATCH_MAX


class Flood:
    """A store into which events come faster than it takes them. Who waits there for a time waits for ever."""

    def __init__(self, folder: Path) -> None:
        self.stored = 0
        self.naps = 0
        self.bursts = 0  # that are still to come, each while the fold lets events gather
        self.stored_at_bursts: list[int] = []
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

    def burst(self) -> None:
        if self.bursts:
            self.bursts -= 1
            self.stored_at_bursts.append(self.stored)
            for _ in range(BURST_EVENTS):
                self.journal.emit("burst")

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
        if is_folds and not seconds:
            flood.burst()
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


async def test_a_burst_is_stored_when_it_ends(flood: Flood, monkeypatch: pytest.MonkeyPatch) -> None:
    """While events come in a burst the fold waits: storing them takes the time of who emits them."""
    monkeypatch.setattr(folding_module, "LULL_S", 3_600)
    flood.bursts = 5
    async with flood.folding():
        await flood.changed.wait()
    assert (flood.stored_at_bursts, flood.stored > 0) == ([0] * 5, True)


async def test_a_burst_without_end_is_stored_all_the_same(flood: Flood, monkeypatch: pytest.MonkeyPatch) -> None:
    """The fold waits for a lull, but not for ever: other processes read what is stored."""
    monkeypatch.setattr(folding_module, "LULL_S", 0)
    flood.bursts = 1_000_000
    async with flood.folding():
        await flood.changed.wait()
    assert flood.stored > 0


async def test_whatever_comes_later_is_stored_by_itself(tmp_path: Path) -> None:
    """One event, a pause, another one: nobody has to read for the fold to go on."""
    stored: list[str] = []
    changed = asyncio.Event()

    async def append(events: Sequence[Event]) -> Appended:
        stored.extend(event.name for event in events)
        changed.set()
        return Appended(stored=len(events))

    folding = Folding(append, tmp_path)
    journal = Journal(tmp_path, space="test", base=Here(), clock=None, wake=folding.wake)
    folding.begin(journal)
    for name in ("one", "two", "three"):
        changed.clear()
        journal.emit(name)
        async with asyncio.timeout(60):
            await changed.wait()
        for _ in range(100):  # the fold has seen that nothing is left, and waits to be woken
            await asyncio.sleep(0)
    await folding.close()
    journal.close()

    assert stored == ["one", "two", "three"]


async def test_events_that_come_one_by_one_gather_before_they_are_stored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each append is a sync of the disk: one for every mark would stand in the way of those who wait for `durable`."""
    gathered: list[int] = []  # how many appends there were whenever the fold let events gather
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
        journal.emit("step")  # somebody marks while this is stored
        if appends == 5:
            enough.set()
        return Appended(stored=len(events))

    monkeypatch.setattr(asyncio, "sleep", nap)
    folding = Folding(append, tmp_path)
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


async def test_closing_does_not_wait_again_for_a_store_that_was_busy_all_the_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """U-04: a command that was told after a minute that the file is locked does not stand there for another."""
    monkeypatch.setattr(folding_module, "CLOSE_S", 0.01)
    asked = 0

    async def append(_: Sequence[Event]) -> Appended:
        nonlocal asked
        asked += 1
        if asked > 1:
            await asyncio.Event().wait()
        raise StoreBusy("locked for a minute")

    folding = Folding(append, tmp_path)
    journal = Journal(tmp_path, space="test", base=Here(), clock=None, wake=folding.wake)
    folding.begin(journal)
    journal.emit("step")
    with pytest.raises(StoreBusy):
        await folding.flush()

    async with asyncio.timeout(30):
        await folding.close()

    assert journal.waiting_events == 1
    journal.close()


async def test_who_closes_holds_nothing_of_dead_writers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """TE-07: a claim that closing has begun is ended, also where closing takes no time: the next can have it."""
    monkeypatch.setattr(folding_module, "CLOSE_S", 0)

    async def append(events: Sequence[Event]) -> Appended:
        return Appended(stored=len(events))

    folding = Folding(append, tmp_path)
    journal = Journal(tmp_path, space="test", base=Here(), clock=None, wake=folding.wake)
    folding.begin(journal)
    for _ in range(5):
        dead = Journal(tmp_path, space="test", base=Here(), clock=None, wake=lambda: None)
        dead.emit("step")
        dead.close()

    await folding.close()

    left = list(leftovers(tmp_path))
    for each in left:
        each.close()
    assert len(left) == 5
    journal.close()

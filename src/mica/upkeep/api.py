"""The class behind `memory.upkeep`: recurring jobs, checks, sizes, compression of old events, copies and retention."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Sequence
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from mica.errors import InvalidInput
from mica.events.hot import Hot
from mica.events.leftovers import backlog, closed_in, damaged_in
from mica.events.log import Log
from mica.model.event import Clock, Event, EventId, Ref, check_several, split_id
from mica.search.vectors import MarkVectors
from mica.settings import Settings
from mica.store.leases import Work
from mica.store.protocol import Sizes, Store, no_progress
from mica.store.target import open_store
from mica.upkeep.copy import CopyResult, copy
from mica.upkeep.retention import PINNED, UNPINNED, RetentionResult
from mica.upkeep.schedule import HOT, JobRun, Scheduler, age

if TYPE_CHECKING:
    from mica.upkeep.purge import Purger


class Upkeep:
    """The maintenance of a space: `await memory.upkeep.verify()`, `.rebuild`, `.tick`, `.age`, `.copy_to` …

    `purger` and `learn_trails` are functions, so that the code for purges and trails is loaded only when it is needed.
    """

    def __init__(
        self,
        store: Store,
        log: Log,
        *,
        clock: Clock,
        settings: Settings,
        scheduler: Scheduler,
        vectors: MarkVectors | None,
        purger: Callable[[], Purger],
        after_tick: Callable[[], Awaitable[None]],
        learn_trails: Callable[[], Awaitable[int]],
    ) -> None:
        self._store = store
        self._log = log
        self._clock = clock
        self._settings = settings
        self._scheduler = scheduler
        self._vectors = vectors
        self._purger = purger
        self._after_tick = after_tick
        self._learn_trails = learn_trails

    # -- Jobs

    async def tick(self, kinds: Collection[str] | None = None) -> list[JobRun]:
        """Run the jobs that are due; returns one result for each. Jobs that another process is running are skipped.

        `kinds` are the kinds of jobs to run; None means all.
        """
        check_several("kinds", kinds)
        await self._log.stored()
        ran = await self._scheduler.tick(kinds)
        if kinds is None:
            await self._after_tick()
        return ran

    async def planned(self) -> list[Work]:
        """Return the recurring jobs of this space: when each is due, and which process is running it, if any."""
        return await self._store.work.all()

    # -- Health

    async def sizes(self) -> Sizes:
        """Return how many events, marks and others this space has, and how many bytes its store takes.

        Events that are not stored yet are counted as events, but the files in which they wait are not in the bytes.
        """
        await self._log.reads()
        async with self._log.paused_unless_stalled() as waiting:
            sizes = await self._store.files.sizes()
            return msgspec.structs.replace(sizes, events=sizes.events + Hot(waiting).count)

    async def backlog(self) -> tuple[int, int]:
        """Return a pair: how many events of all processes wait to be stored, and the size of their files in bytes."""
        return await asyncio.to_thread(backlog, self._store.segments)

    @property
    def segments(self) -> Path | None:
        """The folder with the files of events that wait to be stored; None if the space is only in memory."""
        return self._store.segments

    @property
    def damaged(self) -> list[str]:
        """One sentence for each file of events that wait to be stored, if the file is damaged or cannot be read."""
        return [*self._log.damaged, *damaged_in(self._store.segments), *closed_in(self._store.segments)]

    async def verify(self, *, on_progress: Callable[[int], None] = no_progress) -> list[str]:
        """Check the stored data; returns one sentence for each inconsistency.

        `on_progress` is called, from any thread, with the number of events checked so far. It is not called for a space
        behind a server.
        """
        await self._log.settle()
        return await self._store.files.verify(on_progress=on_progress)

    async def rebuild(self, *, on_progress: Callable[[int], None] = no_progress) -> int:
        """Rebuild everything that is derived from events, such as indexes; returns the number of events read.

        Vectors are computed again if there is an embedding model, and trails are learned again if there were any.
        """
        await self._log.stored()
        had_trails = bool((await self._store.trails.learned_up_to()).position)
        count = await self._store.files.rebuild(on_progress=on_progress)
        if had_trails:
            await self._learn_trails()
        await self.embed()
        return count

    # -- Vectors and ageing

    async def embed(self, *, on_progress: Callable[[int], None] = lambda count: None) -> int:
        """Compute the missing vectors of marks, latest mark first; returns the number of new vectors.

        Without an embedding model, the result is 0. A long-running process does this automatically while it is idle.
        """
        if self._vectors is None:
            return 0
        await self._log.stored()
        return await self._vectors.catch_up(on_progress=on_progress)

    async def without_vector(self) -> int | None:
        """Return the number of marks that have no vector yet; None without an embedding model."""
        if self._vectors is None:
            return None
        await self._log.stored()
        return await self._vectors.missing()

    async def age(
        self,
        older_than: timedelta = HOT,
        *,
        at_least: int = 1,
        on_progress: Callable[[int], None] = lambda count: None,
    ) -> int:
        """Compress the events that are older than `older_than`; returns how many. Readers see no difference.

        If fewer than `at_least` events are old enough, only large ones are compressed. A long-running process does this
        automatically while it is idle, at most once an hour, and only if there are enough old events.
        """
        if older_than < timedelta(0):
            raise InvalidInput(f"an age cannot be negative; use 0 or more, not {older_than}")
        await self._log.stored()
        return await age(
            self._store.files, now=self._clock, older_than=older_than, at_least=at_least, on_progress=on_progress
        )

    # -- Copies, purges and retention

    async def copy_to(
        self,
        target: str | Path,
        *,
        into_other: bool = False,
        on_progress: Callable[[int], None] = lambda count: None,
    ) -> CopyResult:
        """Copy every event of this space into another store and verify the copy.

        To resume an interrupted copy, call this method again. Raises InvalidInput if the target is this space itself,
        or if the target has another space and `into_other` is not set.
        """
        await self._log.stored()
        store = await open_store(target, settings=self._settings)
        try:
            return await copy(self._store, store, into_other=into_other, on_progress=on_progress)
        finally:
            await store.close()

    async def allow(self, value: str) -> list[EventId]:
        """Allow a purged value to be recorded again in new events.

        Returns the ids of the purges of this value, which no longer apply to new events. The permission is recorded
        without the value. Purged content stays purged, even if a copy from before the purge arrives later. Raises
        InvalidInput if no purge of exactly this value is in force.
        """
        return await self._purger().allow(value)

    async def retain(self, *, dry_run: bool = False) -> RetentionResult:
        """Purge the events that are older than the `[retention]` settings allow.

        If the settings have an archive folder, the events are first written into a file there. A dry run only counts
        the events. Raises InvalidInput if retention is off, except for a dry run.
        """
        return await self._purger().retain(self._settings.retention, dry_run=dry_run)

    def pin(self, *events: Event | Ref | str) -> Ref:
        """Exempt `events` from retention; returns a reference to the event that records this."""
        return self._log.emit(PINNED, {"ids": _ids(events)}, origin="user")

    def unpin(self, *events: Event | Ref | str) -> Ref:
        """End the exemption of pinned `events` from retention; returns a reference to the event that records this."""
        return self._log.emit(UNPINNED, {"ids": _ids(events)}, origin="user")


def _ids(events: Sequence[Event | Ref | str]) -> list[str]:
    """Return the ids of `events`. Raises InvalidInput if there are no events, or if a text is not an id."""
    if not events:
        raise InvalidInput("no events; pass events or their ids")
    ids = [each.id if isinstance(each, Event | Ref) else str(each) for each in events]
    for identifier in ids:
        split_id(identifier)
    return ids

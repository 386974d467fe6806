"""Keep: sizes, health, copies, ageing, and what must go."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime, timedelta
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from mica.errors import InvalidInput
from mica.events.hot import Hot
from mica.events.leftovers import backlog, closed_in, damaged_in
from mica.events.references import Reference
from mica.memory.briefing import Briefing
from mica.model.event import Event, EventId, Ref, Work, check_several, split_id
from mica.store.protocol import Sizes, unheard
from mica.store.purges import ALLOWED, BY_HAND, PURGE, Purged, Selection
from mica.store.target import open_store
from mica.upkeep.ageing import HOT, age
from mica.upkeep.copy import Copied, copy
from mica.upkeep.retention import PINNED, UNPINNED, Retained

if TYPE_CHECKING:  # what is loaded only when it is used: starting is quick
    from mica.upkeep.purge import Purging


class Keeping(Briefing):
    """A memory that is looked after."""

    async def backlog(self) -> tuple[int, int]:
        """How many events of any process wait to be stored in this space, and the bytes that their segments take."""
        return await asyncio.to_thread(backlog, self._store.segments)

    async def planned(self) -> list[Work]:
        """The work that is due now or later in this space, and who does it just now."""
        return await self._store.work()

    @property
    def damaged(self) -> list[str]:
        """What could not be read of the segments that other processes left, now or earlier."""
        return [*self._folding.damaged, *damaged_in(self._store.segments), *closed_in(self._store.segments)]

    async def copy_to(
        self,
        target: str | Path,
        *,
        into_other: bool = False,
        on_progress: Callable[[int], None] = lambda count: None,
    ) -> Copied:
        """Bring every event of this space into another store, and prove that it is there. Resumable.

        Raises InvalidInput when the target is this space itself or, unless `into_other` is given, holds another one.
        """
        await self._stored()
        store = await open_store(target, settings=self._settings)
        try:
            return await copy(self._store, store, into_other=into_other, on_progress=on_progress)
        finally:
            await store.close()

    def exported(self, path: Path, *, events: int) -> None:
        """Record that events were written to a file, so that a purge can take them out of it."""
        self._purging.exported(path, events=events)

    async def purge(
        self,
        *,
        ids: Event | Ref | Iterable[Reference] = (),
        value: str | None = None,
        session: str | None = None,
        agent: str | None = None,
        user: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        reason: str = BY_HAND,
        dry_run: bool = False,
    ) -> Purged:
        """Remove the content of every event that fits all that is given; a tombstone stays in the place of each.

        It goes from the store with all that derives from it, from segments, recorded exports and published commands;
        what happened before now and arrives later is purged on arrival. Crystals that rested on it are made anew of
        what is left (`remade` of the answer), or end (`ended`). The purge is recorded, without what it was asked by.
        Cut off in the middle, some events are purged and the others are as they were; calling it again goes on.
        Raises InvalidInput when nothing is selected and UnknownEvent for an id that is not here.
        """
        check_several("ids", ids)
        await self._ingest_spools()
        published = () if dry_run else await self.trails.publications()
        await (self._stored() if dry_run else self._folding.clear())
        named = [await self.event(reference) for reference in ([ids] if isinstance(ids, Event | Ref) else ids)]
        if records := [event.number for event in named if event.name in (PURGE, ALLOWED)]:
            raise InvalidInput(
                f"{', '.join(records)} records a purge and stays: tombstones lead to it, and it holds nothing of what "
                "was purged; leave it out"
            )
        known = frozenset([event.id for event in named])
        selection = Selection(ids=known, value=value, session=session, agent=agent, user=user, since=since, until=until)
        names = {} if dry_run else await self.trails.given()
        purged, taken = await self._purging.purge(selection, reason=reason, context=self.here.context, dry_run=dry_run)
        if not dry_run:
            self._take_back_answers()
            if self.spools is not None:
                await asyncio.to_thread(self.spools.sweep)
            if self._models is not None:
                self._models.cache.clear()
            await self.learn_purges()
            done = await self._remake(taken)
            purged = msgspec.structs.replace(purged, remade=done.crystals, ended=taken.ended(done))
            if names:
                await self.trails.give_again(names, without=value)
        if published:
            from mica.navigation.trails.publication import with_files

            purged = with_files(purged, await self.trails.republish(published))
        if not dry_run:
            from mica.upkeep.purge import forget_texts

            forget_texts()
        return purged

    async def allow(self, value: str) -> list[EventId]:
        """Let a value be said again that was purged: marks and judgments refuse it no more. It is recorded without it.

        What a purge took stays gone, and so does what happened before it and arrives later. Returns the records of the
        purges. Raises InvalidInput when no purge of this value alone stands.
        """
        await self._stored()
        purges = await self._purging.allow(value, context=self.here.context)
        await self.learn_purges()
        return purges

    @cached_property
    def _purging(self) -> Purging:
        from mica.upkeep.purge import Purging

        return Purging(self._store, self._journal, self._folding, append=self._append, ids=self._ids, clock=self._clock)

    async def retain(self, *, dry_run: bool = False) -> Retained:
        """Purge bulk events whose time is over, as `[retention]` is set; archived first where a folder is set.

        Raises InvalidInput while retention is off; a dry run tells what would go all the same.
        """
        return await self._purging.retain(self._settings.retention, context=self.here.context, dry_run=dry_run)

    def pin(self, *events: Event | Ref | str) -> Ref:
        """Keep these events, or those of these ids, for good, whatever retention is set to."""
        return self.emit(PINNED, {"ids": _named(events)}, origin="user")

    def unpin(self, *events: Event | Ref | str) -> Ref:
        """Let retention take these events again."""
        return self.emit(UNPINNED, {"ids": _named(events)}, origin="user")

    async def sizes(self) -> Sizes:
        """How much this space holds; of what waits for the store in large number, only the events are counted."""
        await self._reads()
        async with self._folding.paused() as waiting:
            sizes = await self._store.sizes()
            return msgspec.structs.replace(sizes, events=sizes.events + Hot(waiting).count)

    async def verify(self, *, on_progress: Callable[[int], None] = unheard) -> list[str]:
        """Every broken promise in the stored data, one sentence each.

        `on_progress` hears, on any thread, how many events are done; of a space behind a server it hears nothing.
        """
        await self._stored()
        return await self._store.verify(on_progress=on_progress)

    async def rebuild(self, *, on_progress: Callable[[int], None] = unheard) -> int:
        """Derive again what is derived from the log; returns the number of events read. Heard of as `verify` is."""
        await self._stored()
        had_trails = bool((await self._store.lesson()).position)
        count = await self._store.rebuild(on_progress=on_progress)
        if had_trails:
            await self.trails.learn()
        await self.embed()
        return count

    async def embed(self, *, on_progress: Callable[[int], None] = lambda count: None) -> int:
        """Make the vectors that marks are missing, the latest first; returns how many. Nothing without a model.

        A process that stays does this by itself, when nothing was stored for a while.
        """
        if self._meanings is None:
            return 0
        await self._stored()
        return await self._meanings.catch_up(on_progress=on_progress)

    async def without_vector(self) -> int | None:
        """How many marks have no vector yet; None when meaning does not count here."""
        if self._meanings is None:
            return None
        await self._stored()
        return await self._meanings.missing()

    async def age(
        self,
        older_than: timedelta = HOT,
        *,
        at_least: int = 1,
        on_progress: Callable[[int], None] = lambda count: None,
    ) -> int:
        """Turn events older than this into what takes less room; returns how many. No reader sees a difference.

        Nothing is done when fewer are due than `at_least`. A process that stays does this by itself once an hour, when
        nothing was stored for a while and there is enough to fill a block.
        """
        if older_than < timedelta(0):
            raise InvalidInput(f"events of the future cannot be aged; give an age of 0 or more, not {older_than}")
        await self._stored()
        return await age(
            self._store, now=self._clock, older_than=older_than, at_least=at_least, on_progress=on_progress
        )


def _named(events: Sequence[Event | Ref | str]) -> list[str]:
    """The ids of events. Raises InvalidInput when there are none, or one is no id."""
    if not events:
        raise InvalidInput("no event is given; give events, or their ids")
    ids = [each.id if isinstance(each, Event | Ref) else str(each) for each in events]
    for identifier in ids:
        split_id(identifier)
    return ids

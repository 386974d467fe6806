"""Read: events, chains, sessions, the log as it grows, and search."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterable, Sequence
from datetime import datetime

import msgspec

from mica.errors import InvalidInput, UnknownEvent
from mica.events import chains
from mica.events.activity import Overview, overview
from mica.events.context import Here, Scope
from mica.events.follower import POLL_S, Following, history, history_with_ancestors
from mica.events.hot import Reads
from mica.events.references import Reference, Resolved, check_number, listed, referred, resolved
from mica.events.sessions import IDLE, OpenSession, open_sessions
from mica.memory.observing import Observing
from mica.model.event import Event, EventQuery
from mica.search.mark_search import Filters
from mica.search.search import DEPTHS, Depth, Found, Reorder, Wanted, find

OVERVIEW_EVENTS = 20_000  # the latest; a few weeks of one person, read in a fraction of a second


class Reading(Observing):
    """A memory that can be asked."""

    async def event(self, reference: Reference) -> Event:
        """The event of this id or position. Raises UnknownEvent when there is none."""
        found = await self._referred(reference, await self._reads())
        if found is None:
            raise UnknownEvent(str(reference))
        return found

    async def resolve(self, references: Iterable[Reference]) -> Resolved:
        """The events of up to 100 ids or positions, in the order given, and those that are not there by name."""
        asked = listed(references)
        reads = await self._reads()
        return resolved(asked, [await self._referred(reference, reads) for reference in asked])

    async def _meant(self, reference: Reference, reads: Reads) -> Event:
        """The event of a reference; one that is at hand is not read again. Raises UnknownEvent when there is none."""
        found = reference if isinstance(reference, Event) else await self._referred(reference, reads)
        if found is None:
            raise UnknownEvent(str(reference))
        return found

    async def _referred(self, reference: Reference, reads: Reads) -> Event | None:
        return await referred(reference, reads=reads, store=self._store, flush=self._stored)

    async def events(self, query: EventQuery | None = None) -> list[Event]:
        """The latest events that fit, oldest first."""
        return await (await self._reads()).events(query or EventQuery())

    async def open_sessions(self) -> list[OpenSession]:
        """The sessions that have not ended and in which somebody has written in the last 30 minutes, latest last."""
        return open_sessions(await self.events(EventQuery(since=self._clock() - IDLE, limit=None)))

    async def resumed(self, session: str) -> Scope:
        """A `with` block that goes on where a session stopped, here or in a process that is gone.

        Events in it have the context of the session's last event and descend from it. Raises InvalidInput when there
        is no such session.
        """
        last = await self.events(EventQuery(session=session, limit=1)) if session is not None else []
        if not last:
            raise InvalidInput(
                f"there is no session {session!r} in this space; `mica sessions` shows those that are open"
            )
        here = Here(last[0].context, last[0].ref)
        return Scope(self._space, lambda: here)

    async def position(self) -> int:
        """The position of the last event of the log, 0 when there is none: where a follower of later ones begins."""
        await self._stored()
        return await self._store.last_position()

    async def log(
        self, query: EventQuery | None = None, *, after: int = 0, with_ancestors: bool = False
    ) -> AsyncGenerator[Event, None]:
        """Every stored event that fits, in commit order, from after a position to the end of the log.

        With ancestors, also all that led to these, so that no parent is missing. Read in small steps, so a log of any
        size can be walked; the query's limit does not count.
        """
        check_number("after", after)
        await self._stored()
        walk = history_with_ancestors if with_ancestors else history
        async for event in walk(self._store, query or EventQuery(), after=after):
            yield event

    def follow(self, query: EventQuery | None = None, *, after: int | None = None, poll_s: float = POLL_S) -> Following:
        """Every event that fits, in commit order, as it is stored; none is missed and none comes twice.

        Use it as `async for event in memory.follow(…)`. It begins after a position, or with what is stored after the
        loop has begun, as it does for a position beyond the end; `after=await memory.position()` makes that exact.
        Events of other processes and machines come too. While the store is unavailable it waits, then goes on from the
        last position; when this memory is closed it raises StoreUnavailable. Whoever breaks out of the loop or is
        cancelled leaves nothing behind. The query's limit does not count. `poll_s` is how long events of other
        processes may wait, where the store cannot ring: looking rarely costs less.
        """

        if after is not None:
            check_number("after", after)

        async def begin() -> int:
            if after is not None and after <= await self._store.last_position():
                return after
            last = await self.position()
            return last if after is None else min(after, last)

        return Following(
            self._store,
            query or EventQuery(),
            begin=begin,
            bell=self._bell,
            is_closed=lambda: self._is_closed,
            poll_s=poll_s,
        )

    async def chain(self, event: Reference) -> list[Event]:
        """All events of the chain that this one belongs to, oldest first. Raises UnknownEvent."""
        reads = await self._reads()
        return await reads.chain((await self._meant(event, reads)).correlation)

    async def ancestors(self, event: Reference) -> list[Event]:
        """What led to this event, nearest first. Raises UnknownEvent."""
        reads = await self._reads()
        return await reads.ancestors((await self._meant(event, reads)).id)

    async def descendants(self, event: Reference, *, depth: int | None = None) -> list[Event]:
        """What this event led to, oldest first, at most so many steps below it. Raises UnknownEvent."""
        if depth is not None:
            check_number("depth", depth)
        reads = await self._reads()
        return await reads.descendants((await self._meant(event, reads)).id, depth=depth)

    async def impact(self, event: Reference) -> chains.Impact:
        """What came after this event in its chain: caused by it, and apart from that merely correlated."""
        reads = await self._reads()
        meant = await self._meant(event, reads)
        chain = await reads.chain(meant.correlation)
        return chains.impact(meant, chain=chain, descendants=await reads.descendants(meant.id))

    async def failures(self, query: EventQuery | None = None) -> list[chains.Failure]:
        """The latest failures that fit, oldest first, each with what led to it and the agents that were part of it."""
        reads = await self._reads()
        failed = await reads.events(msgspec.structs.replace(query or EventQuery(), errors=True))
        return [
            chains.failure(
                event,
                ancestors=await reads.ancestors(event.id),
                descendants=await reads.descendants(event.id),
            )
            for event in failed
        ]

    async def replay(
        self,
        event: Reference,
        *,
        speed: float | None = None,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> AsyncIterator[Event]:
        """The chain of this event from it on, in order: at once, or at a multiple of the recorded speed.

        With a speed each event comes when it is due by `clock`, which counts seconds; nothing is executed again.
        """
        chains.check_speed(speed)
        reads = await self._reads()
        meant = await self._meant(event, reads)
        part = chains.since(meant, await reads.chain(meant.correlation))
        async for other in chains.replay(part, speed=speed, clock=clock, sleep=sleep):
            yield other

    async def search(
        self,
        query: str,
        *,
        limit: int = 10,
        since: datetime | str | None = None,
        until: datetime | str | None = None,
        agent: str | None = None,
        tags: str | Sequence[str] = (),
        level: Depth | None = None,
        with_sources: bool = False,
        with_superseded: bool = False,
        now: datetime | None = None,
    ) -> Found:
        """The marks and crystals that answer the query, best first; empty when none does.

        Each hit has `id`, `text`, `at`, `position`, `score` and `parts`, and is a `Hit` with its `mark` or a
        `CrystalHit` with its `crystal`. Of a crystal and the marks and crystals beneath it only the better one is
        shown, unless `with_sources`; crystals that were superseded or retracted only `with_superseded`. `level` asks
        for marks alone ("mark"), or for the crystals of one level.

        Only those from `since` on and before `until`, of this agent, and with all of these tags. Times may be phrases
        such as "last Tuesday". A time that the query itself names raises what is around it; `periods` of the answer
        says how it was understood. Where agents' walks are known, a hit that names a file which `navigate` ranks for
        this query is raised by its probability; `parts` says by how much. Raises InvalidInput for a query
        without a word.
        """
        if not isinstance(query, str):
            raise InvalidInput(f"a query is a text, not {query!r}")
        if not any(map(str.isalnum, query)):
            raise InvalidInput(f"the query {query[:60]!r} has no word to search for; name what was observed")
        if limit < 0:
            raise InvalidInput(f"a limit of {limit} is not possible; give 0 or more")
        if level is not None and level not in DEPTHS:
            raise InvalidInput(f"there is no level {level!r}; use one of {', '.join(DEPTHS)}")
        now = now or self._clock()
        given = [tags] if isinstance(tags, str) else tags
        filters = Filters(
            since=self._moment(since, now),
            until=self._moment(until, now),
            agent=agent,
            tags=tuple(tag.lstrip("#") for tag in given),
        )
        await self._stored()
        likeness = {} if self._meanings is None else {"likeness": self._meanings.likeness}
        with self._turns.asking():
            return await find(
                self._store,
                query,
                limit=limit,
                now=now,
                zone=self._settings.zone(),
                filters=filters,
                wanted=Wanted(level=level, with_sources=with_sources, with_superseded=with_superseded),
                reorder=await self._by_files(query),
                **likeness,
            )

    async def _by_files(self, query: str) -> Reorder | None:
        """How results are put into another order for a task; None: as they are."""
        return None

    async def overview(self) -> Overview:
        """What agents did lately in this space."""
        latest = await self.events(EventQuery(limit=OVERVIEW_EVENTS))
        return overview(latest, is_partial=len(latest) == OVERVIEW_EVENTS)

"""Promotes crystals to teachings, withdraws teachings, and says which ones stand."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import suppress

from mica.errors import DuplicateEvent, InvalidInput, UnknownEvent
from mica.model.crystal import Crystal, CrystalQuery, crystal_of, retracted_by
from mica.model.event import (
    CRYSTAL,
    RETRACTED,
    Appended,
    Clock,
    Context,
    Event,
    EventId,
    EventQuery,
    Origin,
    event_id,
    is_tombstone,
    make_event,
    sequence_named,
    writer_named,
)
from mica.model.teaching import (
    AUTO_MAX,
    PROMOTED,
    WITHDRAWN,
    Candidate,
    Teaching,
    judged,
    passing,
    teaching_data,
    teaching_of,
    withdrawal_of,
)
from mica.redact import redact
from mica.store.protocol import Store

RULE = "rule"  # who promotes when nobody is asked
REPLACED = "a later revision of its crystal was promoted"


class Promoting:
    """Makes teachings of one space. Withdrawals are events with the next of `ids`."""

    def __init__(
        self,
        store: Store,
        *,
        append: Callable[[Sequence[Event]], Awaitable[Appended]],
        ids: Iterator[EventId],
        clock: Clock,
    ) -> None:
        self._store = store
        self._append = append
        self._ids = ids
        self._clock = clock

    async def teachings(self, *, with_ended: bool = False) -> list[Teaching]:
        """The teachings that stand, oldest first; on request also those that ended, with the reason."""
        return await known(self._store, with_ended=with_ended)

    async def promote(
        self, identifier: EventId, *, by: str, reason: str = "", origin: Origin = "user", context: Context
    ) -> Teaching:
        """Make a crystal that stands a teaching. One that is a teaching already stays as it is.

        A teaching of an earlier revision is withdrawn. Raises InvalidInput when the crystal does not stand.
        """
        crystal = await self._standing(identifier)
        earlier = await self.teachings(with_ended=True)
        own = [teaching for teaching in earlier if teaching.crystal == crystal.id]
        if own and own[-1].ended is None:
            return own[-1]
        # The id is that of the crystal and how often it was promoted: of two who do it at once, one is first.
        new = event_id(writer_named(PROMOTED), sequence_named(f"{crystal.id} {len(own)}"))
        data = teaching_data(crystal, by=redact(by), reason=redact(reason))
        event = make_event(new, PROMOTED, data, at=self._clock(), context=context, origin=origin)
        replaced = [
            self._withdrawal(teaching, REPLACED, context=context, origin=origin, successor=new)
            for teaching in earlier
            if teaching.ended is None and (teaching.level, teaching.period) == (crystal.level, crystal.period)
        ]
        with suppress(DuplicateEvent):  # another process was first; its teaching is read below
            await self._append([event, *replaced])
        stored = await self._store.event(new) or event
        if is_tombstone(stored):
            raise InvalidInput(f"{crystal.id} says what was purged while it was promoted; promote what is made anew")
        return teaching_of(stored)

    async def candidates(self) -> list[Candidate]:
        """The crystals that pass the gate and are no teachings yet, best first.

        What somebody withdrew is not offered again, nor is a later revision of it.
        """
        teachings = await self.teachings(with_ended=True)
        promoted = {teaching.crystal for teaching in teachings}
        withdrawn = await self._store.events(EventQuery(names=(WITHDRAWN,), limit=None))
        refused = {each.teaching for each in map(withdrawal_of, withdrawn) if each.successor is None}
        besides = {(teaching.level, teaching.period) for teaching in teachings if teaching.id in refused}
        live = await self._store.crystals(CrystalQuery(is_stale=False, limit=None))
        return passing((crystal for crystal in live if crystal.id not in promoted), besides=besides)

    async def promote_best(self, *, context: Context, limit: int = AUTO_MAX) -> list[Teaching]:
        """Promote what passes the gate, a few at a time, the best first."""
        best = (await self.candidates())[:limit]
        return [
            await self.promote(
                each.crystal.id,
                by=RULE,
                reason=f"score {each.score:.2f}, {each.share:.0%} of what a {each.crystal.level} crystal can have",
                origin="agent",
                context=context,
            )
            for each in best
        ]

    async def withdraw(self, identifier: EventId, *, reason: str, context: Context) -> Teaching:
        """End a teaching; one that has ended stays as it is. Raises InvalidInput, with what it is, when it is none."""
        teaching = await self._teaching(identifier)
        if teaching.ended is None:
            await self._append([self._withdrawal(teaching, redact(reason), context=context, origin="user")])
        return await self._teaching(identifier)

    async def _teaching(self, identifier: EventId) -> Teaching:
        known = await self.teachings(with_ended=True)
        for teaching in known:
            if teaching.id == identifier:
                return teaching
        event = await self._store.event(identifier)
        if event is None:
            raise UnknownEvent(identifier)
        of_crystal = [f"#{each.position}" for each in known if each.crystal == identifier and each.ended is None]
        instead = f"its teaching is {', '.join(of_crystal)}" if of_crystal else "`mica teachings` lists those there are"
        kind = "crystal" if event.name == CRYSTAL else event.name
        raise InvalidInput(f"event {event.number} is a {kind}, no teaching; {instead}")

    async def _standing(self, identifier: EventId) -> Crystal:
        event = await self._store.event(identifier)
        if event is None:
            raise UnknownEvent(identifier)
        if event.name != CRYSTAL:
            raise InvalidInput(f"event {identifier} is a {event.name}; only crystals are promoted, `mica crystals`")
        crystal = crystal_of(event)
        live = await self._store.crystals(CrystalQuery(level=crystal.level, period=crystal.period, limit=None))
        if crystal.id not in {each.id for each in live}:
            instead = f"; {live[-1].id} stands in its place" if live else ""
            raise InvalidInput(f"crystal {identifier} was superseded or retracted and cannot be taught{instead}")
        here = frozenset([crystal.position or 0])
        if await self._store.crystals(CrystalQuery(positions=here, is_stale=True)):
            raise InvalidInput(
                f"crystal {identifier} rests on something that was retracted or superseded and cannot be taught; "
                "`mica tick` makes it anew, promote that one"
            )
        return crystal

    def _withdrawal(
        self, teaching: Teaching, reason: str, *, context: Context, origin: Origin, successor: EventId | None = None
    ) -> Event:
        data = {"teaching": teaching.id, "reason": reason, "successor": successor}
        return make_event(next(self._ids), WITHDRAWN, data, at=self._clock(), context=context, origin=origin)


async def known(store: Store, *, with_ended: bool = False) -> list[Teaching]:
    """The teachings of a store, oldest first: those that stand, and on request those that ended."""
    promoted = await store.events(EventQuery(names=(PROMOTED,), limit=None))
    if not promoted:
        return []
    withdrawn = await store.events(EventQuery(names=(WITHDRAWN,), limit=None))
    retracted = await store.events(EventQuery(names=(RETRACTED,), limit=None))
    teachings = list(map(teaching_of, promoted))
    found = judged(
        teachings,
        map(withdrawal_of, withdrawn),
        retracted=frozenset(map(retracted_by, retracted)),
        successors=await _successors(store, teachings),
    )
    return [teaching for teaching in found if with_ended or teaching.ended is None]


async def _successors(store: Store, teachings: Sequence[Teaching]) -> dict[EventId, EventId]:
    """The crystal that stands in the place of one that was promoted, where that is another."""
    found: dict[EventId, EventId] = {}
    for level, period in {(teaching.level, teaching.period) for teaching in teachings}:
        for live in await store.crystals(CrystalQuery(level=level, period=period, limit=1)):
            of_period = [each for each in teachings if (each.level, each.period) == (level, period)]
            found |= {each.crystal: live.id for each in of_period if each.crystal != live.id}
    return found


async def resting_on(store: Store, identifiers: Sequence[EventId]) -> list[EventId]:
    """Every teaching that cites one of these marks or crystals, whether it stands or not."""
    wanted = frozenset(identifiers)
    promoted = await store.events(EventQuery(names=(PROMOTED,), limit=None))
    return [event.id for event in promoted if not wanted.isdisjoint(teaching_of(event).cites)]

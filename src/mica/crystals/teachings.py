"""Promotes crystals to teachings, withdraws teachings, and reads those that still hold."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import suppress

from mica.errors import DuplicateEvent, InvalidInput, UnknownEvent
from mica.model.crystal import Crystal, CrystalQuery, crystal_of, retraction_target
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
    resolve_teachings,
    select_candidates,
    teaching_data,
    teaching_of,
    withdrawal_of,
)
from mica.redact import redact
from mica.store.protocol import CrystalIndex, EventLog

RULE = "rule"  # the promoter when no person is involved
REPLACED = "a later revision of its crystal was promoted"


class TeachingBook:
    """Makes, reads and withdraws the teachings of one space. `ids` generates the ids of withdrawal events."""

    def __init__(
        self,
        log: EventLog,
        index: CrystalIndex,
        *,
        append: Callable[[Sequence[Event]], Awaitable[Appended]],
        ids: Iterator[EventId],
        clock: Clock,
    ) -> None:
        self._log = log
        self._index = index
        self._append = append
        self._ids = ids
        self._clock = clock

    async def teachings(self, *, with_ended: bool = False) -> list[Teaching]:
        """Return the teachings in force, oldest first; `with_ended` adds those that ended, with the reason."""
        return await read_teachings(self._log, self._index, with_ended=with_ended)

    async def promote(
        self, identifier: EventId, *, by: str, reason: str = "", origin: Origin = "user", context: Context
    ) -> Teaching:
        """Promote a crystal to a teaching and return the teaching. If it is promoted already, return its teaching.

        A teaching from an earlier revision of the crystal is withdrawn. Raises UnknownEvent if there is no such event,
        and InvalidInput if it is not a crystal, was superseded or retracted, or has lost a source.
        """
        crystal = await self._live_crystal(identifier)
        earlier = await self.teachings(with_ended=True)
        own = [teaching for teaching in earlier if teaching.crystal == crystal.id]
        if own and own[-1].ended is None:
            return own[-1]
        # The id follows from the crystal and the number of promotions, so that one of two concurrent calls wins.
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
        stored = await self._log.get(new) or event
        if is_tombstone(stored):
            raise InvalidInput(f"text of {crystal.id} was purged while it was promoted; promote its new revision")
        return teaching_of(stored)

    async def candidates(self) -> list[Candidate]:
        """Return the crystals that have a high enough score to be promoted and are not promoted yet, best first.

        If a person withdrew a teaching, its crystal and later revisions of the crystal are left out.
        """
        teachings = await self.teachings(with_ended=True)
        promoted = {teaching.crystal for teaching in teachings}
        withdrawn = await self._log.query(EventQuery(names=(WITHDRAWN,), limit=None))
        refused = {each.teaching for each in map(withdrawal_of, withdrawn) if each.successor is None}
        besides = {(teaching.level, teaching.period) for teaching in teachings if teaching.id in refused}
        live = await self._index.query(CrystalQuery(is_stale=False, limit=None))
        return select_candidates((crystal for crystal in live if crystal.id not in promoted), besides=besides)

    async def promote_best(self, *, context: Context, limit: int = AUTO_MAX) -> list[Teaching]:
        """Promote the best candidates, at most `limit`; returns the new teachings."""
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
        """End a teaching and return it; a teaching that has ended already stays as it is.

        Raises UnknownEvent if there is no such event, and InvalidInput if the event is not a teaching.
        """
        teaching = await self._teaching(identifier)
        if teaching.ended is None:
            await self._append([self._withdrawal(teaching, redact(reason), context=context, origin="user")])
        return await self._teaching(identifier)

    async def _teaching(self, identifier: EventId) -> Teaching:
        every = await self.teachings(with_ended=True)
        for teaching in every:
            if teaching.id == identifier:
                return teaching
        event = await self._log.get(identifier)
        if event is None:
            raise UnknownEvent(identifier)
        of_crystal = [f"#{each.position}" for each in every if each.crystal == identifier and each.ended is None]
        instead = f"its teaching is {', '.join(of_crystal)}" if of_crystal else "`mica crystals teachings` lists them"
        kind = "crystal" if event.name == CRYSTAL else event.name
        raise InvalidInput(f"event {event.number} is a {kind}, not a teaching; {instead}")

    async def _live_crystal(self, identifier: EventId) -> Crystal:
        event = await self._log.get(identifier)
        if event is None:
            raise UnknownEvent(identifier)
        if event.name != CRYSTAL:
            raise InvalidInput(
                f"event {identifier} is a {event.name}; only crystals are promoted; `mica crystals list` lists them"
            )
        crystal = crystal_of(event)
        live = await self._index.query(CrystalQuery(level=crystal.level, period=crystal.period, limit=None))
        if crystal.id not in {each.id for each in live}:
            instead = f"; {live[-1].id} replaced it" if live else ""
            raise InvalidInput(f"crystal {identifier} was superseded or retracted and cannot be promoted{instead}")
        here = frozenset([crystal.position or 0])
        if await self._index.query(CrystalQuery(positions=here, is_stale=True)):
            raise InvalidInput(
                f"crystal {identifier} has a source that was retracted or superseded and cannot be promoted; "
                "run `mica upkeep tick` to make it again, then promote the new one"
            )
        return crystal

    def _withdrawal(
        self, teaching: Teaching, reason: str, *, context: Context, origin: Origin, successor: EventId | None = None
    ) -> Event:
        data = {"teaching": teaching.id, "reason": reason, "successor": successor}
        return make_event(next(self._ids), WITHDRAWN, data, at=self._clock(), context=context, origin=origin)


async def read_teachings(log: EventLog, index: CrystalIndex, *, with_ended: bool = False) -> list[Teaching]:
    """Return the teachings of a space, oldest first: those in force and, with `with_ended`, those that ended."""
    promoted = await log.query(EventQuery(names=(PROMOTED,), limit=None))
    if not promoted:
        return []
    withdrawn = await log.query(EventQuery(names=(WITHDRAWN,), limit=None))
    retracted = await log.query(EventQuery(names=(RETRACTED,), limit=None))
    teachings = list(map(teaching_of, promoted))
    resolved = resolve_teachings(
        teachings,
        map(withdrawal_of, withdrawn),
        retracted=frozenset(map(retraction_target, retracted)),
        successors=await _successors(index, teachings),
    )
    return [teaching for teaching in resolved if with_ended or teaching.ended is None]


async def _successors(index: CrystalIndex, teachings: Sequence[Teaching]) -> dict[EventId, EventId]:
    """Map the id of each promoted crystal that was superseded to the id of its live successor."""
    successors: dict[EventId, EventId] = {}
    for level, period in {(teaching.level, teaching.period) for teaching in teachings}:
        for live in await index.query(CrystalQuery(level=level, period=period, limit=1)):
            of_period = [each for each in teachings if (each.level, each.period) == (level, period)]
            successors |= {each.crystal: live.id for each in of_period if each.crystal != live.id}
    return successors


async def teachings_citing(log: EventLog, identifiers: Sequence[EventId]) -> list[EventId]:
    """Return the ids of all teachings, ended ones too, that cite one of the marks or crystals in `identifiers`."""
    ids = frozenset(identifiers)
    promoted = await log.query(EventQuery(names=(PROMOTED,), limit=None))
    return [event.id for event in promoted if not ids.isdisjoint(teaching_of(event).cites)]

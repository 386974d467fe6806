"""Crystallize: what marks meant, what is handed on, what is taught."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Mapping, Sequence
from datetime import datetime, timedelta
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from mica.brief.crystal_source import saying, speaking
from mica.crystals.requests import Crystallized, Made, Request, Taken, Written
from mica.crystals.teachings import Promoting
from mica.errors import InvalidEvent, InvalidInput, MicaError
from mica.events.references import Reference
from mica.memory.reading import Reading
from mica.memory.wiring import check_reason
from mica.model.crystal import LEVELS, Crystal, CrystalQuery, Level, Waiting, crystal_of
from mica.model.event import (
    CRYSTAL,
    EMPTY,
    MARK,
    RETRACTED,
    EventId,
    EventQuery,
    Mark,
    check_budget,
    check_several,
    mark_of,
)
from mica.model.teaching import AUTO_MAX, Candidate, Teaching
from mica.redact import redact
from mica.settings import DigestKind
from mica.upkeep.schedule import Job
from mica.words import terms

if TYPE_CHECKING:  # what is loaded only when it is used: starting is quick
    from mica.brief.handoff import Handoff
    from mica.brief.now import Applied, Proposal
    from mica.crystals.crystallizer import Crystallizer, Digester
    from mica.llm.models import Models


CLOSING = timedelta(minutes=10)  # between two looks for sessions, days and weeks that are over


class Crystallizing(Reading):
    """A memory that learns what was meant."""

    def _jobs(self) -> list[Job]:
        jobs = super()._jobs()
        if self._settings.crystals.auto:
            jobs.append(Job(kind="crystallize", every=CLOSING, run=self._close_due))
        return jobs

    @cached_property
    def _promoting(self) -> Promoting:
        return Promoting(self._store, append=self._append, ids=self._ids, clock=self._clock)

    async def crystallize(
        self,
        *,
        level: Level = "session",
        session: str | None = None,
        tree: EventId | None = None,
        since: datetime | None = None,
        label: str | None = None,
        digest: DigestKind | None = None,
        dry_run: bool = False,
    ) -> Made:
        """Close now what is open, up to this level, whether it is over or not; returns the crystals made, lowest first.

        What could not be made is in `waiting` of the list. A dry run shows the lowest level only: what would be above
        it rests on what is not recorded.

        With `session`, only that one; with `tree`, one crystal over an event and all that followed from it. `label`
        names an epoch. Marks that come later make a new revision. What is crystallized already is not made again. A
        model that cannot answer raises a ModelError: nothing else is made in its place.
        """
        if level not in LEVELS:
            raise InvalidInput(f"there is no level {level!r}; use one of {', '.join(LEVELS)}")
        if tree is not None and (session is not None or level != "session"):
            raise InvalidInput(
                "a tree gets one crystal beside the hierarchy of time; leave out the level and the session"
            )
        if since is not None and since.tzinfo is None:
            raise InvalidInput(f"{since.isoformat()} has no time zone; use an aware datetime")
        self._check_asserted(label or "")
        request = Request(
            level=level,
            session=session,
            tree=tree,
            since=since,
            label=label,
            is_forced=True,
            is_dry=dry_run,
            digest=await self._digest(digest),
        )
        made = Made.of(await self._crystallized(request))
        if session is not None and not made and not await self.events(EventQuery(session=session, limit=1)):
            raise InvalidInput(
                f"there is no session {session!r} in this space; `mica sessions` shows those that are open"
            )
        return made

    async def auto_crystallize(self, *, since: datetime | None = None) -> list[Crystal]:
        """Close what is over: sessions, days, weeks, epochs; returns the crystals made. A second call makes none."""
        request = Request(since=since, digest=await self._digest())
        return list((await self._crystallized(request)).crystals)

    async def waiting(self) -> list[Waiting]:
        """What no crystal covers yet, and why."""
        return list((await self._crystallized(Request(is_dry=True))).waiting)

    async def commit_crystal(
        self,
        insight: Sequence[tuple[str, Sequence[EventId]]],
        *,
        sources: Sequence[EventId] = (),
        period: str | None = None,
        level: Level = "session",
        significance: Sequence[tuple[str, Sequence[EventId]]] = (),
        principles: Sequence[tuple[str, Sequence[EventId]]] = (),
        topics: Sequence[str] = (),
        dropped: Mapping[EventId, str] | None = None,
        confidence: float = 0.8,
        label: str | None = None,
    ) -> Crystal:
        """Record a crystal that an agent wrote itself: statements, each with the marks it rests on.

        It keeps the same laws as every other: LawBroken says which one it does not. A live crystal of the same period
        is superseded. Without a period it is of the session of the current block, and of all marks of that session
        that no other crystal covers.
        """
        check_several("sources", sources)
        check_several("topics", topics)
        await self._stored()
        if period is None:
            if level != "session" or (session := self.here.context.session) is None:
                raise InvalidInput("say which period this crystal is of: no session is known here")
            period, own = await self._crystallizer.of_session(session)
            sources = list(dict.fromkeys([*own, *sources]))
        said = [text for part in (insight, significance, principles) for text, _ in part]
        self._check_asserted(*said, *topics, label or "")
        written = Written(
            insight=insight, significance=significance, principles=principles, topics=topics, dropped=dropped or {}
        )
        return await self._crystallizer.commit(
            written,
            level=level,
            period=period,
            sources=sources,
            confidence=confidence,
            label=label,
            context=self.here.context,
        )

    async def crystals(
        self,
        query: str = "",
        *,
        level: Level | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        limit: int | None = 100,
    ) -> list[Crystal]:
        """The crystals that stand: those that end last, oldest first; with a query, what speaks of it, best first."""
        await self._stored()
        asked = CrystalQuery(level=level, since=since, until=until, limit=None if query else limit)
        if not query:
            return await self._store.crystals(asked)
        return speaking(await saying(self._store, terms(query), asked), query)[:limit]

    async def crystal_stream(self, level: Level | None = None, *, after: int | None = None) -> AsyncIterator[Crystal]:
        """Crystals as they are made, also by other processes, in commit order; begins and ends as `follow` does."""
        if level is not None and level not in LEVELS:
            raise InvalidInput(f"there is no level {level!r}; use one of {', '.join(LEVELS)}")
        async for event in self.follow(EventQuery(names=(CRYSTAL,)), after=after):
            crystal = crystal_of(event)
            if level is None or crystal.level == level:
                yield crystal

    async def crystal(self, reference: Reference) -> Crystal:
        """The crystal of this id or position. Raises UnknownEvent, or InvalidEvent when it is something else."""
        event = await self.event(reference)
        if event.name != CRYSTAL:
            raise InvalidEvent(f"event {event.id} is not a crystal, it is a {event.name}; `mica crystals` lists them")
        return crystal_of(event)

    async def expand(self, reference: Reference) -> list[Mark] | list[Crystal]:
        """What a crystal rests on: its marks, or its crystals of the level below."""
        crystal = await self.crystal(reference)
        events = await self._store.events_of(crystal.sources)
        if crystal.level == "session":
            return [mark_of(event) for event in events if event.name == MARK]
        return [crystal_of(event) for event in events if event.name == CRYSTAL]

    async def open_marks(self, *, limit: int = 20) -> list[Mark]:
        """The latest marks of friction, questions and tasks that nothing has fulfilled, oldest first."""
        from mica.crystals.open_marks import unfulfilled

        await self._stored()
        return await unfulfilled(self._store, limit=limit)

    async def retract(self, reference: Reference, *, reason: str) -> EventId:
        """Say that a mark or a crystal does not hold any more. It stays in the log; nothing finds it or rests on it."""
        event = await self.event(reference)
        if event.name not in (MARK, CRYSTAL):
            raise InvalidInput(f"event {event.id} is a {event.name}; only marks, crystals and judgments are retracted")
        check_reason(reason)
        self._check_asserted(reason)
        if event.name == MARK and not await self._store.texts([event.position or 0], neighbours=0):
            state = "was only recalled" if event.origin == "recalled" else "is retracted already"
            raise InvalidInput(f"mark {event.number} {state}")
        self._take_back_answers()
        ref = self.emit(RETRACTED, {"mark": event.id, "reason": redact(reason)}, parent=event, origin="user")
        await self._stored()
        await self._remake(Taken())
        return ref.id

    async def _remake(self, taken: Taken) -> Crystallized:
        """Make anew what rested on something that is gone, and nothing else, unless that is switched off."""
        if not self._settings.crystals.auto:
            return Crystallized(
                waiting=taken.waiting("`auto` is off under `[crystals]`; `mica crystallize` makes it of what is left")
            )
        try:
            return await self._crystallizer.make(Request(taken=taken), context=EMPTY)
        except MicaError as error:  # now, or at its next time
            return Crystallized(waiting=taken.waiting(f"it was not made anew yet: {error}"))

    async def handoff(self, *, session: str | None = None, budget_tokens: int | None = None) -> Handoff:
        """Crystallize a session, and tell what the next agent needs to start: never over the budget, each line sourced.

        Without `session` it is that of the current block, else the one in which something happened last; the result
        names it. A failure to crystallize stands in `errors`. Raises InvalidInput when there is no such session.
        """
        from mica.brief.handoff import collect, compose, latest_session

        budget_tokens = self._settings.brief.budget_tokens if budget_tokens is None else budget_tokens
        check_budget("handoff", budget_tokens)
        await self._stored()
        if session is not None and not await self._store.events(EventQuery(session=session, limit=1)):
            raise InvalidInput(f"there is no session {session!r} in this space; `mica overview` shows the latest")
        chosen = session or self.here.context.session or await latest_session(self._store)
        made: list[Crystal] = []
        errors: list[str] = []
        if chosen is not None:
            try:
                made = await self.crystallize(session=chosen)
            except MicaError as error:
                errors.append(str(error))
        told = await collect(self._store, chosen)
        return compose(told, budget_tokens=budget_tokens, new_crystals=made, errors=errors)

    async def propose_now(self, file: Path | str = "NOW.md", *, section: str = "What Just Happened") -> Proposal:
        """What a section of a status file could say of the latest crystals. Nothing is written; `apply_now` does that.

        Raises InvalidInput when the file cannot be read as text.
        """
        from mica.brief.now import collect, propose, read

        await self._stored()
        lately = await collect(self._store, section=section)
        before = await asyncio.to_thread(read, Path(file))
        return propose(lately, file=Path(file), section=section, before=before)

    async def apply_now(self, proposal: Proposal) -> Applied:
        """Write a proposal and keep a copy of the file as it was; every byte outside of the section stays.

        Raises InvalidInput when the file has changed since it was proposed, or cannot be written.
        """
        from mica.brief.now import apply

        applied = await asyncio.to_thread(apply, proposal, at=self._clock())
        from mica.upkeep.purge import QUOTED, Quoted

        told = Quoted(path=applied.file, host=os.uname().nodename, crystals=proposal.source_crystals)
        self.emit(QUOTED, msgspec.to_builtins(told), origin="user")
        return applied

    async def teachings(self, *, with_ended: bool = False) -> list[Teaching]:
        """The crystals that were promoted and stand, oldest first; on request also those that ended, with the reason.

        A teaching ends when it is withdrawn, or when its crystal or a mark that it cites is retracted; purged with what
        it cites, it is gone. One whose crystal was superseded stands, and names the successor.
        """
        await self._stored()
        return await self._promoting.teachings(with_ended=with_ended)

    async def promote(self, reference: Reference, *, by: str | None = None, reason: str = "") -> Teaching:
        """Make a crystal a teaching, until it is withdrawn. One that is a teaching already stays as it is.

        `by` is who promotes it; without it, the agent or user of the current block. Raises InvalidInput when it is no
        crystal, or one that does not stand.
        """
        here = self.here.context
        self._check_asserted(by or "", reason)
        identifier = (await self.event(reference)).id
        who = by or here.agent or here.user or "unknown"
        return await self._promoting.promote(identifier, by=who, reason=reason, context=here)

    async def candidates(self) -> list[Candidate]:
        """The crystals that a rule would promote, best first."""
        await self._stored()
        return await self._promoting.candidates()

    async def auto_promote(self, *, limit: int = AUTO_MAX) -> list[Teaching]:
        """Promote the best candidates, a few at a time; returns the new teachings."""
        await self._stored()
        return await self._promoting.promote_best(context=self.here.context, limit=limit)

    async def withdraw(self, reference: Reference, *, reason: str) -> Teaching:
        """End a teaching; it stays in the log. Raises InvalidInput when it is none."""
        self._check_asserted(reason)
        identifier = (await self.event(reference)).id
        ended = await self._promoting.withdraw(identifier, reason=reason, context=self.here.context)
        self._take_back_answers()
        return ended

    @cached_property
    def _crystallizer(self) -> Crystallizer:
        from mica.crystals.crystallizer import Crystallizer
        from mica.crystals.periods import Calendar

        return Crystallizer(
            self._store,
            append=self._append,
            ids=self._ids,
            clock=self._clock,
            calendar=Calendar(self._settings.zone()),
            idle=timedelta(minutes=self._settings.crystals.idle_minutes),
            give_way=self._turns.give_way,
            pause=self._turns.pause,
        )

    async def _crystallized(self, request: Request) -> Crystallized:
        await self._stored()
        return await self._crystallizer.make(request, context=self.here.context)

    async def _close_due(self) -> int:
        request = Request(digest=await self._digest())
        return len((await self._crystallizer.make(request, context=EMPTY)).crystals)

    async def _digest(self, kind: DigestKind | None = None) -> Digester | None:
        """The way to say what marks meant, None for their own words."""
        if (kind or self._settings.crystals.digest) == "extractive":
            return None
        from mica.crystals.crystallizer import by_model

        return by_model(await self.models(), tier=self._settings.crystals.tier, agent=self.here.context.agent)

    async def models(self) -> Models:
        """The language models of `[models]`, with what they have cost in this space so far."""
        from mica.llm.tiers import open_models

        async with self._opening_models:
            if self._models is None:
                models = open_models(self._settings, space=self._space, record=self._record_spending)
                for event in await self.events(EventQuery(names=("model.reserved", "model.spent"), limit=None)):
                    models.ledger.restore(event.name, event.data, at=event.at)
                self._models = models
            return self._models

    def _record_spending(self, name: str, told: Mapping[str, object]) -> None:
        self.emit(name, told, origin="tool")

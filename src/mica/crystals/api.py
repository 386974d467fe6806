"""The public class behind `memory.crystals`: making crystals, reading them, and promoting them to teachings."""

from __future__ import annotations

import builtins  # `list` is a method here
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from datetime import datetime, timedelta

from mica.crystals.crystallizer import Crystallizer, by_model
from mica.crystals.open_marks import find_unfulfilled
from mica.crystals.periods import Calendar
from mica.crystals.relevance import rank_by_relevance, read_matching, select_within
from mica.crystals.requests import Crystallized, CrystalScope, Digester, MadeCrystals, RemovedCrystals, WrittenCrystal
from mica.crystals.teachings import TeachingBook
from mica.errors import InvalidEvent, InvalidInput, MicaError
from mica.events.api import Events
from mica.events.log import Log
from mica.events.references import Reference
from mica.llm.models import Models
from mica.model.crystal import LEVELS, Crystal, CrystalQuery, Level, Waiting, crystal_of
from mica.model.event import (
    CRYSTAL,
    EMPTY,
    MARK,
    RETRACTED,
    Clock,
    Event,
    EventId,
    EventQuery,
    check_budget,
    check_reason,
    check_several,
)
from mica.model.mark import Mark, mark_of
from mica.model.teaching import AUTO_MAX, Candidate, Teaching
from mica.redact import redact
from mica.settings import DigestKind, Settings
from mica.store.priority import Priority
from mica.store.protocol import ChainIndex, CrystalIndex, EventLog, TextIndex
from mica.words import terms

CONTEXT_TOKENS = 2_000  # the default budget of a context
CONTEXT_RECENCY = 0.7
CONTEXT_CRYSTALS_MAX = 300  # the latest that are considered for a context


class Crystals:
    """The crystals of a space, as in `await memory.crystals.make()`.

    A reference to an event is the event itself, its id, or its position (12 or "#12"). Every method sees all events
    that were emitted before the call.
    """

    def __init__(
        self,
        log: Log,
        events: Events,
        *,
        event_log: EventLog,
        chains: ChainIndex,
        texts: TextIndex,
        crystals: CrystalIndex,
        clock: Clock,
        settings: Settings,
        priority: Priority,
        models: Callable[[], Awaitable[Models]],
    ) -> None:
        self._log = log
        self._event_log = event_log
        self._chains = chains
        self._texts = texts
        self._crystals = crystals
        self._events = events
        self._clock = clock
        self._settings = settings.crystals
        self._models = models
        self._teachings = TeachingBook(event_log, crystals, append=log.append, ids=log.ids, clock=clock)
        self._crystallizer = Crystallizer(
            log=event_log,
            chains=chains,
            texts=texts,
            crystals=crystals,
            append=log.append,
            ids=log.ids,
            clock=clock,
            calendar=Calendar(settings.zone()),
            idle=timedelta(minutes=settings.crystals.idle_minutes),
            give_way=priority.give_way,
            pause=priority.pause,
        )

    # -- Making

    async def make(
        self,
        *,
        level: Level = "session",
        session: str | None = None,
        tree: EventId | None = None,
        since: datetime | None = None,
        label: str | None = None,
        digest: DigestKind | None = None,
        dry_run: bool = False,
    ) -> MadeCrystals:
        """Crystallize everything up to a level, even periods that are not over; returns the new crystals.

        The new crystals are sorted by level, lowest first. The attribute `waiting` of the result lists the periods that
        got no crystal, with the reasons. An existing crystal is replaced only if its period has got new marks, or if it
        lost a source.

        `session` limits the call to one session. `tree` makes one crystal of the event with this id and its
        descendants. `since` ignores marks before this time. `label` is the name of a new epoch or tree. `digest` says
        whether a model writes the crystals, by default as in the settings. A dry run records nothing, so its crystals
        are not sources of crystals of higher levels. Raises InvalidInput for an impossible argument, and ModelError if
        a configured model fails; mica does not fall back to a digest without a model.
        """
        if level not in LEVELS:
            raise InvalidInput(f"there is no level {level!r}; use one of {', '.join(LEVELS)}")
        if tree is not None and (session is not None or level != "session"):
            raise InvalidInput("a crystal of a tree cannot be limited to a level or a session; leave out both")
        if since is not None and since.tzinfo is None:
            raise InvalidInput(f"{since.isoformat()} has no time zone; use an aware datetime")
        self._log.check_asserted(label or "")
        scope = CrystalScope(
            level=level,
            session=session,
            tree=tree,
            since=since,
            label=label,
            is_forced=True,
            is_dry=dry_run,
            digest=await self._digester(digest),
        )
        made = MadeCrystals.of(await self._make(scope))
        if session is not None and not made and not await self._log.query(EventQuery(session=session, limit=1)):
            raise InvalidInput(
                f"there is no session {session!r} in this space; `mica events sessions` shows those that are open"
            )
        return made

    async def make_due(self, *, since: datetime | None = None) -> builtins.list[Crystal]:
        """Crystallize the sessions, days, weeks and epochs that are over; returns the new crystals.

        `since` ignores marks before this time.
        """
        scope = CrystalScope(since=since, digest=await self._digester())
        return list((await self._make(scope)).crystals)

    async def close_due(self) -> int:
        """Do what `make_due` does, but record the crystals with an empty context. Returns the number of new crystals.

        The scheduler calls this method.
        """
        scope = CrystalScope(digest=await self._digester())
        return len((await self._crystallizer.make(scope, context=EMPTY)).crystals)

    async def waiting(self) -> builtins.list[Waiting]:
        """Return the periods with marks or crystals that no crystal covers yet, each with the reason."""
        return list((await self._make(CrystalScope(is_dry=True))).waiting)

    async def remake(self, removed: RemovedCrystals) -> Crystallized:
        """Make again the crystals that a purge removed and those that lost a source; make no other crystals.

        Makes nothing if the setting `auto` is off. If an error occurs, it is not raised. Instead, the result lists the
        crystals in `removed.to_remake` as waiting, with the error as the reason.
        """
        if not self._settings.auto:
            return Crystallized(
                waiting=removed.waiting("`auto` is off under `[crystals]`; run `mica crystals make` to make it again")
            )
        try:
            return await self._crystallizer.make(CrystalScope(removed=removed), context=EMPTY)
        except MicaError as error:  # the next scheduled run tries again
            return Crystallized(waiting=removed.waiting(f"it was not made again yet: {error}"))

    async def commit(
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
        """Record a crystal that an agent wrote: statements, each with the marks it cites.

        The new crystal supersedes the live crystal of the same period, if there is one. If `period` is omitted, the new
        crystal is for the current session. Its sources are then `sources` and all marks of the session that no crystal
        of another period covers. `dropped` has reasons for not citing a source, by the id of the source. Raises
        InvalidInput for an impossible argument, and LawBroken if the crystal breaks one of the five laws.
        """
        check_several("sources", sources)
        check_several("topics", topics)
        await self._log.stored()
        context = self._log.here.context
        if period is None:
            if level != "session" or context.session is None:
                raise InvalidInput(
                    "name the period of this crystal; only a session crystal of the current session may omit it"
                )
            period, own = await self._crystallizer.of_session(context.session)
            sources = list(dict.fromkeys([*own, *sources]))
        statements = [text for section in (insight, significance, principles) for text, _ in section]
        self._log.check_asserted(*statements, *topics, label or "")
        written = WrittenCrystal(
            insight=insight, significance=significance, principles=principles, topics=topics, dropped=dropped or {}
        )
        return await self._crystallizer.commit(
            written, level=level, period=period, sources=sources, confidence=confidence, label=label, context=context
        )

    async def retract(self, event: Event, *, reason: str) -> EventId:
        """Record that a mark or crystal no longer holds; returns the id of the retraction.

        The event stays in the log, but searches no longer return it. Crystals made from it are made again without it:
        at once or, if the setting `auto` is off, by the next call of `make`.

        Raises InvalidInput if the reason is empty, if the event is neither a mark nor a crystal, or if it is a mark
        that is retracted already or only repeats text that mica gave to an agent.
        """
        if event.name not in (MARK, CRYSTAL):
            raise InvalidInput(f"event {event.id} is a {event.name}; only marks, crystals and judgments are retracted")
        check_reason(reason)
        self._log.check_asserted(reason)
        if event.name == MARK and not await self._texts.read([event.position or 0], neighbours=0):
            state = "was only recalled" if event.origin == "recalled" else "is retracted already"
            raise InvalidInput(f"mark {event.number} {state}")
        self._log.notify_withdrawn()
        data = {"mark": event.id, "reason": redact(reason)}
        ref = self._log.emit(RETRACTED, data, parent=event, origin="user")
        await self._log.stored()
        await self.remake(RemovedCrystals())
        return ref.id

    # -- Reading

    async def list(
        self,
        query: str = "",
        *,
        level: Level | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        limit: int | None = 100,
    ) -> builtins.list[Crystal]:
        """Return the `limit` latest crystals that were not superseded or retracted, oldest first.

        With a query, returns the `limit` most relevant crystals with at least one of its terms, most relevant first.
        `since` leaves out crystals that end before this time, `until` those that do not begin before it.
        """
        await self._log.settle()
        criteria = CrystalQuery(level=level, since=since, until=until, limit=None if query else limit)
        if not query:
            return await self._crystals.query(criteria)
        return rank_by_relevance(await read_matching(self._crystals, terms(query), criteria), query)[:limit]

    async def context(
        self,
        budget_tokens: int = CONTEXT_TOKENS,
        *,
        recency_weight: float = CONTEXT_RECENCY,
        query: str = "",
        now: datetime | None = None,
    ) -> builtins.list[Crystal]:
        """Return the best crystals that together fit the budget, highest level first.

        Within a level they are sorted by score: `recency_weight` is the weight of recency, and 1 - `recency_weight`
        that of relevance to the query. Without a query only recency counts. With a query, crystals that contain none of
        its terms are left out. A crystal that a chosen one covers is added only if budget remains. Crystals that lost a
        source are left out.
        """
        check_budget("context", budget_tokens)
        if not 0 <= recency_weight <= 1:
            raise InvalidInput(f"a recency weight of {recency_weight!r} is not possible; give a number from 0 to 1")
        await self._log.settle()
        latest = CrystalQuery(is_stale=False, limit=CONTEXT_CRYSTALS_MAX)
        crystals = await (
            read_matching(self._crystals, terms(query), latest) if query else self._crystals.query(latest)
        )
        above = await self._crystals.above([crystal.position or 0 for crystal in crystals]) if crystals else {}
        return select_within(
            crystals,
            above,
            budget_tokens=budget_tokens,
            recency_weight=recency_weight,
            query=query,
            now=now or self._clock(),
        )

    async def stream(self, level: Level | None = None, *, after: int | None = None) -> AsyncIterator[Crystal]:
        """Yield crystals as any process makes them, in commit order; `after` works as in `memory.events.follow`."""
        if level is not None and level not in LEVELS:
            raise InvalidInput(f"there is no level {level!r}; use one of {', '.join(LEVELS)}")
        async for event in self._events.follow(EventQuery(names=(CRYSTAL,)), after=after):
            crystal = crystal_of(event)
            if level is None or crystal.level == level:
                yield crystal

    async def get(self, reference: Reference) -> Crystal:
        """Return the crystal of this reference.

        Raises UnknownEvent if there is no such event, and InvalidEvent if the event is not a crystal.
        """
        event = await self._log.get(reference)
        if event.name != CRYSTAL:
            raise InvalidEvent(
                f"event {event.id} is not a crystal, it is a {event.name}; `mica crystals list` lists them"
            )
        return crystal_of(event)

    async def expand(self, reference: Reference) -> builtins.list[Mark] | builtins.list[Crystal]:
        """Return the sources of a crystal (marks, or crystals of the level below), without purged ones."""
        crystal = await self.get(reference)
        events = await self._event_log.get_many(crystal.sources)
        if crystal.level == "session":
            return [mark_of(event) for event in events if event.name == MARK]
        return [crystal_of(event) for event in events if event.name == CRYSTAL]

    async def open_marks(self, *, limit: int = 20) -> builtins.list[Mark]:
        """Return the latest marks tagged as task, question or problem that no other mark fulfills, oldest first.

        At most `limit` marks are returned.
        """
        await self._log.settle()
        return await find_unfulfilled(
            log=self._event_log, chains=self._chains, texts=self._texts, crystals=self._crystals, limit=limit
        )

    # -- Teachings

    async def teachings(self, *, with_ended: bool = False) -> builtins.list[Teaching]:
        """Return the teachings in force, oldest first; `with_ended` adds those that ended, with the reason.

        A teaching ends when it is withdrawn, or when its crystal or a mark that it cites is retracted. If its crystal
        is superseded, the teaching stays in force and refers to the successor. A purge of a cited mark also removes the
        teaching.
        """
        await self._log.settle()
        return await self._teachings.teachings(with_ended=with_ended)

    async def promote(self, reference: Reference, *, by: str | None = None, reason: str = "") -> Teaching:
        """Promote a crystal to a teaching and return the teaching. If it is promoted already, return its teaching.

        `by` is the person or agent who promotes it, by default the agent or user of the current context. Raises
        InvalidInput if the event is not a crystal, or if the crystal was superseded or retracted or lost a source.
        """
        here = self._log.here.context
        self._log.check_asserted(by or "", reason)
        identifier = (await self._log.get(reference)).id
        promoter = by or here.agent or here.user or "unknown"
        return await self._teachings.promote(identifier, by=promoter, reason=reason, context=here)

    async def candidates(self) -> builtins.list[Candidate]:
        """Return the crystals that `promote_best` would promote, best first."""
        await self._log.settle()
        return await self._teachings.candidates()

    async def promote_best(self, *, limit: int = AUTO_MAX) -> builtins.list[Teaching]:
        """Promote the best candidates, at most `limit`; returns the new teachings."""
        await self._log.stored()
        return await self._teachings.promote_best(context=self._log.here.context, limit=limit)

    async def withdraw(self, reference: Reference, *, reason: str) -> Teaching:
        """End a teaching and return it; it stays in the log. Raises InvalidInput if the event is not a teaching."""
        self._log.check_asserted(reason)
        identifier = (await self._log.get(reference)).id
        ended = await self._teachings.withdraw(identifier, reason=reason, context=self._log.here.context)
        self._log.notify_withdrawn()
        return ended

    async def _make(self, scope: CrystalScope) -> Crystallized:
        await self._log.stored()
        return await self._crystallizer.make(scope, context=self._log.here.context)

    async def _digester(self, kind: DigestKind | None = None) -> Digester | None:
        if (kind or self._settings.digest) == "extractive":
            return None
        return by_model(await self._models(), tier=self._settings.tier, agent=self._log.here.context.agent)

"""Makes the crystals that are due, level by level, and records each as an event: the one place that does."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Protocol, TypeAlias, cast

import msgspec

from mica.crystals import periods as closings
from mica.crystals.digest import Digest, Source, count_mentions, extract, in_time
from mica.crystals.draft import Material, continued, drafted, material
from mica.crystals.model_digest import model_digest
from mica.crystals.mood import mood
from mica.crystals.open_marks import OPEN_TAGS, is_fulfilled, standing
from mica.crystals.periods import Calendar, Closing, Survivor, is_of_another, revised
from mica.crystals.requests import LITTLE_LEFT, Crystallized, Request, Taken, Written
from mica.crystals.survivors import Surviving
from mica.errors import InvalidInput, LawBroken, MicaError, StoreError, UnknownEvent
from mica.llm.protocol import LLM
from mica.model.crystal import (
    LEVELS,
    TREE,
    Crystal,
    CrystalQuery,
    Draft,
    Dropped,
    Level,
    Statement,
    Waiting,
    check_period,
    crystal_data,
    crystal_of,
    fact_of,
    no_source,
    retracted_by,
    said_tokens,
)
from mica.model.event import (
    CRYSTAL,
    EPOCH_OPENED,
    MARK,
    RETRACTED,
    SESSION_ENDED,
    Appended,
    Clock,
    Context,
    Event,
    EventId,
    EventQuery,
    Mark,
    is_id,
    is_tombstone,
    make_event,
    mark_of,
)
from mica.redact import redact
from mica.settings import Tier
from mica.store.pace import Pause, unhurried
from mica.store.priority import nobody_asks
from mica.store.protocol import Store

Due: TypeAlias = Closing[Mark] | Closing[Crystal] | Waiting
MARKS_AT_ONCE = 50_000  # of those that wait; the others when these are covered
MARKS_PAGE = 500  # of those that are read at once: about 10 ms
COMMITTED = "committed:"  # how the method begins of what an agent wrote itself
TOO_LITTLE = "too little to say it in fewer words than it has"
WEEKS_OPEN = "marks of its weeks are not crystallized yet"
MEANWHILE = {  # the laws that another process can let a crystal break while it is made
    "overlap": "another process made its crystal meanwhile",
    "provenance": "what it rests on was retracted, superseded or purged meanwhile",
}
COUNTED_MAX = 20_000  # marks beneath a crystal whose words are counted once more


class Digester(Protocol):
    """Says what sources meant within so many tokens; returns it with what a crystal calls the way it was made."""

    async def __call__(
        self, sources: Sequence[Source], budget_tokens: int, *, task: str, marks: Sequence[Mark]
    ) -> tuple[Digest, str]:
        """`marks` are those beneath the sources, where they are crystals."""


def extractive(give_way: Callable[[], Awaitable[None]] = nobody_asks, pause: Pause = unhurried) -> Digester:
    """In the words of the sources, without a model. What all marks speak of decides, not only what was quoted.

    It goes on in a thread, where it pauses for whoever asks.
    """

    async def digest(
        sources: Sequence[Source], budget_tokens: int, *, task: str, marks: Sequence[Mark]
    ) -> tuple[Digest, str]:
        ordered = in_time(material(marks).sources)
        await give_way()

        def work() -> Digest:
            counted = count_mentions(ordered, pause=pause) if ordered else None
            return extract(sources, budget_tokens=budget_tokens, task=task, counted=counted, pause=pause)

        return await asyncio.to_thread(work), "extractive-1"

    return digest


def by_model(llm: LLM, *, tier: Tier, agent: str | None = None) -> Digester:
    """As a model says it, checked against the sources. Nothing takes its place when it fails."""

    async def digest(
        sources: Sequence[Source], budget_tokens: int, *, task: str, marks: Sequence[Mark]
    ) -> tuple[Digest, str]:
        made = await model_digest(llm, sources, budget_tokens=budget_tokens, tier=tier, agent=agent)
        return made.digest, made.method

    return digest


class Crystallizer:
    """Makes crystals in one space."""

    def __init__(
        self,
        store: Store,
        *,
        append: Callable[[Sequence[Event]], Awaitable[Appended]],
        ids: Iterator[EventId],
        clock: Clock,
        calendar: Calendar,
        idle: timedelta,
        give_way: Callable[[], Awaitable[None]] = nobody_asks,
        pause: Pause = unhurried,
    ) -> None:
        self._store = store
        self._append = append
        self._ids = ids
        self._clock = clock
        self._calendar = calendar
        self._idle = idle
        self._give_way = give_way
        self._extractive = extractive(give_way, pause)

    async def make(self, request: Request, *, context: Context) -> Crystallized:
        """Everything that is due, lowest level first. What another process makes meanwhile is not made again."""
        if request.tree is not None:
            return await self._make_tree(request.tree, request, context)
        made: list[Crystal] = []
        waiting: list[Waiting] = []
        failures: list[MicaError] = []
        retracted = await self._retracted()
        spent: set[EventId] = set()  # sources that no crystal is made of, unless others join them
        replaced = None if request.taken is None else set(request.taken.sources)
        for level in LEVELS[: LEVELS.index(request.level) + 1]:
            due = await self._due(level, request, spent)
            if request.taken is not None and replaced is not None:
                due = [each for each in due if _is_of(each, replaced, request.taken)]
            due += await self._stale(level, {found.period for found in due if isinstance(found, Closing)}, request)
            for found in due:
                if isinstance(found, Waiting):
                    waiting.append(found)
                    continue
                await self._give_way()
                whole = await self._whole(found)
                if (whole.period, frozenset(whole.ids)) in retracted:
                    await self._withdraw(whole.unfounded, "its crystal of what is left was retracted", request, context)
                    waiting.append(_waiting(whole, "its crystal was retracted"))
                    spent |= whole.ids
                    continue
                try:
                    crystal = await self._close(whole, request, context)
                except StoreError:
                    raise
                except MicaError as error:  # one that fails keeps no other from being made
                    failures.append(error)
                    waiting.append(_waiting(whole, str(error)))
                else:
                    if isinstance(crystal, Waiting):
                        waiting.append(crystal)
                        spent |= whole.ids if crystal.reason == TOO_LITTLE else set()
                    else:
                        made.append(crystal)
                        if replaced is not None:
                            replaced.add(crystal.id)
            if request.session is not None:
                break
        if failures and not made:
            raise failures[0]
        return Crystallized(crystals=tuple(made), waiting=tuple(waiting))

    async def _retracted(self) -> set[tuple[str, frozenset[EventId]]]:
        """What crystals were about, and rested on, that somebody has retracted: they are not made again."""
        told = await self._store.events(EventQuery(names=(RETRACTED,), limit=None))
        events = await self._store.events_of([retracted_by(each) for each in told])
        crystals = [crystal_of(event) for event in events if event.name == CRYSTAL]
        return {(crystal.period, frozenset(crystal.sources)) for crystal in crystals}

    async def commit(
        self,
        written: Written,
        *,
        level: Level,
        period: str,
        sources: Sequence[EventId],
        confidence: float,
        label: str | None,
        context: Context,
    ) -> Crystal:
        """Record a crystal that somebody else wrote. Raises LawBroken, as for every other, or InvalidInput."""
        check_period(level, period)
        if not 0 <= confidence <= 1:
            raise InvalidInput(f"a confidence of {confidence!r} is not possible; give a number from 0 to 1")
        events = await self._store.events_of(sources)
        facts = [(event, fact) for event in events if (fact := fact_of(event)) is not None]
        if len(facts) < len(sources) or not facts:
            known = {event.id for event, _ in facts}
            unknown = next((each for each in sources if each not in known), "nothing")
            raise no_source(unknown)
        for mark in (mark_of(event) for event, _ in facts if event.name == MARK):
            if is_of_another(mark, period):
                raise InvalidInput(
                    f"{mark.id} is a mark of session {mark.session!r} and cannot be a source of {period}; "
                    f"leave it out, or commit it to {closings.session_period(mark.session or '')}"
                )
        before = [each for each in await self._store.crystals(CrystalQuery(period=period)) if each.level == level]
        insight, significance, principles = (
            tuple(Statement(redact(text), tuple(cited)) for text, cited in part)
            for part in (written.insight, written.significance, written.principles)
        )
        said = insight + significance + principles
        cited = {each for statement in said for each in statement.sources}
        draft = Draft(
            level=level,
            period=period,
            insight=insight,
            significance=significance,
            principles=principles,
            topics=tuple(written.topics),
            mood=mood(material([mark_of(event) for event, _ in facts if event.name == MARK]).sources),
            sources=tuple(sources),
            start_at=min(fact.start_at for _, fact in facts),
            end_at=max(fact.end_at for _, fact in facts),
            tokens=said_tokens(said),
            source_tokens=sum(fact.tokens for _, fact in facts),
            confidence=confidence,
            marks=sum(1 if event.name == MARK else crystal_of(event).marks for event, _ in facts),
            dropped=tuple(
                Dropped(event.id, written.dropped.get(event.id, "not taken up"))
                for event, fact in facts
                if not fact.cites & cited
            ),
            method=f"{COMMITTED}{context.agent or 'unknown'}",
            revision=1 + max((each.revision for each in before), default=0),
            supersedes=tuple(each.id for each in before),
            label=label,
        )
        return await self._record(draft, context)

    async def of_session(self, session: str) -> tuple[str, list[EventId]]:
        """What a crystal of this session is called, and the marks that are its own: no other crystal covers them."""
        period = closings.session_period(session)
        before = await self._store.crystals(CrystalQuery(period=period))
        covered = await self._store.events_of([each for crystal in before for each in crystal.sources])
        fresh = [mark async for mark in self._unsealed(session)]
        return period, [mark.id for mark in await standing(self._store, [*covered, *fresh])]

    # -- What is due --------------------------------------------------------------------------------------------

    async def _due(self, level: Level, request: Request, spent: Collection[EventId]) -> list[Due]:
        now = self._clock()
        if level == "session":
            return [*await self._due_sessions(request, now=now), *await self._surviving_trees(request)]
        below = await self._store.crystals(
            CrystalQuery(level=LEVELS[LEVELS.index(level) - 1], is_sealed=False, since=request.since, limit=None)
        )
        hierarchy = [crystal for crystal in below if not crystal.is_tree]
        if level == "epoch":
            milestones = await self._milestones(hierarchy)
            live = {each.period: each for each in await self._store.crystals(CrystalQuery(level=level, limit=None))}
            surviving = await Surviving.of(self._store)
            due: list[Due] = list(
                closings.epochs(
                    hierarchy,
                    milestones,
                    live,
                    now=now,
                    calendar=self._calendar,
                    homes=surviving.homes(live.values()) | await self._homes(hierarchy, live.values()),
                    survivors=surviving.pending,
                    label=request.label,
                    forced=request.is_forced,
                )
            )
            closed = {each.period for each in due}
            gone = [each for each in surviving.pending if each.period not in closed and not each.is_tree]
            return due + (await self._ended(gone, spent) if request.since is None else [])
        since = closings.long_before(min((crystal.start_at for crystal in hierarchy), default=now), days=8)
        live = {each.period: each for each in await self._live(level, since)}
        close = closings.days if level == "day" else closings.weeks
        again = () if request.taken is None else request.taken.periods
        return list(close(hierarchy, live, now=now, calendar=self._calendar, again=again, forced=request.is_forced))

    async def _due_sessions(self, request: Request, *, now: datetime) -> list[Due]:
        if request.taken is not None and not request.taken.sources:
            return []
        marks = [
            mark_of(event)
            async for event in self._unsealed(request.session)
            if request.since is None or event.at >= request.since
        ]
        if not marks:
            return []
        oldest = closings.long_before(min(mark.at for mark in marks), days=2)
        ended = await self._store.events(EventQuery(names=(SESSION_ENDED,), since=oldest, limit=None))
        latest = {mark.session: mark.at for mark in sorted(marks, key=lambda mark: mark.at)}
        # One that was taken up again after its end goes on.
        over = {
            session
            for event in ended
            if (session := event.context.session) is not None and event.at >= latest.get(session, event.at)
        }
        due = closings.sessions(
            marks,
            await self._live("session", oldest),
            now=now,
            calendar=self._calendar,
            last_at=await self._lately(latest, now - self._idle),
            idle=self._idle,
            ended=over,
            sealed=() if request.taken is None else request.taken.sealed,
            forced=request.is_forced or request.session is not None,
        )
        found: list[Due] = []
        for each in due:
            found.append(each)
            await asyncio.sleep(0)
        return found

    async def _lately(self, latest: Mapping[str | None, datetime], since: datetime) -> dict[str, datetime]:
        """When something last happened in these sessions, where they had no mark since. Asked one by one: all that
        happened in half an hour may be a million events.
        """
        found: dict[str, datetime] = {}
        if not await self._store.events(EventQuery(since=since, limit=1)):
            return found
        for session, at in latest.items():
            if session is not None and at <= since:
                await self._give_way()
                for event in await self._store.events(EventQuery(session=session, since=since, limit=1)):
                    found[session] = event.at
        return found

    async def _unsealed(self, session: str | None) -> AsyncIterator[Event]:
        """The marks that wait, a page at a time: whoever asks in between does not stand behind all of them."""
        count, last = 0, 0
        while count < MARKS_AT_ONCE:
            await self._give_way()
            page = await self._store.unsealed(limit=MARKS_PAGE, session=session, after=last)
            for event in page:
                yield event
            if len(page) < MARKS_PAGE:
                return
            count += len(page)
            last = max(event.position or 0 for event in page)

    async def _stale(self, level: Level, closed: Collection[str], request: Request) -> list[Due]:
        """Crystals that rest on something that is there no more: they are made anew from what is left."""
        if request.session is not None:
            return []
        stale = await self._store.crystals(CrystalQuery(level=level, is_stale=True, limit=None))
        return [
            Closing[Crystal](level=level, period=each.period, sources=(), supersedes=(each,), label=each.label)
            for each in stale
            if each.period not in closed
        ]

    async def _whole(self, closing: Closing[Mark] | Closing[Crystal]) -> Closing[Mark] | Closing[Crystal]:
        """A closing with what the crystals that it supersedes rested on and still stands."""
        if closing.level == "session":
            of_marks = cast(Closing[Mark], closing)
            return revised(of_marks, await self._kept_marks(of_marks))
        of_crystals = cast(Closing[Crystal], closing)
        return revised(of_crystals, await self._kept_crystals(of_crystals))

    async def _live(self, level: Level, since: datetime) -> list[Crystal]:
        found = await self._store.crystals(CrystalQuery(level=level, since=since, limit=None))
        return [crystal for crystal in found if not crystal.is_tree]

    async def _kept_marks(self, closing: Closing[Mark]) -> dict[EventId, Mark]:
        ids = [each for crystal in closing.supersedes for each in crystal.sources]
        events = await self._store.events_of(ids)
        return {mark.id: mark for mark in await standing(self._store, events)}

    async def _kept_crystals(self, closing: Closing[Crystal]) -> dict[EventId, Crystal]:
        wanted = {each for crystal in closing.supersedes for each in crystal.sources}
        if not wanted:
            return {}
        level = LEVELS[LEVELS.index(closing.level) - 1]
        live = await self._store.crystals(CrystalQuery(level=level, limit=None))
        return {crystal.id: crystal for crystal in live if crystal.id in wanted}

    async def _homes(self, weeks: Collection[Crystal], epochs: Iterable[Crystal]) -> dict[str, str]:
        """The period of the epoch that rests on an earlier revision of a week, by the period of the week."""
        if not weeks:
            return {}
        homes: dict[str, str] = {}
        for epoch in epochs:
            beneath = await self._store.events_of(epoch.sources)
            homes |= {crystal_of(event).period: epoch.period for event in beneath if event.name == CRYSTAL}
        return homes

    async def _milestones(self, crystals: Sequence[Crystal]) -> list[Mark]:
        if not crystals:
            return []
        since = min(crystal.start_at for crystal in crystals)
        opened = await self._store.events(EventQuery(names=(EPOCH_OPENED,), since=since, limit=None))
        events = [event for each in opened if (event := await self._store.event(EventId(str(each.data["mark"]))))]
        return await standing(self._store, events)

    async def _ended(self, survivors: Sequence[Survivor], spent: Collection[EventId]) -> list[Due]:
        """The epochs that a purge took: they end, unless something waits that may become one of their weeks."""
        if not survivors:
            return []
        waits = [mark_of(event) async for event in self._unsealed(None)]
        began = [(mark.id, mark.at) for mark in waits]
        for level in ("session", "day"):
            crystals = await self._store.crystals(CrystalQuery(level=level, is_sealed=False, limit=None))
            began += [(crystal.id, crystal.start_at) for crystal in crystals if not crystal.is_tree]
        open_weeks = {self._calendar.week(self._calendar.day(at)) for each, at in began if each not in spent}
        due: list[Due] = []
        for each in survivors:
            left = [week for week in each.weeks if week.removeprefix("week:") in open_weeks]
            if left or len(waits) >= MARKS_AT_ONCE:  # of other marks nothing is known yet
                due.append(Waiting(period=each.period, count=len(left), reason=WEEKS_OPEN))
            else:
                due.append(Closing[Crystal](level="epoch", period=each.period, sources=(), survivor=each))
        return due

    # -- Making -------------------------------------------------------------------------------------------------

    async def _surviving_trees(self, request: Request) -> list[Due]:
        """The trees that a purge took; one ends of which nothing is left."""
        if request.session is not None or request.since is not None:
            return []
        due: list[Due] = []
        for each in (await Surviving.of(self._store)).pending:
            root = EventId(each.period.removeprefix(TREE))
            if not each.is_tree or not is_id(root) or await self._store.event(root) is None:
                continue  # no tree, or one of another space, from whose log only the record was imported
            marks = await self._marks_of(root)
            due.append(Closing(level="session", period=each.period, sources=marks, label=each.label, survivor=each))
        return due

    async def _marks_of(self, root: EventId) -> tuple[Mark, ...]:
        """The marks of a tree that stand."""
        event = await self._store.event(root)
        if event is None:
            raise UnknownEvent(root)
        return tuple(await standing(self._store, [event, *await self._store.descendants(root)]))

    async def _make_tree(self, root: EventId, request: Request, context: Context) -> Crystallized:
        marks = await self._marks_of(root)
        if not marks:
            raise InvalidInput(f"there is no mark at or below {root}; a tree is crystallized from its marks")
        period = f"{TREE}{root}"
        before = await self._store.crystals(CrystalQuery(period=period))
        if before and before[-1].sources == tuple(mark.id for mark in marks):
            return Crystallized()
        pending = (await Surviving.of(self._store)).pending
        survivor = next((each for each in pending if each.period == period), None)
        closing = Closing(
            level="session",
            period=period,
            sources=marks,
            supersedes=tuple(before),
            label=request.label or (survivor.label if survivor else None),
            survivor=survivor,
        )
        crystal = await self._close(closing, request, context)
        if isinstance(crystal, Waiting):
            return Crystallized(waiting=(crystal,))
        return Crystallized(crystals=(crystal,))

    async def _close(
        self, closing: Closing[Mark] | Closing[Crystal], request: Request, context: Context
    ) -> Crystal | Waiting:
        if not closing.sources:
            await self._withdraw(closing.superseded, LITTLE_LEFT, request, context)
            return _waiting(closing, TOO_LITTLE)
        draft = await self._drafted(closing, request, context)
        if draft is None:
            await self._withdraw(closing.unfounded, LITTLE_LEFT, request, context)
            return _waiting(closing, TOO_LITTLE)
        await self._give_way()
        draft = msgspec.structs.replace(draft, open=await self._open(closing.sources))
        if request.is_dry:
            return crystal_of(self._event(draft, context))
        try:
            return await self._record(draft, context)
        except LawBroken as broken:
            if broken.law in MEANWHILE:
                return _waiting(closing, MEANWHILE[broken.law])
            raise

    async def _drafted(
        self, closing: Closing[Mark] | Closing[Crystal], request: Request, context: Context
    ) -> Draft | None:
        """The crystal as it would be, with more room where no sentence is short enough; None when there is none."""
        made_of = material(closing.sources)
        if (kept := await self._continued(closing, made_of, request, context)) is not None:
            return kept
        marks = await self._beneath(closing.sources)
        for budget in dict.fromkeys([made_of.budget(closing), made_of.tokens // 2]):
            if budget < 1:
                continue
            digest, method = await (request.digest or self._extractive)(
                made_of.sources, budget, task=context.task or "", marks=marks
            )
            if (draft := drafted(closing, made_of, digest, method=method)) is not None:
                return draft
        return None

    async def _continued(
        self, closing: Closing[Mark] | Closing[Crystal], made_of: Material, request: Request, context: Context
    ) -> Draft | None:
        """What somebody committed is never written over: it stays word for word, and what is new is digested."""
        written = [each for each in closing.supersedes if each.method.startswith(COMMITTED)]
        if not written:
            return None
        known = {each for crystal in written for each in crystal.sources}
        if closing.level != "session":
            facts = map(fact_of, await self._store.events_of(list(known)))
            known = {each for fact in facts if fact is not None for each in fact.cites}
        fresh = made_of.besides(known)
        said, method = Digest(), ""
        if (budget := fresh.budget(closing)) > 0:
            digest = request.digest or self._extractive
            said, method = await digest(fresh.sources, budget, task=context.task or "", marks=())
        if not said.insight:  # nothing shorter can be said of little
            said = fresh.quoted()
        methods = dict.fromkeys([*(name for each in written for name in each.method.split("+")), method])
        return continued(closing, made_of, written, said, method="+".join(filter(None, methods)))

    async def _beneath(self, sources: Sequence[Mark] | Sequence[Crystal]) -> list[Mark]:
        """The marks that crystals rest on; none for marks, or where there are too many to be counted again."""
        crystals = [source for source in sources if isinstance(source, Crystal)]
        if not crystals or sum(crystal.marks for crystal in crystals) > COUNTED_MAX:
            return []
        events: list[Event] = []
        for crystal in crystals:
            await self._give_way()
            events += await self._store.events_of(crystal.sources)
        marks = [mark_of(event) for event in events if event.name == MARK]
        return marks + await self._beneath([crystal_of(event) for event in events if event.name == CRYSTAL])

    async def _open(self, sources: Sequence[Mark] | Sequence[Crystal]) -> tuple[EventId, ...]:
        """The marks beneath that ask for something which no other mark has fulfilled."""
        asking: list[EventId] = []
        for source in sources:
            if isinstance(source, Crystal):
                asking += source.open
            elif OPEN_TAGS.intersection(source.tags):
                asking.append(source.id)
        return tuple([each for each in dict.fromkeys(asking) if not await is_fulfilled(self._store, each)])

    async def _withdraw(self, crystals: Sequence[EventId], reason: str, request: Request, context: Context) -> None:
        """These crystals do not hold any more, and none takes their place: say so."""
        told = [{"mark": each, "reason": reason} for each in crystals]
        if told and not request.is_dry:
            at = self._clock()
            await self._append([make_event(next(self._ids), RETRACTED, each, at=at, context=context) for each in told])

    async def _record(self, draft: Draft, context: Context) -> Crystal:
        event = self._event(draft, context)
        await self._append([event])
        stored = await self._store.event(event.id) or event
        if is_tombstone(stored):
            raise LawBroken("provenance", "it says what was purged while it was made; make it anew of what is left")
        return crystal_of(stored)

    def _event(self, draft: Draft, context: Context) -> Event:
        return make_event(
            next(self._ids), CRYSTAL, crystal_data(draft), at=self._clock(), context=context, origin="agent"
        )


def _is_of(due: Due, replaced: Collection[EventId], taken: Taken) -> bool:
    """Whether it takes the place of something that rested on these, or ends what rests on nothing."""
    if isinstance(due, Waiting):
        return due.period in taken.periods
    return not due.sources or not due.ids.isdisjoint(replaced)


def _waiting(closing: Closing[Mark] | Closing[Crystal], reason: str) -> Waiting:
    return Waiting(period=closing.period, count=len(closing.sources), reason=reason)

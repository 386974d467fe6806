"""The crystallizer: makes the crystals that are due, level by level, and records each as an event."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import TypeAlias, cast

import msgspec

from mica.crystals import periods
from mica.crystals.digest import Digest, DigestSource, count_mentions, extract, sort_by_time
from mica.crystals.draft import Material, continue_draft, make_draft, material
from mica.crystals.model_digest import model_digest
from mica.crystals.mood import mood
from mica.crystals.note_digest import METHOD, digest_day, digest_session, digest_week, title_of
from mica.crystals.open_marks import OPEN_TAGS, is_fulfilled, live_marks
from mica.crystals.periods import Calendar, DuePeriod, Survivor, is_of_another, with_sources
from mica.crystals.requests import LITTLE_LEFT, Crystallized, CrystalScope, Digester, RemovedCrystals, WrittenCrystal
from mica.crystals.survivors import Survivors
from mica.errors import InvalidInput, LawBroken, MicaError, StoreError, UnknownEvent
from mica.llm.protocol import LLM
from mica.model.crystal import (
    LEVELS,
    TREE,
    Crystal,
    CrystalDraft,
    CrystalQuery,
    Dropped,
    Level,
    Statement,
    Waiting,
    check_period,
    count_tokens,
    crystal_data,
    crystal_of,
    no_source,
    retraction_target,
    source_fact,
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
    is_id,
    is_tombstone,
    make_event,
)
from mica.model.mark import Mark, mark_of
from mica.redact import redact
from mica.settings import Tier
from mica.store.priority import Pause, never_give_way, never_pause
from mica.store.protocol import ChainIndex, CrystalIndex, EventLog, TextIndex

Due: TypeAlias = DuePeriod[Mark] | DuePeriod[Crystal] | Waiting
MARKS_AT_ONCE = 50_000  # marks without a crystal that one run reads; a later run reads the others
MARKS_PAGE = 500  # marks per read: about 10 ms
COMMITTED = "committed:"  # prefix of the method of a crystal that an agent wrote
TOO_LITTLE = "its sources are too short to be summarized"
WEEKS_OPEN = "marks of its weeks are not crystallized yet"
MEANWHILE = {  # laws that a crystal may break because of another process
    "overlap": "another process made its crystal meanwhile",
    "provenance": "a source was retracted, superseded or purged meanwhile",
}
COUNTED_MAX = 20_000  # if more marks are beneath the sources of a crystal, the words of the marks are not counted again


def extractive(give_way: Callable[[], Awaitable[None]] = never_give_way, pause: Pause = never_pause) -> Digester:
    """Return a digester that quotes sentences of the sources and needs no model.

    It chooses sentences by how often their words occur in all marks beneath the sources. It works in a thread and
    pauses while a query runs.
    """

    async def digest(
        sources: Sequence[DigestSource], budget_tokens: int, *, task: str, marks: Sequence[Mark]
    ) -> tuple[Digest, str]:
        ordered = sort_by_time(material(marks).sources)
        await give_way()

        def work() -> Digest:
            counted = count_mentions(ordered, pause=pause) if ordered else None
            return extract(sources, budget_tokens=budget_tokens, task=task, counted=counted, pause=pause)

        return await asyncio.to_thread(work), "extractive-1"

    return digest


def by_model(llm: LLM, *, tier: Tier, agent: str | None = None) -> Digester:
    """Return a digester that calls a model and checks its statements against the sources. It may raise ModelError."""

    async def digest(
        sources: Sequence[DigestSource], budget_tokens: int, *, task: str, marks: Sequence[Mark]
    ) -> tuple[Digest, str]:
        made = await model_digest(llm, sources, budget_tokens=budget_tokens, tier=tier, agent=agent)
        return made.digest, made.method

    return digest


class Crystallizer:
    """Makes and records the crystals of one space."""

    def __init__(
        self,
        *,
        log: EventLog,
        chains: ChainIndex,
        texts: TextIndex,
        crystals: CrystalIndex,
        append: Callable[[Sequence[Event]], Awaitable[Appended]],
        ids: Iterator[EventId],
        clock: Clock,
        calendar: Calendar,
        idle: timedelta,
        give_way: Callable[[], Awaitable[None]] = never_give_way,
        pause: Pause = never_pause,
    ) -> None:
        self._log = log
        self._chains = chains
        self._texts = texts
        self._crystals = crystals
        self._append = append
        self._ids = ids
        self._clock = clock
        self._calendar = calendar
        self._idle = idle
        self._give_way = give_way
        self._pause = pause
        self._extractive = extractive(give_way, pause)

    async def make(self, request: CrystalScope, *, context: Context) -> Crystallized:
        """Make the requested crystals that are due, lowest level first; the result also lists the periods that wait.

        A period that another process crystallizes at the same time is listed as waiting, and so is a period that fails.
        The first failure is raised only if no crystal was made. A StoreError is raised at once.
        """
        if request.tree is not None:
            return await self._make_tree(request.tree, request, context)
        made: list[Crystal] = []
        waiting: list[Waiting] = []
        failures: list[MicaError] = []
        retracted = await self._retracted()
        spent: set[EventId] = set()  # sources too small for a separate crystal
        replaced = None if request.removed is None else set(request.removed.sources)
        for level in LEVELS[: LEVELS.index(request.level) + 1]:
            due = await self._due(level, request, spent)
            if request.removed is not None and replaced is not None:
                due = [each for each in due if _is_of(each, replaced, request.removed)]
            due += await self._stale(level, {each.period for each in due if isinstance(each, DuePeriod)}, request)
            for each in due:
                if isinstance(each, Waiting):
                    waiting.append(each)
                    continue
                await self._give_way()
                due_period = await self._with_superseded_sources(each)
                if (due_period.period, frozenset(due_period.ids)) in retracted:
                    await self._withdraw(due_period.unfounded, "its later crystal was retracted", request, context)
                    waiting.append(_waiting(due_period, "its crystal was retracted"))
                    spent |= due_period.ids
                    continue
                try:
                    crystal = await self._close(due_period, request, context)
                except StoreError:
                    raise
                except MicaError as error:  # the others are still made
                    failures.append(error)
                    waiting.append(_waiting(due_period, str(error)))
                else:
                    if isinstance(crystal, Waiting):
                        waiting.append(crystal)
                        spent |= due_period.ids if crystal.reason == TOO_LITTLE else set()
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
        """Return the period and sources of every retracted crystal, for which no crystal is made again."""
        retractions = await self._log.query(EventQuery(names=(RETRACTED,), limit=None))
        events = await self._log.get_many([retraction_target(each) for each in retractions])
        crystals = [crystal_of(event) for event in events if event.name == CRYSTAL]
        return {(crystal.period, frozenset(crystal.sources)) for crystal in crystals}

    async def commit(
        self,
        written: WrittenCrystal,
        *,
        level: Level,
        period: str,
        sources: Sequence[EventId],
        confidence: float,
        label: str | None,
        context: Context,
    ) -> Crystal:
        """Record a crystal that an agent wrote.

        Raises InvalidInput for an impossible argument, and LawBroken if the crystal breaks one of the five laws.
        """
        check_period(level, period)
        if not 0 <= confidence <= 1:
            raise InvalidInput(f"a confidence of {confidence!r} is not possible; give a number from 0 to 1")
        events = await self._log.get_many(sources)
        facts = [(event, fact) for event in events if (fact := source_fact(event)) is not None]
        if len(facts) < len(sources) or not facts:
            known = {event.id for event, _ in facts}
            unknown = next((each for each in sources if each not in known), "nothing")
            raise no_source(unknown)
        for mark in (mark_of(event) for event, _ in facts if event.name == MARK):
            if is_of_another(mark, period):
                raise InvalidInput(
                    f"{mark.id} is a mark of session {mark.session!r} and cannot be a source of {period}; "
                    f"leave it out, or use it for a crystal of {periods.session_period(mark.session or '')}"
                )
        before = [each for each in await self._crystals.query(CrystalQuery(period=period)) if each.level == level]
        insight, significance, principles = await asyncio.to_thread(
            lambda: [
                tuple(Statement(redact(text), tuple(cited)) for text, cited in part)
                for part in (written.insight, written.significance, written.principles)
            ]
        )
        statements = insight + significance + principles
        cited = {each for statement in statements for each in statement.sources}
        is_session = all(event.name == MARK for event, _ in facts)
        draft = CrystalDraft(
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
            tokens=count_tokens(statements),
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
            label=label or (await self._title([mark_of(each) for each, _ in facts]) if is_session else None),
        )
        return await self._record(draft, context)

    async def of_session(self, session: str) -> tuple[str, list[EventId]]:
        """Return the name of the period of a session, and ids of marks.

        These are the live marks of the session that no crystal of another period covers.
        """
        period = periods.session_period(session)
        before = await self._crystals.query(CrystalQuery(period=period))
        covered = await self._log.get_many([each for crystal in before for each in crystal.sources])
        fresh = [mark async for mark in self._unsealed(session)]
        return period, [mark.id for mark in await live_marks(self._texts, [*covered, *fresh])]

    # -- Due periods --------------------------------------------------------------------------------------------

    async def _due(self, level: Level, request: CrystalScope, spent: Collection[EventId]) -> list[Due]:
        """Return the periods of a level that can be crystallized now, and those that must wait.

        `spent` are the sources that turned out to be too short for a crystal.
        """
        now = self._clock()
        if level == "session":
            return [*await self._due_sessions(request, now=now), *await self._surviving_trees(request)]
        below = await self._crystals.query(
            CrystalQuery(level=LEVELS[LEVELS.index(level) - 1], is_sealed=False, since=request.since, limit=None)
        )
        hierarchy = [crystal for crystal in below if not crystal.is_tree]
        if level == "epoch":
            milestones = await self._milestones(hierarchy)
            live = {each.period: each for each in await self._crystals.query(CrystalQuery(level=level, limit=None))}
            surviving = await Survivors.of(self._log, self._crystals)
            due: list[Due] = list(
                periods.epochs(
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
        since = periods.days_before(min((crystal.start_at for crystal in hierarchy), default=now), days=8)
        live = {each.period: each for each in await self._live(level, since)}
        close = periods.days if level == "day" else periods.weeks
        again = () if request.removed is None else request.removed.periods
        return list(close(hierarchy, live, now=now, calendar=self._calendar, again=again, forced=request.is_forced))

    async def _due_sessions(self, request: CrystalScope, *, now: datetime) -> list[Due]:
        if request.removed is not None and not request.removed.sources:
            return []
        marks = [
            mark_of(event)
            async for event in self._unsealed(request.session)
            if request.since is None or event.at >= request.since
        ]
        if not marks:
            return []
        oldest = periods.days_before(min(mark.at for mark in marks), days=2)
        ended = await self._log.query(EventQuery(names=(SESSION_ENDED,), since=oldest, limit=None))
        latest = {mark.session: mark.at for mark in sorted(marks, key=lambda mark: mark.at)}
        # A session with marks after its end is not over.
        over = {
            session
            for event in ended
            if (session := event.context.session) is not None and event.at >= latest.get(session, event.at)
        }
        due = periods.sessions(
            marks,
            await self._live("session", oldest),
            now=now,
            calendar=self._calendar,
            last_at=await self._last_activity(latest, now - self._idle),
            idle=self._idle,
            ended=over,
            sealed=() if request.removed is None else request.removed.sealed,
            forced=request.is_forced or request.session is not None,
        )
        due_periods: list[Due] = []
        for each in due:
            due_periods.append(each)
            await asyncio.sleep(0)
        return due_periods

    async def _last_activity(self, latest: Mapping[str | None, datetime], since: datetime) -> dict[str, datetime]:
        """Map each session that had events, but no marks, after `since` to the time of its last event.

        `latest` maps each session to the time of its last mark. The sessions are read one by one, because half an hour
        may hold a million events.
        """
        last_at: dict[str, datetime] = {}
        if not await self._log.query(EventQuery(since=since, limit=1)):
            return last_at
        for session, at in latest.items():
            if session is not None and at <= since:
                await self._give_way()
                for event in await self._log.query(EventQuery(session=session, since=since, limit=1)):
                    last_at[session] = event.at
        return last_at

    async def _unsealed(self, session: str | None) -> AsyncIterator[Event]:
        """Yield the marks of `session` that no crystal covers, at most about MARKS_AT_ONCE.

        If `session` is None, the marks of all sessions are yielded. Other queries can run between two pages of marks.
        """
        count, last = 0, 0
        while count < MARKS_AT_ONCE:
            await self._give_way()
            page = await self._crystals.unsealed(limit=MARKS_PAGE, session=session, after=last)
            for event in page:
                yield event
            if len(page) < MARKS_PAGE:
                return
            count += len(page)
            last = max(event.position or 0 for event in page)

    async def _stale(self, level: Level, closed: Collection[str], request: CrystalScope) -> list[Due]:
        """Return the crystals that lost a source, as due periods. Crystals whose period is in `closed` are left out."""
        if request.session is not None:
            return []
        stale = await self._crystals.query(CrystalQuery(level=level, is_stale=True, limit=None))
        return [
            DuePeriod[Crystal](
                level=level,
                period=each.period,
                sources=(),
                supersedes=(each,),
                label=None if level == "session" and not each.is_tree else each.label,  # a title quotes its sources
            )
            for each in stale
            if each.period not in closed
        ]

    async def _with_superseded_sources(
        self, due_period: DuePeriod[Mark] | DuePeriod[Crystal]
    ) -> DuePeriod[Mark] | DuePeriod[Crystal]:
        """Add to a due period the live sources of the crystals that it supersedes."""
        if due_period.level == "session":
            of_marks = cast(DuePeriod[Mark], due_period)
            return with_sources(of_marks, await self._superseded_marks(of_marks))
        of_crystals = cast(DuePeriod[Crystal], due_period)
        return with_sources(of_crystals, await self._superseded_crystals(of_crystals))

    async def _live(self, level: Level, since: datetime) -> list[Crystal]:
        crystals = await self._crystals.query(CrystalQuery(level=level, since=since, limit=None))
        return [crystal for crystal in crystals if not crystal.is_tree]

    async def _superseded_marks(self, due_period: DuePeriod[Mark]) -> dict[EventId, Mark]:
        ids = [each for crystal in due_period.supersedes for each in crystal.sources]
        events = await self._log.get_many(ids)
        return {mark.id: mark for mark in await live_marks(self._texts, events)}

    async def _superseded_crystals(self, due_period: DuePeriod[Crystal]) -> dict[EventId, Crystal]:
        ids = {each for crystal in due_period.supersedes for each in crystal.sources}
        if not ids:
            return {}
        level = LEVELS[LEVELS.index(due_period.level) - 1]
        live = await self._crystals.query(CrystalQuery(level=level, limit=None))
        return {crystal.id: crystal for crystal in live if crystal.id in ids}

    async def _homes(self, weeks: Collection[Crystal], epochs: Iterable[Crystal]) -> dict[str, str]:
        """Map the period of each week that `epochs` cover to the period of its epoch; {} if `weeks` is empty."""
        if not weeks:
            return {}
        homes: dict[str, str] = {}
        for epoch in epochs:
            beneath = await self._log.get_many(epoch.sources)
            homes |= {crystal_of(event).period: epoch.period for event in beneath if event.name == CRYSTAL}
        return homes

    async def _milestones(self, crystals: Sequence[Crystal]) -> list[Mark]:
        if not crystals:
            return []
        since = min(crystal.start_at for crystal in crystals)
        opened = await self._log.query(EventQuery(names=(EPOCH_OPENED,), since=since, limit=None))
        events = [event for each in opened if (event := await self._log.get(EventId(str(each.data["mark"]))))]
        return await live_marks(self._texts, events)

    async def _ended(self, survivors: Sequence[Survivor], spent: Collection[EventId]) -> list[Due]:
        """Return each purged epoch in `survivors`: without sources, so that it gets no new crystal, or as waiting.

        An epoch waits while one of its weeks may still get a crystal, because the epoch is then made again from that
        week. `spent` are sources that turned out to be too short for a crystal; they need not be waited for.
        """
        if not survivors:
            return []
        waits = [mark_of(event) async for event in self._unsealed(None)]
        began = [(mark.id, mark.at) for mark in waits]
        for level in ("session", "day"):
            crystals = await self._crystals.query(CrystalQuery(level=level, is_sealed=False, limit=None))
            began += [(crystal.id, crystal.start_at) for crystal in crystals if not crystal.is_tree]
        open_weeks = {self._calendar.week(self._calendar.day(at)) for each, at in began if each not in spent}
        due: list[Due] = []
        for each in survivors:
            left = [week for week in each.weeks if week.removeprefix("week:") in open_weeks]
            if left or len(waits) >= MARKS_AT_ONCE:  # other marks were not read
                due.append(Waiting(period=each.period, count=len(left), reason=WEEKS_OPEN))
            else:
                due.append(DuePeriod[Crystal](level="epoch", period=each.period, sources=(), survivor=each))
        return due

    # -- Making -------------------------------------------------------------------------------------------------

    async def _surviving_trees(self, request: CrystalScope) -> list[Due]:
        """Return the purged crystals of causal trees as due periods, to be made again from the marks that remain."""
        if request.session is not None or request.since is not None:
            return []
        due: list[Due] = []
        for each in (await Survivors.of(self._log, self._crystals)).pending:
            root = EventId(each.period.removeprefix(TREE))
            if not each.is_tree or not is_id(root) or await self._log.get(root) is None:
                continue  # no tree, or one of another space, from whose log only the record was imported
            marks = await self._marks_of(root)
            due.append(DuePeriod(level="session", period=each.period, sources=marks, label=each.label, survivor=each))
        return due

    async def _marks_of(self, root: EventId) -> tuple[Mark, ...]:
        """Return the marks, except retracted ones, among an event and its descendants. Raises UnknownEvent."""
        event = await self._log.get(root)
        if event is None:
            raise UnknownEvent(root)
        return tuple(await live_marks(self._texts, [event, *await self._chains.descendants(root)]))

    async def _make_tree(self, root: EventId, request: CrystalScope, context: Context) -> Crystallized:
        marks = await self._marks_of(root)
        if not marks:
            raise InvalidInput(f"there is no mark at or below {root}; a tree is crystallized from its marks")
        period = f"{TREE}{root}"
        before = await self._crystals.query(CrystalQuery(period=period))
        if before and before[-1].sources == tuple(mark.id for mark in marks):
            return Crystallized()
        pending = (await Survivors.of(self._log, self._crystals)).pending
        survivor = next((each for each in pending if each.period == period), None)
        due_period = DuePeriod(
            level="session",
            period=period,
            sources=marks,
            supersedes=tuple(before),
            label=request.label or (survivor.label if survivor else None),
            survivor=survivor,
        )
        crystal = await self._close(due_period, request, context)
        if isinstance(crystal, Waiting):
            return Crystallized(waiting=(crystal,))
        return Crystallized(crystals=(crystal,))

    async def _close(
        self, due_period: DuePeriod[Mark] | DuePeriod[Crystal], request: CrystalScope, context: Context
    ) -> Crystal | Waiting:
        """Make the crystal of a period and, unless this is a dry run, record it.

        Returns Waiting instead if the sources are too short, or if another process changed them meanwhile.
        """
        if not due_period.sources:
            await self._withdraw(due_period.superseded, LITTLE_LEFT, request, context)
            return _waiting(due_period, TOO_LITTLE)
        draft = await self._draft(due_period, request, context)
        if draft is None:
            await self._withdraw(due_period.unfounded, LITTLE_LEFT, request, context)
            return _waiting(due_period, TOO_LITTLE)
        if draft.label is None and due_period.level == "session":
            draft = msgspec.structs.replace(draft, label=await self._title(cast(DuePeriod[Mark], due_period).sources))
        await self._give_way()
        draft = msgspec.structs.replace(draft, open=await self._open(due_period.sources))
        if request.is_dry:
            return crystal_of(self._event(draft, context))
        try:
            return await self._record(draft, context)
        except LawBroken as broken:
            if broken.law in MEANWHILE:
                return _waiting(due_period, MEANWHILE[broken.law])
            raise

    async def _draft(
        self, due_period: DuePeriod[Mark] | DuePeriod[Crystal], request: CrystalScope, context: Context
    ) -> CrystalDraft | None:
        """Return the draft of a crystal. If no sentence fits, try larger budgets, then return None."""
        made_of = material(due_period.sources)
        if (continued := await self._continue(due_period, made_of, request, context)) is not None:
            return continued
        marks = await self._beneath(due_period.sources)
        budgets = [each for each in dict.fromkeys([made_of.budget(due_period), made_of.tokens // 2]) if each > 0]
        note = self._note_digester(due_period, request)
        attempts = [(note, budget) for budget in [*budgets, made_of.tokens - 1] if note is not None]
        attempts += [(request.digest or self._extractive, budget) for budget in budgets]
        for digester, budget in attempts:
            digest, method = await digester(made_of.sources, budget, task=context.task or "", marks=marks)
            if (draft := make_draft(due_period, made_of, digest, method=method)) is not None:
                return draft
        return None

    def _note_digester(
        self, due_period: DuePeriod[Mark] | DuePeriod[Crystal], request: CrystalScope
    ) -> Digester | None:
        """Return the digester for a session, day or week without a model; None for an epoch or with a model."""
        if request.digest is not None or due_period.level == "epoch":
            return None

        async def digest(
            sources: Sequence[DigestSource], budget_tokens: int, *, task: str, marks: Sequence[Mark]
        ) -> tuple[Digest, str]:
            await self._give_way()

            def work() -> Digest:
                if due_period.level == "session":
                    of_marks = cast(DuePeriod[Mark], due_period).sources
                    return digest_session(of_marks, budget_tokens=budget_tokens, task=task, pause=self._pause)
                crystals = cast(DuePeriod[Crystal], due_period).sources
                if not marks:
                    return Digest()
                if due_period.level == "day":
                    clock_time = self._calendar.time_of_day
                    return digest_day(crystals, marks, budget_tokens=budget_tokens, clock_time=clock_time)
                return digest_week(crystals, marks, budget_tokens=budget_tokens)

            return await asyncio.to_thread(work), METHOD

        return digest

    async def _title(self, marks: Sequence[Mark]) -> str | None:
        """Return the title of a session from its task, requests or commits; None if it has no words."""
        latest = await self._log.get_many([marks[-1].id])
        task = next((event.context.task for event in latest if event.context.task), None)
        return title_of(marks, task=None if task is None else redact(task)) or None

    async def _without_title(self, crystal: Crystal) -> Crystal:
        """Return the crystal without a title that was made from its sources, because it may quote lost ones."""
        marks = [mark_of(event) for event in await self._log.get_many(crystal.sources) if event.name == MARK]
        is_made = bool(marks) and crystal.label == await self._title(marks)
        return msgspec.structs.replace(crystal, label=None) if is_made else crystal

    async def _continue(
        self,
        due_period: DuePeriod[Mark] | DuePeriod[Crystal],
        made_of: Material,
        request: CrystalScope,
        context: Context,
    ) -> CrystalDraft | None:
        """If an agent wrote the crystal to be replaced, return a draft of its statements plus a digest of new sources.

        `made_of` has all sources, new or not. Returns None if no agent wrote the crystal, or if its statements cannot
        be used.
        """
        written = [each for each in due_period.supersedes if each.method.startswith(COMMITTED)]
        if not written:
            return None
        known = {each for crystal in written for each in crystal.sources}
        if due_period.level == "session":
            written = [await self._without_title(crystal) for crystal in written]
        else:
            facts = map(source_fact, await self._log.get_many(list(known)))
            known = {each for fact in facts if fact is not None for each in fact.cites}
        fresh = made_of.besides(known)
        added, method = Digest(), ""
        if (budget := fresh.budget(due_period)) > 0:
            digest = request.digest or self._extractive
            added, method = await digest(fresh.sources, budget, task=context.task or "", marks=())
        if not added.insight:  # too little for a digest
            added = fresh.quote_latest()
        methods = dict.fromkeys([*(name for each in written for name in each.method.split("+")), method])
        return continue_draft(due_period, made_of, written, added, method="+".join(filter(None, methods)))

    async def _beneath(self, sources: Sequence[Mark] | Sequence[Crystal]) -> list[Mark]:
        """Return all marks beneath the crystals in `sources`; an empty list if there are more than COUNTED_MAX."""
        crystals = [source for source in sources if isinstance(source, Crystal)]
        if not crystals or sum(crystal.marks for crystal in crystals) > COUNTED_MAX:
            return []
        events: list[Event] = []
        for crystal in crystals:
            await self._give_way()
            events += await self._log.get_many(crystal.sources)
        marks = [mark_of(event) for event in events if event.name == MARK]
        return marks + await self._beneath([crystal_of(event) for event in events if event.name == CRYSTAL])

    async def _open(self, sources: Sequence[Mark] | Sequence[Crystal]) -> tuple[EventId, ...]:
        """Return the ids of tasks, questions and problems in or beneath `sources` that no other mark fulfills."""
        open_ids: list[EventId] = []
        for source in sources:
            if isinstance(source, Crystal):
                open_ids += source.open
            elif OPEN_TAGS.intersection(source.tags):
                open_ids.append(source.id)
        marks = await live_marks(self._texts, await self._log.get_many(list(dict.fromkeys(open_ids))))
        return tuple([mark.id for mark in marks if not await is_fulfilled(self._chains, self._texts, mark)])

    async def _withdraw(
        self, crystals: Sequence[EventId], reason: str, request: CrystalScope, context: Context
    ) -> None:
        """Retract `crystals`, which were not replaced by new ones. A dry run retracts nothing."""
        retractions = [{"mark": each, "reason": reason} for each in crystals]
        if retractions and not request.is_dry:
            at = self._clock()
            await self._append(
                [make_event(next(self._ids), RETRACTED, each, at=at, context=context) for each in retractions]
            )

    async def _record(self, draft: CrystalDraft, context: Context) -> Crystal:
        event = self._event(draft, context)
        await self._append([event])
        stored = await self._log.get(event.id) or event
        if is_tombstone(stored):
            raise LawBroken("provenance", "its text was purged while it was made; make it again")
        return crystal_of(stored)

    def _event(self, draft: CrystalDraft, context: Context) -> Event:
        return make_event(
            next(self._ids), CRYSTAL, crystal_data(draft), at=self._clock(), context=context, origin="agent"
        )


def _is_of(due: Due, replaced: Collection[EventId], removed: RemovedCrystals) -> bool:
    """Return True if `due` concerns a crystal that a purge removed.

    A waiting period does so if a crystal of this period was removed. A due period does so if it has no sources, or if
    one of its sources is in `replaced`: the sources of removed crystals, and the crystals that succeeded removed ones.
    """
    if isinstance(due, Waiting):
        return due.period in removed.periods
    return not due.sources or not due.ids.isdisjoint(replaced)


def _waiting(due_period: DuePeriod[Mark] | DuePeriod[Crystal], reason: str) -> Waiting:
    return Waiting(period=due_period.period, count=len(due_period.sources), reason=reason)

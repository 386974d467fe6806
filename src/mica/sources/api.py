"""`memory.sources`: the state of concepts, gathered from every source, and the judgments about them."""

from __future__ import annotations

import asyncio
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

import msgspec

from mica.errors import InvalidInput, MicaError
from mica.events.context import Here
from mica.events.log import Log
from mica.model.event import (
    Clock,
    Context,
    Event,
    EventId,
    EventQuery,
    Origin,
    Ref,
    check_budget,
    check_reason,
    is_tombstone,
    name_pattern,
)
from mica.model.text_cache import remember_texts
from mica.model.walk import STARTED
from mica.redact import redact
from mica.settings import Settings
from mica.sources.account import GatheredAccount, make_account, receipt
from mica.sources.changes import Changes, LogChange
from mica.sources.cohere import Coherent, cohere
from mica.sources.disagreements import Disagreements, degraded_data
from mica.sources.fan_out import Collected, FanOut
from mica.sources.flush import SourceFlush
from mica.sources.judgments import Judgment, JudgmentSource, judgment_data, judgment_of, judgments, retraction_data
from mica.sources.pipeline import Pipeline
from mica.sources.protocol import (
    ABOUT_ONE,
    DEGRADED,
    GATHERED,
    JUDGED,
    JUDGMENT_RETRACTED,
    PHI_INV_2,
    REACTIONS,
    Concept,
    Question,
    Source,
    SparseSource,
)
from mica.sources.registry import (
    TESTED,
    ProbeResult,
    SourceHealth,
    SourceHistory,
    SourceRegistry,
    ask_once,
    read_history,
)
from mica.sources.replies import Replies
from mica.sources.threads import Pool
from mica.store.protocol import Store

if TYPE_CHECKING:
    from mica.sources.drivers.tables import SourceQueryPreview

WARM_MAX = 5  # concepts that are gathered ahead of a session
USED_SPAN = timedelta(days=7)  # in which questions count as recent
USED_MAX = 2_000  # of those questions
REGATHER_MAX = 89  # concepts that wait to be gathered again; any other is gathered when it is next asked about
AHEAD_S = 1.0  # the deadline of gathers that no caller waits for
CHECK_S = 3.0  # for one source to say that it is there


class Sources:
    """The sources of a space: its own log, and the databases, files, servers and objects that were declared.

    `memory.sources["name"]`, iteration and `len` are about declared and registered sources; `all` has mica's own too.
    """

    def __init__(
        self,
        store: Store,
        log: Log,
        registry: SourceRegistry,
        *,
        own: Sequence[Source],
        flush: SourceFlush,
        clock: Clock,
        settings: Settings,
    ) -> None:
        """`own` are mica's own sources but for judgments; those that read the log wait for `flush`."""
        self._log = log
        self._registry = registry
        self._clock = clock
        self._settings = settings
        self._own: list[Source] = [JudgmentSource(store.log, stored=flush), *own]
        self._sparse = [each for each in self._own if isinstance(each, SparseSource)]
        self._replies = Replies(store.replies, store.purges, own=lambda: log.journal.writer)
        self._changes = Changes(
            store.log,
            unfolded=lambda: log.unfolded,
            is_wanted=lambda name: name == STARTED or self._replies.is_wanted(name) or self._may_fill(name),
            of_others=(GATHERED,),
            tell=self._react,
            lost=self._forget,
        )
        self._replies.changes = self._changes
        self._disagreements = Disagreements(store.log)
        pool = Pool()
        self._fan_out = FanOut(store.purges, replies=self._replies, changes=self._changes, pool=pool, clock=clock)
        self._pipeline = Pipeline(self._fan_out, purges=store.purges, trails=store.trails, purged=self._replies.forget)
        self._waiting: dict[str, None] = {}  # concepts to gather again, in order; "" for the latest judgments
        self._gathering: asyncio.Task[None] | None = None

    # -- Gather

    async def gather(
        self,
        concept: Concept | str,
        *,
        budget_tokens: int | None = None,
        deadline_s: float | None = None,
        now: datetime | None = None,
        is_preview: bool = False,
    ) -> GatheredAccount:
        """One account of a concept from every source that answers in time: deduplicated, conflicts decided and shown.

        It takes at most `deadline_s`, and its text at most 1/φ of `budget_tokens`; the defaults are those of `[brief]`.
        A source that fails or hangs is named in `missing`, or in `degraded` when an earlier reply represents it; it
        raises nothing. Each call records one event, unless it is a preview. The first call about a concept loads the
        drivers of its sources before the deadline begins; `prepare` does it ahead.
        """
        about = parse_concept(concept)
        budget_tokens = self._settings.brief.budget_tokens if budget_tokens is None else budget_tokens
        check_budget("gathered text", budget_tokens)
        if deadline_s is not None and not 0 < deadline_s < math.inf:
            raise InvalidInput(f"nothing can be gathered within {deadline_s} seconds; give more than 0")
        deadline_s = self._settings.brief.deadline_s if deadline_s is None else deadline_s
        await self.load([about])
        now, began = now or self._clock(), asyncio.get_running_loop().time()
        [collected] = await self.ask([Question(concept=about, now=now)], deadline_s=deadline_s)
        answer, _ = self.account_for(about, collected, budget_tokens=budget_tokens, began=began, now=now)
        if is_preview:
            return answer
        return msgspec.structs.replace(answer, receipt=await self.record(answer, deadline_s=deadline_s))

    async def ask(self, questions: Sequence[Question], *, deadline_s: float) -> list[Collected]:
        """The answers of all sources to these questions, asked at once under one deadline; see `Pipeline.ask`."""
        self._use_all()
        return await self._pipeline.ask(questions, deadline_s=deadline_s)

    async def ask_only(self, sources: Iterable[Source], question: Question, *, deadline_s: float) -> Collected:
        """The answers of these sources alone, without a check for purges: for a snapshot of the past."""
        return await self._fan_out.collect(question, deadline_s=deadline_s, sources=sources)

    def account_for(
        self, concept: Concept, collected: Collected, *, budget_tokens: int, began: float, now: datetime
    ) -> tuple[GatheredAccount, Coherent]:
        """The account of a concept and the statements it is made of. `began` is the loop's time of the question."""
        coherent = cohere(collected.fragments, ranks=collected.ranks, now=now)
        answer = make_account(concept, collected, coherent, budget_tokens=budget_tokens)
        took_ms = (asyncio.get_running_loop().time() - began) * 1000
        return msgspec.structs.replace(answer, latency_ms=took_ms), coherent

    async def record(self, answer: GatheredAccount, *, deadline_s: float) -> EventId | None:
        """Record an account as recalled text, which is never evidence; None when nothing can be written.

        A new disagreement in cached replies is recorded too, so that their sources are asked again.
        """
        left_s = deadline_s - answer.latency_ms / 1000
        try:
            recorded = self._log.emit(GATHERED, receipt(answer), origin="recalled").id
            if answer.coherence is None or answer.coherence >= PHI_INV_2:
                self._disagreements.agree(answer.concept)
            elif answer.cached and await self._disagreements.is_news(
                answer.concept, answer.conflicts, within_s=left_s / 2
            ):
                data = degraded_data(answer.concept, answer.coherence, answer.conflicts)
                self._log.emit(DEGRADED, data, origin="tool")
        except MicaError:
            return None
        return recorded

    async def prepare(self, concept: Concept | str | Sequence[Concept | str] = ()) -> None:
        """Load and connect to what gathering these concepts needs, and those of `[brief] concepts`.

        Otherwise the first deadline of a process pays for it. A source that cannot be reached is reported when it is
        asked. Raises InvalidInput for an invalid concept.
        """
        given = [concept] if isinstance(concept, str | Concept) else concept
        concepts = [parse_concept(each) for each in (*given, *self._settings.brief.concepts)]
        await self.load(concepts)
        if concepts:
            await self._registry.prepare(concepts)

    async def load(self, concepts: Sequence[Concept]) -> None:
        """Load the drivers for these concepts, before a deadline begins."""
        if concepts and len(self._registry):
            await self._registry.load(concepts)

    # -- Judgments

    def judge(
        self,
        concept: Concept | str,
        verdict: str,
        *,
        confidence: float,
        reasons: str | Iterable[str] = (),
        parent: Event | Ref | None = None,
        context: Context | Here | None = None,
        origin: Origin = "agent",
        at: datetime | None = None,
    ) -> Ref:
        """Record a decision about a concept, with its confidence and reasons, redacted; returns its reference.

        Earlier replies about the concept are out of date from then on, here and in other processes.
        """
        data = judgment_data(parse_concept(concept), verdict, confidence=confidence, reasons=reasons)
        self._log.check_asserted(str(data["text"]))
        return self._log.emit(JUDGED, data, parent=parent, context=context, origin=origin, at=at)

    async def judgments(self, concept: Concept | str | None = None, *, limit: int = 20) -> list[Judgment]:
        """The latest judgments that were not retracted, of all or about one concept, oldest first."""
        about = None if concept is None else parse_concept(concept)
        return await judgments((await self._log.reads()).log, concept=about, limit=limit)

    async def retract(self, event: Event, *, reason: str) -> EventId:
        """Retract a judgment: it stays in the log, and nothing states it again. Returns the id of the retraction."""
        check_reason(reason)
        self._log.check_asserted(reason)
        if (judgment := judgment_of(event)) is None or is_tombstone(event):
            raise InvalidInput(f"event {event.id} is not a judgment, or it was purged")
        retractions = await self._log.query(EventQuery(names=(JUDGMENT_RETRACTED,), limit=None))
        if any(each.data.get("judgment") == event.id for each in retractions):
            raise InvalidInput(f"judgment {event.number} is retracted already")
        self._log.notify_withdrawn()
        data = retraction_data(judgment, reason=reason)
        ref = self._log.emit(JUDGMENT_RETRACTED, data, parent=event, origin="user")
        await self._log.stored()
        return ref.id

    # -- Declared and registered sources

    def __iter__(self) -> Iterator[Source]:
        return iter(self._registry)

    def __len__(self) -> int:
        return len(self._registry)

    def __contains__(self, name: object) -> bool:
        return name in self._registry

    def __getitem__(self, name: str) -> Source:
        """Raises InvalidInput when there is no such source."""
        return self._registry[name]

    def add(self, source: Source) -> None:
        """Add a source that a program made itself. Raises InvalidInput when its name is taken."""
        self._registry.add(source)

    def register(
        self,
        name: str,
        thing: object,
        *,
        concepts: str | Sequence[str] | None = None,
        fragment: Mapping[str, object] | None = None,
        where: Mapping[str, str] | None = None,
        **declared: object,
    ) -> None:
        """Make a live object, or a function of a concept, a source.

        An object is read each time it is asked. A function returns rows, fragments or nothing, and runs in a thread
        unless it is a coroutine. `concepts` are patterns of what it knows (`judgment:*`), `fragment` says which column
        of a row is what, `where` which rows are meant; `rank`, `ttl_s`, `is_live`, `fragments_max`, `characters_max`,
        `timeout_s`, `time_share` and `invalidated_by` are as in the settings. If the settings have a table of this
        name, give the object only. Registering again replaces the object. Raises InvalidInput for anything else.
        """
        self._registry.register(name, thing, concepts=concepts, fragment=fragment, where=where, **declared)

    def unregister(self, name: str) -> None:
        """Remove a registered object. Raises InvalidInput when there is none of this name."""
        self._registry.unregister(name)

    @property
    def all(self) -> Mapping[str, Source]:
        """Every source that `gather` asks, by name: mica's own first, then the declared and registered ones."""
        self._use_all()
        return self._fan_out.sources

    def explain(self, concept: Concept | str) -> list[SourceQueryPreview]:
        """The query that each declared source would run about a concept, in the order of their ranks."""
        return self._registry.explain(parse_concept(concept))

    def hanging(self, name: str) -> int:
        """The number of calls of a source that have not returned after their caller stopped waiting."""
        return self._registry.hanging(name)

    async def health(self, *, timeout_s: float = CHECK_S) -> list[SourceHealth]:
        """Whether each declared or registered source answers now, and how its latest calls went."""
        states = await self._registry.health(timeout_s=timeout_s)
        history = await self.history() if states else {}
        self._use_all()
        return [
            each.after(
                history.get(each.source) or SourceHistory(),
                breaker="open" if self._fan_out.breaker(each.source).is_open else "closed",
            )
            for each in states
        ]

    async def history(self) -> dict[str, SourceHistory]:
        """How the latest calls of each source went, by its name: those of gathers and of tests."""
        return read_history(await self._log.query(EventQuery(names=(GATHERED, TESTED), limit=USED_MAX)))

    async def test(self, name: str, concept: Concept | str) -> ProbeResult:
        """Ask one source about a concept, outside of every cache, and record the outcome; a failure is a field of it.

        After a success the source no longer counts as failing.
        """
        about = parse_concept(concept)
        tested = await ask_once(self.all.get(name) or self[name], about, now=self._clock())
        if not tested.error:
            self._fan_out.breaker(name).succeeded()
        outcome = {
            "source": name,
            "concept": str(about),
            "error": redact(tested.error),
            "milliseconds": round(tested.milliseconds, 3),
        }
        with suppress(MicaError):  # nothing can be written; the answer is there all the same
            self._log.emit(TESTED, outcome, origin="tool")
        return tested

    # -- Ahead of time

    async def warm(self, *, limit: int = WARM_MAX) -> list[GatheredAccount]:
        """Gather what the next agent will ask about: the concepts judged last, and those of `[brief] concepts`."""
        judged = [each.concept for each in reversed(await self.judgments(limit=limit * 4))]
        always = [Concept.parse(each) for each in self._settings.brief.concepts]
        return await asyncio.gather(*map(self._gather_ahead, dict.fromkeys([*dict.fromkeys(judged)][:limit] + always)))

    async def warm_most_used(self) -> int:
        """Gather the concepts that were asked about most lately, before their replies are too old; returns how many."""
        since = self._clock() - USED_SPAN
        gathers = await self._log.query(EventQuery(names=(GATHERED,), since=since, limit=USED_MAX))
        counts = Counter(str(event.data.get("concept")) for event in gathers)
        most = [name for name, _ in sorted(counts.items(), key=lambda pair: (-pair[1], pair[0]))][:WARM_MAX]
        done = 0
        for name in most:
            with suppress(InvalidInput):  # another program's event of this name
                await self._gather_ahead(Concept.parse(name))
                done += 1
        return done

    async def _gather_ahead(self, concept: Concept) -> GatheredAccount:
        return await self.gather(concept, deadline_s=max(AHEAD_S, self._settings.brief.deadline_s))

    # -- Changes of the log

    def hear(self, events: Sequence[Event]) -> None:
        """Take note of events that this process is about to store."""
        self._changes.hear(events)

    def _use_all(self) -> None:
        """Ask sources that were registered meanwhile, too."""
        self._fan_out.use([*self._own, *self._registry])

    def _may_fill(self, name: str) -> bool:
        """Whether an empty source of the log may have something after an event of this name."""
        return any(each.are_any is False and _matches(name, each.made_by) for each in self._sparse)

    def _react(self, change: LogChange) -> None:
        """Mark replies as old, and gather again at once what is likely to be asked about."""
        name, about = change.event.name, change.event.data.get("concept")
        if self._replies.is_wanted(name):
            self._replies.note(change)
        self._disagreements.note(change.event)
        for each in self._sparse:
            if name == STARTED or _matches(name, each.made_by):
                each.are_any = None
        if not change.is_own or self._log.is_closed or name not in REACTIONS:
            return
        self._waiting[about if name in ABOUT_ONE and isinstance(about, str) else ""] = None
        while len(self._waiting) > REGATHER_MAX:
            self._waiting.pop(next(iter(self._waiting)))
        if self._gathering is None or self._gathering.done():
            self._gathering = asyncio.ensure_future(self._gather_waiting())

    async def _gather_waiting(self) -> None:
        while self._waiting:
            about = next(iter(self._waiting))
            del self._waiting[about]
            with suppress(MicaError):  # the store is away, or the name is no concept: the next caller sees it
                await (self._gather_ahead(Concept.parse(about)) if about else self.warm())

    def _forget(self) -> None:
        """Some changes were missed: nothing that was cached can be trusted."""
        self._replies.forget()
        for each in self._sparse:
            each.are_any = None

    async def close(self) -> None:
        """Cancel all calls and save cached replies; the owner of the registry closes its sources."""
        if self._gathering is not None:
            self._gathering.cancel()
            await asyncio.wait([self._gathering])
        await self._fan_out.close()
        await self._changes.close()
        await self._replies.close()


def parse_concept(concept: Concept | str) -> Concept:
    """The concept itself, or that of this name. Raises InvalidInput."""
    return concept if isinstance(concept, Concept) else Concept.parse(concept)


@remember_texts(1_024)
def _matches(name: str, patterns: tuple[str, ...]) -> bool:
    return any(name_pattern(each).fullmatch(name) for each in patterns)

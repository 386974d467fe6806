"""`memory.sources`: asks every source about a concept, and records judgments about concepts."""

from __future__ import annotations

import asyncio
import math
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
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
from mica.sources.answer import Collected, ProbeResult, ask_once
from mica.sources.changes import Changes, LogChange
from mica.sources.cohere import Coherent, cohere
from mica.sources.disagreements import Disagreements, degraded_data
from mica.sources.fan_out import FanOut
from mica.sources.judgments import Judgment, JudgmentSource, judgment_data, judgment_of, judgments, retraction_data
from mica.sources.pipeline import Pipeline, SourceFlush
from mica.sources.protocol import (
    ABOUT_ONE,
    DEGRADED,
    GATHERED,
    GATHERED_NAMES,
    JUDGED,
    JUDGMENT_RETRACTED,
    PHI_INV_2,
    REACTIONS,
    Concept,
    Question,
    Source,
    SparseSource,
    parse_concept,
)
from mica.sources.registry import (
    TESTED,
    SourceHealth,
    SourceHistory,
    SourceRegistry,
    read_history,
)
from mica.sources.replies import Replies
from mica.sources.threads import Pool
from mica.store.protocol import EventLog, PurgeLog, ReplyTable, TrailTable

if TYPE_CHECKING:
    from mica.sources.drivers.tables import SourceQueryPreview

WARM_MAX = 5  # concepts that are gathered in advance
USED_SPAN = timedelta(days=7)  # the period whose gathers decide which concepts are used most
USED_MAX = 2_000  # gathers that are read for that
REGATHER_MAX = 89  # concepts that wait to be gathered again; any other is gathered when it is next asked about
AHEAD_S = 1.0  # the deadline of gathers that no caller waits for
CHECK_S = 3.0  # for the health check of one source


class Sources:
    """The sources of a space: mica's own, and the databases, files, servers and objects that were declared.

    `memory.sources["name"]`, iteration and `len` cover only the sources that the settings declare or a program
    registered. `all` also contains mica's own sources.
    """

    def __init__(
        self,
        log: Log,
        registry: SourceRegistry,
        *,
        event_log: EventLog,
        trails: TrailTable,
        replies: ReplyTable,
        purges: PurgeLog,
        own: Sequence[Source],
        flush: SourceFlush,
        clock: Clock,
        settings: Settings,
    ) -> None:
        """`own` are mica's own sources except the judgments. `flush` is awaited before judgments are read."""
        self._log = log
        self._registry = registry
        self._clock = clock
        self._settings = settings
        self._own: list[Source] = [JudgmentSource(event_log, stored=flush), *own]
        self._sparse = [each for each in self._own if isinstance(each, SparseSource)]
        self._replies = Replies(replies, purges, own=lambda: log.journal.writer)
        self._changes = Changes(
            event_log,
            unfolded=lambda: log.unfolded,
            is_wanted=lambda name: name == STARTED or self._replies.is_wanted(name) or self._may_fill(name),
            of_others=GATHERED_NAMES,
            tell=self._react,
            lost=self._forget,
        )
        self._replies.changes = self._changes
        self._disagreements = Disagreements(event_log)
        pool = Pool()
        self._fan_out = FanOut(purges, replies=self._replies, changes=self._changes, pool=pool, clock=clock)
        self._pipeline = Pipeline(self._fan_out, purges=purges, trails=trails, purged=self._replies.forget)
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
        """Ask every source about a concept and merge the answers into a gathered account.

        Answers that arrive within `deadline_s` are used. Of contradicting statements, the more trusted one is shown,
        and the others are listed as conflicts. The text takes at most 1/φ (about 62 %) of `budget_tokens`. Deadline and
        budget default to those of `[brief]`. If a source fails, nothing is raised: it is listed in `degraded` if an
        earlier reply is shown instead, else in `missing`. Each call records one event, except with `is_preview`. The
        first call about a concept also loads the drivers of its sources, before the deadline begins; `prepare` does
        this in advance. Raises InvalidInput for an invalid concept, budget or deadline.
        """
        about = parse_concept(concept)
        budget_tokens = self._settings.brief.budget_tokens if budget_tokens is None else budget_tokens
        check_budget("gathered text", budget_tokens)
        if deadline_s is not None and not 0 < deadline_s < math.inf:
            raise InvalidInput(f"a deadline of {deadline_s} seconds is not possible; give a finite number above 0")
        deadline_s = self._settings.brief.deadline_s if deadline_s is None else deadline_s
        await self.load([about])
        now, began = now or self._clock(), asyncio.get_running_loop().time()
        [collected] = await self.ask([Question(concept=about, now=now)], deadline_s=deadline_s)
        answer, _ = self.account_for(about, collected, budget_tokens=budget_tokens, began=began, now=now)
        if is_preview:
            return answer
        return msgspec.structs.replace(answer, receipt=await self.record(answer, deadline_s=deadline_s))

    async def ask(
        self,
        questions: Sequence[Question],
        *,
        deadline_s: float,
        sources: Callable[[], Awaitable[Iterable[Source]]] | None = None,
    ) -> list[Collected]:
        """Ask the sources all questions at once, under one deadline, and return an answer for each question.

        By default, all sources of the space are asked. For a question about the past, `sources` is a function that
        returns other sources to ask. If an event is purged while these are asked, the function is called a second time,
        and the sources that it then returns are asked again.
        """
        self._use_all()
        return await self._pipeline.ask(questions, deadline_s=deadline_s, sources=sources)

    def account_for(
        self, concept: Concept, collected: Collected, *, budget_tokens: int, began: float, now: datetime
    ) -> tuple[GatheredAccount, Coherent]:
        """Merge collected answers. Return a pair: the gathered account, and the merge with all its statements.

        `began` is the time of the event loop at which the question was asked; the latency is counted from it.
        """
        coherent = cohere(collected.fragments, ranks=collected.ranks, now=now)
        answer = make_account(concept, collected, coherent, budget_tokens=budget_tokens)
        took_ms = (asyncio.get_running_loop().time() - began) * 1000
        return msgspec.structs.replace(answer, latency_ms=took_ms), coherent

    async def record(self, answer: GatheredAccount, *, deadline_s: float) -> EventId | None:
        """Record a gathered account as an event and return the event's id; None if nothing can be written.

        The event has the origin "recalled", so it is never evidence. A second event is recorded if the sources disagree
        in a new way and some of their answers came from the cache. The second event makes these cached replies old, so
        the next gather calls the sources.
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
        """Load drivers and connect to the sources for the concepts in `concept`, and for those of `[brief] concepts`.

        Without this call, the first gather of a process spends a part of its deadline on connecting. A source that
        cannot be reached raises nothing here; it is reported when it is asked. Raises InvalidInput for an invalid
        concept.
        """
        requested = [concept] if isinstance(concept, str | Concept) else concept
        concepts = [parse_concept(each) for each in (*requested, *self._settings.brief.concepts)]
        await self.load(concepts)
        if concepts:
            await self._registry.prepare(concepts)

    async def load(self, concepts: Sequence[Concept]) -> None:
        """Import the drivers of the sources for these concepts, before a deadline begins."""
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
        """Record a decision about a concept and return a reference to the event. Secrets are removed from it.

        From then on, cached replies about the concept count as old, in this process and in others. Raises InvalidInput
        for an invalid concept, verdict, confidence or reason.
        """
        data = judgment_data(parse_concept(concept), verdict, confidence=confidence, reasons=reasons)
        self._log.check_asserted(str(data["text"]))
        return self._log.emit(JUDGED, data, parent=parent, context=context, origin=origin, at=at)

    async def judgments(self, concept: Concept | str | None = None, *, limit: int = 20) -> list[Judgment]:
        """Return the latest judgments, oldest first. Retracted judgments are left out.

        `concept` selects the judgments about one concept; None selects all judgments.
        """
        about = None if concept is None else parse_concept(concept)
        return await judgments((await self._log.reads()).log, concept=about, limit=limit)

    async def retract(self, event: Event, *, reason: str) -> EventId:
        """Retract a judgment and return the id of the retraction. The judgment stays in the log but is not used again.

        Raises InvalidInput if the event is not a judgment, was purged, or is retracted already.
        """
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
        """Return the declared or registered source of this name. Raises InvalidInput if there is none."""
        return self._registry[name]

    def add(self, source: Source) -> None:
        """Add a source object that a program created. Raises InvalidInput if its name is taken."""
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
        """Turn an object of the program into a source. The object may be a function that takes a concept.

        A function is called for each question and returns rows, fragments or None; it runs in a thread, or on the event
        loop if it is a coroutine function. Any other object is read for each question. `concepts` are patterns of the
        concepts that the source is asked about (`judgment:*`). `fragment` maps columns of a row to fields of a
        fragment, and `where` selects the rows. `rank`, `ttl_s`, `is_live`, `fragments_max`, `characters_max`,
        `timeout_s`, `time_share` and `invalidated_by` are as in the settings.

        If the settings have a table of this name, give only the object. A second call with the same name replaces the
        object. Raises InvalidInput for an invalid keyword, or if another kind of source has the name.
        """
        self._registry.register(name, thing, concepts=concepts, fragment=fragment, where=where, **declared)

    def unregister(self, name: str) -> None:
        """Remove the registered object of this name. Raises InvalidInput if there is none."""
        self._registry.unregister(name)

    @property
    def all(self) -> Mapping[str, Source]:
        """All sources that `gather` may ask, by name: mica's own first, then declared and registered ones."""
        self._use_all()
        return self._fan_out.sources

    def explain(self, concept: Concept | str) -> list[SourceQueryPreview]:
        """Return the query that each declared source would run about a concept, ordered by rank. No query is run."""
        return self._registry.explain(parse_concept(concept))

    def hanging(self, name: str) -> int:
        """Return how many calls to a source are still running although their callers have stopped waiting."""
        return self._registry.hanging(name)

    async def health(self, *, timeout_s: float = CHECK_S) -> list[SourceHealth]:
        """Return, for each declared or registered source, whether it answers now and how its latest calls went."""
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
        """Return how the latest calls to each source went, by its name. Recorded gathers and tests are counted."""
        return read_history(await self._log.query(EventQuery(names=(*GATHERED_NAMES, TESTED), limit=USED_MAX)))

    async def test(self, name: str, concept: Concept | str) -> ProbeResult:
        """Ask one source about a concept, without any cache, and record the outcome.

        If the source fails, nothing is raised: `error` of the result says why. If the source answers, it is no longer
        skipped because of earlier failures. Raises InvalidInput for an unknown source or an invalid concept.
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
        with suppress(MicaError):  # nothing can be written; the answer is valid nevertheless
            self._log.emit(TESTED, outcome, origin="tool")
        return tested

    # -- Ahead of time

    async def warm(self, *, limit: int = WARM_MAX) -> list[GatheredAccount]:
        """Gather in advance what the next agent may ask about, and return the accounts.

        These are the concepts of the latest judgments, at most `limit`, and those of `[brief] concepts`.
        """
        judged = [each.concept for each in reversed(await self.judgments(limit=limit * 4))]
        always = [Concept.parse(each) for each in self._settings.brief.concepts]
        return await asyncio.gather(*map(self._gather_ahead, dict.fromkeys([*dict.fromkeys(judged)][:limit] + always)))

    async def warm_most_used(self) -> int:
        """Gather again the concepts asked about most often in the last week. Return the number of concepts gathered."""
        since = self._clock() - USED_SPAN
        gathers = await self._log.query(EventQuery(names=GATHERED_NAMES, since=since, limit=USED_MAX))
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
        """Mark the cached replies that these events make old. This process calls it before it stores the events."""
        self._changes.hear(events)

    def _use_all(self) -> None:
        """Give the fan-out mica's own sources and the registered ones.

        A program may have registered more of them since the last call.
        """
        self._fan_out.use([*self._own, *self._registry])

    def _may_fill(self, name: str) -> bool:
        """Return True if an event of this name may give an empty source its first statements.

        Only mica's own sources that are known to be empty are considered.
        """
        return any(each.are_any is False and _matches(name, each.made_by) for each in self._sparse)

    def _react(self, change: LogChange) -> None:
        """Mark the replies that a change makes old.

        After certain events of this process, also begin to gather the concepts that agents will probably ask about
        next.
        """
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
            with suppress(MicaError):  # the next caller gets the error: no store, or a name that is no concept
                await (self._gather_ahead(Concept.parse(about)) if about else self.warm())

    def _forget(self) -> None:
        """Empty the cache. This is called when changes of the log were missed, because then any reply may be old."""
        self._replies.forget()
        for each in self._sparse:
            each.are_any = None

    async def close(self) -> None:
        """Cancel all running calls and save the cached replies. The owner of the registry closes the sources."""
        if self._gathering is not None:
            self._gathering.cancel()
            await asyncio.wait([self._gathering])
        await self._fan_out.close()
        await self._changes.close()
        await self._replies.close()


@remember_texts(1_024)
def _matches(name: str, patterns: tuple[str, ...]) -> bool:
    return any(name_pattern(each).fullmatch(name) for each in patterns)

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
    JUDGED,
    JUDGMENT_RETRACTED,
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
USED_MAX = 2_000  # recorded gathers that are read at most for that, the latest ones
REGATHER_MAX = 89  # concepts that may wait to be gathered again; if there are more, the oldest are dropped
AHEAD_S = 1.0  # the shortest deadline of gathers that no caller waits for
CHECK_S = 3.0  # for the health check of one source


class Sources:
    """The sources of a space: mica's own sources, and external ones, such as databases, files, servers and objects.

    An external source is declared in the settings, or registered by a program. `memory.sources["name"]`, iteration and
    `len` cover only external sources. `all` also contains mica's own sources.
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
        """Create the source of judgments, and add the other sources of mica, which are passed in `own`.

        `flush` is awaited before judgments are read; it stores the events that are still buffered.
        """
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

        Answers that arrive within 80 % of `deadline_s` are used; the rest of the time is for the text. Of contradicting
        statements, the more trusted one is shown, and the others are listed as conflicts. The text has at most 1/φ
        (about 62 %) as many tokens as `budget_tokens`. Deadline and budget default to those of `[brief]` in the
        settings. `now` is the time at which statements must be valid; the default is the present.

        If a source fails, nothing is raised: the source is listed in `degraded` if an earlier reply is shown instead,
        else in `missing`. Each call records the account as an event, except with `is_preview`. The first call about a
        concept also loads the drivers of its sources, before the deadline begins; `prepare` does this in advance.
        Raises InvalidInput for an invalid concept, budget or deadline.
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
        """Ask the sources all questions at once, under one deadline, and return one answer for each question, in order.

        By default, all sources of the space are asked. For questions about the past, pass a function as `sources`; only
        the sources that it returns are asked. If an event is purged while they are asked, the function is called a
        second time, and the sources that it then returns are asked all questions.
        """
        self._use_all()
        return await self._pipeline.ask(questions, deadline_s=deadline_s, sources=sources)

    def account_for(
        self, concept: Concept, collected: Collected, *, budget_tokens: int, began: float, now: datetime
    ) -> tuple[GatheredAccount, Coherent]:
        """Merge collected answers. Return a pair: the gathered account, and the merged statements and conflicts.

        The merged statements include those that did not fit into the text of the account. `began` is the time of the
        event loop at which the question was asked; the latency is counted from it. `now` is the time at which
        statements must be valid.
        """
        coherent = cohere(collected.fragments, ranks=collected.ranks, now=now)
        answer = make_account(concept, collected, coherent, budget_tokens=budget_tokens)
        took_ms = (asyncio.get_running_loop().time() - began) * 1000
        return msgspec.structs.replace(answer, latency_ms=took_ms), coherent

    async def record(self, answer: GatheredAccount, *, deadline_s: float) -> EventId | None:
        """Record a gathered account as an event and return the event's id; None if nothing can be written.

        The event has the origin "recalled", so it is never evidence. A second event is recorded if the sources disagree
        in a new way and some of their answers came from the cache. The second event makes these cached replies old, so
        the next gather calls the sources. The store is asked for earlier disagreements, for at most half of the time
        that is left of `deadline_s`.
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
        """Load the drivers of sources, and connect to the sources.

        These are the sources for the concepts in `concept` and for those in the setting `[brief] concepts`. Without
        this call, the first gather of a process spends a part of its deadline on connecting. If a source cannot be
        reached, nothing is raised here; the failure is reported when the source is asked. Raises InvalidInput for an
        invalid concept.
        """
        requested = [concept] if isinstance(concept, str | Concept) else concept
        concepts = [parse_concept(each) for each in (*requested, *self._settings.brief.concepts)]
        await self.load(concepts)
        if concepts:
            await self._registry.prepare(concepts)

    async def load(self, concepts: Sequence[Concept]) -> None:
        """Import the drivers of the sources for these concepts. Call this before a deadline begins."""
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
        """Record a decision about a concept and return a reference to the recorded event.

        Secrets are removed from the verdict and the reasons. `parent`, `context`, `origin` and `at` are those of the
        event. From then on, cached replies about the concept count as old, in this process and in others. Raises
        InvalidInput for an invalid concept, verdict, confidence or reason.
        """
        data = judgment_data(parse_concept(concept), verdict, confidence=confidence, reasons=reasons)
        self._log.check_asserted(str(data["text"]))
        return self._log.emit(JUDGED, data, parent=parent, context=context, origin=origin, at=at)

    async def judgments(self, concept: Concept | str | None = None, *, limit: int = 20) -> list[Judgment]:
        """Return the latest judgments, at most `limit`, oldest first. Retracted judgments are left out.

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
        """Add a source object that a program created. Raises InvalidInput if its name is taken or reserved."""
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
        concepts that the source is asked about, such as `judgment:*`. `fragment` maps each field of a fragment to a
        template with columns of a row, such as `{"text": "{reasoning}"}`. `where` maps columns to the values that a row
        must have to be used. `rank`, `ttl_s`, `is_live`, `fragments_max`, `characters_max`, `timeout_s`, `time_share`
        and `invalidated_by` are as in the settings.

        If the settings have a table of this name, give only the object. A second call with the same name replaces the
        object. Raises InvalidInput for an invalid keyword, or if the name belongs to a source that is not a registered
        object.
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
        """Return the queries that external sources would run about a concept, ordered by rank. No query is run."""
        return self._registry.explain(parse_concept(concept))

    def hanging(self, name: str) -> int:
        """Return how many calls to a source are still running although their callers have stopped waiting."""
        return self._registry.hanging(name)

    async def health(self, *, timeout_s: float = CHECK_S) -> list[SourceHealth]:
        """Check each external source, and return whether it answers now and how its latest calls went.

        A source that does not answer within `timeout_s` counts as missing.
        """
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
        """Return, by the name of each source, how its latest calls went, as recorded by gathers and manual tests."""
        return read_history(await self._log.query(EventQuery(names=(*GATHERED_NAMES, TESTED), limit=USED_MAX)))

    async def test(self, name: str, concept: Concept | str) -> ProbeResult:
        """Ask one source about a concept, without any cache, and record the outcome as an event.

        A MicaError that the source raises is not raised here: `error` of the result describes it. If the source
        answers, it is no longer skipped because of earlier failures. Raises InvalidInput for an unknown source or an
        invalid concept.
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
        """Gather in advance the concepts that the next agent may ask about, and return the accounts.

        These are the concepts of the latest judgments (at most `limit` concepts), and all concepts in the setting
        `[brief] concepts`.
        """
        judged = [each.concept for each in reversed(await self.judgments(limit=limit * 4))]
        always = [Concept.parse(each) for each in self._settings.brief.concepts]
        return await asyncio.gather(*map(self._gather_ahead, dict.fromkeys([*dict.fromkeys(judged)][:limit] + always)))

    async def warm_most_used(self) -> int:
        """Gather again the concepts that were gathered most often in the last week, at most WARM_MAX concepts.

        Return the number of concepts that were gathered.
        """
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
        """Mark the cached replies that these events make old. This is called before this process stores the events."""
        self._changes.hear(events)

    def _use_all(self) -> None:
        """Pass all current sources to the fan-out, because a program may have registered others since the last call."""
        self._fan_out.use([*self._own, *self._registry])

    def _may_fill(self, name: str) -> bool:
        """Return True if an event of this name may be the first statement of one of mica's own sources.

        Only sources that are known to be empty are considered.
        """
        return any(each.are_any is False and _matches(name, each.made_by) for each in self._sparse)

    def _react(self, change: LogChange) -> None:
        """Mark the replies that a change makes old, and gather some concepts in advance.

        Concepts are gathered after events of this process whose name is in REACTIONS: the concept of the event, or the
        concepts that the next agent may ask about. The gathering runs in the background.
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
        """Empty the cache. This is called after changes of the log were missed, because any reply may then be old."""
        self._replies.forget()
        for each in self._sparse:
            each.are_any = None

    async def close(self) -> None:
        """Cancel all running calls and save the cached replies. The sources themselves are closed by their registry."""
        if self._gathering is not None:
            self._gathering.cancel()
            await asyncio.wait([self._gathering])
        await self._fan_out.close()
        await self._changes.close()
        await self._replies.close()


@remember_texts(1_024)
def _matches(name: str, patterns: tuple[str, ...]) -> bool:
    return any(name_pattern(each).fullmatch(name) for each in patterns)

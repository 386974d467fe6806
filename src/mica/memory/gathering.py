"""Gather: one account of a concept from every source, judgments, and what keeps replies warm."""

from __future__ import annotations

import asyncio
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING

import msgspec

from mica.errors import InvalidInput, MicaError
from mica.events.context import Here
from mica.events.hot import Hot, Reads
from mica.events.references import Reference
from mica.memory.sourcing import Sourcing
from mica.memory.wiring import check_reason
from mica.model.event import (
    SESSION_ENDED,
    Appended,
    Context,
    Event,
    EventId,
    EventQuery,
    Origin,
    Ref,
    check_budget,
    is_tombstone,
    name_pattern,
)
from mica.model.walk import STARTED
from mica.redact import redact
from mica.sources.protocol import DEGRADED, GATHERED, JUDGED, JUDGMENT_RETRACTED, PHI_INV_2, Concept, FragmentSource
from mica.upkeep.schedule import Job

if TYPE_CHECKING:  # what is loaded only when it is used: starting is quick
    from mica.sources.account import Defragged
    from mica.sources.changes import Change
    from mica.sources.cohere import Coherent
    from mica.sources.fan_out import Collected, Collecting
    from mica.sources.health import Health, Past
    from mica.sources.judgments import Judgment
    from mica.sources.registry import Tested

WARMING = timedelta(minutes=89)  # F(11): between two gathers of what is asked most
WARM_MAX = 5  # concepts that are gathered ahead of a session
USED_SPAN = timedelta(days=7)  # in which questions count as asked lately
USED_MAX = 2_000  # of those questions
REACTING_MAX = 89  # concepts that wait to be gathered again; beyond that whoever asks next gathers
SPOOLS_S = 0.1  # between two looks at what hooks have left
AHEAD_S = 1.0  # nobody waits for what is gathered ahead
PURGED_MEANWHILE = "something was purged while it was asked; ask again"
PURGES_UNKNOWN = "the store does not say whether something was purged while it was asked; ask again"
PURGES_S = 0.02  # for it to say so where no time is left; a store that is there takes a thousandth of a second
CHECK_S = 3.0  # for one source to say that it is there
ABOUT_ONE = (JUDGED, JUDGMENT_RETRACTED, DEGRADED)  # events that speak of one concept
REACTIONS = frozenset([*ABOUT_ONE, STARTED, SESSION_ENDED])  # after which something is gathered at once


class Gathering(Sourcing):
    """A memory that asks other systems, too."""

    def _jobs(self) -> list[Job]:
        return [*super()._jobs(), Job(kind="warm", every=WARMING, run=self._warm_most_used)]

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
        """Record what was decided about a concept, how surely and why; returns where it stands. Secrets are redacted.

        What was gathered about the concept is old from then on, here and in other processes.
        """
        from mica.sources.judgments import judgment_data

        about = concept if isinstance(concept, Concept) else Concept.parse(concept)
        data = judgment_data(about, verdict, confidence=confidence, reasons=reasons)
        self._check_asserted(str(data["text"]))
        return self.emit(JUDGED, data, parent=parent, context=context, origin=origin, at=at)

    async def judgments(self, concept: Concept | str | None = None, *, limit: int = 20) -> list[Judgment]:
        """The latest judgments that were not retracted, of all or about one concept, oldest first."""
        from mica.sources.judgments import judgments

        about = concept if concept is None or isinstance(concept, Concept) else Concept.parse(concept)
        return await judgments(await self._reads(), concept=about, limit=limit)

    async def retract(self, reference: Reference, *, reason: str) -> EventId:
        """Say that a mark, a crystal or a judgment does not hold any more. It stays in the log; nothing tells it again.

        No search finds it, nothing rests on it, and what was gathered with it is old from then on.
        """
        event = await self.event(reference)
        if event.name != JUDGED:
            return await super().retract(event.id, reason=reason)
        from mica.sources.judgments import judgment_of, retraction_data

        check_reason(reason)
        self._check_asserted(reason)
        if (judgment := judgment_of(event)) is None or is_tombstone(event):
            raise InvalidInput(f"event {event.id} is no judgment any more, or never was one")
        gone = await self.events(EventQuery(names=(JUDGMENT_RETRACTED,), limit=None))
        if any(each.data.get("judgment") == event.id for each in gone):
            raise InvalidInput(f"judgment {event.number} is retracted already")
        self._take_back_answers()
        data = retraction_data(judgment, reason=reason)
        ref = self.emit(JUDGMENT_RETRACTED, data, parent=event, origin="user")
        await self._stored()
        return ref.id

    # -- Gather

    async def defrag(
        self,
        concept: Concept | str,
        *,
        budget_tokens: int | None = None,
        deadline_s: float | None = None,
        now: datetime | None = None,
        is_preview: bool = False,
    ) -> Defragged:
        """One account of a concept from every source that answers in time: deduplicated, conflicts decided and shown.

        It takes at most `deadline_s` and its text at most 1/φ of `budget_tokens`, both as `[brief]` sets them unless
        given. Sources that fail, hang or lie cost only their own say: `missing` names them, `degraded` those that are
        answered for by what they said earlier. Nothing of theirs is raised. Each call records one event. The first
        about a concept loads what its sources are asked with, before that time begins; `prepare` does it ahead.
        """
        about = concept if isinstance(concept, Concept) else Concept.parse(concept)
        budget_tokens = self._settings.brief.budget_tokens if budget_tokens is None else budget_tokens
        check_budget("gathered text", budget_tokens)
        if deadline_s is not None and not 0 < deadline_s < math.inf:
            raise InvalidInput(f"nothing can be gathered within {deadline_s} seconds; give more than 0")
        deadline_s = self._settings.brief.deadline_s if deadline_s is None else deadline_s
        await self._load([about])
        answer, _, _ = await self._gathered(
            about, budget_tokens=budget_tokens, deadline_s=deadline_s, now=now or self._clock()
        )
        if is_preview:
            return answer
        return msgspec.structs.replace(answer, receipt=await self._record_gathered(answer, deadline_s=deadline_s))

    async def prepare(self, concept: Concept | str | Sequence[Concept | str] = ()) -> None:
        """Load and connect to what gathering of these concepts needs, and of those that every brief speaks of.

        A process that has just begun would pay for it within its first deadline. What is not there is told when it is
        asked. Raises InvalidInput for what is no concept.
        """
        given = [concept] if isinstance(concept, str | Concept) else concept
        named = [*given, *self._settings.brief.concepts]
        concepts = [each if isinstance(each, Concept) else Concept.parse(each) for each in named]
        await self._load(concepts)
        if concepts:
            await self.sources.prepare(concepts)

    async def _load(self, concepts: Sequence[Concept]) -> None:
        """Load what these are gathered with, before a clock starts."""
        from mica.brief import composition as composing  # noqa: F401  # for what it loads

        if concepts and self._collecting.sources:
            await self.sources.load(concepts)

    async def _gathered(
        self, concept: Concept, *, budget_tokens: int, deadline_s: float, now: datetime
    ) -> tuple[Defragged, Collected, Coherent]:
        from mica.sources.account import defragged
        from mica.sources.cohere import cohere
        from mica.sources.fan_out import without_own

        loop = asyncio.get_running_loop()
        began = loop.time()
        for _ in range(2):
            left_s, generation = deadline_s - (loop.time() - began), self._generation_known()
            collected = await self._collecting.collect(concept, deadline_s=left_s, now=now)
            if not any(each.sources for each in collected.fragments):
                break  # nothing of it was in this log
            doubt = await self._doubt_since(generation, within_s=deadline_s - (loop.time() - began))
            if doubt != PURGED_MEANWHILE:
                collected = without_own(collected, doubt) if doubt else collected
                break
        else:
            collected = without_own(collected, PURGED_MEANWHILE)
        account = cohere(collected.fragments, ranks=collected.ranks, now=now)
        answer = defragged(concept, collected, account, budget_tokens=budget_tokens)
        took_ms = (loop.time() - began) * 1000
        return msgspec.structs.replace(answer, latency_ms=took_ms), collected, account

    def _generation_known(self) -> int:
        """How often something was purged, as far as this process has heard; -1 when nobody has told it yet."""
        return max(self._store.generation, self._generation_seen)

    async def _doubt_since(self, generation: int, *, within_s: float) -> str:
        """Why what was read since may be gone, and is not told: somebody purged meanwhile, or the store does not say.

        It is asked also where no time is left. Empty when nothing was purged. Who had not heard yet how often that
        happened, as of a store that was away, cannot tell whether it happened meanwhile.
        """
        is_known = False
        with suppress(TimeoutError, MicaError):
            async with asyncio.timeout(max(PURGES_S, within_s)):
                self._generation_seen = (await self._store.lesson()).generation
                is_known = True
        if self._generation_known() > generation:
            if "_collecting_parts" in self.__dict__:
                self._collecting_parts.replies.forget()  # before the purge of another process is heard of
            return PURGED_MEANWHILE
        return "" if is_known else PURGES_UNKNOWN

    _generation_seen = -1

    async def _record_gathered(self, answer: Defragged, *, deadline_s: float) -> EventId | None:
        """Record what was gathered and what it cost, as recalled text: it is never evidence."""
        from mica.sources.account import receipt
        from mica.sources.disagreements import degraded_data

        told, left_s = self._collecting_parts.disagreements, deadline_s - answer.latency_ms / 1000
        try:
            recorded = self.emit(GATHERED, receipt(answer), origin="recalled").id
            if answer.coherence is None or answer.coherence >= PHI_INV_2:
                told.agree(answer.concept)
            elif answer.cached and await told.is_news(answer.concept, answer.conflicts, within_s=left_s / 2):
                data = degraded_data(answer.concept, answer.coherence, answer.conflicts)
                self.emit(DEGRADED, data, origin="tool")
        except MicaError:
            return None  # nothing can be written; the agent's turn goes on
        return recorded

    # -- Sources

    @property
    def every_source(self) -> Mapping[str, FragmentSource]:
        """All that `defrag` asks, by name: mica's own first, then those of `memory.sources`."""
        return self._collecting.sources

    async def check_sources(self, *, timeout_s: float = CHECK_S) -> list[Health]:
        """Whether each declared or registered source answers now, and how its latest questions went."""
        from mica.sources.health import Past

        found = await self.sources.health(timeout_s=timeout_s)
        went = await self.asked_sources() if found else {}
        collecting = self._collecting
        return [
            each.after(
                went.get(each.source) or Past(),
                breaker="open" if collecting.breaker(each.source).is_open else "closed",
            )
            for each in found
        ]

    async def asked_sources(self) -> dict[str, Past]:
        """How the latest questions to each source went, by its name: those of gathers, and those asked by hand."""
        from mica.sources.health import TESTED, past

        return past(await self.events(EventQuery(names=(GATHERED, TESTED), limit=USED_MAX)))

    async def test_source(self, name: str, concept: Concept | str) -> Tested:
        """Ask one source about a concept, outside of every cache, and record how that went. Its failure is told.

        An answer ends that the source counts as failing, and that it is left alone.
        """
        from mica.sources.health import TESTED

        about = concept if isinstance(concept, Concept) else Concept.parse(concept)
        known = self._collecting
        tested = await self.sources.test(name, about, now=self._clock(), among=known.sources)
        if not tested.error:
            known.breaker(name).succeeded()
        told = {
            "source": name,
            "concept": str(about),
            "error": redact(tested.error),
            "milliseconds": round(tested.milliseconds, 3),
        }
        with suppress(MicaError):  # nothing can be written; it was asked all the same
            self.emit(TESTED, told, origin="tool")
        return tested

    # -- Ahead of time

    async def warm(self, *, limit: int = WARM_MAX) -> list[Defragged]:
        """Gather what the next agent will ask about: the concepts judged last, and those that every brief speaks of."""
        judged = [each.concept for each in reversed(await self.judgments(limit=limit * 4))]
        always = [Concept.parse(each) for each in self._settings.brief.concepts]
        return await asyncio.gather(*map(self._ahead, dict.fromkeys([*dict.fromkeys(judged)][:limit] + always)))

    async def _warm_most_used(self) -> int:
        """Gather what was asked about most, before its replies are too old."""
        since = self._clock() - USED_SPAN
        asked = await self.events(EventQuery(names=(GATHERED,), since=since, limit=USED_MAX))
        counts = Counter(str(event.data.get("concept")) for event in asked)
        most = [name for name, _ in sorted(counts.items(), key=lambda pair: (-pair[1], pair[0]))][:WARM_MAX]
        done = 0
        for name in most:
            with suppress(InvalidInput):  # somebody else's event of this name
                await self._ahead(Concept.parse(name))
                done += 1
        return done

    async def _ahead(self, concept: Concept) -> Defragged:
        return await self.defrag(concept, deadline_s=max(AHEAD_S, self._settings.brief.deadline_s))

    def _react(self, change: Change) -> None:
        """Something happened that makes replies old: those that somebody will ask for are gathered again at once."""
        self._collecting_parts.note(change)
        if not change.is_own or self._is_closed:
            return
        name, about = change.event.name, change.event.data.get("concept")
        if name not in REACTIONS:
            return
        if name in ABOUT_ONE and isinstance(about, str):
            self._wanted[about] = None
        else:
            self._wanted[""] = None  # the latest judgments
        while len(self._wanted) > REACTING_MAX:
            self._wanted.pop(next(iter(self._wanted)))
        if self._reacting is None or self._reacting.done():
            self._reacting = asyncio.ensure_future(self._gather_again())

    async def _gather_again(self) -> None:
        while self._wanted:
            about = next(iter(self._wanted))
            del self._wanted[about]
            with suppress(MicaError):  # a store that is away, or a name that is no concept: whoever asks next is told
                await (self._ahead(Concept.parse(about)) if about else self.warm())

    async def _flushed(self) -> None:
        """Store what waits, unless nothing of it is said by anybody: records of gathers wait for the background."""
        names = ("mark", "mark.*", "crystal.*", "judgment.*", "teaching.*", "trail.*")
        if self.spools is not None and self._spools_due():
            await self._ingest_spools()
        if Hot(self._folding.unfolded).events(EventQuery(names=names, limit=1)):
            await self._folding.flush()

    async def _recently(self) -> Reads:
        await self._flushed()
        return self._store

    def _spools_due(self) -> bool:
        """Whether it is time to look at what hooks have left: a listing of a folder, at most ten times a second."""
        now_s = asyncio.get_running_loop().time()
        if now_s - self._spools_looked_s < SPOOLS_S:
            return False
        self._spools_looked_s = now_s
        return True

    _spools_looked_s = float("-inf")

    # -- Parts, made when they are first used

    @cached_property
    def _wanted(self) -> dict[str, None]:
        return {}

    @cached_property
    def _collecting_parts(self) -> _Parts:
        return _Parts(self)

    @property
    def _collecting(self) -> Collecting:
        """Asks mica's own sources and all others."""
        parts = self._collecting_parts
        parts.collecting.use([*parts.own, *self.sources])
        return parts.collecting

    _reacting: asyncio.Task[None] | None = None

    async def _append(self, events: Sequence[Event]) -> Appended:
        if "_collecting_parts" in self.__dict__ or any(event.name in REACTIONS for event in events):
            self._collecting_parts.changes.hear(events)
        return await super()._append(events)

    async def _end_gathering(self) -> None:
        if self._reacting is not None:
            self._reacting.cancel()
            await asyncio.wait([self._reacting])
        if "_collecting_parts" in self.__dict__:
            await self._collecting_parts.close()


class _Parts:
    """What gathering is made of."""

    def __init__(self, memory: Gathering) -> None:
        from mica.brief.mention_source import Mentions
        from mica.brief.own_sources import Taught, Trodden
        from mica.sources.changes import Changes
        from mica.sources.disagreements import Disagreements
        from mica.sources.fan_out import Collecting
        from mica.sources.judgments import Judgments
        from mica.sources.replies import Replies
        from mica.sources.threads import Pool

        store = memory._store
        self.replies = Replies(store, own=lambda: memory._journal.writer)
        self.changes = Changes(
            store,
            unfolded=lambda: memory._folding.unfolded,
            is_wanted=lambda name: name == STARTED or self.replies.is_wanted(name) or self._is_first(name),
            of_others=(GATHERED,),
            tell=memory._react,
            lost=self._lost,
        )
        self.replies.changes = self.changes
        self.disagreements = Disagreements(store)
        self.pool = Pool()
        self.collecting = Collecting(
            store, replies=self.replies, changes=self.changes, pool=self.pool, clock=memory._clock
        )
        self.own = (
            Judgments(memory._recently),
            Mentions(store, stored=memory._flushed),
            Taught(store, stored=memory._flushed),
            Trodden(store, stored=memory._flushed, gates=memory._settings.trails),
        )

    def note(self, change: Change) -> None:
        name = change.event.name
        if self.replies.is_wanted(name):
            self.replies.note(change)
        self.disagreements.note(change.event)
        for each in self.own:
            if name == STARTED or _makes(name, each.made_by):
                each.are_any = None  # there may be some now

    def _is_first(self, name: str) -> bool:
        """Whether a source of ours that has nothing may have something after an event of this name."""
        return any(each.are_any is False and _makes(name, each.made_by) for each in self.own)

    def _lost(self) -> None:
        """Some changes were missed, and with them what there was none of before."""
        self.replies.forget()
        for each in self.own:
            each.are_any = None

    async def close(self) -> None:
        await self.collecting.close()
        await self.changes.close()
        await self.replies.close()


@lru_cache(maxsize=1_024)
def _makes(name: str, patterns: tuple[str, ...]) -> bool:
    return any(name_pattern(each).fullmatch(name) for each in patterns)

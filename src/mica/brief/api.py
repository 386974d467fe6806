"""The class behind `memory.briefs`: makes briefs (the text an agent receives), explains their lines, makes handoffs."""

from __future__ import annotations

import asyncio
import math
import os
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, suppress
from datetime import datetime
from pathlib import Path
from typing import TypeAlias

import msgspec

from mica.beliefs.library import BeliefLibrary, warm_up
from mica.brief.composition import ConceptAccount, compose
from mica.brief.excerpt import passage_of
from mica.brief.handoff import Handoff, collect_facts, compose_handoff, latest_session
from mica.brief.instruction_files import without_instructed
from mica.brief.now import (
    HAPPENED,
    NOW,
    QUOTED,
    Applied,
    Proposal,
    Quoted,
    apply_proposal,
    collect_recent,
    propose,
    read_file,
)
from mica.brief.own_sources import task_sources
from mica.brief.pasted_line import PastedLine, parse_handles
from mica.brief.quality import WEEK, Quality, quality
from mica.brief.receipts import BRIEF, SWITCHED, is_switched_on, receipt
from mica.brief.snapshot import gathered_before, read_snapshot
from mica.brief.why import RECEIPTS_MAX, Why, explain_line, why, why_belief, with_retractions
from mica.errors import InvalidInput, MicaError, UnknownEvent
from mica.events.log import Log
from mica.events.references import Reference
from mica.format.lines import plural
from mica.hook import BRIEFS, is_held_out
from mica.model.belief import Belief
from mica.model.brief import PRESETS, RECENCY_WEIGHT, Brief, Preset
from mica.model.crystal import Crystal
from mica.model.event import MICROSECOND, Clock, EventId, EventQuery, Ref, check_budget
from mica.navigation.places import RankFiles
from mica.search.dates import parse_moment
from mica.search.vectors import MarkVectors
from mica.settings import Settings
from mica.sources.answer import Collected
from mica.sources.api import Sources
from mica.sources.protocol import Concept, Fragment, Question, Source, parse_concept
from mica.store.priority import Priority, observe_failure
from mica.store.protocol import ChainIndex, CrystalIndex, EventLog, TextIndex, TrailTable

SLOW_SHARE = 0.4  # of the remaining time, for the embedding model to encode the task
PAST_S = 600.0  # deadline of a brief of the past, which copies the log first; no agent waits for it
LATEST_SHARE = 0.2  # of the deadline, for storing events emitted just before

RankPast: TypeAlias = Callable[[EventLog, TrailTable, datetime], AbstractAsyncContextManager[RankFiles]]


class _Request(msgspec.Struct, frozen=True, kw_only=True):
    """The checked arguments of a brief."""

    query: str
    concepts: tuple[Concept, ...]
    budget_tokens: int
    recency_weight: float
    deadline_s: float
    is_compressed: bool
    is_preview: bool

    def question(self, now: datetime, *, session: str | None = None, slow_s: float | None = None) -> Question:
        """Return the question about the task, for mica's own sources, such as marks and crystals.

        What `session` said is left out, because the agent that asks knows it. `slow_s` limits the time that a slow
        step, such as the embedding model, may take; None sets no limit.
        """
        return Question(
            task=self.query.strip(),
            now=now,
            session=session,
            slow_s=slow_s,
            recency_weight=self.recency_weight,
            budget_tokens=self.budget_tokens,
        )

    def compose(
        self,
        fragments: Sequence[Fragment],
        accounts: Sequence[ConceptAccount],
        *,
        missing: dict[str, str],
        now: datetime,
        instructions: Sequence[str] = (),
    ) -> Brief:
        """Compose the brief from `fragments`, which answer the task, and from `accounts`, one for each concept.

        `now` is the time of the brief. `missing` has the reason for each part of the brief that is missing, by the name
        of the part. `instructions` are lines that the agent has already.
        """
        return compose(
            self.query,
            without_instructed([passage_of(each) for each in fragments], instructions),
            accounts,
            missing=missing,
            budget_tokens=self.budget_tokens,
            is_compressed=self.is_compressed,
            now=now,
        )

    def compose_nothing(self) -> Brief:
        """Return an empty brief that says it was withheld.

        It is used if briefs are switched off, or if this session or this call gets none for comparison.
        """
        return Brief(query=self.query, text="", passages=(), tokens=0, budget_tokens=self.budget_tokens, is_off=True)


class Briefs:
    """Makes briefs and handoffs, explains where their lines come from, and updates the status file."""

    def __init__(
        self,
        log: Log,
        sources: Sources,
        *,
        event_log: EventLog,
        chains: ChainIndex,
        texts: TextIndex,
        crystals: CrystalIndex,
        clock: Clock,
        settings: Settings,
        priority: Priority,
        vectors: MarkVectors | None,
        rank_past: RankPast,
        crystallize: Callable[[str], Awaitable[list[Crystal]]],
        after_switch: Callable[[], Awaitable[None]],
        read_instructions: Callable[[], Awaitable[Sequence[str]]],
        learn: Callable[[float | None], Awaitable[bool]],
    ) -> None:
        """`rank_past` opens a function that ranks files as they would have been ranked at a past time.

        `crystallize` summarizes the session with the given id in crystals, and returns the new ones. `after_switch` is
        called when briefs were switched on or off. `vectors` is None if no embedding model is used. `read_instructions`
        returns the lines of the instruction files that clients show to the agent anyway. `learn` learns beliefs from
        new events, for at most so many seconds, and returns False if any are left.
        """
        self._log = log
        self._event_log = event_log
        self._chains = chains
        self._texts = texts
        self._crystals = crystals
        self._sources = sources
        self._clock = clock
        self._settings = settings
        self._priority = priority
        self._vectors = vectors
        self._rank_past = rank_past
        self._crystallize = crystallize
        self._after_switch = after_switch
        self._read_instructions = read_instructions
        self._learn = learn

    @property
    def deadline_s(self) -> float:
        """The deadline of a brief for which the caller sets none."""
        return self._settings.brief.deadline_s

    # -- Briefs

    async def brief(
        self,
        query: str = "",
        *,
        concept: Concept | str | Sequence[Concept | str] = (),
        budget_tokens: int | None = None,
        preset: Preset | None = None,
        recency_weight: float = RECENCY_WEIGHT,
        deadline_s: float | None = None,
        now: datetime | None = None,
        at: datetime | str | None = None,
        compress: bool = False,
        off: bool = False,
        is_preview: bool = False,
    ) -> Brief:
        """Make the brief for a task; see `Memory.brief` for details."""
        request = self._check(
            query,
            concept,
            budget_tokens=budget_tokens,
            preset=preset,
            recency_weight=recency_weight,
            deadline_s=deadline_s,
            is_compressed=compress,
            is_preview=is_preview,
        )
        await self._sources.load(request.concepts)
        await asyncio.to_thread(warm_up)
        began = asyncio.get_running_loop().time()
        past = None if at is None else parse_moment(at, now=now or self._clock(), zone=self._settings.zone())
        if past is not None:
            brief = await self._brief_at(request, past)
        elif off or is_held_out(self._log.here.context.session or "", self._settings.brief.holdout, kind=BRIEFS):
            brief = request.compose_nothing()
        else:
            with self._priority.query():
                brief = await self._brief_now(request, now or self._clock())
        if is_preview:
            return brief
        took_ms = (asyncio.get_running_loop().time() - began) * 1000
        return msgspec.structs.replace(brief, receipt=self.record(brief, latency_ms=took_ms, as_of=past))

    def _check(
        self,
        query: str,
        concept: Concept | str | Sequence[Concept | str],
        *,
        budget_tokens: int | None,
        preset: Preset | None,
        recency_weight: float,
        deadline_s: float | None,
        is_compressed: bool,
        is_preview: bool,
    ) -> _Request:
        defaults = self._settings.brief
        if not isinstance(query, str):
            raise InvalidInput(f"a query is a text, not {query!r}; omit it for a brief without a task")
        if preset is not None and preset not in PRESETS:
            raise InvalidInput(f"there is no preset {preset!r}; use one of {', '.join(PRESETS)}")
        if preset is not None and budget_tokens is not None:
            raise InvalidInput(f"a preset is a named budget; give {preset!r} or {budget_tokens!r}, not both")
        if budget_tokens is None:
            budget_tokens = defaults.budget_tokens if preset is None else PRESETS[preset]
        check_budget("brief", budget_tokens)
        if not 0 <= recency_weight <= 1:
            raise InvalidInput(f"a recency weight of {recency_weight} is not possible; give a number from 0 to 1")
        if deadline_s is not None and not 0 < deadline_s < math.inf:
            raise InvalidInput(f"a deadline of {deadline_s} seconds is not possible; give a finite number above 0")
        requested = [concept] if isinstance(concept, str | Concept) else concept
        concepts = [parse_concept(each) for each in (*defaults.concepts, *requested)]
        return _Request(
            query=query,
            concepts=tuple(dict.fromkeys(concepts)),
            budget_tokens=budget_tokens,
            recency_weight=recency_weight,
            deadline_s=defaults.deadline_s if deadline_s is None else deadline_s,
            is_compressed=is_compressed,
            is_preview=is_preview,
        )

    async def _brief_now(self, request: _Request, now: datetime) -> Brief:
        loop = asyncio.get_running_loop()
        began = loop.time()
        missing = await self._store_latest(request.deadline_s * LATEST_SHARE)
        if not missing and not await self._is_on_within(request.deadline_s * LATEST_SHARE):
            return request.compose_nothing()
        if not missing:  # otherwise the store is late, and learning would wait for it, too
            missing = await self._learn_within((request.deadline_s - (loop.time() - began)) * SLOW_SHARE)
        left_s = request.deadline_s - (loop.time() - began)
        questions = [
            request.question(now, session=self._log.here.context.session, slow_s=left_s * SLOW_SHARE),
            *(Question(concept=concept, now=now) for concept in request.concepts),
        ]
        reading = asyncio.ensure_future(self._read_instructions())
        reading.add_done_callback(observe_failure)
        own, *others = await self._sources.ask(questions, deadline_s=left_s)
        accounts = await self._accounts(request, others, began=began, now=now)
        done, _ = await asyncio.wait([reading], timeout=max(0.0, request.deadline_s - (loop.time() - began)))
        instructions = reading.result() if done and reading.exception() is None else ()
        return request.compose(
            own.fragments,
            accounts,
            missing=missing | own.missing,
            now=now,
            instructions=instructions,
        )

    async def _learn_within(self, timeout_s: float) -> dict[str, str]:
        """Learn beliefs from new events, and return an empty dict; else the reason, for the field `missing`."""
        try:
            async with asyncio.timeout(timeout_s):
                is_complete = await self._learn(timeout_s / 2)
        except TimeoutError:
            is_complete = False
        except MicaError as error:
            return {"beliefs": str(error)}
        return {} if is_complete else {"beliefs": "not all events are learned yet"}

    async def _accounts(
        self, request: _Request, answers: Sequence[Collected], *, began: float, now: datetime
    ) -> list[ConceptAccount]:
        """Merge what all sources answered about each concept, and record the result unless this is a preview.

        `answers` has one entry for each concept of the request, in the same order. `began` is when the brief was
        requested, by the clock of the event loop.
        """
        accounts = []
        for concept, collected in zip(request.concepts, answers, strict=True):
            answer, coherent = self._sources.account_for(
                concept, collected, budget_tokens=request.budget_tokens, began=began, now=now
            )
            if not request.is_preview:
                await self._sources.record(answer, deadline_s=request.deadline_s)
            accounts.append(ConceptAccount(concept=concept, collected=collected, coherent=coherent))
        return accounts

    async def _brief_at(self, request: _Request, at: datetime) -> Brief:
        """Make the brief as it would have been at the past time `at`."""
        await self._log.settle()
        accounts: list[ConceptAccount] | None = None  # None while briefs are switched off
        async with AsyncExitStack() as stack:

            async def past_sources() -> list[Source]:
                nonlocal accounts
                past = await read_snapshot(self._event_log, at)
                if not await is_switched_on(past.log):
                    accounts = None
                    return []
                accounts = [await gathered_before(past.log, concept) for concept in request.concepts]
                rank_files = await stack.enter_async_context(self._rank_past(past.log, past.trails, at))
                library = BeliefLibrary(past.log, past.beliefs)
                await library.refresh()
                return task_sources(past, rank_files=rank_files, zone=self._settings.zone())

            [own] = await self._sources.ask([request.question(at)], deadline_s=PAST_S, sources=past_sources)
        if accounts is None:
            return request.compose_nothing()
        return request.compose(own.fragments, accounts, missing=own.missing, now=at)

    async def _store_latest(self, timeout_s: float) -> dict[str, str]:
        """Wait until all events emitted so far are stored, and return an empty dict.

        If the store fails or is late, return the reason as an entry for the field `missing` of the brief.
        """
        try:
            await asyncio.wait_for(self._log.stored(), timeout_s)
        except TimeoutError:
            waiting = sum(last - first for _, first, last in self._log.unfolded)
            late = f"the store did not answer within {timeout_s * 1000:.0f} ms"
            wait = "waits" if waiting == 1 else "wait"
            return {"latest": f"{plural(waiting, 'event')} {wait} for the store" if waiting else late}
        except MicaError as error:
            return {"latest": str(error)}
        return {}

    def record(self, brief: Brief, *, latency_ms: float | None = None, as_of: datetime | None = None) -> EventId | None:
        """Record what a brief shows, as an event (its receipt). Return the event's id.

        The result is None if the event cannot be recorded. The event gets the origin "recalled", so its text is never
        used as evidence. `as_of` is the past time that the brief was made for; None for a brief of the present.
        """
        try:
            data = receipt(brief, latency_ms=latency_ms, as_of=as_of)
            return self._log.emit(BRIEF, data, origin="recalled").id
        except MicaError:
            return None

    async def prepare(self, concept: Concept | str | Sequence[Concept | str] = ()) -> None:
        """Preload word statistics, the embedding model, and the sources for `concept` and for those in the settings.

        Briefs work without this, but the first one of a process may miss parts that were not ready in time.
        """
        await self._sources.prepare(concept)
        with suppress(MicaError):
            await self._learn(None)
            await self._texts.postings([""], limit=1)
            if self._vectors is not None:
                await self._vectors.prepare()

    # -- On and off

    async def switch(self, *, on: bool) -> Ref:
        """Switch briefs on or off in this space, including those that hooks show. Then hooks say that they are off."""
        ref = self._log.emit(SWITCHED, {"on": on}, origin="user")
        await self._log.stored()
        self._log.notify_withdrawn()
        await self._after_switch()
        return ref

    async def is_on(self) -> bool:
        """Return True if briefs are switched on in this space."""
        await self._log.settle()
        return await is_switched_on(self._event_log)

    async def _is_on_within(self, timeout_s: float) -> bool:
        """Return whether briefs are switched on; True if the store fails or does not answer in time."""
        with suppress(MicaError, TimeoutError):
            async with asyncio.timeout(timeout_s):
                return await is_switched_on(self._event_log)
        return True

    async def quality(self, *, weeks: int = 8, until: datetime | str | None = None) -> Quality:
        """Report whether tasks with briefs succeeded more often than tasks without, and what asking sources cost.

        The report covers `weeks` weeks up to `until`, which is now by default. Raises InvalidInput if `weeks` is not a
        whole number above 0, or if `until` is not a time.
        """
        if not isinstance(weeks, int) or weeks < 1:
            raise InvalidInput(f"cannot report on {weeks!r} weeks; give 1 or more")
        now = self._clock()
        end = now if until is None else parse_moment(until, now=now, zone=self._settings.zone())
        events = await self._log.query(EventQuery(until=end + MICROSECOND, limit=None))
        return await asyncio.to_thread(quality, events, since=end - weeks * WEEK, until=end)

    # -- Why

    async def why(self, reference: Reference) -> list[Why]:
        """Explain an event or a line of a brief by its evidence; see `Memory.why` for details."""
        return await with_retractions(self._event_log, await self._why(reference))

    async def why_belief(self, belief: Belief, history: Sequence[Belief]) -> list[Why]:
        """Explain a belief by its evidence and its history."""
        return await with_retractions(self._event_log, [await why_belief(belief, history, log=self._event_log)])

    async def _why(self, reference: Reference) -> list[Why]:
        if not isinstance(reference, str):
            event = await self._log.get(reference)
            return [await why(event, log=self._event_log, chains=self._chains)]
        handles, line = parse_handles(reference), PastedLine(reference)
        try:
            events = [await self._log.get(each) for each in handles]
        except (UnknownEvent, InvalidInput) as error:
            if lines := await self._explain_line(line):
                return lines
            if isinstance(error, InvalidInput):
                raise InvalidInput(
                    f"{reference!r:.80} is not an id or a number such as 12, and none of the latest {RECEIPTS_MAX} "
                    "briefs and gathers has a line that begins with it; give at least the first two words of a line"
                ) from error
            raise
        # A number at the end may be part of the text, such as a pull request in the subject of a commit.
        is_line = handles != [reference.strip()]
        if is_line and not any(map(line.begins_excerpt, events)) and (lines := await self._explain_line(line)):
            return lines
        return [await why(each, log=self._event_log, chains=self._chains) for each in events]

    async def _explain_line(self, line: PastedLine) -> list[Why]:
        await self._log.settle()  # with the receipt of a brief made just before
        return await explain_line(line, log=self._event_log, chains=self._chains)

    # -- Handoff and status file

    async def handoff(self, *, session: str | None = None, budget_tokens: int | None = None) -> Handoff:
        """Compose the text for the agent that continues a session; see `Memory.handoff` for details."""
        budget_tokens = self._settings.brief.budget_tokens if budget_tokens is None else budget_tokens
        check_budget("handoff", budget_tokens)
        await self._log.settle()
        if session is not None and not await self._event_log.query(EventQuery(session=session, limit=1)):
            raise InvalidInput(
                f"there is no session {session!r} in this space; `mica events overview` shows the latest"
            )
        chosen = session or self._log.here.context.session or await latest_session(self._event_log)
        made: list[Crystal] = []
        errors: list[str] = []
        if chosen is not None:
            try:
                made = await self._crystallize(chosen)
            except MicaError as error:
                errors.append(str(error))
        facts = await collect_facts(
            chosen, log=self._event_log, chains=self._chains, texts=self._texts, crystals=self._crystals
        )
        return compose_handoff(facts, budget_tokens=budget_tokens, new_crystals=made, errors=errors)

    async def now(self, file: Path | str = NOW, *, section: str = HAPPENED) -> Proposal:
        """Propose new text for a section of a status file, made from the latest crystals. `apply_now` writes it.

        Raises InvalidInput if `file` exists but is a folder, is too large, is not UTF-8 or cannot be read, or if
        `section` is not usable as a title.
        """
        await self._log.settle()
        recent = await collect_recent(log=self._event_log, texts=self._texts, crystals=self._crystals, section=section)
        before = await asyncio.to_thread(read_file, Path(file))
        return propose(recent, file=Path(file), section=section, before=before)

    async def apply_now(self, proposal: Proposal) -> Applied:
        """Back up the file, if it exists, and write the proposed section into it. Other sections do not change.

        Raises InvalidInput if the file has changed since the proposal, or cannot be written.
        """
        applied = await asyncio.to_thread(apply_proposal, proposal, at=self._clock())
        quoted = Quoted(path=applied.file, host=os.uname().nodename, crystals=proposal.source_crystals)
        self._log.emit(QUOTED, msgspec.to_builtins(quoted), origin="user")
        return applied

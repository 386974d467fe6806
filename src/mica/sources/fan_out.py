"""Asks all sources at once, under one deadline. If a source fails or hangs, only its own answer is missing.

A question is about a concept or, for a brief, about a task: a text in the agent's words.

For a question about a concept, fresh cached replies are used. Concurrent callers that ask about the same concept share
one call to each source. An answer that arrives too late is cached for the next question.

For a question about a task, nothing is cached or shared, and all calls end with the deadline.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Collection, Coroutine, Iterable, Mapping
from contextlib import nullcontext, suppress
from datetime import datetime
from functools import partial
from typing import NamedTuple

from mica.errors import MicaError, SourceFailed
from mica.model.event import Clock
from mica.sources.answer import Answer, Collected, Degraded, clean, describe, limit, redact_answer
from mica.sources.breaker import SourceBreaker
from mica.sources.changes import Changes
from mica.sources.protocol import (
    FRAGMENTS_MAX,
    IN_PART,
    Concept,
    LimitedSource,
    Partial,
    Question,
    QuickSource,
    Source,
    SourceDeclaration,
    SparseSource,
    VersionedSource,
)
from mica.sources.replies import CachedReply, Replies
from mica.sources.threads import Pool
from mica.store.priority import observe_failure
from mica.store.protocol import PurgeLog

COLLECT_SHARE = 0.8  # of the deadline, for collecting; the rest is for rendering the text
RESERVE_S = 0.01  # of the deadline, at least, for rendering the text
STORE_SHARE = 0.25  # of the collecting time, for reading from the store what other processes cached
PATIENCE_S = 2.0  # how long a shared call may run without a waiter; the next question then finds its answer cached
CHARACTERS_AT_ONCE = 50_000  # a reply up to this size is checked on the event loop, which takes one or two milliseconds
UNLIMITED = nullcontext()  # for a source that has a short time limit of its own
LATE_MAX = 32  # shared calls without a waiter that may run at once; further ones are cancelled


class Flight:
    """One running call to a source.

    A shared call, which several callers may wait for, is ended after PATIENCE_S seconds, or later if one of its callers
    waits longer.
    """

    def __init__(
        self,
        call: Callable[[Flight], Coroutine[object, object, CachedReply | Answer]],
        *,
        tick: int = 0,
        is_shared: bool = True,
    ) -> None:
        self.tick = tick
        self.is_shared = is_shared
        self.waiting = 0
        self._loop = asyncio.get_running_loop()
        self._began = self._loop.time()
        self._until = self._began + PATIENCE_S
        self._timeout: asyncio.Timeout | None = None
        self.task = asyncio.ensure_future(call(self))

    @property
    def is_expired(self) -> bool:
        return self._timeout is not None and self._timeout.expired()

    @property
    def limit_s(self) -> float:
        return self._until - self._began

    def limited(self) -> asyncio.Timeout:
        """Return a context manager that ends this call at its time limit.

        The limit changes when a caller starts or stops waiting for the call.
        """
        self._timeout = asyncio.timeout_at(self._until)
        return self._timeout

    def join(self, wait_s: float) -> None:
        self.waiting += 1
        self._end_at(max(self._until, self._loop.time() + wait_s))

    def leave(self) -> None:
        self.waiting -= 1
        if not self.waiting:
            self._end_at(min(self._until, self._loop.time() + PATIENCE_S))

    def _end_at(self, until: float) -> None:
        self._until = until
        if self._timeout is not None:
            with suppress(RuntimeError):  # it is over
                self._timeout.reschedule(until)


class Begun(NamedTuple):
    """The sources of a question after the calls were started. Each source is in one of three mappings, by name."""

    replies: dict[str, CachedReply | Answer]  # sources with a fresh cached reply
    flights: dict[str, Flight]  # sources that are being called
    refused: dict[str, str]  # sources that are not called, each with the reason


class FanOut:
    """Calls the sources of a space, and owns their circuit breakers and the running calls."""

    def __init__(self, purges: PurgeLog, *, replies: Replies, changes: Changes, pool: Pool, clock: Clock) -> None:
        self._purges = purges
        self._replies = replies
        self._changes = changes
        self._pool = pool
        self._clock = clock
        self._sources: dict[str, Source] = {}  # for questions about concepts
        self._task_sources: dict[str, Source] = {}  # another name space: a user's source may be called "files"
        self._versions: dict[str, Callable[[Concept], Awaitable[str]]] = {}
        self._sparse: dict[str, SparseSource] = {}
        self._prompt: set[str] = set()  # sources that end their own calls within PATIENCE_S
        self._breakers: dict[str, SourceBreaker] = {}
        self._flights: dict[tuple[str, Concept], Flight] = {}  # the latest call to each source about each concept
        self._flying: set[Flight] = set()  # all shared calls that are running
        self._late: set[Flight] = set()  # shared calls without a waiter
        self._store_breaker = SourceBreaker(time.monotonic)

    @property
    def sources(self) -> Mapping[str, Source]:
        """The sources that are asked about concepts."""
        return self._sources

    def breaker(self, name: str) -> SourceBreaker:
        """Return the circuit breaker of a source."""
        return self._breakers[name]

    def use(self, sources: Iterable[Source]) -> None:
        """Set the sources to call. Of several sources with the same name, the last one is used."""
        every = list(sources)
        self._task_sources = {each.declared.name: each for each in every if each.declared.answers_tasks}
        current = {each.declared.name: each for each in every if each.declared.concepts}
        if current == self._sources:
            return
        for name in [name for name, source in self._sources.items() if current.get(name) is not source]:
            self._replies.drop(name)
            for key in [key for key in self._flights if key[0] == name]:
                del self._flights[key]  # its waiters still get the answer
        self._sources = current
        self._versions = {name: each.version_of for name, each in current.items() if isinstance(each, VersionedSource)}
        self._sparse = {name: each for name, each in current.items() if isinstance(each, SparseSource)}
        limited = {name: each.limit_s for name, each in current.items() if isinstance(each, LimitedSource)}
        self._prompt = {name for name, limit_s in limited.items() if limit_s <= PATIENCE_S}
        for name in self._sources.keys() - self._breakers.keys():  # the breakers of others stay: calls may be under way
            self._breakers[name] = SourceBreaker(time.monotonic)
        self._replies.know(source.declared for source in self._sources.values())

    async def collect(
        self, question: Question, *, deadline_s: float, sources: Iterable[Source] | None = None
    ) -> Collected:
        """Ask all sources one question, and return the answers that arrive within 80 % of the deadline.

        If a source fails, nothing is raised; `missing` of the result says why it has no answer. If `sources` is given,
        only these are asked, for example sources over a copy of the log for a question about the past.
        """
        began = asyncio.get_running_loop().time()
        window_s = max(0.0, min(deadline_s * COLLECT_SHARE, deadline_s - RESERVE_S))
        in_use = self._task_sources if question.concept is None else self._sources
        used = in_use if sources is None else {each.declared.name: each for each in sources}
        if question.concept is not None:
            self._changes.hear_own()  # a source that was empty may have something now
        wanted = self._wanted(used, question)
        missing: dict[str, str] = {}
        if question.concept is None:
            begun = Begun({}, {name: self._call(used[name], question) for name in wanted}, {})
        else:
            begun = await self._begin(question, question.concept, used, wanted, window_s=window_s, missing=missing)
        cached = tuple(sorted(begun.replies))
        late = await self._wait(begun.flights, wanted, began=began, window_s=window_s)
        answers, refused = begun.replies, begun.refused | late
        for name in begun.flights.keys() - late.keys():
            task = begun.flights[name].task
            if (error := _error(task)) is None:
                answers[name] = task.result()
            else:
                refused[name] = error
        degraded = self._fall_back(refused, late, question, used, answers=answers, missing=missing)
        missing |= {name: _describe_gap(each) for name, each in answers.items() if each.missing}
        return Collected(
            fragments=tuple(each for name in wanted if name in answers for each in answers[name].fragments),
            ranks={name: declared.rank for name, declared in wanted.items()},
            asked=tuple(sorted(wanted)),
            cached=cached,
            missing=missing | question.missing,
            degraded=tuple(sorted(degraded, key=lambda each: each.source)),
        )

    async def _begin(
        self,
        question: Question,
        concept: Concept,
        sources: Mapping[str, Source],
        wanted: dict[str, SourceDeclaration],
        *,
        window_s: float,
        missing: dict[str, str],
    ) -> Begun:
        """Take the fresh cached replies about a concept, and start calls to the sources in `wanted` that have none.

        A source that was empty may have statements by now, because another process recorded an event. Such a source is
        added to `wanted`. If the log cannot be read in time, `missing["log"]` is set.
        """
        fresh = await self._current_replies(
            wanted, concept, now=question.now, within_s=window_s * STORE_SHARE, missing=missing
        )
        wanted |= self._wanted(
            sources, question
        )  # another process may have recorded something for a source that was empty
        flights: dict[str, Flight] = {}
        refused: dict[str, str] = {}
        for name, declared in wanted.items():
            if name in fresh:
                if self._replies.is_ageing(fresh[name], declared, concept, now=question.now):
                    self._refresh(sources[name], concept)
            elif (flight := self._flight(declared, concept)) is not None and not self._breakers[name].is_open:
                flights[name] = flight
            elif self._breakers[name].allows():
                flights[name] = flight or self._share_call(sources[name], concept)
            else:
                refused[name] = self._breakers[name].describe()
        return Begun({**fresh}, flights, refused)

    def _fall_back(
        self,
        refused: Mapping[str, str],
        late: Collection[str],
        question: Question,
        sources: Mapping[str, Source],
        *,
        answers: dict[str, CachedReply | Answer],
        missing: dict[str, str],
    ) -> list[Degraded]:
        """Add earlier replies or preliminary answers to `answers` for the sources that did not answer.

        `refused` maps these sources to the reason; those in `late` were called and did not answer in time. Returns the
        sources whose earlier reply is used. Each of the others is added to `missing`.
        """
        degraded = []
        for name, reason in refused.items():
            source = sources[name]
            if question.concept is None:
                missing[name] = reason
                if name in late and isinstance(source, QuickSource) and (found := source.quick(question)):
                    answers[name] = Answer(tuple(found))
                    missing[name] += ", so only a preliminary answer is used"
            elif (stale := self._replies.cached(source.declared, question.concept)) is None:
                missing[name] = reason
            else:
                answers[name] = stale
                age_s = (question.now - stale.at).total_seconds()
                degraded.append(Degraded(source=name, reason=reason, age_s=age_s))
        return degraded

    async def _current_replies(
        self,
        wanted: Mapping[str, SourceDeclaration],
        concept: Concept,
        *,
        now: datetime,
        within_s: float,
        missing: dict[str, str],
    ) -> dict[str, CachedReply]:
        """Return the fresh cached replies about a concept, by the name of the source.

        The store is first asked for events and replies that other processes have stored meanwhile. If the store fails
        or does not answer within `within_s`, only the replies of this process are used, and `missing["log"]` says why.
        """
        if all(source.declared.is_live for source in self._sources.values()):
            return {}
        loop = asyncio.get_running_loop()
        until = loop.time() + within_s
        if not self._store_breaker.allows():
            missing["log"] = self._store_breaker.describe()
            return await self._unchanged(self._fresh_cached(wanted, concept, now=now), concept, within_s=within_s)
        try:
            problem = await self._changes.look(within_s)
            found = self._fresh_cached(wanted, concept, now=now)
            if problem is None and any(name not in found and not each.is_live for name, each in wanted.items()):
                problem = await self._load_saved(wanted, concept, within_s=until - loop.time())
                found = self._fresh_cached(wanted, concept, now=now)
        except asyncio.CancelledError:
            self._store_breaker.abandoned()
            raise
        if problem is None:
            self._store_breaker.succeeded()
        else:
            self._store_breaker.failed(problem)
            missing["log"] = problem
        return await self._unchanged(found, concept, within_s=until - loop.time())

    def _fresh_cached(
        self, wanted: Mapping[str, SourceDeclaration], concept: Concept, *, now: datetime
    ) -> dict[str, CachedReply]:
        found = {}
        for name, declared in wanted.items():
            reply = None if declared.is_live else self._replies.cached(declared, concept)
            if reply is not None and self._replies.is_fresh(reply, declared, concept, now=now):
                found[name] = reply
        return found

    async def _unchanged(
        self, found: dict[str, CachedReply], concept: Concept, *, within_s: float
    ) -> dict[str, CachedReply]:
        """Return the replies in `found` whose source has not changed since the reply.

        `found` maps names of sources to replies. A source has changed if its version differs from that of the reply. If
        a source does not report its version within `within_s`, its reply is left out. Sources without versions count as
        unchanged.
        """
        looks = {
            name: asyncio.ensure_future(self._versions[name](concept)) for name in found.keys() & self._versions.keys()
        }
        if not looks:
            return found
        try:
            await asyncio.wait(looks.values(), timeout=max(0.0, within_s))
        finally:
            for look in looks.values():
                look.cancel()
        same = {name for name, look in looks.items() if _result(look) == found[name].version}
        return {name: reply for name, reply in found.items() if name not in looks or name in same}

    async def _load_saved(
        self, wanted: Mapping[str, SourceDeclaration], concept: Concept, *, within_s: float
    ) -> str | None:
        try:
            async with asyncio.timeout(max(0.0, within_s)):
                await self._replies.load(wanted, concept)
        except TimeoutError:
            return "the store did not report in time which replies other processes have cached"
        except MicaError as error:
            return str(error)
        return None

    def _wanted(self, sources: Mapping[str, Source], question: Question) -> dict[str, SourceDeclaration]:
        """Return the declarations of the sources that should answer a question, by name.

        For a question about a concept, sources that are known to be empty are left out.
        """
        empty = (
            () if question.concept is None else {name for name, each in self._sparse.items() if each.are_any is False}
        )
        return {
            name: source.declared
            for name, source in sources.items()
            if name not in empty and source.declared.answers(question)
        }

    async def _wait(
        self,
        flights: Mapping[str, Flight],
        wanted: Mapping[str, SourceDeclaration],
        *,
        began: float,
        window_s: float,
    ) -> dict[str, str]:
        """Wait for the calls, and return the sources that did not answer in time, each with a text that says so.

        `window_s` seconds, counted from `began`, are the whole time. Each source gets the share of it in its
        declaration (`time_share`).
        """
        loop = asyncio.get_running_loop()
        late: dict[str, str] = {}
        for flight in flights.values():
            flight.join(window_s)
            self._late.discard(flight)
        try:
            for share in sorted({wanted[name].time_share for name in flights}):
                pending = [each.task for name, each in flights.items() if not each.task.done() and name not in late]
                if not pending:
                    break
                await asyncio.wait(pending, timeout=max(0.0, began + window_s * share - loop.time()))
                for name, flight in flights.items():
                    if wanted[name].time_share == share and not flight.task.done():
                        late[name] = f"no answer within {window_s * share * 1000:.0f} ms"
        finally:
            for flight in flights.values():
                flight.leave()
                self._let_go(flight)
        for name, reason in late.items():
            if flights[name].is_shared:
                self._breakers[name].failed(reason)
        return late

    def _let_go(self, flight: Flight) -> None:
        """Continue or cancel a call after a caller has stopped waiting for it.

        If other callers wait, nothing happens. Otherwise a shared call continues, so that its answer is cached, unless
        LATE_MAX such calls are running already. Any other call is cancelled.
        """
        if flight.waiting or flight.task.done():
            return
        if not flight.is_shared or len(self._late) >= LATE_MAX:
            flight.task.cancel()
        else:
            self._late.add(flight)

    def _flight(self, declared: SourceDeclaration, concept: Concept) -> Flight | None:
        """Return the running call to a source about a concept, so that a caller can share it.

        Return None if there is no such call, if its time limit is over, or if an event has made its answer old.
        """
        flight = self._flights.get((declared.name, concept))
        if flight is None or flight.is_expired or self._replies.is_changed(declared, concept, since=flight.tick):
            return None
        return flight

    def _refresh(self, source: Source, concept: Concept) -> None:
        """Call a source in the background, to replace its cached reply about a concept before the reply expires.

        The source is not called if a call is running already, if too many background calls are running, or if its
        circuit breaker is open.
        """
        name = source.declared.name
        is_room = len(self._late) < LATE_MAX
        if self._flight(source.declared, concept) is None and is_room and self._breakers[name].allows():
            self._let_go(self._share_call(source, concept))

    def _share_call(self, source: Source, concept: Concept) -> Flight:
        """Start a call to a source about a concept. Concurrent callers with the same question can share it."""
        name = source.declared.name
        flight = Flight(partial(self._ask, source, concept), tick=self._changes.tick)
        self._flights[name, concept] = flight
        self._flying.add(flight)

        def landed(task: asyncio.Task[CachedReply | Answer]) -> None:
            self._flying.discard(flight)
            self._late.discard(flight)
            if self._flights.get((name, concept)) is flight:
                del self._flights[name, concept]
            observe_failure(task)

        flight.task.add_done_callback(landed)
        return flight

    def _call(self, source: Source, question: Question) -> Flight:
        flight = Flight(partial(self._ask_task, source, question), is_shared=False)
        flight.task.add_done_callback(observe_failure)
        return flight

    async def _ask_task(self, source: Source, question: Question, _: Flight) -> Answer:
        """Return a source's answer to a question about a task, as the source gives it.

        Secrets need not be removed here: sources for tasks quote the log, and secrets are removed before events are
        stored. The length need not be limited here: the brief has a budget.
        """
        try:
            fragments = await source.fragments(question)
        except SystemExit as error:  # would end the event loop
            raise SourceFailed(source.declared.name, describe(error)) from error
        return Answer(tuple(fragments), missing=fragments.missing if isinstance(fragments, Partial) else "")

    async def _ask(self, source: Source, concept: Concept, flight: Flight) -> CachedReply:
        """Call a source about a concept and return its reply, with secrets removed. The reply is also cached.

        Raises SourceFailed if the source fails or if its answer is not valid.
        """
        name = source.declared.name
        breaker = self._breakers[name]
        at, tick, position = self._clock(), self._changes.tick, self._changes.position
        generation = self._purges.generation
        version_of = self._versions.get(name)
        try:
            async with UNLIMITED if name in self._prompt and version_of is None else flight.limited():
                version = (
                    "" if version_of is None else await version_of(concept)
                )  # first: a change during the call counts
                fragments = await source.fragments(Question(concept=concept, now=at))
            answer = await self._check(source.declared, fragments, flight)
        except TimeoutError as error:
            reason = f"no answer within {flight.limit_s:.0f} s" if flight.is_expired else describe(error)
            breaker.failed(reason)
            raise SourceFailed(name, reason) from error
        except asyncio.CancelledError:
            if (task := asyncio.current_task()) is not None and task.cancelling():
                breaker.abandoned()  # cancelled by mica, so nothing is known of the source
            else:
                breaker.failed("it was cancelled")
            raise
        except (Exception, SystemExit) as error:
            breaker.failed(describe(error))
            raise SourceFailed(name, describe(error)) from error
        breaker.succeeded()
        reply = CachedReply(
            fragments=answer.fragments,
            missing=(clean(fragments.missing) if isinstance(fragments, Partial) else "") or answer.missing,
            at=at,
            tick=tick,
            position=position,
            generation=generation,
            characters=answer.characters,
            version=version,
        )
        if not source.declared.is_live:
            self._replies.keep(source.declared, concept, reply)
        return reply

    async def _check(self, declared: SourceDeclaration, answered: object, flight: Flight) -> Answer:
        """Return a source's answer, cut to the limits of the source's declaration and with secrets removed.

        Raises SourceFailed if the answer contains anything other than fragments. If the answer is an iterator, its
        errors are raised as they are. Raises TimeoutError if the check takes longer than the call may take.
        """
        answer = None
        if type(answered) in (list, tuple, Partial) and len(answered) <= FRAGMENTS_MAX:  # type: ignore[arg-type]  # its type was just tested
            answer = limit(declared, answered)
            if answer.characters <= CHARACTERS_AT_ONCE:
                return redact_answer(answer)
        async with flight.limited():  # an iterator may block, or take long
            return await self._pool.run(declared.name, lambda: redact_answer(answer or limit(declared, answered)))

    async def close(self) -> None:
        """Cancel all running calls. The sources themselves are closed by their owner."""
        calls = [flight.task for flight in self._flying]
        for task in calls:
            task.cancel()
        if calls:
            await asyncio.wait(calls, timeout=PATIENCE_S)
        self._pool.close()


def _describe_gap(answer: CachedReply | Answer) -> str:
    return f"{IN_PART}{answer.missing}" if answer.fragments else answer.missing


def _result(look: asyncio.Future[str]) -> str | None:
    return look.result() if look.done() and not look.cancelled() and look.exception() is None else None


def _error(task: asyncio.Task[CachedReply | Answer]) -> str | None:
    if task.cancelled():
        return "it was cancelled"
    error = task.exception()
    return None if error is None else describe(error)

"""Ask every source about a concept at once, under one deadline. A source that fails or hangs costs only its own say.

What was replied before is used while it is fresh. Of several who ask the same at once, one asks the source. An answer
that comes too late for this question is kept for the next one.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping
from contextlib import nullcontext, suppress
from datetime import datetime
from functools import partial
from itertools import islice
from typing import NamedTuple

import msgspec

from mica.errors import MicaError, SourceFailed
from mica.model.event import Clock
from mica.redact import redact
from mica.sources.breaker import Breaker
from mica.sources.changes import Changes
from mica.sources.protocol import FRAGMENTS_MAX, IN_PART, Concept, Declared, Fragment, FragmentSource, Partial
from mica.sources.replies import Kept, Replies
from mica.sources.threads import Pool
from mica.store.protocol import Store

COLLECT_SHARE = 0.8  # of the deadline, for collecting
RESERVE_S = 0.01  # of it, for making an account and writing it down
STORE_SHARE = 0.25  # of the time for collecting, for the store to say what others were told
PATIENCE_S = 2.0  # for which a source may go on though nobody waits, so that the next question finds its answer
CHARACTERS_AT_ONCE = 50_000  # of a reply, that are looked at on the loop; redacting them takes a millisecond or two
REASON_CHARACTERS_MAX = 500  # of why a source failed; it is recorded with every gather
UNLIMITED = nullcontext()  # for a source that limits itself
LATE_MAX = 32  # questions that go on at once after their deadline; more are cancelled


class Degraded(msgspec.Struct, frozen=True, kw_only=True):
    """A source that is answered for by what it said earlier."""

    source: str
    reason: str
    age_s: float


class Collected(msgspec.Struct, frozen=True, kw_only=True):
    """What the sources said in time, and which could not."""

    fragments: tuple[Fragment, ...] = ()
    ranks: dict[str, int] = {}
    asked: tuple[str, ...] = ()  # every source that may know of the concept
    cached: tuple[str, ...] = ()  # those that were answered for by what they said earlier
    missing: dict[str, str] = {}
    degraded: tuple[Degraded, ...] = ()


class Flight:
    """A question to a source. It may take as long as the most patient of those who wait, or PATIENCE_S."""

    def __init__(self, asking: Callable[[Flight], Coroutine[object, object, Kept]], *, tick: int) -> None:
        self.tick = tick
        self.waiting = 0
        self._loop = asyncio.get_running_loop()
        self._began = self._loop.time()
        self._until = self._began + PATIENCE_S
        self._timeout: asyncio.Timeout | None = None
        self.task = asyncio.ensure_future(asking(self))

    @property
    def is_expired(self) -> bool:
        return self._timeout is not None and self._timeout.expired()

    @property
    def limit_s(self) -> float:
        return self._until - self._began

    def limited(self) -> asyncio.Timeout:
        """What ends with the time of this flight, though that changes meanwhile."""
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


class Collecting:
    """The sources of a space, and what is known of each."""

    def __init__(self, store: Store, *, replies: Replies, changes: Changes, pool: Pool, clock: Clock) -> None:
        self._store = store
        self._replies = replies
        self._changes = changes
        self._pool = pool
        self._clock = clock
        self._sources: dict[str, FragmentSource] = {}
        self._versions: dict[
            str, Callable[[Concept], Awaitable[str]]
        ] = {}  # of those that can tell what they would read
        self._breakers: dict[str, Breaker] = {}
        self._flights: dict[tuple[str, Concept], Flight] = {}  # the latest of each
        self._flying: set[Flight] = set()
        self._late: set[Flight] = set()  # those that nobody waits for
        self._of_store = Breaker(time.monotonic)

    @property
    def sources(self) -> Mapping[str, FragmentSource]:
        return self._sources

    def breaker(self, name: str) -> Breaker:
        """What a source's questions came to lately."""
        return self._breakers[name]

    def use(self, sources: Iterable[FragmentSource]) -> None:
        """Ask these from now on; of two with one name the latter."""
        current = {source.declared.name: source for source in sources}
        if current == self._sources:
            return
        for name in [name for name, source in self._sources.items() if current.get(name) is not source]:
            self._replies.drop(name)
            for key in [key for key in self._flights if key[0] == name]:
                del self._flights[key]  # whoever asked it waits for it still
        self._sources = current
        self._versions = {
            name: version_of for name, each in current.items() if (version_of := getattr(each, "version_of", None))
        }
        for name in self._sources.keys() - self._breakers.keys():  # those of others stay: somebody may be asking them
            self._breakers[name] = Breaker(time.monotonic)
        self._replies.know(source.declared for source in self._sources.values())

    async def collect(
        self, concept: Concept, *, deadline_s: float, now: datetime, only_cached: bool = False
    ) -> Collected:
        """What is known of a concept within 80 % of the deadline. Raises nothing for a source, whatever it does.

        With `only_cached` no source is asked.
        """
        loop = asyncio.get_running_loop()
        began = loop.time()
        window_s = max(0.0, min(deadline_s * COLLECT_SHARE, deadline_s - RESERVE_S))
        sources = self._sources  # as they are now: others may be used before this question is answered
        self._changes.hear_own()
        wanted = _wanted(sources, concept)
        missing: dict[str, str] = {}
        kept = await self._known(wanted, concept, now=now, within_s=window_s * STORE_SHARE, missing=missing)
        wanted |= _wanted(sources, concept)  # others may have recorded what there was none of
        cached = tuple(sorted(kept))
        waiting: dict[str, Flight] = {}
        refused: dict[str, str] = {}
        for name, declared in wanted.items():
            if name in kept:
                if not only_cached and self._replies.is_ageing(kept[name], declared, concept, now=now):
                    self._ask_ahead(sources[name], concept)
            elif only_cached:
                refused[name] = "nobody asked it lately"
            elif (flight := self._flight(declared, concept)) is not None and not self._breakers[name].is_open:
                waiting[name] = flight
            elif self._breakers[name].allows():
                waiting[name] = flight or self._fly(sources[name], concept)
            else:
                refused[name] = self._breakers[name].told()
        late = await self._landed(waiting, wanted, began=began, window_s=window_s)
        refused |= late
        for name, flight in waiting.items():
            if name in late:
                continue
            if (error := _error(flight.task)) is None:
                kept[name] = flight.task.result()
            else:
                refused[name] = error
        degraded = []
        for name, reason in refused.items():
            stale = self._replies.kept(wanted[name], concept)
            if stale is None:
                missing[name] = reason
            else:
                kept[name] = stale
                degraded.append(Degraded(source=name, reason=reason, age_s=(now - stale.at).total_seconds()))
        missing |= {name: _part(each) for name, each in kept.items() if each.missing}
        return Collected(
            fragments=tuple(each for name in sorted(kept) for each in kept[name].fragments),
            ranks={name: declared.rank for name, declared in wanted.items()},
            asked=tuple(sorted(wanted)),
            cached=cached,
            missing=missing,
            degraded=tuple(sorted(degraded, key=lambda each: each.source)),
        )

    async def _known(
        self,
        wanted: Mapping[str, Declared],
        concept: Concept,
        *,
        now: datetime,
        within_s: float,
        missing: dict[str, str],
    ) -> dict[str, Kept]:
        """The replies that are fresh, of this process or of others; what others recorded is heard."""
        if all(source.declared.is_live for source in self._sources.values()):
            return {}
        loop = asyncio.get_running_loop()
        until = loop.time() + within_s
        if not self._of_store.allows():
            missing["log"] = self._of_store.told()
            return await self._unchanged(self._fresh(wanted, concept, now=now), concept, within_s=within_s)
        try:
            problem = await self._changes.look(within_s)
            found = self._fresh(wanted, concept, now=now)
            if problem is None and any(name not in found and not each.is_live for name, each in wanted.items()):
                problem = await self._loaded(wanted, concept, within_s=until - loop.time())
                found = self._fresh(wanted, concept, now=now)
        except asyncio.CancelledError:
            self._of_store.left()
            raise
        if problem is None:
            self._of_store.succeeded()
        else:
            self._of_store.failed(problem)
            missing["log"] = problem
        return await self._unchanged(found, concept, within_s=until - loop.time())

    def _fresh(self, wanted: Mapping[str, Declared], concept: Concept, *, now: datetime) -> dict[str, Kept]:
        found = {}
        for name, declared in wanted.items():
            kept = None if declared.is_live else self._replies.kept(declared, concept)
            if kept is not None and self._replies.is_fresh(kept, declared, concept, now=now):
                found[name] = kept
        return found

    async def _unchanged(self, found: dict[str, Kept], concept: Concept, *, within_s: float) -> dict[str, Kept]:
        """Those of them whose source would read the same. One that does not say so in time is asked."""
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
        return {name: kept for name, kept in found.items() if name not in looks or name in same}

    async def _loaded(self, wanted: Mapping[str, Declared], concept: Concept, *, within_s: float) -> str | None:
        try:
            async with asyncio.timeout(max(0.0, within_s)):
                await self._replies.load(wanted, concept)
        except TimeoutError:
            return "the store was too slow to say what others were told"
        except MicaError as error:
            return str(error)
        return None

    async def _landed(
        self,
        waiting: Mapping[str, Flight],
        wanted: Mapping[str, Declared],
        *,
        began: float,
        window_s: float,
    ) -> dict[str, str]:
        """Wait for each until its share of the time is over; those that were late, with the reason."""
        loop = asyncio.get_running_loop()
        late: dict[str, str] = {}
        for flight in waiting.values():
            flight.join(window_s)
            self._late.discard(flight)
        try:
            for share in sorted({wanted[name].time_share for name in waiting}):
                pending = [each.task for name, each in waiting.items() if not each.task.done() and name not in late]
                if not pending:
                    break
                await asyncio.wait(pending, timeout=max(0.0, began + window_s * share - loop.time()))
                for name, flight in waiting.items():
                    if wanted[name].time_share == share and not flight.task.done():
                        late[name] = f"no answer within {window_s * share * 1000:.0f} ms"
        finally:
            for flight in waiting.values():
                flight.leave()
                self._let_go(flight)
        for name, reason in late.items():
            self._breakers[name].failed(reason)
        return late

    def _let_go(self, flight: Flight) -> None:
        """Let it go on though nobody waits for it, unless too many do."""
        if flight.waiting or flight.task.done():
            return
        if len(self._late) >= LATE_MAX:
            flight.task.cancel()
        else:
            self._late.add(flight)

    def _flight(self, declared: Declared, concept: Concept) -> Flight | None:
        """Who asks the same already; None where its time is over, or something happened since that its answer may not
        know of (K-24).
        """
        flight = self._flights.get((declared.name, concept))
        if flight is None or flight.is_expired or self._replies.is_changed(declared, concept, since=flight.tick):
            return None
        return flight

    def _ask_ahead(self, source: FragmentSource, concept: Concept) -> None:
        """Ask before the reply is too old, while nobody waits."""
        name = source.declared.name
        is_room = len(self._late) < LATE_MAX
        if self._flight(source.declared, concept) is None and is_room and self._breakers[name].allows():
            self._let_go(self._fly(source, concept))

    def _fly(self, source: FragmentSource, concept: Concept) -> Flight:
        name = source.declared.name
        flight = Flight(partial(self._ask, source, concept), tick=self._changes.tick)
        self._flights[name, concept] = flight
        self._flying.add(flight)

        def landed(task: asyncio.Task[Kept]) -> None:
            self._flying.discard(flight)
            self._late.discard(flight)
            if self._flights.get((name, concept)) is flight:
                del self._flights[name, concept]
            if not task.cancelled():
                task.exception()  # told to whoever waits

        flight.task.add_done_callback(landed)
        return flight

    async def _ask(self, source: FragmentSource, concept: Concept, flight: Flight) -> Kept:
        name = source.declared.name
        breaker = self._breakers[name]
        at, tick, position = self._clock(), self._changes.tick, self._changes.position
        generation = self._store.generation
        version_of = self._versions.get(name)
        try:
            async with flight.limited() if version_of or _may_be_late(source) else UNLIMITED:
                version = "" if version_of is None else await version_of(concept)  # before: what changes then is old
                said = await source.fragments(concept, now=at)
            checked = await self._checked(source.declared, said, flight)
        except TimeoutError as error:
            reason = f"no answer within {flight.limit_s:.0f} s" if flight.is_expired else _told(error)
            breaker.failed(reason)
            raise SourceFailed(name, reason) from error
        except asyncio.CancelledError:
            if (task := asyncio.current_task()) is not None and task.cancelling():
                breaker.left()  # by us: that says nothing of it
            else:
                breaker.failed("it was cancelled")
            raise
        except (Exception, SystemExit) as error:
            breaker.failed(_told(error))
            raise SourceFailed(name, _told(error)) from error
        breaker.succeeded()
        kept = Kept(
            fragments=checked.fragments,
            missing=(_harmless(said.missing) if isinstance(said, Partial) else "") or checked.cut,
            at=at,
            tick=tick,
            position=position,
            generation=generation,
            characters=checked.characters,
            version=version,
        )
        if not source.declared.is_live:
            self._replies.keep(source.declared, concept, kept)
        return kept

    async def _checked(self, declared: Declared, said: object, flight: Flight) -> Checked:
        """What a source said, if it is what sources say. Raises SourceFailed, or what its own iterator raises.

        Raises TimeoutError when that takes too long: a source that limits itself limits nothing but its answering.
        """
        checked = None
        if type(said) in (list, tuple, Partial) and len(said) <= FRAGMENTS_MAX:  # type: ignore[arg-type]  # see before
            checked = _checked(declared, said)
            if checked.characters <= CHARACTERS_AT_ONCE:
                return _redacted(checked)
        async with flight.limited():  # it might block, or take long
            return await self._pool.run(declared.name, lambda: _redacted(checked or _checked(declared, said)))

    async def close(self) -> None:
        """Stop waiting for anybody. The sources are their owner's to close."""
        asking = [flight.task for flight in self._flying]
        for task in asking:
            task.cancel()
        if asking:
            await asyncio.wait(asking, timeout=PATIENCE_S)
        self._pool.close()


def without_own(collected: Collected, reason: str) -> Collected:
    """The same without what rests on events of this log, and why its sources are missing."""
    own = {each.source for each in collected.fragments if each.sources}
    return msgspec.structs.replace(
        collected,
        fragments=tuple(each for each in collected.fragments if each.source not in own),
        missing=collected.missing | dict.fromkeys(own, reason),
    )


def _part(kept: Kept) -> str:
    """What an answer lacks, said so that nobody takes it for none."""
    return f"{IN_PART}{kept.missing}" if kept.fragments else kept.missing


def _wanted(sources: Mapping[str, FragmentSource], concept: Concept) -> dict[str, Declared]:
    """The sources that may know of a concept, without those of ours that are known to have nothing at all."""
    return {
        name: source.declared
        for name, source in sources.items()
        if source.declared.knows(concept) and getattr(source, "are_any", None) is not False
    }


class Checked(NamedTuple):
    """What of a source's answer is used, and why not all of it is."""

    fragments: tuple[Fragment, ...]
    characters: int
    cut: str


def _may_be_late(source: FragmentSource) -> bool:
    """Whether a source may go on when nobody waits any more: those that are declared have a limit of their own."""
    return not getattr(source, "limit_s", math.inf) <= PATIENCE_S


def _checked(declared: Declared, said: object) -> Checked:
    """The first fragments, and why the others are not used."""
    fragments: list[Fragment] = []
    cut, characters = "", 0
    for each in islice(said, declared.fragments_max + 1):  # type: ignore[call-overload]  # what it raises is told
        if not isinstance(each, Fragment):
            raise SourceFailed(declared.name, f"it gave a {type(each).__name__}, not a fragment")
        size = each.characters
        if len(fragments) == declared.fragments_max:
            cut = f"more than {declared.fragments_max} fragments; the first are used"
        elif characters + size > declared.characters_max:
            cut = f"more than {declared.characters_max:,} characters; the first {len(fragments)} fragments are used"
        if cut:
            break
        characters += size
        fragments.append(each if each.source == declared.name else msgspec.structs.replace(each, source=declared.name))
    return Checked(tuple(fragments), characters, cut)


def _redacted(checked: Checked) -> Checked:
    """The same without secrets: they go into a cache, and before an agent."""
    texts = "\n".join([f"{each.key}\n{each.text}\n{each.locator}\n{each.value}" for each in checked.fragments])
    if redact(texts) == texts:  # nearly always, and at once for all of them
        return checked
    fragments = [
        msgspec.structs.replace(each, **{name: redact(text) for name, text in _texts(each).items()})
        for each in checked.fragments
    ]
    return checked._replace(fragments=tuple(fragments), characters=sum(each.characters for each in fragments))


def _texts(fragment: Fragment) -> dict[str, str]:
    """All that somebody wrote, whether a reader is shown it or finds it in a receipt."""
    value = {"value": fragment.value} if isinstance(fragment.value, str) else {}
    return {"key": fragment.key, "text": fragment.text, "locator": fragment.locator, **value}


def _told(error: BaseException) -> str:
    if isinstance(error, SourceFailed):
        return _harmless(error.reason)
    return _harmless(str(error) if isinstance(error, MicaError) else f"{type(error).__name__}: {error}")


def _harmless(reason: str) -> str:
    """Why something is missing, without secrets and in UTF-8: drivers say what they were given."""
    said = reason[: 4 * REASON_CHARACTERS_MAX].encode("utf-8", "replace").decode()
    return redact(said)[:REASON_CHARACTERS_MAX]


def _result(look: asyncio.Future[str]) -> str | None:
    """What was found; None where nothing was, or not yet."""
    return look.result() if look.done() and not look.cancelled() and look.exception() is None else None


def _error(task: asyncio.Task[Kept]) -> str | None:
    """Why an answer that was waited for is none."""
    if task.cancelled():
        return "it was cancelled"
    error = task.exception()
    return None if error is None else _told(error)

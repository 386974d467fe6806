"""Read events that are still in segments (the files of the journal) and not yet in the store.

So a reader need not wait until a long backlog is stored. `Hot` reads only the segments; `LogWithPending` merges them
with a store. The segments are read before the store. An event that is stored in between is in both results, and the
duplicate is recognized by its id. Purges in the store also apply to events in segments.
"""

from __future__ import annotations

import asyncio
import heapq
import math
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import cached_property
from itertools import compress
from operator import attrgetter
from typing import NamedTuple, Protocol

from mica.errors import InvalidEvent
from mica.events.fold import JournalFold
from mica.events.segment import (
    ERROR,
    ORIGIN_MASK,
    ORIGIN_SHIFT,
    READ_FRAMES,
    UNREADABLE,
    Segment,
    SegmentFrame,
    Stretch,
)
from mica.model.event import (
    ORIGINS,
    Context,
    Event,
    EventId,
    EventQuery,
    WriterId,
    microseconds,
    name_pattern,
    split_id,
)
from mica.store.protocol import PurgeLog
from mica.store.purges import PurgeFilter
from mica.store.query import matcher

STORED_FIRST = 5_000  # up to this many events are stored before a read, in some 10 ms; more are read from segments
NEAR_NS = 2**58  # February 1979: a smaller value may be in microseconds, for times outside of 64-bit nanoseconds
SPARSE = 8  # if fewer than one in 8 frames of a chunk is selected, the selected frames are decoded one by one


class ReadLog(Protocol):
    """The read methods of `EventLog` that do not use positions."""

    async def get(self, identifier: EventId) -> Event | None: ...
    async def query(self, query: EventQuery) -> list[Event]: ...


class ReadChains(Protocol):
    """The read methods of `ChainIndex`."""

    async def chain(self, correlation: str) -> list[Event]: ...
    async def ancestors(self, identifier: EventId) -> list[Event]: ...
    async def descendants(self, identifier: EventId, *, depth: int | None = None) -> list[Event]: ...


class Reads(Protocol):
    """A reader of the log and its chains: a `Store` alone, or a store together with events in segments."""

    @property
    def log(self) -> ReadLog: ...
    @property
    def chains(self) -> ReadChains: ...


class HotMatch(NamedTuple):
    """An event in a segment, not fully decoded yet. Sorts by time, then by the order in which events were written."""

    at: int  # microseconds since 1970
    order: int  # increases in the order of writing, across segments
    segment: Segment
    place: int  # index of the frame in the segment
    frame: SegmentFrame

    @property
    def event(self) -> Event:
        return self.segment.event(self.place, self.frame)

    @property
    def is_recalled(self) -> bool:
        return ORIGINS[self.frame.flags >> ORIGIN_SHIFT & ORIGIN_MASK] == "recalled"


class FrameChunk:
    """Consecutive frames (encoded events and contexts) of a segment.

    `matches` yields the events that have one of the `selected` contexts.
    """

    def __init__(self, segment: Segment, order: int, first: int, scopes: list[int], selected: set[int] | None) -> None:
        self._segment = segment
        self._order = order  # of the segment's first frame
        self._first = first  # the index of the first frame of this chunk
        self._scopes = scopes  # the context number of each frame; 0 for a frame that is a context
        self._selected = selected  # numbers of contexts; None for all

    @cached_property
    def times(self) -> tuple[float, float]:
        """The times of the earliest and latest event in this chunk, in microseconds since 1970.

        If they are not known, the range is infinite. If the chunk has no event, the first time is after the second.
        """
        try:
            times = self._segment.times(self._first, self._first + len(self._scopes))
        except UNREADABLE:
            return -math.inf, math.inf
        of_events = list(compress(times, self._scopes))
        if not of_events:
            return math.inf, -math.inf
        earliest = min(of_events)
        if earliest < NEAR_NS:
            return -math.inf, math.inf  # rare: the caller checks each event
        return earliest // 1_000, max(of_events) // 1_000

    def matches(self) -> Iterator[HotMatch]:
        """The events whose context is selected."""
        frames = self._frames()
        for place, (scope, frame) in enumerate(zip(self._scopes, frames, strict=True), self._first):
            if frame is not None and scope and (self._selected is None or scope in self._selected):
                yield HotMatch(frame.microseconds, self._order + place, self._segment, place, frame)

    def _frames(self) -> Sequence[SegmentFrame | None]:
        """The decoded frames. A damaged frame is replaced by None; it is reported when the events are stored."""
        last = self._first + len(self._scopes)
        try:
            return self._segment.frames(self._first, last)
        except UNREADABLE:
            return [self._frame(index) for index in range(self._first, last)]

    def _frame(self, index: int) -> SegmentFrame | None:
        try:
            [frame] = self._segment.frames(index, index + 1)
            if self._scopes[index - self._first]:
                self._segment.event(index, frame)
        except UNREADABLE:
            return None
        return frame


class Hot:
    """The events in the given segment ranges, with purges applied. Thread-safe."""

    def __init__(self, stretches: Sequence[Stretch], purge_filter: PurgeFilter | None = None) -> None:
        self._stretches = list(stretches)
        self._purge_filter = purge_filter or PurgeFilter()
        self._purged_until = -math.inf if self._purge_filter.latest is None else microseconds(self._purge_filter.latest)

    @property
    def count(self) -> int:
        """The number of events; frames of contexts are not counted."""
        return sum(last - first - segment.scopes(first, last).count(0) for segment, first, last in self._stretches)

    def event(self, identifier: EventId) -> Event | None:
        """The event with this id; None if it is not in these segments or is damaged."""
        writer, sequence = split_id(identifier)
        for segment, first, last in self._stretches:
            index = sequence - segment.base
            if segment.writer == writer and first <= index < last:
                with suppress(*UNREADABLE):  # damaged, which the fold reports
                    return next(map(self._purge_filter.apply, segment.read(index, index + 1)), None)
        return None

    def events(self, query: EventQuery) -> list[Event]:
        """The matching events, oldest first. If they exceed the query's limit, only the latest are returned."""
        filters_context = not query.session is query.agent is query.user is None
        fits_head, fits = _head_matcher(query), matcher(query)
        limit = query.limit
        since = -math.inf if query.since is None else microseconds(query.since)
        until = math.inf if query.until is None else microseconds(query.until)
        is_dated = query.since is not None or query.until is not None
        checks_recalled = self._purge_filter.checks_recalled
        latest: list[HotMatch] = []  # a heap with the oldest match first
        for chunk in self._chunks(_context_matcher(query) if filters_context else None):
            is_full = limit is not None and len(latest) >= limit
            if is_full and not latest:
                break
            if is_full and chunk.times[1] < latest[0].at:
                continue  # true for most chunks, because the latest are read first
            if is_dated and (chunk.times[1] < since or chunk.times[0] >= until):
                continue
            for match in chunk.matches():
                if match.at <= self._purged_until or (checks_recalled and match.is_recalled):
                    # It may have been purged: match its tombstone instead.
                    is_match = fits(self._event(match))
                else:
                    is_match = fits_head(match) and (query.text is None or fits(match.event))
                if not is_match:
                    continue
                heapq.heappush(latest, match)
                if limit is not None and len(latest) > limit:
                    heapq.heappop(latest)
        return [self._event(match) for match in sorted(latest)]

    def _event(self, match: HotMatch) -> Event:
        return self._purge_filter.apply(match.event)

    def chain(self, correlation: str) -> list[Event]:
        """The events that have this correlation or whose root has this id, oldest first."""
        correlated = self._all(lambda context: context.correlation == correlation)
        matches = {each.order: each for each in correlated if self._event(each).context.correlation == correlation}
        with suppress(InvalidEvent):  # no root has this id
            root = split_id(correlation)
            matches |= {each.order: each for each in self._all() if _root_of(each) == root}
        return [self._event(each) for each in sorted(matches.values())]

    def below(self, parents: Iterable[EventId]) -> list[Event]:
        """The descendants of these events, in any order, found by following parents inside the segments."""
        children: dict[tuple[WriterId, int], list[HotMatch]] = {}
        for match in self._all():
            if line := match.frame.lineage if match.frame.lineage.depth else None:
                children.setdefault((line.parent_writer or match.segment.writer, line.parent), []).append(match)
        waiting = [split_id(parent) for parent in parents]
        below = []
        while waiting:
            for match in children.pop(waiting.pop(), ()):
                below.append(self._event(match))
                waiting.append((match.segment.writer, match.segment.base + match.place))
        return below

    def _all(self, fits_context: Callable[[Context], bool] | None = None) -> Iterator[HotMatch]:
        for chunk in self._chunks(fits_context):
            yield from chunk.matches()

    def _chunks(self, fits_context: Callable[[Context], bool] | None) -> Iterator[FrameChunk]:
        """Yield the chunks of the segments, the latest first.

        With `fits_context`, only the events whose context it accepts are selected in each chunk; with None, all are.
        """
        order = 0
        for segment, first, last in reversed(self._stretches):
            order -= segment.capacity
            scopes = segment.scopes(first, last)
            selected = None
            if fits_context is not None:
                segment.read_contexts(last)
                selected = {number for number, context in list(segment.contexts.items()) if fits_context(context)}
            for start in range((len(scopes) - 1) // READ_FRAMES * READ_FRAMES, -1, -READ_FRAMES):
                some = scopes[start : start + READ_FRAMES]
                if selected is not None and sum(scope in selected for scope in some) * SPARSE < len(some):
                    for place, scope in enumerate(some, first + start):
                        if scope in selected:
                            yield FrameChunk(segment, order, place, [scope], selected)
                else:
                    yield FrameChunk(segment, order, first + start, some, selected)


def _context_matcher(query: EventQuery) -> Callable[[Context], bool]:
    def fits(context: Context) -> bool:
        return (
            (query.session is None or context.session == query.session)
            and (query.agent is None or context.agent == query.agent)
            and (query.user is None or context.user == query.user)
        )

    return fits


def _head_matcher(query: EventQuery) -> Callable[[HotMatch], bool]:
    """A predicate that checks a frame against the time, error flag and names of a query, not its context or text."""
    patterns = [name_pattern(pattern) for pattern in query.names]
    since = None if query.since is None else microseconds(query.since)
    until = None if query.until is None else microseconds(query.until)

    def fits(match: HotMatch) -> bool:
        frame = match.frame
        return (
            (since is None or match.at >= since)
            and (until is None or match.at < until)
            and (query.errors is None or bool(frame.flags & ERROR) == query.errors)
            and (not patterns or any(pattern.fullmatch(str(frame.name)) for pattern in patterns))
        )

    return fits


def _root_of(match: HotMatch) -> tuple[WriterId, int]:
    line = match.frame.lineage
    if line.depth == 0:
        return match.segment.writer, match.segment.base + match.place
    return line.root_writer or match.segment.writer, line.root


class LogWithPending:
    """Reads a store and the segments as one log: stored events, and events in segments that are not stored yet."""

    def __init__(self, store: Reads, hot: Hot) -> None:
        self.log = PendingLog(store.log, hot)
        self.chains = PendingChains(store.chains, self.log, hot)


class PendingLog:
    """The log of a store merged with the events in segments that are not stored yet."""

    def __init__(self, stored: ReadLog, hot: Hot) -> None:
        self._stored = stored
        self._hot = hot

    async def get(self, identifier: EventId) -> Event | None:
        return await self._stored.get(identifier) or await asyncio.to_thread(self._hot.event, identifier)

    async def query(self, query: EventQuery) -> list[Event]:
        waiting = await asyncio.to_thread(self._hot.events, query)
        events = _merged(await self._stored.query(query), waiting)
        return events if query.limit is None else events[max(0, len(events) - query.limit) :]


class PendingChains:
    """The chains of a store merged with the events in segments that are not stored yet."""

    def __init__(self, stored: ReadChains, log: PendingLog, hot: Hot) -> None:
        self._stored = stored
        self._log = log
        self._hot = hot

    async def chain(self, correlation: str) -> list[Event]:
        waiting = await asyncio.to_thread(self._hot.chain, correlation)
        return _merged(await self._stored.chain(correlation), waiting)

    async def ancestors(self, identifier: EventId) -> list[Event]:
        above: dict[EventId, Event] = {}
        event = await self._log.get(identifier)
        while event is not None:
            line = [event, *await self._stored.ancestors(event.id)]
            above |= {each.id: each for each in line}
            parent = line[-1].parent_id
            event = await self._log.get(parent) if parent is not None and parent not in above else None
        above.pop(identifier, None)
        return sorted(above.values(), key=lambda each: -each.depth)

    async def descendants(self, identifier: EventId, *, depth: int | None = None) -> list[Event]:
        event = await self._log.get(identifier)
        if event is None:  # other events may still name it as their parent
            stored = await self._stored.descendants(identifier)
            waiting = await asyncio.to_thread(self._hot.below, {identifier, *(each.id for each in stored)})
            return _merged(stored, waiting)
        children: dict[EventId | None, list[Event]] = {}
        for each in await self.chain(event.root_id):
            children.setdefault(each.parent_id, []).append(each)
        events: list[Event] = []
        parents = [identifier]
        while parents:
            events += (below := children.pop(parents.pop(), []))
            parents += [each.id for each in below]
        return _in_order(each for each in events if depth is None or each.depth <= event.depth + depth)


async def readable(
    stored: Reads, purges: PurgeLog, folding: JournalFold, *, settle: Callable[[], Awaitable[bool]]
) -> Reads:
    """A reader of every event emitted before the call.

    If only a few events are not stored yet, they are stored first with `settle`, and the store itself is returned. If
    there are many, or if the store is busy, the result reads both the store and the segments.
    """
    waiting = await folding.waiting()
    if sum(last - first for _, first, last in waiting) <= STORED_FIRST and await settle():
        return stored
    folding.wake()
    return LogWithPending(stored, Hot(waiting, PurgeFilter(await purges.all())))


def _merged(stored: list[Event], waiting: list[Event]) -> list[Event]:
    known = {event.id for event in stored}
    return _in_order([*stored, *(event for event in waiting if event.id not in known)])


def _in_order(events: Iterable[Event]) -> list[Event]:
    return sorted(events, key=attrgetter("sort_key"))

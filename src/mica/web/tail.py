"""Live events: new events of a space are read from its log once, for all listeners, each at its own position.

The tail of a space has a buffer of its latest events. A listener near the end reads from the buffer, and a line is
encoded once for all listeners with the same fields. A listener that is further behind reads the log. Each listener
remembers the last position it received and resumes there after any interruption, so it misses and repeats nothing.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from typing import TypeAlias

from mica.errors import StoreUnavailable
from mica.events.follower import Bell
from mica.format.documents import Fields, event_line
from mica.memory import Memory
from mica.model.event import Event, EventQuery
from mica.store.purges import PURGE
from mica.store.query import matcher

BUFFERED_EVENTS = 5_000  # of a space; a listener further behind reads the log, which takes a few milliseconds
BUFFERED_BYTES = 16 * 2**20  # of these events; beyond it, the older half is read from the log again
ENCODED_MAX = 500  # batches in the cache of encoded lines
BATCH_EVENTS = 500  # sent to a listener at once
QUIET_S = 15.0  # between the empty batches that keep an idle connection open
STOPPING = "this server is stopping; connect again when it is back"


Wrap: TypeAlias = Callable[[Event, bytes], bytes]  # makes the line to send from an event and its fields as JSON


class LogTail:
    """A follower of one space's log, with a buffer of the latest events, shared by all listeners."""

    def __init__(self, memory: Memory, *, quiet_s: float = QUIET_S) -> None:
        self._memory = memory
        self._quiet_s = quiet_s
        self._events: list[Event] = []  # in order of position
        self._positions: list[int] = []
        self._bytes = 0
        self._start = 0  # the buffer holds all events after this position, up to `_last`
        self._last = 0
        self._bell = Bell()
        self._is_ringing = False
        self._purges = 0  # purges seen so far
        self._heartbeats = 0  # empty batches sent so far
        self._encoded: OrderedDict[tuple[object, ...], tuple[int, bytes]] = OrderedDict()
        self._task: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._starting = asyncio.Lock()
        self._is_closed = False
        self.listeners = 0

    async def begin(self, after: int | None) -> int:
        """Return the position after which a listener begins: `after`, but not beyond the end of the log.

        If `after` is None, a listener begins at the end of the log.
        """
        last = await self._memory.events.position()
        return last if after is None else min(after, last)

    async def batches(self, query: EventQuery, *, after: int) -> AsyncGenerator[tuple[int, list[Event]], None]:
        """Yield matching events after a position, in commit order, in batches.

        Each result is a pair: the position up to which the log was read, and the events. While no events arrive, an
        empty batch is yielded every QUIET_S seconds. Raises StoreUnavailable when the memory is closed.
        """
        fits = matcher(query)
        async with aclosing(self._read(after)) as stream:
            async for events in stream:
                after = events[-1].position or after if events else after
                chosen = [event for event in events if fits(event)]
                if chosen or not events:
                    yield after, chosen

    async def lines(
        self, query: EventQuery, *, after: int, fields: Fields, wrap: Wrap
    ) -> AsyncGenerator[tuple[int, bytes], None]:
        """Yield the same pairs as `batches`, but with the lines of the events as bytes; empty for an empty batch.

        `wrap` makes the line of an event. Listeners with equal `query` and `fields` share the encoded lines, so they
        must also pass the same `wrap`.
        """
        fits = matcher(query)
        async with aclosing(self._read(after)) as stream:
            async for events in stream:
                if not events:
                    yield after, b""
                    continue
                reached = events[-1].position or after
                key = (query, fields, after, reached)
                if (made := self._encoded.get(key)) is None:
                    text = b"".join([wrap(event, event_line(event, fields)) for event in events if fits(event)])
                    made = self._encoded[key] = reached, text
                    if len(self._encoded) > ENCODED_MAX:
                        self._encoded.popitem(last=False)
                after = reached
                if made[1]:
                    yield made

    async def _read(self, after: int) -> AsyncGenerator[list[Event], None]:
        """Yield all events after a position, in batches; while none arrive, an empty batch every QUIET_S seconds."""
        await self._begin()
        self.listeners += 1
        heartbeats = self._heartbeats
        try:
            while True:
                ring, purges = self._bell.next, self._purges
                if self._is_closed:
                    raise StoreUnavailable(STOPPING)
                events = await self._after(after)
                if purges != self._purges:
                    continue  # these events may have been purged meanwhile
                if events:
                    after = events[-1].position or after
                    yield events
                    continue
                if self._task is not None and self._task.done():
                    self._task.result()
                    raise StoreUnavailable("the stream of this space has ended; connect again")
                if heartbeats != self._heartbeats:
                    heartbeats = self._heartbeats
                    yield []
                    continue
                await ring.wait()
        finally:
            self.listeners -= 1

    async def close(self) -> None:
        """Stop following. Listeners get StoreUnavailable instead of their next batch."""
        self._is_closed = True
        self._bell.ring()
        if self._timer is not None:
            self._timer.cancel()
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    def _beat(self) -> None:
        """Wake idle listeners, so that each yields an empty batch, and schedule the next call. One timer serves all."""
        self._heartbeats += 1
        self._bell.ring()
        self._timer = asyncio.get_running_loop().call_later(self._quiet_s, self._beat)

    async def _begin(self) -> None:
        async with self._starting:
            if self._is_closed:
                raise StoreUnavailable(STOPPING)
            if self._task is None or self._task.done():
                self._events, self._positions, self._bytes = [], [], 0
                self._start = self._last = await self._memory.events.position()
                if self._is_closed:  # closed meanwhile: a task started now would never be cancelled
                    raise StoreUnavailable(STOPPING)
                self._task = asyncio.create_task(self._follow_log(), name="mica-tail")
            if self._timer is None:
                self._timer = asyncio.get_running_loop().call_later(self._quiet_s, self._beat)

    async def _follow_log(self) -> None:
        async for event in self._memory.events.follow(EventQuery(), after=self._last):
            self._events.append(event)
            self._positions.append(event.position or 0)
            self._bytes += len(event.body)
            self._last = event.position or self._last
            if event.name == PURGE:
                self._purges += 1
                self._drop_oldest(len(self._events))  # the log may not have them any more
                self._encoded.clear()
            elif len(self._events) > 2 * BUFFERED_EVENTS or self._bytes > BUFFERED_BYTES:
                self._drop_oldest((len(self._events) + 1) // 2)
            if not self._is_ringing:  # once for all events of one batch
                self._is_ringing = True
                asyncio.get_running_loop().call_soon(self._ring)

    def _drop_oldest(self, count: int) -> None:
        self._start = self._positions[count - 1]
        del self._events[:count], self._positions[:count]
        self._bytes = sum(len(event.body) for event in self._events)

    def _ring(self) -> None:
        self._is_ringing = False
        self._bell.ring()

    async def _after(self, position: int) -> list[Event]:
        if position >= self._start:
            first = bisect_right(self._positions, position)
            return self._events[first : first + BATCH_EVENTS]
        events: list[Event] = []
        async with aclosing(self._memory.events.log(after=position)) as log:
            async for event in log:
                events.append(event)
                if len(events) == BATCH_EVENTS:
                    break
        return events


class Tails:
    """One `LogTail` for each space that has listeners."""

    def __init__(self) -> None:
        self._tails: dict[str, LogTail] = {}
        self._is_closed = False

    def of(self, memory: Memory) -> LogTail:
        """Return the tail of a space, created if needed. Raises StoreUnavailable if the server is shutting down."""
        if self._is_closed:
            raise StoreUnavailable(STOPPING)
        return self._tails.setdefault(memory.space, LogTail(memory))

    async def leave(self, memory: Memory) -> None:
        """Stop following a space whose memory is about to be closed."""
        if (tail := self._tails.pop(memory.space, None)) is not None:
            await tail.close()

    @property
    def listeners(self) -> int:
        return sum(tail.listeners for tail in self._tails.values())

    async def close(self) -> None:
        """Close every tail and refuse new listeners. May be called again."""
        self._is_closed = True
        for tail in self._tails.values():
            await tail.close()
        self._tails.clear()

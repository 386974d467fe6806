"""Events as they happen: one reader of the log for all who listen, and each of them at its own position.

A tail keeps the latest events of a space. Whoever is near its end is served from it, encoded once for all who want the
same fields; whoever is further behind reads the log. A listener remembers one number, the last position it was sent, so
that it goes on there after any interruption: nothing is missed and nothing comes twice.
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

KEPT_EVENTS = 5_000  # of a space: who is further behind reads the log, which costs a few milliseconds
KEPT_BYTES = 16 * 2**20  # of them; large payloads are read again rather than kept
ENCODED_MAX = 500  # texts that are kept for others who ask the same
BATCH_EVENTS = 500  # handed to a listener at once
QUIET_S = 15.0  # then a listener is told that nothing happened, so that it knows the line is alive
STOPPING = "this server is stopping; connect again when it is back"


Wrap: TypeAlias = Callable[[Event, bytes], bytes]  # an event and its fields as JSON, as they are sent


class Tail:
    """The end of one space's log, followed once, for everybody."""

    def __init__(self, memory: Memory, *, quiet_s: float = QUIET_S) -> None:
        self._memory = memory
        self._quiet_s = quiet_s
        self._events: list[Event] = []  # in order of position
        self._positions: list[int] = []
        self._bytes = 0
        self._start = 0  # everything after this position and up to `_last` is kept
        self._last = 0
        self._bell = Bell()
        self._is_ringing = False
        self._purges = 0  # that were seen
        self._quiet = 0  # how often everybody was told that the line is alive
        self._encoded: OrderedDict[tuple[object, ...], tuple[int, bytes]] = OrderedDict()
        self._task: asyncio.Task[None] | None = None
        self._pulse: asyncio.TimerHandle | None = None
        self._starting = asyncio.Lock()
        self._is_closed = False
        self.listeners = 0

    async def begin(self, after: int | None) -> int:
        """Where a listener begins: after a position or, without one or with one beyond it, at the end of the log."""
        last = await self._memory.position()
        return last if after is None else min(after, last)

    async def batches(self, query: EventQuery, *, after: int) -> AsyncGenerator[tuple[int, list[Event]], None]:
        """The events after a position that fit, in commit order, some at a time, each time with the position reached.

        Empty now and then, to tell that the line is alive. Raises StoreUnavailable when the memory is closed.
        """
        fits = matcher(query)
        async with aclosing(self._found(after)) as stream:
            async for found in stream:
                after = found[-1].position or after if found else after
                chosen = [event for event in found if fits(event)]
                if chosen or not found:
                    yield after, chosen

    async def lines(
        self, query: EventQuery, *, after: int, fields: Fields, wrap: Wrap
    ) -> AsyncGenerator[tuple[int, bytes], None]:
        """The same as they are sent: made once for all who ask the same and are at the same position."""
        fits = matcher(query)
        async with aclosing(self._found(after)) as stream:
            async for found in stream:
                if not found:
                    yield after, b""
                    continue
                reached = found[-1].position or after
                key = (query, fields, after, reached)
                if (made := self._encoded.get(key)) is None:
                    text = b"".join([wrap(event, event_line(event, fields)) for event in found if fits(event)])
                    made = self._encoded[key] = reached, text
                    if len(self._encoded) > ENCODED_MAX:
                        self._encoded.popitem(last=False)
                after = reached
                if made[1]:
                    yield made

    async def _found(self, after: int) -> AsyncGenerator[list[Event], None]:
        """What comes after a position, some at a time; nothing where it was quiet for a while."""
        await self._begin()
        self.listeners += 1
        told = self._quiet
        try:
            while True:
                ring, purges = self._bell.next, self._purges
                if self._is_closed:
                    raise StoreUnavailable(STOPPING)
                found = await self._after(after)
                if purges != self._purges:
                    continue  # what was read may have been purged meanwhile
                if found:
                    after = found[-1].position or after
                    yield found
                    continue
                if self._task is not None and self._task.done():
                    self._task.result()
                    raise StoreUnavailable("this space is not followed any more; connect again")
                if told != self._quiet:
                    told = self._quiet
                    yield []
                    continue
                await ring.wait()
        finally:
            self.listeners -= 1

    async def close(self) -> None:
        """Let everybody who listens go: their next batch is StoreUnavailable."""
        self._is_closed = True
        self._bell.ring()
        if self._pulse is not None:
            self._pulse.cancel()
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    def _beat(self) -> None:
        """Let all who listen tell that the line is alive; one clock for everybody."""
        self._quiet += 1
        self._bell.ring()
        self._pulse = asyncio.get_running_loop().call_later(self._quiet_s, self._beat)

    async def _begin(self) -> None:
        async with self._starting:
            if self._is_closed:
                raise StoreUnavailable(STOPPING)
            if self._task is None or self._task.done():
                self._events, self._positions, self._bytes = [], [], 0
                self._start = self._last = await self._memory.position()
                self._task = asyncio.create_task(self._keep_up(), name="mica-tail")
            if self._pulse is None:
                self._pulse = asyncio.get_running_loop().call_later(self._quiet_s, self._beat)

    async def _keep_up(self) -> None:
        async for event in self._memory.follow(EventQuery(), after=self._last):
            self._events.append(event)
            self._positions.append(event.position or 0)
            self._bytes += len(event.body)
            self._last = event.position or self._last
            if event.name == PURGE:
                self._purges += 1
                self._forget(len(self._events))  # what was kept may be gone from the log by now
                self._encoded.clear()
            elif len(self._events) > 2 * KEPT_EVENTS or self._bytes > KEPT_BYTES:
                self._forget((len(self._events) + 1) // 2)
            if not self._is_ringing:  # once for all that came together
                self._is_ringing = True
                asyncio.get_running_loop().call_soon(self._ring)

    def _forget(self, count: int) -> None:
        """Keep the later ones: those before are read from the log."""
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
        found: list[Event] = []
        async with aclosing(self._memory.log(after=position)) as log:
            async for event in log:
                found.append(event)
                if len(found) == BATCH_EVENTS:
                    break
        return found


class Tails:
    """A tail for each space that somebody listens to."""

    def __init__(self) -> None:
        self._tails: dict[str, Tail] = {}
        self._is_closed = False

    def of(self, memory: Memory) -> Tail:
        """The tail of a space. Raises StoreUnavailable when the server is stopping."""
        if self._is_closed:
            raise StoreUnavailable(STOPPING)
        return self._tails.setdefault(memory.space, Tail(memory))

    async def leave(self, memory: Memory) -> None:
        """Follow a space no more: it is about to be closed, and nobody listens."""
        if (tail := self._tails.pop(memory.space, None)) is not None:
            await tail.close()

    @property
    def listeners(self) -> int:
        return sum(tail.listeners for tail in self._tails.values())

    async def close(self) -> None:
        """Let everybody who listens go, and nobody begin. May be called again."""
        self._is_closed = True
        for tail in self._tails.values():
            await tail.close()
        self._tails.clear()

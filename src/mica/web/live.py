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
from contextlib import aclosing, suppress

from mica.errors import StoreUnavailable
from mica.inject.documents import Fields, event_line
from mica.memory import Memory
from mica.model import Event, EventQuery
from mica.select.follow import Bell
from mica.store.matching import matcher

KEPT_EVENTS = 5_000  # of a space: who is further behind reads the log, which costs a few milliseconds
KEPT_BYTES = 16 * 2**20  # of them; large payloads are read again rather than kept
ENCODED_MAX = 2_000  # lines that are kept for others who want the same fields
BATCH_EVENTS = 500  # handed to a listener at once
QUIET_S = 15.0  # then a listener is told that nothing happened, so that it knows the line is alive


class Tail:
    """The end of one space's log, followed once, for everybody."""

    def __init__(self, memory: Memory) -> None:
        self._memory = memory
        self._events: list[Event] = []  # in order of position
        self._positions: list[int] = []
        self._bytes = 0
        self._start = 0  # everything after this position and up to `_last` is kept
        self._last = 0
        self._bell = Bell()
        self._is_ringing = False
        self._encoded: OrderedDict[tuple[int, Fields], bytes] = OrderedDict()
        self._task: asyncio.Task[None] | None = None
        self._starting = asyncio.Lock()
        self.listeners = 0

    async def position(self) -> int:
        """The position of the last event of the log, from which a listener of later ones begins."""
        return await self._memory.position()

    async def batches(
        self, query: EventQuery, *, after: int, quiet_s: float = QUIET_S
    ) -> AsyncGenerator[tuple[int, list[Event]], None]:
        """The events after a position that fit, in commit order, some at a time, each time with the position reached.

        Empty when nothing happened for a while. Raises StoreUnavailable when the memory is closed.
        """
        await self._begin()
        fits = matcher(query)
        self.listeners += 1
        try:
            while True:
                ring = self._bell.next
                found = await self._after(after)
                if found:
                    after = found[-1].position or after
                    chosen = [event for event in found if fits(event)]
                    if chosen:
                        yield after, chosen
                    continue
                if self._task is not None and self._task.done():
                    self._task.result()
                    raise StoreUnavailable("this space is not followed any more; connect again")
                try:
                    async with asyncio.timeout(quiet_s):
                        await ring.wait()
                except TimeoutError:
                    yield after, []
        finally:
            self.listeners -= 1

    def line(self, event: Event, fields: Fields, wrap: Callable[[Event, bytes], bytes]) -> bytes:
        """An event as it is sent, made once for all who want it so."""
        key = (event.position or 0, fields)
        if (line := self._encoded.get(key)) is None:
            line = self._encoded[key] = wrap(event, event_line(event, fields))
            if len(self._encoded) > ENCODED_MAX:
                self._encoded.popitem(last=False)
        return line

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
            self._bell.ring()

    async def _begin(self) -> None:
        async with self._starting:
            if self._task is None or self._task.done():
                self._events, self._positions, self._bytes = [], [], 0
                self._start = self._last = await self._memory.position()
                self._task = asyncio.create_task(self._keep_up(), name="mica-tail")

    async def _keep_up(self) -> None:
        async for event in self._memory.follow(EventQuery(), after=self._last):
            self._events.append(event)
            self._positions.append(event.position or 0)
            self._bytes += len(event.body)
            self._last = event.position or self._last
            if len(self._events) > 2 * KEPT_EVENTS or self._bytes > KEPT_BYTES:
                self._forget()
            if not self._is_ringing:  # once for all that came together
                self._is_ringing = True
                asyncio.get_running_loop().call_soon(self._ring)

    def _forget(self) -> None:
        """Keep the later half: positions before it are read from the log."""
        half = (len(self._events) + 1) // 2
        self._start = self._positions[half - 1]
        del self._events[:half], self._positions[:half]
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

    def of(self, memory: Memory) -> Tail:
        return self._tails.setdefault(memory.space, Tail(memory))

    @property
    def listeners(self) -> int:
        return sum(tail.listeners for tail in self._tails.values())

    async def close(self) -> None:
        for tail in self._tails.values():
            with suppress(asyncio.CancelledError):
                await tail.close()
        self._tails.clear()

"""Events on their way to the store: accepted at once, written in batches, never dropped."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from itertools import islice

from mica.errors import Backlogged, DuplicateEvent, InvalidEvent, StoreError
from mica.model import Appended, Event

PENDING_MAX = 10_000  # about 5 MB of events; beyond that the store is stuck, so observing must fail loudly
BATCH_MAX = 1_000  # one transaction: a full sync is cheap beside it, and readers wait for milliseconds
RETRY_S = 1.0  # how long the background waits before it tries a store again that could not be reached


class Pending:
    """A bounded buffer in front of one append.

    Accepting may happen in any thread. An event leaves the buffer only after the append that holds it has returned; a
    cancelled or failed append is repeated, which the store counts as repeated, never as new.
    """

    def __init__(self, append: Callable[[Sequence[Event]], Awaitable[Appended]]) -> None:
        self._append = append
        self._events: deque[Event] = deque()
        self._refused: list[Exception] = []
        self._failure: StoreError | None = None
        self._flushing = asyncio.Lock()
        self._wanted = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._task = self._loop.create_task(self._keep_flushing(), name="mica-pending")

    def __len__(self) -> int:
        return len(self._events)

    def accept(self, event: Event) -> None:
        """Take an event. Raises Backlogged when too many wait already; then nothing was taken."""
        if len(self._events) >= PENDING_MAX:
            reason = f": {self._failure}" if self._failure else ""
            raise Backlogged(f"{PENDING_MAX:,} events wait for the store{reason}; event {event.name!r} was not taken")
        self._events.append(event)
        if len(self._events) == 1:
            self._loop.call_soon_threadsafe(self._wanted.set)

    async def flush(self) -> None:
        """Write everything that was accepted before. Raises what the store raised, or the reason of a refused event."""
        async with self._flushing:
            while self._events:
                batch = list(islice(self._events, BATCH_MAX))
                try:
                    await self._append(batch)
                except (DuplicateEvent, InvalidEvent):
                    await self._append_one(batch[0])
                    batch = batch[:1]
                for _ in batch:
                    self._events.popleft()
            self._failure = None
        if self._refused:
            raise self._refused.pop(0)

    async def close(self) -> None:
        """Write what is left and end. Raises as `flush` does; then nothing was given up and it can be tried again."""
        await self.flush()
        self._task.cancel()
        await asyncio.wait([self._task])

    async def _append_one(self, event: Event) -> None:
        try:
            await self._append([event])
        except (DuplicateEvent, InvalidEvent) as error:
            self._refused.append(error)  # told by the next flush; the events behind it must not wait for it

    async def _keep_flushing(self) -> None:
        while True:
            await self._wanted.wait()
            self._wanted.clear()
            try:
                await self.flush()
            except StoreError as error:
                self._failure = error
                await asyncio.sleep(RETRY_S)
                self._wanted.set()
            except (DuplicateEvent, InvalidEvent) as error:
                self._refused.insert(0, error)  # nobody awaited this flush: keep it for one who does
                if self._events:
                    self._wanted.set()

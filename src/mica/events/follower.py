"""Follow the log as it grows: every event after a position, in commit order, exactly once.

A follower remembers only the position of the last event that it has read, and reads later events from the store. So a
slow or interrupted follower continues from that position, and nothing must be registered or acknowledged. If the store
notifies of appends by other processes, the follower reads at once; otherwise it polls.
"""

from __future__ import annotations

import asyncio
import weakref
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress

from mica.errors import StoreUnavailable
from mica.model.event import Event, EventId, EventQuery
from mica.store.protocol import AppendNotices, ChainIndex, EventLog
from mica.store.query import matcher

BATCH_EVENTS = 1_000  # read at a time: about a megabyte, decoded in a few milliseconds
POLL_S = 0.1  # for events of other processes: no visible delay, and ten index lookups cost 1 ms per second
LISTEN_TIMEOUT_S = 5.0  # poll interval if the store notifies: covers a connection that died silently
RETRY_FIRST_S, RETRY_MAX_S = 0.1, 5.0  # a store restarts within seconds; a longer wait only delays the reader


class Bell:
    """Wakes all tasks that are waiting for the next append. A task that stops waiting need not unregister."""

    def __init__(self) -> None:
        self._next = asyncio.Event()

    @property
    def next(self) -> asyncio.Event:
        """The asyncio event that the next `ring` sets. Get it before reading the store, so that no append is missed."""
        return self._next

    def ring(self) -> None:
        rung, self._next = self._next, asyncio.Event()
        rung.set()


class Follower:
    """An endless iterator over every matching event after a position, as soon as the event is stored.

    The first call of `__anext__` calls `begin`, which returns the position to start after. A follower needs no cleanup,
    and `__anext__` may be called again after a cancellation. While the store is unavailable, the follower waits and
    retries. When `is_closed` returns True, the follower raises StoreUnavailable. `bell` rings after the appends
    of this process, and `notices` after those of other processes. `poll_s` is the poll interval if `notices` are not
    live.
    """

    def __init__(
        self,
        log: EventLog,
        query: EventQuery,
        *,
        notices: AppendNotices,
        begin: Callable[[], Awaitable[int]],
        bell: Bell,
        is_closed: Callable[[], bool],
        poll_s: float = POLL_S,
    ) -> None:
        self._log = log
        self._notices = notices
        self._fits = matcher(query)
        self._begin = begin
        self._bell = bell
        self._is_closed = is_closed
        self._poll_s = poll_s
        self._read: deque[Event] = deque()
        self._after: int | None = None  # the last position read; None before the start
        self._retry_s = RETRY_FIRST_S
        self._is_listening = False

    def __aiter__(self) -> Follower:
        return self

    async def __anext__(self) -> Event:
        while True:
            while self._read:
                event = self._read.popleft()
                if self._fits(event):
                    return event
            try:
                await self._read_more()
            except StoreUnavailable:
                if self._is_closed():
                    raise
                await asyncio.sleep(self._retry_s)
                self._retry_s = min(2 * self._retry_s, RETRY_MAX_S)

    async def _read_more(self) -> None:
        """Read the next batch of events. If there is none, wait for a notification or one poll interval."""
        if self._after is None:
            self._after = await self._begin()
        ring = self._bell.next
        events = await self._log.read(self._after, limit=BATCH_EVENTS)
        self._retry_s = RETRY_FIRST_S
        if events:
            self._read.extend(events)
            self._after = events[-1].position
        else:
            self._listen()
            with suppress(TimeoutError):
                async with asyncio.timeout(LISTEN_TIMEOUT_S if self._notices.is_live else self._poll_s):
                    await ring.wait()

    def _listen(self) -> None:
        """Listen for appends of other processes until this follower is garbage-collected."""
        if not self._is_listening:
            self._is_listening = True
            ending = weakref.finalize(self, self._notices.listen(self._bell.ring))
            ending.atexit = False


async def history(log: EventLog, query: EventQuery, *, after: int) -> AsyncIterator[Event]:
    """Yield every matching event after a position, in commit order, up to the end of the log."""
    fits = matcher(query)
    while events := await log.read(after, limit=BATCH_EVENTS):
        for event in events:
            after = event.position or after
            if fits(event):
                yield event


async def history_with_ancestors(
    log: EventLog, query: EventQuery, *, chains: ChainIndex, after: int
) -> AsyncIterator[Event]:
    """Like `history`, with all ancestors of these events, even those before the position. Reads the log twice."""
    known: set[EventId] = set()
    positions: set[int | None] = set()
    parents: set[EventId] = set()
    async for event in history(log, query, after=after):
        known.add(event.id)
        positions.add(event.position)
        if event.parent_id is not None:
            parents.add(event.parent_id)
    for parent in parents:
        if parent not in known and (event_above := await log.get(parent)) is not None:
            for event in (event_above, *await chains.ancestors(parent)):
                known.add(event.id)
                positions.add(event.position)
    async for event in history(log, EventQuery(), after=0):
        if event.position in positions:
            yield event

"""A cache of figures that are slow to compute, shared by all viewers."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

from mica.memory import Memory
from mica.model.event import EventId, EventQuery
from mica.store.purges import PURGE

T = TypeVar("T")

FRESH_S = 15.0  # figures over weeks do not change in this time
LASTING_S = 60.0  # recompute after this even if the log is unchanged: sessions end by the clock
ENTRIES_MAX = 64  # pairs of space and figure; the oldest is dropped


async def last_purge(memory: Memory) -> EventId | None:
    """Return the id of the latest purge of a space by any process. Cached figures from before it must be dropped."""
    purged = await memory.events.query(EventQuery(names=(PURGE,), limit=1))
    return purged[0].id if purged else None


class CountCache(Generic[T]):
    """Caches one value per space and name, computed by one task at a time.

    A value is used for `fresh_s` seconds, and for LASTING_S if no event was stored meanwhile. After a purge by any
    process it is not used any more, so purged content is never shown.
    """

    def __init__(self, *, fresh_s: float = FRESH_S, clock: Callable[[], float] = time.monotonic) -> None:
        self._fresh_s = fresh_s
        self._clock = clock
        self._entries: dict[object, tuple[float, tuple[int, object], T]] = {}
        self._locks: dict[object, asyncio.Lock] = {}

    async def get(self, memory: Memory, about: str, count: Callable[[], Awaitable[T]]) -> T:
        """Return the cached value named `about`. If there is none or it is too old, compute it with `count`."""
        key = (memory.space, about)
        async with self._locks.setdefault(key, asyncio.Lock()):
            state = (await memory.events.position(), await last_purge(memory))
            entry = self._entries.get(key)
            if entry is not None and self._is_current(entry[0], entry[1], state):
                return entry[2]
            value = await count()
            self._entries.pop(key, None)
            self._entries[key] = (self._clock(), state, value)
            while len(self._entries) > ENTRIES_MAX:
                self._entries.pop(next(iter(self._entries)))
            return value

    def _is_current(self, counted_s: float, then: tuple[int, object], now: tuple[int, object]) -> bool:
        age_s = self._clock() - counted_s
        return (then == now and age_s < LASTING_S) or (then[1] == now[1] and age_s < self._fresh_s)

    def clear(self) -> None:
        """Drop all values, because a page changed the data they were computed from."""
        self._entries.clear()

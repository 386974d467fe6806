"""What takes long to count, counted once for everybody who looks."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

from mica.memory import Memory
from mica.model.event import EventId, EventQuery
from mica.store.purges import PURGE

T = TypeVar("T")

FRESH_S = 15.0  # a figure over weeks does not change within it
LASTING_S = 60.0  # after which it is counted again though the log is the same: sessions are over by the clock
KEPT_MAX = 64  # spaces and questions; the oldest is counted again


async def last_purge(memory: Memory) -> EventId | None:
    """The latest purge of a space, by whichever process: what was counted before it counts no more."""
    purged = await memory.events.query(EventQuery(names=(PURGE,), limit=1))
    return purged[0].id if purged else None


class CountCache(Generic[T]):
    """Values of spaces, each counted by one task at a time, and again when a while has passed and the log has grown.

    A purge, by whichever process, ends them at once: nothing purged is shown from here.
    """

    def __init__(self, *, fresh_s: float = FRESH_S, clock: Callable[[], float] = time.monotonic) -> None:
        self._fresh_s = fresh_s
        self._clock = clock
        self._found: dict[object, tuple[float, tuple[int, object], T]] = {}
        self._locks: dict[object, asyncio.Lock] = {}

    async def get(self, memory: Memory, about: str, count: Callable[[], Awaitable[T]]) -> T:
        """What is known of a space, or what is counted now."""
        key = (memory.space, about)
        async with self._locks.setdefault(key, asyncio.Lock()):
            state = (await memory.events.position(), await last_purge(memory))
            held = self._found.get(key)
            if held is not None and self._holds(held[0], held[1], state):
                return held[2]
            value = await count()
            self._found.pop(key, None)
            self._found[key] = (self._clock(), state, value)
            while len(self._found) > KEPT_MAX:
                self._found.pop(next(iter(self._found)))
            return value

    def _holds(self, counted_s: float, then: tuple[int, object], now: tuple[int, object]) -> bool:
        age_s = self._clock() - counted_s
        return (then == now and age_s < LASTING_S) or (then[1] == now[1] and age_s < self._fresh_s)

    def forget(self) -> None:
        """Count everything again: something was changed by the person who looks."""
        self._found.clear()

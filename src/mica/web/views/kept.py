"""What takes long to count, counted once for everybody who looks."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

T = TypeVar("T")

FRESH_S = 15.0  # a figure over weeks does not change within it
KEPT_MAX = 64  # spaces and questions; the oldest is counted again


class Kept(Generic[T]):
    """Values by key, each counted by one task at a time and good for a while, or until the log has grown no more."""

    def __init__(self, *, fresh_s: float = FRESH_S, clock: Callable[[], float] = time.monotonic) -> None:
        self._fresh_s = fresh_s
        self._clock = clock
        self._found: dict[object, tuple[float, int, T]] = {}
        self._locks: dict[object, asyncio.Lock] = {}

    async def get(self, key: object, position: int, count: Callable[[], Awaitable[T]]) -> T:
        """The value of a log that ends at this position; counted again when it has grown and a while has passed."""
        async with self._locks.setdefault(key, asyncio.Lock()):
            held = self._found.get(key)
            if held is not None and (held[1] == position or self._clock() - held[0] < self._fresh_s):
                return held[2]
            value = await count()
            self._found.pop(key, None)
            self._found[key] = (self._clock(), position, value)
            while len(self._found) > KEPT_MAX:
                self._found.pop(next(iter(self._found)))
            return value

    def forget(self) -> None:
        """Count everything again: something was changed by the person who looks."""
        self._found.clear()

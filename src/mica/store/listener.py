"""Receives notifications of appends over one connection, which is open while there are listeners.

Notifications are only hints, because readers that follow the log also poll it. Therefore nothing here raises: an
unreachable server is retried, and a server without notifications is not tried again.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import suppress

RETRY_FIRST_S, RETRY_MAX_S = 1.0, 60.0  # readers poll meanwhile, so there is no hurry


class SilentNotices:
    """`AppendNotices` for an engine without notifications: listeners are never called."""

    is_live = False

    def listen(self, ring: Callable[[], None]) -> Callable[[], None]:
        return lambda: None


class Listener(ABC):
    """Base class that calls all listeners on each notification, and stays connected while there are listeners.

    After an exception of one of the types in `failures`, it waits and connects again.
    """

    def __init__(self, failures: tuple[type[Exception], ...]) -> None:
        self._failures = failures
        self._rings: dict[object, Callable[[], None]] = {}
        self._task: asyncio.Task[None] | None = None
        self.is_listening = False

    def begin(self, ring: Callable[[], None]) -> Callable[[], None]:
        """Call `ring` on every notification. Returns a function that stops these calls; any thread may call it."""
        loop = asyncio.get_running_loop()
        key = object()
        self._rings[key] = ring
        if self._task is None or self._task.done():
            self._task = loop.create_task(self._keep_listening(), name="mica-listening")

        def end() -> None:
            with suppress(RuntimeError):  # the loop is closed, and its tasks have ended
                loop.call_soon_threadsafe(self._end, key)

        return end

    def _end(self, key: object) -> None:
        self._rings.pop(key, None)
        if not self._rings and self._task is not None:
            self._task.cancel()
            self._task = None

    async def close(self) -> None:
        """Remove all listeners and close the connection."""
        task, self._task = self._task, None
        self._rings.clear()
        if task is not None:
            task.cancel()
            await asyncio.wait([task])

    async def _keep_listening(self) -> None:
        retry_s = RETRY_FIRST_S
        while True:
            with suppress(*self._failures):
                if not await self._listen():
                    return
                retry_s = RETRY_FIRST_S
            await asyncio.sleep(retry_s)
            retry_s = min(2 * retry_s, RETRY_MAX_S)

    @abstractmethod
    async def _listen(self) -> bool:
        """Receive notifications until the connection ends. Return False if retrying is pointless."""

    def _ring(self) -> None:
        for ring in list(self._rings.values()):
            ring()

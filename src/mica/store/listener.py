"""Hearing of appends at once: one connection that is told of them, while somebody follows. A hint, never the truth.

Whatever is wrong with it, followers look at the log by themselves, so nothing here ever raises: a server that is away
is tried again, and one that cannot tell is left alone.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import suppress

RETRY_FIRST_S, RETRY_MAX_S = 1.0, 60.0  # followers lose nothing meanwhile; a server that is away is not to be hurried


class Listener(ABC):
    """Rings all who listen when something is heard; keeps a connection for it while anybody does."""

    def __init__(self, failures: tuple[type[Exception], ...]) -> None:
        self._failures = failures
        self._rings: dict[object, Callable[[], None]] = {}
        self._task: asyncio.Task[None] | None = None
        self.is_listening = False

    def begin(self, ring: Callable[[], None]) -> Callable[[], None]:
        """Ring when something is heard; what is returned ends that, and may be called from any thread."""
        loop = asyncio.get_running_loop()
        key = object()
        self._rings[key] = ring
        if self._task is None or self._task.done():
            self._task = loop.create_task(self._keep_listening(), name="mica-listening")

        def end() -> None:
            with suppress(RuntimeError):  # the loop is closed, and everything that ran in it has ended
                loop.call_soon_threadsafe(self._end, key)

        return end

    def _end(self, key: object) -> None:
        self._rings.pop(key, None)
        if not self._rings and self._task is not None:
            self._task.cancel()
            self._task = None

    async def close(self) -> None:
        """Stop listening, whoever follows."""
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
        """Listen until the connection ends; False when it cannot be used to listen."""

    def _ring(self) -> None:
        for ring in list(self._rings.values()):
            ring()

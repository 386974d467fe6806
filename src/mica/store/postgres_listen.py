"""Hearing of appends at once: one connection that LISTENs, while somebody follows. A hint, never the truth.

Whatever is wrong with it, followers look at the log by themselves every moment, so nothing here ever raises: a server
that is away is tried again, and a pooler, behind which no connection stays one's own, is left alone.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress

import asyncpg

from mica.store.postgres_server import CONNECT_S, FAILURES, Address, Connection

RETRY_FIRST_S, RETRY_MAX_S = 1.0, 60.0  # followers lose nothing meanwhile; a server that is away is not to be hurried


class Listener:
    """Rings all who listen when a notification for a space comes."""

    def __init__(self, address: Address, space: str) -> None:
        self._address = address
        self._channel = f"mica_{space}"
        self._rings: dict[object, Callable[[], None]] = {}
        self._task: asyncio.Task[None] | None = None
        self.is_listening = False

    def begin(self, ring: Callable[[], None]) -> Callable[[], None]:
        """Ring when something is heard; what is returned ends that, and may be called from any thread."""
        loop = asyncio.get_running_loop()
        key = object()
        self._rings[key] = ring
        if self._task is None:
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
            with suppress(*FAILURES, ValueError):
                if not await self._listen():
                    return
                retry_s = RETRY_FIRST_S
            await asyncio.sleep(retry_s)
            retry_s = min(2 * retry_s, RETRY_MAX_S)

    async def _listen(self) -> bool:
        """Listen until the connection ends; False when it cannot be used to listen."""
        connection = await asyncpg.connect(self._address.dsn, timeout=CONNECT_S, statement_cache_size=0)
        try:
            # A pooler answers with the process that it has just at hand; what listens there is nobody's connection.
            if await connection.fetchval("SELECT pg_backend_pid()") != connection.get_server_pid():
                return False
            is_over = asyncio.Event()
            connection.add_termination_listener(lambda _: is_over.set())
            await connection.add_listener(self._channel, self._hear)
            self.is_listening = True
            self._ring()  # what was appended before it listened
            await is_over.wait()
            return True
        finally:
            self.is_listening = False
            connection.terminate()

    def _hear(self, _connection: Connection, _process: int, _channel: str, _position: object) -> None:
        self._ring()

    def _ring(self) -> None:
        for ring in list(self._rings.values()):
            ring()

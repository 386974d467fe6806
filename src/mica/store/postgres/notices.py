"""The PostgreSQL implementation of `AppendNotices`: one connection runs LISTEN while there are listeners."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import asyncpg

from mica.store.listener import Listener
from mica.store.postgres.server import CONNECT_S, FAILURES, Connection, PostgresAddress
from mica.store.postgres.space import PostgresRole


class PostgresListener(Listener):
    """Calls its listeners on each NOTIFY for a space."""

    def __init__(self, address: PostgresAddress, space: str) -> None:
        super().__init__((*FAILURES, ValueError))
        self._address = address
        self._channel = f"mica_{space}"

    async def _listen(self) -> bool:
        """Receive notifications until the connection ends. Return False if a connection pooler drops them."""
        connection = await asyncpg.connect(self._address.dsn, timeout=CONNECT_S, statement_cache_size=0)
        try:
            # LISTEN does not work through a pooler in transaction mode, which shares connections.
            if await connection.fetchval("SELECT pg_backend_pid()") != connection.get_server_pid():
                return False
            is_over = asyncio.Event()
            connection.add_termination_listener(lambda _: is_over.set())
            await connection.add_listener(self._channel, self._on_notify)
            self.is_listening = True
            self._ring()  # for events appended before
            await is_over.wait()
            return True
        finally:
            self.is_listening = False
            connection.terminate()

    def _on_notify(self, _connection: Connection, _process: int, _channel: str, _position: object) -> None:
        self._ring()


class PostgresNotices(PostgresRole):
    """Implements `AppendNotices` in PostgreSQL."""

    is_live = False  # a process killed after its commit sends no notification
    _listener: PostgresListener | None = None

    def listen(self, ring: Callable[[], None]) -> Callable[[], None]:
        self._space.pool()
        if self._listener is None:
            self._listener = PostgresListener(self._space.address, self._space.id)
        return self._listener.begin(ring)

    async def close(self) -> None:
        """Remove all listeners and close the connection."""
        if self._listener is not None:
            await self._listener.close()

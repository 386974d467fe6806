"""Hearing of appends to a PostgreSQL: one connection that LISTENs.

A pooler, behind which no connection stays one's own, is left alone.
"""

from __future__ import annotations

import asyncio

import asyncpg

from mica.store.listener import Listener
from mica.store.postgres.server import CONNECT_S, FAILURES, Address, Connection


class PostgresListener(Listener):
    """Rings when a notification for a space comes."""

    def __init__(self, address: Address, space: str) -> None:
        super().__init__((*FAILURES, ValueError))
        self._address = address
        self._channel = f"mica_{space}"

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

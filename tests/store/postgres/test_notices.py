"""PostgreSQL notifies listeners of new positions."""

from __future__ import annotations

import asyncio

from mica.testing import build
from mica.testing.postgres import APP, HANGS_S, LocalPostgres, connected, opened


async def test_listeners_are_notified_of_new_positions(server: LocalPostgres) -> None:
    """A notification is a hint; it contains the last position."""
    notified: asyncio.Queue[str] = asyncio.Queue()
    async with opened(server.address()) as store, connected(server.dsn(role=APP)) as connection:
        await connection.add_listener(f"mica_{store.space}", lambda *arguments: notified.put_nowait(str(arguments[-1])))
        await store.log.append([build(1), build(2)])
        assert await asyncio.wait_for(notified.get(), HANGS_S) == "2"

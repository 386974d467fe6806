from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from mica.testing.postgres import LocalPostgres, connected


@pytest.fixture
async def schema(server: LocalPostgres) -> AsyncIterator[str]:
    """A schema that the test may break."""
    name = server.unused_schema()
    await server.make_schema(name)
    yield name
    async with connected(server.dsn()) as connection:
        await connection.execute(f"DROP SCHEMA {name} CASCADE")

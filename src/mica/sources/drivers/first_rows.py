"""A PostgreSQL connection that fetches only the first rows of a query, in one round trip.

The driver knows one row or all of them; a cursor takes two round trips, and preparing what it asks a third.
"""

from __future__ import annotations

from collections.abc import Sequence

import asyncpg

# Errors of a query that was prepared earlier: columns or types changed, or the statement is gone.
OUTDATED = (
    asyncpg.InvalidCachedStatementError,
    asyncpg.OutdatedSchemaCacheError,
    asyncpg.InvalidSQLStatementNameError,
)
# Errors when its parameters have other types by now, or when a value does not fit its type.
UNFIT = (asyncpg.SyntaxOrAccessError, asyncpg.DataError)


class FirstRows(asyncpg.Connection):  # type: ignore[misc]  # which has no annotations
    """A connection that can fetch the first rows of a query."""

    async def first(self, query: str, values: Sequence[object], limit: int) -> list[asyncpg.Record]:
        """At most `limit` rows: the server stops there, as it stops after one row for the driver's `fetchrow`."""
        found: list[asyncpg.Record] = await self._execute(query, values, limit, None)
        return found


async def connected(*address: str, **how: object) -> FirstRows:
    """A connection that prepares a query once, unless a pooler is in between.

    A pooler in transaction mode may give each transaction another process of the server, which has prepared nothing.
    It is known by the number of that process, which it makes up.
    """
    connection: FirstRows = await asyncpg.connect(*address, **how)
    try:
        async with connection.transaction(readonly=True):  # a pooler keeps one server connection within it
            asked = await connection.prepare("SELECT pg_backend_pid()", name="")  # unnamed, so it leaves nothing behind
            is_direct = await asked.fetchval() == connection.get_server_pid()
    except BaseException:
        connection.terminate()
        raise
    if is_direct:
        return connection
    await connection.close()
    unprepared: FirstRows = await asyncpg.connect(*address, **{**how, "statement_cache_size": 0})
    return unprepared

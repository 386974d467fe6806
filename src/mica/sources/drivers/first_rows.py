"""A connection to PostgreSQL that brings the first rows of a query, and no more, in one round trip.

The driver knows one row or all of them; a cursor takes two round trips, and preparing what it asks a third.
"""

from __future__ import annotations

from collections.abc import Sequence

import asyncpg

# What a query that was prepared earlier may meet: columns or types that were changed, or that somebody removed it.
OUTDATED = (
    asyncpg.InvalidCachedStatementError,
    asyncpg.OutdatedSchemaCacheError,
    asyncpg.InvalidSQLStatementNameError,
)
# What it meets when its parameters have other types by now; but also when only what it was asked does not fit.
UNFIT = (asyncpg.SyntaxOrAccessError, asyncpg.DataError)


class FirstRows(asyncpg.Connection):  # type: ignore[misc]  # which has no annotations
    """A connection that can be asked for the first rows."""

    async def first(self, query: str, values: Sequence[object], limit: int) -> list[asyncpg.Record]:
        """At most so many rows: the server ends the query there, as the driver's own `fetchrow` lets it end at one."""
        found: list[asyncpg.Record] = await self._execute(query, values, limit, None)
        return found


async def connected(*address: str, **how: object) -> FirstRows:
    """A connection that prepares a query once, unless a pooler stands between.

    A pooler in transaction mode may give each transaction another process of the server, which has prepared nothing.
    It is known by the number of that process, which it makes up.
    """
    connection: FirstRows = await asyncpg.connect(*address, **how)
    try:
        async with connection.transaction(readonly=True):  # within one, a pooler changes nothing
            asked = await connection.prepare("SELECT pg_backend_pid()", name="")  # which nothing is left of
            is_direct = await asked.fetchval() == connection.get_server_pid()
    except BaseException:
        connection.terminate()
        raise
    if is_direct:
        return connection
    await connection.close()
    unprepared: FirstRows = await asyncpg.connect(*address, **{**how, "statement_cache_size": 0})
    return unprepared

"""A PostgreSQL connection that fetches only the first rows of a query, in one round trip.

asyncpg itself fetches one row or all rows; a cursor takes two round trips, and preparing its query a third.
"""

from __future__ import annotations

from collections.abc import Sequence

import asyncpg

# Errors of a query that was prepared earlier: its columns or types changed, or the prepared statement no longer exists.
OUTDATED = (
    asyncpg.InvalidCachedStatementError,
    asyncpg.OutdatedSchemaCacheError,
    asyncpg.InvalidSQLStatementNameError,
)
# Errors when the types of its parameters changed, or when a value does not fit its type.
UNFIT = (asyncpg.SyntaxOrAccessError, asyncpg.DataError)


class FirstRows(asyncpg.Connection):  # type: ignore[misc]  # which has no annotations
    """A connection that can fetch the first rows of a query."""

    async def first(self, query: str, values: Sequence[object], limit: int) -> list[asyncpg.Record]:
        """Fetch at most `limit` rows; the server stops after them, as it does after one row for `fetchrow`."""
        found: list[asyncpg.Record] = await self._execute(query, values, limit, None)
        return found


async def connected(*address: str, **options: object) -> FirstRows:
    """Open a connection that caches prepared statements, unless a pooler is in between.

    A pooler in transaction mode may run each transaction in a different server process, where the statements are not
    prepared. A pooler is detected by comparing process ids: it reports an invented one.
    """
    connection: FirstRows = await asyncpg.connect(*address, **options)
    try:
        async with connection.transaction(readonly=True):  # within it, a pooler uses one server connection
            statement = await connection.prepare("SELECT pg_backend_pid()", name="")  # unnamed: not kept
            is_direct = await statement.fetchval() == connection.get_server_pid()
    except BaseException:
        connection.terminate()
        raise
    if is_direct:
        return connection
    await connection.close()
    unprepared: FirstRows = await asyncpg.connect(*address, **{**options, "statement_cache_size": 0})
    return unprepared

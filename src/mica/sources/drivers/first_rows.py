"""A PostgreSQL connection that fetches only the first rows of a query, in one round trip to the server.

The methods of asyncpg fetch one row or all rows. To fetch several with a cursor, they need two round trips, and a third
one to prepare the query.
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
# Errors of a query whose parameters now have other types, or of a value that does not fit the type of its parameter.
UNFIT = (asyncpg.SyntaxOrAccessError, asyncpg.DataError)


class FirstRows(asyncpg.Connection):  # type: ignore[misc]  # which has no annotations
    """A connection that can fetch the first rows of a query in one round trip."""

    async def first(self, query: str, values: Sequence[object], limit: int) -> list[asyncpg.Record]:
        """Return at most `limit` rows. The server stops after them instead of computing all rows."""
        found: list[asyncpg.Record] = await self._execute(query, values, limit, None)
        return found


async def connected(*address: str, **options: object) -> FirstRows:
    """Open a connection. It caches prepared statements unless there is a pooler between client and server.

    The arguments are those of `asyncpg.connect`. A pooler in transaction mode may run each transaction in a different
    server process, and the other process does not know the prepared statements. There is a pooler if the process id
    that the client received on connecting differs from the id that the server process itself returns.
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

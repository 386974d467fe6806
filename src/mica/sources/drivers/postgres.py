"""PostgreSQL databases as sources. A query runs in a read-only transaction, on a connection of a small pool."""

from __future__ import annotations

import asyncio
import re
import secrets
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from datetime import datetime
from decimal import Decimal, InvalidOperation
from functools import partial
from typing import TYPE_CHECKING, Annotated, TypeAlias
from urllib.parse import parse_qs, unquote, urlsplit

import msgspec

from mica.errors import SourceFailed
from mica.settings import Secret
from mica.sources.drivers.rows import MappedRows, SourceRecord
from mica.sources.drivers.sqlite import Parameters, Query, parse_parameters
from mica.sources.drivers.tables import About, Around, DeclaredSource, SourceQueryPreview, SourceTable
from mica.sources.protocol import RANK_DATABASE, Concept
from mica.sources.threads import imported

if TYPE_CHECKING:
    import asyncpg
    from asyncpg.pool import PoolConnectionProxy

    Pool: TypeAlias = asyncpg.Pool[asyncpg.Record]
    Connection: TypeAlias = PoolConnectionProxy[asyncpg.Record]

CONNECTIONS_MAX = 4  # to one address, shared by its sources; a server allows 100 by default, for all processes
CONNECT_S = 10  # for a new connection, in the background; a question waits no longer than its own limit
# A rollback undoes settings, but a query may have taken a session-level lock, which would remain.
FREE = "ROLLBACK; SELECT pg_advisory_unlock_all()"
END_S = 2  # how long a server may take to confirm a cancel; after that the connection is dropped
SIZED = (str, bytes)  # column types that can be long
ROWS_AT_ONCE = 64  # rows fetched at a time; their size is checked after each batch
BYTES_MAX = 1_000_000  # of all rows of one answer together, checked after they were fetched


class PostgresTable(SourceTable, frozen=True, kw_only=True, tag="postgres"):
    """The settings of a source that runs a query on a PostgreSQL server."""

    query: Query
    parameters: Parameters | None = None
    dsn: Annotated[Secret, About(description='"postgresql://user@host/database"')] | None = None
    dsn_env: Annotated[str, About(min_length=1, description="the name of a variable that holds the address")] | None = (
        None
    )
    bytes_max: Annotated[int, About(ge=1, description="a number of bytes")] = BYTES_MAX


class PostgresPool:
    """The connection pool for one address. All sources with this address share the pool.

    Each source calls `join` first, and `leave` when it is closed. The last source to leave closes the pool.
    """

    def __init__(self, dsn: Secret) -> None:
        self._dsn = dsn
        self._pool: Pool | None = None
        self._users = 0
        self._application_name = f"mica {secrets.token_hex(8)}"  # the application name of its connections
        self._ending: set[asyncio.Task[None]] = set()
        self._unclaimed: set[asyncio.Future[Connection]] = set()  # connections being made without a waiter
        self.place = _place(dsn.reveal())

    def join(self) -> None:
        self._users += 1

    async def connection(self) -> Connection:
        """Return a connection from the pool. If none is idle, one is opened, or the call waits for one.

        If the caller is cancelled, a connection is still opened in the background for the next caller.
        """
        pool = await self._opened()
        if pool.get_idle_size():
            return await pool.acquire()  # one is idle, so this does not wait
        unclaimed = self._unclaimed.pop() if self._unclaimed else None
        acquiring = unclaimed or asyncio.ensure_future(pool.acquire(timeout=CONNECT_S))
        try:
            return await asyncio.shield(acquiring)
        except asyncio.CancelledError:
            self._unclaimed.add(acquiring)
            acquiring.add_done_callback(self._release_unclaimed)
            raise

    async def _opened(self) -> Pool:
        if self._pool is None:
            import asyncpg

            from mica.sources.drivers.first_rows import FirstRows, connected

            pool = asyncpg.create_pool(
                self._dsn.reveal(),
                min_size=0,
                max_size=CONNECTIONS_MAX,
                connect=connected,
                connection_class=FirstRows,
                reset=_nothing_to_reset,
                timeout=CONNECT_S,
                server_settings={"application_name": self._application_name},
            )
            await pool  # does not connect yet
            self._pool = self._pool or pool
        return self._pool

    def _release_unclaimed(self, acquiring: asyncio.Future[Connection]) -> None:
        if acquiring not in self._unclaimed:
            return  # another caller waits for it
        self._unclaimed.discard(acquiring)
        if not acquiring.cancelled() and acquiring.exception() is None:
            self._in_the_background(self._released(acquiring.result()))

    def leave_behind(self, connection: Connection) -> None:
        """Give a connection back to the pool in the background, as soon as its query has ended on the server."""
        self._in_the_background(self._release(connection))

    def _in_the_background(self, work: Coroutine[object, object, None]) -> None:
        ending = asyncio.ensure_future(work)
        self._ending.add(ending)
        ending.add_done_callback(self._ending.discard)

    async def _release(self, connection: Connection) -> None:
        """Roll back the transaction and give the connection back to the pool. A broken connection is discarded."""
        from mica.store.postgres.server import FAILURES, discard

        process = None
        try:
            process = connection.get_server_pid()  # fails if the server went away
            async with asyncio.timeout(END_S):
                await connection.execute(FREE)
        except FAILURES as error:
            discard(connection)
            if isinstance(error, TimeoutError) and process is not None:
                await self._end(process)
        await self._released(connection)

    async def _released(self, connection: Connection) -> None:
        from mica.store.postgres.server import FAILURES

        if self._pool is not None:
            with suppress(*FAILURES, TimeoutError):  # then the pool has dropped the connection
                await self._pool.release(connection, timeout=END_S)

    async def _end(self, process: int) -> None:
        """Terminate the server process with the id `process`, which still runs a query that was cancelled.

        A query continues if the cancel arrives before it begins, or if one of its functions ignores the cancel.
        """
        import asyncpg

        from mica.store.postgres.server import FAILURES

        with suppress(*FAILURES):  # the server is away, and its queries with it
            other = await asyncpg.connect(self._dsn.reveal(), timeout=END_S, statement_cache_size=0)
            try:
                await other.execute(
                    f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                    # The name is compared, too, because a pooler reports invented process ids.
                    f"WHERE pid = {process} AND application_name = '{self._application_name}'",
                    timeout=END_S,
                )
            finally:
                other.terminate()

    @property
    def is_full(self) -> bool:
        """True if the pool has no idle connection and cannot open another one."""
        pool = self._pool
        return pool is not None and pool.get_size() >= CONNECTIONS_MAX and not pool.get_idle_size()

    async def leave(self) -> None:
        self._users -= 1
        if self._users > 0 or self._pool is None:
            return
        pool, ending = self._pool, set(self._ending)
        if ending:
            await asyncio.wait(ending)
        self._pool = None
        try:
            await asyncio.wait_for(pool.close(), END_S)
        except TimeoutError:
            pool.terminate()


async def _nothing_to_reset(_: object) -> None:
    """Do nothing in place of asyncpg's reset query. The transaction was rolled back, which released its locks."""


class PostgresSource(DeclaredSource):
    """A source that runs a query on a PostgreSQL server, read-only and with a time limit that the server enforces."""

    driver = "postgres"
    needs = "asyncpg"
    rank = RANK_DATABASE
    table: PostgresTable

    def __init__(self, name: str, table: PostgresTable, around: Around, *, server: PostgresPool | None) -> None:
        """`server` is the connection pool. It is None if the environment variable with the server's address is not set.

        Every question then fails, and the error names the variable.
        """
        super().__init__(name, table, around)
        self._server = server
        self._parameters = parse_parameters(table.parameters)
        self._kinds: dict[str, list[str]] = {}  # the types of a query's parameters
        self._is_closed = False
        if server is not None:
            server.join()
            version = f"{self.declared.version} {server.place}"  # the variable may name another server later
            self.declared = msgspec.structs.replace(self.declared, version=version)

    @property
    def place(self) -> str:
        return f"PostgreSQL at {self._server.place if self._server else f'the address in {self.table.dsn_env}'}"

    @property
    def hint(self) -> str:
        is_full = self._server is not None and self._server.is_full
        return f"all {CONNECTIONS_MAX} connections to it are in use" if is_full else super().hint

    async def query(self, concept: Concept, *, now: datetime) -> MappedRows:
        bound = [asking.of(concept) for asking in self._parameters]
        rows, missing = await self._fetch(self.table.query, bound)
        mapped = self.mapping.fragments((SourceRecord(row, concept) for row in rows), now=now, where="row ")
        return MappedRows(mapped.fragments, mapped.missing + missing)

    async def _fetch(self, query: str, bound: Sequence[str]) -> tuple[list[dict[str, object]], tuple[str, ...]]:
        """Run a query with the values in `bound`. Return a pair: the first rows, and messages about rows left out.

        If the connection was lost or the tables have changed, the query is tried once more. Raises SourceFailed if the
        query fails, and TimeoutError if the server does not answer in time.
        """
        if self._is_closed:
            raise SourceFailed(self.name, "it is closed; open the memory again")
        server = self._server
        if server is None:
            raise SourceFailed(
                self.name, f"the variable {self.table.dsn_env!r} that dsn_env names is not set; export it"
            )
        await imported(self.pool, self.name, self.needs, extra="postgres")
        from mica.sources.drivers.first_rows import OUTDATED, UNFIT
        from mica.store.postgres.server import FAILURES, LOST

        known = self._kinds.get(query)
        try:
            try:
                return await self._read(server, query, bound)
            except OUTDATED:  # the tables may have changed since it was prepared
                if known is None:
                    raise
            except UNFIT:
                if known is None or not await self._is_changed(server, query, known):
                    raise
            except LOST as error:  # an idle connection died
                if isinstance(error, TimeoutError | ConnectionRefusedError | FileNotFoundError):
                    raise  # the server is away; a second try would only take time
            return await self._read(server, query, bound)
        except TimeoutError:
            raise
        except FAILURES as error:
            raise SourceFailed(self.name, self._describe(error)) from error

    async def _read(
        self, server: PostgresPool, query: str, bound: Sequence[str]
    ) -> tuple[list[dict[str, object]], tuple[str, ...]]:
        from mica.sources.drivers.first_rows import OUTDATED

        connection = await server.connection()
        try:
            return await self._fetched(connection, query, bound)
        except OUTDATED:
            self._kinds.pop(query, None)
            await connection.reload_schema_state()  # resets the caches of all connections; sends nothing
            raise
        finally:
            server.leave_behind(connection)

    async def _fetched(
        self, connection: Connection, query: str, bound: Sequence[str]
    ) -> tuple[list[dict[str, object]], tuple[str, ...]]:
        await self._begin(connection)
        try:
            values = self._converted(self._kinds[query], bound)
        except (KeyError, SourceFailed):  # its types are unknown or have changed
            values = self._converted(await self._prepared(connection, query), bound)
        most, size_bytes = self.declared.fragments_max, 0
        if most < ROWS_AT_ONCE:
            fetch = partial(connection.first, query, values)
        else:
            fetch = (await (await connection.prepare(query, name="")).cursor(*values)).fetch
        rows: list[dict[str, object]] = []
        is_more = True
        while is_more:
            wanted = min(ROWS_AT_ONCE, most + 1 - len(rows))
            batch = await fetch(wanted)
            is_more = len(batch) == wanted
            for record in batch:
                size_bytes += sum([len(value) for value in record.values() if isinstance(value, SIZED)])
                if size_bytes > self.table.bytes_max:
                    return rows, (f"rows after the first {len(rows)} go beyond bytes_max = {self.table.bytes_max:,}",)
                if len(rows) == most:
                    return rows, (self.cut("rows"),)
                rows.append(dict(record))
        return rows, ()

    async def _begin(self, connection: Connection) -> None:
        limit_ms = max(1, int(self.table.timeout_s * 1_000))
        await connection.execute(f"BEGIN READ ONLY; SET LOCAL statement_timeout = {limit_ms}")

    async def _is_changed(self, server: PostgresPool, query: str, known: Sequence[str]) -> bool:
        connection = await server.connection()
        try:
            await self._begin(connection)
            return await self._prepared(connection, query) != known
        finally:
            server.leave_behind(connection)

    async def _prepared(self, connection: Connection, query: str) -> list[str]:
        """Prepare a query and return the names of its parameters' types.

        If the types have changed since the last time, all connections will prepare the query again when they run it.
        """
        statement = await connection.prepare(query, name="")
        kinds = [each.name for each in statement.get_parameters()]
        if self._kinds.get(query, kinds) != kinds:
            await connection.reload_schema_state()  # nothing is sent
        self._kinds[query] = kinds
        return kinds

    def _converted(self, wanted: Sequence[str], bound: Sequence[str]) -> list[object]:
        """Convert the values of a query's parameters from texts (`bound`) to the types of the parameters (`wanted`).

        Raises SourceFailed if a text does not fit its type, or if the numbers of values and types differ.
        """
        if self.table.parameters is None and not wanted:
            return []
        if len(wanted) != len(bound):
            raise SourceFailed(
                self.name,
                f"the query has {len(wanted)} parameters, and `parameters` names {len(bound)}; make them match",
            )
        values: list[object] = []
        for number, (kind, text) in enumerate(zip(wanted, bound, strict=True), start=1):
            convert = _NUMBERS.get(kind)
            try:
                values.append(text if convert is None else convert(text))
            except (ValueError, InvalidOperation) as error:
                raise SourceFailed(
                    self.name,
                    f"${number} is of type {kind}, and the concept has {text!r:.60} for it; narrow `concepts`",
                ) from error
        return values

    def _describe(self, error: BaseException) -> str:
        """Return a message for an error of PostgreSQL, with the reason and what to do.

        Of the server's address, the message shows only the host, port and database.
        """
        import asyncpg

        message = str(error).partition("\n")[0] or type(error).__name__
        if isinstance(error, asyncpg.ReadOnlySQLTransactionError):
            return f"the query does more than read, and PostgreSQL refused it ({message}); give one SELECT"
        if isinstance(error, asyncpg.QueryCanceledError):
            return f"the query took longer than timeout_s = {self.table.timeout_s:g}; add an index, or ask for less"
        if isinstance(error, asyncpg.InvalidAuthorizationSpecificationError | asyncpg.InvalidPasswordError):
            return f"{self.place} refuses the user ({message}); check the address in dsn_env or dsn"
        if isinstance(error, asyncpg.InsufficientPrivilegeError):
            return f"{self.place}: {message}; grant SELECT to its user"
        if isinstance(error, asyncpg.DataError):
            return f"a parameter does not fit the query: {message}; cast it, as in $1::text"
        if isinstance(
            error, asyncpg.CannotConnectNowError | asyncpg.TooManyConnectionsError | OSError | asyncpg.InterfaceError
        ):
            return f"{self.place} does not answer ({type(error).__name__}); is it running?"
        if isinstance(error, asyncpg.PostgresConnectionError | asyncpg.OperatorInterventionError):
            return f"{self.place} ended the connection ({message}); is it restarting?"
        return f"PostgreSQL refuses the query: {message}; try it with psql"

    def explain(self, concept: Concept) -> SourceQueryPreview:
        bound = {f"${number}": asking.of(concept) for number, asking in enumerate(self._parameters, start=1)}
        return self.preview(self.table.query, bound)

    async def check(self) -> str:
        rows, _ = await self._fetch("SELECT current_database()::text AS database, version() AS version", ())
        return f"{str(rows[0]['version']).partition(' on ')[0]}, database {rows[0]['database']}"

    async def connect(self) -> None:
        await self.check()

    async def close(self) -> None:
        if not self._is_closed and self._server is not None:
            await self._server.leave()
        self._is_closed = True


def _parse_integer(text: str) -> int:
    if not re.fullmatch(r"-?[0-9]{1,19}", text):  # int() would accept 1_000 and digits of every script
        raise ValueError(text)
    return int(text)


_NUMBERS: dict[str, Callable[[str], object]] = {
    "int2": _parse_integer,
    "int4": _parse_integer,
    "int8": _parse_integer,
    "float4": float,
    "float8": float,
    "numeric": Decimal,
}


def _place(dsn: str) -> str:
    try:
        parts = urlsplit(dsn)
        host = parts.hostname or parse_qs(parts.query).get("host", ["localhost"])[0]
        return f"{host}{f':{parts.port}' if parts.port else ''}/{unquote(parts.path.lstrip('/'))}"
    except ValueError:
        return "an address that cannot be read"

"""A space in PostgreSQL and its transactions, which are retried when the connection is lost.

Each transaction sets its space, so any connection can run it, also one of a pooler in transaction mode.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Coroutine
from contextlib import asynccontextmanager, suppress
from datetime import date
from functools import wraps
from itertools import count
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, Self, TypeVar

import msgspec

from mica.errors import MicaError, StoreUnavailable, UnknownSpace
from mica.model.event import Clock, WriterId, microseconds, new_writer, utc_now
from mica.store.postgres.append import WriteTransaction
from mica.store.postgres.rows import RowReader
from mica.store.postgres.server import (
    CONNECT_S,
    CONNECTIONS_MAX,
    LOST,
    PATIENCE_S,
    Connection,
    Pool,
    PostgresAddress,
    connect,
    discard,
    is_away,
    is_retryable,
    migrate,
    parse_address,
    translated,
)
from mica.store.postgres.words import PostgresWords
from mica.store.purges import Purge, PurgeFilter
from mica.store.space import recall_space, remember_space

P = ParamSpec("P")
R = TypeVar("R")
S = TypeVar("S", bound="PostgresRole")

TRIES = 5  # attempts at a transaction that is lost or rolled back; a deadlock may happen again
RETRY_S = 0.05  # the longest first delay; it is random, so that two processes do not retry in step
MONTHS_AHEAD = 2  # partitions created when a store is opened, so that an append rarely has to

# One round trip. The settings end with the transaction, because the connection may then serve another client.
_BEGIN = """
    BEGIN ISOLATION LEVEL {level};
    SET LOCAL search_path = {schema}, pg_temp;
    SET LOCAL statement_timeout = '{patience_s}s';
    SET LOCAL idle_in_transaction_session_timeout = '{patience_s}s';
    SET LOCAL jit = off;
    SELECT set_config('synchronous_commit', 'on', true) WHERE current_setting('synchronous_commit') = 'off';
    SELECT enter('{space}') WHERE '{space}' <> ''"""
READ = "REPEATABLE READ READ ONLY"
WRITE = "READ COMMITTED READ WRITE"  # each statement sees everything committed before the lock was granted


class PostgresSpace:
    """The connections, the transactions and the caches of one space, shared by all roles of a store."""

    def __init__(
        self, address: PostgresAddress, pool: Pool, *, home: Path | None = None, clock: Clock = utc_now
    ) -> None:
        self.address = address
        self._home = home
        self._clock = clock
        self._pool: Pool | None = pool
        self._is_ready = False  # the schema is migrated and contains the space
        self._must_exist = False  # raise UnknownSpace instead of creating the space
        self._ready_lock = asyncio.Lock()
        self.id = ""
        self.number = 0  # the number of the space, which every row of its data has
        self.words = PostgresWords(0)
        self.generation = -1  # the purge counter of the space when the caches were last emptied
        self.purge_filter: PurgeFilter | None = None  # read when the space is locked for the first time
        self.appending = asyncio.Lock()  # only one connection waits for the server's lock, so that the others can read
        self.tip = -1  # the last position after the last append of this store
        self.highest: dict[WriterId, int] = {}  # the highest sequences of some writers at that time
        self._months: set[date] = set()  # known partitions

    @classmethod
    async def open(
        cls,
        address: str,
        *,
        space: str = "main",
        home: Path | None = None,
        clock: Clock = utc_now,
        must_exist: bool = False,
    ) -> Self:
        """Open a space at a PostgreSQL address. See `PostgresStore.open`."""
        parsed = parse_address(address, space=space)
        try:
            store = cls(parsed, await connect(parsed), home=home, clock=clock)
            store._must_exist = must_exist
            try:
                await store._get_ready()
            except BaseException:
                await store.close()
                raise
        except StoreUnavailable as error:
            known = None if home is None or not is_away(error) else recall_space(home, parsed)
            if known is None:
                raise
            store = cls(parsed, await connect(parsed, at_once=False), home=home, clock=clock)
            store.id = known
        return store

    async def _get_ready(self) -> None:
        """Migrate the schema, and find or create the space. Later calls do nothing."""
        async with self._ready_lock:
            if not self._is_ready:
                await self._retry(self.prepare_schema)
                await self._retry(self._enter)
                self._is_ready = True
                if self._home is not None:
                    await asyncio.to_thread(remember_space, self._home, self.address, self.id)

    async def prepare_schema(self) -> None:
        await migrate(self.pool(), self.address)
        await self.make_months(_months_from(self._clock().date(), MONTHS_AHEAD + 1))

    @property
    def space(self) -> str:
        return self.id

    @property
    def location(self) -> str:
        return str(self.address)

    @property
    def segments(self) -> Path | None:
        return None if self._home is None else self._home / "segments" / self.id

    async def close(self) -> None:
        pool, self._pool = self._pool, None
        if pool is not None:
            # Shielded: a cancelled close must not leave connections open.
            await asyncio.shield(_end(pool))

    # -- Transactions -----------------------------------------------------------------------------------------

    def pool(self) -> Pool:
        if self._pool is None:
            raise StoreUnavailable(f"the store {self.address} is closed; open it again")
        return self._pool

    @asynccontextmanager
    async def transaction(self, level: str, *, patience_s: int | None = None) -> AsyncIterator[Connection]:
        begin = _BEGIN.format(
            level=level, schema=self.address.schema, space=self.id, patience_s=patience_s or PATIENCE_S
        )
        with translated(self.address):
            async with self._begin(begin) as connection:
                try:
                    yield connection
                    if connection.is_in_transaction():
                        await connection.execute("COMMIT")
                except LOST:
                    discard(connection)
                    raise
                except BaseException:
                    if connection.is_in_transaction():
                        with suppress(*LOST):
                            await connection.execute("ROLLBACK")
                    raise

    @asynccontextmanager
    async def _begin(self, begin: str) -> AsyncIterator[Connection]:
        """Yield a connection in a new transaction. Idle connections that have died are discarded."""
        for discarded in count():
            async with self.pool().acquire(timeout=PATIENCE_S) as connection:
                try:
                    await connection.execute(begin)
                except LOST:
                    discard(connection)
                    if discarded == CONNECTIONS_MAX:
                        raise
                else:
                    yield connection
                    return

    async def run_with_retries(self, once: Callable[[], Awaitable[R]]) -> R:
        """Call `once`, which runs one transaction, and return its result. Retry if the transaction was lost.

        The first successful call also migrates the schema and finds or creates the space.
        """
        if not self._is_ready:
            self.pool()
            await self._get_ready()
        return await self._retry(once)

    async def _retry(self, once: Callable[[], Awaitable[R]]) -> R:
        """Call `once`, and again if its transaction was lost or rolled back. Every transaction here is idempotent."""
        for tried in range(1, TRIES + 1):
            try:
                return await once()
            except MicaError as error:
                if tried == TRIES or not is_retryable(error):
                    raise
                self._months.clear()
            await asyncio.sleep(random.uniform(0, RETRY_S) * tried)
        raise AssertionError("the last try returns or raises")

    async def write(self, work: Callable[[WriteTransaction], Awaitable[R]]) -> R:
        """Run `work` in one transaction that holds the lock of the space, with retries; returns its result."""

        async def once() -> R:
            async with self.transaction(WRITE) as connection:
                return await work(await self.lock(connection))

        async with self.appending:
            return await self.run_with_retries(once)

    async def lock(self, connection: Connection, *, expected: int = 0) -> WriteTransaction:
        """Lock the space until the end of the transaction, and reserve `expected` positions.

        The first lock, and each lock after a purge, also empties the caches and reads the stored purges.
        """
        self.words.begin()
        last, generation = await connection.fetchrow(
            """UPDATE spaces SET last_position = last_position + $2 WHERE number = $1
            RETURNING last_position - $2, generation""",
            self.number,
            expected,
        )
        if generation != self.generation or self.purge_filter is None:
            self.words.forget()
            self.purge_filter = await read_purges(connection, self.number)
            self.generation = generation
        highest = self.highest if last == self.tip else {}  # no other store has appended since
        return WriteTransaction(connection, self.number, self.words, after=last, highest=highest)

    def reads(self, connection: Connection) -> RowReader:
        """Return a reader of events for the transaction on this connection."""
        return RowReader(connection, self.number, self.words)

    async def _enter(self) -> None:
        """Find the space by its name, or create it. Raises UnknownSpace if it must exist and does not."""
        name = self.address.space
        find = "SELECT number, id, generation FROM spaces WHERE name = $1"
        async with self.transaction(WRITE) as connection:
            row = await connection.fetchrow(find, name)
            if row is None:
                await connection.execute(
                    "INSERT INTO spaces (id, name, created_at) VALUES ($1, $2, $3) ON CONFLICT DO NOTHING",
                    new_writer(),
                    name,
                    microseconds(utc_now()),
                )
                row = await connection.fetchrow(find, name)
                if row is not None and self._must_exist:
                    raise UnknownSpace(self.location)  # rolls back; the insert also shows if another role owns the name
        if row is None:
            raise StoreUnavailable(
                f"the space {name!r} on {self.address.host} belongs to another role; name another with ?space=, or "
                f"let the owner of the schema transfer it: "
                f"UPDATE {self.address.schema}.spaces SET role = '…' WHERE name = '{name}'"
            )
        self.number, self.id, self.generation = row
        self.words = PostgresWords(self.number)

    async def make_months(self, wanted: Collection[date]) -> None:
        """Create the missing partitions of the events table for these months, each given by its first day."""
        if missing := sorted(set(wanted) - self._months):
            async with self.transaction(WRITE) as connection:
                await connection.execute("SELECT make_month(month) FROM unnest($1::date[]) AS month", missing)
            self._months.update(missing)


class PostgresRole:
    """Base class of the roles of a PostgreSQL store. Each method is one transaction in the space."""

    def __init__(self, space: PostgresSpace) -> None:
        self._space = space


def reading(
    method: Callable[Concatenate[S, Connection, P], Awaitable[R]],
) -> Callable[Concatenate[S, P], Coroutine[Any, Any, R]]:
    """Decorate a method of a role, so that it runs in a read-only transaction on one snapshot.

    The transaction is retried if the connection is lost.
    """

    @wraps(method)
    async def run(role: S, /, *args: P.args, **kwargs: P.kwargs) -> R:
        async def once() -> R:
            async with role._space.transaction(READ) as connection:
                return await method(role, connection, *args, **kwargs)

        return await role._space.run_with_retries(once)

    return run


async def read_purges(connection: Connection, space: int) -> PurgeFilter:
    """Read all stored purges of a space."""
    rows = await connection.fetch("SELECT purge FROM purges WHERE space = $1", space)
    return PurgeFilter(msgspec.json.decode(encoded, type=Purge) for (encoded,) in rows)


def _months_from(day: date, count: int) -> list[date]:
    """Return the first days of `count` months, starting with the month of `day`."""
    first = day.year * 12 + day.month - 1
    return [date(month // 12, month % 12 + 1, 1) for month in range(first, first + count)]


async def _end(pool: Pool) -> None:
    try:
        await asyncio.wait_for(pool.close(), CONNECT_S)
    except (TimeoutError, *LOST):
        pool.terminate()  # a connection is still in use, or the server is gone

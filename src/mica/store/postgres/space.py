"""A space on a server, and the transactions in it: each names its space, and is done again when it was lost.

Any connection will do for any of them, also one of a pooler in transaction mode.
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
from mica.store.postgres.append import Writing
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
    may_be_repeated,
    migrate,
    parse_address,
    translated,
)
from mica.store.postgres.words import PostgresWords
from mica.store.purges import Outstanding, Purge
from mica.store.space import recall_space, remember_space

P = ParamSpec("P")
R = TypeVar("R")
S = TypeVar("S", bound="PostgresRole")

TRIES = 5  # of a transaction that was lost or undone; a deadlock may meet its rival again
TRY_AGAIN_S = 0.05  # at random, so that rivals do not keep step
MONTHS_AHEAD = 2  # made when a store is opened, so that appending hardly ever has to make one

# One round trip. What is set ends with the transaction: the next one on this connection may be somebody else's.
_BEGIN = """
    BEGIN ISOLATION LEVEL {level};
    SET LOCAL search_path = {schema}, pg_temp;
    SET LOCAL statement_timeout = '{patience_s}s';
    SET LOCAL idle_in_transaction_session_timeout = '{patience_s}s';
    SET LOCAL jit = off;
    SELECT set_config('synchronous_commit', 'on', true) WHERE current_setting('synchronous_commit') = 'off';
    SELECT enter('{space}') WHERE '{space}' <> ''"""
READ = "REPEATABLE READ READ ONLY"
WRITE = "READ COMMITTED READ WRITE"  # each statement sees what was committed before the lock was given


class PostgresSpace:
    """What every verb of the shared store needs: connections, the schema, and the number of its space."""

    def __init__(
        self, address: PostgresAddress, pool: Pool, *, home: Path | None = None, clock: Clock = utc_now
    ) -> None:
        self.address = address
        self._home = home
        self._clock = clock
        self._pool: Pool | None = pool
        self._is_ready = False  # the schema was found in this version, and the space in it
        self._must_exist = False  # the space: it is not made
        self._readying = asyncio.Lock()
        self.id = ""
        self.number = 0  # by which rows name the space
        self.words = PostgresWords(0)
        self.generation = -1  # of the cached words: a purge removes some
        self.outstanding: Outstanding | None = None  # unknown until something is written
        self.appending = asyncio.Lock()  # one connection waits for the lock on the server, the others can read
        self.tip = -1  # the last position when this store last appended
        self.highest: dict[WriterId, int] = {}  # and the highest sequences of some writers then
        self._months: set[date] = set()  # that have a partition

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
        """The store at `postgresql://user@host/database?space=NAME`; `space` is the name where the address has none.

        Below `home` is what waits on this machine while the server cannot be reached. A space that was opened from
        there before is opened then, too; what is asked of it raises StoreUnavailable until the server is back. Raises
        UnknownSpace for one that must exist and does not.
        """
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
        """Find the schema and the space, and make what is missing; once, as soon as the server answers."""
        async with self._readying:
            if not self._is_ready:
                await self._repeatedly(self.prepare_schema)
                await self._repeatedly(self._enter)
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
            async with self._begun(begin) as connection:
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
    async def _begun(self, begin: str) -> AsyncIterator[Connection]:
        """A connection on which this was done. Those that died while nobody used them are left out."""
        for spent in count():
            async with self.pool().acquire(timeout=PATIENCE_S) as connection:
                try:
                    await connection.execute(begin)
                except LOST:
                    discard(connection)
                    if spent == CONNECTIONS_MAX:
                        raise
                else:
                    yield connection
                    return

    async def patiently(self, once: Callable[[], Awaitable[R]]) -> R:
        """What `once` returns, in a space that was found."""
        if not self._is_ready:
            self.pool()
            await self._get_ready()
        return await self._repeatedly(once)

    async def _repeatedly(self, once: Callable[[], Awaitable[R]]) -> R:
        """What `once` returns; done again when its transaction was lost or undone, because all we do is idempotent."""
        for tried in range(1, TRIES + 1):
            try:
                return await once()
            except MicaError as error:
                if tried == TRIES or not may_be_repeated(error):
                    raise
                self._months.clear()
            await asyncio.sleep(random.uniform(0, TRY_AGAIN_S) * tried)
        raise AssertionError("the last try returns or raises")

    async def write(self, work: Callable[[Writing], Awaitable[R]]) -> R:
        """What `work` returns, done in one transaction that holds the lock of the space; retried when it is lost."""

        async def once() -> R:
            async with self.transaction(WRITE) as connection:
                return await work(await self.lock(connection))

        async with self.appending:
            return await self.patiently(once)

    async def lock(self, connection: Connection, *, expected: int = 0) -> Writing:
        """Wait until no other append runs in this space, and reserve so many positions."""
        self.words.begin()
        last, generation = await connection.fetchrow(
            """UPDATE spaces SET last_position = last_position + $2 WHERE number = $1
            RETURNING last_position - $2, generation""",
            self.number,
            expected,
        )
        if generation != self.generation or self.outstanding is None:
            self.words.forget()
            self.outstanding = await read_purges(connection, self.number)
            self.generation = generation
        highest = self.highest if last == self.tip else {}  # no other store has written since
        return Writing(connection, self.number, self.words, after=last, highest=highest)

    def reads(self, connection: Connection) -> RowReader:
        """The reads of a transaction."""
        return RowReader(connection, self.number, self.words)

    async def _enter(self) -> None:
        """Find or make the space."""
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
                    raise UnknownSpace(self.location)  # undone with the transaction; one of another role shows so
        if row is None:
            raise StoreUnavailable(
                f"the space {name!r} on {self.address.host} belongs to another role; name another with ?space=, or "
                f"the owner of the schema hands it over: "
                f"UPDATE {self.address.schema}.spaces SET role = '…' WHERE name = '{name}'"
            )
        self.number, self.id, self.generation = row
        self.words = PostgresWords(self.number)

    async def make_months(self, wanted: Collection[date]) -> None:
        """Make the partitions of these months, each named by its first day, unless they are there."""
        if missing := sorted(set(wanted) - self._months):
            async with self.transaction(WRITE) as connection:
                await connection.execute("SELECT make_month(month) FROM unnest($1::date[]) AS month", missing)
            self._months.update(missing)


class PostgresRole:
    """A role of a store: its methods are transactions in the space."""

    def __init__(self, space: PostgresSpace) -> None:
        self._space = space


def reading(
    method: Callable[Concatenate[S, Connection, P], Awaitable[R]],
) -> Callable[Concatenate[S, P], Coroutine[Any, Any, R]]:
    """A method of a role, run with a connection in a read-only transaction with one snapshot; retried when lost."""

    @wraps(method)
    async def run(role: S, /, *args: P.args, **kwargs: P.kwargs) -> R:
        async def once() -> R:
            async with role._space.transaction(READ) as connection:
                return await method(role, connection, *args, **kwargs)

        return await role._space.patiently(once)

    return run


async def read_purges(connection: Connection, space: int) -> Outstanding:
    """The purges that were added to a space."""
    rows = await connection.fetch("SELECT purge FROM purges WHERE space = $1", space)
    return Outstanding(msgspec.json.decode(encoded, type=Purge) for (encoded,) in rows)


def _months_from(day: date, count: int) -> list[date]:
    """The first days of so many months, from the one of this day."""
    first = day.year * 12 + day.month - 1
    return [date(month // 12, month % 12 + 1, 1) for month in range(first, first + count)]


async def _end(pool: Pool) -> None:
    try:
        await asyncio.wait_for(pool.close(), CONNECT_S)
    except (TimeoutError, *LOST):
        pool.terminate()  # somebody still holds a connection, or the server is gone

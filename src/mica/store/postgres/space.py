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

from mica.errors import MicaError, StoreUnavailable, UnknownSpace
from mica.model.event import Clock, microseconds, new_writer, utc_now
from mica.store.addresses import recall, remember_space
from mica.store.postgres.listen import PostgresListener
from mica.store.postgres.server import (
    CONNECT_S,
    CONNECTIONS_MAX,
    LOST,
    PATIENCE_S,
    Address,
    Connection,
    Pool,
    connect,
    discard,
    is_away,
    may_be_repeated,
    migrate,
    parse_address,
    translated,
)
from mica.store.postgres.words import Words

P = ParamSpec("P")
R = TypeVar("R")
S = TypeVar("S", bound="PostgresSpace")

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


def reading(
    method: Callable[Concatenate[S, Connection, P], Awaitable[R]],
) -> Callable[Concatenate[S, P], Coroutine[Any, Any, R]]:
    """The method, given a connection in a transaction of its own with one snapshot; tried twice when that is lost."""

    @wraps(method)
    async def run(store: S, /, *args: P.args, **kwargs: P.kwargs) -> R:
        async def once() -> R:
            async with store._transaction(READ) as connection:
                return await method(store, connection, *args, **kwargs)

        return await store._patiently(once)

    return run


class PostgresSpace:
    """What every verb of the shared store needs: connections, the schema, and the number of its space."""

    def __init__(self, address: Address, pool: Pool, *, home: Path | None = None, clock: Clock = utc_now) -> None:
        self._address = address
        self._home = home
        self._clock = clock
        self._pool: Pool | None = pool
        self._is_ready = False  # the schema was found in this version, and the space in it
        self._must_exist = False  # the space: it is not made
        self._readying = asyncio.Lock()
        self._listener: PostgresListener | None = None
        self._space = ""
        self._number = 0  # by which rows name the space
        self._words = Words(0)
        self._generation = -1  # of the words that are remembered: a purge takes some away
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
            known = None if home is None or not is_away(error) else recall(home, parsed)
            if known is None:
                raise
            store = cls(parsed, await connect(parsed, at_once=False), home=home, clock=clock)
            store._space = known
        return store

    async def _get_ready(self) -> None:
        """Find the schema and the space, and make what is missing; once, as soon as the server answers."""
        async with self._readying:
            if not self._is_ready:
                await self._repeatedly(self._prepare)
                await self._repeatedly(self._enter)
                self._is_ready = True
                if self._home is not None:
                    await asyncio.to_thread(remember_space, self._home, self._address, self._space)

    async def _prepare(self) -> None:
        await migrate(self._pool_or_raise(), self._address)
        await self._make_months(_months_from(self._clock().date(), MONTHS_AHEAD + 1))

    @property
    def space(self) -> str:
        return self._space

    @property
    def location(self) -> str:
        return str(self._address)

    @property
    def segments(self) -> Path | None:
        return None if self._home is None else self._home / "segments" / self._space

    def listen(self, ring: Callable[[], None]) -> Callable[[], None]:
        self._pool_or_raise()
        if self._listener is None:
            self._listener = PostgresListener(self._address, self._space)
        return self._listener.begin(ring)

    async def close(self) -> None:
        pool, self._pool = self._pool, None
        if self._listener is not None:
            await self._listener.close()
        if pool is not None:
            # Shielded: a cancelled close must not leave connections open.
            await asyncio.shield(_end(pool))

    # -- Transactions -----------------------------------------------------------------------------------------

    def _pool_or_raise(self) -> Pool:
        if self._pool is None:
            raise StoreUnavailable(f"the store {self._address} is closed; open it again")
        return self._pool

    @asynccontextmanager
    async def _transaction(self, level: str, *, patience_s: int | None = None) -> AsyncIterator[Connection]:
        begin = _BEGIN.format(
            level=level, schema=self._address.schema, space=self._space, patience_s=patience_s or PATIENCE_S
        )
        with translated(self._address):
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
            async with self._pool_or_raise().acquire(timeout=PATIENCE_S) as connection:
                try:
                    await connection.execute(begin)
                except LOST:
                    discard(connection)
                    if spent == CONNECTIONS_MAX:
                        raise
                else:
                    yield connection
                    return

    async def _patiently(self, once: Callable[[], Awaitable[R]]) -> R:
        """What `once` returns, in a space that was found."""
        if not self._is_ready:
            self._pool_or_raise()
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

    async def _enter(self) -> None:
        """Find or make the space."""
        name = self._address.space
        find = "SELECT number, id, generation FROM spaces WHERE name = $1"
        async with self._transaction(WRITE) as connection:
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
                f"the space {name!r} on {self._address.host} belongs to another role; name another with ?space=, or "
                f"the owner of the schema hands it over: "
                f"UPDATE {self._address.schema}.spaces SET role = '…' WHERE name = '{name}'"
            )
        self._number, self._space, self._generation = row
        self._words = Words(self._number)

    async def _make_months(self, wanted: Collection[date]) -> None:
        """Make the partitions of these months, each named by its first day, unless they are there."""
        if missing := sorted(set(wanted) - self._months):
            async with self._transaction(WRITE) as connection:
                await connection.execute("SELECT make_month(month) FROM unnest($1::date[]) AS month", missing)
            self._months.update(missing)


def _months_from(day: date, count: int) -> list[date]:
    """The first days of so many months, from the one of this day."""
    first = day.year * 12 + day.month - 1
    return [date(month // 12, month % 12 + 1, 1) for month in range(first, first + count)]


async def _end(pool: Pool) -> None:
    try:
        await asyncio.wait_for(pool.close(), CONNECT_S)
    except (TimeoutError, *LOST):
        pool.terminate()  # somebody still holds a connection, or the server is gone

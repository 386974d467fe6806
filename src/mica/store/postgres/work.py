"""The PostgreSQL implementation of `WorkQueue`, the queue of background work.

A claim skips rows that other claims have locked. Leases are measured by the clock of the server.
"""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime, timedelta
from itertools import count

from mica.errors import ClaimLost
from mica.model.event import microseconds, new_writer
from mica.store.leases import COLUMNS, Claim, Work, check_lease, check_moment, check_words, claim_of, work_of
from mica.store.postgres.server import Connection
from mica.store.postgres.space import WRITE, PostgresRole, reading

_NOW = "(extract(epoch FROM clock_timestamp()) * 1000000)::bigint"
_SOONER = """UPDATE SET
    due_at = CASE WHEN planned.claim IS NULL THEN least(planned.due_at, $4) ELSE planned.due_at END,
    again_at = CASE WHEN planned.claim IS NULL THEN NULL ELSE least(planned.again_at, $4) END"""
_OF_WORK = ", ".join(f"work.{column}" for column in COLUMNS.split(", "))


async def _plan(connection: Connection, space: int, kind: str, about: str, *, due_at: int, only_new: bool) -> None:
    await connection.execute(
        f"""INSERT INTO work AS planned (space, kind, about, due_at) VALUES ($1, $2, $3, $4)
        ON CONFLICT (space, kind, about) DO {"NOTHING" if only_new else _SOONER}""",
        space,
        kind,
        about,
        due_at,
    )


async def _claim(
    connection: Connection,
    space: int,
    identifier: str,
    kinds: Collection[str],
    *,
    owner: str,
    due_by: int,
    lease: timedelta,
) -> Claim | None:
    """Claim the unclaimed work with the earliest due time, if it is due by `due_by`; else return None.

    `identifier` is the id of the new claim. If an earlier attempt already claimed work with this id, but its answer was
    lost, the same work is returned.
    """
    row = await connection.fetchrow(
        f"""WITH chosen AS MATERIALIZED (
            SELECT kind, about FROM work WHERE space = $1 AND kind = ANY ($3) AND due_at <= $5
            AND (claim IS NULL OR claim = $2 OR held_until <= {_NOW})
            ORDER BY coalesce(claim = $2, false) DESC, due_at, kind, about LIMIT 1 FOR UPDATE SKIP LOCKED
        )
        UPDATE work SET claim = $2, owner = $4, held_until = {_NOW} + $6 FROM chosen
        WHERE work.space = $1 AND work.kind = chosen.kind AND work.about = chosen.about
        RETURNING {_OF_WORK}""",
        space,
        identifier,
        list(kinds),
        owner,
        due_by,
        lease // timedelta(microseconds=1),
    )
    return None if row is None else claim_of(identifier, row)


async def _renew(connection: Connection, space: int, held: Claim, *, lease: timedelta) -> Claim | None:
    """Start the lease again now and return the renewed claim.

    Return None if another claim holds the work now, or if the work is finished.
    """
    row = await connection.fetchrow(
        f"""UPDATE work SET held_until = {_NOW} + $5 WHERE space = $1 AND kind = $2 AND about = $3 AND claim = $4
        RETURNING {COLUMNS}""",
        space,
        held.kind,
        held.about,
        held.id,
        lease // timedelta(microseconds=1),
    )
    return None if row is None else claim_of(held.id, row)


async def _finish(connection: Connection, space: int, held: Claim, *, again_at: int | None) -> bool:
    """Remove the work or plan it again, and return True.

    Return False if another claim holds the work now, or if the work is finished already.
    """
    key = (space, held.kind, held.about, held.id)
    row = await connection.fetchrow(
        """SELECT least(again_at, $5) FROM work WHERE space = $1 AND kind = $2 AND about = $3 AND claim = $4
        FOR UPDATE""",
        *key,
        again_at,
    )
    if row is None:
        return False
    if row[0] is None:
        await connection.execute("DELETE FROM work WHERE space = $1 AND kind = $2 AND about = $3 AND claim = $4", *key)
    else:
        await connection.execute(
            """UPDATE work SET due_at = $5, again_at = NULL, claim = NULL, owner = NULL, held_until = NULL
            WHERE space = $1 AND kind = $2 AND about = $3 AND claim = $4""",
            *key,
            row[0],
        )
    return True


async def _all_work(connection: Connection, space: int) -> list[Work]:
    rows = await connection.fetch(f"SELECT {COLUMNS} FROM work WHERE space = $1 ORDER BY due_at, kind, about", space)
    return [work_of(row) for row in rows]


class PostgresWork(PostgresRole):
    """Implements `WorkQueue` in PostgreSQL."""

    async def plan(self, kind: str, *, about: str = "", due_at: datetime, only_new: bool = False) -> None:
        check_words(kind=kind, about=about)
        check_moment("due_at", due_at)

        async def once() -> None:
            async with self._space.transaction(WRITE) as connection:
                await _plan(connection, self._space.number, kind, about, due_at=microseconds(due_at), only_new=only_new)

        await self._space.run_with_retries(once)

    async def claim(self, kinds: Collection[str], *, owner: str, due_by: datetime, lease: timedelta) -> Claim | None:
        check_words(owner=owner)
        check_moment("due_by", due_by)
        check_lease(lease)
        identifier = new_writer()  # the same for all attempts, so that a retry gets the work that a lost one claimed

        async def once() -> Claim | None:
            async with self._space.transaction(WRITE) as connection:
                return await _claim(
                    connection,
                    self._space.number,
                    identifier,
                    kinds,
                    owner=owner,
                    due_by=microseconds(due_by),
                    lease=lease,
                )

        return await self._space.run_with_retries(once)

    async def renew(self, claim: Claim, *, lease: timedelta) -> Claim:
        check_lease(lease)

        async def once() -> Claim | None:
            async with self._space.transaction(WRITE) as connection:
                return await _renew(connection, self._space.number, claim, lease=lease)

        renewed = await self._space.run_with_retries(once)
        if renewed is None:
            raise ClaimLost(claim.kind, claim.about, claim.owner)
        return renewed

    async def finish(self, claim: Claim, *, again_at: datetime | None = None) -> None:
        if again_at is not None:
            check_moment("again_at", again_at)
        tries = count(1)

        async def once() -> bool:
            is_first = next(tries) == 1
            async with self._space.transaction(WRITE) as connection:
                is_ours = await _finish(
                    connection, self._space.number, claim, again_at=None if again_at is None else microseconds(again_at)
                )
            return is_ours or not is_first  # an earlier attempt was committed, but its answer was lost

        if not await self._space.run_with_retries(once):
            raise ClaimLost(claim.kind, claim.about, claim.owner)

    @reading
    async def all(self, connection: Connection) -> list[Work]:
        return await _all_work(connection, self._space.number)

"""The PostgreSQL implementation of `TrailTable`, the trails learned from the log."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from mica.model.event import microseconds
from mica.model.trail import LearnedUpTo, Trail, TrailQuery
from mica.store.postgres.append import WriteTransaction
from mica.store.postgres.server import Connection
from mica.store.postgres.space import PostgresRole, reading

TABLES = ("trails", "lessons")


async def clear(connection: Connection, space: int) -> None:
    """Delete all trails of a space. They can be learned again from the log."""
    for table in TABLES:
        await connection.execute(f"DELETE FROM {table} WHERE space = $1", space)


class PostgresTrails(PostgresRole):
    """Implements `TrailTable` in PostgreSQL."""

    async def save(self, trails: Sequence[Trail], lesson: LearnedUpTo) -> bool:
        async def replace(writing: WriteTransaction) -> bool:
            connection, space = writing.connection, self._space.number
            now = await _learned(connection, space)
            if now.generation != lesson.generation or now.position > lesson.position:
                return False
            await clear(connection, space)
            await connection.execute(
                """INSERT INTO trails (space, key, slug, shape, runs, last_at, trail) SELECT $1, *
                FROM unnest($2::text[], $3::text[], $4::bytea[], $5::bigint[], $6::bigint[], $7::bytea[])""",
                space,
                [each.key for each in trails],
                [each.slug for each in trails],
                [each.shape.encode() for each in trails],
                [each.runs for each in trails],
                [microseconds(each.last_at) for each in trails],
                [msgspec.json.encode(each) for each in trails],
            )
            await connection.execute("INSERT INTO lessons (space, position) VALUES ($1, $2)", space, lesson.position)
            return True

        return await self._space.write(replace)

    @reading
    async def learned_up_to(self, connection: Connection) -> LearnedUpTo:
        return await _learned(connection, self._space.number)

    @reading
    async def query(self, connection: Connection, query: TrailQuery) -> list[Trail]:
        values: list[object] = [self._space.number, query.limit]
        conditions = ["space = $1"]
        for column, value in (("slug", query.slug), ("shape", None if query.shape is None else query.shape.encode())):
            if value is not None:
                values.append(value)
                conditions.append(f"{column} = ${len(values)}")
        order = "runs DESC, last_at DESC, key" if query.order == "runs" else "last_at DESC, runs DESC, key"
        rows = await connection.fetch(
            f"SELECT trail FROM trails WHERE {' AND '.join(conditions)} ORDER BY {order} LIMIT $2::bigint", *values
        )
        return [msgspec.json.decode(encoded, type=Trail) for (encoded,) in rows]


async def _learned(connection: Connection, space: int) -> LearnedUpTo:
    row = await connection.fetchrow(
        """SELECT coalesce((SELECT position FROM lessons WHERE space = $1), 0), generation
        FROM spaces WHERE number = $1""",
        space,
    )
    return LearnedUpTo(position=row[0], generation=row[1])

"""Trails in the shared store: rows that were learned from the log."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from mica.model.event import microseconds
from mica.model.trail import Lesson, Trail, TrailQuery
from mica.store.postgres.server import Connection

TABLES = ("trails", "lessons")


async def save(connection: Connection, space: int, trails: Sequence[Trail], lesson: Lesson) -> bool:
    """Keep these in place of all others, unless more of the log was learned or something was purged meanwhile."""
    now = await lesson_of(connection, space)
    if now.generation != lesson.generation or now.position > lesson.position:
        return False
    await clear(connection, space)
    await connection.execute(
        """INSERT INTO trails (space, key, slug, shape, runs, last_at, trail)
        SELECT $1, * FROM unnest($2::text[], $3::text[], $4::bytea[], $5::bigint[], $6::bigint[], $7::bytea[])""",
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


async def lesson_of(connection: Connection, space: int) -> Lesson:
    row = await connection.fetchrow(
        """SELECT coalesce((SELECT position FROM lessons WHERE space = $1), 0), generation
        FROM spaces WHERE number = $1""",
        space,
    )
    return Lesson(position=row[0], generation=row[1])


async def found(connection: Connection, space: int, query: TrailQuery) -> list[Trail]:
    values: list[object] = [space, query.limit]
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


async def clear(connection: Connection, space: int) -> None:
    """Forget all trails: they are learned again."""
    for table in TABLES:
        await connection.execute(f"DELETE FROM {table} WHERE space = $1", space)

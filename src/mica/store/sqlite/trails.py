"""Trails in the embedded store: rows that were learned from the log."""

from __future__ import annotations

from collections.abc import Sequence

import apsw
import msgspec

from mica.model.event import microseconds
from mica.model.trail import Lesson, Trail, TrailQuery


def save(connection: apsw.Connection, trails: Sequence[Trail], lesson: Lesson) -> bool:
    """Keep these in place of all others, unless more of the log was learned or something was purged meanwhile."""
    now = lesson_of(connection)
    if now.generation != lesson.generation or now.position > lesson.position:
        return False
    clear(connection)
    connection.executemany(
        "INSERT INTO trails (key, slug, shape, runs, last_at, trail) VALUES (?, ?, ?, ?, ?, ?)",
        [
            (each.key, each.slug, each.shape, each.runs, microseconds(each.last_at), msgspec.json.encode(each).decode())
            for each in trails
        ],
    )
    connection.execute("INSERT INTO lessons (position) VALUES (?)", (lesson.position,))
    return True


def lesson_of(connection: apsw.Connection) -> Lesson:
    row = connection.execute("SELECT coalesce((SELECT position FROM lessons), 0), generation FROM space").fetchone()
    return Lesson(position=row[0], generation=row[1]) if row is not None else Lesson()


def found(connection: apsw.Connection, query: TrailQuery) -> list[Trail]:
    given = {"slug": query.slug, "shape": query.shape}
    conditions = [f"{column} = ?" for column, value in given.items() if value is not None]
    order = "runs DESC, last_at DESC, key" if query.order == "runs" else "last_at DESC, runs DESC, key"
    rows = connection.execute(
        f"SELECT trail FROM trails WHERE {' AND '.join(conditions) or '1'} ORDER BY {order} LIMIT ?",
        (*(value for value in given.values() if value is not None), -1 if query.limit is None else query.limit),
    )
    return [msgspec.json.decode(row[0], type=Trail) for row in rows]


def clear(connection: apsw.Connection) -> None:
    """Forget all trails: they are learned again."""
    connection.execute("DELETE FROM trails")
    connection.execute("DELETE FROM lessons")

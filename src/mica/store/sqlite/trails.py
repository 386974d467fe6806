"""The SQLite implementation of `TrailTable`, the trails learned from the log."""

from __future__ import annotations

from collections.abc import Sequence

import apsw
import msgspec

from mica.model.event import microseconds
from mica.model.trail import LearnedUpTo, Trail, TrailQuery
from mica.store.sqlite.core import SqliteCore
from mica.store.sqlite.file import Row, values_checksum
from mica.store.sqlite.worker import SqliteRole, threaded


def clear(connection: apsw.Connection) -> None:
    """Delete all trails. They can be learned again from the log."""
    connection.execute("DELETE FROM trails")
    connection.execute("DELETE FROM lessons")


def _save(core: SqliteCore, trails: Sequence[Trail], lesson: LearnedUpTo) -> bool:
    with core.writing():
        now = _learned(core)
        if now.generation != lesson.generation or now.position > lesson.position:
            return False
        clear(core.connection)
        core.connection.executemany(
            "INSERT INTO trails (key, slug, shape, runs, last_at, trail, crc) VALUES (?, ?, ?, ?, ?, ?, ?)",
            [(*row, values_checksum(*row)) for row in map(_row, trails)],
        )
        core.connection.execute("INSERT INTO lessons (position) VALUES (?)", (lesson.position,))
        return True


def _learned_up_to(core: SqliteCore) -> LearnedUpTo:
    with core.reading():
        return _learned(core)


def _query(core: SqliteCore, query: TrailQuery) -> list[Trail]:
    values = {"slug": query.slug, "shape": query.shape}
    conditions = [f"{column} = ?" for column, value in values.items() if value is not None]
    order = "runs DESC, last_at DESC, key" if query.order == "runs" else "last_at DESC, runs DESC, key"
    with core.reading():
        rows = core.rows(
            f"SELECT trail FROM trails WHERE {' AND '.join(conditions) or '1'} ORDER BY {order} LIMIT ?",
            (*(value for value in values.values() if value is not None), -1 if query.limit is None else query.limit),
        )
        return [msgspec.json.decode(row[0], type=Trail) for row in rows]


def _learned(core: SqliteCore) -> LearnedUpTo:
    position, generation = core.one("SELECT coalesce((SELECT position FROM lessons), 0), generation FROM space")
    return LearnedUpTo(position=position, generation=generation)


def _row(trail: Trail) -> Row:
    encoded = msgspec.json.encode(trail).decode()
    return trail.key, trail.slug, trail.shape, trail.runs, microseconds(trail.last_at), encoded


class SqliteTrails(SqliteRole):
    """Implements `TrailTable` in a SQLite file."""

    save = threaded(_save)
    learned_up_to = threaded(_learned_up_to)
    query = threaded(_query)

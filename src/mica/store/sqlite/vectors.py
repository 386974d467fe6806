"""The SQLite implementation of `VectorIndex`, the embedding vectors of marks."""

from __future__ import annotations

from collections.abc import Mapping

from mica.model.mark import Vectors, searchable_text
from mica.store.sqlite.core import SqliteCore
from mica.store.sqlite.file import values_checksum
from mica.store.sqlite.worker import SqliteRole, threaded


def _save(core: SqliteCore, model: str, vectors: Mapping[int, bytes]) -> None:
    with core.writing():
        core.connection.executemany(
            """INSERT OR REPLACE INTO vectors (position, model, vector, crc)
            SELECT position, ?, ?, ? FROM texts WHERE position = ? AND is_mark""",
            [
                (model, vector, values_checksum(position, model, vector), position)
                for position, vector in sorted(vectors.items())
            ],
        )


def _read(core: SqliteCore, model: str, *, after: int = 0, limit: int) -> Vectors:
    latest = "SELECT position, vector FROM vectors WHERE position > ? AND model = ? ORDER BY position DESC LIMIT ?"
    with core.reading():
        count = int(core.one("SELECT count(*) FROM vectors WHERE model = ?", (model,))[0])
        rows = list(core.rows(latest, (after, model, limit)))
    return Vectors(count, tuple((position, vector) for position, vector in reversed(rows)))


def _missing(core: SqliteCore, model: str, *, limit: int) -> list[tuple[int, str]]:
    missing = """SELECT position FROM texts WHERE is_mark
        AND NOT EXISTS (SELECT 1 FROM vectors WHERE vectors.position = texts.position AND model = ?)
        ORDER BY position DESC LIMIT ?"""
    with core.reading():
        found = core.at([position for (position,) in core.rows(missing, (model, limit))])
    return [(event.position or 0, searchable_text(event) or "") for event in reversed(found)]


class SqliteVectors(SqliteRole):
    """Implements `VectorIndex` in a SQLite file."""

    save = threaded(_save)
    read = threaded(_read)
    missing = threaded(_missing)

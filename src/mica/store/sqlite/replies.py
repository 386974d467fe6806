"""The SQLite implementation of `ReplyTable`, the cache of source replies."""

from __future__ import annotations

from collections.abc import Sequence

import apsw

from mica.model.event import microseconds
from mica.model.mark import Reply
from mica.store.codec import moment
from mica.store.protocol import REPLIES_MAX
from mica.store.sqlite.core import SqliteCore
from mica.store.sqlite.file import Row, values_checksum
from mica.store.sqlite.worker import SqliteRole, threaded


def clear(connection: apsw.Connection) -> None:
    """Delete all cached replies. The sources are asked again when needed."""
    connection.execute("DELETE FROM replies")


def _save(core: SqliteCore, replies: Sequence[Reply], *, generation: int) -> bool:
    with core.writing():
        if core.generation != generation:
            return False
        core.connection.executemany(
            """INSERT INTO replies (concept, source, at, position, declared, reply, crc) VALUES (?, ?, ?, ?, ?, ?, ?)
            ON CONFLICT (concept, source) DO UPDATE SET at = excluded.at, position = excluded.position,
                declared = excluded.declared, reply = excluded.reply, crc = excluded.crc
                WHERE excluded.at >= replies.at""",
            [(*row, values_checksum(*row)) for row in map(_row, core.purge_filter.without_purged(replies))],
        )
        core.connection.execute(
            "DELETE FROM replies WHERE at < (SELECT at FROM replies ORDER BY at DESC LIMIT 1 OFFSET ?)",
            (REPLIES_MAX - 1,),
        )
        return True


def _row(reply: Reply) -> Row:
    at = microseconds(reply.at)
    return reply.concept, reply.source, at, reply.position, reply.declared, reply.body.decode()


def _read(core: SqliteCore, concept: str) -> list[Reply]:
    with core.reading():
        rows = core.rows(
            "SELECT concept, source, at, position, declared, reply FROM replies WHERE concept = ? ORDER BY source",
            (concept,),
        )
        return [
            Reply(concept=about, source=source, at=moment(at), position=position, declared=declared, body=body.encode())
            for about, source, at, position, declared, body in rows
        ]


def _concepts(core: SqliteCore) -> list[str]:
    with core.reading():
        return [row[0] for row in core.rows("SELECT DISTINCT concept FROM replies ORDER BY concept")]


class SqliteReplies(SqliteRole):
    """Implements `ReplyTable` in a SQLite file."""

    save = threaded(_save)
    read = threaded(_read)
    concepts = threaded(_concepts)

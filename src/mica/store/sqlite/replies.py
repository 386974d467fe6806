"""What sources replied, in the embedded store."""

from __future__ import annotations

from collections.abc import Sequence

import apsw

from mica.model.event import Reply, microseconds
from mica.store.codec import moment
from mica.store.protocol import REPLIES_MAX
from mica.store.sqlite.trails import lesson_of


def save(connection: apsw.Connection, replies: Sequence[Reply], *, generation: int) -> bool:
    """Keep these in place of earlier ones, unless something was purged since."""
    if lesson_of(connection).generation != generation:
        return False
    connection.executemany(
        """INSERT INTO replies (concept, source, at, position, declared, reply) VALUES (?, ?, ?, ?, ?, ?)
        ON CONFLICT (concept, source) DO UPDATE SET at = excluded.at, position = excluded.position,
            declared = excluded.declared, reply = excluded.reply WHERE excluded.at >= replies.at""",
        [
            (each.concept, each.source, microseconds(each.at), each.position, each.declared, each.body.decode())
            for each in replies
        ],
    )
    connection.execute(
        "DELETE FROM replies WHERE at < (SELECT at FROM replies ORDER BY at DESC LIMIT 1 OFFSET ?)", (REPLIES_MAX - 1,)
    )
    return True


def found(connection: apsw.Connection, concept: str) -> list[Reply]:
    rows = connection.execute(
        "SELECT concept, source, at, position, declared, reply FROM replies WHERE concept = ? ORDER BY source",
        (concept,),
    )
    return [
        Reply(concept=asked, source=source, at=moment(at), position=position, declared=declared, body=reply.encode())
        for asked, source, at, position, declared, reply in rows
    ]


def concepts(connection: apsw.Connection) -> list[str]:
    return [row[0] for row in connection.execute("SELECT DISTINCT concept FROM replies ORDER BY concept")]


def clear(connection: apsw.Connection) -> None:
    """Forget all: they are asked for again."""
    connection.execute("DELETE FROM replies")

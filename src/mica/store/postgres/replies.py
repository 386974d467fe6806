"""What sources replied, in the shared store."""

from __future__ import annotations

from collections.abc import Sequence

from mica.model.event import Reply, microseconds
from mica.store.codec import moment
from mica.store.postgres.server import Connection
from mica.store.postgres.trails import lesson_of
from mica.store.protocol import REPLIES_MAX

TABLE = "replies"


async def save(connection: Connection, space: int, replies: Sequence[Reply], *, generation: int) -> bool:
    """Keep these in place of earlier ones, unless something was purged since."""
    if (await lesson_of(connection, space)).generation != generation:
        return False
    await connection.execute(
        """INSERT INTO replies (space, concept, source, at, position, declared, reply)
        SELECT $1, * FROM unnest($2::bytea[], $3::text[], $4::bigint[], $5::bigint[], $6::text[], $7::bytea[])
        ON CONFLICT (space, concept, source) DO UPDATE SET at = excluded.at, position = excluded.position,
            declared = excluded.declared, reply = excluded.reply WHERE excluded.at >= replies.at""",
        space,
        [each.concept.encode() for each in replies],
        [each.source for each in replies],
        [microseconds(each.at) for each in replies],
        [each.position for each in replies],
        [each.declared for each in replies],
        [each.body for each in replies],
    )
    await connection.execute(
        """DELETE FROM replies WHERE space = $1
            AND at < (SELECT at FROM replies WHERE space = $1 ORDER BY at DESC LIMIT 1 OFFSET $2)""",
        space,
        REPLIES_MAX - 1,
    )
    return True


async def found(connection: Connection, space: int, concept: str) -> list[Reply]:
    rows = await connection.fetch(
        """SELECT concept, source, at, position, declared, reply FROM replies
        WHERE space = $1 AND concept = $2 ORDER BY source""",
        space,
        concept.encode(),
    )
    return [
        Reply(concept=asked.decode(), source=source, at=moment(at), position=position, declared=declared, body=reply)
        for asked, source, at, position, declared, reply in rows
    ]


async def concepts(connection: Connection, space: int) -> list[str]:
    rows = await connection.fetch("SELECT DISTINCT concept FROM replies WHERE space = $1 ORDER BY concept", space)
    return [concept.decode() for (concept,) in rows]


async def clear(connection: Connection, space: int) -> None:
    """Forget all: they are asked for again."""
    await connection.execute("DELETE FROM replies WHERE space = $1", space)

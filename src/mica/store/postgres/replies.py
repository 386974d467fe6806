"""The PostgreSQL implementation of `ReplyTable`, the cache of source replies."""

from __future__ import annotations

from collections.abc import Sequence

from mica.model.event import microseconds
from mica.model.mark import Reply
from mica.store.codec import moment
from mica.store.postgres.append import WriteTransaction
from mica.store.postgres.server import Connection
from mica.store.postgres.space import PostgresRole, reading
from mica.store.protocol import REPLIES_MAX

TABLE = "replies"


async def clear(connection: Connection, space: int) -> None:
    """Delete all cached replies of a space. The sources are asked again when needed."""
    await connection.execute("DELETE FROM replies WHERE space = $1", space)


class PostgresReplies(PostgresRole):
    """Implements `ReplyTable` in PostgreSQL."""

    async def save(self, replies: Sequence[Reply], *, generation: int) -> bool:
        async def insert(writing: WriteTransaction) -> bool:
            assert self._space.purge_filter is not None  # set when the space was locked
            if self._space.generation != generation:
                return False
            await _insert(writing.connection, self._space.number, self._space.purge_filter.without_purged(replies))
            return True

        return await self._space.write(insert)

    @reading
    async def read(self, connection: Connection, concept: str) -> list[Reply]:
        rows = await connection.fetch(
            """SELECT concept, source, at, position, declared, reply FROM replies
            WHERE space = $1 AND concept = $2 ORDER BY source""",
            self._space.number,
            concept.encode(),
        )
        return [
            Reply(concept=about.decode(), source=source, at=moment(at), position=position, declared=declared, body=body)
            for about, source, at, position, declared, body in rows
        ]

    @reading
    async def concepts(self, connection: Connection) -> list[str]:
        rows = await connection.fetch(
            "SELECT DISTINCT concept FROM replies WHERE space = $1 ORDER BY concept", self._space.number
        )
        return [concept.decode() for (concept,) in rows]


async def _insert(connection: Connection, space: int, replies: Sequence[Reply]) -> None:
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

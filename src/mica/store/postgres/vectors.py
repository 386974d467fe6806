"""The PostgreSQL implementation of `VectorIndex`, the embedding vectors of marks."""

from __future__ import annotations

from collections.abc import Mapping

from mica.model.mark import Vectors, searchable_text
from mica.store.postgres.append import WriteTransaction
from mica.store.postgres.server import Connection
from mica.store.postgres.space import PostgresRole, reading
from mica.store.postgres.texts import possible_positions


class PostgresVectors(PostgresRole):
    """Implements `VectorIndex` in PostgreSQL."""

    async def save(self, model: str, vectors: Mapping[int, bytes]) -> None:
        known = {position: vectors[position] for position in possible_positions(vectors)}

        async def insert(writing: WriteTransaction) -> None:
            # Writers wait for each other: either a purge removes these vectors, or it has already removed their texts.
            await writing.connection.execute(
                """INSERT INTO vectors (space, position, model, vector)
                SELECT $1, texts.position, $2, computed.vector
                FROM unnest($3::bigint[], $4::bytea[]) AS computed (position, vector)
                JOIN texts ON texts.space = $1 AND texts.position = computed.position AND texts.is_mark
                ON CONFLICT (space, position) DO UPDATE SET model = excluded.model, vector = excluded.vector""",
                self._space.number,
                model,
                list(known),
                list(known.values()),
            )

        await self._space.write(insert)

    @reading
    async def read(self, connection: Connection, model: str, *, after: int = 0, limit: int) -> Vectors:
        count = await connection.fetchval(
            "SELECT count(*) FROM vectors WHERE space = $1 AND model = $2", self._space.number, model
        )
        rows = await connection.fetch(
            """SELECT position, vector FROM vectors WHERE space = $1 AND position > $3 AND model = $2
            ORDER BY position DESC LIMIT $4""",
            self._space.number,
            model,
            after,
            limit,
        )
        return Vectors(int(count), tuple((position, vector) for position, vector in reversed(rows)))

    @reading
    async def missing(self, connection: Connection, model: str, *, limit: int) -> list[tuple[int, str]]:
        rows = await connection.fetch(
            """SELECT position FROM texts WHERE space = $1 AND is_mark AND NOT EXISTS (
                SELECT FROM vectors WHERE vectors.space = $1 AND vectors.position = texts.position AND model = $2
            ) ORDER BY position DESC LIMIT $3""",
            self._space.number,
            model,
            limit,
        )
        found = await self._space.reads(connection).at([position for (position,) in rows])
        return [(event.position or 0, searchable_text(event) or "") for event in reversed(found)]

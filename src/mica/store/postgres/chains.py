"""The PostgreSQL implementation of `ChainIndex`, the lookup of related events."""

from __future__ import annotations

from mica.errors import InvalidEvent
from mica.model.event import Event, EventId, WriterId, split_id
from mica.store.postgres.server import Connection
from mica.store.postgres.space import PostgresRole, reading
from mica.store.postgres.statements import AT_FOUND, AT_KEYS, HERE, OF_WRITER
from mica.store.postgres.words import read


class PostgresChains(PostgresRole):
    """Implements `ChainIndex` in PostgreSQL."""

    @reading
    async def chain(self, connection: Connection, correlation: str) -> list[Event]:
        try:
            writer, sequence = split_id(correlation)
        except InvalidEvent:
            writer, sequence = WriterId(""), -1  # no root has this id
        return await self._space.reads(connection).select(
            f"""FROM (
                SELECT at, position FROM events
                WHERE space = {HERE} AND root_writer = {OF_WRITER} AND root_sequence = $3
                UNION
                SELECT events.at, events.position FROM contexts CROSS JOIN LATERAL (
                    SELECT at, position FROM events WHERE space = {HERE} AND context = contexts.id OFFSET 0
                ) AS events WHERE contexts.space = {HERE} AND contexts.correlation = $4
            ) AS found {AT_FOUND} ORDER BY events.at, events.position""",
            writer,
            sequence,
            correlation.encode(),
        )

    @reading
    async def ancestors(self, connection: Connection, identifier: EventId) -> list[Event]:
        return await self._space.reads(connection).select(
            f"""FROM (
                WITH RECURSIVE line (at, position, writer, sequence) AS (
                    SELECT NULL::bigint, NULL::bigint, parent_writer, parent_sequence FROM keys {AT_KEYS}
                    WHERE keys.space = {HERE} AND keys.writer = {OF_WRITER} AND keys.sequence = $3
                    UNION
                    SELECT events.at, events.position, events.parent_writer, events.parent_sequence FROM line
                    CROSS JOIN LATERAL (
                        SELECT * FROM keys WHERE space = {HERE}
                            AND writer = line.writer AND sequence = line.sequence OFFSET 0
                    ) AS keys {AT_KEYS}
                )
                SELECT at, position FROM line WHERE position IS NOT NULL
            ) AS found {AT_FOUND} ORDER BY depth DESC""",
            *split_id(identifier),
        )

    @reading
    async def descendants(
        self, connection: Connection, identifier: EventId, *, depth: int | None = None
    ) -> list[Event]:
        return await self._space.reads(connection).select(
            f"""FROM (
                WITH RECURSIVE deepest (depth) AS (
                    SELECT events.depth + $4::bigint FROM keys {AT_KEYS}
                    WHERE keys.space = {HERE} AND keys.writer = {OF_WRITER} AND keys.sequence = $3
                ), below (at, position, writer, sequence) AS (
                    SELECT NULL::bigint, NULL::bigint, {OF_WRITER}, $3::bigint
                    UNION
                    SELECT events.at, events.position, events.writer, events.sequence FROM below
                    CROSS JOIN LATERAL (
                        SELECT * FROM events WHERE space = {HERE}
                            AND parent_writer = below.writer AND parent_sequence = below.sequence OFFSET 0
                    ) AS events WHERE events.depth <= coalesce((SELECT depth FROM deepest), events.depth)
                )
                SELECT at, position FROM below WHERE position IS NOT NULL
            ) AS found {AT_FOUND} ORDER BY events.at, events.position""",
            *split_id(identifier),
            depth,
        )

    @reading
    async def agents(self, connection: Connection) -> list[str]:
        rows = await connection.fetch(
            "SELECT DISTINCT agent FROM contexts WHERE space = $1 AND agent IS NOT NULL ORDER BY agent",
            self._space.number,
        )
        return [read(agent) for (agent,) in rows]

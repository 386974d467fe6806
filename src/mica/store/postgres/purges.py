"""The PostgreSQL implementation of `PurgeLog`, the removal of event content.

A purge turns rows of events into tombstones, and deletes the interned words (names, sessions and terms that are stored
once and referred to by number) that no row refers to any more.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from mica.model.event import EMPTY, PURGED, Event, EventId, Tombstone, is_tombstone, make_tombstone, microseconds
from mica.model.mark import searchable_text
from mica.store.postgres import beliefs as postgres_beliefs
from mica.store.postgres import crystals as postgres_crystals
from mica.store.postgres import replies as postgres_replies
from mica.store.postgres import trails as postgres_trails
from mica.store.postgres.append import WriteTransaction
from mica.store.postgres.server import LONG_S, PATIENCE_S, Connection, authority, translated
from mica.store.postgres.space import PostgresRole, read_purges, reading
from mica.store.postgres.statements import HERE
from mica.store.postgres.words import PostgresWords
from mica.store.purges import Purge
from mica.words import terms

TABLES = (
    "events", "keys", "payloads", "contexts", "names", "sessions", "terms", "texts", "postings", "vectors",
    *postgres_crystals.TABLES, *postgres_trails.TABLES, *postgres_beliefs.TABLES, postgres_replies.TABLE,
)  # fmt: skip

# For each table of interned words, the rows that refer to a word. Contexts refer to sessions, so their unused rows are
# deleted first.
_REFERRED = {
    "names": ("events", "name = names.id"),
    "contexts": ("events", "context = contexts.id"),
    "sessions": ("contexts", "session = sessions.id"),  # texts have the same sessions
    "terms": ("postings", "term = terms.id"),
}
# An index lookup for each word. OFFSET 0 stops the planner from joining all referring rows instead.
_UNUSED = f"NOT EXISTS (SELECT FROM {{}} WHERE space = {HERE} AND {{}} OFFSET 0)"
# The time range lets the planner read only the events in it. With time and position alone it expects almost no rows and
# reads the whole log, once for each step of a purge.
_WANTED = f"""events.space = {HERE} AND events.at BETWEEN $3 AND $4
    AND events.at = wanted.at AND events.position = wanted.position"""
_USED = f"""SELECT array_agg(DISTINCT events.name), array_agg(DISTINCT events.context),
        array_agg(DISTINCT contexts.session), array_agg(DISTINCT events.payload)
    FROM unnest($2::bigint[], $5::bigint[]) AS wanted (at, position) JOIN events ON {_WANTED}
    JOIN contexts ON contexts.space = {HERE} AND contexts.id = events.context"""
_BURY = f"""UPDATE events SET name = $7, context = $8, data = wanted.data, payload = NULL, error = false
    FROM unnest($2::bigint[], $5::bigint[], $6::bytea[]) AS wanted (at, position, data) WHERE {_WANTED}"""
# An index lookup for each posting. A plain join reads the postings of the whole space.
_UNINDEX = f"""DELETE FROM postings WHERE ctid = ANY (ARRAY(
        SELECT found.ctid FROM unnest($2::integer[], $3::bigint[]) AS wanted (term, position)
        CROSS JOIN LATERAL (
            SELECT ctid FROM postings
            WHERE space = {HERE} AND postings.term = wanted.term AND postings.position = wanted.position OFFSET 0
        ) AS found
    ))"""


async def bury_events(
    connection: Connection, space: int, words: PostgresWords, events: Sequence[Event], cause: Tombstone
) -> None:
    """Replace these events by tombstones, and delete everything that only they refer to.

    Must be called in a transaction that holds the lock of the space.
    """
    times, positions = [microseconds(event.at) for event in events], [event.position or 0 for event in events]
    places = times, min(times), max(times), positions
    name = (await words.numbers(connection, "names", [PURGED]))[PURGED]
    context = (await words.context_numbers(connection, [EMPTY]))[EMPTY]
    async with authority(connection, space, "purge"):
        names, contexts, sessions, payloads = await connection.fetchrow(_USED, space, *places)
        used = {"names": names, "contexts": contexts, "sessions": sessions}
        used["terms"] = await _unindex(connection, space, events)
        await postgres_crystals.bury(connection, space, positions)
        await postgres_trails.clear(connection, space)
        await postgres_beliefs.clear(connection, space)
        await postgres_replies.clear(connection, space)
        bodies = [make_tombstone(event, cause).body for event in events]
        await connection.execute(_BURY, space, *places, bodies, name, context)
        for table, referring in _REFERRED.items():
            await connection.execute(
                f"DELETE FROM {table} WHERE space = $1 AND id = ANY ($2::integer[]) AND {_UNUSED.format(*referring)}",
                space,
                used[table],
            )
        await connection.execute(
            f"""DELETE FROM payloads WHERE space = $1 AND digest = ANY ($2::bytea[])
                AND {_UNUSED.format("events", "payload = payloads.digest")}""",
            space,
            payloads,
        )
    await _advance_generation(connection, space)


async def _advance_generation(connection: Connection, space: int) -> None:
    """Increment the generation of a space, so that every process empties its caches."""
    await connection.execute("UPDATE spaces SET generation = generation + 1 WHERE number = $1", space)


async def _unindex(connection: Connection, space: int, events: Iterable[Event]) -> list[int]:
    """Remove events from the full-text index; returns the row ids of the terms in their texts."""
    pairs = [(event.position, term) for event in events for term in sorted(set(terms(searchable_text(event) or "")))]
    rows = await connection.fetch(
        "SELECT id, name FROM terms WHERE space = $1 AND name = ANY ($2)", space, sorted({term for _, term in pairs})
    )
    numbers = {name: number for number, name in rows}
    known = [(numbers[term], position) for position, term in pairs if term in numbers]
    await connection.execute(
        _UNINDEX,
        space,
        [number for number, _ in known],
        [position for _, position in known],
    )
    for table in ("texts", "vectors"):
        await connection.execute(
            f"DELETE FROM {table} WHERE space = $1 AND position = ANY ($2::bigint[])",
            space,
            [event.position for event in events],
        )
    return sorted(numbers.values())


class PostgresPurges(PostgresRole):
    """Implements `PurgeLog` in PostgreSQL."""

    @property
    def generation(self) -> int:
        return self._space.generation

    async def bury(self, identifiers: Sequence[EventId], cause: Tombstone) -> int:
        async def replace(writing: WriteTransaction) -> int:
            positions = await writing.positions_of(set(identifiers))
            events = await self._space.reads(writing.connection).at(positions.values())
            content = [event for event in events if not is_tombstone(event)]
            if content:
                await bury_events(writing.connection, self._space.number, self._space.words, content, cause)
            return len(content)

        try:
            return await self._space.write(replace)
        finally:
            self._space.words.forget()

    async def add(self, purge: Purge) -> None:
        async def insert(writing: WriteTransaction) -> None:
            connection, space = writing.connection, self._space.number
            await connection.execute(
                "INSERT INTO purges (space, id, purge) VALUES ($1, $2, $3) ON CONFLICT DO NOTHING",
                space,
                purge.tombstone.purge,
                msgspec.json.encode(purge),
            )
            await postgres_replies.clear(connection, space)
            await _advance_generation(connection, space)

        await self._space.write(insert)

    @reading
    async def all(self, connection: Connection) -> list[Purge]:
        return list((await read_purges(connection, self._space.number)).purges)

    async def scrub(self) -> list[str]:
        """Remove copies of purged content with VACUUM, if the role owns the schema; see docs/postgres.md.

        Returns one sentence about the copies that may remain on the server.
        """
        host = self._space.address.host
        problem = f"PostgreSQL at {host} keeps old rows until it vacuums, and in its write-ahead log and backups"
        with translated(self._space.address):
            async with self._space.pool().acquire(timeout=PATIENCE_S) as connection:
                is_owner = await connection.fetchval(
                    "SELECT pg_has_role(nspowner, 'USAGE') FROM pg_namespace WHERE nspname = $1",
                    self._space.address.schema,
                )
                if is_owner:
                    tables = ", ".join(f"{self._space.address.schema}.{table}" for table in TABLES)
                    await connection.execute(f"VACUUM {tables}", timeout=LONG_S)
        return (
            [problem] if is_owner else [f"{problem}; its owner can run VACUUM in schema {self._space.address.schema}"]
        )

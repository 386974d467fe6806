"""How a purge changes a space on a server: rows become tombstones, and words nobody uses any more go."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from mica.model.event import EMPTY, PURGED, Event, Tombstone, microseconds, searchable_text, tombstone
from mica.store.postgres import crystals as postgres_crystals
from mica.store.postgres import replies as postgres_replies
from mica.store.postgres import trails as postgres_trails
from mica.store.postgres.authority import authority
from mica.store.postgres.server import Connection
from mica.store.postgres.statements import HERE
from mica.store.postgres.words import Words
from mica.store.purges import Outstanding, Purge
from mica.words import terms

TABLES = (
    "events", "keys", "payloads", "contexts", "names", "sessions", "terms", "texts", "postings", "vectors",
    *postgres_crystals.TABLES, *postgres_trails.TABLES, postgres_replies.TABLE,
)  # fmt: skip

# The words of a table, and who refers to them. Sessions come after the contexts that name them.
_REFERRED = {
    "names": ("events", "name = names.id"),
    "contexts": ("events", "context = contexts.id"),
    "sessions": ("contexts", "session = sessions.id"),  # as texts have, too
    "terms": ("postings", "term = terms.id"),
}
# A look into the index for each word: OFFSET 0 keeps the planner from joining it with all who refer to any.
_UNUSED = f"NOT EXISTS (SELECT FROM {{}} WHERE space = {HERE} AND {{}} OFFSET 0)"
# Told when the first and the last of them happened, the planner reads no more than what happened in between. By time
# and position alone it expects next to nothing, and reads the whole log, once for each step of a purge.
_WANTED = f"""events.space = {HERE} AND events.at BETWEEN $3 AND $4
    AND events.at = wanted.at AND events.position = wanted.position"""
_USED = f"""SELECT array_agg(DISTINCT events.name), array_agg(DISTINCT events.context),
        array_agg(DISTINCT contexts.session), array_agg(DISTINCT events.payload)
    FROM unnest($2::bigint[], $5::bigint[]) AS wanted (at, position) JOIN events ON {_WANTED}
    JOIN contexts ON contexts.space = {HERE} AND contexts.id = events.context"""
_BURY = f"""UPDATE events SET name = $7, context = $8, data = wanted.data, payload = NULL, error = false
    FROM unnest($2::bigint[], $5::bigint[], $6::bytea[]) AS wanted (at, position, data) WHERE {_WANTED}"""
# A look into the index for each of them. As a plain join it reads the postings of the whole space.
_UNINDEX = f"""DELETE FROM postings WHERE ctid = ANY (ARRAY(
        SELECT found.ctid FROM unnest($2::integer[], $3::bigint[]) AS wanted (term, position)
        CROSS JOIN LATERAL (
            SELECT ctid FROM postings
            WHERE space = {HERE} AND postings.term = wanted.term AND postings.position = wanted.position OFFSET 0
        ) AS found
    ))"""


async def bury(connection: Connection, space: int, words: Words, events: Sequence[Event], told: Tombstone) -> None:
    """Replace these events by tombstones inside of a transaction that holds the lock of its space."""
    times, positions = [microseconds(event.at) for event in events], [event.position or 0 for event in events]
    places = times, min(times), max(times), positions
    name = (await words.numbers(connection, "names", [PURGED]))[PURGED]
    context = (await words.context_numbers(connection, [EMPTY]))[EMPTY]
    async with authority(connection, space, "purge"):
        names, contexts, sessions, payloads = await connection.fetchrow(_USED, space, *places)
        used = {"names": names, "contexts": contexts, "sessions": sessions}
        used["terms"] = await _unindexed(connection, space, events)
        await postgres_crystals.bury(connection, space, positions)
        await postgres_trails.clear(connection, space)
        await postgres_replies.clear(connection, space)
        stones = [tombstone(event, told).body for event in events]
        await connection.execute(_BURY, space, *places, stones, name, context)
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
    await passed(connection, space)


async def keep_purge(connection: Connection, space: int, purge: Purge) -> None:
    await connection.execute(
        "INSERT INTO purges (space, id, purge) VALUES ($1, $2, $3) ON CONFLICT DO NOTHING",
        space,
        purge.told.purge,
        msgspec.json.encode(purge),
    )
    await postgres_replies.clear(connection, space)
    await passed(connection, space)


async def outstanding(connection: Connection, space: int) -> Outstanding:
    """The purges that this space keeps."""
    rows = await connection.fetch("SELECT purge FROM purges WHERE space = $1", space)
    return Outstanding(msgspec.json.decode(encoded, type=Purge) for (encoded,) in rows)


async def passed(connection: Connection, space: int) -> None:
    """Tell every process that what it caches may be gone."""
    await connection.execute("UPDATE spaces SET generation = generation + 1 WHERE number = $1", space)


async def _unindexed(connection: Connection, space: int, events: Iterable[Event]) -> list[int]:
    """Take events out of full text; the numbers of their terms."""
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

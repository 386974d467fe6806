"""Whether what PostgreSQL holds of a space keeps its promises."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import msgspec

from mica.model import Event
from mica.store import postgres_crystals
from mica.store.deriving import Derived, broken_crystals
from mica.store.encoding import digest, expanded
from mica.store.postgres_read import Reading
from mica.store.postgres_server import LONG_S
from mica.store.protocol import broken_lineage, missing_positions, orphaned_texts, stale_texts


async def broken(reads: Reading, on_progress: Callable[[int], None]) -> list[str]:
    """Every broken promise in the rows of a space, one sentence each."""
    problems = await _broken_references(reads)
    if problems:
        return problems  # rows that name what is missing cannot be read as events
    names = await reads.connection.fetch("SELECT digest FROM payloads WHERE space = $1 ORDER BY digest", reads.space)
    for (name,) in names:
        frames = await reads.frames([name])
        if await asyncio.to_thread(_named, frames[name]) != name:
            problems.append(f"payload {name.hex()} does not have the content that its digest names")
    rows = await reads.connection.fetch("SELECT id, digest FROM contexts WHERE space = $1 ORDER BY id", reads.space)
    contexts = await reads.words.contexts(reads.connection, [row[0] for row in rows])
    problems += [
        f"context {number} does not have the content that its digest names"
        for number, name in rows
        if bytes.fromhex(contexts[number].id) != name
    ]
    texts = await reads.connection.fetch(
        "SELECT position, length FROM texts WHERE space = $1", reads.space, timeout=LONG_S
    )
    lengths: dict[int, int] = dict(texts)
    counts: dict[int, dict[str, int]] = {}
    for position, term, often in await reads.connection.fetch(
        """SELECT postings.position, terms.name, postings.count FROM postings
        JOIN terms ON terms.space = $1 AND terms.id = postings.term WHERE postings.space = $1""",
        reads.space,
        timeout=LONG_S,
    ):
        counts.setdefault(position, {})[term] = often
    kept = await postgres_crystals.kept(reads)
    stale: list[str] = []
    said = Derived()
    bare: list[Event] = []
    async for batch in reads.whole_log():
        stale += await asyncio.to_thread(stale_texts, batch, lengths, counts)
        await asyncio.to_thread(said.add_stored, batch)
        bare += [msgspec.structs.replace(event, body=b"") for event in batch]
        on_progress(len(bare))
    problems += await asyncio.to_thread(broken_lineage, bare)
    problems += await _missing_positions(reads) + stale + orphaned_texts({*lengths, *counts})
    return problems + await asyncio.to_thread(broken_crystals, said, kept)


async def _missing_positions(reads: Reading) -> list[str]:
    gaps = await reads.connection.fetch(
        """SELECT before + 1, position - 1 FROM (
            SELECT position, lag(position, 1, 0::bigint) OVER (ORDER BY position) AS before FROM keys
            WHERE space = $1
            UNION ALL
            SELECT last_position + 1, (SELECT coalesce(max(position), 0) FROM keys WHERE space = $1) FROM spaces
            WHERE number = $1
        ) AS steps WHERE position > before + 1""",
        reads.space,
        timeout=LONG_S,
    )
    return missing_positions((first, last) for first, last in gaps)


async def _broken_references(reads: Reading) -> list[str]:
    """Rows that name what is missing. The tables have no foreign keys, which would cost every append."""
    rows = await reads.connection.fetch(
        """SELECT 'event at position ' || position || ' has no key' AS problem FROM events
        WHERE space = $1 AND NOT EXISTS (
            SELECT FROM keys WHERE space = $1 AND keys.writer = events.writer AND keys.sequence = events.sequence
                AND keys.position = events.position AND keys.at = events.at
        )
        UNION ALL SELECT 'key at position ' || position || ' has no event' FROM keys
        WHERE space = $1 AND NOT EXISTS (
            SELECT FROM events WHERE space = $1 AND events.at = keys.at AND events.position = keys.position
        )
        UNION ALL SELECT 'event at position ' || position || ' names a missing writer' FROM events
        WHERE space = $1 AND NOT (
            EXISTS (SELECT FROM writers WHERE space = $1 AND id = events.writer)
            AND EXISTS (SELECT FROM writers WHERE space = $1 AND id = events.root_writer)
            AND EXISTS (SELECT FROM writers WHERE space = $1 AND id = coalesce(events.parent_writer, events.writer))
        )
        UNION ALL SELECT 'event at position ' || position || ' names a missing name' FROM events
        WHERE space = $1 AND NOT EXISTS (SELECT FROM names WHERE space = $1 AND id = events.name)
        UNION ALL SELECT 'event at position ' || position || ' names a missing context' FROM events
        WHERE space = $1 AND NOT EXISTS (SELECT FROM contexts WHERE space = $1 AND id = events.context)
        UNION ALL SELECT 'event at position ' || position || ' names a missing payload' FROM events
        WHERE space = $1 AND payload IS NOT NULL
            AND NOT EXISTS (SELECT FROM payloads WHERE space = $1 AND digest = events.payload)
        LIMIT 100""",
        reads.space,
        timeout=LONG_S,
    )
    return [f"PostgreSQL: {problem}" for (problem,) in rows]


def _named(frame: bytes) -> bytes:
    return digest(expanded(frame))

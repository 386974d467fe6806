"""Check the rows of a space in PostgreSQL for faults."""

from __future__ import annotations

import asyncio
from array import array
from collections.abc import Callable, Iterable

from mica.model.event import Event, EventId, EventQuery, WriterId, event_id
from mica.store.checks import LineageCheck, expected_entry, missing_positions, orphaned_texts, stale_text
from mica.store.codec import digest, expand
from mica.store.crystal_rows import REFERRING, DerivedCrystals, broken_crystals, referenced_ids
from mica.store.postgres import crystals as postgres_crystals
from mica.store.postgres.rows import POSITION_MAX, RowReader
from mica.store.postgres.server import LONG_S
from mica.store.postgres.statements import latest

PAGE_ROWS = 20_000  # index rows read at a time, about 5 MB
NO_TEXT = -1  # the length of an event without a text
SUM_MAX = 2**64 - 1


async def broken(reads: RowReader, on_progress: Callable[[int], None]) -> list[str]:
    """Return one sentence for each fault in the rows of a space.

    `on_progress` is called with the number of events read so far.
    """
    problems = await _broken_references(reads)
    if problems:
        return problems  # events with missing references cannot be decoded
    names = await reads.connection.fetch("SELECT digest FROM payloads WHERE space = $1 ORDER BY digest", reads.space)
    for (name,) in names:
        frames = await reads.frames([name])
        if await asyncio.to_thread(_digest_of, frames[name]) != name:
            problems.append(f"payload {name.hex()} does not match its digest")
    rows = await reads.connection.fetch("SELECT id, digest FROM contexts WHERE space = $1 ORDER BY id", reads.space)
    contexts = await reads.words.contexts(reads.connection, [row[0] for row in rows])
    problems += [
        f"context {number} does not match its digest"
        for number, name in rows
        if bytes.fromhex(contexts[number].id) != name
    ]
    index = await _read_index(reads)
    stored = await postgres_crystals.read_rows(reads)
    derived = DerivedCrystals(referenced_ids(await _referring_events(reads)))
    lineage = LineageCheck(await _parents(reads))
    stale: list[str] = []
    read = 0
    async for batch in reads.whole_log():
        stale += await asyncio.to_thread(index.stale, batch)
        await asyncio.to_thread(derived.add_stored, batch)
        await asyncio.to_thread(lineage.add, batch)
        read += len(batch)
        on_progress(read)
    problems += await asyncio.to_thread(lineage.broken)
    problems += await _missing_positions(reads) + stale + index.orphaned()
    return problems + await asyncio.to_thread(broken_crystals, derived, stored)


class IndexDigest:
    """A summary of the full-text index in 16 bytes per position: the number of words, and a sum of hashes of the terms.

    Texts with different terms have the same sum with a probability of 2^-64, so accidental damage is found.
    """

    def __init__(self, last: int) -> None:
        """Prepare for a log that ends at position `last`."""
        self._lengths = array("q", [NO_TEXT]) * (last + 1)
        self._sums = array("Q", [0]) * (last + 1)
        self._beyond: set[int] = set()  # indexed positions outside the log

    def add_texts(self, rows: Iterable[tuple[int, int]]) -> None:
        for position, length in rows:
            if 0 < position < len(self._lengths):
                self._lengths[position] = length
            else:
                self._beyond.add(position)

    def add_terms(self, rows: Iterable[tuple[int, str, int]]) -> None:
        """Add postings. Each row is a position, a term, and how often the term occurs in the text there."""
        for position, term, count in rows:
            if 0 < position < len(self._sums):
                self._sums[position] = (self._sums[position] + hash((term, count))) & SUM_MAX
            else:
                self._beyond.add(position)

    def stale(self, events: Iterable[Event]) -> list[str]:
        """Return one sentence for each event whose index entry does not match its text.

        The entries of `events` are removed from the summary.
        """
        problems = []
        for event in events:
            position = event.position or 0
            length, counts = expected_entry(event)
            expected = NO_TEXT if length is None else length, sum(map(hash, counts.items())) & SUM_MAX
            if (self._lengths[position], self._sums[position]) != expected:
                problems.append(stale_text(event))
            self._lengths[position], self._sums[position] = NO_TEXT, 0
        return problems

    def orphaned(self) -> list[str]:
        """Return one sentence for each indexed position without an event. Pass all events to `stale` first."""
        remaining = (
            number for number, pair in enumerate(zip(self._lengths, self._sums, strict=True)) if pair != (NO_TEXT, 0)
        )
        return orphaned_texts(self._beyond.union(remaining))


async def _read_index(reads: RowReader) -> IndexDigest:
    """Summarize the full-text index of a space, read page by page in key order."""
    connection = reads.connection
    last = await connection.fetchval("SELECT max(position) FROM keys WHERE space = $1", reads.space)
    index = IndexDigest(last or 0)
    after = -POSITION_MAX
    while rows := await connection.fetch(
        "SELECT position, length FROM texts WHERE space = $1 AND position > $2 ORDER BY position LIMIT $3",
        reads.space,
        after,
        PAGE_ROWS,
        timeout=LONG_S,
    ):
        await asyncio.to_thread(index.add_texts, rows)
        after = rows[-1][0]
    key = (-1, -POSITION_MAX)
    while postings := await connection.fetch(
        """SELECT page.position, terms.name, page.count, page.term FROM (
            SELECT term, position, count FROM postings WHERE space = $1 AND (term, position) > ($2, $3)
            ORDER BY term, position LIMIT $4
        ) AS page LEFT JOIN terms ON terms.space = $1 AND terms.id = page.term ORDER BY page.term, page.position""",
        reads.space,
        *key,
        PAGE_ROWS,
        timeout=LONG_S,
    ):
        await asyncio.to_thread(index.add_terms, (row[:3] for row in postings))
        key = postings[-1][3], postings[-1][0]
    return index


async def _referring_events(reads: RowReader) -> list[Event]:
    """Return the events that refer to others: crystals, retractions and tombstones."""
    names = await reads.fitting_names(REFERRING)
    rest, values = latest(EventQuery(names=REFERRING, limit=None), contexts=None, names=names, terms=None)
    return await reads.select(rest, *values)


async def _parents(reads: RowReader) -> set[EventId]:
    """Return the ids that occur as the parent of an event."""
    rows = await reads.connection.fetch(
        """SELECT DISTINCT parent_writer, parent_sequence FROM events
        WHERE space = $1 AND parent_writer IS NOT NULL""",
        reads.space,
        timeout=LONG_S,
    )
    writers = await reads.words.words(reads.connection, "writers", {row[0] for row in rows})
    return {event_id(WriterId(writers[number]), sequence) for number, sequence in rows}


async def _missing_positions(reads: RowReader) -> list[str]:
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


async def _broken_references(reads: RowReader) -> list[str]:
    """Return one sentence for each row with a dangling reference, at most 100.

    The tables have no foreign keys, because those would make every append slower.
    """
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
        UNION ALL SELECT 'event at position ' || position || ' refers to a missing writer' FROM events
        WHERE space = $1 AND NOT (
            EXISTS (SELECT FROM writers WHERE space = $1 AND id = events.writer)
            AND EXISTS (SELECT FROM writers WHERE space = $1 AND id = events.root_writer)
            AND EXISTS (SELECT FROM writers WHERE space = $1 AND id = coalesce(events.parent_writer, events.writer))
        )
        UNION ALL SELECT 'event at position ' || position || ' refers to a missing name' FROM events
        WHERE space = $1 AND NOT EXISTS (SELECT FROM names WHERE space = $1 AND id = events.name)
        UNION ALL SELECT 'event at position ' || position || ' refers to a missing context' FROM events
        WHERE space = $1 AND NOT EXISTS (SELECT FROM contexts WHERE space = $1 AND id = events.context)
        UNION ALL SELECT 'event at position ' || position || ' refers to a missing payload' FROM events
        WHERE space = $1 AND payload IS NOT NULL
            AND NOT EXISTS (SELECT FROM payloads WHERE space = $1 AND digest = events.payload)
        LIMIT 100""",
        reads.space,
        timeout=LONG_S,
    )
    return [f"PostgreSQL: {problem}" for (problem,) in rows]


def _digest_of(frame: bytes) -> bytes:
    return digest(expand(frame))

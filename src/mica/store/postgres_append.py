"""What one append writes: drafted without the server, then written in few statements under the lock of its space."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple, TypeAlias

from mica.errors import DuplicateEvent
from mica.model import (
    MARK,
    ORIGINS,
    Event,
    EventId,
    Ref,
    WriterId,
    event_id,
    microseconds,
    ref_of,
    searchable_text,
    split_id,
)
from mica.store.encoding import INLINE_BYTES_MAX, compressed, digest
from mica.store.postgres_query import AT_KEYS, HERE
from mica.store.postgres_server import Connection
from mica.store.postgres_words import Words
from mica.store.protocol import check_event, check_lineage
from mica.store.purging import may_stand_for
from mica.words import terms_of, words

Key: TypeAlias = tuple[WriterId, int]  # an id as its writer and its sequence

CHUNK_EVENTS = 1_000  # in one statement, at most 5 MB of data; while the server writes one, the next is drafted

_ORIGIN = {origin: number for number, origin in enumerate(ORIGINS)}

# Rows travel as one array of rows: row-level security refuses COPY into its tables. Measured for a row of events:
# 2.5 µs, against 4.4 µs as an array for each column and 3.5 µs by COPY into a temporary table.

_WANTED_KEYS = f"""
    FROM unnest($2::integer[], $3::bigint[]) WITH ORDINALITY AS wanted (writer, sequence, ordinal)
    CROSS JOIN LATERAL (
        SELECT * FROM keys WHERE space = {HERE} AND writer = wanted.writer AND sequence = wanted.sequence OFFSET 0
    ) AS keys"""
_INSERT = """
    WITH rows AS MATERIALIZED (SELECT * FROM unnest($2::event_row[])), inserted AS (
        INSERT INTO keys (space, writer, sequence, position, at)
        SELECT $1, writer, sequence, position, at FROM rows
    )
    INSERT INTO events (space, position, writer, sequence, name, at, context, root_writer, root_sequence,
        parent_writer, parent_sequence, depth, origin, error, data, payload)
    SELECT $1, position, writer, sequence, name, at, context, root_writer, root_sequence,
        parent_writer, parent_sequence, depth, origin, error, data, payload FROM rows"""
_INDEX = """
    WITH inserted AS (
        INSERT INTO texts (space, position, session, at, length, is_mark)
        SELECT $1, position, session, at, length, mark IS NOT NULL AND NOT EXISTS (
            SELECT FROM retractions WHERE space = $1 AND retracted = mark
        ) FROM unnest($2::bigint[], $3::integer[], $4::bigint[], $5::integer[], $6::text[])
            AS wanted (position, session, at, length, mark)
    )
    INSERT INTO postings (space, term, position, count)
    SELECT $1, * FROM unnest($7::integer[], $8::bigint[], $9::integer[])"""


class Indexed(NamedTuple):
    """What full text keeps of an event."""

    length: int
    counts: Counter[str]


class Payload(NamedTuple):
    """Data too large for a row, as it is stored."""

    digest: bytes
    size_bytes: int
    frame: bytes


class Draft(NamedTuple):
    """An event with everything that can be known of it without the server."""

    event: Event
    ref: Ref
    root: Key
    parent: Key | None
    at: int
    indexed: Indexed | None
    payload: Payload | None


class Drafts(NamedTuple):
    """The distinct events of an append, in order, and how many more were the same again."""

    drafts: list[Draft]
    repeated: int


def drafted(events: Sequence[Event]) -> Drafts:
    """Check events and derive what is stored of them. Raises InvalidEvent or DuplicateEvent."""
    drafts: dict[EventId, Draft] = {}
    repeated = 0
    for event in events:
        check_event(event, None)
        if (known := drafts.get(event.id)) is not None:
            if not may_stand_for(known.event, event):
                raise DuplicateEvent(event.id)
            repeated += 1
            continue
        body = event.body
        drafts[event.id] = Draft(
            event,
            event.ref,
            split_id(event.root_id),
            None if event.parent_id is None else split_id(event.parent_id),
            microseconds(event.at),
            indexed(event),
            None if len(body) <= INLINE_BYTES_MAX else Payload(digest(body), len(body), compressed(body)),
        )
    return Drafts(list(drafts.values()), repeated)


def indexed(event: Event) -> Indexed | None:
    text = searchable_text(event)
    if text is None:
        return None
    found = words(text)
    return Indexed(len(found), Counter(terms_of(found)))


class Writing:
    """The statements of one writing transaction. The row of the space is locked before any of them runs."""

    def __init__(
        self, connection: Connection, space: int, known: Words, *, after: int, highest: Mapping[WriterId, int]
    ) -> None:
        self.connection = connection
        self.last = after  # the position that was given last
        self.highest = dict(highest)  # the highest sequence that is there of each of these writers
        self.known: dict[EventId, Ref] = {}  # where the events that passed through here stand in their chains
        self._space = space
        self._words = known
        self._writers: dict[str, int] = {}

    async def positions(self, drafts: Sequence[Draft]) -> dict[EventId, int]:
        """Where those of these events are that are there already."""
        wanted = {draft.ref.writer for draft in drafts}
        writers = await self._numbers(wanted)
        if unknown := list(wanted - self.highest.keys()):
            rows = await self.connection.fetch(
                f"""SELECT coalesce(
                    (SELECT max(sequence) FROM keys WHERE space = {HERE} AND keys.writer = wanted.writer), -1
                )
                FROM unnest($2::integer[]) WITH ORDINALITY AS wanted (writer, ordinal) ORDER BY ordinal""",
                self._space,
                [writers[writer] for writer in unknown],
            )
            self.highest |= {
                writer: -1 if found is None else found for writer, (found,) in zip(unknown, rows, strict=True)
            }
        # A writer counts up, so its new events lie above all others; only those below may be there already.
        asked = [draft for draft in drafts if draft.ref.sequence <= self.highest[draft.ref.writer]]
        if not asked:
            return {}
        rows = await self.connection.fetch(
            f"SELECT wanted.ordinal, keys.position {_WANTED_KEYS}",
            self._space,
            [writers[draft.ref.writer] for draft in asked],
            [draft.ref.sequence for draft in asked],
        )
        return {asked[ordinal - 1].event.id: position for ordinal, position in rows}

    async def positions_of(self, identifiers: Iterable[EventId]) -> dict[EventId, int]:
        """Where those of these events are that are there."""
        keys = {identifier: split_id(identifier) for identifier in identifiers}
        writers = await self._numbers({writer for writer, _ in keys.values()})
        rows = await self.connection.fetch(
            f"SELECT wanted.ordinal, keys.position {_WANTED_KEYS}",
            self._space,
            [writers[writer] for writer, _ in keys.values()],
            [sequence for _, sequence in keys.values()],
        )
        known = list(keys)
        return {known[ordinal - 1]: position for ordinal, position in rows}

    async def check_parents(
        self, drafts: Sequence[Draft], there: Collection[EventId], refs: Mapping[EventId, Ref]
    ) -> None:
        """Raise InvalidEvent when a parent that is known, or comes earlier, does not fit."""
        known, batch = self.known, {draft.event.id for draft in drafts}
        parents = {draft.event.parent_id for draft in drafts if draft.event.parent_id}
        known |= await self._refs(
            parent
            for parent in parents
            if parent not in known and parent not in refs and (parent not in batch or parent in there)
        )
        for draft in drafts:
            event, parent = draft.event, draft.event.parent_id
            check_lineage(event, (known.get(parent) or refs.get(parent)) if parent else None)
            known[event.id] = draft.ref

    async def _refs(self, identifiers: Iterable[EventId]) -> dict[EventId, Ref]:
        """Where those of these events stand in their chains that are there already."""
        keys = {identifier: split_id(identifier) for identifier in identifiers}
        if not keys:
            return {}
        writers = await self._numbers({writer for writer, _ in keys.values()})
        rows = await self.connection.fetch(
            f"""SELECT wanted.ordinal, writers.name, events.root_sequence, events.depth {_WANTED_KEYS} {AT_KEYS}
            JOIN writers ON writers.space = {HERE} AND writers.id = events.root_writer""",
            self._space,
            [writers[writer] for writer, _ in keys.values()],
            [sequence for _, sequence in keys.values()],
        )
        known = list(keys)
        return {
            known[ordinal - 1]: ref_of(known[ordinal - 1], event_id(WriterId(writer), sequence), depth)
            for ordinal, writer, sequence, depth in rows
        }

    async def insert(self, drafts: Sequence[Draft]) -> dict[EventId, int]:
        """Store these events at the next positions, which are returned, and index their text."""
        if not drafts:
            return {}
        await self._insert_payloads({draft.payload.digest: draft.payload for draft in drafts if draft.payload})
        names = await self._words.numbers(self.connection, "names", {draft.event.name for draft in drafts})
        contexts = await self._words.context_numbers(self.connection, {draft.event.context for draft in drafts})
        writers = await self._numbers(
            {draft.ref.writer for draft in drafts}
            | {draft.root[0] for draft in drafts}
            | {draft.parent[0] for draft in drafts if draft.parent is not None}
        )
        rows = []
        for position, draft in enumerate(drafts, start=self.last + 1):
            event, parent, payload = draft.event, draft.parent, draft.payload
            rows.append(
                (
                    position,
                    writers[draft.ref.writer],
                    draft.ref.sequence,
                    names[event.name],
                    draft.at,
                    contexts[event.context],
                    writers[draft.root[0]],
                    draft.root[1],
                    None if parent is None else writers[parent[0]],
                    None if parent is None else parent[1],
                    event.depth,
                    _ORIGIN[event.origin],
                    event.error,
                    event.body if payload is None else None,
                    None if payload is None else payload.digest,
                )
            )
        await self.connection.execute(_INSERT, self._space, rows)
        await self.index(
            [
                (position, draft.event, draft.indexed)
                for position, draft in enumerate(drafts, start=self.last + 1)
                if draft.indexed is not None
            ]
        )
        positions = {draft.event.id: position for position, draft in enumerate(drafts, start=self.last + 1)}
        self.last += len(drafts)
        for draft in drafts:
            self.highest[draft.ref.writer] = max(self.highest[draft.ref.writer], draft.ref.sequence)
        return positions

    async def index(self, texts: Sequence[tuple[int, Event, Indexed]]) -> None:
        """Make the text of these events, each with its position, findable."""
        if not texts:
            return
        sessions = await self._words.numbers(
            self.connection,
            "sessions",
            (event.context.session for _, event, _ in texts if event.context.session is not None),
        )
        numbers = await self._words.numbers(
            self.connection, "terms", {term for _, _, found in texts for term in found.counts}
        )
        rows = [
            (
                position,
                None if event.context.session is None else sessions[event.context.session],
                microseconds(event.at),
                found.length,
                event.id if event.name == MARK else None,
            )
            for position, event, found in texts
        ]
        postings = sorted(
            (numbers[term], position, count) for position, _, found in texts for term, count in found.counts.items()
        )
        columns = list(zip(*postings, strict=True)) or [(), (), ()]
        await self.connection.execute(_INDEX, self._space, *zip(*rows, strict=True), *columns)

    async def _insert_payloads(self, payloads: dict[bytes, Payload]) -> None:
        if not payloads:
            return
        there = await self.connection.fetch(
            f"SELECT digest FROM payloads WHERE space = {HERE} AND digest = ANY ($2)", self._space, list(payloads)
        )
        fresh = payloads.keys() - {name for (name,) in there}
        # One message each: together they might exceed the gigabyte that a message may have.
        await self.connection.executemany(
            "INSERT INTO payloads (space, digest, size_bytes, body) VALUES ($1, $2, $3, $4)",
            [(self._space, *payloads[name]) for name in sorted(fresh)],
        )

    async def _numbers(self, writers: set[WriterId]) -> dict[str, int]:
        """The numbers of all writers asked for so far."""
        if unknown := writers - self._writers.keys():
            self._writers |= await self._words.numbers(self.connection, "writers", unknown)
        return self._writers

"""Writes the rows of an append: prepares them without the server, then stores them while the space is locked."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any, NamedTuple, TypeAlias

import msgspec

from mica.errors import DuplicateEvent
from mica.model.event import MARK, ORIGINS, Event, EventId, WriterId, event_id, microseconds, split_id
from mica.model.mark import searchable_text
from mica.store.checks import ChainPlace, check_event, check_lineage
from mica.store.codec import INLINE_BYTES_MAX, compress, digest
from mica.store.postgres.server import Connection, Statement
from mica.store.postgres.statements import AT_KEYS, HERE
from mica.store.postgres.words import PostgresWords
from mica.store.purges import is_same_or_tombstone
from mica.words import terms_of, words

Key: TypeAlias = tuple[WriterId, int]  # an event id as its writer and its sequence

CHUNK_EVENTS = 1_000  # per statement, at most 5 MB of data; the next chunk is prepared while the server writes one
# The first chunk is smaller, because the server is idle while it is prepared. Preparing four times as many events takes
# as long as writing these. A chunk has an overhead of 0.75 ms.
FIRST_EVENTS = 200

_ORIGIN = {origin: number for number, origin in enumerate(ORIGINS)}

# Rows travel as one array of rows: row-level security refuses COPY into its tables. Measured for a row of events:
# 2.5 µs, against 4.4 µs as an array for each column and 3.5 µs by COPY into a temporary table. Columns of numbers
# travel as the text of an array, because the driver takes three times as long to encode them one by one.

_WANTED_KEYS = f"""
    FROM unnest($2::integer[], $3::bigint[]) WITH ORDINALITY AS wanted (writer, sequence, ordinal)
    CROSS JOIN LATERAL (
        SELECT * FROM keys WHERE space = {HERE} AND writer = wanted.writer AND sequence = wanted.sequence OFFSET 0
    ) AS keys"""
_INSERT = """
    WITH rows AS MATERIALIZED (SELECT * FROM unnest($2::event_row[])), keyed AS (
        INSERT INTO keys (space, writer, sequence, position, at)
        SELECT $1, writer, sequence, position, at FROM rows
    ), logged AS (
        INSERT INTO events (space, position, writer, sequence, name, at, context, root_writer, root_sequence,
            parent_writer, parent_sequence, depth, origin, error, data, payload)
        SELECT $1, position, writer, sequence, name, at, context, root_writer, root_sequence,
            parent_writer, parent_sequence, depth, origin, error, data, payload FROM rows
    ), found AS (
        INSERT INTO texts (space, position, session, at, length, is_mark)
        SELECT $1, position, session, at, length, mark IS NOT NULL AND NOT EXISTS (
            SELECT FROM retractions WHERE space = $1 AND retracted = mark
        ) FROM unnest($3::bigint[], $4::integer[], $5::bigint[], $6::integer[], $7::text[])
            AS wanted (position, session, at, length, mark)
    )
    INSERT INTO postings (space, term, position, count)
    SELECT $1, * FROM unnest($8::text::integer[], $9::text::bigint[], $10::text::integer[])"""


class IndexEntry(NamedTuple):
    """The full-text index entry of an event."""

    length: int  # in words
    counts: dict[str, int]  # occurrences of each term


class StoredPayload(NamedTuple):
    """The data of an event that is too large for its row, compressed as it is stored."""

    digest: bytes
    size_bytes: int
    frame: bytes


class PreparedEvent(msgspec.Struct, frozen=True, gc=False):
    """An event with all values of its rows that can be computed without the server."""

    event: Event
    place: ChainPlace[Key]
    parent: Key | None
    at: int
    entry: IndexEntry | None
    payload: StoredPayload | None


class Drafts(NamedTuple):
    """The prepared events of a chunk (the events of one statement), without repeated ones."""

    drafts: list[PreparedEvent]
    places: dict[EventId, ChainPlace[Key]]
    unchecked: list[PreparedEvent]  # events whose parent was not known when they were drafted
    repeated: int


def chunks(events: Sequence[Event]) -> list[Sequence[Event]]:
    """Divide the events of an append into chunks, one for each INSERT statement."""
    first = FIRST_EVENTS if len(events) > 2 * FIRST_EVENTS else 0
    starts = [*([0] if first else []), *range(first, len(events), CHUNK_EVENTS)]
    return [events[start:end] for start, end in pairwise([*starts, len(events)])]


def draft_events(events: Sequence[Event], *known: Mapping[EventId, ChainPlace[Key]]) -> Drafts:
    """Check events and prepare their rows, without the server.

    `known` maps the ids of other events to their lineage, so that parents can be checked. Raises InvalidEvent, and
    DuplicateEvent for two different events with the same id.
    """
    drafts: dict[EventId, PreparedEvent] = {}
    places: dict[EventId, ChainPlace[Key]] = {}
    unchecked: list[PreparedEvent] = []
    repeated = 0
    for event in events:
        identifier, above = event.id, event.parent_id
        parent = None
        if above is not None and (parent := places.get(above)) is None:
            parent = next((place for each in known if (place := each.get(above)) is not None), None)
        check_event(event, parent)
        if (same := drafts.get(identifier)) is not None:
            if not is_same_or_tombstone(same.event, event):
                raise DuplicateEvent(identifier)
            repeated += 1
            continue
        own = split_id(identifier)
        up: Key | None
        if parent is not None:
            root, up = parent.root, parent.own
        elif above is not None:
            root, up = split_id(event.root_id), split_id(above)
        else:
            root, up = own, None
        places[identifier] = place = ChainPlace(identifier, event.root_id, event.depth, own, root)
        body = event.body
        payload = None if len(body) <= INLINE_BYTES_MAX else StoredPayload(digest(body), len(body), compress(body))
        drafts[identifier] = draft = PreparedEvent(
            event, place, up, microseconds(event.at), index_entry(event), payload
        )
        if up is not None and parent is None:
            unchecked.append(draft)
    return Drafts(list(drafts.values()), places, unchecked, repeated)


def index_entry(event: Event) -> IndexEntry | None:
    text = searchable_text(event)
    if text is None:
        return None
    text_words = words(text)
    counts: dict[str, int] = {}
    for term in terms_of(text_words):
        counts[term] = counts.get(term, 0) + 1
    return IndexEntry(len(text_words), counts)


class PreparedInsert(NamedTuple):
    """A statement that stores some events, with its values. `write` must run before any other statement."""

    positions: dict[EventId, int]  # of the events
    statement: Statement | None  # None if there is nothing to store
    values: tuple[object, ...]

    async def write(self) -> None:
        """Run the statement. It is sent immediately, so the next chunk can be prepared while the server works."""
        if self.statement is not None:
            await self.statement.fetch(*self.values)


class WriteTransaction:
    """Runs the statements of one write transaction, which has already locked the row of the space."""

    def __init__(
        self, connection: Connection, space: int, words: PostgresWords, *, after: int, highest: Mapping[WriterId, int]
    ) -> None:
        self.connection = connection
        self.last = after  # the last assigned position
        self.highest = dict(highest)  # the highest stored sequence of each writer
        self.places: dict[EventId, ChainPlace[Key]] = {}  # of the events of this transaction and their parents
        self._space = space
        self._words = words
        self._writers: dict[str, int] = {}

    async def positions(self, drafts: Sequence[PreparedEvent]) -> dict[EventId, int]:
        """Return the positions of those `drafts` that are already stored, by event id."""
        names = {draft.place.own[0] for draft in drafts}
        writers = await self._numbers(names)
        if unknown := list(names - self.highest.keys()):
            rows = await self.connection.fetch(
                f"""SELECT coalesce(
                    (SELECT max(sequence) FROM keys WHERE space = {HERE} AND keys.writer = wanted.writer), -1
                )
                FROM unnest($2::integer[]) WITH ORDINALITY AS wanted (writer, ordinal) ORDER BY ordinal""",
                self._space,
                [writers[writer] for writer in unknown],
            )
            self.highest |= {
                writer: -1 if highest is None else highest for writer, (highest,) in zip(unknown, rows, strict=True)
            }
        # A writer counts up, so only sequences up to its highest stored one can be stored already.
        highest = self.highest
        candidates = [draft for draft in drafts if draft.place.own[1] <= highest[draft.place.own[0]]]
        if not candidates:
            return {}
        rows = await self.connection.fetch(
            f"SELECT wanted.ordinal, keys.position {_WANTED_KEYS}",
            self._space,
            [writers[draft.place.own[0]] for draft in candidates],
            [draft.place.own[1] for draft in candidates],
        )
        return {candidates[ordinal - 1].event.id: position for ordinal, position in rows}

    async def positions_of(self, identifiers: Iterable[EventId]) -> dict[EventId, int]:
        """Return the positions of the events with these ids; unknown ids are left out."""
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

    async def check_parents(self, unchecked: Sequence[PreparedEvent]) -> None:
        """Raise InvalidEvent if the root or depth of one of these events contradicts its stored parent."""
        if not unchecked:
            return
        found = await self._stored_places({draft.event.parent_id for draft in unchecked if draft.event.parent_id})
        for draft in unchecked:
            check_lineage(draft.event, found.get(draft.event.parent_id or draft.event.id))
        self.places |= found

    async def _stored_places(self, identifiers: Iterable[EventId]) -> dict[EventId, ChainPlace[Key]]:
        """Return the lineage (root and depth) of the events with these ids; unknown ids are left out."""
        keys = {identifier: split_id(identifier) for identifier in identifiers}
        writers = await self._numbers({writer for writer, _ in keys.values()})
        rows = await self.connection.fetch(
            f"""SELECT wanted.ordinal, writers.name, events.root_sequence, events.depth {_WANTED_KEYS} {AT_KEYS}
            JOIN writers ON writers.space = {HERE} AND writers.id = events.root_writer""",
            self._space,
            [writers[writer] for writer, _ in keys.values()],
            [sequence for _, sequence in keys.values()],
        )
        known = list(keys)
        found = {}
        for ordinal, writer, sequence, depth in rows:
            identifier, root = known[ordinal - 1], (WriterId(writer), sequence)
            found[identifier] = ChainPlace(identifier, event_id(*root), depth, keys[identifier], root)
        return found

    async def prepare(self, drafts: Sequence[PreparedEvent]) -> PreparedInsert:
        """Prepare the statement that stores these events at the next positions and indexes their text."""
        if not drafts:
            return PreparedInsert({}, None, ())
        await self._insert_payloads({draft.payload.digest: draft.payload for draft in drafts if draft.payload})
        names = await self._words.numbers(self.connection, "names", {draft.event.name for draft in drafts})
        contexts = await self._words.context_numbers(self.connection, {draft.event.context for draft in drafts})
        writers = await self._numbers(
            {draft.place.own[0] for draft in drafts}
            | {draft.place.root[0] for draft in drafts}
            | {draft.parent[0] for draft in drafts if draft.parent is not None}
        )
        rows = []
        texts = []
        positions: dict[EventId, int] = {}
        highest = self.highest
        for position, draft in enumerate(drafts, start=self.last + 1):
            event, parent, payload = draft.event, draft.parent, draft.payload
            (writer, sequence), root = draft.place.own, draft.place.root
            rows.append(
                (
                    position,
                    writers[writer],
                    sequence,
                    names[event.name],
                    draft.at,
                    contexts[event.context],
                    writers[root[0]],
                    root[1],
                    None if parent is None else writers[parent[0]],
                    None if parent is None else parent[1],
                    event.depth,
                    _ORIGIN[event.origin],
                    event.error,
                    event.body if payload is None else None,
                    None if payload is None else payload.digest,
                )
            )
            positions[event.id] = position
            if draft.entry is not None:
                texts.append((position, event, draft.entry))
            highest[writer] = max(highest[writer], sequence)
        self.last += len(drafts)
        return PreparedInsert(positions, *await self._prepare_insert(rows, texts))

    async def index(self, texts: Sequence[tuple[int, Event, IndexEntry]]) -> None:
        """Add texts to the full-text index. Each text is a position, the event there, and its index entry."""
        if texts:
            await PreparedInsert({}, *await self._prepare_insert([], texts)).write()

    async def _prepare_insert(
        self, rows: Sequence[tuple[object, ...]], texts: Sequence[tuple[int, Event, IndexEntry]]
    ) -> tuple[Statement, tuple[object, ...]]:
        sessions = await self._words.numbers(
            self.connection,
            "sessions",
            (event.context.session for _, event, _ in texts if event.context.session is not None),
        )
        numbers = await self._words.numbers(
            self.connection, "terms", {term for _, _, entry in texts for term in entry.counts}
        )
        text_rows = [
            (
                position,
                None if event.context.session is None else sessions[event.context.session],
                microseconds(event.at),
                entry.length,
                event.id if event.name == MARK else None,
            )
            for position, event, entry in texts
        ]
        postings = sorted(
            (numbers[term], position, count) for position, _, entry in texts for term, count in entry.counts.items()
        )
        # Unnamed, because a pooler may give the next transaction another connection.
        statement = await self.connection.prepare(_INSERT, name="")
        columns = (*_columns(text_rows, 5), *map(_array_text, _columns(postings, 3)))
        return statement, (self._space, rows, *columns)

    async def _insert_payloads(self, payloads: dict[bytes, StoredPayload]) -> None:
        if not payloads:
            return
        stored = await self.connection.fetch(
            f"SELECT digest FROM payloads WHERE space = {HERE} AND digest = ANY ($2)", self._space, list(payloads)
        )
        fresh = payloads.keys() - {name for (name,) in stored}
        # One message each, because a message is limited to one gigabyte.
        await self.connection.executemany(
            "INSERT INTO payloads (space, digest, size_bytes, body) VALUES ($1, $2, $3, $4)",
            [(self._space, *payloads[name]) for name in sorted(fresh)],
        )

    async def _numbers(self, writers: set[WriterId]) -> dict[str, int]:
        """Return the row ids of these writers and those of earlier calls, by writer. Adds new writers to the table."""
        if unknown := writers - self._writers.keys():
            self._writers |= await self._words.numbers(self.connection, "writers", unknown)
        return self._writers


def _columns(rows: Sequence[tuple[object, ...]], count: int) -> Iterable[Sequence[Any]]:
    return zip(*rows, strict=True) if rows else [()] * count


def _array_text(numbers: Iterable[int]) -> str:
    """Return an array of numbers in the text format of PostgreSQL."""
    return f"{{{','.join(map(str, numbers))}}}"

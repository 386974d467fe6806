"""The SQLite implementation of `EventLog`, the append-only log."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from functools import partial
from marshal import dumps
from zlib import crc32

import apsw

from mica.errors import DuplicateEvent
from mica.model.event import (
    ORIGINS,
    Appended,
    Context,
    Event,
    EventId,
    EventQuery,
    WriterId,
    event_id,
    microseconds,
    name_pattern,
    split_ids,
)
from mica.store.checks import ChainPlace, check_content
from mica.store.codec import CACHE_ENTRIES_MAX, INLINE_BYTES_MAX, remember
from mica.store.purges import is_same_or_tombstone
from mica.store.query import query_terms
from mica.store.sqlite import crystals, texts
from mica.store.sqlite.blocks import BlockFilter
from mica.store.sqlite.core import SqliteCore
from mica.store.sqlite.file import COLUMNS, Key, Row, as_json, insert
from mica.store.sqlite.statistics import TextStatistics
from mica.store.sqlite.words import SqliteWords
from mica.store.sqlite.worker import SqliteRole, threaded

EVENTS = f"events ({COLUMNS})", "(?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"

_ORIGIN = {origin: number for number, origin in enumerate(ORIGINS)}
_OF_KEYS = "WHERE (writer, sequence) IN (SELECT value ->> 0, value ->> 1 FROM json_each(?))"
MANY_CONTEXTS = 1_000  # in a session; a very long session collects contexts, and each costs an index lookup
RECENT_ROWS = 20_000  # scanned first for such a session, in about 10 ms at most

_MANY = "SELECT 1 FROM contexts WHERE session = (SELECT id FROM sessions WHERE name = ?) LIMIT 1 OFFSET ?"
_RECENT = "SELECT at FROM events ORDER BY at DESC LIMIT 1 OFFSET ?"


def _append(core: SqliteCore, events: Sequence[Event]) -> Appended:
    fresh: dict[EventId, Event] = {}
    places: dict[EventId, ChainPlace[Key]] = {}
    parents: list[ChainPlace[Key] | None] = []
    with core.writing():
        keys = split_ids(event.id for event in events)
        known = _known(core, keys)
        writers = core.words.numbers["writers"]  # `_known` has interned the writers of these events
        first = core.last_position() + 1
        applied = None if core.purge_filter.latest is None else core.purge_filter.apply  # usually there are no purges
        for event, (writer, sequence) in zip(events, keys, strict=True):
            identifier, above = event.id, event.parent_id
            parent = None if above is None else places.get(above) or _place(core, above)
            check_content(event, parent)
            if identifier not in known and identifier not in fresh:
                fresh[identifier] = stored = event if applied is None else applied(event)
                number = writers.get(writer) or core.words.number("writers", writer)
                root = own = number, sequence
                if stored.parent_id is not None:
                    root = core.words.key(stored.root_id) if parent is None else parent.root
                places[identifier] = ChainPlace(identifier, stored.root_id, stored.depth, own, root)
                parents.append(parent)
            elif _differs(core, event, fresh.get(identifier)):
                raise DuplicateEvent(identifier)
        if fresh:
            # Only for stored events: the contexts of purged events must not be interned.
            core.words.intern_contexts({id(event.context): event.context for event in fresh.values()}.values())
            insert(core.connection, *EVENTS, _rows(core, fresh.values(), places.values(), parents, first=first))
            texts.index(core.connection, core.words, enumerate(fresh.values(), first))
            crystals.index(core.connection, core.get, enumerate(fresh.values(), first))
            core.connection.execute("UPDATE space SET last_position = ?", (first + len(fresh) - 1,))
    if len(core.places) + len(places) > CACHE_ENTRIES_MAX:
        core.places.clear()
    core.places |= places  # only after the commit, which may fail
    return Appended(stored=len(fresh), repeated=len(events) - len(fresh))


def _known(core: SqliteCore, keys: Iterable[tuple[WriterId, int]]) -> set[EventId]:
    """Return the ids of those events in `keys` that are already stored.

    `keys` are pairs of writer id and sequence number. If all are new, this costs one lookup per writer.
    """
    sequences: defaultdict[WriterId, list[int]] = defaultdict(list)
    for writer, sequence in keys:
        sequences[writer].append(sequence)
    known: set[EventId] = set()
    for writer, numbers in sequences.items():
        number = core.words.number("writers", writer)
        between = "SELECT 1 FROM events WHERE writer = ? AND sequence BETWEEN ? AND ? LIMIT 1"
        if core.connection.execute(between, (number, min(numbers), max(numbers))).fetchone() is not None:
            stored = core.connection.execute(
                """SELECT sequence FROM json_each(?) AS wanted
                CROSS JOIN events ON events.writer = ? AND events.sequence = wanted.value""",
                (as_json(numbers), number),
            )
            known.update(event_id(writer, sequence) for (sequence,) in stored)
        if core.blocks.is_used:
            known.update(event_id(writer, sequence) for sequence in core.blocks.known(number, numbers))
    return known


def _differs(core: SqliteCore, event: Event, known: Event | None) -> bool:
    known = known or core.get(event.id)
    return known is None or not is_same_or_tombstone(known, event)


def _rows(
    core: SqliteCore,
    events: Iterable[Event],
    places: Iterable[ChainPlace[Key]],
    parents: Iterable[ChainPlace[Key] | None],
    *,
    first: int,
) -> list[Row]:
    """Return events as rows of the events table, from position `first` on.

    Their ids, names and contexts become numbers; new ones are interned.
    """
    names = core.words.numbers["names"]
    rows: list[Row] = []
    last: Context | None = None
    context = 0
    for position, (event, place, parent) in enumerate(zip(events, places, parents, strict=True), first):
        if event.context is not last:  # consecutive events usually share one
            last = event.context
            context = core.words.context_number(last)
        if parent is not None:
            above: Key | tuple[None, None] = parent.own
        else:
            above = (None, None) if event.parent_id is None else core.words.key(event.parent_id)
        body = event.body
        is_inline = len(body) <= INLINE_BYTES_MAX
        row = (
            position,
            *place.own,
            names.get(event.name) or core.words.number("names", event.name),
            microseconds(event.at),
            context,
            *place.root,
            *above,
            event.depth,
            _ORIGIN[event.origin],
            1 if event.error else 0,
            body.decode() if is_inline else None,
            None if is_inline else core.payload_number(body),
        )
        rows.append((*row, crc32(dumps(row, 2)) - 2**31))  # as `row_checksum` does
    return rows


def _place(core: SqliteCore, identifier: EventId) -> ChainPlace[Key] | None:
    """Return the lineage (root and depth) of a stored event; None if it is not stored."""
    if (place := core.places.get(identifier)) is not None:
        return place
    if (key := core.words.known_key(identifier)) is None:
        return None
    row = core.connection.execute(
        "SELECT root_writer, root_sequence, depth FROM events WHERE writer = ? AND sequence = ?", key
    ).fetchone()
    if row is None and core.blocks.is_used and (header := core.blocks.header(*key)) is not None:
        row = header.root_writer, header.root_sequence, header.depth
    if row is None:
        return None
    place = ChainPlace(identifier, core.words.id(row[0], row[1]), row[2], key, (row[0], row[1]))
    remember(core.places, identifier, place)
    return place


def _get_many(core: SqliteCore, identifiers: Sequence[EventId]) -> list[Event]:
    with core.reading():
        keys = [key for each in dict.fromkeys(identifiers) if (key := core.words.known_key(each)) is not None]
        rows = core.table(_OF_KEYS, (as_json(keys),))
        found = {(row[1], row[2]): row for row in rows}
        if core.blocks.is_used:
            found |= {key: row for key in keys if key not in found and (row := core.row_of(key)) is not None}
        return [core.to_event(found[key]) for key in keys if key in found]


def _event_at(core: SqliteCore, position: int) -> Event | None:
    with core.reading():
        return next(iter(core.at([position])), None)


def query_events(core: SqliteCore, query: EventQuery) -> list[Event]:
    with core.reading():
        if query.text is not None:
            core.statistics.refresh()
        rows = _latest(core, query)
        if core.blocks.is_used:
            fits = _block_filter(core.connection, core.words, core.statistics, query)
            rows = rows if fits is None else core.blocks.latest(fits, rows, query.limit)
        return [core.to_event(row) for row in reversed(rows)]


def _latest(core: SqliteCore, query: EventQuery) -> list[Row]:
    since = _scan_since(core.connection, query)
    if since is not None:
        rows = core.table(*_select_latest(core.connection, core.statistics, query, since=since))
        if len(rows) == query.limit:
            return rows  # all others are older
    return core.table(*_select_latest(core.connection, core.statistics, query))


def _scan_since(connection: apsw.Connection, query: EventQuery) -> int | None:
    """Return the time (in microseconds) from which events should be scanned first, or None for most queries.

    The scan is faster for the query of a session with very many contexts, where looking up each context costs more.
    """
    if query.session is None or query.limit is None:
        return None
    if connection.execute(_MANY, (query.session, MANY_CONTEXTS)).fetchone() is None:
        return None
    row = connection.execute(_RECENT, (RECENT_ROWS,)).fetchone()
    return None if row is None else int(row[0])


def _select_latest(
    connection: apsw.Connection, facts: TextStatistics, query: EventQuery, *, since: int | None = None
) -> tuple[str, list[str | int]]:
    """Return the part of a SELECT after the table name that finds the matching rows, latest first, and its values.

    With `since`, only rows from that time on are selected; they are scanned by time, not looked up by context.
    """
    conditions: list[str] = []
    bindings: list[str | int] = []

    def require(condition: str, *values: str | int) -> None:
        conditions.append(condition)
        bindings.extend(values)

    if since is not None:
        require("at >= ?", since)
    if query.session is not None:
        require(
            """context IN (SELECT contexts.id FROM contexts JOIN sessions ON sessions.id = contexts.session
            WHERE sessions.name = ?)"""
            if since is None
            else """(SELECT session FROM contexts WHERE contexts.id = context)
            = (SELECT id FROM sessions WHERE name = ?)""",
            query.session,
        )
    if query.agent is not None:
        require(f"{'' if since is None else '+'}context IN (SELECT id FROM contexts WHERE agent = ?)", query.agent)
    if query.user is not None:
        require(f"{'' if since is None else '+'}context IN (SELECT id FROM contexts WHERE user = ?)", query.user)
    if query.names:
        fitting = _fitting_names(connection, query.names)
        require(f"name IN ({', '.join('?' * len(fitting))})", *fitting)
    if query.since is not None:
        require("at >= ?", microseconds(query.since))
    if query.until is not None:
        require("at < ?", microseconds(query.until))
    if query.errors is not None:
        require("error = ?", int(query.errors))
    if query.text is not None:
        positions = facts.containing(query_terms(query.text))
        require("position IN (SELECT value FROM json_each(?))", as_json(positions))
    where = f"WHERE {' AND '.join(conditions)} " if conditions else ""
    limit = -1 if query.limit is None else query.limit
    return f"{where}ORDER BY at DESC, position DESC LIMIT ?", [*bindings, limit]


def _block_filter(
    connection: apsw.Connection, words: SqliteWords, facts: TextStatistics, query: EventQuery
) -> BlockFilter | None:
    """Return the filter that applies a query to events in blocks; None when no event in a block can match."""
    session = None
    if query.session is not None:
        row = connection.execute("SELECT id FROM sessions WHERE name = ?", (query.session,)).fetchone()
        if row is None:
            return None
        session = row[0]
    sessions = [
        frozenset(number for (number,) in connection.execute(statement, (value,)))
        for statement, value in (
            ("SELECT DISTINCT coalesce(session, 0) FROM contexts WHERE agent = ?", query.agent),
            ("SELECT DISTINCT coalesce(session, 0) FROM contexts WHERE user = ?", query.user),
        )
        if value is not None
    ]
    return BlockFilter(
        session=session,
        names=frozenset(_fitting_names(connection, query.names)) if query.names else None,
        since=None if query.since is None else microseconds(query.since),
        until=None if query.until is None else microseconds(query.until),
        error=None if query.errors is None else int(query.errors),
        positions=None if query.text is None else frozenset(facts.containing(query_terms(query.text))),
        context=partial(_fits, words, query) if sessions or session is not None else None,
        sessions=frozenset.intersection(*sessions) if sessions else None,
    )


def _fitting_names(connection: apsw.Connection, patterns: Iterable[str]) -> list[int]:
    """Return the row ids of the stored event names that match at least one of these patterns."""
    compiled = [name_pattern(pattern) for pattern in patterns]
    return [
        number
        for number, name in connection.execute("SELECT id, name FROM names ORDER BY id")
        if any(pattern.fullmatch(name) for pattern in compiled)
    ]


def _fits(words: SqliteWords, query: EventQuery, context: int) -> bool:
    """Return True if the context with this number meets the conditions of the query."""
    interned = words.context(context)
    return (
        query.session in (None, interned.session)
        and query.agent in (None, interned.agent)
        and query.user in (None, interned.user)
    )


class SqliteLog(SqliteRole):
    """Implements `EventLog` in a SQLite file."""

    append = threaded(_append)
    get = threaded(SqliteCore.get)
    get_many = threaded(_get_many)
    at = threaded(_event_at)
    query = threaded(query_events)
    read = threaded(SqliteCore.read)
    last_position = threaded(SqliteCore.last_position)

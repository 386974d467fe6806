"""The SQLite implementation of `EventLog`, the append-only log."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from functools import partial
from itertools import starmap

from mica.errors import DuplicateEvent
from mica.model.event import (
    ORIGINS,
    Appended,
    Event,
    EventId,
    EventQuery,
    WriterId,
    event_id,
    microseconds,
    split_ids,
)
from mica.store.checks import ChainPlace, check_content
from mica.store.codec import CACHE_ENTRIES_MAX, INLINE_BYTES_MAX, remember
from mica.store.purges import is_same_or_tombstone
from mica.store.sqlite import crystals, log_query, texts
from mica.store.sqlite.core import SqliteCore
from mica.store.sqlite.file import COLUMNS, Key, Row, as_json, insert
from mica.store.sqlite.worker import SqliteRole, threaded

EVENTS = f"events ({COLUMNS})", "(?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"

_ORIGIN = {origin: number for number, origin in enumerate(ORIGINS)}
_OF_KEYS = "WHERE (writer, sequence) IN (SELECT value ->> 0, value ->> 1 FROM json_each(?))"


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
                places[identifier] = _new_place(core, stored, (number, sequence), parent)
                parents.append(parent)
            elif _differs(core, event, fresh.get(identifier)):
                raise DuplicateEvent(identifier)
        if fresh:
            # Only for stored events: the contexts of purged events must not be interned.
            core.words.intern_contexts({id(event.context): event.context for event in fresh.values()}.values())
            each = zip(fresh.values(), places.values(), parents, range(first, first + len(fresh)), strict=True)
            insert(core.connection, *EVENTS, list(starmap(partial(_row, core), each)))
            texts.index(core.connection, core.words, enumerate(fresh.values(), first))
            crystals.index(core.connection, core.get, enumerate(fresh.values(), first))
            core.connection.execute("UPDATE space SET last_position = ?", (first + len(fresh) - 1,))
    if len(core.places) + len(places) > CACHE_ENTRIES_MAX:
        core.places.clear()
    core.places |= places  # only after the commit, which may fail
    return Appended(stored=len(fresh), repeated=len(events) - len(fresh))


def _known(core: SqliteCore, keys: Iterable[tuple[WriterId, int]]) -> set[EventId]:
    """Return those of the ids in `keys` that are already stored. If all are new, this costs one lookup per writer."""
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


def _new_place(core: SqliteCore, event: Event, own: Key, parent: ChainPlace[Key] | None) -> ChainPlace[Key]:
    root = own
    if event.parent_id is not None:
        root = core.words.key(event.root_id) if parent is None else parent.root
    return ChainPlace(event.id, event.root_id, event.depth, own, root)


def _row(core: SqliteCore, event: Event, place: ChainPlace[Key], parent: ChainPlace[Key] | None, position: int) -> Row:
    """Return an event as a row of the events table. Its ids, name and context become numbers; new ones are interned."""
    body = event.body
    is_inline = len(body) <= INLINE_BYTES_MAX
    if parent is not None:
        above: Key | tuple[None, None] = parent.own
    else:
        above = (None, None) if event.parent_id is None else core.words.key(event.parent_id)
    return (
        position,
        *place.own,
        core.words.numbers["names"].get(event.name) or core.words.number("names", event.name),
        microseconds(event.at),
        core.words.context_number(event.context),
        *place.root,
        *above,
        event.depth,
        _ORIGIN[event.origin],
        event.error,
        body.decode() if is_inline else None,
        None if is_inline else core.payload_number(body),
    )


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
            block_filter = log_query.block_filter(core.connection, core.words, core.statistics, query)
            rows = rows if block_filter is None else core.blocks.latest(block_filter, rows, query.limit)
        return [core.to_event(row) for row in reversed(rows)]


def _latest(core: SqliteCore, query: EventQuery) -> list[Row]:
    since = log_query.recent(core.connection, query)
    if since is not None:
        rows = core.table(*log_query.latest(core.connection, core.statistics, query, since=since))
        if len(rows) == query.limit:
            return rows  # all others are older
    return core.table(*log_query.latest(core.connection, core.statistics, query))


class SqliteLog(SqliteRole):
    """Implements `EventLog` in a SQLite file."""

    append = threaded(_append)
    get = threaded(SqliteCore.get)
    get_many = threaded(_get_many)
    at = threaded(_event_at)
    query = threaded(query_events)
    read = threaded(SqliteCore.read)
    last_position = threaded(SqliteCore.last_position)

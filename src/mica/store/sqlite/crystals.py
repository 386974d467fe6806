"""The SQLite implementation of `CrystalIndex`, the index of crystals and their sources.

Its rows are derived from events. The laws that every crystal must obey are checked here and again by triggers of the
database.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Sequence

import apsw

from mica.errors import LawBroken
from mica.model.crystal import (
    LEVELS,
    Crystal,
    CrystalQuery,
    Fact,
    check_laws,
    crystal_of,
    overlap,
    retraction_target,
    source_fact,
)
from mica.model.event import CRYSTAL, PURGED, RETRACTED, Event, EventId, is_id, microseconds, tombstone_of
from mica.model.mark import Posting
from mica.store.crystal_rows import CrystalRow, CrystalRows, DerivedCrystals, SourceRow, broken_crystals
from mica.store.protocol import LATEST_MARKS
from mica.store.query import group_by_origin
from mica.store.sqlite import texts
from mica.store.sqlite.core import SqliteCore
from mica.store.sqlite.file import as_json, authority, translated
from mica.store.sqlite.worker import SqliteRole, threaded

Lookup = Callable[[EventId], Event | None]

_STALE = """EXISTS (
        SELECT 1 FROM crystal_sources LEFT JOIN texts ON texts.position = source AND is_mark
            LEFT JOIN crystals AS below ON below.position = source AND below.superseded_by IS NULL
        WHERE crystal = crystals.position AND texts.position IS NULL AND below.position IS NULL
    )"""
_CITING = """WITH RECURSIVE above (position) AS (
        SELECT value FROM json_each(?)
        UNION
        SELECT crystal FROM above JOIN crystal_sources ON source = above.position
    )
    SELECT position FROM above JOIN crystals USING (position)"""
_ABOVE = """WITH RECURSIVE above (origin, position) AS (
        SELECT value, value FROM json_each(?)
        UNION
        SELECT origin, crystal FROM above JOIN crystal_sources ON source = above.position
    )
    SELECT origin, position FROM above JOIN crystals USING (position) WHERE position <> origin"""


def index(connection: apsw.Connection, lookup: Lookup, events: Iterable[tuple[int, Event]]) -> None:
    """Update the rows of marks and crystals for new events. `events` are pairs of position and event.

    `lookup` returns the stored event with an id, or None. Raises LawBroken for a crystal that breaks a law.
    """
    for position, event in events:
        if event.name == CRYSTAL:
            _add(connection, lookup, position, crystal_of(event))
        elif event.name == RETRACTED:
            _retract(connection, lookup, retraction_target(event), by=position)
        elif event.name == PURGED:
            tombstone = tombstone_of(event)
            _supersede(connection, lookup, tombstone.supersedes, by=position)
            if tombstone.retracts is not None:
                _retract(connection, lookup, tombstone.retracts, by=position)


def index_stored(connection: apsw.Connection, lookup: Lookup, events: Iterable[tuple[int, Event]]) -> None:
    """Update the rows for events that are already stored. A crystal that lost a source to a purge gets no row."""
    for position, event in events:
        try:
            index(connection, lookup, [(position, event)])
        except LawBroken:
            _supersede(connection, lookup, crystal_of(event).supersedes, by=position)


def _add(connection: apsw.Connection, lookup: Lookup, position: int, crystal: Crystal) -> None:
    facts: dict[EventId, Fact] = {}
    places: dict[EventId, int] = {}
    for source in filter(None, map(lookup, filter(is_id, crystal.sources))):
        if source.position and source.position < position and (fact := _fact(connection, source)) is not None:
            facts[source.id], places[source.id] = fact, source.position
    check_laws(crystal, facts)
    superseded = _positions(lookup, crystal.supersedes, before=position)
    if not crystal.is_tree and _is_sealed(connection, places.values(), besides=superseded):
        raise overlap(crystal)
    _supersede(connection, lookup, crystal.supersedes, by=position)
    connection.executemany(
        "INSERT INTO crystal_sources (crystal, source, tokens, is_live) VALUES (?, ?, ?, ?)",
        [(position, places[each], facts[each].tokens, not crystal.is_tree) for each in crystal.sources],
    )
    times = microseconds(crystal.start_at), microseconds(crystal.end_at)
    connection.execute(
        "INSERT INTO crystals (position, level, period, start_at, end_at, tokens) VALUES (?, ?, ?, ?, ?, ?)",
        (position, crystal.number, crystal.period, *times, crystal.tokens),
    )
    retracted = connection.execute("SELECT position FROM retractions WHERE retracted = ?", (crystal.id,)).fetchone()
    if retracted is not None:
        _end(connection, position, by=retracted[0])


def _fact(connection: apsw.Connection, source: Event) -> Fact | None:
    """Return the properties of a source that the laws check, or None if it cannot be a source or has no row."""
    if source.name == CRYSTAL:
        row = connection.execute(
            "SELECT superseded_by IS NULL FROM crystals WHERE position = ?", (source.position,)
        ).fetchone()
        return None if row is None else source_fact(source, is_live=bool(row[0]))
    row = connection.execute("SELECT 1 FROM texts WHERE position = ? AND is_mark", (source.position,)).fetchone()
    return source_fact(source, is_live=row is not None)


def _is_sealed(connection: apsw.Connection, sources: Iterable[int], *, besides: Sequence[int]) -> bool:
    row = connection.execute(
        """SELECT 1 FROM crystal_sources WHERE is_live AND source IN (SELECT value FROM json_each(?))
        AND crystal NOT IN (SELECT value FROM json_each(?))""",
        (as_json(list(sources)), as_json(besides)),
    ).fetchone()
    return row is not None


def _positions(lookup: Lookup, identifiers: Iterable[EventId], *, before: int) -> list[int]:
    """Return the positions of these events, if they are stored before position `before`."""
    known = filter(None, map(lookup, filter(is_id, identifiers)))
    return [event.position for event in known if event.position and event.position < before]


def _supersede(connection: apsw.Connection, lookup: Lookup, identifiers: Iterable[EventId], *, by: int) -> None:
    for position in _positions(lookup, identifiers, before=by):
        _end(connection, position, by=by)


def _retract(connection: apsw.Connection, lookup: Lookup, identifier: EventId, *, by: int) -> None:
    connection.execute(
        "INSERT INTO retractions (retracted, position) VALUES (?, ?) ON CONFLICT DO NOTHING", (identifier, by)
    )
    if (known := lookup(identifier)) is not None and known.position:
        texts.unmark(connection, known.position)
        _end(connection, known.position, by=by)


def _end(connection: apsw.Connection, position: int, *, by: int) -> None:
    """Mark the crystal at this position, if any, as superseded by the event at position `by`."""
    connection.execute(
        "UPDATE crystals SET superseded_by = ? WHERE position = ? AND superseded_by IS NULL", (by, position)
    )
    if connection.changes():
        connection.execute("UPDATE crystal_sources SET is_live = 0 WHERE crystal = ? AND is_live", (position,))


def _positions_of(connection: apsw.Connection, query: CrystalQuery) -> list[int]:
    """Return the positions of the matching crystals, up to the limit of the query; those that end last come first."""
    conditions: list[tuple[str, object]] = []
    if query.level is not None:
        conditions.append(("level = ?", LEVELS.index(query.level)))
    if query.period is not None:
        conditions.append(("period = ?", query.period))
    if query.since is not None:
        conditions.append(("end_at >= ?", microseconds(query.since)))
    if query.until is not None:
        conditions.append(("start_at < ?", microseconds(query.until)))
    if query.is_live is not None:
        conditions.append(("(superseded_by IS NULL) = ?", query.is_live))
    if query.is_sealed is not None:
        sealed = "EXISTS (SELECT 1 FROM crystal_sources WHERE source = crystals.position AND is_live)"
        conditions.append((f"{sealed} = ?", query.is_sealed))
    if query.positions is not None:
        conditions.append(("position IN (SELECT value FROM json_each(?))", as_json(sorted(query.positions))))
    if query.is_stale is not None:
        conditions.append((f"{_STALE} = ?", query.is_stale))
    where = " AND ".join(condition for condition, _ in conditions) or "1"
    limit = -1 if query.limit is None else query.limit
    rows = connection.execute(
        f"SELECT position FROM crystals WHERE {where} ORDER BY end_at DESC, position DESC LIMIT ?",
        (*(value for _, value in conditions), limit),
    )
    return [row[0] for row in rows]


def _unsealed_positions(
    connection: apsw.Connection, limit: int, *, session: str | None, latest: bool, after: int | None
) -> list[int]:
    condition = "is_mark" if session is None else "is_mark AND session = (SELECT id FROM sessions WHERE name = ?)"
    if after is not None:
        condition += " AND position > ?"
    window = f"ORDER BY at DESC, position DESC LIMIT {LATEST_MARKS}" if latest else ""
    order = "at DESC, position DESC" if latest else "at, position" if after is None else "position"
    rows = connection.execute(
        f"""SELECT position FROM (SELECT position, at FROM texts WHERE {condition} {window}) AS marks
        WHERE NOT EXISTS (SELECT 1 FROM crystal_sources WHERE source = marks.position AND is_live)
        ORDER BY {order} LIMIT ?""",
        (*([] if session is None else [session]), *([] if after is None else [after]), limit),
    )
    return [row[0] for row in rows]


def _citing_positions(connection: apsw.Connection, positions: Sequence[int]) -> list[int]:
    """Return the positions of all crystals, live or superseded, with a direct or indirect source at these positions."""
    origins = set(positions)
    rows = connection.execute(_CITING, (as_json(sorted(origins)),))
    return sorted(row[0] for row in rows if row[0] not in origins)


def _above_pairs(connection: apsw.Connection, positions: Iterable[int]) -> list[tuple[int, int]]:
    """Return pairs of one of these positions and the position of a crystal that has the event there as a source.

    Sources of sources count too.
    """
    rows = connection.execute(_ABOVE, (as_json(sorted(set(positions))),))
    return [(origin, position) for origin, position in rows]


def clear(connection: apsw.Connection) -> None:
    """Delete all crystal rows before they are derived again."""
    with authority(connection, "rebuild"):
        for table in ("crystals", "crystal_sources", "retractions"):
            connection.execute(f"DELETE FROM {table}")


def bury(connection: apsw.Connection, positions: str) -> None:
    """Delete the rows of the crystals at these positions (a JSON list) and of all crystals that were made from them.

    Must be called inside a `with authority(…, "purge")` block, which makes the database permit it.
    """
    buried = as_json([row[0] for row in connection.execute(_CITING, (positions,))])
    connection.execute("DELETE FROM crystals WHERE position IN (SELECT value FROM json_each(?))", (buried,))
    connection.execute("DELETE FROM crystal_sources WHERE crystal IN (SELECT value FROM json_each(?))", (buried,))


def broken(connection: apsw.Connection, derived: DerivedCrystals) -> list[str]:
    """Return one sentence for each stored row that differs from the row derived from the log."""
    crystals = connection.execute(
        "SELECT position, level, period, start_at, end_at, tokens, superseded_by FROM crystals"
    )
    sources = connection.execute("SELECT crystal, source, tokens, is_live FROM crystal_sources")
    rows = CrystalRows(
        [CrystalRow(*row) for row in crystals],
        [SourceRow(*row) for row in sources],
        [row[0] for row in connection.execute("SELECT retracted FROM retractions")],
        array("q", (row[0] for row in connection.execute("SELECT position FROM texts WHERE is_mark"))),
    )
    return broken_crystals(derived, rows)


def _query(core: SqliteCore, query: CrystalQuery) -> list[Crystal]:
    with core.reading():
        found = map(crystal_of, core.at(_positions_of(core.connection, query)))
        return sorted(found, key=lambda crystal: (crystal.end_at, crystal.position))


def _postings(core: SqliteCore, wanted: Sequence[str], query: CrystalQuery) -> dict[str, tuple[Posting, ...]]:
    with core.reading():
        core.statistics.refresh()
        positions = _positions_of(core.connection, query)
        return core.statistics.postings_at(wanted, positions, only_marks=False)


def _unsealed(
    core: SqliteCore,
    *,
    limit: int,
    session: str | None = None,
    latest: bool = False,
    after: int | None = None,
) -> list[Event]:
    with core.reading():
        positions = _unsealed_positions(core.connection, limit, session=session, latest=latest, after=after)
        return sorted(core.at(positions), key=lambda event: event.sort_key)


def _citing(core: SqliteCore, identifiers: Sequence[EventId]) -> list[EventId]:
    with core.reading():
        known = [event.position for event in map(core.get, identifiers) if event and event.position]
        return [event.id for event in core.at(_citing_positions(core.connection, known))]


def _above(core: SqliteCore, positions: Sequence[int]) -> dict[int, frozenset[int]]:
    with translated(core.path):
        return group_by_origin(positions, _above_pairs(core.connection, positions))


class SqliteCrystals(SqliteRole):
    """Implements `CrystalIndex` in a SQLite file."""

    query = threaded(_query)
    postings = threaded(_postings)
    unsealed = threaded(_unsealed)
    citing = threaded(_citing)
    above = threaded(_above)

"""Crystals in the embedded store: rows that derive from the events, and the laws in triggers beside those in code."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager

import apsw

from mica.crystals import (
    CRYSTAL,
    LEVELS,
    RETRACTED,
    CrystalQuery,
    Fact,
    check_laws,
    crystal_of,
    fact_of,
    overlap,
    retracted_by,
)
from mica.model import Event, EventId, microseconds, utc_now
from mica.store.sqlite_file import as_json

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


def index(connection: apsw.Connection, lookup: Lookup, events: Iterable[tuple[int, Event]]) -> None:
    """Apply what these events, each with its position, say about marks and crystals. Raises LawBroken."""
    for position, event in events:
        if event.name == CRYSTAL:
            _add(connection, lookup, position, event)
        elif event.name == RETRACTED and (known := lookup(retracted_by(event))) is not None:
            connection.execute("UPDATE texts SET is_mark = 0 WHERE position = ?", (known.position,))
            _supersede(connection, known, by=position)


def _add(connection: apsw.Connection, lookup: Lookup, position: int, event: Event) -> None:
    crystal = crystal_of(event)
    facts: dict[EventId, Fact] = {}
    places: dict[EventId, int] = {}
    for source in filter(None, map(lookup, crystal.sources)):
        fact = fact_of(source, is_live=_is_live(connection, source))
        if fact is not None and source.position is not None:
            facts[source.id], places[source.id] = fact, source.position
    check_laws(crystal, facts)
    for before in filter(None, map(lookup, crystal.supersedes)):
        _supersede(connection, before, by=position)
    try:
        connection.executemany(
            "INSERT INTO crystal_sources (crystal, source, tokens, is_live) VALUES (?, ?, ?, ?)",
            [(position, places[each], facts[each].tokens, not crystal.is_tree) for each in crystal.sources],
        )
    except apsw.ConstraintError as error:
        raise overlap(crystal) from error
    times = microseconds(crystal.start_at), microseconds(crystal.end_at)
    connection.execute(
        "INSERT INTO crystals (position, level, period, start_at, end_at, tokens) VALUES (?, ?, ?, ?, ?, ?)",
        (position, crystal.number, crystal.period, *times, crystal.tokens),
    )


def _supersede(connection: apsw.Connection, before: Event, *, by: int) -> None:
    connection.execute("UPDATE crystal_sources SET is_live = 0 WHERE crystal = ? AND is_live", (before.position,))
    connection.execute(
        "UPDATE crystals SET superseded_by = ? WHERE position = ? AND superseded_by IS NULL", (by, before.position)
    )


def _is_live(connection: apsw.Connection, source: Event) -> bool:
    table = (
        "SELECT 1 FROM crystals WHERE position = ? AND superseded_by IS NULL"
        if source.name == CRYSTAL
        else "SELECT 1 FROM texts WHERE position = ? AND is_mark"
    )
    return connection.execute(table, (source.position,)).fetchone() is not None


def found(connection: apsw.Connection, query: CrystalQuery) -> list[int]:
    """The positions of crystals that fit, those that end last."""
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
    if query.is_stale is not None:
        conditions.append((f"{_STALE} = ?", query.is_stale))
    where = " AND ".join(condition for condition, _ in conditions) or "1"
    limit = -1 if query.limit is None else query.limit
    rows = connection.execute(
        f"SELECT position FROM crystals WHERE {where} ORDER BY end_at DESC, position DESC LIMIT ?",
        (*(value for _, value in conditions), limit),
    )
    return [row[0] for row in rows]


def unsealed(connection: apsw.Connection, limit: int) -> list[int]:
    """The positions of the marks, oldest first, that no live crystal has as a source."""
    rows = connection.execute(
        """SELECT position FROM texts WHERE is_mark
        AND NOT EXISTS (SELECT 1 FROM crystal_sources WHERE source = position AND is_live)
        ORDER BY at, position LIMIT ?""",
        (limit,),
    )
    return [row[0] for row in rows]


def citing(connection: apsw.Connection, positions: Sequence[int]) -> list[int]:
    """The positions of the crystals that rest on what is there, at any level, superseded ones too."""
    wanted = set(positions)
    rows = connection.execute(_CITING, (as_json(sorted(wanted)),))
    return sorted(row[0] for row in rows if row[0] not in wanted)


def clear(connection: apsw.Connection) -> None:
    """Leave no crystal: what follows derives them again."""
    with _authority(connection):
        connection.execute("DELETE FROM crystals")
        connection.execute("DELETE FROM crystal_sources")


def bury(connection: apsw.Connection, positions: str) -> None:
    """Remove what is derived from crystals at these positions, under the authority of a purge."""
    connection.execute("DELETE FROM crystals WHERE position IN (SELECT value FROM json_each(?))", (positions,))
    for column in ("crystal", "source"):
        connection.execute(
            f"DELETE FROM crystal_sources WHERE {column} IN (SELECT value FROM json_each(?))", (positions,)
        )


@contextmanager
def _authority(connection: apsw.Connection) -> Iterator[None]:
    connection.execute("INSERT INTO authority (work, at) VALUES ('rebuild', ?)", (microseconds(utc_now()),))
    yield
    connection.execute("DELETE FROM authority WHERE work = 'rebuild'")

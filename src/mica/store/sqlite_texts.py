"""Full text in the embedded store: which words an event's text has, in plain tables that derive from the log."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from itertools import groupby
from operator import itemgetter

import apsw
import msgspec

from mica.model import MARK, Event, Posting, Vectors, microseconds, searchable_text
from mica.store.encoding import near
from mica.store.protocol import affordable, orphaned_texts, stale_texts
from mica.store.sqlite_file import Row, as_json, insert
from mica.store.sqlite_words import Words
from mica.words import words

# The positions of the events that contain so many terms.
CONTAINING = """SELECT position FROM postings JOIN terms ON terms.id = postings.term
    WHERE terms.term IN (SELECT value FROM json_each(?)) GROUP BY position HAVING count(*) = ?"""


def index(connection: apsw.Connection, interned: Words, events: Iterable[tuple[int, Event]]) -> None:
    """Make the text of these events, each with its position, findable."""
    texts: list[Row] = []
    found: list[tuple[int, list[str]]] = []
    for position, event in events:
        text = searchable_text(event)
        if text is None:
            continue
        session = event.context.session
        number = None if session is None else interned.number("sessions", session)
        found.append((position, words(text)))
        texts.append((position, number, microseconds(event.at), len(found[-1][1]), event.name == MARK, event.id))
    term_number = interned.term_numbers(set().union(*(each for _, each in found))).__getitem__
    postings: list[Row] = [
        (term, position, count)
        for position, each in found
        for term, count in Counter(map(term_number, each)).items()
        if term
    ]
    is_mark = "? AND NOT EXISTS (SELECT 1 FROM retractions WHERE retracted = ?)"
    insert(connection, "texts (position, session, at, length, is_mark)", f"(?, ?, ?, ?, {is_mark})", texts)
    postings.sort()  # as the table is: neighbours are written to the same page
    insert(connection, "postings (term, position, count)", "(?, ?, ?)", postings)


def clear(connection: apsw.Connection) -> None:
    """Leave nothing indexed. Terms keep their numbers: other processes remember them."""
    for table in ("postings", "texts", "vectors"):
        connection.execute(f"DELETE FROM {table}")


_OF_TERM = "WHERE term = (SELECT id FROM terms WHERE term = ?) AND is_mark"
_COUNT = f"SELECT count(*) FROM postings JOIN texts USING (position) {_OF_TERM}"
_COUNT_ALL = "SELECT count(*) FROM postings WHERE term = (SELECT id FROM terms WHERE term = ?)"
_LATEST = f"""SELECT position, count, length, sessions.name FROM postings
    JOIN texts USING (position) LEFT JOIN sessions ON sessions.id = texts.session
    {_OF_TERM} AND at >= ? AND at < ? ORDER BY position DESC LIMIT ?"""
_AT = """SELECT position, count, length, sessions.name FROM json_each(?) AS wanted
    CROSS JOIN postings ON postings.term = (SELECT id FROM terms WHERE term = ?) AND postings.position = wanted.value
    JOIN texts USING (position) LEFT JOIN sessions ON sessions.id = texts.session
    WHERE is_mark ORDER BY position"""
_EVER = -(2**63), 2**63 - 1


class Lengths(msgspec.Struct, frozen=True):
    """How long the marks of a space are."""

    of_marks: list[tuple[int, int]] = []  # a length, and how many marks have it
    only_marks: bool = True  # nothing else has a text


def lengths(connection: apsw.Connection) -> Lengths:
    """How many marks have each length."""
    rows = connection.execute("SELECT length, count(*) FROM texts WHERE is_mark GROUP BY length ORDER BY length")
    of_marks = [(length, count) for length, count in rows]
    texts = int(next(iter(connection.execute("SELECT count(*) FROM texts")))[0])
    return Lengths(of_marks, texts == sum(count for _, count in of_marks))


def listed(
    connection: apsw.Connection,
    wanted: Sequence[str],
    *,
    limit: int | None,
    since: datetime | None,
    until: datetime | None,
    only_marks: bool,
) -> tuple[dict[str, tuple[Posting, ...]], dict[str, int]]:
    """The postings of these terms in marks, and in how many marks each term is: told sooner where all texts are."""
    count = _COUNT_ALL if only_marks else _COUNT
    containing = {term: int(next(iter(connection.execute(count, (term,))))[0]) for term in wanted}
    room = -1 if limit is None else limit
    first, last = _EVER[0] if since is None else microseconds(since), _EVER[1] if until is None else microseconds(until)
    by_term: dict[str, tuple[Posting, ...]] = dict.fromkeys(wanted, ())
    for term in affordable(containing, limit):
        rows = connection.execute(_LATEST, (term, first, last, room)).fetchall()
        by_term[term] = tuple(Posting(*row) for row in reversed(rows))
    return by_term, containing


def listed_at(
    connection: apsw.Connection, wanted: Sequence[str], positions: Sequence[int]
) -> dict[str, tuple[Posting, ...]]:
    """The postings of these terms in the marks at these positions."""
    at = as_json(sorted(set(positions)))
    return {term: tuple(Posting(*row) for row in connection.execute(_AT, (at, term))) for term in wanted}


def around(
    connection: apsw.Connection, positions: Sequence[int], *, neighbours: int
) -> dict[int, tuple[int, int, int]]:
    """The marks at these positions and their neighbours: position to length, ordinal and the session's length."""
    found: dict[int, tuple[int, int, int]] = {}
    wanted = set(positions)
    chosen = (
        "SELECT position, length, session FROM texts WHERE is_mark AND position IN (SELECT value FROM json_each(?))"
    )
    sessions = set()
    for position, length, session in connection.execute(chosen, (as_json(sorted(wanted)),)):
        found[position] = (length, 0, length)
        sessions.add(session)
    for session in sessions - {None}:
        in_order = "SELECT position, length FROM texts WHERE session = ? AND is_mark ORDER BY at, position"
        together = [(position, length) for position, length in connection.execute(in_order, (session,))]
        found |= near(together, wanted, neighbours=neighbours)
    return found


def save_vectors(connection: apsw.Connection, model: str, vectors: Mapping[int, bytes]) -> None:
    """Keep the vectors of those positions that are marks."""
    connection.executemany(
        """INSERT OR REPLACE INTO vectors (position, model, vector)
        SELECT position, ?, ? FROM texts WHERE position = ? AND is_mark""",
        [(model, vector, position) for position, vector in sorted(vectors.items())],
    )


def vectors(connection: apsw.Connection, model: str, *, after: int, limit: int) -> Vectors:
    """The latest vectors of a model, and how many it has."""
    count = int(next(iter(connection.execute("SELECT count(*) FROM vectors WHERE model = ?", (model,))))[0])
    latest = "SELECT position, vector FROM vectors WHERE position > ? AND model = ? ORDER BY position DESC LIMIT ?"
    rows = connection.execute(latest, (after, model, limit)).fetchall()
    return Vectors(count, tuple((position, vector) for position, vector in reversed(rows)))


def without_vector(connection: apsw.Connection, model: str, *, limit: int) -> list[int]:
    """The positions of the latest marks that a model has no vector of."""
    missing = """SELECT position FROM texts WHERE is_mark
        AND NOT EXISTS (SELECT 1 FROM vectors WHERE vectors.position = texts.position AND model = ?)
        ORDER BY position DESC LIMIT ?"""
    return [position for (position,) in connection.execute(missing, (model, limit))]


def stale(connection: apsw.Connection, log: Iterable[Event]) -> list[str]:
    """Where the index does not hold what the log says."""
    lengths = {row[0]: row[1] for row in connection.execute("SELECT position, length FROM texts")}
    in_order = (
        "SELECT position, terms.term, count FROM postings JOIN terms ON terms.id = postings.term ORDER BY position"
    )
    counts = {
        position: {row[1]: row[2] for row in rows}
        for position, rows in groupby(connection.execute(in_order), itemgetter(0))
    }
    return stale_texts(log, lengths, counts) + orphaned_texts({*lengths, *counts})

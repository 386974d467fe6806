"""Full text in the embedded store: which words an event's text has, in plain tables that derive from the log."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from itertools import groupby
from operator import itemgetter

import apsw

from mica.model import MARK, Event, Posting, Vectors, microseconds, searchable_text
from mica.store.encoding import Together, remember
from mica.store.protocol import affordable, beside, orphaned_texts, stale_texts
from mica.store.sqlite_file import Row, as_json
from mica.store.sqlite_words import Words
from mica.words import words

TOGETHER_MARKS_MAX = 200_000  # of sessions whose order is remembered, about 30 MB

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
    postings = [
        (term, position, count)
        for position, each in found
        for term, count in Counter(map(term_number, each)).items()
        if term
    ]
    connection.executemany(
        """INSERT INTO texts (position, session, at, length, is_mark)
        VALUES (?, ?, ?, ?, ? AND NOT EXISTS (SELECT 1 FROM retractions WHERE retracted = ?))""",
        texts,
    )
    postings.sort()  # as the table is: neighbours are written to the same page
    connection.executemany("INSERT INTO postings (term, position, count) VALUES (?, ?, ?)", postings)


def clear(connection: apsw.Connection) -> None:
    """Leave nothing indexed. Terms keep their numbers: other processes remember them."""
    for table in ("postings", "texts", "vectors"):
        connection.execute(f"DELETE FROM {table}")


_OF_TERM = "WHERE term = (SELECT id FROM terms WHERE term = ?)"
_COUNT = f"SELECT count(*) FROM postings JOIN texts USING (position) {_OF_TERM} AND position > ? AND is_mark"
_COUNT_ALL = f"SELECT count(*) FROM postings {_OF_TERM} AND position > ?"
_LATEST = f"""SELECT position, count, length, sessions.name FROM postings
    JOIN texts USING (position) LEFT JOIN sessions ON sessions.id = texts.session
    {_OF_TERM} AND is_mark AND at >= ? AND at < ? ORDER BY {{best}}position DESC LIMIT ?"""
_BESIDE = """EXISTS (
    SELECT 1 FROM postings AS other WHERE other.term = (SELECT id FROM terms WHERE term = ?)
    AND other.position = postings.position
) DESC, """
_AT = """SELECT position, count, length, sessions.name FROM json_each(?) AS wanted
    CROSS JOIN postings ON postings.term = (SELECT id FROM terms WHERE term = ?) AND postings.position = wanted.value
    JOIN texts USING (position) LEFT JOIN sessions ON sessions.id = texts.session
    WHERE is_mark OR NOT ? ORDER BY position"""
_EVER = -(2**63), 2**63 - 1


class Facts:
    """What one connection remembers of texts: how long they are, what stands together in a session, how many contain a
    term. What is new since the last look is read, and all of it again when something was retracted or purged.
    """

    def __init__(self, connection: apsw.Connection) -> None:
        self._connection = connection
        self._as_of: Row = ()
        self._last = 0  # the position up to which it is known
        self._lengths: Counter[int] = Counter()
        self._others = 0  # texts that are no marks
        self._together: dict[int, Together] = {}
        self._together_marks = 0
        self._containing: dict[str, tuple[int, int]] = {}  # a term's marks, up to a position

    def forget(self) -> None:
        self._as_of = ()

    def follow(self) -> None:
        """Know what is there now."""
        (as_of,) = self._connection.execute("SELECT generation, (SELECT count(*) FROM retractions) FROM space")
        if as_of != self._as_of:
            self._as_of, self._last, self._others = as_of, 0, 0
            for cache in (self._lengths, self._together, self._containing):
                cache.clear()
        (row,) = self._connection.execute("SELECT max(position) FROM texts")
        if (row[0] or 0) <= self._last:
            return
        if self._last == 0:
            rows = "SELECT length, count(*) FROM texts WHERE is_mark GROUP BY length"
            for length, count in self._connection.execute(rows):
                self._lengths[length] = count
            (total,) = self._connection.execute("SELECT count(*) FROM texts")
            self._others = total[0] - self._lengths.total()
        else:
            later = "SELECT session, length, is_mark FROM texts WHERE position > ?"
            for session, length, is_mark in self._connection.execute(later, (self._last,)):
                self._together.pop(session, None)
                self._lengths[length] += is_mark
                self._others += not is_mark
        self._last = row[0]

    @property
    def lengths(self) -> list[tuple[int, int]]:
        """Each length, and how many marks have it."""
        return sorted((length, count) for length, count in self._lengths.items() if count)

    def containing(self, term: str) -> int:
        """How many marks contain a term."""
        known, upto = self._containing.get(term, (0, 0))
        if upto < self._last:
            count = _COUNT if self._others else _COUNT_ALL
            known += next(iter(self._connection.execute(count, (term, upto))))[0]
            remember(self._containing, term, (known, self._last))
        return known

    def together(self, session: int) -> Together:
        """The marks of a session."""
        if (found := self._together.get(session)) is None:
            in_order = "SELECT position, length FROM texts WHERE session = ? AND is_mark ORDER BY at, position"
            rows = self._connection.execute(in_order, (session,))
            found = Together([(position, length) for position, length in rows])
            self._together_marks += len(found.marks)
            if self._together_marks > TOGETHER_MARKS_MAX:
                self._together.clear()
                self._together_marks = len(found.marks)
            self._together[session] = found
        return found


def listed(
    connection: apsw.Connection,
    containing: Mapping[str, int],
    *,
    limit: int | None,
    since: datetime | None,
    until: datetime | None,
) -> dict[str, tuple[Posting, ...]]:
    """The postings of these terms in marks; of each it is known in how many marks it is."""
    room = -1 if limit is None else limit
    first, last = _EVER[0] if since is None else microseconds(since), _EVER[1] if until is None else microseconds(until)
    by_term: dict[str, tuple[Posting, ...]] = dict.fromkeys(containing, ())
    for term in affordable(containing, limit):
        others = beside(containing, term) if limit is not None and containing[term] > limit else []
        rows = connection.execute(_LATEST.format(best=_BESIDE * len(others)), (term, first, last, *others, room))
        by_term[term] = tuple(Posting(*row) for row in sorted(rows))
    return by_term


def listed_at(
    connection: apsw.Connection, wanted: Sequence[str], positions: Sequence[int], *, only_marks: bool = True
) -> dict[str, tuple[Posting, ...]]:
    """The postings of these terms in the marks, or in whatever has a text, at these positions."""
    at = as_json(sorted(set(positions)))
    return {term: tuple(Posting(*row) for row in connection.execute(_AT, (at, term, only_marks))) for term in wanted}


def around(
    connection: apsw.Connection, facts: Facts, positions: Sequence[int], *, neighbours: int
) -> dict[int, tuple[int, int, int]]:
    """The marks at these positions and their neighbours: position to length, ordinal and the session's length."""
    found: dict[int, tuple[int, int, int]] = {}
    by_session: defaultdict[int, list[int]] = defaultdict(list)
    chosen = (
        "SELECT position, length, session FROM texts WHERE is_mark AND position IN (SELECT value FROM json_each(?))"
    )
    for position, length, session in connection.execute(chosen, (as_json(sorted(set(positions))),)):
        if session is None:
            found[position] = (length, 0, length)
        else:
            by_session[session].append(position)
    for session, wanted in by_session.items():
        found |= facts.together(session).near(wanted, neighbours=neighbours)
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

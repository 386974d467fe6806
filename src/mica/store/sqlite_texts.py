"""Full text in the embedded store: which words an event's text has, in plain tables that derive from the log."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import groupby
from operator import itemgetter

import apsw

from mica.model import MARK, Event, Posting, Postings, microseconds, searchable_text
from mica.store.encoding import near
from mica.store.protocol import gathered, orphaned_texts, stale_texts
from mica.store.sqlite_file import Row, as_json
from mica.store.sqlite_words import Words
from mica.words import terms_of, words

# The positions of the events that contain so many terms.
CONTAINING = """SELECT position FROM postings JOIN terms ON terms.id = postings.term
    WHERE terms.term IN (SELECT value FROM json_each(?)) GROUP BY position HAVING count(*) = ?"""


def index(connection: apsw.Connection, interned: Words, events: Iterable[tuple[int, Event]]) -> None:
    """Make the text of these events, each with its position, findable."""
    texts: list[Row] = []
    postings: list[Row] = []
    known = interned.numbers["terms"]
    for position, event in events:
        text = searchable_text(event)
        if text is None:
            continue
        found, session = words(text), event.context.session
        number = None if session is None else interned.number("sessions", session)
        texts.append((position, number, microseconds(event.at), len(found), event.name == MARK, event.id))
        for term, count in Counter(terms_of(found)).items():
            postings.append((known.get(term) or interned.number("terms", term), position, count))
    connection.executemany(
        """INSERT INTO texts (position, session, at, length, is_mark)
        VALUES (?, ?, ?, ?, ? AND NOT EXISTS (SELECT 1 FROM retractions WHERE retracted = ?))""",
        texts,
    )
    postings.sort()  # as the table is: neighbours are written to the same page
    connection.executemany("INSERT INTO postings (term, position, count) VALUES (?, ?, ?)", postings)


def clear(connection: apsw.Connection) -> None:
    """Leave nothing indexed. Terms keep their numbers: other processes remember them."""
    for table in ("postings", "texts"):
        connection.execute(f"DELETE FROM {table}")


def postings(connection: apsw.Connection, wanted: Sequence[str]) -> Postings:
    """What a ranker needs to know of these terms in marks."""
    by_term = {
        term: tuple(
            Posting(*row)
            for row in connection.execute(
                """SELECT position, count, length, sessions.name FROM postings
                JOIN texts USING (position) LEFT JOIN sessions ON sessions.id = texts.session
                WHERE term = (SELECT id FROM terms WHERE term = ?) AND is_mark ORDER BY position""",
                (term,),
            )
        )
        for term in wanted
    }
    lengths = connection.execute("SELECT length, count(*) FROM texts WHERE is_mark GROUP BY length ORDER BY length")
    return gathered(by_term, lengths)


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

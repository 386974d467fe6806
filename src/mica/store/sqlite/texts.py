"""Full text in the embedded store: which words an event's text has, in plain tables that derive from the log."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime
from itertools import chain

import apsw
import msgspec

from mica.model.event import MARK, Event, Posting, Postings, Vectors, microseconds, searchable_text
from mica.store.codec import Together
from mica.store.protocol import gathered, orphaned_texts, stale_texts, worths
from mica.store.sqlite import postings as sqlite_postings
from mica.store.sqlite.bits import heaviest, unpacked
from mica.store.sqlite.file import Row, as_json, insert
from mica.store.sqlite.postings import Volumes
from mica.store.sqlite.words import Words
from mica.words import words

TOGETHER_MARKS_MAX = 200_000  # of sessions whose order is remembered, about 30 MB
KNOWN_TEXTS_MAX = 50_000  # whose length and session are remembered, about 8 MB


def index(connection: apsw.Connection, interned: Words, events: Iterable[tuple[int, Event]]) -> None:
    """Make the text of these events, each with its position, findable."""
    rows: list[Row] = []
    found: list[tuple[int, list[str]]] = []
    ids: list[str] = []
    sessions = interned.numbers["sessions"]
    for position, event in events:
        if (text := searchable_text(event)) is None:
            continue
        session = event.context.session
        number = None if session is None else sessions.get(session) or interned.number("sessions", session)
        said = words(text)
        found.append((position, said))
        ids.append(event.id)
        rows.append((position, number, microseconds(event.at), len(said), event.name == MARK))
    if not rows:
        return
    for place in _retracted(connection, ids):
        rows[place] = (*rows[place][:-1], False)
    insert(connection, "texts (position, session, at, length, is_mark)", "(?, ?, ?, ?, ?)", rows)
    term_number = interned.term_numbers(set(chain.from_iterable(said for _, said in found))).__getitem__
    sqlite_postings.add(
        connection, ((position, list(filter(None, map(term_number, said)))) for position, said in found)
    )


def _retracted(connection: apsw.Connection, ids: Sequence[str]) -> list[int]:
    """Which of these events were retracted before they came, by their places."""
    if not next(iter(connection.execute("SELECT EXISTS (SELECT 1 FROM retractions)")))[0]:
        return []
    asked = "SELECT key FROM json_each(?) WHERE value IN (SELECT retracted FROM retractions)"
    return [place for (place,) in connection.execute(asked, (as_json(ids),))]


def clear(connection: apsw.Connection) -> None:
    """Leave nothing indexed. Terms keep their numbers: other processes remember them."""
    sqlite_postings.clear(connection)
    for table in ("texts", "vectors"):
        connection.execute(f"DELETE FROM {table}")


def unmark(connection: apsw.Connection, position: int) -> None:
    """The text at this position, if there is one, was retracted."""
    connection.execute("UPDATE texts SET is_mark = 0 WHERE position = ?", (position,))
    sqlite_postings.unmark(connection, [position])


_decode = msgspec.json.Decoder(list[int]).decode
_EVER = -(2**63), 2**63 - 1


class Facts:
    """What one connection remembers of texts: how long they are, what stands together in a session, which have a term.
    What is new since the last look is read, and all of it again when something was retracted or purged.
    """

    def __init__(self, connection: apsw.Connection) -> None:
        self._connection = connection
        self._as_of: Row = ()
        self._last = 0  # the position up to which it is known
        self._lengths: Counter[int] = Counter()
        self._together: dict[int, Together] = {}
        self._together_marks = 0
        self._known: dict[int, tuple[int, str | None]] = {}
        self._volumes = Volumes(connection)

    def forget(self) -> None:
        self._as_of = ()

    def follow(self) -> None:
        """Know what is there now."""
        (as_of,) = self._connection.execute("SELECT generation, (SELECT count(*) FROM retractions) FROM space")
        if as_of != self._as_of:
            self._as_of, self._last = as_of, 0
            self._lengths.clear()
            self._together.clear()
            self._known = {}
            self._volumes.forget()
        (row,) = self._connection.execute("SELECT max(position) FROM texts")
        if (row[0] or 0) <= self._last:
            return
        if self._last == 0:
            rows = "SELECT length, count(*) FROM texts WHERE is_mark GROUP BY length"
            for length, count in self._connection.execute(rows):
                self._lengths[length] = count
        else:
            later = "SELECT session, length, is_mark FROM texts WHERE position > ?"
            for session, length, is_mark in self._connection.execute(later, (self._last,)):
                self._together.pop(session, None)
                self._lengths[length] += is_mark
        self._volumes.follow()
        self._last = row[0]

    def together(self, sessions: Collection[int]) -> dict[int, Together]:
        """The marks of each of these sessions."""
        found = {session: known for session in sessions if (known := self._together.get(session)) is not None}
        if len(found) < len(sessions):
            whole = """SELECT session, json_group_array(at), json_group_array(position), json_group_array(length)
                FROM texts WHERE session IN (SELECT value FROM json_each(?)) AND is_mark GROUP BY session"""
            rows = self._connection.execute(whole, (as_json([each for each in sessions if each not in found]),))
            for session, *columns in rows:
                times, positions, lengths = map(_decode, columns)
                if times != sorted(times) or positions != sorted(positions):  # the engine promises no order
                    marks = sorted(zip(times, positions, lengths, strict=True))
                    positions, lengths = [each[1] for each in marks], [each[2] for each in marks]
                read = Together(positions, lengths)
                self._together_marks += len(read)
                if self._together_marks > TOGETHER_MARKS_MAX:
                    self._together.clear()
                    self._together_marks = len(read)
                self._together[session] = found[session] = read
        return found

    def postings(
        self,
        wanted: Sequence[str],
        weights: Mapping[str, float],
        *,
        limit: int | None,
        since: datetime | None,
        until: datetime | None,
    ) -> Postings:
        """The postings of these terms in the marks that they are worth most in, and the statistics of all marks."""
        marks = self._volumes.marks
        numbers = self._numbers(wanted)
        places = {term: self._volumes.places(number) & marks for term, number in numbers.items()}
        containing = {term: places[term].bit_count() if term in places else 0 for term in wanted}
        statistics = gathered(
            {}, sorted((length, count) for length, count in self._lengths.items() if count), containing
        )
        if since is not None or until is not None:
            first = _EVER[0] if since is None else microseconds(since)
            within = self._volumes.within(first, _EVER[1] if until is None else microseconds(until))
            places = {term: each & within for term, each in places.items()}
        worth = worths(containing, weights, statistics.marks)
        chosen = heaviest(((each, worth[term]) for term, each in places.items() if each), limit=limit)
        return statistics.with_postings(self._listed(wanted, numbers, unpacked(chosen)))

    def postings_at(
        self, wanted: Sequence[str], positions: Sequence[int], *, only_marks: bool = True
    ) -> dict[str, tuple[Posting, ...]]:
        """The postings of these terms in the marks, or in whatever has a text, at these positions."""
        places = self._volumes.at(positions, only_marks=only_marks)
        return self._listed(wanted, self._numbers(wanted), places)

    def containing(self, wanted: Sequence[str]) -> list[int]:
        """The positions of the events whose texts have all of these terms."""
        numbers = self._numbers(wanted)
        if len(numbers) < len(wanted):
            return []
        first, *others = (self._volumes.places(number) for number in numbers.values())
        for each in others:
            first &= each
        return self._volumes.positions(first)

    def _numbers(self, wanted: Sequence[str]) -> dict[str, int]:
        asked = "SELECT term, id FROM terms WHERE term IN (SELECT value FROM json_each(?))"
        return dict(iter(self._connection.execute(asked, (as_json(list(wanted)),))))

    def _listed(
        self, wanted: Sequence[str], numbers: Mapping[str, int], places: Sequence[int]
    ) -> dict[str, tuple[Posting, ...]]:
        """What is said at these places, with the length and session of each text."""
        said = self._volumes.said(numbers.values(), places)
        texts = self._texts(set().union(*said.values()))
        return {
            term: tuple([Posting(position, count, *texts[position]) for position, count in said[numbers[term]].items()])
            if term in numbers
            else ()
            for term in wanted
        }

    def _texts(self, positions: set[int]) -> dict[int, tuple[int, str | None]]:
        """The length and the session of these texts, and of others that were asked for before."""
        if unknown := sorted(each for each in positions if each not in self._known):
            if len(self._known) + len(unknown) > KNOWN_TEXTS_MAX:
                self._known = {}
                unknown = sorted(positions)
            rows = self._connection.execute(
                """SELECT position, length, sessions.name FROM texts LEFT JOIN sessions ON sessions.id = texts.session
                WHERE position IN (SELECT value FROM json_each(?))""",
                (as_json(unknown),),
            )
            self._known |= {position: (length, session) for position, length, session in rows}
        return self._known


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
    for session, together in facts.together(by_session).items():
        found |= together.near(by_session[session], neighbours=neighbours)
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
    """Where the index does not hold what the log says. One volume is looked at after the other."""
    terms = dict(iter(connection.execute("SELECT id, term FROM terms")))
    between = "SELECT position, length FROM texts WHERE position > ? AND position <= ?"
    problems: list[str] = []
    events = iter(log)
    event = next(events, None)
    before = 0
    for last, said in sqlite_postings.said_in_order(connection):
        lengths = dict(iter(connection.execute(between, (before, last))))
        counts = {position: {terms.get(term, ""): often for term, often in of.items()} for position, of in said.items()}
        while event is not None and (event.position or 0) <= last:
            problems += stale_texts([event], lengths, counts)
            event = next(events, None)
        problems += orphaned_texts({*lengths, *counts})
        before = last
    return problems

"""A connection's cache for full-text search: the lengths of texts, the marks of a session, the texts with a term."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime

import apsw
import msgspec

from mica.model.event import microseconds
from mica.model.mark import Posting, Postings
from mica.store.codec import SessionMarks
from mica.store.query import term_weights, with_statistics
from mica.store.sqlite.bits import heaviest, unpack
from mica.store.sqlite.file import Row, as_json
from mica.store.sqlite.postings import Volumes

SESSION_MARKS_MAX = 200_000  # marks of cached sessions, about 30 MB
KNOWN_TEXTS_MAX = 50_000  # texts whose length and session are cached, about 8 MB

_decode = msgspec.json.Decoder(list[int]).decode
_EVER = -(2**63), 2**63 - 1


class TextStatistics:
    """Caches the lengths of texts, the marks of each session, and the texts that contain a term.

    `refresh` reads new texts, or all of them again after a retraction or a purge.
    """

    def __init__(self, connection: apsw.Connection) -> None:
        self._connection = connection
        self._as_of: Row = ()
        self._last = 0  # the position up to which texts were read
        self._lengths: Counter[int] = Counter()
        self._session_marks: dict[int, SessionMarks] = {}
        self._session_marks_count = 0
        self._known: dict[int, tuple[int, str | None]] = {}
        self._volumes = Volumes(connection)

    def forget(self) -> None:
        self._as_of = ()

    def refresh(self) -> None:
        """Bring the cache up to date."""
        (as_of,) = self._connection.execute("SELECT generation, (SELECT count(*) FROM retractions) FROM space")
        if as_of != self._as_of:
            self._as_of, self._last = as_of, 0
            self._lengths.clear()
            self._session_marks.clear()
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
                self._session_marks.pop(session, None)
                self._lengths[length] += is_mark
        self._volumes.refresh()
        self._last = row[0]

    def session_marks(self, sessions: Collection[int]) -> dict[int, SessionMarks]:
        """Return the marks of each of these sessions, by session. A session is given by its row id."""
        found = {session: known for session in sessions if (known := self._session_marks.get(session)) is not None}
        if len(found) < len(sessions):
            statement = """SELECT session, json_group_array(at), json_group_array(position), json_group_array(length)
                FROM texts WHERE session IN (SELECT value FROM json_each(?)) AND is_mark GROUP BY session"""
            rows = self._connection.execute(statement, (as_json([each for each in sessions if each not in found]),))
            for session, *columns in rows:
                times, positions, lengths = map(_decode, columns)
                if times != sorted(times) or positions != sorted(positions):  # SQLite guarantees no order
                    marks = sorted(zip(times, positions, lengths, strict=True))
                    positions, lengths = [each[1] for each in marks], [each[2] for each in marks]
                read = SessionMarks(positions, lengths)
                self._session_marks_count += len(read)
                if self._session_marks_count > SESSION_MARKS_MAX:
                    self._session_marks.clear()
                    self._session_marks_count = len(read)
                self._session_marks[session] = found[session] = read
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
        """Return the postings of these terms in the `limit` marks with the highest sum of weights.

        The result also has statistics of all marks.
        """
        marks = self._volumes.marks
        numbers = self._numbers(wanted)
        places = {term: self._volumes.places(number) & marks for term, number in numbers.items()}
        containing = {term: places[term].bit_count() if term in places else 0 for term in wanted}
        statistics = with_statistics(
            {}, sorted((length, count) for length, count in self._lengths.items() if count), containing
        )
        if since is not None or until is not None:
            first = _EVER[0] if since is None else microseconds(since)
            within = self._volumes.within(first, _EVER[1] if until is None else microseconds(until))
            places = {term: each & within for term, each in places.items()}
        weight = term_weights(containing, weights, statistics.marks)
        chosen = heaviest(((each, weight[term]) for term, each in places.items() if each), limit=limit)
        return statistics.with_postings(self._postings(wanted, numbers, unpack(chosen)))

    def postings_at(
        self, wanted: Sequence[str], positions: Sequence[int], *, only_marks: bool = True
    ) -> dict[str, tuple[Posting, ...]]:
        """Return the postings of these terms in the texts at these positions; with `only_marks`, only in marks."""
        places = self._volumes.at(positions, only_marks=only_marks)
        return self._postings(wanted, self._numbers(wanted), places)

    def containing(self, wanted: Sequence[str]) -> list[int]:
        """Return the positions of all events whose texts contain all of these terms."""
        numbers = self._numbers(wanted)
        if len(numbers) < len(wanted):
            return []
        first, *others = (self._volumes.places(number) for number in numbers.values())
        for each in others:
            first &= each
        return self._volumes.positions(first)

    def _numbers(self, wanted: Sequence[str]) -> dict[str, int]:
        statement = "SELECT term, id FROM terms WHERE term IN (SELECT value FROM json_each(?))"
        return dict(iter(self._connection.execute(statement, (as_json(list(wanted)),))))

    def _postings(
        self, wanted: Sequence[str], numbers: Mapping[str, int], places: Sequence[int]
    ) -> dict[str, tuple[Posting, ...]]:
        """Return the postings of each term in the texts at these places."""
        counts = self._volumes.counts(numbers.values(), places)
        texts = self._texts(set().union(*counts.values()))
        return {
            term: tuple(
                [Posting(position, count, *texts[position]) for position, count in counts[numbers[term]].items()]
            )
            if term in numbers
            else ()
            for term in wanted
        }

    def _texts(self, positions: set[int]) -> dict[int, tuple[int, str | None]]:
        """Return number of words and session by position, for the texts at these positions and maybe for others."""
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

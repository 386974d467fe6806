"""Which texts of the embedded store have which words, in volumes: what is new is kept text by text, and every 4,096
texts become a volume that lists, for each of its terms, where it is said.

A row for every word of every text would be written all over a large table, twenty of them for a mark. A volume is
written once, in the order of its table, and read as sets of places.
"""

from __future__ import annotations

import sys
from array import array
from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import apsw
import msgspec

from mica.store.bits import packed, put, unpacked
from mica.store.sqlite_file import Row, as_json, insert

VOLUME_TEXTS = 4_096  # what is not in a volume yet is read by every new process, in some 10 ms
VOLUME_BYTES = VOLUME_TEXTS // 8  # of a set of its places
KNOWN_BYTES_MAX = 32_000_000  # of sets that are remembered

_decode = msgspec.json.Decoder(list[int]).decode
_FIRST = """SELECT position, terms, is_mark, at FROM unfiled JOIN texts USING (position)
    ORDER BY position LIMIT ?"""
_OF_TERM = """SELECT volume, count, places, more FROM json_each(?) AS wanted
    CROSS JOIN postings ON volume = wanted.value AND term = ?"""


# -- Writing --------------------------------------------------------------------------------------------------


def add(connection: apsw.Connection, texts: Iterable[tuple[int, Sequence[int]]]) -> None:
    """Keep the numbers of the terms of texts, each with its position; what makes a volume is filed."""
    rows: list[Row] = [(position, as_json(said)) for position, said in texts]
    insert(connection, "unfiled (position, terms)", "(?, ?)", rows)
    (row,) = connection.execute("SELECT count(*) FROM unfiled")
    for _ in range(row[0] // VOLUME_TEXTS):
        _file(connection)


def _file(connection: apsw.Connection) -> None:
    """Make a volume of the oldest texts that are in none."""
    rows = list(connection.execute(_FIRST, (VOLUME_TEXTS,)))
    said: defaultdict[int, list[int]] = defaultdict(list)
    for place, (_, terms, _, _) in enumerate(rows):
        for term in _decode(terms):
            said[term].append(place)
    positions = [row[0] for row in rows]
    times = [row[3] for row in rows]
    marks = packed((place for place, row in enumerate(rows) if row[2]), VOLUME_BYTES)
    connection.execute(
        "INSERT INTO volumes (first_position, first_at, last_at, positions, marks) VALUES (?, ?, ?, ?, ?)",
        (
            positions[0],
            min(times),
            max(times),
            array("I", [each - positions[0] for each in positions]).tobytes(),
            marks,
        ),
    )
    volume = connection.last_insert_rowid()
    postings = [(volume, term, *written(said[term])) for term in sorted(said)]
    insert(connection, "postings (volume, term, count, places, more)", "(?, ?, ?, ?, ?)", postings)
    connection.execute("DELETE FROM unfiled WHERE position <= ?", (positions[-1],))


def written(said: Sequence[int]) -> tuple[int, bytes, bytes | None]:
    """Where a term is said, as a row has it: in how many texts, in which, and how often in those that repeat it."""
    if len(said) == 1:  # as half of the terms of a volume are
        return 1, array("H", said).tobytes(), None
    more = None
    if len(places := dict.fromkeys(said)) < len(said):
        pairs = [number for pair in Counter(said).items() if pair[1] > 1 for number in pair]
        more = array("I", pairs).tobytes()
    if is_list(len(places)):
        return len(places), array("H", places).tobytes(), more
    return len(places), packed(places, VOLUME_BYTES), more


def is_list(found: int) -> bool:
    """Whether so many places are written one by one: a set of them is longer, and quicker to read."""
    return 8 * found <= VOLUME_BYTES


def _places(found: int, blob: bytes) -> list[int]:
    """The places that `written` wrote."""
    if is_list(found):
        return list(array("H", blob))
    return unpacked(int.from_bytes(blob, "little"))


def _often(more: bytes | None) -> dict[int, int]:
    """Where a term is said more than once, and how often."""
    if not more:
        return {}
    pairs = array("I", more)
    return dict(zip(pairs[::2], pairs[1::2], strict=True))


def _times(more: bytes | None, place: int) -> int:
    """How often a term is said at a place where it is said."""
    if more:
        wanted = place.to_bytes(4, sys.byteorder)
        at = more.find(wanted)
        while at >= 0:
            if at % 8 == 0:  # a place, and not how often another has it
                return int.from_bytes(more[at + 4 : at + 8], sys.byteorder)
            at = more.find(wanted, at + 1)
    return 1


def unmark(connection: apsw.Connection, position: int) -> None:
    """The text at this position is no mark any more."""
    if (found := _volume_of(connection, position)) is not None:
        volume, place = found
        (row,) = connection.execute("SELECT marks FROM volumes WHERE id = ?", (volume,))
        marks = int.from_bytes(row[0], "little") & ~(1 << place)
        changed = marks.to_bytes(VOLUME_BYTES, "little"), volume
        connection.execute("UPDATE volumes SET marks = ? WHERE id = ?", changed)


def remove(connection: apsw.Connection, position: int, terms: Iterable[int]) -> None:
    """Take a text, which has these terms and no others, out of what is listed."""
    unmark(connection, position)
    connection.execute("DELETE FROM unfiled WHERE position = ?", (position,))
    if (found := _volume_of(connection, position)) is None:
        return
    volume, place = found
    for term in terms:
        row = "SELECT count, places, more FROM postings WHERE volume = ? AND term = ?"
        for listed, places, more in list(connection.execute(row, (volume, term))):
            often = _often(more)
            said = [each for each in _places(listed, places) if each != place for _ in range(often.get(each, 1))]
            if said:
                connection.execute(
                    "UPDATE postings SET (count, places, more) = (?, ?, ?) WHERE volume = ? AND term = ?",
                    (*written(said), volume, term),
                )
            else:
                connection.execute("DELETE FROM postings WHERE volume = ? AND term = ?", (volume, term))


def unfiled_terms(connection: apsw.Connection) -> set[int]:
    """The terms of the texts that are in no volume yet."""
    return set().union(*(_decode(terms) for (terms,) in connection.execute("SELECT terms FROM unfiled")))


def clear(connection: apsw.Connection) -> None:
    """Leave nothing listed."""
    for table in ("postings", "volumes", "unfiled"):
        connection.execute(f"DELETE FROM {table}")


def _volume_of(connection: apsw.Connection, position: int) -> tuple[int, int] | None:
    """The volume that a text is in, and its place there."""
    row = connection.execute(
        """SELECT id, first_position, positions FROM volumes WHERE first_position <= ?
        ORDER BY first_position DESC LIMIT 1""",
        (position,),
    ).fetchone()
    if row is None:
        return None
    offsets = array("I", row[2])
    place = bisect_left(offsets, position - row[1])
    return (row[0], place) if place < len(offsets) and offsets[place] == position - row[1] else None


def said_in_order(connection: apsw.Connection) -> Iterator[tuple[int, dict[int, dict[int, int]]]]:
    """What is listed, volume by volume and then what is in none: the last position there, and the terms of each."""
    volumes = list(connection.execute("SELECT id, first_position, positions FROM volumes ORDER BY id"))
    for volume, first, offsets in volumes:
        positions = [first + offset for offset in array("I", offsets)]
        said: dict[int, dict[int, int]] = {}
        rows = connection.execute("SELECT term, count, places, more FROM postings WHERE volume = ?", (volume,))
        for term, listed, places, more in rows:
            often = _often(more)
            for place in _places(listed, places):
                said.setdefault(positions[place], {})[term] = often.get(place, 1)
        yield positions[-1], said
    rows = connection.execute("SELECT position, terms FROM unfiled")
    yield 2**63 - 1, {position: dict(Counter(_decode(terms))) for position, terms in rows if terms != "[]"}


# -- Reading --------------------------------------------------------------------------------------------------


class Said(NamedTuple):
    """Where a term is said in volumes: places counted through all of them, and by volume where it is said twice."""

    volumes: int  # how many were looked at
    places: int
    more: Mapping[int, bytes]


NOWHERE = Said(0, 0, {})


class Volumes:
    """What one connection knows of the volumes, and of the texts that are in none yet, which follow them.

    A place is the number of a text in its volume, after those of all volumes before it.
    """

    def __init__(self, connection: apsw.Connection) -> None:
        self._connection = connection
        self._ids: list[int] = []
        self._first: list[int] = []  # the first position of each
        self._times: list[tuple[int, int]] = []
        self._offsets: dict[int, array[int]] = {}  # of the positions of a volume, by its number in this list
        self._filed_marks = 0
        self._said: dict[int, Said] = {}
        self._said_bytes = 0
        self._tail: list[int] = []  # positions that are in no volume
        self._tail_marks = 0
        self._tail_said: defaultdict[int, dict[int, int]] = defaultdict(dict)  # a term's places there, and how often

    def forget(self) -> None:
        self.__init__(self._connection)  # type: ignore[misc]  # begins anew

    def follow(self) -> None:
        """Know what is there now. What a purge or a retraction changes must be forgotten before."""
        ids = [row[0] for row in self._connection.execute("SELECT id FROM volumes ORDER BY id")]
        if ids != self._ids:
            if ids[: len(self._ids)] != self._ids:
                self.forget()
            self._add_volumes(len(self._ids))
            self._tail, self._tail_marks = [], 0
            self._tail_said.clear()
        later = "SELECT position, terms, is_mark FROM unfiled JOIN texts USING (position) WHERE position > ?"
        after = self._tail[-1] if self._tail else 0
        for place, (position, terms, is_mark) in enumerate(self._connection.execute(later, (after,)), len(self._tail)):
            self._tail.append(position)
            self._tail_marks |= is_mark << place
            for term in _decode(terms):
                places = self._tail_said[term]
                places[place] = places.get(place, 0) + 1

    def _add_volumes(self, known: int) -> None:
        marks = [self._filed_marks.to_bytes(known * VOLUME_BYTES, "little")]
        later = "SELECT id, first_position, first_at, last_at, marks FROM volumes WHERE id > ? ORDER BY id"
        for volume, first, first_at, last_at, bits in self._connection.execute(later, (self._ids[-1] if known else 0,)):
            self._ids.append(volume)
            self._first.append(first)
            self._times.append((first_at, last_at))
            marks.append(bits)
        self._filed_marks = int.from_bytes(b"".join(marks), "little")

    @property
    def marks(self) -> int:
        """The places of marks."""
        return self._filed_marks | self._tail_marks << self._filed

    @property
    def _filed(self) -> int:
        return len(self._ids) * VOLUME_TEXTS

    def places(self, term: int) -> int:
        """Where a term is said."""
        tail = self._tail_said.get(term)
        filed = self._said_of(term).places
        if not tail:
            return filed
        return filed | int.from_bytes(packed(tail, (len(self._tail) + 7) // 8), "little") << self._filed

    def _said_of(self, term: int) -> Said:
        known = self._said.get(term, NOWHERE)
        if known.volumes == len(self._ids):
            return known
        into = bytearray(known.places.to_bytes(len(self._ids) * VOLUME_BYTES, "little"))
        more = dict(known.more)
        numbers = {volume: number for number, volume in enumerate(self._ids)}
        later = as_json(self._ids[known.volumes :])
        for volume, listed, places, often in self._connection.execute(_OF_TERM, (later, term)):
            number = numbers[volume]
            if is_list(listed):
                put(into, array("H", places), start=number * VOLUME_TEXTS)
            else:
                into[number * VOLUME_BYTES : (number + 1) * VOLUME_BYTES] = places
            if often is not None:
                more[number] = often
        said = Said(len(self._ids), int.from_bytes(into, "little"), more)
        self._said_bytes += said.places.bit_length() // 8
        if self._said_bytes > KNOWN_BYTES_MAX:
            self._said.clear()
            self._said_bytes = said.places.bit_length() // 8
        self._said[term] = said
        return said

    def said(self, terms: Iterable[int], places: int) -> dict[int, dict[int, int]]:
        """How often each term is said at those of these places where it is, by position."""
        tail = unpacked(places >> self._filed)
        filed = unpacked(places & (1 << self._filed) - 1)
        positions = self._filed_positions(filed)
        return {term: self._filed_said(term, filed, positions) | self._tail_said_at(term, tail) for term in terms}

    def _filed_positions(self, places: Sequence[int]) -> list[int]:
        found: list[int] = []
        for place in places:
            volume, within = divmod(place, VOLUME_TEXTS)
            found.append(self._first[volume] + self._offsets_of(volume)[within])
        return found

    def _filed_said(self, term: int, places: Sequence[int], positions: Sequence[int]) -> dict[int, int]:
        said = self._said_of(term)
        if not said.places:
            return {}
        here = said.places.to_bytes(len(self._ids) * VOLUME_BYTES, "little")
        return {
            position: _times(said.more.get(place // VOLUME_TEXTS), place % VOLUME_TEXTS)
            for place, position in zip(places, positions, strict=True)
            if here[place >> 3] >> (place & 7) & 1
        }

    def _tail_said_at(self, term: int, places: Sequence[int]) -> dict[int, int]:
        said, tail = self._tail_said.get(term), self._tail
        return {tail[place]: said[place] for place in places if place in said} if said else {}

    def positions(self, places: int) -> list[int]:
        """Where in the log these places are."""
        filed = self._filed_positions(unpacked(places & (1 << self._filed) - 1))
        return filed + [self._tail[place] for place in unpacked(places >> self._filed)]

    def at(self, positions: Iterable[int]) -> int:
        """The places of the texts at these positions in the log."""
        found: list[int] = []
        for position in positions:
            volume = bisect_right(self._first, position) - 1
            within = self._within(self._offsets_of(volume), position - self._first[volume]) if volume >= 0 else None
            if within is not None:
                found.append(volume * VOLUME_TEXTS + within)
            elif (within := self._within(self._tail, position)) is not None:
                found.append(self._filed + within)
        return int.from_bytes(packed(found, (self._filed + len(self._tail) + 7) // 8), "little")

    def within(self, since: int, until: int) -> int:
        """The places of marks of a time."""
        parts: list[bytes] = []
        for number, (first_at, last_at) in enumerate(self._times):
            if since <= first_at and last_at < until:
                parts.append(b"\xff" * VOLUME_BYTES)
            elif last_at < since or first_at >= until:
                parts.append(bytes(VOLUME_BYTES))
            else:
                offsets, first = self._offsets_of(number), self._first[number]
                found = self._of_time(since, until, first, first + offsets[-1])
                parts.append(packed((bisect_left(offsets, each - first) for each in found), VOLUME_BYTES))
        if self._tail:
            found = self._of_time(since, until, self._tail[0], self._tail[-1])
            parts.append(packed((bisect_left(self._tail, each) for each in found), (len(self._tail) + 7) // 8))
        return int.from_bytes(b"".join(parts), "little") & self.marks

    def _of_time(self, since: int, until: int, first: int, last: int) -> list[int]:
        between = "SELECT position FROM texts WHERE position BETWEEN ? AND ? AND at >= ? AND at < ?"
        return [row[0] for row in self._connection.execute(between, (first, last, since, until))]

    def _offsets_of(self, number: int) -> array[int]:
        if (offsets := self._offsets.get(number)) is None:
            (row,) = self._connection.execute("SELECT positions FROM volumes WHERE id = ?", (self._ids[number],))
            offsets = self._offsets[number] = array("I", row[0])
        return offsets

    @staticmethod
    def _within(places: Sequence[int], wanted: int) -> int | None:
        place = bisect_left(places, wanted)
        return place if place < len(places) and places[place] == wanted else None

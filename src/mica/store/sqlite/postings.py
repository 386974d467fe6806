"""Which texts of the embedded store have which words, in volumes: what is new is kept text by text, and every 4,096
texts become a volume that lists, for each of its terms, where it is said.

A row for every word of every text would be written all over a large table, twenty of them for a mark. A volume is
written once, in the order of its table, and read as sets of places.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain, groupby
from typing import NamedTuple, TypeAlias

import apsw
import msgspec

from mica.store.sqlite.bits import packed, put, unpacked
from mica.store.sqlite.file import Row, as_json, insert

VOLUME_TEXTS = 4_096  # what is not in a volume yet is read by every new process, in some 10 ms
VOLUME_BYTES = VOLUME_TEXTS // 8  # of a set of its places
KNOWN_BYTES_MAX = 64_000_000  # of sets that are remembered: of a million marks, those of 200 terms

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
    often: defaultdict[int, dict[int, int]] = defaultdict(dict)
    for place, (_, terms, _, _) in enumerate(rows):
        for term in _decode(terms):
            if (places := said[term]) and places[-1] == place:
                often[term][place] = often[term].get(place, 1) + 1
            else:
                places.append(place)
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
    postings = [(volume, term, *written(said[term], often.get(term))) for term in sorted(said)]
    insert(connection, "postings (volume, term, count, places, more)", "(?, ?, ?, ?, ?)", postings)
    connection.execute("DELETE FROM unfiled WHERE position <= ?", (positions[-1],))


def written(places: Sequence[int], often: Mapping[int, int] | None = None) -> tuple[int, bytes, bytes | None]:
    """Where a term is said, as a row has it: in how many texts, in which, and how often in those that repeat it."""
    more = array("I", chain.from_iterable(often.items())).tobytes() if often else None
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


def unmark(connection: apsw.Connection, positions: Iterable[int]) -> None:
    """The texts at these positions are no marks any more."""
    for volume, places in _places_of(connection, positions).items():
        (row,) = connection.execute("SELECT marks FROM volumes WHERE id = ?", (volume,))
        marks = int.from_bytes(row[0], "little") & ~_set(places.values())
        changed = marks.to_bytes(VOLUME_BYTES, "little"), volume
        connection.execute("UPDATE volumes SET marks = ? WHERE id = ?", changed)


def remove(connection: apsw.Connection, texts: Mapping[int, Iterable[int]]) -> None:
    """Take texts out of what is listed; each position comes with the terms of its text, and no others.

    A row says where its term is in a whole volume, so it is written once for all of these texts, not once for each.
    """
    unmark(connection, texts)
    connection.executemany("DELETE FROM unfiled WHERE position = ?", [(position,) for position in texts])
    for volume, places in _places_of(connection, texts).items():
        of_term: defaultdict[int, list[int]] = defaultdict(list)
        for position, place in places.items():
            for term in texts[position]:
                of_term[term].append(place)
        _take(connection, volume, {term: _set(said) for term, said in of_term.items()})


def _take(connection: apsw.Connection, volume: int, gone: Mapping[int, int]) -> None:
    """Take sets of places, by their terms, out of a volume."""
    rows = """SELECT term, count, places, more FROM json_each(?) AS wanted
        CROSS JOIN postings ON volume = ? AND term = wanted.value"""
    for term, count, places, more in list(connection.execute(rows, (as_json(sorted(gone)), volume))):
        listed = _set(array("H", places)) if is_list(count) else int.from_bytes(places, "little")
        if left := listed & ~gone[term]:
            often = {place: times for place, times in _often(more).items() if left >> place & 1}
            connection.execute(
                "UPDATE postings SET (count, places, more) = (?, ?, ?) WHERE volume = ? AND term = ?",
                (*written(unpacked(left), often), volume, term),
            )
        else:
            connection.execute("DELETE FROM postings WHERE volume = ? AND term = ?", (volume, term))


def _set(places: Iterable[int]) -> int:
    """Places of a volume as one number."""
    return int.from_bytes(packed(places, VOLUME_BYTES), "little")


def unfiled_terms(connection: apsw.Connection) -> set[int]:
    """The terms of the texts that are in no volume yet."""
    return set().union(*(_decode(terms) for (terms,) in connection.execute("SELECT terms FROM unfiled")))


def clear(connection: apsw.Connection) -> None:
    """Leave nothing listed."""
    for table in ("postings", "volumes", "unfiled"):
        connection.execute(f"DELETE FROM {table}")


def _places_of(connection: apsw.Connection, positions: Iterable[int]) -> dict[int, dict[int, int]]:
    """The volumes that these texts are in, and the place of each position there."""
    volumes = list(connection.execute("SELECT first_position, id FROM volumes ORDER BY first_position"))
    firsts = [first for first, _ in volumes]
    found: dict[int, dict[int, int]] = {}
    for number, together in groupby(sorted(positions), lambda position: bisect_right(firsts, position)):
        if number:
            first, volume = volumes[number - 1]
            (row,) = connection.execute("SELECT positions FROM volumes WHERE id = ?", (volume,))
            places = {first + offset: place for place, offset in enumerate(array("I", row[0]))}
            if known := {position: places[position] for position in together if position in places}:
                found[volume] = known
    return found


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
    """Where a term is said in volumes; places are counted through all of them."""

    volumes: int  # how many were looked at
    places: int
    written: bytes  # the places once more, to look at one by one
    again: bytes  # those where it is said more than once, in the same way: they are few
    repeated: array[int]  # these in order
    often: array[int]  # and how often there

    @property
    def size_bytes(self) -> int:
        """About what it takes to remember this."""
        return 3 * len(self.written) + 8 * len(self.often)

    def times(self, place: int) -> int:
        """How often it is said at a place where it is said more than once."""
        return self.often[bisect_left(self.repeated, place)]


Spot: TypeAlias = tuple[int, int, int, int]  # a place's byte, the bit in it, the place, and its position in the log

NOWHERE = Said(0, 0, b"", b"", array("I"), array("I"))


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
            if known is not NOWHERE:
                self._said[term] = self._said.pop(term)  # it goes last now
            return known
        size = len(self._ids) * VOLUME_BYTES
        into, again = bytearray(known.written.ljust(size, b"\0")), bytearray(known.again.ljust(size, b"\0"))
        repeated, often = known.repeated[:], known.often[:]
        numbers = {volume: number for number, volume in enumerate(self._ids)}
        later = as_json(self._ids[known.volumes :])
        for volume, listed, places, more in self._connection.execute(_OF_TERM, (later, term)):
            number = numbers[volume]
            if is_list(listed):
                put(into, array("H", places), start=number * VOLUME_TEXTS)
            else:
                into[number * VOLUME_BYTES : (number + 1) * VOLUME_BYTES] = places
            if more is not None:
                pairs = array("I", more)
                put(again, pairs[::2], start=number * VOLUME_TEXTS)
                repeated.extend(map((number * VOLUME_TEXTS).__add__, pairs[::2]))
                often += pairs[1::2]
        said = Said(len(self._ids), int.from_bytes(into, "little"), bytes(into), bytes(again), repeated, often)
        self._said_bytes += said.size_bytes - known.size_bytes
        self._said.pop(term, None)
        self._said[term] = said
        while self._said_bytes > KNOWN_BYTES_MAX and len(self._said) > 1:
            self._said_bytes -= self._said.pop(next(iter(self._said))).size_bytes  # what was not asked for longest
        return said

    def said(self, terms: Iterable[int], places: Sequence[int]) -> dict[int, dict[int, int]]:
        """How often each term is said at those of these places, which are in order, where it is; by position."""
        end = bisect_left(places, self._filed)
        filed, tail = places[:end], [place - self._filed for place in places[end:]]
        positions = self._filed_positions(filed)
        spots = [(place >> 3, 1 << (place & 7), place, at) for place, at in zip(filed, positions, strict=True)]
        return {term: self._filed_said(term, spots) | self._tail_said_at(term, tail) for term in terms}

    def _filed_positions(self, places: Sequence[int]) -> list[int]:
        """Where in the log these places are, which are in order."""
        found: list[int] = []
        start = 0
        while start < len(places):
            volume = places[start] // VOLUME_TEXTS
            end = bisect_left(places, (volume + 1) * VOLUME_TEXTS, start)
            first, before, offsets = self._first[volume], volume * VOLUME_TEXTS, self._offsets_of(volume)
            found += [first + offsets[place - before] for place in places[start:end]]
            start = end
        return found

    def _filed_said(self, term: int, spots: Iterable[Spot]) -> dict[int, int]:
        said = self._said_of(term)
        if not said.places:
            return {}
        written, again, times = said.written, said.again, said.times
        if not said.often:
            return {position: 1 for byte, bit, _, position in spots if written[byte] & bit}
        return {
            position: times(place) if again[byte] & bit else 1
            for byte, bit, place, position in spots
            if written[byte] & bit
        }

    def _tail_said_at(self, term: int, places: Sequence[int]) -> dict[int, int]:
        said, tail = self._tail_said.get(term), self._tail
        return {tail[place]: said[place] for place in places if place in said} if said else {}

    def positions(self, places: int) -> list[int]:
        """Where in the log these places are."""
        every = unpacked(places)
        end = bisect_left(every, self._filed)
        return self._filed_positions(every[:end]) + [self._tail[place - self._filed] for place in every[end:]]

    def at(self, positions: Iterable[int], *, only_marks: bool) -> list[int]:
        """The places of the texts, or only of the marks, at these positions in the log, in order."""
        wanted = sorted(set(positions))
        found: list[int] = []
        start = bisect_left(wanted, self._first[0]) if self._first else len(wanted)
        while start < len(wanted):
            volume = bisect_right(self._first, wanted[start]) - 1
            end = bisect_left(wanted, self._first[volume + 1], start) if volume + 1 < len(self._first) else len(wanted)
            first, offsets = self._first[volume], self._offsets_of(volume)
            found += _standing(offsets, [position - first for position in wanted[start:end]], volume * VOLUME_TEXTS)
            start = end
        tail = wanted[bisect_left(wanted, self._tail[0]) :] if self._tail else []
        found += _standing(self._tail, tail, self._filed)
        if not only_marks:
            return found
        marks = self.marks.to_bytes((self._filed + len(self._tail) + 7) // 8, "little")
        return [place for place in found if marks[place >> 3] >> (place & 7) & 1]

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


def _standing(listed: Sequence[int], wanted: Iterable[int], start: int) -> list[int]:
    """Where those of the wanted stand that are listed, counted from a start; what is listed is in order."""
    end = len(listed)
    return [start + place for each in wanted if (place := bisect_left(listed, each)) < end and listed[place] == each]

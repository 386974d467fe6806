"""The inverted index of a SQLite store. New texts are stored one by one; every 4,096 texts are moved into a volume.

A volume lists, for each of its terms, the places of the texts that contain it; a place is the number of a text in its
volume. All rows of a volume are written at once, in the order of the table, and read as bit sets (see `bits`). An index
with one row for each word of each text would be slower: storing a mark would then write to about twenty scattered
places of the file.
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

from mica.store.sqlite.bits import pack, set_bits, unpack
from mica.store.sqlite.file import Row, as_json, insert, values_checksum

VOLUME_TEXTS = 4_096  # every new process reads the texts outside volumes, in about 10 ms
VOLUME_BYTES = VOLUME_TEXTS // 8  # size of a bit set with all places of a volume
KNOWN_BYTES_MAX = 64_000_000  # of cached bit sets: about 200 terms in a space of a million marks

_decode = msgspec.json.Decoder(list[int]).decode
_FIRST = """SELECT position, terms, is_mark, at FROM unfiled JOIN texts USING (position)
    ORDER BY position LIMIT ?"""
_OF_TERM = """SELECT volume, count, places, more FROM json_each(?) AS wanted
    CROSS JOIN postings ON volume = wanted.value AND term = ?"""


# -- Writing --------------------------------------------------------------------------------------------------


def add(connection: apsw.Connection, texts: Iterable[tuple[int, Sequence[int]]]) -> None:
    """Store texts, given as pairs of a position and row ids of terms, and make volumes when there are enough texts."""
    rows: list[Row] = [(position, as_json(numbers)) for position, numbers in texts]
    insert(connection, "unfiled (position, terms)", "(?, ?)", rows)
    (row,) = connection.execute("SELECT count(*) FROM unfiled")
    for _ in range(row[0] // VOLUME_TEXTS):
        _make_volume(connection)


def _make_volume(connection: apsw.Connection) -> None:
    """Move the oldest VOLUME_TEXTS texts that are in no volume into a new volume."""
    rows = list(connection.execute(_FIRST, (VOLUME_TEXTS,)))
    places_by_term: defaultdict[int, list[int]] = defaultdict(list)
    repeats: defaultdict[int, dict[int, int]] = defaultdict(dict)
    for place, (_, terms, _, _) in enumerate(rows):
        for term in _decode(terms):
            if (places := places_by_term[term]) and places[-1] == place:
                repeats[term][place] = repeats[term].get(place, 1) + 1
            else:
                places.append(place)
    positions = [row[0] for row in rows]
    times = [row[3] for row in rows]
    marks = pack((place for place, row in enumerate(rows) if row[2]), VOLUME_BYTES)
    offsets = array("I", [each - positions[0] for each in positions]).tobytes()
    row = positions[0], min(times), max(times), offsets, marks
    connection.execute(
        "INSERT INTO volumes (first_position, first_at, last_at, positions, marks, crc) VALUES (?, ?, ?, ?, ?, ?)",
        (*row, values_checksum(*row)),
    )
    volume = connection.last_insert_rowid()
    postings = [
        (volume, term, *encode_posting(places_by_term[term], repeats.get(term))) for term in sorted(places_by_term)
    ]
    insert(connection, "postings (volume, term, count, places, more)", "(?, ?, ?, ?, ?)", postings)
    connection.execute("DELETE FROM unfiled WHERE position <= ?", (positions[-1],))


def encode_posting(places: Sequence[int], repeats: Mapping[int, int] | None = None) -> tuple[int, bytes, bytes | None]:
    """Encode which texts of a volume contain a term.

    `repeats` maps the place of each text in which the term occurs more than once to its count there. Returns how many
    texts contain the term, the encoded `places`, and the encoded `repeats`.
    """
    more = array("I", chain.from_iterable(repeats.items())).tobytes() if repeats else None
    if is_list(len(places)):
        return len(places), array("H", places).tobytes(), more
    return len(places), pack(places, VOLUME_BYTES), more


def is_list(count: int) -> bool:
    """Return True if `count` places are stored as a list: a list takes at most a quarter of the bytes of a bit set."""
    return 8 * count <= VOLUME_BYTES


def _places(count: int, blob: bytes) -> list[int]:
    """Decode the places that `encode_posting` encoded."""
    if is_list(count):
        return list(array("H", blob))
    return unpack(int.from_bytes(blob, "little"))


def _repeats(more: bytes | None) -> dict[int, int]:
    """Decode the places where a term occurs more than once, with its count at each."""
    if not more:
        return {}
    pairs = array("I", more)
    return dict(zip(pairs[::2], pairs[1::2], strict=True))


def unmark(connection: apsw.Connection, positions: Iterable[int]) -> None:
    """Record in the volumes that the texts at these positions are not marks any more."""
    for volume, places in _places_of(connection, positions).items():
        (row,) = connection.execute(
            "SELECT first_position, first_at, last_at, positions, marks FROM volumes WHERE id = ?", (volume,)
        )
        marks = (int.from_bytes(row[4], "little") & ~_bit_set(places.values())).to_bytes(VOLUME_BYTES, "little")
        changed = marks, values_checksum(*row[:4], marks), volume
        connection.execute("UPDATE volumes SET (marks, crc) = (?, ?) WHERE id = ?", changed)


def remove(connection: apsw.Connection, texts: Mapping[int, Iterable[int]]) -> None:
    """Remove texts from the index. `texts` maps the position of each text to the row ids of all its terms.

    A row covers one term in a whole volume, so removing many texts in one call writes each row only once.
    """
    unmark(connection, texts)
    connection.executemany("DELETE FROM unfiled WHERE position = ?", [(position,) for position in texts])
    for volume, places in _places_of(connection, texts).items():
        of_term: defaultdict[int, list[int]] = defaultdict(list)
        for position, place in places.items():
            for term in texts[position]:
                of_term[term].append(place)
        _remove_places(connection, volume, {term: _bit_set(listed) for term, listed in of_term.items()})


def _remove_places(connection: apsw.Connection, volume: int, removed: Mapping[int, int]) -> None:
    """Remove places from a volume. `removed` maps each term to the bit set of its places."""
    rows = """SELECT term, count, places, more FROM json_each(?) AS wanted
        CROSS JOIN postings ON volume = ? AND term = wanted.value"""
    for term, count, places, more in list(connection.execute(rows, (as_json(sorted(removed)), volume))):
        listed = _bit_set(array("H", places)) if is_list(count) else int.from_bytes(places, "little")
        if remaining := listed & ~removed[term]:
            repeats = {place: times for place, times in _repeats(more).items() if remaining >> place & 1}
            connection.execute(
                "UPDATE postings SET (count, places, more) = (?, ?, ?) WHERE volume = ? AND term = ?",
                (*encode_posting(unpack(remaining), repeats), volume, term),
            )
        else:
            connection.execute("DELETE FROM postings WHERE volume = ? AND term = ?", (volume, term))


def _bit_set(places: Iterable[int]) -> int:
    return int.from_bytes(pack(places, VOLUME_BYTES), "little")


def unfiled_terms(connection: apsw.Connection) -> set[int]:
    """Return the row ids of all terms that occur in the texts outside volumes."""
    return set().union(*(_decode(terms) for (terms,) in connection.execute("SELECT terms FROM unfiled")))


def clear(connection: apsw.Connection) -> None:
    """Delete all volumes, and all texts outside volumes."""
    for table in ("postings", "volumes", "unfiled"):
        connection.execute(f"DELETE FROM {table}")


def has_wrong_counts(connection: apsw.Connection) -> bool:
    """Return True if a posting contains another number of texts than it states."""
    rows = connection.execute("SELECT count, places FROM postings")
    return any(len(_places(count, places)) != count for count, places in rows)


def _places_of(connection: apsw.Connection, positions: Iterable[int]) -> dict[int, dict[int, int]]:
    """Return the place of each text at these positions, by volume and position. Texts outside volumes are left out."""
    volumes = list(connection.execute("SELECT first_position, id FROM volumes ORDER BY first_position"))
    firsts = [first for first, _ in volumes]
    found: dict[int, dict[int, int]] = {}
    for number, group in groupby(sorted(positions), lambda position: bisect_right(firsts, position)):
        if number:
            first, volume = volumes[number - 1]
            (row,) = connection.execute("SELECT positions FROM volumes WHERE id = ?", (volume,))
            places = {first + offset: place for place, offset in enumerate(array("I", row[0]))}
            if known := {position: places[position] for position in group if position in places}:
                found[volume] = known
    return found


def volume_terms(connection: apsw.Connection) -> Iterator[tuple[int, dict[int, dict[int, int]]]]:
    """Yield the content of the index: a pair for each volume, then one for the texts outside volumes.

    A pair is the last position that it covers, and a mapping from positions to the count of each term there.
    """
    volumes = list(connection.execute("SELECT id, first_position, positions FROM volumes ORDER BY id"))
    for volume, first, offsets in volumes:
        positions = [first + offset for offset in array("I", offsets)]
        counts: dict[int, dict[int, int]] = {}
        rows = connection.execute("SELECT term, count, places, more FROM postings WHERE volume = ?", (volume,))
        for term, listed, places, more in rows:
            repeats = _repeats(more)
            for place in _places(listed, places):
                counts.setdefault(positions[place], {})[term] = repeats.get(place, 1)
        yield positions[-1], counts
    rows = connection.execute("SELECT position, terms FROM unfiled")
    yield 2**63 - 1, {position: dict(Counter(_decode(terms))) for position, terms in rows if terms != "[]"}


# -- Reading --------------------------------------------------------------------------------------------------


class TermPlaces(NamedTuple):
    """The places of the texts that contain one term. Here, a place is the number of a text in all volumes together."""

    volumes: int  # number of volumes covered
    places: int  # as a bit set
    place_bits: bytes  # the same bit set as bytes, for single lookups
    repeat_bits: bytes  # the bit set of the few places where the term occurs more than once
    repeat_places: array[int]  # these places in order
    repeat_counts: array[int]  # the count at each of them

    @property
    def size_bytes(self) -> int:
        """The approximate memory that this object takes, in bytes."""
        return 3 * len(self.place_bits) + 8 * len(self.repeat_counts)

    def times(self, place: int) -> int:
        """Return how often the term occurs in the text at `place`. It must occur there more than once."""
        return self.repeat_counts[bisect_left(self.repeat_places, place)]


# The byte and bit of a place in a bit set, the place, and the position of its text in the log.
Spot: TypeAlias = tuple[int, int, int, int]

NOWHERE = TermPlaces(0, 0, b"", b"", array("I"), array("I"))


class Volumes:
    """A connection's cache of the inverted index: the volumes, and the newer texts outside volumes (the tail).

    Here, a place is the number of a text in all volumes and the tail together, not in one volume.
    """

    def __init__(self, connection: apsw.Connection) -> None:
        self._connection = connection
        self._ids: list[int] = []
        self._first: list[int] = []  # the first position of each
        self._times: list[tuple[int, int]] = []
        self._offsets: dict[int, array[int]] = {}  # the position offsets of a volume, by its index in `_ids`
        self._filed_marks = 0
        self._cache: dict[int, TermPlaces] = {}
        self._cache_bytes = 0
        self._tail: list[int] = []  # positions outside volumes
        self._tail_marks = 0
        self._tail_terms: defaultdict[int, dict[int, int]] = defaultdict(dict)  # by term: place in the tail to count

    def forget(self) -> None:
        self.__init__(self._connection)  # type: ignore[misc]  # resets every attribute

    def refresh(self) -> None:
        """Read new volumes and texts. The caller calls `forget` first after a purge or a retraction."""
        ids = [row[0] for row in self._connection.execute("SELECT id FROM volumes ORDER BY id")]
        if ids != self._ids:
            if ids[: len(self._ids)] != self._ids:
                self.forget()
            self._add_volumes(len(self._ids))
            self._tail, self._tail_marks = [], 0
            self._tail_terms.clear()
        later = "SELECT position, terms, is_mark FROM unfiled JOIN texts USING (position) WHERE position > ?"
        after = self._tail[-1] if self._tail else 0
        for place, (position, terms, is_mark) in enumerate(self._connection.execute(later, (after,)), len(self._tail)):
            self._tail.append(position)
            self._tail_marks |= is_mark << place
            for term in _decode(terms):
                places = self._tail_terms[term]
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
        """The places of all marks, as a bit set."""
        return self._filed_marks | self._tail_marks << self._filed

    @property
    def _filed(self) -> int:
        return len(self._ids) * VOLUME_TEXTS

    def places(self, term: int) -> int:
        """Return the places of all texts that contain a term, as a bit set."""
        tail = self._tail_terms.get(term)
        filed = self._term_places(term).places
        if not tail:
            return filed
        return filed | int.from_bytes(pack(tail, (len(self._tail) + 7) // 8), "little") << self._filed

    def _term_places(self, term: int) -> TermPlaces:
        known = self._cache.get(term, NOWHERE)
        if known.volumes == len(self._ids):
            if known is not NOWHERE:
                self._cache[term] = self._cache.pop(term)  # most recently used
            return known
        size = len(self._ids) * VOLUME_BYTES
        place_bits = bytearray(known.place_bits.ljust(size, b"\0"))
        repeat_bits = bytearray(known.repeat_bits.ljust(size, b"\0"))
        repeat_places, repeat_counts = known.repeat_places[:], known.repeat_counts[:]
        numbers = {volume: number for number, volume in enumerate(self._ids)}
        later = as_json(self._ids[known.volumes :])
        for volume, listed, places, more in self._connection.execute(_OF_TERM, (later, term)):
            number = numbers[volume]
            if is_list(listed):
                set_bits(place_bits, array("H", places), start=number * VOLUME_TEXTS)
            else:
                place_bits[number * VOLUME_BYTES : (number + 1) * VOLUME_BYTES] = places
            if more is not None:
                pairs = array("I", more)
                set_bits(repeat_bits, pairs[::2], start=number * VOLUME_TEXTS)
                repeat_places.extend(map((number * VOLUME_TEXTS).__add__, pairs[::2]))
                repeat_counts += pairs[1::2]
        read = TermPlaces(
            volumes=len(self._ids),
            places=int.from_bytes(place_bits, "little"),
            place_bits=bytes(place_bits),
            repeat_bits=bytes(repeat_bits),
            repeat_places=repeat_places,
            repeat_counts=repeat_counts,
        )
        self._cache_bytes += read.size_bytes - known.size_bytes
        self._cache.pop(term, None)
        self._cache[term] = read
        while self._cache_bytes > KNOWN_BYTES_MAX and len(self._cache) > 1:
            self._cache_bytes -= self._cache.pop(next(iter(self._cache))).size_bytes  # least recently used
        return read

    def counts(self, terms: Iterable[int], places: Sequence[int]) -> dict[int, dict[int, int]]:
        """Return how often each term occurs in the texts at these places, by term and position.

        `places` must be in order. Texts without the term are left out.
        """
        end = bisect_left(places, self._filed)
        filed, tail = places[:end], [place - self._filed for place in places[end:]]
        positions = self._filed_positions(filed)
        spots = [(place >> 3, 1 << (place & 7), place, at) for place, at in zip(filed, positions, strict=True)]
        return {term: self._filed_counts(term, spots) | self._tail_counts(term, tail) for term in terms}

    def _filed_positions(self, places: Sequence[int]) -> list[int]:
        """Return the log positions of these places, which must be in order and in volumes."""
        found: list[int] = []
        start = 0
        while start < len(places):
            volume = places[start] // VOLUME_TEXTS
            end = bisect_left(places, (volume + 1) * VOLUME_TEXTS, start)
            first, before, offsets = self._first[volume], volume * VOLUME_TEXTS, self._offsets_of(volume)
            found += [first + offsets[place - before] for place in places[start:end]]
            start = end
        return found

    def _filed_counts(self, term: int, spots: Iterable[Spot]) -> dict[int, int]:
        known = self._term_places(term)
        if not known.places:
            return {}
        place_bits, repeat_bits, times = known.place_bits, known.repeat_bits, known.times
        if not known.repeat_counts:
            return {position: 1 for byte, bit, _, position in spots if place_bits[byte] & bit}
        return {
            position: times(place) if repeat_bits[byte] & bit else 1
            for byte, bit, place, position in spots
            if place_bits[byte] & bit
        }

    def _tail_counts(self, term: int, places: Sequence[int]) -> dict[int, int]:
        counts, tail = self._tail_terms.get(term), self._tail
        return {tail[place]: counts[place] for place in places if place in counts} if counts else {}

    def positions(self, places: int) -> list[int]:
        """Return the log positions of the places in a bit set."""
        every = unpack(places)
        end = bisect_left(every, self._filed)
        return self._filed_positions(every[:end]) + [self._tail[place - self._filed] for place in every[end:]]

    def at(self, positions: Iterable[int], *, only_marks: bool) -> list[int]:
        """Return the places, in order, of the texts at these log positions; with `only_marks`, only of marks."""
        wanted = sorted(set(positions))
        found: list[int] = []
        start = bisect_left(wanted, self._first[0]) if self._first else len(wanted)
        while start < len(wanted):
            volume = bisect_right(self._first, wanted[start]) - 1
            end = bisect_left(wanted, self._first[volume + 1], start) if volume + 1 < len(self._first) else len(wanted)
            first, offsets = self._first[volume], self._offsets_of(volume)
            found += _sorted_indexes(
                offsets, [position - first for position in wanted[start:end]], volume * VOLUME_TEXTS
            )
            start = end
        tail = wanted[bisect_left(wanted, self._tail[0]) :] if self._tail else []
        found += _sorted_indexes(self._tail, tail, self._filed)
        if not only_marks:
            return found
        marks = self.marks.to_bytes((self._filed + len(self._tail) + 7) // 8, "little")
        return [place for place in found if marks[place >> 3] >> (place & 7) & 1]

    def within(self, since: int, until: int) -> int:
        """Return the places of the marks from `since` to before `until` (microseconds since 1970), as a bit set."""
        parts: list[bytes] = []
        for number, (first_at, last_at) in enumerate(self._times):
            if since <= first_at and last_at < until:
                parts.append(b"\xff" * VOLUME_BYTES)
            elif last_at < since or first_at >= until:
                parts.append(bytes(VOLUME_BYTES))
            else:
                offsets, first = self._offsets_of(number), self._first[number]
                found = self._of_time(since, until, first, first + offsets[-1])
                parts.append(pack((bisect_left(offsets, each - first) for each in found), VOLUME_BYTES))
        if self._tail:
            found = self._of_time(since, until, self._tail[0], self._tail[-1])
            parts.append(pack((bisect_left(self._tail, each) for each in found), (len(self._tail) + 7) // 8))
        return int.from_bytes(b"".join(parts), "little") & self.marks

    def _of_time(self, since: int, until: int, first: int, last: int) -> list[int]:
        between = "SELECT position FROM texts WHERE position BETWEEN ? AND ? AND at >= ? AND at < ?"
        return [row[0] for row in self._connection.execute(between, (first, last, since, until))]

    def _offsets_of(self, number: int) -> array[int]:
        if (offsets := self._offsets.get(number)) is None:
            (row,) = self._connection.execute("SELECT positions FROM volumes WHERE id = ?", (self._ids[number],))
            offsets = self._offsets[number] = array("I", row[0])
        return offsets


def _sorted_indexes(listed: Sequence[int], wanted: Iterable[int], start: int) -> list[int]:
    """Return the index of each wanted value in the sorted `listed`, plus `start`. Values not in it are skipped."""
    end = len(listed)
    return [start + place for each in wanted if (place := bisect_left(listed, each)) < end and listed[place] == each]

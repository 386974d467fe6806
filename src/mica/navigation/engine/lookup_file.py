"""Tables in a file that are looked up where they lie: a hook needs a few words of an index, and has no time to load it.

A slot for each key leads to its record: the key, and the value as marshal writes it. A file is written whole, beside
the old one, and takes its place; who reads the old one goes on reading it.
"""

from __future__ import annotations

import marshal
from binascii import crc32
from mmap import ACCESS_READ, mmap

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from typing import TypeVar

    T = TypeVar("T")

MAGIC = b"mica kept 1\n"
FORM = 2  # of marshal: the same for every Python that there is
ENTRIES_MAX = 50_000_000

_HEAD = len(MAGIC) + 4


class Kept:
    """A file of tables. Raises OSError where it cannot be read, ValueError where it is none or was cut off."""

    def __init__(self, file: int) -> None:
        """`file` is open for reading, and may be closed afterwards."""
        self._held = mmap(file, 0, access=ACCESS_READ)
        if self._held[: len(MAGIC)] != MAGIC:
            raise ValueError("no file of tables")
        self._mask = int.from_bytes(self._held[len(MAGIC) : _HEAD], "little")
        if len(self._held) < _HEAD + 4 * (self._mask + 1):
            raise ValueError("a file of tables that was cut off")

    def raw(self, table: str, key: str) -> bytes | None:
        """A value as it was packed."""
        wanted = _name(table, key)
        slot = crc32(wanted) & self._mask
        held = self._held
        while offset := int.from_bytes(held[_HEAD + 4 * slot : _HEAD + 4 * slot + 4], "little"):
            name, value = self._record(offset)
            if name == wanted:
                return value
            slot = (slot + 1) & self._mask
        return None

    def get(self, table: str, key: str, default: T) -> T:
        """A value as it was written, which is of the kind of the default."""
        found = self.raw(table, key)
        return default if found is None else marshal.loads(found)

    def raws(self, table: str) -> Iterator[tuple[str, bytes]]:
        """Every key of a table with its value as it was packed."""
        begin = _name(table, "")
        place = _HEAD + 4 * (self._mask + 1)
        while place < len(self._held):
            name, value = self._record(place)
            place += 8 + len(name) + len(value)
            if name.startswith(begin):
                yield name[len(begin) :].decode("utf-8", "surrogatepass"), value

    def _record(self, offset: int) -> tuple[bytes, bytes]:
        held = self._held
        first = offset + 8
        middle = first + int.from_bytes(held[offset : offset + 4], "little")
        last = middle + int.from_bytes(held[offset + 4 : first], "little")
        if last > len(held):
            raise ValueError("a file of tables that was cut off")
        return held[first:middle], held[middle:last]


def packed(value: object) -> bytes:
    """A value as a file keeps it: texts, numbers, and tuples, lists and dictionaries of them."""
    return marshal.dumps(value, FORM)  # type: ignore[arg-type]  # it raises ValueError for anything else


def file_of(entries: Iterable[tuple[str, str, bytes]]) -> bytes:
    """A file of tables: for each entry its table, its key, and its packed value. No key may come twice."""
    listed = [(_name(table, key), value) for table, key, value in entries]
    if len(listed) > ENTRIES_MAX:
        raise ValueError(f"{len(listed):,} entries are too many")
    slots = 16
    while slots < 2 * len(listed):
        slots *= 2
    table = [0] * slots
    records: list[bytes] = []
    place = _HEAD + 4 * slots
    for name, value in listed:
        slot = crc32(name) & (slots - 1)
        while table[slot]:
            slot = (slot + 1) & (slots - 1)
        table[slot] = place
        records.append(len(name).to_bytes(4, "little") + len(value).to_bytes(4, "little") + name + value)
        place += len(records[-1])
    if place >= 2**32:
        raise ValueError(f"{place:,} bytes are more than such a file can have")
    index = b"".join(offset.to_bytes(4, "little") for offset in table)
    return b"".join([MAGIC, (slots - 1).to_bytes(4, "little"), index, *records])


def _name(table: str, key: str) -> bytes:
    return f"{table}\0{key}".encode("utf-8", "surrogatepass")

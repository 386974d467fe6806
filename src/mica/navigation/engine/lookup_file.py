"""A read-only file of hash tables that are searched in place, since a hook has no time to load a whole index.

A slot of the hash table points to a record: the key, and the value as encoded by `marshal`. A new file replaces the old
one as a whole, so a process that has the old file open can keep reading it.
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
FORM = 2  # the version of marshal's format: every supported Python reads and writes it
ENTRIES_MAX = 50_000_000

_HEAD = len(MAGIC) + 4


class LookupFile:
    """An open lookup file. Raises OSError if it cannot be read, ValueError if it is truncated or of another kind."""

    def __init__(self, file: int) -> None:
        """`file` is a file descriptor open for reading; the caller may close it afterwards."""
        self._map = mmap(file, 0, access=ACCESS_READ)
        if self._map[: len(MAGIC)] != MAGIC:
            raise ValueError("this is not a lookup file")
        self._mask = int.from_bytes(self._map[len(MAGIC) : _HEAD], "little")
        if len(self._map) < _HEAD + 4 * (self._mask + 1):
            raise ValueError("the lookup file is truncated")

    def raw(self, table: str, key: str) -> bytes | None:
        """Return the value of a key in a table as encoded bytes (see `pack`); None if the table has no such key."""
        full_key = _name(table, key)
        slot = crc32(full_key) & self._mask
        data = self._map
        while offset := int.from_bytes(data[_HEAD + 4 * slot : _HEAD + 4 * slot + 4], "little"):
            name, value = self._record(offset)
            if name == full_key:
                return value
            slot = (slot + 1) & self._mask
        return None

    def get(self, table: str, key: str, default: T) -> T:
        """Return the value of a key in a table, or `default` if there is none. The type of the value is not checked."""
        found = self.raw(table, key)
        return default if found is None else marshal.loads(found)

    def raws(self, table: str) -> Iterator[tuple[str, bytes]]:
        """Yield every key of a table with its value as encoded bytes. The whole file is read."""
        begin = _name(table, "")
        place = _HEAD + 4 * (self._mask + 1)
        while place < len(self._map):
            name, value = self._record(place)
            place += 8 + len(name) + len(value)
            if name.startswith(begin):
                yield name[len(begin) :].decode("utf-8", "surrogatepass"), value

    def _record(self, offset: int) -> tuple[bytes, bytes]:
        data = self._map
        first = offset + 8
        middle = first + int.from_bytes(data[offset : offset + 4], "little")
        last = middle + int.from_bytes(data[offset + 4 : first], "little")
        if last > len(data):
            raise ValueError("the lookup file is truncated")
        return data[first:middle], data[middle:last]


def pack(value: object) -> bytes:
    """Return a value encoded for a lookup file.

    It may be a string, a number, or a tuple, list or dictionary of these. Raises ValueError for anything else.
    """
    return marshal.dumps(value, FORM)  # type: ignore[arg-type]  # it raises ValueError for anything else


def build_file(entries: Iterable[tuple[str, str, bytes]]) -> bytes:
    """Return the content of a lookup file with these entries: (table, key, value encoded by `pack`).

    Each key may occur only once in a table. Raises ValueError if there are more than ENTRIES_MAX entries, or if the
    content would be 4 GiB or larger.
    """
    named = [(_name(table, key), value) for table, key, value in entries]
    if len(named) > ENTRIES_MAX:
        raise ValueError(f"{len(named):,} entries are too many for a lookup file")
    slots = 16
    while slots < 2 * len(named):
        slots *= 2
    table = [0] * slots
    records: list[bytes] = []
    place = _HEAD + 4 * slots
    for name, value in named:
        slot = crc32(name) & (slots - 1)
        while table[slot]:
            slot = (slot + 1) & (slots - 1)
        table[slot] = place
        records.append(len(name).to_bytes(4, "little") + len(value).to_bytes(4, "little") + name + value)
        place += len(records[-1])
    if place >= 2**32:
        raise ValueError(f"{place:,} bytes are too many for a lookup file")
    index = b"".join(offset.to_bytes(4, "little") for offset in table)
    return b"".join([MAGIC, (slots - 1).to_bytes(4, "little"), index, *records])


def _name(table: str, key: str) -> bytes:
    return f"{table}\0{key}".encode("utf-8", "surrogatepass")

"""How aged events are written: blocks of columns, and chapters that say in which block a position is.

A block holds up to `BLOCK_EVENTS` events as two zstd frames with checksums: the header, one column of numbers after the
other, and the bodies end to end. The header alone answers most questions. Neighbours are alike, so columns hold the
steps from one event to the next where that makes them small.
"""

from __future__ import annotations

import sys
from array import array
from collections.abc import Iterator, Sequence
from functools import cached_property
from itertools import accumulate, pairwise
from typing import NamedTuple

from mica.errors import StoreError
from mica.store.codec import expanded, packed
from mica.store.protocol import BLOCK_EVENTS

FORMAT = b"\x01"  # the first byte of everything that is written here
BLOCK_BYTES_MAX = 2**20  # of bodies: what one lookup has to expand, 1 ms
CHAPTER_POSITIONS = 8_192  # as many as one step of ageing takes, so that a step touches one chapter or two

_SMALL = 2**31  # steps beyond this are no steps: sequences that are hashes


class Header(NamedTuple):
    """What is known of an event besides its body; words, contexts and payloads by number, 0 for none."""

    position: int
    writer: int
    sequence: int
    name: int
    at: int
    context: int
    root_writer: int
    root_sequence: int
    parent_writer: int
    parent_sequence: int
    depth: int
    origin: int
    error: int
    payload: int  # shared by several events and kept elsewhere: the body here is empty


_STEPPED = frozenset({"position", "at", "context", "depth"})
_SEQUENCES = frozenset({"sequence", "root_sequence", "parent_sequence"})
_SIZE = len(Header._fields)  # the column after the last: bytes of each body


class Encoded(NamedTuple):
    """A block as it is stored."""

    header: bytes
    bodies: bytes


def encode(headers: Sequence[Header], bodies: Sequence[bytes]) -> Encoded:
    """A block of these events, in this order; there must be one at least."""
    columns: list[Sequence[int]] = [*zip(*headers, strict=True), [len(body) for body in bodies]]
    own = columns[Header._fields.index("sequence")]
    is_counted = all(abs(after - before) < _SMALL for before, after in pairwise(own))
    parts = [b"\x01" if is_counted else b"\x00", len(headers).to_bytes(4, "little")]
    for name, column in zip((*Header._fields, ""), columns, strict=True):
        is_stepped = name in _STEPPED or (is_counted and name in _SEQUENCES)
        parts += _written(_steps(column) if is_stepped else column)
    return Encoded(FORMAT + packed(b"".join(parts)), FORMAT + packed(b"".join(bodies)))


class EventBlock:
    """A block as it is read. Columns are expanded at once, bodies when the first is asked for."""

    def __init__(self, header: bytes, bodies: bytes) -> None:
        body = memoryview(_expanded(header))
        is_counted, count, offset = body[0] == 1, int.from_bytes(body[1:5], "little"), 5
        columns: list[array[int]] = []
        for name in (*Header._fields, ""):
            column = array(chr(body[offset]))
            end = offset + 1 + count * column.itemsize
            column.frombytes(body[offset + 1 : end])
            if sys.byteorder == "big":
                column.byteswap()
            if name in _STEPPED or (is_counted and name in _SEQUENCES):
                column = array("q", accumulate(column))
            columns.append(column)
            offset = end
        self._columns = columns
        self._frame = bodies
        (self.positions, self.writers, self.sequences, self.names, self.ats, self.contexts, self.root_writers,
         self.root_sequences, self.parent_writers, self.parent_sequences, self.depths, self.origins, self.errors,
         self.payloads) = columns[:_SIZE]  # fmt: skip
        self._ends = array("q", accumulate(columns[_SIZE]))

    def __len__(self) -> int:
        return len(self.positions)

    @property
    def size_bytes(self) -> int:
        """What it takes in memory, roughly, once its bodies are expanded."""
        return 200 * len(self) + (self._ends[-1] if self._ends else 0)

    @cached_property
    def indexes(self) -> dict[int, int]:
        """Where in the block each position is."""
        return {position: index for index, position in enumerate(self.positions)}

    @cached_property
    def _bodies(self) -> bytes:
        return _expanded(self._frame)

    def header(self, index: int) -> Header:
        return Header._make([column[index] for column in self._columns[:_SIZE]])

    def headers(self) -> Iterator[Header]:
        return map(Header, *self._columns[:_SIZE])

    def body(self, index: int) -> bytes:
        return self._bodies[self._ends[index - 1] if index else 0 : self._ends[index]]

    def is_whole(self) -> bool:
        """Whether the bodies are as long as the header says. Raises StoreError when either cannot be read."""
        return len(self._bodies) == (self._ends[-1] if self._ends else 0)


def cuts(sizes: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Where to part events with bodies of these sizes into blocks: from, and to before."""
    start = total = 0
    for index, size in enumerate(sizes):
        if index > start and (index - start >= BLOCK_EVENTS or total + size > BLOCK_BYTES_MAX):
            yield start, index
            start, total = index, 0
        total += size
    if sizes:
        yield start, len(sizes)


def encode_chapter(places: Sequence[int]) -> bytes:
    """The block of every position of a chapter, 0 where it is a row or nothing."""
    blocks = sorted(set(places))
    ordinals = {block: ordinal for ordinal, block in enumerate(blocks)}
    parts = [len(blocks).to_bytes(4, "little"), *_written(blocks, "q"), *_written([ordinals[b] for b in places], "H")]
    return FORMAT + packed(b"".join(parts))


def decode_chapter(frame: bytes) -> array[int]:
    """What `encode_chapter` wrote."""
    body = _expanded(frame)
    end = 5 + 8 * int.from_bytes(body[:4], "little")
    blocks, ordinals = array("q", body[5:end]), array("H", body[end + 1 :])
    if sys.byteorder == "big":
        blocks.byteswap()
        ordinals.byteswap()
    return array("q", [blocks[ordinal] for ordinal in ordinals])


def _steps(values: Sequence[int]) -> list[int]:
    return [values[0], *(after - before for before, after in pairwise(values))]


def _written(values: Sequence[int], kind: str | None = None) -> tuple[bytes, bytes]:
    """Numbers, each in as many bytes as the widest needs, and before them the letter that says how many."""
    if kind is None:
        lowest, highest = min(values), max(values)
        kind = next(kind for kind, bits in _KINDS if -(2**bits) <= lowest and highest < 2**bits)
    column = array(kind, values)
    if sys.byteorder == "big":
        column.byteswap()
    return kind.encode(), column.tobytes()


_KINDS = (("b", 7), ("h", 15), ("i", 31), ("q", 63))


def _expanded(frame: bytes) -> bytes:
    if frame[:1] != FORMAT:
        raise StoreError(f"a block of format {frame[:1].hex() or 'nothing'} cannot be read by this mica; upgrade it")
    return expanded(frame[1:])

"""The storage format of old, compressed events: blocks of columns, and chapters that map positions to blocks.

A block holds up to `BLOCK_EVENTS` events as two zstd frames with checksums. The header frame has a column of numbers
for each field of the events. The bodies frame has the data of the events, one after another. Most reads need only the
header. Neighbouring events are similar, so some columns store the differences between events.
"""

from __future__ import annotations

import sys
from array import array
from collections.abc import Iterator, Sequence
from functools import cached_property
from itertools import accumulate, pairwise
from typing import NamedTuple

from mica.errors import StoreError
from mica.store.codec import compress_small, expand
from mica.store.protocol import BLOCK_EVENTS

FORMAT = b"\x01"  # the first byte of every frame
BLOCK_BYTES_MAX = 2**20  # of bodies; one lookup expands them all, in 1 ms
CHAPTER_POSITIONS = 8_192  # as many events as one step compresses, so that a step changes one or two chapters

_SMALL = 2**31  # larger differences mean that the sequences are hashes


class Header(NamedTuple):
    """All fields of an event except its body (its data). Words, contexts and payloads are numbers, 0 for none."""

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
    payload: int  # stored outside the block because several events share it; the body is then empty


# Columns that are stored as differences between events; sequences only if they are counters and not hashes.
_STEPPED = frozenset({"position", "at", "context", "depth"})
_SEQUENCES = frozenset({"sequence", "root_sequence", "parent_sequence"})
_SIZE = len(Header._fields)  # the column after the last: bytes of each body


class EncodedBlock(NamedTuple):
    """The stored form of a block: its two frames."""

    header: bytes
    bodies: bytes


def encode(headers: Sequence[Header], bodies: Sequence[bytes]) -> EncodedBlock:
    """Encode a block of these events, in this order. There must be at least one event."""
    columns: list[Sequence[int]] = [*zip(*headers, strict=True), [len(body) for body in bodies]]
    own = columns[Header._fields.index("sequence")]
    is_counted = all(abs(after - before) < _SMALL for before, after in pairwise(own))
    parts = [b"\x01" if is_counted else b"\x00", len(headers).to_bytes(4, "little")]
    for name, column in zip((*Header._fields, ""), columns, strict=True):
        is_stepped = name in _STEPPED or (is_counted and name in _SEQUENCES)
        parts += _encode_column(_steps(column) if is_stepped else column)
    return EncodedBlock(FORMAT + compress_small(b"".join(parts)), FORMAT + compress_small(b"".join(bodies)))


class EventBlock:
    """A decoded block. The header is decompressed immediately, the bodies when the first one is read."""

    def __init__(self, header: bytes, bodies: bytes) -> None:
        body = memoryview(_expand(header))
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
        """The approximate size in memory with decompressed bodies."""
        return 200 * len(self) + (self._ends[-1] if self._ends else 0)

    @cached_property
    def indexes(self) -> dict[int, int]:
        """The index of each event in this block, by its position in the log."""
        return {position: index for index, position in enumerate(self.positions)}

    @cached_property
    def _bodies(self) -> bytes:
        return _expand(self._frame)

    def header(self, index: int) -> Header:
        return Header._make([column[index] for column in self._columns[:_SIZE]])

    def headers(self) -> Iterator[Header]:
        return map(Header, *self._columns[:_SIZE])

    def body(self, index: int) -> bytes:
        return self._bodies[self._ends[index - 1] if index else 0 : self._ends[index]]

    def is_whole(self) -> bool:
        """Return True if the bodies have the length that the header states.

        Raises StoreError if the bodies cannot be decompressed.
        """
        return len(self._bodies) == (self._ends[-1] if self._ends else 0)


def cuts(sizes: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Divide events with bodies of these sizes (in bytes) into blocks. Yields the start and end index of each block."""
    start = total = 0
    for index, size in enumerate(sizes):
        if index > start and (index - start >= BLOCK_EVENTS or total + size > BLOCK_BYTES_MAX):
            yield start, index
            start, total = index, 0
        total += size
    if sizes:
        yield start, len(sizes)


def encode_chapter(places: Sequence[int]) -> bytes:
    """Encode a chapter: the block number of each of CHAPTER_POSITIONS positions, or 0 if the event is in no block."""
    blocks = sorted(set(places))
    ordinals = {block: ordinal for ordinal, block in enumerate(blocks)}
    columns = *_encode_column(blocks, "q"), *_encode_column([ordinals[block] for block in places], "H")
    return FORMAT + compress_small(b"".join([len(blocks).to_bytes(4, "little"), *columns]))


def decode_chapter(frame: bytes) -> array[int]:
    """Decode the block numbers that `encode_chapter` encoded."""
    body = _expand(frame)
    end = 5 + 8 * int.from_bytes(body[:4], "little")
    blocks, ordinals = array("q", body[5:end]), array("H", body[end + 1 :])
    if sys.byteorder == "big":
        blocks.byteswap()
        ordinals.byteswap()
    return array("q", [blocks[ordinal] for ordinal in ordinals])


def _steps(values: Sequence[int]) -> list[int]:
    return [values[0], *(after - before for before, after in pairwise(values))]


def _encode_column(values: Sequence[int], kind: str | None = None) -> tuple[bytes, bytes]:
    """Return a type code and the encoded numbers. By default, each number takes as many bytes as the widest."""
    if kind is None:
        lowest, highest = min(values), max(values)
        kind = next(kind for kind, bits in _KINDS if -(2**bits) <= lowest and highest < 2**bits)
    column = array(kind, values)
    if sys.byteorder == "big":
        column.byteswap()
    return kind.encode(), column.tobytes()


_KINDS = (("b", 7), ("h", 15), ("i", 31), ("q", 63))


def _expand(frame: bytes) -> bytes:
    if frame[:1] != FORMAT:
        raise StoreError(f"a block of format {frame[:1].hex() or 'nothing'} cannot be read by this mica; upgrade it")
    return expand(frame[1:])

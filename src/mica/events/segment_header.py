"""The first page of a segment file: what the file is, how far its frames have checksums, and how far they are stored.

    0, 128       identity, twice: magic, version, capacity, base sequence, writer
    256, 512     cover: number of frames, end of the last, checksums of the heap and the spine up to there
    768, 1024    the number of stored frames

Each of the six records ends with a checksum of itself. Covers and counters are written to their two places in turn, so
that a torn write leaves the one before it. A segment of version 2 has one identity and one counter, without checksums,
and covers with a checksum of the heap only.
"""

from __future__ import annotations

import struct
from typing import NamedTuple
from zlib import crc32

from mica.model.event import WriterId

MAGIC = b"mica-seg"
VERSION, EARLIER = 3, 2
HEADER_BYTES = 4_096  # one page, so that the spine is aligned

_IDENTITY = struct.Struct("<8sIIQ26s")
_COVER = struct.Struct("<QQII")
_COUNTER = struct.Struct("<Q")
_CHECKSUM = struct.Struct("<I")
_COVER_2 = struct.Struct("<QQI")
_IDENTITIES_AT, _COVERS_AT, _COUNTERS_AT = (0, 128), (256, 512), (768, 1_024)


class UnknownVersion(ValueError):
    """A segment of a version that this mica does not know; its message says which."""


class Identity(NamedTuple):
    """The fields of a segment that never change."""

    version: int
    capacity: int
    base: int
    writer: WriterId
    is_damaged: bool = False  # one of its two copies is


class Cover(NamedTuple):
    """The checksums of the first `frames` frames, whose last one ends at `end`."""

    frames: int
    end: int
    heap: int = 0
    spine: int | None = 0  # None in version 2, which has none


class Record(NamedTuple):
    """Bytes to be written at an offset of the header."""

    at: int
    content: bytes


def _sealed(body: bytes) -> bytes:
    return body + _CHECKSUM.pack(crc32(body))


def _unsealed(page: bytes, at: int, form: struct.Struct) -> tuple[int, ...] | None:
    """The values of the record at offset `at`; None if it was never written or does not match its checksum."""
    body = page[at : at + form.size]
    if not any(body) or page[at + form.size : at + form.size + _CHECKSUM.size] != _CHECKSUM.pack(crc32(body)):
        return None
    return form.unpack(body)


def identity_page(capacity: int, base: int, writer: WriterId) -> bytes:
    """The beginning of a new segment file, with both copies of its identity."""
    first, second = _IDENTITIES_AT
    copy = _sealed(_IDENTITY.pack(MAGIC, VERSION, capacity, base, writer.encode()))
    return copy.ljust(second - first, b"\0") + copy


def read_identity(page: bytes, *, base: int) -> Identity:
    """Decode the identity of a segment from the first page of its file. `base` is the sequence in the name of the file.

    Raises UnknownVersion, and ValueError if the page is not that of a segment or is damaged beyond repair.
    """
    copies = [_unsealed(page, at, _IDENTITY) for at in _IDENTITIES_AT]
    whole = next((copy for copy in copies if copy is not None), None)
    magic, version, capacity, own_base, writer = whole or _IDENTITY.unpack_from(page)
    is_damaged = None in copies
    if whole is None:
        is_damaged = (magic, own_base) != (MAGIC, base)
        if magic != MAGIC and (own_base != base or version != EARLIER):
            raise ValueError(f"it begins with {magic!r} instead of {MAGIC!r}")
        if version == VERSION or (version == EARLIER and any(page[_IDENTITY.size : _COVERS_AT[0]])):
            raise ValueError("both copies of its header are damaged")
    if version not in (VERSION, EARLIER):
        raise UnknownVersion(f"has version {version}, this mica knows {VERSION} and {EARLIER}; upgrade mica")
    return Identity(version, capacity, base, WriterId(bytes(writer).decode("ascii")), is_damaged)


def cover_record(cover: Cover, turn: int) -> Record:
    body = _COVER.pack(cover.frames, cover.end, cover.heap, cover.spine or 0)
    return Record(_COVERS_AT[turn & 1], _sealed(body))


def read_covers(page: bytes, version: int) -> list[Cover]:
    """The covers that can be read, the largest last."""
    if version == EARLIER:
        triples = [_COVER_2.unpack_from(page, at) for at in _COVERS_AT]
        found = [Cover(frames, end, heap, None) for frames, end, heap in triples]
    else:
        read = [_unsealed(page, at, _COVER) for at in _COVERS_AT]
        found = [Cover(*values) for values in read if values is not None]
    return sorted(cover for cover in found if cover.frames)


def counter_record(stored: int, turn: int, version: int) -> Record:
    body = _COUNTER.pack(stored)
    return Record(_COUNTERS_AT[0], body) if version == EARLIER else Record(_COUNTERS_AT[turn & 1], _sealed(body))


def read_counter(page: bytes, version: int) -> tuple[int, int]:
    """The number of stored frames, and the index (0 or 1) of the place in the header for the next such number.

    A counter that does not match its checksum counts as 0: storing an event twice is harmless, losing it is not.
    """
    if version == EARLIER:
        return _COUNTER.unpack_from(page, _COUNTERS_AT[0])[0], 0
    read = [(_unsealed(page, at, _COUNTER) or (0,))[0] for at in _COUNTERS_AT]
    return max(read), read.index(min(read))

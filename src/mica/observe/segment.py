"""A segment: append-only, memory-mapped, readable alone, whole after any crash.

    header | spine | heap
    spine[i] = scope << 32 | end of frame i; 0 = not written

One word of the spine is commit mark, offset and context at once. A frame is a MessagePack array: time, name, flags,
data and, for a child, depth, parent and root. A context is written once, as a frame of its own with scope 0. Two slots
of the header hold the last sync marks with a checksum of the heap: one that power loss tore falls back to the other.
"""

from __future__ import annotations

import mmap
import os
import struct
from datetime import timedelta
from pathlib import Path
from typing import cast
from zlib import crc32

import msgspec

from mica.errors import InvalidEvent, StoreFull, StoreUnavailable
from mica.model import EMPTY, EPOCH, ORIGINS, REFUSED, Context, Event, WriterId, encode_data, event_id, make_event

MAGIC = b"mica-seg"
VERSION = 1
HEADER_BYTES = 4_096  # one page, so that the spine is aligned
SCOPE_SHIFT = 32
END_MASK = 2**32 - 1  # offsets have 32 bits: a segment is smaller than 4 GiB
SUFFIX = ".segment"

_HEADER = struct.Struct("<8sIIQ26s")  # magic, version, capacity, base sequence, writer
_MARK = struct.Struct("<QQI")  # frames synced, end of the last, checksum of the heap up to it
_MARKS_AT = 256, 512
_FOLDED = struct.Struct("<Q")
_FOLDED_AT = 768


Body = dict[str, object]


class _Frame(msgspec.Struct, array_like=True):
    at: int
    name: str
    flags: int
    data: dict[object, object] | bytes  # bytes: JSON already
    depth: int = 0
    parent: int = 0  # sequences; of the same writer unless the last two say another
    root: int = 0
    parent_writer: WriterId | None = None
    root_writer: WriterId | None = None


encode_frame = msgspec.msgpack.Encoder().encode
_frames = msgspec.msgpack.Decoder(_Frame)
_contexts = msgspec.msgpack.Decoder(tuple[int, Context])


class Segment:
    """One file; or anonymous memory, for a space that ends with its process."""

    def __init__(self, area: mmap.mmap, descriptor: int, path: Path | None) -> None:
        self.area = area
        self.descriptor = descriptor
        self.path = path
        _, _, self.capacity, self.base, writer = _HEADER.unpack_from(area)
        self.writer = WriterId(writer.decode())
        self.heap_at = HEADER_BYTES + 8 * self.capacity
        self.spine = memoryview(area)[HEADER_BYTES : self.heap_at].cast("Q")
        self.count = 0  # frames known to be written
        self.folded: int = _FOLDED.unpack_from(area, _FOLDED_AT)[0]
        self.contexts: dict[int, Context] = {}  # met so far by a reader
        self.synced = 0
        self.checksum = 0

    @property
    def size_bytes(self) -> int:
        return len(self.area)

    @property
    def end(self) -> int:
        """Where the last frame ends."""
        return self.spine[self.count - 1] & END_MASK if self.count else self.heap_at

    def refreshed(self) -> int:
        """How many frames are written, by what the spine says now. Threads may ask at once."""
        count = self.count
        while count < self.capacity and self.spine[count]:
            count += 1
        self.count = count
        return count

    def events(self, limit: int) -> tuple[list[Event], int]:
        """Up to `limit` events that are not folded, and the number of frames they reach to."""
        found: list[Event] = []
        index = self.folded
        while index < self.count and len(found) < limit:
            try:
                event = self.read(index)
            except InvalidEvent as error:
                event = self._refused(index, str(error))
            if event is not None:
                found.append(event)
            index += 1
        return found, index

    def _refused(self, index: int, reason: str) -> Event:
        """In place of an event whose data JSON cannot hold: its name, and why."""
        start = self.spine[index - 1] & END_MASK if index else self.heap_at
        read = _frames.decode(self.area[start : self.spine[index] & END_MASK])
        identifier = event_id(self.writer, self.base + index)
        at = EPOCH + timedelta(microseconds=read.at)
        told = {"name": read.name, "text": reason, "data": repr(read.data)}
        return make_event(identifier, REFUSED, told, at=at, context=EMPTY, error=True)

    def read(self, index: int) -> Event | None:
        """The event of a frame; None for a frame that holds a context. Raises ValueError when it is damaged."""
        word = self.spine[index]
        start = self.spine[index - 1] & END_MASK if index else self.heap_at
        frame = self.area[start : word & END_MASK]
        scope = word >> SCOPE_SHIFT
        if scope == 0:
            number, context = _contexts.decode(frame)
            self.contexts[number] = context
            return None
        read = _frames.decode(frame)
        identifier = event_id(self.writer, self.base + index)
        return Event(
            id=identifier,
            name=read.name,
            at=EPOCH + timedelta(microseconds=read.at),
            body=read.data if isinstance(read.data, bytes) else encode_data(read.name, cast(Body, read.data)),
            context=self._context(scope, index),
            root_id=event_id(read.root_writer or self.writer, read.root) if read.depth else identifier,
            parent_id=event_id(read.parent_writer or self.writer, read.parent) if read.depth else None,
            depth=read.depth,
            origin=ORIGINS[read.flags >> 1],
            error=bool(read.flags & 1),
        )

    def _context(self, scope: int, before: int) -> Context:
        if scope not in self.contexts:  # a reader that began in the middle
            for index in range(before):
                if self.spine[index] >> SCOPE_SHIFT == 0:
                    self.read(index)
        return self.contexts[scope]

    def mark_folded(self, index: int) -> None:
        self.folded = index
        _FOLDED.pack_into(self.area, _FOLDED_AT, index)

    def sync(self) -> None:
        """Bring every frame written before to the disk, with a mark that says so."""
        count = self.refreshed()
        if self.descriptor < 0 or count == self.synced:
            return
        end = self.spine[count - 1] & END_MASK
        start = self.spine[self.synced - 1] & END_MASK if self.synced else self.heap_at
        self.checksum = crc32(self.area[start:end], self.checksum)
        slot = _MARKS_AT[count & 1]
        _MARK.pack_into(self.area, slot, count, end, self.checksum)
        os.fdatasync(self.descriptor)
        self.synced = count

    def recover(self) -> str | None:
        """Count what was committed before a crash. Returns what is wrong with the rest, if anything is."""
        problem = None
        while self.count < self.capacity and (word := self.spine[self.count]):
            try:
                if not self.end < word & END_MASK <= self.size_bytes:
                    raise ValueError("it ends outside of the segment")
                self.read(self.count)
            except InvalidEvent:
                pass  # whole, and refused when it is folded
            except (ValueError, KeyError) as error:
                problem = f"frame {self.count} is damaged: {error}"
                break
            self.count += 1
        marks = [mark for slot in _MARKS_AT if (mark := _MARK.unpack_from(self.area, slot))[0]]
        if marks and not any(self._holds(*mark) for mark in marks):
            problem = problem or "what was synced does not have the checksum of that moment"
        return problem

    def _holds(self, count: int, end: int, checksum: int) -> bool:
        return count <= self.count and crc32(self.area[self.heap_at : min(end, self.size_bytes)]) == checksum

    def close(self) -> None:
        self.spine.release()
        self.area.close()
        if self.descriptor >= 0:
            os.close(self.descriptor)
            self.descriptor = -1

    def remove(self) -> None:
        self.close()
        if self.path is not None:
            self.path.unlink(missing_ok=True)


def make_segment(folder: Path | None, *, writer: WriterId, base: int, capacity: int, heap_bytes: int) -> Segment:
    """A new segment. The magic is written last: a file without it was never used."""
    size = HEADER_BYTES + 8 * capacity + heap_bytes
    if folder is None:
        area, descriptor, path = mmap.mmap(-1, size), -1, None
    else:
        path = folder / f"{base:016x}{SUFFIX}"
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            os.posix_fallocate(descriptor, 0, size)  # a full disk is an error here, not a bus error inside emit
            area = mmap.mmap(descriptor, size)
            _sync_folder(folder)
        except OSError as error:
            os.close(descriptor)
            path.unlink(missing_ok=True)
            raise StoreFull(
                f"no room for a segment of {size:,} bytes in {folder}: {error.strerror}; free some"
            ) from error
    header = _HEADER.pack(MAGIC, VERSION, capacity, base, writer.encode())
    area[len(MAGIC) : len(header)] = header[len(MAGIC) :]
    area[: len(MAGIC)] = MAGIC
    return Segment(area, descriptor, path)


def load_segment(path: Path) -> Segment | None:
    """A segment that another process left; None when it was never used.

    Raises StoreUnavailable for another version, and OSError or ValueError when it is no segment at all.
    """
    descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    try:
        if os.fstat(descriptor).st_size < HEADER_BYTES:
            os.close(descriptor)
            return None
        area = mmap.mmap(descriptor, 0)
        magic, version, capacity, _, _ = _HEADER.unpack_from(area)
        if magic != MAGIC:
            os.close(descriptor)
            return None
        if version != VERSION:
            raise StoreUnavailable(f"segment {path} has version {version}, this mica knows {VERSION}; upgrade mica")
        if HEADER_BYTES + 8 * capacity > len(area):
            raise ValueError(f"it says that it holds {capacity:,} frames, and is too short for them")
        return Segment(area, descriptor, path)
    except (StoreUnavailable, ValueError):
        os.close(descriptor)
        raise


def _sync_folder(folder: Path) -> None:
    """Make the names in a folder survive power loss."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)

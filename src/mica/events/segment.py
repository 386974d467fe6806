"""A segment: an append-only, memory-mapped file of events that stays readable after any crash.

    header | spine | heap
    spine[i] = scope << 32 | end of frame i; 0 = not written

Each word of the spine commits one frame: it holds the frame's end offset and the number of its context (`scope`). A
frame is a MessagePack array: time, name, flags, data and, for a child event, its lineage. A context is written once, as
a frame with scope 0 that holds the context's number and the context. Frames have no gaps between them, so that a
thousand frames are read as one array.

The header (`segment_header.py`) has checksums of heap and spine, which `cover` extends. It is called when frames are
synced or folded and when a segment closes, never by `emit`, which would become a tenth slower.
"""

from __future__ import annotations

import errno
import mmap
import os
import sys
import threading
from collections import deque
from contextlib import suppress
from datetime import datetime, timedelta
from itertools import pairwise
from operator import attrgetter
from pathlib import Path
from time import monotonic
from typing import NamedTuple, cast
from zlib import crc32

import msgspec

from mica.disk import sync, sync_folder, write_at
from mica.errors import InvalidEvent, StoreFull, StoreUnavailable
from mica.events.segment_header import (
    HEADER_BYTES,
    Cover,
    Identity,
    Record,
    UnknownVersion,
    counter_record,
    cover_record,
    identity_page,
    read_counter,
    read_covers,
    read_identity,
)
from mica.events.segment_writer import HeapTarget, SegmentFile, SpineTarget
from mica.model.event import (
    EMPTY,
    EPOCH,
    ORIGINS,
    REFUSED,
    Context,
    Event,
    EventId,
    WriterId,
    check_encoded,
    encode_data,
    event_id,
    make_event,
)

SCOPE_SHIFT = 32
END_MASK = 2**32 - 1  # offsets have 32 bits: a segment is smaller than 4 GiB
ERROR, ORIGIN_SHIFT, ORIGIN_MASK, MICROSECONDS = 1, 1, 7, 64  # flags: it failed; its origin; time in microseconds
SUFFIX, UNNAMED, DAMAGED = ".segment", ".unnamed", ".damaged"  # complete; still being made; set aside
UNREADABLE = (ValueError, KeyError, RecursionError)  # raised by reading a damaged frame
POPULATE_WRITE = 23  # MADV_POPULATE_WRITE of Linux 5.14, which Python does not name yet
READ_FRAMES = 1_024  # decoded in one call, which blocks the interpreter for a fraction of a millisecond

# The share of the heap that is allocated at once, and its limits: a quiet process allocates little in vain, a busy one
# allocates pages for 2,700 events in a tenth of a millisecond.
PIECE_SHARE, PIECE_BYTES = 16, (2**16, 2**19)
SPINE_PIECE = 4_096  # bytes in one checksum call: above 5 kB it releases the interpreter, and waits to get it back
PACE_S = 0.005  # between two syncs; otherwise most writes hit pages that are being synced
_ZEROS = memoryview(bytes(PIECE_BYTES[1]))

_LOW, _HIGH = (0, 1) if sys.byteorder == "little" else (1, 0)  # halves of a word: the end of a frame, and its scope
_ARRAY = b"\xdd"  # with a count, the prefix that turns consecutive frames into one MessagePack array


Body = dict[str, object]


class FrameLineage(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """The depth, parent and root of an event, as stored in a frame."""

    depth: int = 0
    parent: int = 0  # sequence number, of the same writer unless `parent_writer` names another
    root: int = 0
    parent_writer: WriterId | None = None
    root_writer: WriterId | None = None


class SegmentFrame(msgspec.Struct, array_like=True, gc=False):
    """A frame with its data still encoded: an event, or a context with its number."""

    at: int  # nanoseconds since 1970, or microseconds before 1678 and after 2262 (see flags); or a context's number
    name: str | Context
    flags: int = 0
    data: msgspec.Raw = msgspec.Raw(b"\x80")
    lineage: FrameLineage = FrameLineage()

    @property
    def microseconds(self) -> int:
        return self.at if self.flags & MICROSECONDS else self.at // 1_000

    @property
    def moment(self) -> datetime:
        return EPOCH + timedelta(0, 0, self.at if self.flags & MICROSECONDS else self.at // 1_000)


class DecodedFrame(msgspec.Struct, array_like=True, gc=False):
    """A frame with its data decoded. Decoding fails for the few frames whose data has keys other than strings."""

    at: int
    name: str | Context
    flags: int = 0
    data: dict[str, object] | bytes = b"{}"
    lineage: FrameLineage = FrameLineage()


class FrameHead(msgspec.Struct, array_like=True, gc=False):
    """Only the first field of a frame: the time of an event, or the number of a context. The rest is not decoded."""

    at: int


encode_frame, encode_into = msgspec.msgpack.Encoder().encode, msgspec.msgpack.Encoder().encode_into
check_context = msgspec.msgpack.Decoder(tuple[int, Context]).decode  # raises if a field has a wrong type
_bodies = msgspec.msgpack.Decoder(dict[object, object] | bytes)  # bytes are data that is already JSON
_frames = msgspec.msgpack.Decoder(list[SegmentFrame])
_decoded_frames = msgspec.msgpack.Decoder(list[DecodedFrame])
_heads = msgspec.msgpack.Decoder(list[FrameHead])
_as_lines = msgspec.json.Encoder().encode_lines
_at = attrgetter("at")


class Segment:
    """One mapped segment file, or anonymous memory for a space that exists only in its process."""

    def __init__(
        self, area: mmap.mmap, descriptor: int, path: Path | None, *, identity: Identity, is_mapped: bool
    ) -> None:
        self.area = area
        self.descriptor = descriptor
        self.path = path
        self.version, self.capacity, self.base, self.writer, self._is_header_damaged = identity
        self.heap_at = HEADER_BYTES + 8 * self.capacity
        self.spine = memoryview(area)[HEADER_BYTES : self.heap_at].cast("Q")
        self._halves = memoryview(area)[HEADER_BYTES : self.heap_at].cast("I")
        self.count = 0  # frames known to be committed
        self.folded, self._counter_turn = read_counter(area[:HEADER_BYTES], self.version)
        self.contexts: dict[int, Context] = {}  # read so far
        self._line = FrameLineage(), EventId(""), EventId("")  # the lineage used last, and the ids of root and parent
        # What `emit` writes to: the mapping, or the file if writing through the mapping is not safe.
        self.heap_target: mmap.mmap | HeapTarget = area
        self.spine_target: memoryview[int] | SpineTarget = self.spine
        self._is_mapped = is_mapped
        self.ready: int = self.heap_at if is_mapped else len(area)  # pages up to here are allocated
        self._piece = min(max((len(area) - self.heap_at) // PIECE_SHARE, PIECE_BYTES[0]), PIECE_BYTES[1])
        self._preparing = threading.Lock()  # held while pages are allocated
        self.synced = 0
        self._synced_at = monotonic()
        self.sync_failure: OSError | None = (
            None  # the disk may have lost any unsynced frame, and would not say so again
        )
        self.problem: str | None = None  # what is damaged; then the file is set aside instead of removed
        self._covers = deque([Cover(0, self.heap_at)])  # the last one that was checked, and those after it
        self._cover_turn = 0
        self._covering = threading.Lock()

    def write_through(self, file: SegmentFile) -> None:
        """Let `emit` write to the file instead of the mapping."""
        self.heap_target, self.spine_target = HeapTarget(file), SpineTarget(file, self.spine)

    @property
    def size_bytes(self) -> int:
        return len(self.area)

    @property
    def end(self) -> int:
        """The end offset of the last frame that is known to be committed."""
        return self.spine[self.count - 1] & END_MASK if self.count else self.heap_at

    def prepare(self, end: int) -> int:
        """Allocate pages up to this offset and some more, and return the end of the allocated pages.

        The new pages must not be in use yet. Allocating and mapping many pages at once takes a quarter of the time that
        touching each page takes.
        """
        with self._preparing:
            while self.ready < end <= self.size_bytes:
                piece = min(self._piece, self.size_bytes - self.ready)
                with suppress(OSError):  # then pages are allocated when touched; disk space is reserved
                    if self.descriptor >= 0:
                        os.pwrite(self.descriptor, _ZEROS[:piece], self.ready)
                        self.area.madvise(POPULATE_WRITE, self.ready, piece)
                self.ready += piece
            return self.ready

    def _prepare_again(self, before: int) -> None:
        """Make the pages after the last frame writable again after a sync. `before` is the offset where the sync began.

        A sync write-protects its pages and some pages after them, so that the next write to each of them causes a page
        fault in `emit`. This method avoids these page faults with one call that no `emit` waits for.
        """
        count = self.count_committed()
        end = self.spine[count - 1] & END_MASK
        ahead = max(2 * (end - before), PIECE_BYTES[0])
        if count == self.capacity or ahead > PIECE_BYTES[1]:
            return
        ready = self.prepare(min(end + ahead, self.size_bytes))
        word, page = HEADER_BYTES + 8 * count, mmap.PAGESIZE
        for first, last in ((word, word + page), (end, min(end + ahead, ready))):
            start = first - first % page
            with suppress(OSError):
                self.area.madvise(POPULATE_WRITE, start, last - start)

    def events_in(self, first: int, last: int) -> int:
        """The number of events in a range of frames; the other frames are contexts."""
        return sum(1 for word in self.spine[first:last] if word >> SCOPE_SHIFT)

    def count_committed(self) -> int:
        """The number of committed frames, read from the spine. Thread-safe."""
        first, last = self.count, self.capacity
        while first < last:  # words are written in order, so a binary search finds the first unwritten one
            middle = (first + last) // 2
            if self.spine[middle]:
                first = middle + 1
            else:
                last = middle
        self.count = first
        return first

    def batch(self, limit: int, count: int) -> Batch:
        """Return the events in the next unstored frames: at most `limit` frames, with indexes below `count`.

        Raises one of UNREADABLE for a damaged frame.
        """
        last = min(count, self.folded + limit)
        return Batch(self, self.read(self.folded, last), last)

    def salvage(self, limit: int, count: int) -> Batch:
        """Like `batch`, but each unreadable frame becomes an event named REFUSED with the reason and the bytes."""
        last = min(count, self.folded + limit)
        events: list[Event] = []
        for index in range(self.folded, last):
            try:
                events += self.read(index, index + 1)
            except UNREADABLE as error:
                start = self.spine[index - 1] & END_MASK if index else self.heap_at
                frame = self.area[start : self.spine[index] & END_MASK].decode(errors="backslashreplace")
                data = {"text": f"frame {index} of {self.writer} cannot be read: {error}", "frame": frame}
                identifier = event_id(self.writer, self.base + index)
                events.append(
                    make_event(identifier, REFUSED, data, at=self._time_before(index), context=EMPTY, error=True)
                )
        return Batch(self, events, last)

    def _time_before(self, index: int) -> datetime:
        """The time of the nearest readable event before a frame; EPOCH if there is none.

        It is the same at every call, so that a frame that is read twice becomes the same event.
        """
        for before in range(index - 1, -1, -1):
            with suppress(*UNREADABLE):
                if self.spine[before] >> SCOPE_SHIFT:
                    return self.frames(before, before + 1)[0].moment
        return EPOCH

    def read(self, first: int, last: int) -> list[Event]:
        """The events in a range of frames; context frames are skipped. Raises one of UNREADABLE for a damaged frame."""
        try:
            return self._read_together(first, last)
        except (*UNREADABLE, TypeError, InvalidEvent):  # one is damaged, or has data that JSON cannot hold
            scoped = zip(self.scopes(first, last), self.frames(first, last), strict=True)
            events = [self._event_or_context(index, *each) for index, each in enumerate(scoped, first)]
            return [event for event in events if event is not None]

    def _event_or_context(self, index: int, scope: int, frame: SegmentFrame) -> Event | None:
        if scope:
            return self.event(index, frame)
        self._cache_context(frame)
        return None

    def _read_together(self, first: int, last: int) -> list[Event]:
        """The fast path of `read`: one call decodes all frames, and one call encodes all their data as JSON."""
        frames = _decoded_frames.decode(self._array(first, last))
        lines = iter(_as_lines([frame.data for frame in frames if type(frame.data) is dict]).split(b"\n"))
        events = []
        writer, base, contexts, known = self.writer, self.base, self.contexts, self._line
        for index, (scope, frame) in enumerate(zip(self.scopes(first, last), frames, strict=True), first):
            if not scope:
                self._cache_context(frame)
                continue
            name, data, line, flags = frame.name, frame.data, frame.lineage, frame.flags
            if type(name) is not str:
                raise ValueError("a frame with a context is not an event")
            if type(data) is dict:
                body = next(lines)
                check_encoded(name, data, body)
            else:
                body = cast(bytes, data)
            identifier = root = event_id(writer, base + index)
            parent = None
            if depth := line.depth:
                if known[0] != line:  # siblings share it
                    above = event_id(line.parent_writer or writer, line.parent)
                    known = self._line = line, event_id(line.root_writer or writer, line.root), above
                _, root, parent = known
            events.append(
                Event(
                    id=identifier,
                    name=name,
                    at=EPOCH + timedelta(0, 0, frame.at if flags & MICROSECONDS else frame.at // 1_000),
                    body=body,
                    context=contexts[scope] if scope in contexts else self.context(index),
                    root_id=root,
                    parent_id=parent,
                    depth=depth,
                    origin=ORIGINS[flags >> ORIGIN_SHIFT & ORIGIN_MASK],
                    error=bool(flags & ERROR),
                )
            )
        return events

    def scopes(self, first: int, last: int) -> list[int]:
        """The context number of each frame in a range; 0 for a frame that is itself a context."""
        return self._halves[2 * first + _HIGH : 2 * last : 2].tolist()

    def frames(self, first: int, last: int) -> list[SegmentFrame]:
        """The frames of a range, decoded in one call. Raises ValueError if one of them is damaged."""
        return _frames.decode(self._array(first, last))

    def times(self, first: int, last: int) -> list[int]:
        """The first field of each frame in a range: for an event its time, for a context its number."""
        return list(map(_at, _heads.decode(self._array(first, last))))

    def _array(self, first: int, last: int) -> bytes:
        start = self.spine[first - 1] & END_MASK if first else self.heap_at
        end = self.spine[last - 1] & END_MASK if last else self.heap_at
        return _ARRAY + (last - first).to_bytes(4) + self.area[start:end]

    def event(self, index: int, frame: SegmentFrame) -> Event:
        """Convert a frame to its event. Raises one of UNREADABLE for a damaged frame.

        If JSON cannot hold the data of the event, the result is an event named REFUSED with the reason.
        """
        name, line = frame.name, frame.lineage
        if not isinstance(name, str):
            raise ValueError("a frame with a context is not an event")
        identifier = event_id(self.writer, self.base + index)
        root, parent = identifier, None
        if line.depth:
            known = self._line
            if known[0] != line:  # siblings share it
                above = event_id(line.parent_writer or self.writer, line.parent)
                known = self._line = line, event_id(line.root_writer or self.writer, line.root), above
            _, root, parent = known
        body = _bodies.decode(frame.data)
        try:
            encoded = body if isinstance(body, bytes) else encode_data(name, cast(Body, body))
        except InvalidEvent as error:
            refusal = {"name": name, "text": str(error), "data": repr(body)}
            return make_event(identifier, REFUSED, refusal, at=frame.moment, context=EMPTY, error=True)
        return Event(
            id=identifier,
            name=name,
            at=frame.moment,
            body=encoded,
            context=self.context(index),
            root_id=root,
            parent_id=parent,
            depth=line.depth,
            origin=ORIGINS[frame.flags >> ORIGIN_SHIFT & ORIGIN_MASK],
            error=bool(frame.flags & ERROR),
        )

    def context(self, index: int) -> Context:
        """The context of the event at this index. Raises ValueError if the context cannot be read."""
        scope = self.spine[index] >> SCOPE_SHIFT
        if scope not in self.contexts:
            self.read_contexts(index)  # this reader started in the middle
        if scope not in self.contexts:
            raise ValueError(f"its context, number {scope}, cannot be read")
        return self.contexts[scope]

    def read_contexts(self, before: int) -> None:
        """Cache all contexts that are written before this frame; damaged ones are skipped."""
        for index, scope in enumerate(self.scopes(0, before)):
            if scope == 0:
                with suppress(*UNREADABLE):
                    self._cache_context(*self.frames(index, index + 1))

    def _cache_context(self, frame: SegmentFrame | DecodedFrame) -> None:
        if not isinstance(frame.name, Context):
            raise ValueError("a frame without a context is not a context")
        self.contexts[frame.at] = frame.name

    def mark_folded(self, index: int) -> None:
        """Record that frames are stored. If this cannot be written, the next process stores some of them again."""
        self.folded = index
        with suppress(OSError):
            self._put(counter_record(index, self._counter_turn, self.version))
            self._counter_turn += 1

    def _put(self, record: Record) -> None:
        """Write a record into the header of the segment. Raises OSError if that fails."""
        at, content = record
        if self._is_mapped:
            self.area[at : at + len(content)] = content
        elif self.descriptor >= 0:
            write_at(self.descriptor, content, at)
        elif self.path is not None:
            descriptor = os.open(self.path, os.O_WRONLY | os.O_CLOEXEC)
            try:
                write_at(descriptor, content, at)
            finally:
                os.close(descriptor)

    @property
    def covered(self) -> int:
        """The number of frames that have a checksum."""
        return self._covers[-1].frames

    def cover(self, count: int) -> None:
        """Extend the checksums to the first `count` frames, and record them in the header. Thread-safe."""
        with self._covering:
            before = self._covers[-1]
            if self.path is None or count <= before.frames:
                return
            after = self._covered_from(before, count, self.spine[count - 1] & END_MASK)
            self._put(cover_record(after, self._cover_turn))
            self._cover_turn += 1
            self._covers.append(after)

    def _covered_from(self, before: Cover, count: int, end: int) -> Cover:
        """Compute the checksums of the first `count` frames, continuing from those of fewer frames (`before`).

        `end` is the end offset of these frames.
        """
        with memoryview(self.area) as whole:
            heap = crc32(whole[before.end : end], before.heap)
            spine = before.spine or 0
            for first in range(HEADER_BYTES + 8 * before.frames, HEADER_BYTES + 8 * count, SPINE_PIECE):
                spine = crc32(whole[first : min(first + SPINE_PIECE, HEADER_BYTES + 8 * count)], spine)
        return Cover(count, end, heap, spine)

    def check(self, last: int) -> None:
        """Compare the frames before `last` with the checksums computed earlier. If they differ, set `problem`."""
        while len(self._covers) > 1 and self._covers[0].frames < last:
            before = self._covers.popleft()
            after = self._covers[0]
            if self._covered_from(before, after.frames, after.end) != after:
                self.problem = self._altered(before.frames, after.frames)

    def _altered(self, first: int, last: int) -> str:
        events = f"{event_id(self.writer, self.base + first)} to {event_id(self.writer, self.base + last - 1)}"
        return f"frames {first:,} to {last - 1:,} do not match their checksum; compare the events {events} with a copy"

    def sync(self) -> None:
        """Sync every committed frame to disk, together with their checksums.

        Raises OSError. After a failed sync, the system may discard the data and report success for the next sync.
        Therefore all later syncs of this segment fail, too.
        """
        count = self.count_committed()
        if self.descriptor < 0 or count == self.synced:
            return
        if self.sync_failure is not None:
            raise OSError(self.sync_failure.errno, f"an earlier sync failed: {self.sync_failure.strerror}")
        is_paced = monotonic() - self._synced_at > PACE_S
        end = self.spine[count - 1] & END_MASK
        start = self.spine[self.synced - 1] & END_MASK if self.synced else self.heap_at
        self.cover(count)
        full = start - start % mmap.PAGESIZE, end - end % mmap.PAGESIZE  # pages that are complete
        if self._is_mapped and full[0] < full[1]:
            # Unmap complete pages together: otherwise each is unmapped from every core separately before it is written.
            # They are mapped again when they are read.
            self.area.madvise(mmap.MADV_DONTNEED, full[0], full[1] - full[0])
        try:
            if not self.synced and self.path is not None:
                sync_folder(self.path.parent)
            sync(self.descriptor)
        except OSError as error:
            if not isinstance(error, FileNotFoundError):  # the file was removed, which every later call notices
                self.sync_failure = error
            raise
        self.synced = count
        if is_paced and self._is_mapped:
            self._prepare_again(start)
        self._synced_at = monotonic()

    def recover(self) -> None:
        """Count the frames committed before a crash, and note visible damage in `problem`.

        A killed process leaves complete frames. Frames damaged by power loss are detected when they are read; then
        `cut` is called.
        """
        ends = [self.heap_at, *self._halves[_LOW::2].tolist()]
        self.count = (ends.index(0) if 0 in ends else len(ends)) - 1
        is_torn = any(self.spine[self.count :])
        del ends[self.count + 1 :]
        problems = ["its header is damaged"] if self._is_header_damaged else []
        if ends != sorted(ends) or ends[-1] > self.size_bytes:
            outside = (i for i, (start, end) in enumerate(pairwise(ends)) if not start < end <= self.size_bytes)
            self.count = next(outside, self.count)
            is_torn = True
        if is_torn:
            problems.append(
                f"frame {self.count} is damaged: it ends outside of the segment; no frame from there on is stored"
            )
        self.folded = min(self.folded, self.count)
        if difference := self._difference():
            problems.append(difference)
        self.problem = "; ".join(problems) or None

    def _difference(self) -> str | None:
        """Describe how the frames differ from the checksums in the header; None if they match."""
        before = Cover(0, self.heap_at)
        for cover in read_covers(self.area[:HEADER_BYTES], self.version):
            if cover.frames > self.count:
                lost = cover.frames - max(before.frames, self.count)
                return f"its last {lost:,} frames are missing; power loss or damage removed them"
            after = self._covered_from(before, cover.frames, min(cover.end, self.size_bytes))
            if cover != (after if cover.spine is not None else after._replace(spine=None)):
                return self._altered(before.frames, cover.frames)
            before = after
        return None

    def last_stored(self) -> EventId | None:
        """The id of the last event that counts as stored, according to the header; None if no event does."""
        scopes = self.scopes(0, self.folded)
        last = next((index for index in range(len(scopes) - 1, -1, -1) if scopes[index]), None)
        return None if last is None else event_id(self.writer, self.base + last)

    def cut(self) -> str:
        """Drop the unreadable frames at the end of the segment, and return a description of all damage.

        Call it only if at least one frame is unreadable.
        """
        damaged: dict[int, Exception] = {}
        for index in range(self.folded, self.count):
            try:
                self.read(index, index + 1)
            except UNREADABLE as error:
                damaged[index] = error
        last, first = self.count, next(iter(damaged))
        while last - 1 in damaged:
            last -= 1
        self.count, torn = last, self.count - last
        problem = f"frame {first} is damaged: {damaged[first]}"
        if inside := len(damaged) - torn:
            problem += f"; events named {REFUSED} replace {inside:,} damaged frames and hold their bytes"
        return f"{problem}; the last {torn:,} frames are damaged and not stored" if torn else problem

    def close(self) -> None:
        """Close the file. Its memory stays mapped until the last reader has finished."""
        if self.descriptor >= 0:
            os.close(self.descriptor)
            self.descriptor = -1

    def remove(self) -> None:
        """Remove the file, or rename it if it is damaged. If that fails, a later process removes it."""
        self.close()
        if self.path is not None:
            with suppress(OSError):
                if self.problem is None:
                    self.path.unlink(missing_ok=True)
                else:
                    self.path.rename(self.path.with_suffix(SUFFIX + DAMAGED))


class Batch(NamedTuple):
    """A batch of events for the store. After it is stored, `reached` frames of the segment are stored."""

    segment: Segment
    events: list[Event]
    reached: int


class Stretch(NamedTuple):
    """A range of consecutive frames in a segment."""

    segment: Segment
    first: int
    last: int  # exclusive


def make_segment(
    folder: Path | None, *, writer: WriterId, base: int, capacity: int, heap_bytes: int, is_mapped: bool = True
) -> Segment:
    """Create a segment file, or a segment in memory if `folder` is None. A file gets its name only when it is complete.

    If `is_mapped`, its space is reserved now and `emit` writes through the mapping; otherwise it writes to the file.
    Raises StoreFull if the disk is full, and StoreUnavailable if the file cannot be created.
    """
    size = HEADER_BYTES + 8 * capacity + heap_bytes
    page = identity_page(capacity, base, writer)
    identity = read_identity(page.ljust(HEADER_BYTES, b"\0"), base=base)
    if folder is None:
        area = mmap.mmap(-1, size)
        area[: len(page)] = page
        return Segment(area, -1, None, identity=identity, is_mapped=True)
    path = folder / f"{base:016x}{SUFFIX}"
    unnamed = path.with_suffix(UNNAMED)
    try:
        unnamed.unlink(missing_ok=True)  # empty, from an interrupted attempt
        descriptor = os.open(unnamed, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            area = _map(descriptor, size, zeros=size - heap_bytes if is_mapped else 0)
            write_at(descriptor, page, 0)
            segment = Segment(area, descriptor, path, identity=identity, is_mapped=is_mapped)
            if not is_mapped:
                segment.write_through(SegmentFile(descriptor, path, size))
            unnamed.rename(path)
        except BaseException:
            os.close(descriptor)
            unnamed.unlink(missing_ok=True)
            raise
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            reason = f"no room for a segment of {size:,} bytes in {folder}: {error.strerror}; free some space"
            raise StoreFull(reason) from error
        reason = f"cannot create a segment in {folder}: {error.strerror}; the event was not recorded"
        raise StoreUnavailable(reason) from error
    area.madvise(mmap.MADV_RANDOM)  # no read-ahead: pages are written before they are read
    return segment


def _map(descriptor: int, size: int, *, zeros: int) -> mmap.mmap:
    """Map a new file of this size into memory.

    If `zeros` is 0, the mapping can only be read. Otherwise it can be written, its space on the disk is reserved, and
    its first `zeros` bytes are written with zeros, so that their pages exist before they are used.
    """
    if not zeros:
        os.ftruncate(descriptor, size)
        return mmap.mmap(descriptor, size, access=mmap.ACCESS_READ)
    os.posix_fallocate(descriptor, 0, size)  # a full disk is an error here, not a bus error inside emit
    area = mmap.mmap(descriptor, size)
    write_at(descriptor, _ZEROS[:zeros], 0)  # allocate its pages before they are used
    return area


def load_segment(path: Path) -> Segment | None:
    """Open a segment that another process wrote, for reading. Returns None if a power loss left it empty.

    Raises StoreUnavailable for a segment of another version, and OSError or ValueError if the file is not a segment.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        if (size := os.fstat(descriptor).st_size) < HEADER_BYTES:
            raise ValueError(f"it has {size:,} bytes, and a segment has at least {HEADER_BYTES:,}")
        area = mmap.mmap(descriptor, 0, access=mmap.ACCESS_READ)
        if not any(area[: HEADER_BYTES + 8]):  # no frame was committed either
            return None
        try:
            identity = read_identity(area[:HEADER_BYTES], base=int(path.stem, 16))
        except UnknownVersion as error:
            raise StoreUnavailable(f"segment {path} {error}") from error
        if HEADER_BYTES + 8 * identity.capacity > len(area):
            raise ValueError(f"its header declares {identity.capacity:,} frames, and it is too short for them")
        return Segment(area, -1, path, identity=identity, is_mapped=False)
    finally:
        os.close(descriptor)  # the mapped memory stays readable

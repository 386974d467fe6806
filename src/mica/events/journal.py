"""The journal: segment files that hold emitted events until they are folded into the store in batches.

A writer owns a folder of segments. `emit` encodes an event as a frame, copies the frame into the segment's heap and
stores one word in the segment's spine (its index). Storing the word commits the event: from then on its bytes are in
the kernel's page cache and survive `kill -9`. `sync` writes them to disk once for all waiting callers; after it the
events survive power loss.

Folding reads committed frames back as events, appends them to the store, and removes a segment when all of it is
stored. The append is idempotent, so a fold may be repeated, even by the next process that opens the space after a kill.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from mica.errors import Backlogged, StoreUnavailable
from mica.events.context import Here
from mica.events.emitter import Emit, make_emitter
from mica.events.leftovers import WriterFolder
from mica.events.segment import UNREADABLE, Batch, Segment, Stretch, make_segment
from mica.model.event import Clock, new_writer

EVENTS_FIRST, EVENTS_MAX = 4_096, 32_768  # of a segment; a busy process fills the largest in about a second
HEAP_BYTES_FIRST, HEAP_BYTES_MAX = 2**20, 2**23
GROWTH = 4  # factor from one segment to the next
JOURNAL_BYTES_MAX = 2**31  # of all segments of a writer, about eight million events: beyond that the store is stuck


class Journal:
    """The segments of one writer (one process). Any thread may emit; only one at a time may read batches."""

    emit: Emit

    def __init__(
        self, folder: Path | None, *, space: str, base: Here, clock: Clock | None, wake: Callable[[], None]
    ) -> None:
        self._folder = folder
        self._space = space
        self._base = base
        self._clock = clock
        self.wake = wake  # called for the first event after an idle period
        self._is_closed = False
        self.is_forked = False  # True in a forked child of the process that made this journal
        self._start()
        own = make_emitter(self, space=space, base_here=base, clock=clock)
        self.emit, self._restart, self._seal, self._set_idle, self._set_busy = own
        _living.add(self)

    def _start(self) -> None:
        self.writer = new_writer()
        self._syncing = threading.Lock()
        self._segments: list[Segment] = []
        self.written: Segment | None = None  # the segment in use, set by `emit`
        self._home: WriterFolder | None = None
        self._is_mapped = True  # segments are written through their mapping
        self.damaged: list[str] = []  # descriptions of damaged segments
        self._inners: list[Journal] = []  # for events emitted during an emit; the first is used

    @property
    def size_bytes(self) -> int:
        """The total size of the segments with events that are not stored yet."""
        return sum(segment.size_bytes for segment in self._segments if segment.folded < segment.count_committed())

    def unfolded(self) -> list[Stretch]:
        """The ranges of frames (encoded events and contexts) that are not in the store yet."""
        segments = [Stretch(each, each.folded, each.count_committed()) for each in list(self._segments)]
        own = [each for each in segments if each.first < each.last]
        return own + [each for inner in self._inners for each in inner.unfolded()]

    @property
    def waiting(self) -> int:
        """The number of frames (events and contexts) that are not in the store yet."""
        return sum(last - first for _, first, last in self.unfolded())

    @property
    def waiting_events(self) -> int:
        """The number of events that are not in the store yet; frames of contexts are not counted."""
        return sum(segment.events_in(first, last) for segment, first, last in self.unfolded())

    def sync(self) -> None:
        """Write all events emitted before to disk, so that they survive power loss. Concurrent callers share one sync.

        Raises StoreUnavailable if the disk fails or the folder was removed. The events are then safe only after they
        are stored.
        """
        with self._syncing:
            failures = [failure for segment in list(self._segments) if (failure := self._sync_failure(segment))]
        if failures:
            raise StoreUnavailable(
                f"events cannot be synced to disk in {self._folder} ({failures[0].strerror}); they are safe once "
                "they are stored, which every read does first"
            ) from failures[0]
        for inner in self._inners:
            inner.sync()

    def _sync_failure(self, segment: Segment) -> OSError | None:
        """Sync a segment. Returns the error, unless all events of the segment are in the store."""
        try:
            if segment.path is not None and segment.folded < segment.count_committed():
                segment.path.stat()  # a removed file can still be synced, but is lost
                if self._home is not None:
                    self._home.sync()
            segment.sync()
        except OSError as error:
            if segment is self.written and segment.sync_failure is not None:
                self._seal()  # later events are written to another segment
            return error if segment.folded < segment.count_committed() else None
        return None

    def batch(self, limit: int) -> Batch | None:
        """The next batch of unstored events, oldest first, read from at most `limit` frames (records in a segment).

        Returns None if all events are stored.
        """
        self._set_idle()  # first, so that a later event wakes the fold again
        for segment in list(self._segments):
            if segment.folded < (count := segment.count_committed()):
                self._set_busy()
                self._check(segment, min(count, segment.folded + limit))
                try:
                    return segment.batch(limit, count)
                except UNREADABLE:
                    return segment.salvage(limit, count)
            self._drop(segment, patient=False)
        return next((batch for inner in self._inners if (batch := inner.batch(limit)) is not None), None)

    def _check(self, segment: Segment, last: int) -> None:
        """Compare the frames before `last` with their checksums, and report damage. Then add missing checksums.

        Checksums are added for the frames before `last`, and for one other segment, which is no longer written.
        """
        known = segment.problem
        segment.check(last)
        if segment.problem != known:
            self.damaged.append(f"{segment.path}: {segment.problem}")
        with suppress(OSError):  # frames without a checksum can be read, too
            segment.cover(last)
            for other in list(self._segments):
                if other is not self.written and other.covered < (count := other.count_committed()):
                    other.cover(count)
                    break

    def stored(self, batch: Batch) -> None:
        """Mark the events of a batch as stored."""
        batch.segment.mark_folded(batch.reached)

    def sweep(self) -> None:
        """Remove every segment that is stored completely, except the one in use. May wait for a running sync."""
        for segment in list(self._segments):
            self._drop(segment, patient=True)
        for inner in self._inners:
            inner.sweep()

    def _drop(self, segment: Segment, *, patient: bool) -> None:
        """Remove a segment that is stored completely and not in use. Unless `patient`, do nothing during a sync."""
        if not self._syncing.acquire(blocking=patient):
            return
        try:
            # Checked again: an event may have been written before the next segment took its place.
            # An empty segment may become the next one.
            is_done = segment is not self.written and 0 < segment.folded == segment.count_committed()
            if is_done and segment in self._segments:
                self._segments.remove(segment)
                segment.remove()
        finally:
            self._syncing.release()

    def leave(self) -> None:
        """Write later events into a new segment, so that the present one can be removed once its events are stored."""
        self._seal()
        for inner in self._inners:
            inner.leave()

    def close(self) -> None:
        """Release all files. Events that are not stored stay on disk until the space is opened again."""
        self._is_closed = True
        self._restart()
        for inner in self._inners:
            inner.close()
        with self._syncing:
            for segment in self._segments:
                if segment.folded == (count := segment.count_committed()):
                    segment.remove()
                    continue
                with suppress(OSError):
                    segment.cover(count)
                segment.close()
            self._segments = []
            if self._home is not None:
                self._home.release()
                self._home = None
        _living.discard(self)

    def within(self) -> Journal:
        """A separate journal for events that are emitted during an `emit`, for example by a signal handler."""
        if not self._inners:
            inner = Journal(self._folder, space=self._space, base=self._base, clock=self._clock, wake=self.wake)
            inner.damaged = self.damaged
            self._inners.append(inner)  # appended, because a signal handler may have made and used another meanwhile
        return self._inners[0]

    def roll(self, frame_bytes: int, base: int) -> Segment:
        """Make a new segment with room for a frame of this size, starting at sequence number `base`.

        Events may still be written to the previous segment until `emit` switches to the new one. Raises
        StoreUnavailable if the journal is closed or the segment cannot be created, StoreFull if the disk is full, and
        Backlogged if too many events wait for the store.
        """
        if self._is_closed:
            raise StoreUnavailable("this memory is closed; open it again")
        if self.size_bytes > JOURNAL_BYTES_MAX:
            raise Backlogged(
                f"{self.waiting_events:,} events wait for the store and take {self.size_bytes:,} bytes in "
                f"{self._folder}; the last one was rejected: is the store reachable? Run `mica doctor`"
            )
        if (
            self._home is not None and not self._home.path.is_dir()
        ):  # removed by another process; its content is still mapped
            self._home.forget()
            self._home = None
        if self._folder is not None and self._home is None:
            self._home = WriterFolder.make(self._folder / self.writer)
            self._is_mapped = self._home.has_reserved_space
        before = self._segments[-1] if self._segments else None
        if before is not None and before.base == base:  # empty, from an interrupted attempt
            self._segments.remove(before)
            before.remove()
            before = None
        capacity = EVENTS_FIRST if before is None else min(EVENTS_MAX, before.capacity * GROWTH)
        heap = (
            HEAP_BYTES_FIRST if before is None else min(HEAP_BYTES_MAX, (before.size_bytes - before.heap_at) * GROWTH)
        )
        folder = None if self._home is None else self._home.path
        room = max(heap, frame_bytes + HEAP_BYTES_FIRST)
        segment = make_segment(
            folder, writer=self.writer, base=base, capacity=capacity, heap_bytes=room, is_mapped=self._is_mapped
        )
        self._segments.append(segment)
        return segment

    def after_fork(self) -> None:
        """Continue as a new writer in a forked child; the existing segments belong to the parent process."""
        if self._home is not None:
            self._home.forget()
        self.wake = _do_nothing
        self.is_forked = True
        self._start()
        self._restart()


def _do_nothing() -> None:
    """The `wake` callback of a forked child. The child has no fold, so a later process stores its events."""


_living: weakref.WeakSet[Journal] = weakref.WeakSet()


def _after_fork() -> None:
    for journal in list(_living):
        journal.after_fork()


os.register_at_fork(after_in_child=_after_fork)

"""Events on their way to the store: on disk when `emit` returns, folded into the store in batches, never dropped.

A writer owns a folder of segments. `emit` encodes once, copies the frame into the heap and stores one word in the
spine. The word is the commit: before it nothing has happened, after it the bytes are in the kernel's page cache and
survive `kill -9`. `sync` calls `fdatasync` for all who wait at once; after it they survive power loss. Folding reads
committed frames back as events for the store to append, and removes a segment when all of it is there. The append is
idempotent, so a fold may be repeated at will: also by the next process that opens the space, after this one was killed.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable
from pathlib import Path

from mica.errors import Backlogged, StoreUnavailable
from mica.events.context import Here
from mica.events.emitter import Emit, emitter
from mica.events.leftovers import WriterFolder
from mica.events.segment import UNREADABLE, Batch, Segment, Stretch, make_segment
from mica.model.event import Clock, new_writer

EVENTS_FIRST, EVENTS_MAX = 4_096, 32_768  # of a segment: quiet processes stay small, busy ones roll once a second
HEAP_BYTES_FIRST, HEAP_BYTES_MAX = 2**20, 2**23
GROWTH = 4  # factor from one segment to the next
JOURNAL_BYTES_MAX = 2**31  # of all segments of a writer, some eight million events: beyond that the store is stuck


class Journal:
    """One writer: the segments of one process life. Any thread may emit; one at a time may fold."""

    emit: Emit

    def __init__(
        self, folder: Path | None, *, space: str, base: Here, clock: Clock | None, wake: Callable[[], None]
    ) -> None:
        self._folder = folder
        self._space = space
        self._base = base
        self._clock = clock
        self.wake = wake  # called when events wait after a time without any
        self._is_closed = False
        self.is_forked = False  # in a child of the process that it was made in
        self._start()
        own = emitter(self, space=space, base_here=base, clock=clock)
        self.emit, self._restart, self._seal, self._rest, self._stir = own
        _living.add(self)

    def _start(self) -> None:
        self.writer = new_writer()
        self._syncing = threading.Lock()
        self._segments: list[Segment] = []
        self.written: Segment | None = None  # the segment in use, set by `emit`
        self._home: WriterFolder | None = None
        self._inners: list[Journal] = []  # for events emitted during an emit; the first is used

    @property
    def size_bytes(self) -> int:
        """The bytes of the segments that hold events for the store."""
        return sum(segment.size_bytes for segment in self._segments if segment.folded < segment.refreshed())

    def unfolded(self) -> list[Stretch]:
        """The frames that are not in the store yet."""
        segments = [Stretch(each, each.folded, each.refreshed()) for each in list(self._segments)]
        own = [each for each in segments if each.first < each.last]
        return own + [each for inner in self._inners for each in inner.unfolded()]

    @property
    def waiting(self) -> int:
        """The number of frames that are not folded yet."""
        return sum(last - first for _, first, last in self.unfolded())

    @property
    def waiting_events(self) -> int:
        """The number of events that are not folded yet; frames of contexts are not counted."""
        return sum(segment.events_in(first, last) for segment, first, last in self.unfolded())

    def sync(self) -> None:
        """Return when everything emitted before survives power loss. Concurrent callers share one sync.

        Raises StoreUnavailable when the disk does not take it, or the folder is gone: then only storing makes it safe.
        """
        with self._syncing:
            for segment in list(self._segments):
                try:
                    if segment.path is not None and segment.folded < segment.refreshed():
                        segment.path.stat()  # a removed file can still be synced, but is lost
                    segment.sync()
                except OSError as error:
                    if segment.folded == segment.refreshed():
                        continue  # all of it is in the store
                    raise StoreUnavailable(
                        f"what was emitted cannot be brought to the disk in {self._folder} ({error.strerror}); it is "
                        "safe when it is stored, as every read does first"
                    ) from error
        for inner in self._inners:
            inner.sync()

    def batch(self, limit: int) -> Batch | None:
        """The next batch of events for the store, oldest first; None if nothing waits."""
        self._rest()  # first, so that a later event wakes the fold again
        for segment in list(self._segments):
            if segment.folded < (count := segment.refreshed()):
                self._stir()
                try:
                    return segment.batch(limit, count)
                except UNREADABLE:
                    return segment.salvaged(limit, count)
            self._drop(segment, patient=False)
        return next((found for inner in self._inners if (found := inner.batch(limit)) is not None), None)

    def stored(self, batch: Batch) -> None:
        """Note that the events of a batch are stored."""
        batch.segment.mark_folded(batch.reached)

    def sweep(self) -> None:
        """Remove every segment that is folded completely; may wait for a sync."""
        for segment in list(self._segments):
            self._drop(segment, patient=True)
        for inner in self._inners:
            inner.sweep()

    def _drop(self, segment: Segment, *, patient: bool) -> None:
        """Remove a segment that is folded completely, unless it is in use."""
        if not self._syncing.acquire(blocking=patient):
            return
        try:
            # Checked again: an event may have been written before the next segment took its place.
            # An empty segment may become the next one.
            is_done = segment is not self.written and 0 < segment.folded == segment.refreshed()
            if is_done and segment in self._segments:
                self._segments.remove(segment)
                segment.remove()
        finally:
            self._syncing.release()

    def leave(self) -> None:
        """Continue in a new segment, so that the earlier ones are removed as soon as they are folded."""
        self._seal()
        for inner in self._inners:
            inner.leave()

    def close(self) -> None:
        """Release all files; events that are not folded stay on disk until the space is opened again."""
        self._is_closed = True
        self._restart()
        for inner in self._inners:
            inner.close()
        with self._syncing:
            for segment in self._segments:
                if segment.folded == segment.refreshed():
                    segment.remove()
                else:
                    segment.close()
            self._segments = []
            if self._home is not None:
                self._home.release()
                self._home = None
        _living.discard(self)

    def within(self) -> Journal:
        if not self._inners:
            made = Journal(self._folder, space=self._space, base=self._base, clock=self._clock, wake=self.wake)
            self._inners.append(made)  # appended, because a signal handler may have made and used another meanwhile
        return self._inners[0]

    def roll(self, frame_bytes: int, base: int) -> Segment:
        """A new segment with room for this frame. Until `emit` switches to it, the previous one may be written."""
        if self._is_closed:
            raise StoreUnavailable("this memory is closed; open it again")
        if self.size_bytes > JOURNAL_BYTES_MAX:
            raise Backlogged(
                f"{self.waiting_events:,} events wait for the store and take {self.size_bytes:,} bytes in "
                f"{self._folder}; the last one was not taken: is the store reachable? `mica doctor` tells"
            )
        if (
            self._home is not None and not self._home.path.is_dir()
        ):  # removed by another process; its content is still mapped
            self._home.forget()
            self._home = None
        if self._folder is not None and self._home is None:
            self._home = WriterFolder.make(self._folder / self.writer)
        before = self._segments[-1] if self._segments else None
        if before is not None and before.base == base:  # left by an interrupted attempt: it is empty
            self._segments.remove(before)
            before.remove()
            before = None
        capacity = EVENTS_FIRST if before is None else min(EVENTS_MAX, before.capacity * GROWTH)
        heap = (
            HEAP_BYTES_FIRST if before is None else min(HEAP_BYTES_MAX, (before.size_bytes - before.heap_at) * GROWTH)
        )
        folder = None if self._home is None else self._home.path
        room = max(heap, frame_bytes + HEAP_BYTES_FIRST)
        segment = make_segment(folder, writer=self.writer, base=base, capacity=capacity, heap_bytes=room)
        self._segments.append(segment)
        return segment

    def after_fork(self) -> None:
        """After a fork, in the child: continue as another writer; the segments belong to the parent."""
        if self._home is not None:
            self._home.forget()
        self.wake = _nobody
        self.is_forked = True
        self._start()
        self._restart()


def _nobody() -> None:
    """The fold of a forked child does nothing: the next process that opens the space stores the events."""


_living: weakref.WeakSet[Journal] = weakref.WeakSet()


def _after_fork() -> None:
    for journal in list(_living):
        journal.after_fork()


os.register_at_fork(after_in_child=_after_fork)

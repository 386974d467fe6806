"""Events on their way to the store: on disk when `emit` returns, folded into the store in batches, never dropped.

A writer owns a folder of segments. `emit` encodes once, copies the frame into the heap and stores one word in the
spine. The word is the commit: before it nothing has happened, after it the bytes are in the kernel's page cache and
survive `kill -9`. `sync` calls `fdatasync` for all who wait at once; after it they survive power loss. Folding reads
committed frames back as events for the store to append, and removes a segment when all of it is there. The append is
idempotent, so a fold may be repeated at will: also by the next process that opens the space, after this one was killed.
"""

from __future__ import annotations

import errno
import fcntl
import mmap
import os
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from types import CodeType, FrameType
from typing import Protocol

from mica.errors import Backlogged, InvalidEvent, StoreUnavailable
from mica.model import (
    MARK,
    ORIGINS,
    Clock,
    Context,
    Event,
    Origin,
    Ref,
    WriterId,
    check_mark,
    check_name,
    check_time,
    decode_data,
    encode_data,
    microseconds,
    new_writer,
    origin_number,
)
from mica.observe.context import Here, current_frame
from mica.observe.segment import END_MASK, SCOPE_SHIFT, SUFFIX, Segment, encode_frame, load_segment, make_segment

EVENTS_FIRST, EVENTS_MAX = 1_024, 65_536  # of a segment: quiet processes stay small, busy ones roll once a second
HEAP_BYTES_FIRST, HEAP_BYTES_MAX = 2**18, 2**24
JOURNAL_BYTES_MAX = 2**30  # of all segments of a writer, some five million events: beyond that the store is stuck
NAMES_MAX = 10_000  # remembered as checked; a name is a kind of event, there are dozens
LOCK_PATIENCE_S = 1.0  # a lock is held for a microsecond, or for the making of a segment
LOCK = "lock"
DAMAGED = ".damaged"
FLOAT = b"\xcb"  # MessagePack's mark of a float: only then can there be a number that JSON cannot hold
DATA_AT = 10  # behind the time, whose bytes may look like the mark
NOTHING: Mapping[str, object] = {}
AGENT_NAME: Origin = "agent"
AGENT = ORIGINS.index(AGENT_NAME) << 1


class Emit(Protocol):
    """Records that something happened."""

    def __call__(
        self,
        name: str,
        data: Mapping[str, object] | None = None,
        *,
        parent: Event | Ref | None = None,
        context: Context | Here | None = None,
        origin: Origin = "agent",
        error: bool = False,
        at: datetime | None = None,
    ) -> Ref: ...


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
        self._wake = wake  # called when something waits for the store that had nothing to do before
        self._is_closed = False
        self._idle = [True]  # not empty: nothing waits, the next event wakes the fold
        self._start()
        self.emit, self._restart, self._alone = self._emitter()
        _living.add(self)

    def _start(self) -> None:
        self.writer = new_writer()
        self._syncing = threading.Lock()
        self._segments: list[Segment] = []
        self._left: list[Segment] = []  # segments that nobody writes any more: removed as soon as they are folded
        self._home: _Home | None = None
        self._inner: Journal | None = None

    def _emitter(self) -> tuple[Emit, Callable[[], None], Callable[[Callable[[], None]], None]]:
        """`emit`, with everything it needs at hand: it is the hot path, and each lookup would cost a tenth of it.

        The second function makes it begin anew, with a segment of its own. The third calls a function while nobody
        emits, and lets the next event begin a new segment.
        """
        lock = threading.Lock()
        try_lock, unlock = lock.acquire, lock.release
        space, base_here, clock, writer = self._space, self._base, self._clock, self.writer
        now_ns, encode, frames, idle = time.time_ns, encode_frame, current_frame, self._idle
        known_names: set[str] = set()
        scopes: dict[int, int] = {}  # id of a context: its number in the segment, shifted
        numbers: dict[Context, int] = {}
        kept: list[Context] = []  # keeps those ids from being used again
        area: mmap.mmap | bytearray = bytearray()
        spine: memoryview | list[int] = []
        position = limit = index = capacity = base = 0

        # Callers name the arguments, as `Emit` asks; here they have places too, because filling in defaults that have
        # none costs a tenth of the whole.
        def emit(  # noqa: PLR0917
            name: str,
            data: Mapping[str, object] | None = None,
            parent: Event | Ref | None = None,
            context: Context | Here | None = None,
            origin: Origin = "agent",
            error: bool = False,  # noqa: FBT001, FBT002
            at: datetime | None = None,
        ) -> Ref:
            nonlocal position, index
            if context is None:
                frame = frames()
                while frame is not None and frame.space != space:
                    frame = frame.outer
                here = base_here if frame is None else frame.here
                scope_context = here.context
                if parent is None:
                    parent = here.parent
            elif isinstance(context, Context):
                scope_context = context
            else:
                scope_context, parent = context.context, context.parent if parent is None else parent
            if type(data) is not dict:
                data = NOTHING if data is None else decode_data(encode_data(name, data))
            if name not in known_names:
                check_name(name)
                if name == MARK:
                    check_mark(data)
                elif len(known_names) < NAMES_MAX:
                    known_names.add(name)
            flags = AGENT if origin is AGENT_NAME else origin_number(name, origin) << 1
            if error:
                flags |= 1
            if at is None:
                at_us = now_ns() // 1_000 if clock is None else microseconds(clock())
            else:
                check_time(name, at)
                at_us = microseconds(at)
            lineage: tuple[object, ...] = ()
            root_writer: WriterId | None = None
            root = depth = 0
            try:
                if parent is None:
                    body = encode((at_us, name, flags, data))
                else:
                    above = parent.ref
                    root_writer, root = above.root_writer, above.root_sequence
                    if root_writer is None:
                        root_writer, root = above.writer, above.sequence
                    depth = above.depth + 1
                    lineage = depth, above.sequence, root
                    if not above.writer == writer == root_writer:
                        lineage = depth, above.sequence, root, above.writer, root_writer
                    body = encode((at_us, name, flags, data, *lineage))
                if body.find(FLOAT, DATA_AT) >= 0:
                    encode_data(name, data)  # a number that JSON cannot hold is refused now
            except AttributeError as problem:
                reason = f"parent {parent!r} of {name!r} is no event; give what emit, mark or event returned"
                raise InvalidEvent(reason) from problem
            except (TypeError, ValueError, OverflowError, RecursionError):
                # Either it is refused with the reason, or JSON can hold it in its way: keys as text, large integers.
                body = encode((at_us, name, flags, encode_data(name, data), *lineage))
            if not try_lock(False) and (inner := waited()) is not None:  # noqa: FBT003 - a keyword costs as much as the lock
                where = Here(scope_context, None if parent is None else parent.ref)
                return inner.emit(name, data, context=where, origin=origin, error=error, at=at)
            try:
                scope = scopes.get(id(scope_context)) or scope_of(scope_context)
                end = position + len(body)
                area[position:end] = body
                spine[index] = scope | end  # the commit: one aligned word
                position = end
                sequence = base + index
                index += 1
            except IndexError:  # the heap or the spine is full
                roll(len(body) + len(encode((1, scope_context))))
                write(body, scope_of(scope_context))
                sequence = base + index - 1
            except BaseException:
                settle()
                raise
            finally:
                unlock()
            if idle:
                idle.clear()
                self._wake()
            return Ref(writer, sequence, depth, root_writer, root)

        def write(body: bytes, scope: int) -> None:
            nonlocal position, index
            end = position + len(body)
            area[position:end] = body
            spine[index] = scope | end
            position = end
            index += 1

        def scope_of(context: Context) -> int:
            number = numbers.get(context)
            if number is None:
                context.check()
                body = encode_frame((len(numbers) + 1, context))
                if index >= capacity or position + len(body) > limit:
                    roll(len(body))
                    body = encode_frame((1, context))
                number = len(numbers) + 1
                write(body, 0)
                numbers[context] = number
            scopes[id(context)] = number << SCOPE_SHIFT
            kept.append(context)
            return number << SCOPE_SHIFT

        def roll(frame_bytes: int) -> None:
            nonlocal area, spine, position, limit, index, capacity, base
            segment = self._roll(frame_bytes, base + index if capacity else 1)
            scopes.clear()
            numbers.clear()
            kept.clear()
            area, spine = segment.area, segment.spine
            position, limit, index = segment.heap_at, segment.size_bytes, 0
            capacity, base = segment.capacity, segment.base

        def settle() -> None:
            """After an interruption: what the spine says stands, a copy without its word is overwritten."""
            nonlocal position, index
            while index < capacity and (word := spine[index]):
                index += 1
                position = word & END_MASK

        def waited() -> Journal | None:
            """The lock is taken. Inside of `emit` itself, as a signal handler is, another journal takes the event."""
            inside = sys._getframe(2)
            while inside is not None:
                if inside.f_code is emit.__code__:
                    return self._within()
                inside = inside.f_back  # type: ignore[assignment]  # None ends the walk
            me = threading.get_ident()
            while not try_lock(timeout=LOCK_PATIENCE_S):
                others = [frame for thread, frame in sys._current_frames().items() if thread != me]
                if not any(_is_inside(frame, emit.__code__) for frame in others):
                    unlock()  # an interrupt hit between taking the lock and using it: nobody holds it
            return None

        def alone(call: Callable[[], None]) -> None:
            nonlocal area, spine, capacity
            if not try_lock(False):  # noqa: FBT003 - as in emit
                waited()
            try:
                if index:
                    area, spine, capacity = bytearray(), [], index  # it looks full: the next event rolls
                call()
            finally:
                unlock()

        def restart() -> None:
            nonlocal try_lock, unlock, writer, area, spine, position, limit, index, capacity, base
            lock = threading.Lock()
            try_lock, unlock, writer = lock.acquire, lock.release, self.writer
            area, spine = bytearray(), []
            position = limit = index = capacity = base = 0

        return emit, restart, alone

    @property
    def size_bytes(self) -> int:
        """What the segments take that hold something for the store."""
        return sum(segment.size_bytes for segment in self._segments if segment.folded < segment.refreshed())

    @property
    def waiting(self) -> int:
        """How many frames are not folded yet."""
        own = sum(segment.refreshed() - segment.folded for segment in list(self._segments))
        return own + (self._inner.waiting if self._inner else 0)

    def sync(self) -> None:
        """Return when everything emitted before survives power loss. Those who wait at once share one sync."""
        with self._syncing:
            for segment in list(self._segments):
                segment.sync()
        if self._inner is not None:
            self._inner.sync()

    def batches(self, limit: int) -> Iterator[list[Event]]:
        """What waits for the store, oldest first, some at a time. Asking for the next says that the last is stored."""
        while True:
            self._idle[:] = [True]  # before looking: what comes after this look wakes the fold again
            segments = [segment for segment in self._segments if segment.folded < segment.refreshed()]
            if not segments:
                if self._left:
                    self._alone(self._sweep)
                break
            self._idle.clear()
            for segment in segments:
                yield from self._fold(segment, limit)
        if self._inner is not None:
            yield from self._inner.batches(limit)

    def _fold(self, segment: Segment, limit: int) -> Iterator[list[Event]]:
        while segment.folded < segment.refreshed():
            events, reached = segment.events(limit)
            if events:
                yield events
            segment.mark_folded(reached)
        if segment is not self._segments[-1]:
            with self._syncing:
                self._segments.remove(segment)
                segment.remove()

    def leave(self) -> None:
        """Go on in a new segment, so that those before are removed as soon as they are folded."""
        self._alone(self._leave)
        if self._inner is not None:
            self._inner.leave()

    def _leave(self) -> None:
        self._left = list(self._segments)

    def _sweep(self) -> None:
        """Remove the segments that were left and hold nothing for the store any more."""
        with self._syncing:
            for segment in self._left:
                if segment in self._segments and segment.folded == segment.refreshed():
                    self._segments.remove(segment)
                    segment.remove()
            self._left = [segment for segment in self._left if segment in self._segments]

    def close(self) -> None:
        """Release everything; what is not folded stays on disk for the next who opens the space."""
        self._is_closed = True
        self._restart()
        if self._inner is not None:
            self._inner.close()
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

    def _within(self) -> Journal:
        if self._inner is None:
            self._inner = Journal(self._folder, space=self._space, base=self._base, clock=self._clock, wake=self._wake)
        return self._inner

    def _roll(self, frame_bytes: int, base: int) -> Segment:
        """Go on in a new segment that has room for this frame."""
        if self._is_closed:
            raise StoreUnavailable("this memory is closed; open it again")
        if self.size_bytes > JOURNAL_BYTES_MAX:
            raise Backlogged(
                f"{self.waiting:,} events wait for the store and take {self.size_bytes:,} bytes in {self._folder}; "
                "the last one was not taken: is the store reachable? `mica doctor` tells"
            )
        if self._folder is not None and self._home is None:
            self._home = _Home.make(self._folder / self.writer)
        before = self._segments[-1] if self._segments else None
        capacity = EVENTS_FIRST if before is None else min(EVENTS_MAX, before.capacity * 2)
        heap = HEAP_BYTES_FIRST if before is None else min(HEAP_BYTES_MAX, (before.size_bytes - before.heap_at) * 2)
        folder = None if self._home is None else self._home.path
        room = max(heap, frame_bytes + HEAP_BYTES_FIRST)
        segment = make_segment(folder, writer=self.writer, base=base, capacity=capacity, heap_bytes=room)
        self._segments.append(segment)
        return segment

    def after_fork(self) -> None:
        """In a child process: the parent's segments are the parent's; go on as another writer."""
        if self._home is not None:
            self._home.forget()
        self._wake = _nobody
        self._start()
        self._restart()


def _nobody() -> None:
    """The fold of a forked child: whoever opens the space next does it."""


def _is_inside(frame: FrameType | None, code: CodeType) -> bool:
    while frame is not None:
        if frame.f_code is code:
            return True
        frame = frame.f_back
    return False


class _Home:
    """The folder of a writer, held by a lock while the writer lives."""

    def __init__(self, path: Path, descriptor: int) -> None:
        self.path = path
        self._descriptor = descriptor

    @classmethod
    def make(cls, path: Path) -> _Home:
        """A new folder. It gets its name only when it is locked, so that nobody takes it for a dead writer's."""
        unnamed = path.with_name(f".{path.name}")
        try:
            unnamed.mkdir(mode=0o700, parents=True)
            descriptor = os.open(unnamed / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            unnamed.rename(path)
        except OSError as error:
            if error.errno in (errno.EEXIST, errno.ENOTEMPTY) and path.is_dir():
                reason = f"another process writes in {path}; two writers cannot share a folder"
            else:
                reason = f"cannot write in {path}: {error.strerror}; choose another place with MICA_HOME"
            raise StoreUnavailable(reason) from error
        return cls(path, descriptor)

    @classmethod
    def claim(cls, path: Path) -> _Home | None:
        """The folder of a writer that is gone; None while it lives, or when somebody else claims it."""
        try:
            descriptor = os.open(path / LOCK, os.O_RDWR | os.O_CLOEXEC)
        except OSError:
            return None
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(descriptor)
            return None
        return cls(path, descriptor)

    def release(self) -> None:
        """Let go; an empty folder is removed."""
        with suppress(OSError):
            if not [file for file in self.path.iterdir() if file.name != LOCK]:
                (self.path / LOCK).unlink()
                self.path.rmdir()
        os.close(self._descriptor)

    def forget(self) -> None:
        """In a forked child: the lock is the parent's."""
        os.close(self._descriptor)


class Leftover:
    """What a writer that is gone has left: read, folded and removed by whoever opens the space next."""

    def __init__(self, home: _Home) -> None:
        self._home = home
        self.damaged: list[str] = []
        self._segments: list[Segment] = []
        self._spoiled: set[Path] = set()  # kept under another name when all that can be read is stored
        for path in sorted(home.path.glob(f"*{SUFFIX}")):
            self._take(path)

    def _take(self, path: Path) -> None:
        try:
            segment = load_segment(path)
            problem = segment.recover() if segment is not None else None
        except StoreUnavailable as error:  # of a newer version: it waits for a newer mica
            self.damaged.append(str(error))
            return
        except (OSError, ValueError) as error:
            self.damaged.append(f"{path} cannot be read: {error}")
            path.rename(path.with_suffix(SUFFIX + DAMAGED))
            return
        if segment is None:
            path.unlink(missing_ok=True)
            return
        if problem is not None:
            self.damaged.append(f"{path}: {problem}")
            self._spoiled.add(path)
        self._segments.append(segment)

    @property
    def waiting(self) -> int:
        return sum(segment.count - segment.folded for segment in self._segments)

    def batches(self, limit: int) -> Iterator[list[Event]]:
        """All events, some at a time. Asking for the next says that the last is in the store."""
        for segment in self._segments:
            while segment.folded < segment.count:
                events, reached = segment.events(limit)
                if events:
                    yield events
                segment.mark_folded(reached)

    def close(self) -> None:
        """Remove what is folded; keep what is damaged under another name."""
        for segment in self._segments:
            path = segment.path
            if segment.folded < segment.count:
                segment.close()
            elif path is not None and path in self._spoiled:
                segment.close()
                path.rename(path.with_suffix(SUFFIX + DAMAGED))
            else:
                segment.remove()
        self._home.release()


def leftovers(folder: Path | None) -> Iterator[Leftover]:
    """What dead writers have left in a folder. Folders of living writers are left alone."""
    for path in sorted(folder.iterdir()) if folder is not None and folder.is_dir() else ():
        if not path.name.startswith(".") and (home := _Home.claim(path)) is not None:
            yield Leftover(home)


def has_others(folder: Path, *, own: str) -> bool:
    """Whether another writer has a folder here, alive or not."""
    try:
        return any(name != own and not name.startswith(".") for name in os.listdir(folder))  # noqa: PTH208 - every read
    except OSError:
        return False


def damaged_in(folder: Path | None) -> list[str]:
    """What lies in a folder under another name because it could not be read whole."""
    found = sorted(folder.rglob(f"*{SUFFIX}{DAMAGED}")) if folder is not None and folder.is_dir() else []
    return [f"{path} was damaged; what was whole in it is stored, look at it and remove it" for path in found]


def backlog(folder: Path | None) -> tuple[int, int]:
    """How many frames wait for the store in a folder, of living and dead writers, and the bytes that they take."""
    waiting = size = 0
    for path in sorted(folder.rglob(f"*{SUFFIX}")) if folder is not None else ():
        try:
            segment = load_segment(path)
        except (OSError, StoreUnavailable):
            segment = None  # folded meanwhile, or of another version: its bytes count
        size += path.stat().st_size if path.exists() else 0
        if segment is not None:
            waiting += segment.refreshed() - segment.folded
            segment.close()
    return waiting, size


_living: weakref.WeakSet[Journal] = weakref.WeakSet()


def _after_fork() -> None:
    for journal in list(_living):
        journal.after_fork()


os.register_at_fork(after_in_child=_after_fork)

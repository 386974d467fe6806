"""The implementation of `emit`: encode an event, copy it into a mapped segment, and commit it by writing one word.

`emit` is called often and must be fast. So its state is in one closure, and values shared by successive events are
cached: the context block, the parent, and the context's number in the segment. Only the holder of the lock token
refreshes this cache, in one uninterrupted step: no function is called in it, so no signal handler can run.
"""

from __future__ import annotations

import re
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from datetime import datetime
from mmap import mmap
from time import monotonic, sleep, time_ns
from types import FrameType, SimpleNamespace
from typing import NamedTuple, Protocol

from mica.errors import InvalidContext, InvalidEvent
from mica.events.context import Here, current, current_frame
from mica.events.segment import (
    END_MASK,
    ERROR,
    MICROSECONDS,
    ORIGIN_SHIFT,
    SCOPE_SHIFT,
    Segment,
    check_context,
    encode_frame,
    encode_into,
)
from mica.events.segment_writer import HeapTarget, SpineTarget
from mica.model.event import (
    MARK,
    NESTING_MAX,
    ORIGINS,
    PURGED,
    REFUSED,
    ROOT,
    Clock,
    Context,
    Event,
    Origin,
    Ref,
    WriterId,
    check_keys,
    check_name,
    check_nesting,
    check_time,
    decode_data,
    descent_from,
    encode_data,
    microseconds,
    origin_number,
)
from mica.model.mark import check_mark
from mica.model.text_cache import clear_on_forget

NEAR_US = 2**63 // 1_000  # microseconds whose nanoseconds have 64 bits
NAMES_MAX = 10_000  # names cached as valid; usually there are dozens
LARGE_BYTES = 2**20  # larger data is encoded as JSON in `emit`, so that the fold does not block others with it
LOCK_PATIENCE_S = 1.0  # the lock token is held for a microsecond, or while a segment is made
LOCK_RETRY_S = 0.0001
LOCK_CHECKS = 5  # checks before the lock token counts as lost
FLOAT, HUGE, MINUS_HUGE = 0xCB, 0x7F, 0xFF  # MessagePack's float tag, and the next byte of NaN or infinity
NOT_FINITE = re.compile(rb"\xcb[\x7f\xff][\xf0-\xff]").search  # a float that JSON cannot hold
RESERVED = (PURGED, REFUSED)
NOTHING: Mapping[str, object] = {}
AGENT = ORIGINS.index("agent") << ORIGIN_SHIFT

NOWHERE = object()  # differs from every context block, so that the cache is refreshed

known_names: set[str] = set()  # names that were checked before; MARK is never added, because its data is checked too
clear_on_forget(known_names.clear)  # a purge removes names, too


class Emit(Protocol):
    """The signature of `emit`: record one event and return a reference to it."""

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


class Writer(Protocol):
    """The part of a journal that an emitter uses."""

    writer: WriterId
    written: Segment | None  # the segment in use

    def roll(self, frame_bytes: int, base: int) -> Segment:
        """Make a new segment with room for a frame of this size, starting at sequence number `base`."""

    def within(self) -> Writer:
        """Return another writer, for events that are emitted while an `emit` of the same thread is running."""

    def wake(self) -> None:
        """Wake the fold, the background task that stores events, for the first event after an idle period."""

    emit: Emit


def check_kind(name: str, data: Mapping[str, object]) -> None:
    """Raise InvalidEvent if the name is invalid or reserved, a key is not a string, or a mark has invalid data.

    `emit` skips this check once a name is cached: checking the keys of every event would cost a tenth of an emit.
    """
    check_name(name)
    check_keys(name, data)
    if name in RESERVED:
        raise InvalidEvent(f"{name!r} is reserved for the store; use another name")
    if name == MARK:
        check_mark(data)
    elif len(known_names) < NAMES_MAX:
        known_names.add(name)


def make_head(name: str, origin: Origin, at: datetime | None, *, error: bool) -> tuple[int, str, int]:
    """The first three fields of a frame: time, name and flags. Raises InvalidEvent for a bad origin or time."""
    flags = origin_number(name, origin) << ORIGIN_SHIFT | (ERROR if error else 0)
    if at is None:
        return time_ns(), name, flags
    check_time(name, at)
    time = microseconds(at)
    return (time * 1_000, name, flags) if -NEAR_US < time < NEAR_US else (time, name, flags | MICROSECONDS)


def callers(frame: FrameType | None) -> Iterator[FrameType]:
    """Yield a stack frame and all its callers, innermost first."""
    while frame is not None:
        yield frame
        frame = frame.f_back


class Emitter(NamedTuple):
    """`emit` and the functions that control it."""

    emit: Emit
    restart: Callable[[], None]  # continue as another writer, after a fork or close
    seal: Callable[[], None]  # write later events into a new segment
    set_idle: Callable[[], None]  # no event waits for the store, so the next event wakes the fold
    set_busy: Callable[[], None]  # events wait for the store, so the fold need not be woken


def make_emitter(journal: Writer, *, space: str, base_here: Here, clock: Clock | None) -> Emitter:
    """Make the `emit` of one writer, and the functions that control it.

    `base_here` is the context and parent outside of all `with` blocks. Without `clock`, the system clock is used.
    """
    # The lock: a thread that pops the token may write; a list is the cheapest lock. The token is also the buffer for
    # the frame: reusing one buffer is a quarter cheaper.
    tokens = [bytearray()]
    replacing = threading.Lock()  # held while a lost token is replaced
    writer = journal.writer
    scopes: dict[Context, int] = {}  # contexts written to the segment, with their shifted numbers
    scoped: tuple[Context | None, int] = None, 0  # the entry of `scopes` used last
    # The cache. Key: the block or context, and the parent argument. Value: the shifted number of the context, the
    # lineage as it is written, and the lineage as a Ref holds it.
    block: object = NOWHERE
    above: Event | Ref | None = None
    scope = 0
    lineage: tuple[object, ...] = ()
    descent = ROOT
    segment: Segment | None = None
    area: mmap | bytearray | HeapTarget = bytearray()
    spine: memoryview | list[int] | SpineTarget = []
    position = limit = ready = index = capacity = base = 0
    is_idle = True  # no event waits for the store: the next event wakes the fold

    # Callers pass keywords, as `Emit` requires. Here the arguments are also positional, because filling in the
    # defaults of keyword-only arguments costs a tenth of an emit.
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
        ref: Ref
        if type(data) is not dict:
            data = NOTHING if data is None else decode_data(encode_data(name, data))
        if name not in known_names:
            check_kind(name, data)
        try:
            body = tokens.pop()
        except IndexError:
            body = slow.token()
            if body is None:
                within = slow.within()
                ref = within.emit(name, data, parent=parent, context=context, origin=origin, error=error, at=at)
                return ref
        try:
            if parent is not above or (context if context is not None else current_frame()) is not block:
                slow.move(parent, context, name)
            if at is not None or origin != "agent" or error:
                encode_into((*make_head(name, origin, at, error=error), data, lineage), body)
            else:
                encode_into((time_ns(), name, AGENT, data, lineage), body)
            if FLOAT in body and (HUGE in body or MINUS_HUGE in body) and NOT_FINITE(body):
                encode_data(name, data)  # raises if JSON cannot hold a number
            size = len(body)
            if size > NESTING_MAX:
                if size > LARGE_BYTES:
                    raise OverflowError  # written as JSON, below
                check_nesting(name, data)
            end = position + size
            if end > ready:
                slow.prepare(end)
            ref = Ref(writer, base + index, descent)  # made first: a call may be interrupted
            area[position:end] = body
            spine[index] = scope + end  # the commit: one aligned word
            position = end
            index += 1
        except (IndexError, TypeError, ValueError, OverflowError, RecursionError):
            try:
                ref = slow.write_slowly(name, data, parent, context, origin, error, at, len(body))
            finally:
                tokens.append(bytearray())  # a new one: the old buffer may have become large
            if is_idle:
                slow.wake()
            return ref
        except BaseException:
            try:
                slow.settle()
            finally:
                tokens.append(body)
            raise
        else:
            tokens.append(body)
            if is_idle:
                slow.wake()
            return ref

    def move(parent: Event | Ref | None, context: Context | Here | None, name: str) -> None:
        """Refresh the cached context and lineage. Only the holder of the lock token may call this."""
        nonlocal block, above, scope, lineage, descent
        new_block: object = context
        cause = parent
        if context is None:
            new_block = frame = current_frame()
            here = base_here if frame is None else frame.here if frame.space is space else current(space) or base_here
            where = here.context
            if cause is None:
                cause = here.parent
        elif isinstance(context, Here):
            where = context.context
            if cause is None:
                cause = context.parent
        else:
            where = context
        new_scope = scoped[1] if where is scoped[0] else scope_of(where, context is None)
        if cause is None:
            block, above, scope, lineage, descent = new_block, None, new_scope, (), ROOT
            return
        try:
            if type(cause) is not Ref:
                cause = cause.ref
            new_descent = descent_from(cause)
        except AttributeError as problem:
            reason = f"parent {cause!r} of {name!r} is not an event; pass the result of emit, mark or event"
            raise InvalidEvent(reason) from problem
        depth, root_writer, root = new_descent.depth, new_descent.root_writer, new_descent.root_sequence
        new_lineage: tuple[object, ...] = (depth, cause.sequence, root)
        if cause.writer != writer or root_writer != writer:
            new_lineage = (*new_lineage, cause.writer, root_writer)
        block, above, scope, lineage, descent = new_block, parent, new_scope, new_lineage, new_descent

    def scope_of(context: Context, is_checked: bool = False) -> int:  # noqa: FBT001, FBT002 - positional for speed
        """Return a context's number in this segment, shifted by SCOPE_SHIFT. Writes the context first if it is new.

        A new context is checked before it is written, unless `is_checked` is True.
        """
        nonlocal scoped
        try:
            if (scope := scopes.get(context)) is None:
                number = len(scopes) + 1
                body = encode_frame((number, context))
                if not is_checked:
                    check_context(body)
                if index >= capacity or position + len(body) > limit:
                    roll(len(body))
                    number = 1
                    body = encode_frame((number, context))
                write(body, 0)
                scope = scopes[context] = number << SCOPE_SHIFT
        except (TypeError, ValueError) as error:
            if not isinstance(context, Context):
                reason = f"{context!r:.80} is not a context; pass mica.Context(…), or use `with memory.context(…)`"
                raise InvalidContext(reason) from error
            context.check()  # raises with the details
            raise
        scoped = context, scope
        return scope

    def write_slowly(  # noqa: PLR0917
        name: str,
        data: Mapping[str, object],
        parent: Event | Ref | None,
        context: Context | Here | None,
        origin: Origin,
        error: bool,  # noqa: FBT001
        at: datetime | None,
        tried_bytes: int,
    ) -> Ref:
        """Write an event when the segment is full or the data needs JSON. Only the token holder may call this.

        `tried_bytes` is the size of the frame that `emit` has tried to write.
        """
        try:
            head = make_head(name, origin, at, error=error)
            move(parent, context, name)
            try:
                body = encode_frame((*head, encode_data(name, data) if tried_bytes > LARGE_BYTES else data, lineage))
            except (TypeError, ValueError, OverflowError, RecursionError):
                # JSON either rejects it with the reason, or can represent it: keys as text, large integers.
                body = encode_frame((*head, encode_data(name, data), lineage))
            if index >= capacity or position + len(body) > limit:
                roll(len(body) + len(encode_frame((1, scoped[0]))))
                move(parent, context, name)
            write(body, scope)
            return Ref(writer, base + index - 1, descent)
        except BaseException:
            settle()
            raise

    def write(body: bytes, scope: int) -> None:
        nonlocal position, index
        end = position + len(body)
        if end > ready:
            prepare(end)
        area[position:end] = body
        spine[index] = scope | end
        position = end
        index += 1

    def prepare(end: int) -> None:
        nonlocal ready
        ready = segment.prepare(end) if segment is not None else end

    def roll(frame_bytes: int) -> None:
        nonlocal segment, area, spine, position, limit, ready, index, capacity, base, scopes, scoped, block
        new = journal.roll(frame_bytes, base + index if capacity else 1)
        size = new.size_bytes
        own = new, new.heap_target, new.spine_target, new.heap_at, size, new.ready, 0, new.capacity, new.base
        segment, area, spine, position, limit, ready, index, capacity, base = own  # no interruption from here on
        scopes, scoped, block = {}, (None, 0), NOWHERE
        journal.written = new

    def wake() -> None:
        set_busy()
        journal.wake()

    def set_idle() -> None:
        nonlocal is_idle
        is_idle = True

    def set_busy() -> None:
        nonlocal is_idle
        is_idle = False

    def settle() -> None:
        """Recover after an interruption: move behind the committed frames. An uncommitted frame will be overwritten."""
        nonlocal position, index
        while index < capacity and (word := spine[index]):
            index += 1
            position = word & END_MASK

    def token() -> bytearray | None:
        """Wait for the lock token and return it. Returns None inside another `emit` of this thread (a signal handler).

        The result is None even if the outer `emit` is waiting for the token, because the outer `emit` cannot continue
        until the inner one returns.
        """
        if any(frame.f_code in writing for frame in callers(sys._getframe(2))):
            return None
        while True:
            wait()
            with suppress(IndexError):  # another thread was faster
                return tokens.pop()

    def wait() -> None:
        """Wait until the lock token is available. If the token was lost, replace it."""
        until = monotonic() + LOCK_PATIENCE_S
        while not tokens:
            sleep(LOCK_RETRY_S)
            if monotonic() > until:
                until += LOCK_PATIENCE_S
                replace_lost_token()

    def replace_lost_token() -> None:
        """Make a new lock token if an interrupt lost it after it was taken and before it was used."""
        with replacing:
            for _ in range(LOCK_CHECKS):
                sleep(LOCK_RETRY_S)
                if not is_lost():
                    return
            tokens.append(bytearray())

    def is_lost() -> bool:
        """True if the stacks of all threads show that no thread holds the lock token.

        The token is taken and returned only inside `emit` and `seal`. Threads may pass it on during this check, so only
        a token that is missing in several checks is really lost.
        """
        me = threading.get_ident()
        others = [frame for thread, frame in sys._current_frames().items() if thread != me]
        return not tokens and not any(map(may_have_token, others)) and not tokens

    def may_have_token(frame: FrameType) -> bool:
        """True if the thread of this stack frame may hold the lock token: it is in `emit` or `seal` and not waiting."""
        for caller in callers(frame):
            if caller.f_code is wait.__code__:
                return False
            if caller.f_code in writing:
                return True
        return False

    def restart() -> None:
        nonlocal \
            tokens, \
            replacing, \
            writer, \
            block, \
            scoped, \
            segment, \
            area, \
            spine, \
            position, \
            limit, \
            ready, \
            index, \
            capacity, \
            base
        tokens, replacing = [bytearray()], threading.Lock()
        writer = journal.writer
        scoped, block = (None, 0), NOWHERE
        segment, area, spine = None, bytearray(), []
        position = limit = ready = index = capacity = base = 0

    def seal() -> None:
        nonlocal segment, area, spine, capacity
        body = token()
        if body is None:
            return  # a frame is being written; it stays in its segment
        try:
            if index:
                segment, area, spine, capacity = (
                    None,
                    bytearray(),
                    [],
                    index,
                )  # looks full, so the next event starts a new one
                journal.written = None
        finally:
            tokens.append(body)

    writing = (emit.__code__, seal.__code__)

    # One name for all rarely used functions: each free variable makes a call of `emit` slower.
    slow = SimpleNamespace(
        move=move,
        write_slowly=write_slowly,
        prepare=prepare,
        wake=wake,
        settle=settle,
        token=token,
        within=journal.within,
    )
    if clock is None:
        return Emitter(emit, restart, seal, set_idle, set_busy)

    def emit_by_clock(
        name: str,
        data: Mapping[str, object] | None = None,
        *,
        parent: Event | Ref | None = None,
        context: Context | Here | None = None,
        origin: Origin = "agent",
        error: bool = False,
        at: datetime | None = None,
    ) -> Ref:
        return emit(name, data, parent, context, origin, error, clock() if at is None else at)

    return Emitter(emit_by_clock, restart, seal, set_idle, set_busy)

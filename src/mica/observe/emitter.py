"""`emit`: one encode, one copy into a mapped segment, one word that commits it.

It is the hot path of everything, so all it needs is at hand in one closure, and what events have in common is worked
out once: the block they are emitted in, the parent they descend from, the context's number in the segment. Such a
finding is one tuple whose first item says what it belongs to; threads may replace it at any time, none sees a half.
"""

from __future__ import annotations

import re
import sys
import threading
from collections.abc import Callable, Mapping
from datetime import datetime
from mmap import mmap
from time import monotonic, sleep, time_ns
from types import FrameType, SimpleNamespace
from typing import Protocol

from mica.errors import InvalidEvent
from mica.model import (
    MARK,
    NESTING_MAX,
    ORIGINS,
    Clock,
    Context,
    Event,
    Origin,
    Ref,
    WriterId,
    check_mark,
    check_name,
    check_nesting,
    check_time,
    decode_data,
    encode_data,
    microseconds,
    origin_number,
)
from mica.observe.context import Here, current, current_frame
from mica.observe.segment import (
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

NEAR_US = 2**63 // 1_000  # microseconds whose nanoseconds have 64 bits
NAMES_MAX = 10_000  # remembered as checked; a name is a kind of event, there are dozens
LOCK_PATIENCE_S = 1.0  # a token is away for a microsecond, or for the making of a segment
LOCK_RETRY_S = 0.0001
FLOAT = 0xCB  # MessagePack's mark of a float; few events have a byte like it
NOT_FINITE = re.compile(rb"\xcb[\x7f\xff][\xf0-\xff]").search  # a float that JSON cannot hold, or bytes that look so
NOTHING: Mapping[str, object] = {}
AGENT_NAME: Origin = "agent"
AGENT = ORIGINS.index(AGENT_NAME) << ORIGIN_SHIFT

Line = tuple[Event | Ref | None, tuple[object, ...], int, WriterId | None, int]  # a parent, and its child's lineage as
# it is written, depth and root
Place = tuple[object, Event | Ref | None, Context, Line]  # a block or context, a given parent, and what they come to
ROOT: Line = (None, (), 0, None, 0)


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


class Writer(Protocol):
    """Whose segments are written."""

    writer: WriterId

    def roll(self, frame_bytes: int, base: int) -> Segment:
        """A new segment that has room for this frame, its first sequence being `base`."""

    def left(self) -> None:
        """No segment is written until the next roll."""

    def within(self) -> Writer:
        """Another writer, for an event that is emitted inside of an emit."""

    def wake(self) -> None:
        """Something waits for the store that had nothing to do before."""

    emit: Emit


def emitter(
    journal: Writer, *, space: str, base_here: Here, clock: Clock | None, idle: list[bool]
) -> tuple[Emit, Callable[[], None], Callable[[], None]]:
    """`emit`; a function that makes it begin anew as another writer; and one that lets it go on in a new segment."""
    tokens = [True]  # who has the token writes; a list is the cheapest lock there is
    body = bytearray()  # the frame that is being written: a buffer used again is a quarter cheaper
    writer = journal.writer
    known_names: set[str] = set()
    scopes: dict[Context, int] = {}  # their numbers in the segment, shifted
    place: Place = (object(), None, base_here.context, ROOT)
    scoped: Context | None = None  # the last event's context, and its number in the segment
    scope = 0
    segment: Segment | None = None
    area: mmap | bytearray = bytearray()
    spine: memoryview | list[int] = []
    position = limit = ready = index = capacity = base = 0

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
        nonlocal place, scoped, scope, position, index
        here = place
        block = current_frame() if context is None else context
        if block is not here[0] or parent is not here[1]:
            here = place = slow.place_of(block, parent, context, name)
        _, _, where, (parent, lineage, depth, root_writer, root) = here
        if type(data) is not dict:
            data = NOTHING if data is None else decode_data(encode_data(name, data))
        if name not in known_names:
            slow.check_kind(name, data)
        flags = AGENT if origin is AGENT_NAME else origin_number(name, origin) << ORIGIN_SHIFT
        if error:
            flags |= ERROR
        if at is None:
            time = time_ns()
        else:
            check_time(name, at)
            time = microseconds(at)
            if -NEAR_US < time < NEAR_US:
                time *= 1_000
            else:
                flags |= MICROSECONDS
        try:
            tokens.pop()
        except IndexError:
            if (inner := slow.waited()) is not None:
                given = Here(where, None if parent is None else parent.ref)
                ref: Ref = inner.emit(name, data, context=given, origin=origin, error=error, at=at)
                return ref
        try:
            try:
                if where is not scoped:
                    scope = slow.scope_of(where, context is None)
                    scoped = where
                encode_into((time, name, flags, data, lineage) if lineage else (time, name, flags, data), body)
                if FLOAT in body and NOT_FINITE(body):
                    encode_data(name, data)  # a number that JSON cannot hold is refused now
                size = len(body)
                if size > NESTING_MAX:
                    check_nesting(name, data)
                end = position + size
                if end > ready:
                    slow.prepare(end)
                area[position:end] = body
                spine[index] = scope | end  # the commit: one aligned word
                position = end
                sequence = base + index
                index += 1
            except (IndexError, TypeError, ValueError, OverflowError, RecursionError):
                sequence = slow.write_slowly((time, name, flags, data, lineage), where)
        except BaseException:
            slow.settle()
            raise
        finally:
            tokens.append(True)
        if idle:
            slow.wake()
        return Ref(writer, sequence, depth, root_writer, root)

    def place_of(block: object, parent: Event | Ref | None, context: Context | Here | None, name: str) -> Place:
        """What an event is given that is emitted in this block, or in this context."""
        if isinstance(context, Context):
            where, above = context, parent
        else:
            here = context or current(space) or base_here
            where, above = here.context, here.parent if parent is None else parent
        return block, parent, where, ROOT if above is None else line_of(above, name)

    def line_of(parent: Event | Ref, name: str) -> Line:
        """What a child of this parent is given."""
        try:
            above = parent.ref
            root_writer, root = above.root_writer, above.root_sequence
        except AttributeError as problem:
            reason = f"parent {parent!r} of {name!r} is no event; give what emit, mark or event returned"
            raise InvalidEvent(reason) from problem
        if root_writer is None:
            root_writer, root = above.writer, above.sequence
        depth = above.depth + 1
        if above.writer == writer == root_writer:
            return parent, (depth, above.sequence, root), depth, root_writer, root
        return parent, (depth, above.sequence, root, above.writer, root_writer), depth, root_writer, root

    def check_kind(name: str, data: Mapping[str, object]) -> None:
        check_name(name)
        if name == MARK:
            check_mark(data)
        elif len(known_names) < NAMES_MAX:
            known_names.add(name)

    def scope_of(context: Context, is_checked: bool = False) -> int:  # noqa: FBT001, FBT002 - as quick as it can be
        """The number of a context in this segment, shifted; it is written when it has none."""
        try:
            if (scope := scopes.get(context)) is not None:
                return scope
            number = len(scopes) + 1
            body = encode_frame((number, context))
            if not is_checked:
                check_context(body)
        except (TypeError, ValueError):
            context.check()  # says what is wrong
            raise
        if index >= capacity or position + len(body) > limit:
            roll(len(body))
            number = 1
            body = encode_frame((number, context))
        write(body, 0)
        scope = scopes[context] = number << SCOPE_SHIFT
        return scope

    def write_slowly(frame: tuple[int, str, int, Mapping[str, object], tuple[object, ...]], context: Context) -> int:
        """Write what did not fit, or what is not as simple as it looked; returns the sequence."""
        time, name, flags, data, lineage = frame
        try:
            body = encode_frame(frame)
        except (TypeError, ValueError, OverflowError, RecursionError):
            # Either it is refused with the reason, or JSON can hold it in its way: keys as text, large integers.
            body = encode_frame((time, name, flags, encode_data(name, data), lineage))
        scope = scope_of(context)
        if index >= capacity or position + len(body) > limit:
            roll(len(body) + len(encode_frame((1, context))))
            scope = scope_of(context)
        write(body, scope)
        return base + index - 1

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
        nonlocal segment, area, spine, position, limit, ready, index, capacity, base, scoped
        new = journal.roll(frame_bytes, base + index if capacity else 1)
        body.clear()  # it may be large
        scopes.clear()
        scoped = None
        own = new, new.area, new.spine, new.heap_at, new.size_bytes, new.ready, 0, new.capacity, new.base
        segment, area, spine, position, limit, ready, index, capacity, base = own  # nothing interrupts in between

    def wake() -> None:
        idle.clear()
        journal.wake()

    def settle() -> None:
        """After an interruption: what the spine says stands, a copy without its word is overwritten."""
        nonlocal position, index, scoped
        scoped = None
        while index < capacity and (word := spine[index]):
            index += 1
            position = word & END_MASK

    def waited() -> Writer | None:
        """The token is away. Inside of `emit` itself, as a signal handler is, another journal takes the event."""
        if has_token(sys._getframe(2)):
            return journal.within()
        me, until = threading.get_ident(), monotonic() + LOCK_PATIENCE_S
        while True:
            try:
                tokens.pop()
            except IndexError:
                sleep(LOCK_RETRY_S)
            else:
                return None
            if monotonic() > until:
                until += LOCK_PATIENCE_S
                others = [frame for thread, frame in sys._current_frames().items() if thread != me]
                if not any(has_token(frame) for frame in others):
                    return None  # an interrupt hit between taking the token and using it: nobody has it

    def has_token(frame: FrameType | None) -> bool:
        """Whether a thread with this frame may have it: it is in `emit` or `seal`, and does not wait."""
        while frame is not None:
            if frame.f_code is waited.__code__:
                return False
            if frame.f_code in (emit.__code__, seal.__code__):
                return True
            frame = frame.f_back
        return False

    def restart() -> None:
        nonlocal tokens, writer, place, scoped, segment, area, spine, position, limit, ready, index, capacity, base
        tokens = [True]
        writer = journal.writer
        place = (object(), None, base_here.context, ROOT)
        scoped = None
        segment, area, spine = None, bytearray(), []
        position = limit = ready = index = capacity = base = 0

    def seal() -> None:
        nonlocal segment, area, spine, capacity
        try:
            tokens.pop()
        except IndexError:
            waited()
        try:
            if index:
                segment, area, spine, capacity = None, bytearray(), [], index  # it looks full: the next event rolls
                journal.left()
        finally:
            tokens.append(True)

    # One name for all that is rarely called: a call of `emit` pays for every name it may use.
    slow = SimpleNamespace(
        place_of=place_of,
        check_kind=check_kind,
        scope_of=scope_of,
        write_slowly=write_slowly,
        prepare=prepare,
        wake=wake,
        settle=settle,
        waited=waited,
    )
    if clock is None:
        return emit, restart, seal

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

    return emit_by_clock, restart, seal

"""The current context, and the parent of events that are emitted in it.

One ContextVar holds an immutable chain of frames, one frame for each open `with` block. A frame belongs to one space,
so two memories that are used in one task never see each other's context. Leaving a block removes only its own frame, at
any position in the chain, so blocks in generators that run alternately may be left in any order.

A carrier transports the current context to another process or host in three W3C fields: `traceparent`, `tracestate`
(with the exact parent) and `baggage`. Invalid fields from outside are ignored and never raise.
"""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Mapping
from contextvars import ContextVar, copy_context
from hashlib import blake2b
from time import monotonic
from types import TracebackType
from typing import ParamSpec, TypeVar, cast
from urllib.parse import quote, unquote

import msgspec

from mica.errors import InvalidContext, InvalidEvent
from mica.model.event import DEPTH_MAX, EMPTY, FIELDS, Context, Event, EventId, Ref, ref_of, split_id

P = ParamSpec("P")
R = TypeVar("R")

BAGGAGE_BYTES_MAX = 8_192  # the size that W3C Baggage guarantees; more may be cut on the way

_TRACEPARENT = re.compile(r"[0-9a-f]{2}-([0-9a-f]{32})-([0-9a-f]{16})-[0-9a-f]{2}(-.*)?")


class Here(msgspec.Struct, frozen=True, gc=False):
    """The context and the parent that an event gets if it is emitted at this point of the program."""

    context: Context = EMPTY
    parent: Ref | None = None


class ContextFrame(msgspec.Struct, frozen=True, gc=False):
    """An open `with` block; `outer` is the frame of the block around it."""

    scope: Scope  # identifies the block, even after the frame was copied
    space: str
    here: Here
    outer: ContextFrame | None
    entered_s: float  # when the block was opened, by the monotonic clock


_frames: ContextVar[ContextFrame | None] = ContextVar("mica_frames", default=None)
current_frame = _get_frames = _frames.get
_set_frames = _frames.set


def current(space: str) -> Here | None:
    """Return the current context and parent in this space; None if no `with` block of this space is open."""
    frame = _frames.get()
    while frame is not None and frame.space != space:
        frame = frame.outer
    return frame.here if frame else None


def age_s(space: str) -> float | None:
    """Return the seconds since the current `with` block of this space was opened; None if no block is open."""
    frame = _frames.get()
    while frame is not None and frame.space != space:
        frame = frame.outer
    return monotonic() - frame.entered_s if frame else None


class Scope(msgspec.Struct, eq=False):
    """A context for a `with` block. As a decorator, it opens such a block for every call of a function or generator.

    A `with` block inside a generator also applies to the caller while the generator is suspended, because all context
    variables work like this. A generator that is decorated with a scope does not affect its caller.
    """

    space: str
    enter: Callable[..., Here]  # called with the arguments whenever the block is entered
    arguments: tuple[object, ...] = ()
    is_open: bool = False

    def __enter__(self) -> Here:
        if self.is_open:
            raise InvalidContext("this context block is already open; call memory.context(…) again for a second one")
        here = self.enter(*self.arguments)
        self.is_open = True
        _set_frames(ContextFrame(self, self.space, here, _get_frames(), monotonic()))
        return here

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        frame = _get_frames()
        _set_frames(frame.outer if frame is not None and frame.scope is self else _without(frame, self))
        self.is_open = False

    def __call__(self, function: Callable[P, R]) -> Callable[P, R]:
        if inspect.isasyncgenfunction(function):
            return cast(Callable[P, R], self._around_async_generator(function))
        if inspect.isgeneratorfunction(function):
            return cast(Callable[P, R], self._around_generator(function))
        if inspect.iscoroutinefunction(function):

            @functools.wraps(function)
            async def around_coroutine(*args: P.args, **kwargs: P.kwargs) -> object:
                with self._copy():
                    return await function(*args, **kwargs)

            return cast(Callable[P, R], around_coroutine)

        @functools.wraps(function)
        def around(*args: P.args, **kwargs: P.kwargs) -> R:
            with self._copy():
                return function(*args, **kwargs)

        return around

    def _copy(self) -> Scope:
        return Scope(self.space, self.enter, self.arguments)

    def _around_generator(
        self, function: Callable[P, Generator[object, object, object]]
    ) -> Callable[P, Generator[object, object, object]]:
        @functools.wraps(function)
        def around(*args: P.args, **kwargs: P.kwargs) -> Generator[object, object, object]:
            own = copy_context()
            own.run(self._copy().__enter__)
            generator = function(*args, **kwargs)
            step: Callable[[], object] = functools.partial(next, generator)
            try:
                while True:
                    try:
                        value = own.run(step)
                    except StopIteration as stop:
                        return stop.value
                    try:
                        step = functools.partial(generator.send, (yield value))
                    except GeneratorExit:
                        raise
                    except BaseException as error:  # noqa: BLE001 - thrown by the caller, passed on to the generator
                        step = functools.partial(generator.throw, error)
            finally:
                own.run(generator.close)

        return around

    def _around_async_generator(
        self, function: Callable[P, AsyncGenerator[object, object]]
    ) -> Callable[P, AsyncGenerator[object, object]]:
        @functools.wraps(function)
        async def around(*args: P.args, **kwargs: P.kwargs) -> AsyncGenerator[object, object]:
            generator = function(*args, **kwargs)
            step: Callable[[], Awaitable[object]] = generator.__anext__
            try:
                while True:
                    with self._copy():
                        try:
                            value = await step()
                        except StopAsyncIteration:
                            return
                    try:
                        step = functools.partial(generator.asend, (yield value))
                    except GeneratorExit:
                        raise
                    except BaseException as error:  # noqa: BLE001 - thrown by the caller, passed on to the generator
                        step = functools.partial(generator.athrow, error)
            finally:
                with self._copy():
                    await generator.aclose()

        return around


def _without(frame: ContextFrame | None, scope: Scope) -> ContextFrame | None:
    if frame is None or frame.scope is scope:
        return frame.outer if frame else None  # None: the block was opened in another task's context
    outer = _without(frame.outer, scope)
    return frame if outer is frame.outer else msgspec.structs.replace(frame, outer=outer)


def narrow(  # noqa: PLR0917 - positional for speed
    space: str,
    base: Here,
    parent: Event | Ref | None,
    labels: Mapping[str, str],
    session: str | None = None,
    agent: str | None = None,
    user: str | None = None,
    task: str | None = None,
    correlation: str | None = None,
) -> Here:
    """Return a copy of the current context and parent of this space, with changes.

    Fields and the parent are replaced unless they are None, and labels are added. If no `with` block of this space is
    open, `base` is used instead of the current context. Raises InvalidContext for an invalid value or parent.
    """
    frame = _get_frames()
    here = base if frame is None else frame.here if frame.space is space else current(space) or base
    context = here.context.with_(labels, session, agent, user, task, correlation)
    if parent is None:
        return Here(context, here.parent)
    if type(parent) is Ref:  # isinstance takes ten times as long
        return Here(context, parent)
    if not isinstance(parent, Event):
        raise InvalidContext(f"parent {parent!r} is not an event; pass the result of emit, mark or event")
    return Here(context, parent.ref)


# -- Carriers -------------------------------------------------------------------------------------------------


def carrier(here: Here, *, space: str) -> dict[str, str]:
    """Encode a context and parent as W3C fields, such as `traceparent`, for HTTP headers or MCP `_meta`.

    `space` is the id of the space; a receiver uses the parent only in the same space. Raises InvalidContext if the
    encoded context is longer than 8,192 bytes (BAGGAGE_BYTES_MAX).
    """
    fields: dict[str, str] = {}
    if here.parent is not None:
        chain = here.context.correlation or here.parent.root_id
        trace = chain if re.fullmatch(r"[0-9a-f]{32}", chain) else _hexadecimal(chain, 16)
        fields["traceparent"] = f"00-{trace}-{_hexadecimal(here.parent.id, 8)}-01"
        fields["tracestate"] = f"mica={_space_digest(space)}:{here.parent.id}:{here.parent.root_id}:{here.parent.depth}"
    members = [(name, getattr(here.context, name)) for name in FIELDS]
    members += [(f"label.{name}", value) for name, value in here.context.labels]
    baggage = ",".join(f"mica.{quote(name, safe='.')}={quote(value, safe='')}" for name, value in members if value)
    if len(baggage) > BAGGAGE_BYTES_MAX:
        raise InvalidContext(
            f"the context takes {len(baggage):,} bytes in a carrier; {BAGGAGE_BYTES_MAX:,} are safe to send: "
            "shorten the task or labels"
        )
    return fields | ({"baggage": baggage} if baggage else {})


def environment(here: Here, *, space: str) -> dict[str, str]:
    """Return the fields of `carrier` as environment variables for a child: `env=os.environ | environment(…)`."""
    return {name.upper(): value for name, value in carrier(here, space=space).items()}


def received(fields: Mapping[str, str], *, space: str) -> Here:
    """Decode the sender's context and parent from headers, `_meta` fields or environment variables.

    Foreign or damaged fields are ignored. If the sender is in the same space, the parent is the sender's parent event.
    Otherwise there is no parent, and the trace id in `traceparent` becomes the correlation, unless the field `baggage`
    already has a correlation.
    """
    lowered = {name.lower(): value for name, value in fields.items()}
    context = _context_of(lowered.get("baggage", ""))
    parent, is_ours = _parent_of(lowered.get("tracestate", ""), space)
    trace = _TRACEPARENT.fullmatch(lowered.get("traceparent", "").strip())
    if not is_ours and trace and context.correlation is None and set(trace[1]) != {"0"}:
        context = msgspec.structs.replace(context, correlation=trace[1])
    return Here(context, parent if is_ours else None)


def _context_of(baggage: str) -> Context:
    fields: dict[str, str | None] = {}
    labels: dict[str, str] = {}
    for member in baggage.split(","):
        name, _, value = member.split(";")[0].strip().partition("=")
        if not name.startswith("mica.") or not value:
            continue
        name, value = unquote(name.removeprefix("mica.")), unquote(value)
        if name in FIELDS:
            fields[name] = value
        elif name.startswith("label."):
            labels[name.removeprefix("label.")] = value
    try:
        return EMPTY.with_(labels, **fields)
    except InvalidContext:
        return EMPTY


def _parent_of(tracestate: str, space: str) -> tuple[Ref | None, bool]:
    for member in tracestate.split(","):
        name, _, value = member.strip().partition("=")
        if name != "mica":
            continue
        try:
            space_digest, identifier, root, depth = value.split(":")
            for each in (identifier, root):
                split_id(each)
            if not 0 <= int(depth) <= DEPTH_MAX:
                return None, False
            return ref_of(EventId(identifier), EventId(root), int(depth)), space_digest == _space_digest(space)
        except (ValueError, InvalidEvent):
            return None, False
    return None, False


def _space_digest(space: str) -> str:
    return _hexadecimal(space, 4)


def _hexadecimal(text: str, size: int) -> str:
    return blake2b(text.encode(), digest_size=size).hexdigest()

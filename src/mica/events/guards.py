"""Decorators for functions and coroutines: required context, time limit, tags and sampling.

    @requires(memory, fields=["session", "agent"], max_age_s=600)
    @timeout(memory, 30)
    async def deploy(): ...

Each decorator uses the caller's context at the time of the call. No decorator changes the data of an event.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
import math
from collections.abc import Awaitable, Callable, Collection
from difflib import get_close_matches
from hashlib import blake2b
from typing import ParamSpec, Protocol, TypeVar, cast

from mica.errors import InvalidContext, InvalidInput
from mica.events.context import Here, Scope, age_s, narrow
from mica.events.emitter import Emit
from mica.model.event import FIELDS

P = ParamSpec("P")
R = TypeVar("R")

TAGS = "tags"
SAMPLE_RATE = "sample_rate"
TIMED_OUT = "call.timed_out"


class GuardedMemory(Protocol):
    """The part of a memory that these decorators use."""

    @property
    def space(self) -> str: ...
    @property
    def here(self) -> Here: ...
    @property
    def emit(self) -> Emit: ...


def requires(
    memory: GuardedMemory, *, fields: Collection[str] = (), max_age_s: float | None = None, min_depth: int = 0
) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """A decorator that checks the context before each call and raises InvalidContext if it does not match.

    All `fields` must be set: session, agent, user, task, correlation, parent, or names of labels. `max_age_s` is the
    maximum age of the current `with` block in seconds. `min_depth` is the minimum depth that an event without an
    explicit parent gets in the call.
    """
    if isinstance(fields, str):
        raise InvalidInput(f"fields is the string {fields!r}; pass a list of names")
    if strange := [name for name in fields if not isinstance(name, str)]:
        raise InvalidInput(f"fields has {strange[0]!r}, which is not a name; pass strings")
    if max_age_s is not None and not (_is_number(max_age_s) and max_age_s >= 0):
        raise InvalidInput(f"max_age_s is {max_age_s!r}; use a number of 0 or more")
    if not isinstance(min_depth, int) or min_depth < 0:
        raise InvalidInput(f"min_depth is {min_depth!r}; use a whole number of 0 or more")

    def check(called: str) -> None:
        here = memory.here
        values = dict(here.context.labels) | {name: getattr(here.context, name) for name in FIELDS}
        values["parent"] = here.parent
        if missing := [name for name in fields if values.get(name) is None]:
            raise InvalidContext(
                f"{called} needs {', '.join(missing)} in its context; call it within memory.context({missing[0]}=…)"
                + "".join(map(_suggest_field, missing))
            )
        depth = 0 if here.parent is None else here.parent.depth + 1
        if depth < min_depth:
            raise InvalidContext(
                f"{called} is called at depth {depth}, at least {min_depth} is needed; "
                "call it within memory.context(parent=…)"
            )
        entered_s = age_s(memory.space)
        if max_age_s is not None and (entered_s is None or entered_s > max_age_s):
            how = "outside of every context" if entered_s is None else f"in a context that is {entered_s:.1f} s old"
            raise InvalidContext(f"{called} is called {how}; at most {max_age_s} s are allowed: open a new one")

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        if inspect.iscoroutinefunction(function):

            @functools.wraps(function)
            async def checked_coroutine(*args: P.args, **kwargs: P.kwargs) -> object:
                check(function.__qualname__)
                return await function(*args, **kwargs)

            return cast(Callable[P, R], checked_coroutine)

        @functools.wraps(function)
        def checked(*args: P.args, **kwargs: P.kwargs) -> R:
            check(function.__qualname__)
            return function(*args, **kwargs)

        return checked

    return decorate


def _suggest_field(name: str) -> str:
    """Return a hint for an error message if the name of a missing label resembles a field name; otherwise empty."""
    known = (*FIELDS, "parent")
    near = [] if name in known else get_close_matches(name, known, n=1, cutoff=0.8)
    return f"; {name!r} is read as a label; did you mean {near[0]!r}?" if near else ""


def timeout(memory: GuardedMemory, seconds: float) -> Callable[[Callable[P, Awaitable[R]]], Callable[P, Awaitable[R]]]:
    """A decorator that cancels a coroutine after this time, records a failure event and raises TimeoutError.

    The failure event is a child of the current parent. Raises InvalidInput for a plain function, which cannot be
    cancelled.
    """
    if not (_is_number(seconds) and 0 < seconds < math.inf):
        raise InvalidInput(f"a timeout cannot be {seconds!r} seconds; use a number above 0")

    def decorate(function: Callable[P, Awaitable[R]]) -> Callable[P, Awaitable[R]]:
        if not inspect.iscoroutinefunction(function):
            raise InvalidInput(f"{function.__qualname__} is not a coroutine function and cannot be cancelled")

        @functools.wraps(function)
        async def limited(*args: P.args, **kwargs: P.kwargs) -> R:
            limit = asyncio.timeout(seconds)
            try:
                async with limit:
                    return await function(*args, **kwargs)
            except TimeoutError as error:
                if limit.expired():
                    _record(memory, function.__qualname__, seconds, error)
                raise

        return limited

    return decorate


def _record(memory: GuardedMemory, called: str, seconds: float, error: TimeoutError) -> None:
    message = f"{called} was cancelled after {seconds} s"
    memory.emit(
        TIMED_OUT,
        {
            "text": message,
            "call": called,
            "timeout_s": seconds,
            "error_type": type(error).__name__,
            "error_message": message,
        },
        error=True,
    )


def tagged(memory: GuardedMemory, *tags: str) -> Scope:
    """A decorator or `with` block that adds these tags to the comma-separated label `tags` of every event in it."""
    if strange := [tag for tag in tags if not isinstance(tag, str) or not tag or "," in tag]:
        raise InvalidInput(f"{strange[0]!r} is not a tag; use a string without commas")

    def enter() -> Here:
        around = dict(memory.here.context.labels).get(TAGS, "").split(",")
        together = ",".join(sorted({*tags, *filter(None, around)}))
        return narrow(memory.space, memory.here, None, {TAGS: together} if together else {})

    return Scope(memory.space, enter)


def sampled(memory: GuardedMemory, rate: float) -> Callable[[Callable[P, R]], Callable[P, R | None]]:
    """A decorator that runs the function only for the share `rate` (0 to 1) of all chains; else it returns None.

    The decision depends only on the correlation of the current context. If it is not set, the decision depends on the
    session, and without a session on the root of the current parent. So a chain is sampled as a whole, even across
    processes. If none of the three is set, the function runs, except at rate 0. Events emitted in the call have the
    label `sample_rate`.
    """
    if not (_is_number(rate) and 0 <= rate <= 1):
        raise InvalidInput(f"{rate!r} is not a share; use a number from 0 to 1")

    def enter() -> Here:
        return narrow(memory.space, memory.here, None, {SAMPLE_RATE: f"{rate:g}"})

    def decorate(function: Callable[P, R]) -> Callable[P, R | None]:
        labelled = Scope(memory.space, enter)(function)
        if inspect.iscoroutinefunction(function):

            @functools.wraps(function)
            async def sampled_coroutine(*args: P.args, **kwargs: P.kwargs) -> object:
                if is_sampled(memory.here, rate):
                    return await cast(Awaitable[object], labelled(*args, **kwargs))
                return None

            return cast(Callable[P, R | None], sampled_coroutine)

        @functools.wraps(function)
        def sampled_function(*args: P.args, **kwargs: P.kwargs) -> R | None:
            return labelled(*args, **kwargs) if is_sampled(memory.here, rate) else None

        return sampled_function

    return decorate


def is_sampled(here: Here, rate: float) -> bool:
    """True if the current chain is in the sample. The answer is the same in all processes.

    A chain that is in the sample at one rate is also in it at every higher rate.
    """
    root = here.parent.root_id if here.parent else None
    key = here.context.correlation or here.context.session or root
    if key is None:
        return rate > 0
    return int.from_bytes(blake2b(key.encode(), digest_size=8).digest()) < rate * 2**64


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)

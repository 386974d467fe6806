"""Questions about chains, over plain events: what an event affected, how a failure came about, where two runs part."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterable, Mapping, Sequence

import msgspec

from mica.errors import InvalidInput
from mica.model.event import Event


class Impact(msgspec.Struct, frozen=True, kw_only=True):
    """What came after an event in its chain, by whether it was caused by it."""

    descendants: tuple[Event, ...]  # it led to these
    correlated: tuple[Event, ...]  # later in the same chain, but not because of it


class Failure(msgspec.Struct, frozen=True, kw_only=True):
    """An event that failed, how it came about, and who was part of it."""

    event: Event
    led: tuple[Event, ...]  # what led to it, the root first
    agents: tuple[str, ...]  # of the events that led to it, its own and those after it


class Difference(msgspec.Struct, frozen=True, kw_only=True):
    """A field that two runs do not share; None where one has nothing there."""

    field: str
    left: object
    right: object


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    """How far two runs went together, and the step at which they part."""

    same: int  # steps that both share from the beginning
    left: Event | None = None  # where they part; None: this run ended there, or both ended alike
    right: Event | None = None
    differences: tuple[Difference, ...] = ()

    @property
    def is_equal(self) -> bool:
        return self.left is None and self.right is None


def impact(event: Event, *, chain: Iterable[Event], descendants: Sequence[Event]) -> Impact:
    """What came after this event: caused by it, or only correlated."""
    caused = {event.id, *(below.id for below in descendants)}
    later = tuple(other for other in chain if other.place > event.place and other.id not in caused)
    return Impact(descendants=tuple(descendants), correlated=later)


def failure(event: Event, *, ancestors: Sequence[Event], descendants: Iterable[Event]) -> Failure:
    """How this event came about and whom it touched."""
    led = tuple(reversed(ancestors))
    part = [*led, event, *descendants]
    return Failure(event=event, led=led, agents=tuple(sorted({e.context.agent for e in part if e.context.agent})))


def compare(left: Sequence[Event], right: Sequence[Event], *, ignore: Collection[str] = ()) -> Comparison:
    """Where two chains part first, step by step in their own order, and in which fields.

    Compared are name, origin, error, depth, agent, which earlier step is the parent, and data by its fields; not ids,
    times and sessions, which differ in every run. `ignore` names more that does not count, such as `data.duration_s`.
    """
    steps = [_numbered(run) for run in (left, right)]
    for number in range(max(len(left), len(right))):
        here = left[number] if number < len(left) else None
        there = right[number] if number < len(right) else None
        if here is None or there is None:
            return Comparison(same=number, left=here, right=there)
        facts = _facts(here, steps[0]), _facts(there, steps[1])
        if differences := tuple(_differences(*facts, ignore=ignore)):
            return Comparison(same=number, left=here, right=there, differences=differences)
    return Comparison(same=len(left))


def compared_fields(*runs: Iterable[Event]) -> set[str]:
    """The fields that a comparison of these runs looks at, as `ignore` names them."""
    return {field for run in runs for event in run for field in _facts(event, {})}


async def replay(
    chain: Iterable[Event],
    *,
    speed: float | None,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
) -> AsyncIterator[Event]:
    """The events one after the other: at once, or each when it is due at this multiple of the recorded speed."""
    first: Event | None = None
    started = clock()
    for event in chain:
        first = first or event
        if speed is not None:
            due = started + (event.at - first.at).total_seconds() / speed
            if (left_s := due - clock()) > 0:
                await sleep(left_s)
        yield event


def since(event: Event, chain: Iterable[Event]) -> list[Event]:
    """The part of a chain that begins with this event."""
    return [other for other in chain if other.id == event.id or other.place > event.place]


def check_speed(speed: float | None) -> None:
    if speed is None:
        return
    if isinstance(speed, bool) or not isinstance(speed, int | float) or not 0 < speed < float("inf"):
        raise InvalidInput(f"a run cannot be replayed at {speed!r} times its speed; give more than 0, or none at all")


def _numbered(run: Iterable[Event]) -> dict[str, int]:
    return {event.id: number for number, event in enumerate(run)}


def _facts(event: Event, numbers: Mapping[str, int]) -> dict[str, object]:
    parent = None if event.parent_id is None else numbers.get(event.parent_id, "outside")
    return {
        "name": event.name,
        "origin": event.origin,
        "error": event.error,
        "depth": event.depth,
        "parent": parent,
        "context.agent": event.context.agent,
        **{f"data.{name}": value for name, value in event.data.items()},
    }


def _differences(
    left: Mapping[str, object], right: Mapping[str, object], *, ignore: Collection[str]
) -> Iterable[Difference]:
    for field in dict.fromkeys([*left, *right]):
        here, there = left.get(field), right.get(field)
        if field not in ignore and ((field in left) != (field in right) or _differ(here, there)):
            yield Difference(field=field, left=here, right=there)


def _differ(left: object, right: object) -> bool:
    """Whether two values of JSON differ: true and 1 do, though Python calls them equal."""
    encoded = (msgspec.json.encode(value, order="deterministic") for value in (left, right))
    return len(set(encoded)) > 1

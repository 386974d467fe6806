"""Analyse chains of events: the impact of an event, the causes of a failure, the first difference of two chains.

The chain of an event is all events with the same correlation. If the event has no correlation, its chain is all events
with the same root. A chain often records one program run.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterable, Mapping, Sequence

import msgspec

from mica.errors import InvalidInput
from mica.model.event import Event


class Impact(msgspec.Struct, frozen=True, kw_only=True):
    """The later events of an event's chain: the event's descendants, and the other events."""

    descendants: tuple[Event, ...]  # caused by the event
    correlated: tuple[Event, ...]  # later in the same chain, but not caused by the event


class Failure(msgspec.Struct, frozen=True, kw_only=True):
    """A failed event with its ancestors, and the agents involved."""

    event: Event
    ancestors: tuple[Event, ...]  # the root first
    agents: tuple[str, ...]  # of the event, its ancestors and its descendants


class Difference(msgspec.Struct, frozen=True, kw_only=True):
    """A field whose values differ between two compared events; a missing value is None."""

    field: str
    left: object
    right: object


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    """The result of comparing two chains event by event: the number of equal pairs, and the first pair that differs."""

    same: int  # equal pairs from the beginning
    left: Event | None = None  # the first different event; None if this chain ended there, or both are equal
    right: Event | None = None
    differences: tuple[Difference, ...] = ()

    @property
    def is_equal(self) -> bool:
        return self.left is None and self.right is None


def impact(event: Event, *, chain: Iterable[Event], descendants: Sequence[Event]) -> Impact:
    """Split the later events of an event's chain into the descendants of the event and the other events."""
    caused = {event.id, *(below.id for below in descendants)}
    later = tuple(other for other in chain if other.sort_key > event.sort_key and other.id not in caused)
    return Impact(descendants=tuple(descendants), correlated=later)


def failure(event: Event, *, ancestors: Sequence[Event], descendants: Iterable[Event]) -> Failure:
    """Combine a failed event with its ancestors, which begin with its parent, and the names of all agents involved."""
    above = tuple(reversed(ancestors))
    agents = {each.context.agent for each in (*above, event, *descendants) if each.context.agent}
    return Failure(event=event, ancestors=above, agents=tuple(sorted(agents)))


def compare(left: Sequence[Event], right: Sequence[Event], *, ignore: Collection[str] = ()) -> Comparison:
    """Compare two chains event by event, in the given order, and return the first pair that differs.

    The comparison covers name, origin, error, depth, agent, the index of the parent, and each field of the data.
    Ids, times and sessions are not compared, because they differ in every run. `ignore` names further fields to skip,
    such as `data.duration_s`.
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
    """The names of all fields that `compare` would compare in these chains; its `ignore` accepts the same names."""
    return {field for run in runs for event in run for field in _facts(event, {})}


async def replay(
    chain: Iterable[Event],
    *,
    speed: float | None,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
) -> AsyncIterator[Event]:
    """Yield events in the given order: without pauses if `speed` is None, else at `speed` times the recorded speed."""
    first: Event | None = None
    started = clock()
    for event in chain:
        first = first or event
        if speed is not None:
            due = started + (event.at - first.at).total_seconds() / speed
            if (delay_s := due - clock()) > 0:
                await sleep(delay_s)
        yield event


def since(event: Event, chain: Iterable[Event]) -> list[Event]:
    """The event itself and all later events of its chain."""
    return [other for other in chain if other.id == event.id or other.sort_key > event.sort_key]


def check_speed(speed: float | None) -> None:
    if speed is None:
        return
    if isinstance(speed, bool) or not isinstance(speed, int | float) or not 0 < speed < float("inf"):
        raise InvalidInput(f"a run cannot be replayed at {speed!r} times its speed; use a number above 0, or None")


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
    """True if two values differ as JSON: unlike in Python, `true` and `1` are different."""
    encoded = (msgspec.json.encode(value, order="deterministic") for value in (left, right))
    return len(set(encoded)) > 1

"""Analysis of chains of events: the impact of an event, the causes of a failure, the difference of two runs."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterable, Mapping, Sequence

import msgspec

from mica.errors import InvalidInput
from mica.model.event import Event


class Impact(msgspec.Struct, frozen=True, kw_only=True):
    """Later events of the chain: those caused by an event, and the others."""

    descendants: tuple[Event, ...]  # caused by it
    correlated: tuple[Event, ...]  # later in the same chain, but not caused by it


class Failure(msgspec.Struct, frozen=True, kw_only=True):
    """A failed event with its ancestors, and the agents involved."""

    event: Event
    ancestors: tuple[Event, ...]  # the root first
    agents: tuple[str, ...]  # of its ancestors, itself and its descendants


class Difference(msgspec.Struct, frozen=True, kw_only=True):
    """A field that differs between two runs; None if it is missing in one."""

    field: str
    left: object
    right: object


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    """The number of common steps of two runs, and the first step that differs."""

    same: int  # common steps from the beginning
    left: Event | None = None  # the first that differs; None if this run ended there, or both are equal
    right: Event | None = None
    differences: tuple[Difference, ...] = ()

    @property
    def is_equal(self) -> bool:
        return self.left is None and self.right is None


def impact(event: Event, *, chain: Iterable[Event], descendants: Sequence[Event]) -> Impact:
    """The later events of its chain: caused by this event, or only correlated."""
    caused = {event.id, *(below.id for below in descendants)}
    later = tuple(other for other in chain if other.sort_key > event.sort_key and other.id not in caused)
    return Impact(descendants=tuple(descendants), correlated=later)


def failure(event: Event, *, ancestors: Sequence[Event], descendants: Iterable[Event]) -> Failure:
    """A failure with its ancestors and the agents involved."""
    above = tuple(reversed(ancestors))
    agents = {each.context.agent for each in (*above, event, *descendants) if each.context.agent}
    return Failure(event=event, ancestors=above, agents=tuple(sorted(agents)))


def compare(left: Sequence[Event], right: Sequence[Event], *, ignore: Collection[str] = ()) -> Comparison:
    """The first difference of two chains, compared step by step, with the fields that differ.

    Compared are name, origin, error, depth, agent, which earlier step is the parent, and data by its fields; not ids,
    times and sessions, which differ in every run. `ignore` names more fields to skip, such as `data.duration_s`.
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
    """The names of the fields that are compared, as used in `ignore`."""
    return {field for run in runs for event in run for field in _facts(event, {})}


async def replay(
    chain: Iterable[Event],
    *,
    speed: float | None,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
) -> AsyncIterator[Event]:
    """The events in order: at once, or at this multiple of the recorded speed."""
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
    """The event and all later events of its chain."""
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
    """True if two JSON values differ; unlike in Python, true and 1 do."""
    encoded = (msgspec.json.encode(value, order="deterministic") for value in (left, right))
    return len(set(encoded)) > 1

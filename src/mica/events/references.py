"""References to events: an id, the digits of a position, or an event itself."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import TypeAlias

import msgspec

from mica.errors import InvalidInput
from mica.events.hot import Reads
from mica.model.event import Event, EventId, Ref
from mica.store.protocol import EventLog

REFERENCES_MAX = 100  # looked up at once: a screen or two; more should be found by a query
POSITION_DIGITS_MAX = 18  # a number with so many digits still has at most 64 bits, as positions have

Reference: TypeAlias = str | int | Event | Ref


class ResolvedEvents(msgspec.Struct, frozen=True, kw_only=True):
    """The events of several references, in the order of the references, and the references without an event."""

    events: tuple[Event, ...]
    missing: tuple[str, ...] = ()


def as_list(references: Reference | Iterable[Reference]) -> list[Reference]:
    """Turn one or several references into a list. Raises InvalidInput for more than 100."""
    listed = [references] if isinstance(references, str | int | Event | Ref) else list(references)
    if len(listed) > REFERENCES_MAX:
        raise InvalidInput(f"{len(listed):,} references at once; pass {REFERENCES_MAX} or fewer, or use a query")
    return listed


def check_number(name: str, value: object) -> None:
    """Raise InvalidInput unless the value is a whole number, 0 or more, with at most 18 digits."""
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 10**POSITION_DIGITS_MAX:
        raise InvalidInput(f"{name} is {value!r:.80}; use a whole number, 0 or more")


def match_references(references: Sequence[Reference], events: Sequence[Event | None]) -> ResolvedEvents:
    """Combine references with the results of their lookups, in which None means that there is no such event."""
    return ResolvedEvents(
        events=tuple(event for event in events if event is not None),
        missing=tuple(_as_text(each) for each, event in zip(references, events, strict=True) if event is None),
    )


async def find_event(
    reference: Reference, *, reads: Reads, stored: EventLog, settle: Callable[[], Awaitable[bool]]
) -> Event | None:
    """Return the event of a reference, or None if there is no such event.

    An id is looked up in `reads`, a position in `stored`. If the position is unknown, the event may still wait in a
    segment: `settle` is called to store such events, and the position is looked up again. If `settle` returns False
    because the store is busy, the result is None.
    """
    text = _as_text(reference)
    if not text.isdecimal():
        return await reads.log.get(EventId(text))
    if len(text) > POSITION_DIGITS_MAX:
        return None
    event = await stored.at(int(text))
    if event is None and reads.log is not stored:
        await settle()
        event = await stored.at(int(text))
    return event


def _as_text(reference: Reference) -> str:
    return reference.id if isinstance(reference, Event | Ref) else str(reference).removeprefix("#")

"""Events by reference: by an id, by the digits of a position, or by an event that is at hand."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import TypeAlias

import msgspec

from mica.errors import InvalidInput
from mica.events.hot import Reads
from mica.model.event import Event, EventId, Ref
from mica.store.protocol import Store

REFERENCES_MAX = 100  # resolved at once: a screen or two; more is a query (E-28)
POSITION_DIGITS_MAX = 18  # a log has fewer events than 64 bits count

Reference: TypeAlias = str | int | Event | Ref


class Resolved(msgspec.Struct, frozen=True, kw_only=True):
    """Events that were asked for by reference: those found, in the order asked, and what is not there."""

    found: tuple[Event, ...]
    missing: tuple[str, ...] = ()


def listed(references: Reference | Iterable[Reference]) -> list[Reference]:
    """References as a list, also a single one. Raises InvalidInput when there are too many."""
    asked = [references] if isinstance(references, str | int | Event | Ref) else list(references)
    if len(asked) > REFERENCES_MAX:
        raise InvalidInput(f"{len(asked):,} references at once; give {REFERENCES_MAX} or fewer, or a query")
    return asked


def check_number(name: str, given: object) -> None:
    """Raise InvalidInput when this is no position, nor a number of steps."""
    if isinstance(given, bool) or not isinstance(given, int) or not 0 <= given < 10**POSITION_DIGITS_MAX:
        raise InvalidInput(f"{name} is {given!r:.80}; give a whole number, 0 or more")


def resolved(references: Sequence[Reference], found: Sequence[Event | None]) -> Resolved:
    """The answer to references, given what was found for each."""
    return Resolved(
        found=tuple(event for event in found if event is not None),
        missing=tuple(_called(reference) for reference, event in zip(references, found, strict=True) if event is None),
    )


async def referred(
    reference: Reference, *, reads: Reads, store: Store, flush: Callable[[], Awaitable[None]]
) -> Event | None:
    """The event that is meant. What waits for the store has its position only when it is stored."""
    text = _called(reference)
    if not text.isdecimal():
        return await reads.event(EventId(text))
    if len(text) > POSITION_DIGITS_MAX:
        return None
    found = await store.event_at(int(text))
    if found is None and reads is not store:
        await flush()
        found = await store.event_at(int(text))
    return found


def _called(reference: Reference) -> str:
    """A reference as text: an id, or the digits of a position."""
    return reference.id if isinstance(reference, Event | Ref) else str(reference).removeprefix("#")

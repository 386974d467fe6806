"""What other systems had stated: nobody can ask them about the past, but the receipts of gathers tell."""

from __future__ import annotations

from datetime import datetime

import msgspec

from mica.brief.composition import Account
from mica.model.event import EventId, EventQuery
from mica.sources.cohere import Coherent, Conflict, Origin, Stated
from mica.sources.fan_out import Collected, Degraded
from mica.sources.protocol import GATHERED, Concept
from mica.store.protocol import Store

RECEIPTS_MAX = 2_000  # the latest before a time, among which one of a concept is looked for
NOBODY = "nobody had gathered it by then, and other systems cannot be asked about the past"


class _Fragment(msgspec.Struct):
    key: str
    text: str
    confidence: float
    at: datetime
    source: str
    origins: tuple[tuple[str, str], ...] = ()
    sources: tuple[EventId, ...] = ()


class _Conflict(msgspec.Struct):
    key: str
    text: str
    confidence: float
    at: datetime
    against: str
    reason: str


class _Lost(msgspec.Struct):
    source: str
    origins: tuple[tuple[str, str], ...] = ()
    sources: tuple[EventId, ...] = ()
    conflict: _Conflict | None = None  # receipts of earlier versions have only its line


class _Gathered(msgspec.Struct):
    concept: str
    fragments: tuple[_Fragment, ...]
    coherence: float | None = None
    conflicts: int = 0
    lost: tuple[_Lost, ...] = ()
    missing: dict[str, str] = {}
    degraded: tuple[Degraded, ...] = ()
    left_out: int = 0


async def gathered_before(past: Store, concept: Concept) -> Account:
    """What was stated of a concept when it was last gathered, as far as that was recorded; the rest is missing."""
    for event in reversed(await past.events(EventQuery(names=(GATHERED,), limit=RECEIPTS_MAX))):
        try:
            told = msgspec.convert(event.data, _Gathered)
        except msgspec.ValidationError:
            continue  # somebody else's event of this name
        if told.concept == str(concept):
            return _account(concept, told)
    return Account(concept=concept, collected=Collected(missing={str(concept): NOBODY}), coherent=Coherent())


def _account(concept: Concept, told: _Gathered) -> Account:
    lost = [conflict for each in told.lost if (conflict := _conflict(each)) is not None]
    unknown = [("statement", told.left_out), ("conflict", told.conflicts - len(lost))]
    unrecorded = " and ".join(f"{count} more {noun}{'s' if count != 1 else ''}" for noun, count in unknown if count > 0)
    gaps = {str(concept): f"{unrecorded} were found then and not recorded"} if unrecorded else {}
    return Account(
        concept=concept,
        collected=Collected(missing=told.missing | gaps, degraded=told.degraded),
        coherent=Coherent(
            fragments=tuple(map(_stated, told.fragments)), conflicts=tuple(lost), coherence=told.coherence
        ),
    )


def _stated(fragment: _Fragment) -> Stated:
    return Stated(
        key=fragment.key,
        text=fragment.text,
        confidence=fragment.confidence,
        at=fragment.at,
        source=fragment.source,
        origins=_origins(fragment.origins),
        sources=fragment.sources,
    )


def _conflict(lost: _Lost) -> Conflict | None:
    if lost.conflict is None:
        return None
    return Conflict(
        **msgspec.structs.asdict(lost.conflict),
        source=lost.source,
        origins=_origins(lost.origins),
        sources=lost.sources,
    )


def _origins(told: tuple[tuple[str, str], ...]) -> tuple[Origin, ...]:
    return tuple(Origin(source, locator) for source, locator in told)

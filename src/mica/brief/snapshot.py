"""A space as it was: what its log held at a time, in a store of its own. For looking back, not for speed.

Events say when they happened, not when they were recorded, and some come late: a transcript that is imported, a mark
with a time of its own. What mica records by its own clock tells them apart. Positions are those of the commits, so that
what stands after a receipt of a later time was recorded later, too, whenever it happened.
"""

from __future__ import annotations

from datetime import datetime

import msgspec

from mica.brief.composition import ConceptAccount
from mica.brief.quality import RECEIPT
from mica.errors import InvalidEvent
from mica.model.event import TRANSCRIPT_READ, Event, EventId, EventQuery, make_event, split_id
from mica.sources.cohere import Coherent, Conflict, Origin, Stated
from mica.sources.fan_out import Collected, Degraded
from mica.sources.protocol import GATHERED, Concept
from mica.store.protocol import EventLog
from mica.store.reference.store import EphemeralStore

BATCH_EVENTS = 1_000
LATER = "event.later"  # stands where an event is that came later, so that positions stay what they are
RECEIPTS_MAX = 2_000  # the latest before a time, among which one of a concept is looked for
NOBODY = "nobody had gathered it by then, and other systems cannot be asked about the past"
COUNTED_MAX = 2**40  # sequences that are counted stay below; those of imported events are hashes, and far above
OWN_CLOCK = {RECEIPT: "recalled", GATHERED: "recalled", TRANSCRIPT_READ: "imported"}  # names with their origins


async def read_snapshot(log: EventLog, at: datetime) -> EphemeralStore:
    """What was recorded until a time, each event at its own position. What was purged since is not there."""
    past = EphemeralStore()
    position = 0
    until = await recorded_until(log, at)
    while batch := await log.read(position, limit=BATCH_EVENTS):
        for event in batch:
            is_known = event.at <= at and (until is None or (event.position or 0) <= until)
            known = event if is_known else _later(event)
            try:
                await past.log.append([msgspec.structs.replace(known, position=None)])
            except InvalidEvent:  # it rests on something that came later
                await past.log.append([_later(event)])
        position = batch[-1].position or position + len(batch)
    return past


async def recorded_until(log: EventLog, at: datetime) -> int | None:
    """The position after which everything was recorded later than a time; None when nothing tells that.

    A clock that went wrong once hides nothing: whatever stands before something that was recorded in time was, too.
    """
    found = await log.query(EventQuery(names=tuple(OWN_CLOCK), limit=None))
    told = sorted((event for event in found if event.origin == OWN_CLOCK[event.name]), key=_position)
    in_time = max((_position(event) for event in told if event.at <= at), default=0)
    first = next((event for event in told if _position(event) > in_time), None)
    if first is None:
        return None
    before = _position(first) - 1
    return await _before_chunk(log, before) if first.name == TRANSCRIPT_READ else before


async def _before_chunk(log: EventLog, position: int) -> int:
    """The position before what was read of a transcript, which is stored together with the record of it."""
    writer: str | None = None
    while position > 0:
        start = max(0, position - BATCH_EVENTS)
        for event in reversed(await log.read(start, limit=position - start)):
            by, sequence = split_id(event.id)
            writer = writer or by
            if by != writer or sequence < COUNTED_MAX:
                return _position(event)
        position = start
    return 0


def _position(event: Event) -> int:
    return event.position or 0


def _later(event: Event) -> Event:
    return make_event(event.id, LATER, {}, at=event.at, origin="recalled")


# -- Statements about concepts ---------------------------------------------------------------------------------------


class RecordedFragment(msgspec.Struct):
    key: str
    text: str
    confidence: float
    at: datetime
    source: str
    origins: tuple[tuple[str, str], ...] = ()
    sources: tuple[EventId, ...] = ()


class RecordedConflict(msgspec.Struct):
    key: str
    text: str
    confidence: float
    at: datetime
    against: str
    reason: str


class RecordedLoss(msgspec.Struct):
    source: str
    origins: tuple[tuple[str, str], ...] = ()
    sources: tuple[EventId, ...] = ()
    conflict: RecordedConflict | None = None  # receipts of earlier versions have only its line


class RecordedGather(msgspec.Struct):
    concept: str
    fragments: tuple[RecordedFragment, ...]
    coherence: float | None = None
    conflicts: int = 0
    lost: tuple[RecordedLoss, ...] = ()
    missing: dict[str, str] = {}
    degraded: tuple[Degraded, ...] = ()
    left_out: int = 0


async def gathered_before(log: EventLog, concept: Concept) -> ConceptAccount:
    """What was stated of a concept when it was last gathered, as far as that was recorded; the rest is missing."""
    for event in reversed(await log.query(EventQuery(names=(GATHERED,), limit=RECEIPTS_MAX))):
        try:
            told = msgspec.convert(event.data, RecordedGather)
        except msgspec.ValidationError:
            continue  # somebody else's event of this name
        if told.concept == str(concept):
            return _account(concept, told)
    return ConceptAccount(concept=concept, collected=Collected(missing={str(concept): NOBODY}), coherent=Coherent())


def _account(concept: Concept, told: RecordedGather) -> ConceptAccount:
    lost = [conflict for each in told.lost if (conflict := _conflict(each)) is not None]
    unknown = [("statement", told.left_out), ("conflict", told.conflicts - len(lost))]
    unrecorded = " and ".join(f"{count} more {noun}{'s' if count != 1 else ''}" for noun, count in unknown if count > 0)
    gaps = {str(concept): f"{unrecorded} were found then and not recorded"} if unrecorded else {}
    return ConceptAccount(
        concept=concept,
        collected=Collected(missing=told.missing | gaps, degraded=told.degraded),
        coherent=Coherent(
            fragments=tuple(map(_stated, told.fragments)), conflicts=tuple(lost), coherence=told.coherence
        ),
    )


def _stated(fragment: RecordedFragment) -> Stated:
    return Stated(
        key=fragment.key,
        text=fragment.text,
        confidence=fragment.confidence,
        at=fragment.at,
        source=fragment.source,
        origins=_origins(fragment.origins),
        sources=fragment.sources,
    )


def _conflict(lost: RecordedLoss) -> Conflict | None:
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

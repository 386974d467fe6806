"""Snapshots: the log of a space as it was at a past time, copied into a separate store. This is slow.

A snapshot contains the events that were recorded by that time. The time of an event does not show this, because it is
the time at which the event happened, and some events are recorded later: those of imported transcripts, and marks with
an explicit time. Positions show it, because they follow the order of recording. Some kinds of events, such as the
records of briefs, always get their time when they are recorded. So every event with a higher position than such a
record was recorded after the time of this record.
"""

from __future__ import annotations

from datetime import datetime

import msgspec

from mica.brief.composition import ConceptAccount
from mica.brief.quality import RECEIPT
from mica.errors import InvalidEvent
from mica.model.event import TRANSCRIPT_READ, Event, EventId, EventQuery, make_event, split_id
from mica.sources.answer import Collected, Degraded
from mica.sources.cohere import Coherent, Conflict, Origin, Stated
from mica.sources.protocol import GATHERED_NAMES, Concept
from mica.store.protocol import EventLog
from mica.store.reference.store import EphemeralStore

BATCH_EVENTS = 1_000
LATER = "event.later"  # placeholder for an event recorded later, so that positions stay the same
RECEIPTS_MAX = 2_000  # the latest before that time that are searched for a concept
UNGATHERED = "it was not gathered by then, and other systems cannot be asked about the past"
COUNTED_MAX = 2**40  # the number in an event id is below this if its writer counted; in an imported event, it is a hash
# Events that get their time when they are recorded, with their origins.
OWN_CLOCK = {RECEIPT: "recalled", **dict.fromkeys(GATHERED_NAMES, "recalled"), TRANSCRIPT_READ: "imported"}


async def read_snapshot(log: EventLog, at: datetime) -> EphemeralStore:
    """Return a store with the events that were recorded up to the time `at`, each at its own position.

    The store also has the events that were recorded later, but without their content. An event that was purged since
    `at` is a tombstone.
    """
    past = EphemeralStore()
    position = 0
    until = await recorded_until(log, at)
    while batch := await log.read(position, limit=BATCH_EVENTS):
        for event in batch:
            is_known = event.at <= at and (until is None or (event.position or 0) <= until)
            known = event if is_known else _later(event)
            try:
                await past.log.append([msgspec.structs.replace(known, position=None)])
            except InvalidEvent:  # it refers to an event that was recorded later
                await past.log.append([_later(event)])
        position = batch[-1].position or position + len(batch)
    return past


async def recorded_until(log: EventLog, at: datetime) -> int | None:
    """Return the position of the last event recorded up to the time `at`.

    The result is None if no event is known to have been recorded later. If a clock was wrong, two positions are
    possible; the higher one is returned, so that no event is missed.
    """
    events = await log.query(EventQuery(names=tuple(OWN_CLOCK), limit=None))
    records = sorted((event for event in events if event.origin == OWN_CLOCK[event.name]), key=_position)
    in_time = max((_position(event) for event in records if event.at <= at), default=0)
    first = next((event for event in records if _position(event) > in_time), None)
    if first is None:
        return None
    before = _position(first) - 1
    return await _before_chunk(log, before) if first.name == TRANSCRIPT_READ else before


async def _before_chunk(log: EventLog, position: int) -> int:
    """Return the position of the last event before a batch of imported transcript events.

    `position` is that of the last event of the batch. The batch is stored together with the record of its import.
    """
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
    """Return what sources last answered about a concept, as recorded in `log`.

    If nothing was recorded, the result is empty and says so in `missing`.
    """
    for event in reversed(await log.query(EventQuery(names=GATHERED_NAMES, limit=RECEIPTS_MAX))):
        try:
            gather = msgspec.convert(event.data, RecordedGather)
        except msgspec.ValidationError:
            continue  # an event of this name not written by mica
        if gather.concept == str(concept):
            return _account(concept, gather)
    return ConceptAccount(concept=concept, collected=Collected(missing={str(concept): UNGATHERED}), coherent=Coherent())


def _account(concept: Concept, gather: RecordedGather) -> ConceptAccount:
    lost = [conflict for each in gather.lost if (conflict := _conflict(each)) is not None]
    unknown = [("statement", gather.left_out), ("conflict", gather.conflicts - len(lost))]
    unrecorded = " and ".join(f"{count} more {noun}{'s' if count != 1 else ''}" for noun, count in unknown if count > 0)
    gaps = {str(concept): f"{unrecorded} were found then and not recorded"} if unrecorded else {}
    return ConceptAccount(
        concept=concept,
        collected=Collected(missing=gather.missing | gaps, degraded=gather.degraded),
        coherent=Coherent(
            fragments=tuple(map(_stated, gather.fragments)), conflicts=tuple(lost), coherence=gather.coherence
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


def _origins(pairs: tuple[tuple[str, str], ...]) -> tuple[Origin, ...]:
    return tuple(Origin(source, locator) for source, locator in pairs)

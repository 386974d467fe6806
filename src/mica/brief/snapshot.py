"""A space as it was: what its log held at a time, in a store of its own. For looking back, not for speed.

Events say when they happened, not when they were recorded, and some come late: a transcript that is imported, a mark
with a time of its own. What mica records by its own clock tells them apart. Positions are those of the commits, so that
what stands after a receipt of a later time was recorded later, too, whenever it happened.
"""

from __future__ import annotations

from datetime import datetime

import msgspec

from mica.brief.quality import RECEIPT
from mica.clients.importer import TRANSCRIPT_READ
from mica.errors import InvalidEvent
from mica.model.event import Event, EventQuery, make_event, split_id
from mica.sources.protocol import GATHERED
from mica.store.protocol import Store
from mica.store.reference.store import EphemeralStore

BATCH_EVENTS = 1_000
LATER = "event.later"  # stands where an event is that came later, so that positions stay what they are
COUNTED_MAX = 2**40  # sequences that are counted stay below; those of imported events are hashes, and far above
OWN_CLOCK = {RECEIPT: "recalled", GATHERED: "recalled", TRANSCRIPT_READ: "imported"}  # names with their origins


async def as_it_was(store: Store, at: datetime) -> EphemeralStore:
    """What was recorded until a time, each event at its own position. What was purged since is not there."""
    past = EphemeralStore()
    position = 0
    until = await recorded_until(store, at)
    while batch := await store.log(position, limit=BATCH_EVENTS):
        for event in batch:
            is_known = event.at <= at and (until is None or (event.position or 0) <= until)
            known = event if is_known else _later(event)
            try:
                await past.append([msgspec.structs.replace(known, position=None)])
            except InvalidEvent:  # it rests on something that came later
                await past.append([_later(event)])
        position = batch[-1].position or position + len(batch)
    return past


async def recorded_until(store: Store, at: datetime) -> int | None:
    """The position after which everything was recorded later than a time; None when nothing tells that.

    A clock that went wrong once hides nothing: whatever stands before something that was recorded in time was, too.
    """
    found = await store.events(EventQuery(names=tuple(OWN_CLOCK), limit=None))
    told = sorted((event for event in found if event.origin == OWN_CLOCK[event.name]), key=_position)
    in_time = max((_position(event) for event in told if event.at <= at), default=0)
    first = next((event for event in told if _position(event) > in_time), None)
    if first is None:
        return None
    before = _position(first) - 1
    return await _before_chunk(store, before) if first.name == TRANSCRIPT_READ else before


async def _before_chunk(store: Store, position: int) -> int:
    """The position before what was read of a transcript, which is stored together with the record of it."""
    writer: str | None = None
    while position > 0:
        start = max(0, position - BATCH_EVENTS)
        for event in reversed(await store.log(start, limit=position - start)):
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

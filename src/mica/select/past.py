"""A space as it was: what its log held at a time, in a store of its own. For looking back, not for speed."""

from __future__ import annotations

from datetime import datetime

import msgspec

from mica.errors import InvalidEvent
from mica.model import Event, make_event
from mica.store.ephemeral import EphemeralStore
from mica.store.protocol import Store

BATCH_EVENTS = 1_000
LATER = "event.later"  # stands where an event is that came later, so that positions stay what they are


async def as_it_was(store: Store, at: datetime) -> EphemeralStore:
    """What was recorded until a time, each event at its own position. What was purged since is not there."""
    past = EphemeralStore()
    position = 0
    while batch := await store.log(position, limit=BATCH_EVENTS):
        for event in batch:
            known = event if event.at <= at else _later(event)
            try:
                await past.append([msgspec.structs.replace(known, position=None)])
            except InvalidEvent:  # it rests on something that came later
                await past.append([_later(event)])
        position = batch[-1].position or position + len(batch)
    return past


def _later(event: Event) -> Event:
    return make_event(event.id, LATER, {}, at=event.at, origin="recalled")

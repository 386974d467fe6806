"""The log backwards: for whoever looks for what was last, or for all of it by an index."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Protocol

import msgspec

from mica.model.event import Event, EventId, EventQuery

EVENTS_AT_ONCE = 1_000  # read at a time


class Dated(Protocol):
    """What this needs of a store."""

    async def events(self, query: EventQuery) -> list[Event]: ...


async def latest_first(store: Dated, query: EventQuery) -> AsyncIterator[list[Event]]:
    """All events that fit, going back in time by the indexes of the store: some at a time, oldest first, each once."""
    query = msgspec.structs.replace(query, limit=EVENTS_AT_ONCE)
    seen: set[EventId] = set()
    while True:
        events = await store.events(query)
        yield [event for event in events if event.id not in seen]
        if query.limit is None or len(events) < query.limit:
            return
        oldest = events[0].at
        seen = {event.id for event in events if event.at == oldest}
        until = oldest + timedelta(microseconds=1)
        if until == query.until:  # all of one moment: only a longer list leads beyond it
            query = msgspec.structs.replace(query, limit=2 * query.limit)
        else:
            query = msgspec.structs.replace(query, until=until, limit=EVENTS_AT_ONCE)

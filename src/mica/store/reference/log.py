"""The reference implementation of `EventLog`, the append-only log, in memory."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from mica.errors import DuplicateEvent, LawBroken
from mica.model.event import Appended, Event, EventId, EventQuery, split_id
from mica.store.checks import check_event
from mica.store.purges import is_same_or_tombstone
from mica.store.query import matcher
from mica.store.reference.state import ReferenceState


class ReferenceLog:
    """Implements `EventLog` in memory."""

    def __init__(self, state: ReferenceState) -> None:
        self._state = state

    async def append(self, events: Sequence[Event]) -> Appended:
        state = self._state
        state.check_open()
        fresh: dict[str, Event] = {}
        repeated = 0
        for event in events:
            parent = event.parent_id and (state.by_id.get(event.parent_id) or fresh.get(event.parent_id))
            check_event(event, parent.ref if parent else None)
            known = state.by_id.get(event.id) or fresh.get(event.id)
            if known is not None:
                if not is_same_or_tombstone(known, event):
                    raise DuplicateEvent(event.id)
                repeated += 1
                continue
            position = len(state.log) + len(fresh) + 1
            fresh[event.id] = msgspec.structs.replace(state.purge_filter.apply(event), position=position)
        state.log.extend(fresh.values())
        state.by_id |= fresh
        try:
            for event in fresh.values():
                state.index(event)
                state.derived.add(event)
        except LawBroken:
            del state.log[len(state.log) - len(fresh) :]
            for identifier in fresh:
                del state.by_id[identifier]
            state.rebuild()
            raise
        return Appended(stored=len(fresh), repeated=repeated)

    async def get(self, identifier: EventId) -> Event | None:
        self._state.check_open()
        split_id(identifier)
        return self._state.by_id.get(identifier)

    async def get_many(self, identifiers: Sequence[EventId]) -> list[Event]:
        found = [await self.get(identifier) for identifier in dict.fromkeys(identifiers)]
        return [event for event in found if event is not None]

    async def at(self, position: int) -> Event | None:
        self._state.check_open()
        return self._state.log[position - 1] if 0 < position <= len(self._state.log) else None

    async def query(self, query: EventQuery) -> list[Event]:
        self._state.check_open()
        found = self._state.select(matcher(query))
        return found if query.limit is None else found[max(0, len(found) - query.limit) :]

    async def read(self, after: int, *, limit: int) -> list[Event]:
        self._state.check_open()
        return self._state.log[max(0, after) : max(0, after) + limit]

    async def last_position(self) -> int:
        self._state.check_open()
        return len(self._state.log)

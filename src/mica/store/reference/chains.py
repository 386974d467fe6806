"""The reference implementation of `ChainIndex`, the lookup of related events, in memory."""

from __future__ import annotations

from mica.model.event import Event, EventId, split_id
from mica.store.reference.state import ReferenceState


class ReferenceChains:
    """Implements `ChainIndex` in memory."""

    def __init__(self, state: ReferenceState) -> None:
        self._state = state

    async def chain(self, correlation: str) -> list[Event]:
        self._state.check_open()
        return self._state.select(lambda event: correlation in (event.context.correlation, event.root_id))

    async def ancestors(self, identifier: EventId) -> list[Event]:
        by_id = self._state.by_id
        event = self._get(identifier)
        found: list[Event] = []
        while event and event.parent_id and (event := by_id.get(event.parent_id)) and event not in found:
            found.append(event)
        return sorted(found, key=lambda event: -event.depth)

    async def descendants(self, identifier: EventId, *, depth: int | None = None) -> list[Event]:
        state = self._state
        event = self._get(identifier)
        deepest = None if event is None or depth is None else event.depth + depth
        found: set[EventId] = set()
        generation = {identifier}
        while generation:
            children = {event.id for event in state.log if event.parent_id in generation}
            generation = {i for i in children - found if deepest is None or state.by_id[i].depth <= deepest}
            found |= generation
        return state.select(lambda event: event.id in found)

    async def agents(self) -> list[str]:
        self._state.check_open()
        return sorted({event.context.agent for event in self._state.log if event.context.agent is not None})

    def _get(self, identifier: EventId) -> Event | None:
        self._state.check_open()
        split_id(identifier)
        return self._state.by_id.get(identifier)

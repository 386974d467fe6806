"""The reference implementation of `PurgeLog`, the removal of event content, in memory."""

from __future__ import annotations

from collections.abc import Sequence

from mica.model.event import EventId, Tombstone, is_tombstone, make_tombstone
from mica.model.mark import searchable_text
from mica.store.crystal_rows import derive
from mica.store.purges import Purge, PurgeFilter
from mica.store.reference.state import ReferenceState
from mica.words import terms


class ReferencePurges:
    """Implements `PurgeLog` in memory."""

    def __init__(self, state: ReferenceState) -> None:
        self._state = state

    @property
    def generation(self) -> int:
        return self._state.generation

    async def bury(self, identifiers: Sequence[EventId], cause: Tombstone) -> int:
        state = self._state
        state.check_open()
        known = [state.by_id[identifier] for identifier in dict.fromkeys(identifiers) if identifier in state.by_id]
        content = [event for event in known if not is_tombstone(event)]
        for event in content:
            position = event.position or 0
            state.by_id[event.id] = state.log[position - 1] = make_tombstone(event, cause)
            state.lengths.pop(position, None)
            for term in terms(searchable_text(event) or ""):
                counts = state.counts.get(term, {})
                counts.pop(position, None)
                if not counts:
                    state.counts.pop(term, None)  # no event contains the term any more
            state.vectors.pop(position, None)
        state.derived = derive(state.log)
        state.generation += bool(content)
        if content:
            state.forget_learned()
        return len(content)

    async def add(self, purge: Purge) -> None:
        state = self._state
        state.check_open()
        state.purge_filter = PurgeFilter([*state.purge_filter.purges, purge])
        state.generation += 1
        state.replies = {}

    async def all(self) -> list[Purge]:
        self._state.check_open()
        return list(self._state.purge_filter.purges)

    async def scrub(self) -> list[str]:
        self._state.check_open()
        return []

"""The reference implementation of `VectorIndex`, the embedding vectors of marks, in memory."""

from __future__ import annotations

from collections.abc import Mapping

from mica.model.event import MARK
from mica.model.mark import Vectors, searchable_text
from mica.store.reference.state import ReferenceState


class ReferenceVectors:
    """Implements `VectorIndex` in memory."""

    def __init__(self, state: ReferenceState) -> None:
        self._state = state

    async def save(self, model: str, vectors: Mapping[int, bytes]) -> None:
        state = self._state
        state.check_open()
        state.vectors |= {
            position: (model, vector)
            for position, vector in vectors.items()
            if position in state.lengths and state.log[position - 1].name == MARK
        }

    async def read(self, model: str, *, after: int = 0, limit: int) -> Vectors:
        self._state.check_open()
        stored = self._state.vectors.items()
        found = sorted((position, vector) for position, (made_by, vector) in stored if made_by == model)
        later = [row for row in found if row[0] > after]
        return Vectors(len(found), tuple(later[max(0, len(later) - limit) :]))

    async def missing(self, model: str, *, limit: int) -> list[tuple[int, str]]:
        state = self._state
        state.check_open()
        found = [
            (event.position or 0, searchable_text(event) or "")
            for event in reversed(state.log)
            if event.name == MARK
            and event.position in state.lengths
            and state.vectors.get(event.position, ("",))[0] != model
        ]
        return found[:limit]

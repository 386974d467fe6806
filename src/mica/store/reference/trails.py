"""The reference implementation of `TrailTable`, the trails learned from the log, in memory."""

from __future__ import annotations

from collections.abc import Sequence

from mica.model.trail import LearnedUpTo, Trail, TrailQuery
from mica.store.reference.state import ReferenceState


class ReferenceTrails:
    """Implements `TrailTable` in memory."""

    def __init__(self, state: ReferenceState) -> None:
        self._state = state

    async def save(self, trails: Sequence[Trail], lesson: LearnedUpTo) -> bool:
        state = self._state
        state.check_open()
        if lesson.generation != state.generation or lesson.position < state.learned:
            return False
        state.trails, state.learned = list(trails), lesson.position
        return True

    async def learned_up_to(self) -> LearnedUpTo:
        self._state.check_open()
        return LearnedUpTo(position=self._state.learned, generation=self._state.generation)

    async def query(self, query: TrailQuery) -> list[Trail]:
        self._state.check_open()
        found = [
            trail
            for trail in self._state.trails
            if query.slug in (None, trail.slug) and query.shape in (None, trail.shape)
        ]
        by_runs = query.order == "runs"
        found.sort(key=lambda trail: trail.key)
        found.sort(
            key=lambda trail: (trail.runs, trail.last_at) if by_runs else (trail.last_at, trail.runs), reverse=True
        )
        return found[: query.limit]

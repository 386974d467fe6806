"""The reference implementation of `StoreFiles`, in memory: sizes, verification and rebuilding."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

from mica.store.checks import broken_lineage
from mica.store.crystal_rows import broken_crystals, derive
from mica.store.protocol import Sizes, no_progress
from mica.store.reference.state import ReferenceState


class ReferenceFiles:
    """Implements `StoreFiles` in memory."""

    def __init__(self, state: ReferenceState) -> None:
        self._state = state

    async def sizes(self) -> Sizes:
        state = self._state
        state.check_open()
        return Sizes(
            events=len(state.log),
            marks=sum(map(state.is_mark, state.log)),
            contexts=len({event.context for event in state.log}),
            payloads=0,
            size_bytes=0,
        )

    async def verify(self, *, on_progress: Callable[[int], None] = no_progress) -> list[str]:
        state = self._state
        state.check_open()
        problems = broken_lineage(state.log) + broken_crystals(derive(state.log), state.derived.rows)
        on_progress(len(state.log))
        return problems

    async def rebuild(self, *, on_progress: Callable[[int], None] = no_progress) -> int:
        self._state.check_open()
        self._state.rebuild()
        on_progress(len(self._state.log))
        return len(self._state.log)

    async def age(self, before: datetime, *, limit: int = 8_192, at_least: int = 1) -> int:
        """Return 0: data in memory is never compressed."""
        self._state.check_open()
        return 0

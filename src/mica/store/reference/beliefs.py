"""The reference implementation of `BeliefTable`, the beliefs learned from the log, in memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from mica.model.belief import Belief, BeliefQuery
from mica.model.event import microseconds
from mica.model.trail import LearnedUpTo
from mica.store.protocol import RELATED_BELIEFS
from mica.store.reference.state import ReferenceState


class ReferenceBeliefs:
    """Implements `BeliefTable` in memory."""

    def __init__(self, state: ReferenceState) -> None:
        self._state = state

    async def learned_up_to(self) -> LearnedUpTo:
        self._state.check_open()
        return LearnedUpTo(position=self._state.beliefs_learned, generation=self._state.generation)

    async def save(self, beliefs: Sequence[Belief], lesson: LearnedUpTo, *, after: int) -> bool:
        state = self._state
        state.check_open()
        if lesson.generation != state.generation or after != state.beliefs_learned:
            return False
        latest = {belief.id: belief for belief in beliefs}
        for identifier in latest:
            state.beliefs.pop(identifier, None)
        state.beliefs |= {belief.id: belief for belief in state.purge_filter.without_purged(latest.values())}
        state.beliefs_learned = lesson.position
        return True

    async def query(self, query: BeliefQuery) -> list[Belief]:
        self._state.check_open()
        return self._select(lambda belief: _fits(belief, query))[: query.limit]

    async def related(self, keys: Sequence[str], *, per_key: int = RELATED_BELIEFS) -> dict[str, list[Belief]]:
        self._state.check_open()
        current = self._select(lambda belief: belief.state != "ended")
        return {key: [belief for belief in current if key in belief.keys][:per_key] for key in keys}

    def _select(self, matches: Callable[[Belief], bool]) -> list[Belief]:
        found = filter(matches, self._state.beliefs.values())
        return sorted(found, key=lambda belief: (-microseconds(belief.last_at), belief.id))


def _fits(belief: Belief, query: BeliefQuery) -> bool:
    return (
        (not query.kinds or belief.kind in query.kinds)
        and (not query.states or belief.state in query.states)
        and (not query.ids or belief.id in query.ids)
        and (not query.evidence or not set(query.evidence).isdisjoint(belief.evidence))
        and query.session in (None, belief.session)
        and (query.since is None or belief.last_at >= query.since)
    )

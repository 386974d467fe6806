"""The reference implementation of `TextIndex`, the full-text index, in memory."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime

from mica.model.event import Event
from mica.model.mark import Posting, Postings, Text, mark_of
from mica.store.query import term_weights, with_statistics
from mica.store.reference.state import ReferenceState


class ReferenceTexts:
    """Implements `TextIndex` in memory."""

    def __init__(self, state: ReferenceState) -> None:
        self._state = state

    async def postings(
        self,
        wanted: Sequence[str],
        *,
        weights: Mapping[str, float] | None = None,
        limit: int | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
    ) -> Postings:
        found, lengths = self._postings(wanted)
        containing = {term: len(postings) for term, postings in found.items()}
        weight = term_weights(containing, weights or {}, len(lengths))
        weight_at: Counter[int] = Counter()
        for term, postings in found.items():
            for posting in postings:
                if self._is_within(posting.position, since, until):
                    weight_at[posting.position] += weight[term]
        chosen = set(sorted(weight_at, key=lambda position: (-weight_at[position], -position))[:limit])
        by_term = {
            term: tuple(posting for posting in postings if posting.position in chosen)
            for term, postings in found.items()
        }
        return with_statistics(by_term, sorted(Counter(lengths.values()).items()), containing)

    async def postings_at(self, wanted: Sequence[str], positions: Sequence[int]) -> dict[str, tuple[Posting, ...]]:
        at = set(positions)
        return {
            term: tuple(posting for posting in found if posting.position in at)
            for term, found in self._postings(wanted)[0].items()
        }

    async def read(self, positions: Sequence[int], *, neighbours: int = 2) -> list[Text]:
        state = self._state
        state.check_open()
        marks = state.select(state.is_mark)
        wanted = {event.position or 0 for event in marks}.intersection(positions)
        sessions: dict[str | None, list[Event]] = {state.log[each - 1].context.session: [] for each in wanted}
        for event in marks:
            if event.context.session in sessions:
                sessions[event.context.session].append(event)
        found: dict[int, Text] = {}
        for session, members in sessions.items():
            length = sum(state.lengths[event.position or 0] for event in members)
            near = {
                other
                for ordinal, event in enumerate(members)
                if event.position in wanted
                for other in range(ordinal - neighbours, ordinal + neighbours + 1)
                if session is not None or other == ordinal
            }
            for ordinal, event in enumerate(members):
                if ordinal in near and event.position:
                    own = state.lengths[event.position]
                    found[event.position] = Text(
                        mark=mark_of(event),
                        position=event.position,
                        length=own,
                        ordinal=ordinal if session is not None else 0,
                        session_length=length if session is not None else own,
                    )
        return [found[position] for position in sorted(found)]

    def _postings(self, wanted: Sequence[str]) -> tuple[dict[str, tuple[Posting, ...]], dict[int, int]]:
        """Return all postings of these terms, and the number of words of every mark by position."""
        state = self._state
        state.check_open()
        lengths = {at: length for at, length in state.lengths.items() if state.is_mark(state.log[at - 1])}
        return {term: state.postings(term, lengths) for term in wanted}, lengths

    def _is_within(self, position: int, since: datetime | None, until: datetime | None) -> bool:
        at = self._state.log[position - 1].at
        return (since is None or at >= since) and (until is None or at < until)

"""The reference implementation of `CrystalIndex`, the index of crystals and their sources, in memory."""

from __future__ import annotations

from collections.abc import Sequence

from mica.model.crystal import Crystal, CrystalQuery
from mica.model.event import Event, EventId, split_id
from mica.model.mark import Posting
from mica.store.protocol import LATEST_MARKS
from mica.store.query import group_by_origin
from mica.store.reference.state import ReferenceState


class ReferenceCrystals:
    """Implements `CrystalIndex` in memory."""

    def __init__(self, state: ReferenceState) -> None:
        self._state = state

    async def query(self, query: CrystalQuery) -> list[Crystal]:
        self._state.check_open()
        rows = self._state.derived
        sealed = rows.sealed
        found = [
            crystal
            for crystal in rows.crystals.values()
            if (query.level is None or crystal.level == query.level)
            and (query.period is None or crystal.period == query.period)
            and (query.since is None or crystal.end_at >= query.since)
            and (query.until is None or crystal.start_at < query.until)
            and (query.is_live is None or rows.is_live(crystal.id) == query.is_live)
            and (query.is_sealed is None or (crystal.id in sealed) == query.is_sealed)
            and (query.positions is None or crystal.position in query.positions)
            and (query.is_stale is None or (not all(map(rows.is_live, crystal.sources))) == query.is_stale)
        ]
        found.sort(key=lambda crystal: (crystal.end_at, crystal.position))
        return found if query.limit is None else found[max(0, len(found) - query.limit) :]

    async def postings(self, wanted: Sequence[str], query: CrystalQuery) -> dict[str, tuple[Posting, ...]]:
        positions = {crystal.position or 0 for crystal in await self.query(query)}
        return {term: self._state.postings(term, positions) for term in wanted}

    async def unsealed(
        self,
        *,
        limit: int,
        session: str | None = None,
        latest: bool = False,
        after: int | None = None,
    ) -> list[Event]:
        state = self._state
        state.check_open()
        marks = state.select(
            lambda event: (
                state.is_mark(event)
                and (session is None or event.context.session == session)
                and (after is None or (event.position or 0) > after)
            )
        )
        found = [mark for mark in (marks[-LATEST_MARKS:] if latest else marks) if mark.id not in state.derived.sealed]
        if after is not None:
            found = sorted(sorted(found, key=lambda mark: mark.position or 0)[:limit], key=lambda mark: mark.sort_key)
        return found[max(0, len(found) - limit) :] if latest else found[:limit]

    async def citing(self, identifiers: Sequence[EventId]) -> list[EventId]:
        self._state.check_open()
        for identifier in identifiers:
            split_id(identifier)
        crystals = self._state.derived.crystals
        found = set(identifiers)
        for crystal in crystals.values():  # in order: the sources of a crystal come before it
            if found.intersection(crystal.sources):
                found.add(crystal.id)
        return [crystal for crystal in crystals if crystal in found.difference(identifiers)]

    async def above(self, positions: Sequence[int]) -> dict[int, frozenset[int]]:
        state = self._state
        state.check_open()
        pairs = [
            (position, state.by_id[crystal].position or 0)
            for position in positions
            if 0 < position <= len(state.log)
            for crystal in await self.citing([state.log[position - 1].id])
        ]
        return group_by_origin(positions, pairs)

"""What the log says of a concept: the marks and crystals that name it, as a source beside all others."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime

from mica.search.mark_search import Filters
from mica.search.search import Wanted, find
from mica.sources.protocol import PHI_INV, Concept, Declared, Fragment
from mica.store.protocol import Store
from mica.words import terms

LOOKED_MAX = 50  # of those that rank best
OFFERED_MAX = 5


class Mentions:
    """Marks and crystals that name a concept's id. Each is a statement of its own: prose is not compared."""

    declared = Declared(name="mica", invalidated_by=("mark", "mark.*", "crystal.*"))
    made_by = declared.invalidated_by  # after which there may be some where there were none

    def __init__(self, store: Store, *, stored: Callable[[], Awaitable[None]]) -> None:
        self._store = store
        self._stored = stored
        self.are_any: bool | None = None  # marks in this space; None: nobody has looked

    async def fragments(self, concept: Concept, *, now: datetime) -> Sequence[Fragment]:
        wanted = set(terms(concept.id))
        if not wanted or self.are_any is False:
            return []
        await self._stored()
        known = await self._store.postings(sorted(wanted), limit=1)
        self.are_any = known.marks > 0
        if not all(known.held(term) for term in wanted):
            return []
        found = await find(
            self._store, concept.id, limit=LOOKED_MAX, now=now, zone=None, filters=Filters(), wanted=Wanted()
        )
        naming = [hit for hit in found if wanted <= set(terms(hit.text)) and hit.at <= now][:OFFERED_MAX]
        return [
            Fragment(
                key=f"#{hit.position}",
                text=hit.text[:1_000],
                confidence=PHI_INV,
                at=hit.at,
                source=self.declared.name,
                locator=f"#{hit.position}",
                sources=(hit.id,),
            )
            for hit in naming
        ]

    async def close(self) -> None:
        """Nothing is held."""

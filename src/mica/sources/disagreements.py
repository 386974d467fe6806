"""Remembers which disagreements between sources were recorded, so that the same one is not recorded twice in a row."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from hashlib import blake2b

import msgspec

from mica.errors import MicaError
from mica.model.event import Event, EventQuery
from mica.sources.cohere import Conflict
from mica.sources.protocol import DEGRADED
from mica.store.codec import remember
from mica.store.protocol import EventLog
from mica.words import terms

LOOKED_MAX = 100  # events read that contain a concept's name, to find the last one about exactly this concept


class Disagreements:
    """A cache of the disagreement between sources that was last recorded in the log about each concept."""

    def __init__(self, log: EventLog) -> None:
        self._log = log
        self._recorded: dict[str, str] = {}

    async def is_news(self, concept: str, conflicts: Iterable[Conflict], *, within_s: float) -> bool:
        """Return True if the disagreement in `conflicts` differs from the last recorded one about the concept.

        `conflicts` is then remembered as the last recorded disagreement. Disagreements that other processes recorded
        count as well. Returns False if the store fails or does not answer within `within_s`.
        """
        digest = disagreement(conflicts)
        if concept not in self._recorded:
            try:
                async with asyncio.timeout(max(0.0, within_s)):
                    await self._look(concept)
            except (MicaError, TimeoutError):
                return False
        is_news = self._recorded.get(concept) != digest
        remember(self._recorded, concept, digest)
        return is_news

    def agree(self, concept: str) -> None:
        """Remember that the sources agree about a concept now, so that any later disagreement counts as new."""
        remember(self._recorded, concept, "")

    def note(self, event: Event) -> None:
        """Remember the disagreement that `event` records. Events of other kinds are ignored."""
        if event.name == DEGRADED and isinstance(about := event.data.get("concept"), str):
            remember(self._recorded, about, str(event.data.get("disagreement", "")))

    async def _look(self, concept: str) -> None:
        text = concept if terms(concept) else None
        for event in await self._log.query(EventQuery(names=(DEGRADED,), text=text, limit=LOOKED_MAX)):
            if event.data.get("concept") == concept:
                self.note(event)


def degraded_data(concept: str, coherence: float, conflicts: Iterable[Conflict]) -> dict[str, object]:
    """Return the data of the event that records a disagreement. The data contains no texts of the sources."""
    return {"concept": concept, "coherence": coherence, "disagreement": disagreement(conflicts), "text": concept}


def disagreement(conflicts: Iterable[Conflict]) -> str:
    """Return one hash of all conflicting statements. It does not depend on the order of the conflicts."""
    statements = sorted((each.key, each.source, each.against, str(each.value), each.text) for each in conflicts)
    return blake2b(msgspec.json.encode(statements), digest_size=8).hexdigest()

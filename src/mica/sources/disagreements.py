"""Disagreements of sources that were recorded: a lasting one is recorded once, not at every question."""

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

LOOKED_MAX = 100  # latest records that mention a concept, among which its own is looked up


class Disagreements:
    """The last recorded disagreement of each concept."""

    def __init__(self, log: EventLog) -> None:
        self._log = log
        self._recorded: dict[str, str] = {}

    async def is_news(self, concept: str, conflicts: Iterable[Conflict], *, within_s: float) -> bool:
        """Whether this disagreement differs from the last recorded one, of this or another process.

        False when the store does not answer in time.
        """
        found = disagreement(conflicts)
        if concept not in self._recorded:
            try:
                async with asyncio.timeout(max(0.0, within_s)):
                    await self._look(concept)
            except (MicaError, TimeoutError):
                return False
        is_news = self._recorded.get(concept) != found
        remember(self._recorded, concept, found)
        return is_news

    def agree(self, concept: str) -> None:
        """Note that the sources agree: the next disagreement is news, even if it is the same again."""
        remember(self._recorded, concept, "")

    def note(self, event: Event) -> None:
        """Note a recorded disagreement."""
        if event.name == DEGRADED and isinstance(about := event.data.get("concept"), str):
            remember(self._recorded, about, str(event.data.get("disagreement", "")))

    async def _look(self, concept: str) -> None:
        text = concept if terms(concept) else None
        for event in await self._log.query(EventQuery(names=(DEGRADED,), text=text, limit=LOOKED_MAX)):
            if event.data.get("concept") == concept:
                self.note(event)


def degraded_data(concept: str, coherence: float, conflicts: Iterable[Conflict]) -> dict[str, object]:
    """The data of the event that records a disagreement, without the texts of sources."""
    return {"concept": concept, "coherence": coherence, "disagreement": disagreement(conflicts), "text": concept}


def disagreement(conflicts: Iterable[Conflict]) -> str:
    """A hash of all conflicting statements: the same as long as no source changes its statement."""
    said = sorted((each.key, each.source, each.against, str(each.value), each.text) for each in conflicts)
    return blake2b(msgspec.json.encode(said), digest_size=8).hexdigest()

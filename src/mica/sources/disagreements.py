"""Which disagreements of sources were told before: one that lasts is told once, not at every question."""

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
from mica.store.protocol import Store
from mica.words import terms

LOOKED_MAX = 100  # of the latest about a concept, among which its own is looked for


class Disagreements:
    """What was told last of each concept."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._told: dict[str, str] = {}

    async def is_news(self, concept: str, conflicts: Iterable[Conflict], *, within_s: float) -> bool:
        """Whether the sources disagree otherwise than when that was told last, by whichever process.

        A store that does not say in time has told nothing: then nobody is asked again because of it.
        """
        found = disagreement(conflicts)
        if concept not in self._told:
            try:
                async with asyncio.timeout(max(0.0, within_s)):
                    await self._look(concept)
            except (MicaError, TimeoutError):
                return False
        is_news = self._told.get(concept) != found
        remember(self._told, concept, found)
        return is_news

    def agree(self, concept: str) -> None:
        """They agree by now: the next disagreement is news, even the same again."""
        remember(self._told, concept, "")

    def note(self, event: Event) -> None:
        """Somebody told of one."""
        if event.name == DEGRADED and isinstance(about := event.data.get("concept"), str):
            remember(self._told, about, str(event.data.get("disagreement", "")))

    async def _look(self, concept: str) -> None:
        text = concept if terms(concept) else None
        for event in await self._store.events(EventQuery(names=(DEGRADED,), text=text, limit=LOOKED_MAX)):
            if event.data.get("concept") == concept:
                self.note(event)


def degraded_data(concept: str, coherence: float, conflicts: Iterable[Conflict]) -> dict[str, object]:
    """The data of the event that tells of a disagreement; none of the words that sources said."""
    return {"concept": concept, "coherence": coherence, "disagreement": disagreement(conflicts), "text": concept}


def disagreement(conflicts: Iterable[Conflict]) -> str:
    """Who says what against whom, in short: the same while nobody says anything else."""
    said = sorted((each.key, each.source, each.against, str(each.value), each.text) for each in conflicts)
    return blake2b(msgspec.json.encode(said), digest_size=8).hexdigest()

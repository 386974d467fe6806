"""What mica itself taught and learned, as sources beside all others: teachings and trails that name a concept's id.

Judgments, marks and crystals are sources too: see `mica.sources.judgments` and `mica.brief.mention_source`.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime
from time import monotonic

from mica.crystals.teachings import known
from mica.model.event import RETRACTED, EventQuery
from mica.model.trail import PREFIX, Trail, TrailQuery, seen, trust
from mica.model.walk import STEPS
from mica.settings import TrailSettings
from mica.sources.protocol import RANK_DATABASE, RANK_FILE, Concept, Declared, Fragment
from mica.store.protocol import Store
from mica.words import terms

OFFERED_MAX = 5  # of each; more than a reader is shown of a concept
TRAILS_MAX = 500  # that are looked at, the most walked first
PATHS_MAX = 8  # of a trail; a list of paths pays only while it is short
TEXT_CHARACTERS_MAX = 1_000
LEARNED_S = 60.0  # trails are learned now and then, without an event: for so long what was found of them holds


class Taught:
    """Teachings that stand and name a concept's id: what a person or a rule chose to keep telling."""

    declared = Declared(name="teachings", rank=RANK_DATABASE, invalidated_by=("teaching.*", RETRACTED))
    made_by = declared.invalidated_by  # after which there may be some where there were none

    def __init__(self, store: Store, *, stored: Callable[[], Awaitable[None]]) -> None:
        self._store = store
        self._stored = stored
        self.are_any: bool | None = None  # in this space; None: nobody has looked

    async def fragments(self, concept: Concept, *, now: datetime) -> Sequence[Fragment]:
        wanted = set(terms(concept.id))
        if not wanted:
            return []
        await self._stored()
        standing = await known(self._store)
        self.are_any = bool(standing)
        naming = [
            each
            for each in standing
            if each.at <= now
            and wanted <= set(terms(" ".join([*(said.text for said in each.statements), *each.topics])))
        ]
        return [
            Fragment(
                key=f"#{each.position}",
                text=each.text[:TEXT_CHARACTERS_MAX],
                confidence=each.confidence,
                at=each.at,
                source=self.declared.name,
                locator=f"#{each.position}",
                sources=(each.id, *sorted(each.cites)),
            )
            for each in reversed(naming[-OFFERED_MAX:])
        ]

    async def close(self) -> None:
        """Nothing is held."""


class Trodden:
    """Trails that are called what a concept is called, or lead through the file that it names.

    A space in which nobody opened a file, nor made a trail by hand, has none until that happens; one in which somebody
    did is asked again after a while, for any process may have learned of it.
    """

    declared = Declared(name="trails", rank=RANK_FILE, ttl_s=LEARNED_S, invalidated_by=("trail.*",))
    made_by = (*declared.invalidated_by, *STEPS)  # after which there may be some where there were none

    def __init__(self, store: Store, *, stored: Callable[[], Awaitable[None]], gates: TrailSettings) -> None:
        self._store = store
        self._stored = stored
        self._gates = gates
        self._are_any: bool | None = None
        self._until_s = math.inf
        self._heard = 0

    @property
    def are_any(self) -> bool | None:
        """Whether this space has some; None where nobody knows, or some may have been learned since."""
        return self._are_any if monotonic() < self._until_s else None

    @are_any.setter
    def are_any(self, value: bool | None) -> None:
        """Something happened, after which there may be some."""
        self._are_any = value
        self._heard += 1

    async def fragments(self, concept: Concept, *, now: datetime) -> Sequence[Fragment]:
        await self._stored()
        heard = self._heard
        found = [
            seen(each, now=now, gates=self._gates) for each in await self._store.trails(TrailQuery(limit=TRAILS_MAX))
        ]
        is_trodden = bool(found or await self._store.events(EventQuery(names=self.made_by, limit=1)))
        if heard == self._heard:  # nothing happened while it was looked at
            self._are_any = bool(found)
            self._until_s = monotonic() + LEARNED_S if is_trodden else math.inf
        fitting = [
            each for each in found if each.suspended is None and each.state != "archived" and _names(each, concept)
        ]
        return [
            Fragment(
                key=each.name,
                text=f"{each.name}: {' → '.join(each.paths[:PATHS_MAX])} (walked {each.runs} times)"[
                    :TEXT_CHARACTERS_MAX
                ],
                confidence=trust(each, self._gates),
                at=min(each.last_at, now),
                source=self.declared.name,
                locator=each.name,
                sources=each.walks,
            )
            for each in fitting[:OFFERED_MAX]
            if each.first_at <= now
        ]

    async def close(self) -> None:
        """Nothing is held."""


def _names(trail: Trail, concept: Concept) -> bool:
    """Whether a concept's id is a trail's name, its kind of task, or one of its files."""
    name = concept.id.removeprefix(PREFIX)
    return name in {trail.slug, trail.shape} or any(path == name or path.endswith(f"/{name}") for path in trail.paths)

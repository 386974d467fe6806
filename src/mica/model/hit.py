"""Search results: a mark or a crystal with its score."""

from __future__ import annotations

from datetime import datetime

import msgspec

from mica.model.crystal import Crystal
from mica.model.event import EventId
from mica.model.mark import Mark


class Hit(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A mark that matches a search, with its score.

    `parts` explains the score: the score is the sum of the parts `own`, `learned`, `neighbours`, `session` and
    `meaning`, multiplied by all other parts.
    """

    mark: Mark
    score: float
    parts: dict[str, float]
    corrected_by: EventId | None = None  # another hit of the same search that corrects this mark

    @property
    def id(self) -> EventId:
        return self.mark.id

    @property
    def text(self) -> str:
        return self.mark.text

    @property
    def at(self) -> datetime:
        return self.mark.at

    @property
    def position(self) -> int:
        assert self.mark.position is not None, "a hit is always stored"
        return self.mark.position


class CrystalHit(msgspec.Struct, frozen=True, kw_only=True):
    """A crystal that matches a search. Its score is the sum of the parts `own` and `whole` times all other parts."""

    crystal: Crystal
    score: float
    parts: dict[str, float]
    in_place_of: tuple[EventId, ...] = ()  # hits for marks and crystals that it covers and replaces, best first

    @property
    def id(self) -> EventId:
        return self.crystal.id

    @property
    def text(self) -> str:
        return self.crystal.text

    @property
    def at(self) -> datetime:
        return self.crystal.end_at

    @property
    def position(self) -> int:
        assert self.crystal.position is not None, "a hit is always stored"
        return self.crystal.position

"""Predict always, speak rarely: whether a prompt is answered with paths at all, and with which (A-18).

Measured on real sessions, text of files does not pay, and a list of paths pays only where the prompt names none. A kind
of prompt is answered while what such lists have saved in this space is more than what one costs.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from mica.select.navigation.places import Place
from mica.words import terms

PATHS_MAX = 5
WORDS_MIN = 4  # «commit», «yes», «go on»: what is meant stands elsewhere
PROBABILITY_MIN = 0.05
SHARE_MIN = 0.2  # of the best place's probability; below it a path costs more than it can save
FIRST_WORTH = {"open": 300.0, "named": 0.0}  # tokens that a list saves if its best place is needed; an upper bound
PSEUDO = 5.0  # lists, certain to be right, for which the first worth stands
SAVED_MAX = 2_000  # tokens that one task may count for: one long search must not open the gate for good


class Worth(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What lists of paths would have saved so far, by kind of prompt, whether they were said or not."""

    expected: dict[str, float] = {}  # sum of the best places' probabilities
    saved_tokens: dict[str, int] = {}

    def with_outcome(self, kind: str, best: float, saved_tokens: int) -> Worth:
        """One more task: how sure its best place was, and what the list would have saved."""
        saved = min(saved_tokens, SAVED_MAX)
        return Worth(
            expected=self.expected | {kind: self.expected.get(kind, 0.0) + best},
            saved_tokens=self.saved_tokens | {kind: self.saved_tokens.get(kind, 0) + saved},
        )

    def of(self, kind: str) -> float:
        """Tokens that a list saves if its best place is needed, as far as is known."""
        known = self.saved_tokens.get(kind, 0) + PSEUDO * FIRST_WORTH[kind]
        return known / (self.expected.get(kind, 0.0) + PSEUDO)


def kind_of(places: Sequence[Place]) -> str:
    """Whether the prompt names files itself, or leaves it open which."""
    return "named" if any(place.tier == "named" for place in places) else "open"


def listed(places: Sequence[Place]) -> list[Place]:
    """The few places that a list would have."""
    least = max(PROBABILITY_MIN, SHARE_MIN * places[0].probability) if places else PROBABILITY_MIN
    return [place for place in places[:PATHS_MAX] if place.probability >= least]


def worth_saying(prompt: str, places: Sequence[Place], *, cost_tokens: int, worth: Worth | None = None) -> list[Place]:
    """The places to name unasked: a few, or none. `cost_tokens` is what naming those of `listed` costs."""
    said = listed(places)
    if not said or len(set(terms(prompt))) < WORDS_MIN:
        return []
    return said if said[0].probability * (worth or Worth()).of(kind_of(places)) > cost_tokens else []

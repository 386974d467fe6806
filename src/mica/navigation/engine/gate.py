"""Predict always, speak rarely: whether a prompt is answered with paths at all, and with which (A-18).

Measured on real sessions, text of files does not pay, and a list of paths pays only where the prompt names none. A kind
of prompt is answered while what such lists have saved in this space is more than what one costs.
"""

from __future__ import annotations

from mica.words import terms

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Protocol, TypeVar

    class Offered(Protocol):
        """A file that may be named."""

        @property
        def probability(self) -> float: ...

        @property
        def tier(self) -> str: ...

    Any = TypeVar("Any", bound=Offered)

PATHS_MAX = 5
CONSIDERED = 10  # places that decide of which kind a prompt is, and what goes together with what
WORDS_MIN = 4  # «commit», «yes», «go on»: what is meant stands elsewhere
PROBABILITY_MIN = 0.05
SHARE_MIN = 0.2  # of the best place's probability; below it a path costs more than it can save
FIRST_WORTH = {"open": 300.0, "named": 0.0}  # tokens that a list saves if its best place is needed; an upper bound
WORTH_PSEUDO = 5.0  # lists, certain to be right, for which the first worth stands
KNOWN_MIN = 3.0  # lists, certain to be right, that a space must know of a kind of prompt before it says any
SAVED_MAX = 2_000  # tokens that one task may count for: one long search must not open the gate for good


def kind_of(places: Sequence[Offered]) -> str:
    """Whether the prompt names files itself, or leaves it open which."""
    return "named" if any(place.tier == "named" for place in places[:CONSIDERED]) else "open"


def listed(places: Sequence[Any]) -> list[Any]:
    """The few places that a list would have."""
    least = max(PROBABILITY_MIN, SHARE_MIN * places[0].probability) if places else PROBABILITY_MIN
    return [place for place in places[:PATHS_MAX] if place.probability >= least]


def says_little(prompt: str) -> bool:
    """Whether a prompt has too few words to tell what it is about."""
    return len(set(terms(prompt))) < WORDS_MIN


def worth_saying(
    prompt: str, places: Sequence[Any], *, cost_tokens: int, worth: Mapping[str, float] = FIRST_WORTH
) -> list[Any]:
    """The places to name unasked: a few, or none. `cost_tokens` is what naming those of `listed` costs."""
    said = listed(places)
    if not said or says_little(prompt):
        return []
    return said if said[0].probability * worth[kind_of(places)] > cost_tokens else []

"""Predict always, speak rarely: whether a prompt is answered with paths at all, and with which (A-18).

Measured on real sessions, text of files does not pay, and a list of paths pays only where the prompt names none.
"""

from __future__ import annotations

from collections.abc import Sequence

from mica.select.navigation.places import Place
from mica.words import terms

PATHS_MAX = 5
WORDS_MIN = 4  # «commit», «yes», «go on»: what is meant stands elsewhere
PROBABILITY_MIN = 0.05


def worth_saying(prompt: str, places: Sequence[Place]) -> list[Place]:
    """The places to name unasked: a few, or none."""
    if len(set(terms(prompt))) < WORDS_MIN or any(place.tier == "named" for place in places):
        return []
    return [place for place in places[:PATHS_MAX] if place.probability >= PROBABILITY_MIN]

"""Probabilities that come true: one count per tenth, and a cap."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

CAP = 0.9  # above it files were named that nobody opened; nothing here is surer
TENTHS = 10
PSEUDO = 6.0  # observations at the predicted value, with which each tenth begins


class Tenths(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How often predictions of each tenth were made, what they added up to, and how often they came true."""

    counts: tuple[float, ...] = (0.0,) * TENTHS
    sums: tuple[float, ...] = (0.0,) * TENTHS
    hits: tuple[float, ...] = (0.0,) * TENTHS

    def with_outcomes(self, outcomes: Iterable[tuple[float, bool]]) -> Tenths:
        counts, sums, hits = list(self.counts), list(self.sums), list(self.hits)
        for predicted, came_true in outcomes:
            tenth = tenth_of(predicted)
            counts[tenth] += 1
            sums[tenth] += predicted
            hits[tenth] += came_true
        return Tenths(counts=tuple(counts), sums=tuple(sums), hits=tuple(hits))

    def corrected(self, predicted: float) -> float:
        """The prediction, moved by how far its tenth was off so far, from 0 to the cap."""
        tenth = tenth_of(predicted)
        off = (self.hits[tenth] - self.sums[tenth]) / (self.counts[tenth] + PSEUDO)
        return min(CAP, max(0.0, predicted + off))


def tenth_of(predicted: float) -> int:
    return min(TENTHS - 1, max(0, int(predicted * TENTHS)))


def falling(probabilities: Sequence[float]) -> list[float]:
    """The same in the order of a ranking, where none may be above the one before it."""
    found: list[float] = []
    for each in probabilities:
        found.append(min(each, found[-1]) if found else each)
    return found

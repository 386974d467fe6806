"""Probabilities that come true: one count per tenth, and a cap."""

from __future__ import annotations

import math

from mica.navigation.engine.plain import Plain

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

CAP = 0.9  # above it files were named that nobody opened; nothing here is surer
TENTHS = 10
PSEUDO = 6.0  # observations at the predicted value, with which each tenth begins
LOGIT_MAX = 30.0


def probability(logit: float) -> float:
    return 1 / (1 + math.exp(-max(-LOGIT_MAX, min(LOGIT_MAX, logit))))


def tenth_of(predicted: float) -> int:
    return min(TENTHS - 1, max(0, int(predicted * TENTHS)))


def falling(probabilities: Sequence[float]) -> list[float]:
    """The same in the order of a ranking, where none may be above the one before it."""
    found: list[float] = []
    for each in probabilities:
        found.append(min(each, found[-1]) if found else each)
    return found


class Weights(Plain):
    """What an order rests on: the weight of each feature, and how far each tenth of the predictions was off."""

    start: float
    slopes: Sequence[float]
    off: Sequence[float]

    def logits(self, rows: Iterable[Sequence[float]]) -> list[float]:
        """How likely each file is needed, from minus to plus infinity."""
        start, slopes = self.start, self.slopes
        return [start + dot(slopes, row) for row in rows]

    def corrected(self, predicted: float) -> float:
        """The prediction, moved by how far its tenth was off so far, from 0 to the cap."""
        return min(CAP, max(0.0, predicted + self.off[tenth_of(predicted)]))


def dot(one: Sequence[float], other: Sequence[float]) -> float:
    return math.sumprod(one, other) if hasattr(math, "sumprod") else sum(a * b for a, b in zip(one, other, strict=True))

"""What tasks have taught, as it is kept: weights of signals, how probabilities came true, and what lists were worth."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from mica.navigation.engine.calibration import PSEUDO, TENTHS, Weights, tenth_of
from mica.navigation.engine.gate import FIRST_WORTH, KNOWN_MIN, SAVED_MAX, WORTH_PSEUDO
from mica.navigation.regression import Model


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

    @property
    def off(self) -> tuple[float, ...]:
        """By how much the predictions of each tenth were too low so far."""
        known = zip(self.hits, self.sums, self.counts, strict=True)
        return tuple((hits - total) / (count + PSEUDO) for hits, total, count in known)


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

    @property
    def by_kind(self) -> dict[str, float]:
        """Tokens that a list saves if its best place is needed; none while this space has too few counts of its own."""
        found: dict[str, float] = {}
        for kind, first in FIRST_WORTH.items():
            expected = self.expected.get(kind, 0.0)
            saved = self.saved_tokens.get(kind, 0) + WORTH_PSEUDO * first
            found[kind] = saved / (expected + WORTH_PSEUDO) if expected >= KNOWN_MIN else 0.0
        return found


class Learned(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What tasks have taught about signals and probabilities; nothing of their contents."""

    model: Model
    tenths: Tenths = Tenths()
    worth: Worth = Worth()
    taught: tuple[int, ...] = ()  # the tasks that did, as numbers

    @property
    def weights(self) -> Weights:
        """What the next question is answered with."""
        model = self.model
        slopes = [weight / scale for weight, scale in zip(model.weights[1:], model.scales, strict=True)]
        return Weights(start=model.weights[0], slopes=slopes, off=self.tenths.off)

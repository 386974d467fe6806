"""How signals become one order: a plain sum while little is known, a learned one after that."""

from __future__ import annotations

from mica.select.navigation.signals import Scores, Signals, weighed

HAND = {"content": 1.0, "prompts": 1.0, "session": 0.5, "walk": 0.3}  # each a share of its own best
NAMED, CALLED = 10.0, 5.0  # more than all others together: what is named comes first
HAND_MAX = sum(HAND.values())


def by_hand(found: Signals) -> Scores:
    """Named files first, then a sum of shares. Needs no training."""
    total = weighed(found.scores, HAND)
    for signal, weight in (("path_mention", NAMED), ("name_mention", CALLED)):
        for path, share in found.scores[signal].items():
            if share > 0.5:
                total[path] = total.get(path, 0.0) + weight * share
    return total


def guessed(score: float) -> float:
    """A cautious probability for a score made by hand; not calibrated, so never near certain."""
    return 0.75 if score >= CALLED else 0.5 * score / HAND_MAX

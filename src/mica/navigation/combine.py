"""How signals become one order without training: the start of learning, and what a learned order is measured by."""

from __future__ import annotations

from mica.navigation.engine.signals import Scores, Signals, weighed

HAND = {"content": 1.0, "prompts": 1.0, "session": 0.5, "walk": 0.3}  # each a share of its own best
NAMED, CALLED = 10.0, 5.0  # more than all others together: what is named comes first


def by_hand(found: Signals) -> Scores:
    """Named files first, then a sum of shares. Needs no training."""
    total = weighed(found.scores, HAND)
    for signal, weight in (("path_mention", NAMED), ("name_mention", CALLED)):
        for path, share in found.scores[signal].items():
            if share > 0.5:
                total[path] = total.get(path, 0.0) + weight * share
    return total

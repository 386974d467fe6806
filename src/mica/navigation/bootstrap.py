"""How sure the difference of two arms is. Sessions are what was held out at random, so sessions are what is drawn."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Iterable, Sequence

DRAWS = 1_000  # by a seed: the same tasks, the same interval
SESSIONS_MIN = 8  # of each arm; of fewer, drawing anew tells too little of how they differ

Arm = Sequence[tuple[str, float]]  # what each task came to, with its session


def difference(ours: Arm, theirs: Arm) -> tuple[float, float] | None:
    """Between which 95 % of the differences of the means lie when both arms are drawn anew, session by session.

    Tasks of one session are alike, so that drawing tasks would make the interval too narrow. None where an arm has too
    few sessions.
    """
    arms = [_sessions(each) for each in (ours, theirs)]
    if min(map(len, arms)) < SESSIONS_MIN:
        return None
    draw = random.Random(len(ours) * 1_000_003 + len(theirs))  # repeatable, not secret
    found = sorted(
        _mean(draw.choices(arms[0], k=len(arms[0]))) - _mean(draw.choices(arms[1], k=len(arms[1])))
        for _ in range(DRAWS)
    )
    return found[DRAWS // 40], found[-DRAWS // 40 - 1]


def _sessions(arm: Iterable[tuple[str, float]]) -> list[tuple[float, int]]:
    """The sum of each session, and how many tasks it had."""
    sums: defaultdict[str, tuple[float, int]] = defaultdict(lambda: (0.0, 0))
    for session, value in arm:
        total, count = sums[session]
        sums[session] = total + value, count + 1
    return list(sums.values())


def _mean(drawn: Iterable[tuple[float, int]]) -> float:
    totals, counts = zip(*drawn, strict=True)
    return float(sum(totals) / sum(counts))

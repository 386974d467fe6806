"""The numbers that a learned order rests on: for each candidate file, what every signal says of it."""

from __future__ import annotations

import heapq
import math

from mica.navigation.engine.plain import Plain
from mica.navigation.engine.signals import SIGNALS, Scores, Signals
from mica.navigation.engine.tree import Tree

CANDIDATES_EACH = 80  # of each signal's best
TOP = 10  # files of a signal that agree
RANK_SCALE = 5.0

OF_FILE = ("size", "test", "prose", "configuration", "changelog", "listed")
OF_QUESTION = ("nearest", "named")  # not how long or how late: that differs too much from place to place
NAMES: tuple[str, ...] = (
    *(f"{signal}.score" for signal in SIGNALS),
    *(f"{signal}.rank" for signal in SIGNALS),
    "agreement",
    "passed_over",
    *OF_FILE,
    *OF_QUESTION,
)


class Candidates(Plain):
    """The files that may be offered, and a row of numbers for each."""

    paths: tuple[str, ...]
    rows: tuple[tuple[float, ...], ...]


def candidates(found: Signals, tree: Tree) -> Candidates:
    """The best files of every signal, by path, each with its features."""
    ranked = {signal: _ranked(found.scores[signal]) for signal in SIGNALS}
    paths = sorted({path for best in ranked.values() for path in best})
    named = found.mentions.paths
    question = (found.similar.nearest, math.log1p(len(named)))
    rows = []
    for path in paths:
        shares = [found.scores[signal].get(path, 0.0) / found.tops[signal] for signal in SIGNALS]
        places = [ranked[signal].get(path) for signal in SIGNALS]
        near = [0.0 if place is None else RANK_SCALE / (RANK_SCALE + place) for place in places]
        agreement = sum(place is not None and place < TOP for place in places) / len(SIGNALS)
        passed_over = 1.0 if named and path not in named else 0.0
        of_file = (math.log1p(tree.size_bytes(path)) / 10, *tree.kinds(path))
        rows.append((*shares, *near, agreement, passed_over, *of_file, *question))
    return Candidates(paths=tuple(paths), rows=tuple(rows))


def _ranked(scores: Scores) -> dict[str, int]:
    """The best files with their places from 0; those with the same score share the first of their places."""
    best = heapq.nsmallest(CANDIDATES_EACH, scores.items(), key=lambda each: (-each[1], each[0]))
    places: dict[str, int] = {}
    last, place = math.nan, 0
    for index, (path, score) in enumerate(best):
        if score != last:
            last, place = score, index
        places[path] = place
    return places

"""Compute the signals that rank files for a prompt, the features made of them, and calibrated probabilities.

A signal is one kind of evidence that a file is needed, such as words in common with the prompt, or use in earlier
tasks. It gives each file a score. A feature is a number about a file, such as its score or rank by one signal. The
probability that a file is needed is computed from its features.
"""

from __future__ import annotations

import heapq
import math

from mica.navigation.engine.frozen_value import FrozenValue
from mica.navigation.engine.inverted_index import count_terms
from mica.navigation.engine.mentions import FileMentions, find_mentions
from mica.navigation.engine.task_history import SEEDS, TaskHistory, Votes
from mica.navigation.engine.tree import FileTree
from mica.words import terms

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence


QUERY_CHARACTERS_MAX = 6_000  # the beginning of a prompt whose words are scored; file names are found in a longer part
BACK = 0.6  # the score of a file of an earlier prompt is multiplied by this once for each prompt since

SIGNALS = (
    "path_mention",
    "name_mention",
    "folder_mention",
    "symbol_mention",
    "content",
    "path_words",
    "prompts",
    "subjects",
    "session",
    "recent",
    "frequent",
    "changed",
    "often_changed",
    "last_commits",
    "walk",
    "sibling",
)
Scores = dict[str, float]

CANDIDATES_EACH = 80  # the best files of each signal that become candidates
TOP = 10  # a signal agrees to a file if the file is among this many best files of the signal
RANK_SCALE = 5.0  # the rank at which the rank feature of a signal is one half

OF_FILE = ("size", "test", "prose", "configuration", "changelog", "listed")
OF_QUESTION = ("nearest", "named")  # prompt length and time are not used: they differ too much between projects
FEATURES: tuple[str, ...] = (
    *(f"{signal}.score" for signal in SIGNALS),
    *(f"{signal}.rank" for signal in SIGNALS),
    "agreement",
    "passed_over",
    *OF_FILE,
    *OF_QUESTION,
)

CAP = 0.9  # highest probability: even files named in the prompt are sometimes not opened
TENTHS = 10  # intervals of probability that are calibrated separately
PSEUDO = 6.0  # virtual observations at the predicted value that each interval starts with
LOGIT_MAX = 30.0


class PromptQuestion(FrozenValue):
    """A prompt, with the files touched for each earlier prompt of its session, oldest prompt first."""

    text: str
    session: tuple[tuple[str, ...], ...] = ()


class Signals(FrozenValue):
    """The scores of files by signal, and the evidence from which reasons are written."""

    scores: dict[str, Scores]
    tops: dict[str, float]  # the best score of each signal
    mentions: FileMentions
    similar: Votes  # from earlier prompts
    subjects: Votes  # from the subjects of commits
    word_count: int  # distinct terms of the prompt
    task_count: int  # tasks in the history


def compute_signals(tree: FileTree, past: TaskHistory, question: PromptQuestion) -> Signals:
    """Score the files of the tree by every signal. Files outside the tree get no score."""
    query = count_terms(terms(question.text[:QUERY_CHARACTERS_MAX]))
    named = find_mentions(question.text, tree.names, tree.definers)
    similar, subjects = past.tasks.vote(query), past.commits.vote(query)
    scores: dict[str, Scores] = {
        "path_mention": named.paths,
        "name_mention": named.names,
        "folder_mention": named.folders,
        "symbol_mention": named.symbols,
        "content": tree.by_path(tree.content.scores(query)),
        "path_words": tree.by_path(tree.path_words.scores(query)),
        "prompts": tree.restrict(similar.scores),
        "subjects": tree.restrict(subjects.scores),
        "session": tree.restrict(score_session(question.session)),
        "recent": tree.restrict(past.recent("short")),
        "frequent": tree.restrict(past.recent("long")),
        "changed": tree.restrict(past.recently_changed("short")),
        "often_changed": tree.restrict(past.recently_changed("long")),
        "last_commits": tree.restrict(past.last_commits()),
    }
    seeds = weigh(scores, {"path_mention": 1.0, "content": 1.0, "prompts": 1.0, "session": 0.5})
    scores["walk"] = tree.restrict(past.walk(seeds))
    best = heapq.nsmallest(SEEDS, seeds, key=lambda path: (-seeds[path], path))
    scores["sibling"] = tree.restrict(tree.siblings(best))
    return Signals(
        scores=scores,
        tops={signal: max(by_path.values(), default=1.0) for signal, by_path in scores.items()},
        mentions=named,
        similar=similar,
        subjects=subjects,
        word_count=len(query),
        task_count=past.task_count,
    )


def score_session(prompts: Sequence[Sequence[str]]) -> Scores:
    """Score the files that were touched for earlier prompts of the session; the latest prompt counts most.

    `prompts` has the files of each of these prompts, oldest prompt first.
    """
    scores: Scores = {}
    for back, files in enumerate(reversed(prompts)):
        for path in dict.fromkeys(files):
            scores[path] = scores.get(path, 0.0) + BACK**back
    return scores


def weigh(scores: Mapping[str, Scores], weights: Mapping[str, float]) -> Scores:
    """Return, for each file, the weighted sum of its scores by the signals in `weights`.

    `scores` has the scores of files by signal. Each score is first divided by the best score of its signal.
    """
    total: Scores = {}
    for signal, weight in weights.items():
        by_path = scores.get(signal)
        if by_path:
            best = max(by_path.values())
            for path, score in by_path.items():
                total[path] = total.get(path, 0.0) + weight * score / best
    return total


class Candidates(FrozenValue):
    """The files that may be predicted, each with its row of features: one value for each name in FEATURES."""

    paths: tuple[str, ...]
    rows: tuple[tuple[float, ...], ...]


def collect_candidates(signals: Signals, tree: FileTree) -> Candidates:
    """Collect the CANDIDATES_EACH best files of every signal, and compute their features.

    The files of the result are sorted by path.
    """
    ranked = {signal: _rank(signals.scores[signal]) for signal in SIGNALS}
    paths = sorted({path for best in ranked.values() for path in best})
    named = signals.mentions.paths
    question = (signals.similar.nearest, math.log1p(len(named)))
    rows = []
    for path in paths:
        shares = [signals.scores[signal].get(path, 0.0) / signals.tops[signal] for signal in SIGNALS]
        places = [ranked[signal].get(path) for signal in SIGNALS]
        near = [0.0 if place is None else RANK_SCALE / (RANK_SCALE + place) for place in places]
        agreement = sum(place is not None and place < TOP for place in places) / len(SIGNALS)
        passed_over = 1.0 if named and path not in named else 0.0
        of_file = (math.log1p(tree.size_bytes(path)) / 10, *tree.kinds(path))
        rows.append((*shares, *near, agreement, passed_over, *of_file, *question))
    return Candidates(paths=tuple(paths), rows=tuple(rows))


def _rank(scores: Scores) -> dict[str, int]:
    """The best files of a signal with their ranks from 0. Files with equal scores share the better rank."""
    best = heapq.nsmallest(CANDIDATES_EACH, scores.items(), key=lambda each: (-each[1], each[0]))
    places: dict[str, int] = {}
    last, place = math.nan, 0
    for index, (path, score) in enumerate(best):
        if score != last:
            last, place = score, index
        places[path] = place
    return places


def to_probability(logit: float) -> float:
    return 1 / (1 + math.exp(-max(-LOGIT_MAX, min(LOGIT_MAX, logit))))


def tenth_of(predicted: float) -> int:
    return min(TENTHS - 1, max(0, int(predicted * TENTHS)))


def make_monotone(probabilities: Sequence[float]) -> list[float]:
    """Return the list with no value higher than the value before it: higher values are lowered."""
    lowered: list[float] = []
    for each in probabilities:
        lowered.append(min(each, lowered[-1]) if lowered else each)
    return lowered


class Weights(FrozenValue):
    """The learned weights: an intercept, one slope per feature, and a correction for each interval of probability."""

    start: float
    slopes: Sequence[float]
    corrections: Sequence[float]

    def logits(self, rows: Iterable[Sequence[float]]) -> list[float]:
        """Return the log-odds that each file is needed. `rows` has the features of each file."""
        start, slopes = self.start, self.slopes
        return [start + dot_product(slopes, row) for row in rows]

    def correct(self, predicted: float) -> float:
        """Calibrate a predicted probability: add the correction of its interval, and limit it to 0 … CAP."""
        return min(CAP, max(0.0, predicted + self.corrections[tenth_of(predicted)]))


def dot_product(one: Sequence[float], other: Sequence[float]) -> float:
    return math.sumprod(one, other) if hasattr(math, "sumprod") else sum(a * b for a, b in zip(one, other, strict=True))

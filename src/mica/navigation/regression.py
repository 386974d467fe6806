"""An online logistic regression: from the features of a file, it computes the probability that a task needs the file.

It starts with a prior, a model learned from a public history, and learns from one task at a time. After each task, the
weights are set to their most probable values given the prior and all tasks so far; the more certain a weight is, the
less it moves. Earlier tasks are summarized in one vector and one matrix, so learning costs the same after ten tasks and
after ten thousand. It is plain Python: learning from a task takes a few milliseconds.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Sequence
from importlib.resources import files

import msgspec

from mica.navigation.engine.prediction import FIRST_WORTH, KNOWN_MIN, SAVED_MAX, WORTH_PSEUDO
from mica.navigation.engine.signals import (
    FEATURES,
    PSEUDO,
    TENTHS,
    Candidates,
    Scores,
    Weights,
    tenth_of,
    to_probability,
)
from mica.navigation.engine.signals import dot_product as _dot

NEAR_MAX, FAR_MAX = (
    25,
    15,
)  # training rows for files that a task did not need: the best by untrained scores, and a sample of the rest
STEPS = 2  # of Newton's method; more steps change nothing
HALVINGS = 6  # attempts to shorten a step of Newton's method that makes the fit worse
VERSION = 1

Vector = list[float]
Matrix = list[list[float]]  # the lower half of a symmetric matrix, row by row


class SignalModel(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The regression model: a weight for each feature, and the precision matrix of the weights."""

    version: int
    names: tuple[str, ...]
    scales: Vector  # divisors of the features
    weights: Vector  # the first is the intercept
    precision: Matrix  # row by row, up to the diagonal
    tasks: int = 0  # the number of tasks that the model has learned from, without those of the prior
    source: str = ""  # what the prior was learned from

    def fits(self) -> bool:
        """True if the model has the version and the features of this program, so that it can be used."""
        return self.version == VERSION and self.names == FEATURES and len(self.weights) == len(FEATURES) + 1


class TrainingTask(msgspec.Struct, frozen=True, kw_only=True):
    """The training rows of one task, in three lists of equal length. Each row is for one file."""

    rows: list[Vector]  # the features of the file
    needed: list[bool]  # whether the task needed the file
    counts: list[float]  # how many files the row represents: more than 1 if the file is a sample of others


def load_prior() -> SignalModel:
    """Load the model that every space starts with. The script bench/_prior.py learned it from a public history."""
    return msgspec.json.decode(files("mica.navigation").joinpath("prior.json").read_bytes(), type=SignalModel)


def make_training_task(
    candidates: Candidates, by_hand: Scores, needed: Collection[str], *, scales: Sequence[float]
) -> TrainingTask:
    """Make the training rows of a task from its candidate files, which have their features in `candidates`.

    There is a row for each candidate in `needed`, for the 25 others with the best scores in `by_hand`, and for a sample
    of the rest. `by_hand` has the scores of files by a fixed formula, and `scales` has the divisor of each feature.
    """
    order = sorted(range(len(candidates.paths)), key=lambda index: (-by_hand.get(candidates.paths[index], 0.0), index))
    hits = [index for index in order if candidates.paths[index] in needed]
    others = [index for index in order if candidates.paths[index] not in needed]
    near, rest = others[:NEAR_MAX], others[NEAR_MAX:]
    far = rest[:: max(1, -(-len(rest) // FAR_MAX))]
    chosen = [*hits, *near, *far]
    share = len(rest) / len(far) if far else 1.0
    return TrainingTask(
        rows=[[1.0, *(v / s for v, s in zip(candidates.rows[index], scales, strict=True))] for index in chosen],
        needed=[True] * len(hits) + [False] * (len(near) + len(far)),
        counts=[1.0] * (len(hits) + len(near)) + [share] * len(far),
    )


def update_model(model: SignalModel, task: TrainingTask) -> SignalModel:
    """Return a copy of the model that has also learned from `task`."""
    centre = model.weights
    weights = list(centre)
    cost = _cost(model, task, weights)
    for _ in range(STEPS):
        step = _step(model, task, weights)
        for _ in range(HALVINGS):
            moved = [weight + change for weight, change in zip(weights, step, strict=True)]
            if (after := _cost(model, task, moved)) <= cost:
                weights, cost = moved, after
                break
            step = [change / 2 for change in step]
    precision = _curvature(model.precision, task, weights)
    return msgspec.structs.replace(model, weights=weights, precision=precision, tasks=model.tasks + 1)


def _step(model: SignalModel, task: TrainingTask, weights: Vector) -> Vector:
    away = [weight - centre for weight, centre in zip(weights, model.weights, strict=True)]
    gradient = [-pull for pull in _times(model.precision, away)]
    for row, needed, count in zip(task.rows, task.needed, task.counts, strict=True):
        surprise = count * (needed - to_probability(_dot(row, weights)))
        gradient = [total + surprise * value for total, value in zip(gradient, row, strict=True)]
    return solve(_curvature(model.precision, task, weights), gradient)


def _curvature(precision: Matrix, task: TrainingTask, weights: Vector) -> Matrix:
    total = [list(row) for row in precision]
    for row, count in zip(task.rows, task.counts, strict=True):
        p = to_probability(_dot(row, weights))
        spread = count * p * (1 - p)
        for index, value in enumerate(row):
            if value:
                scaled = spread * value
                line = total[index]
                for other in range(index + 1):
                    line[other] += scaled * row[other]
    return total


def _cost(model: SignalModel, task: TrainingTask, weights: Vector) -> float:
    away = [weight - centre for weight, centre in zip(weights, model.weights, strict=True)]
    total = _dot(away, _times(model.precision, away)) / 2
    for row, needed, count in zip(task.rows, task.needed, task.counts, strict=True):
        logit = _dot(row, weights)
        total += count * (max(logit, 0.0) + math.log1p(math.exp(-abs(logit))) - needed * logit)
    return total


def _times(lower: Matrix, vector: Vector) -> Vector:
    """Return the product of a symmetric matrix and a vector. `lower` is the lower half of the matrix."""
    product = [0.0] * len(vector)
    for index, row in enumerate(lower):
        value = vector[index]
        total = row[index] * value
        for other in range(index):
            total += row[other] * vector[other]
            product[other] += row[other] * value
        product[index] += total
    return product


def solve(lower: Matrix, right: Vector) -> Vector:
    """Return the solution of a linear system with the right side `right`, by Cholesky decomposition.

    The matrix of the system must be symmetric and positive definite; `lower` is its lower half.
    """
    size = len(right)
    root: Matrix = []
    for index in range(size):
        line: Vector = []
        for other in range(index):
            line.append((lower[index][other] - _dot(line[:other], root[other][:other])) / root[other][other])
        line.append(math.sqrt(max(1e-12, lower[index][index] - _dot(line, line))))
        root.append(line)
    forward: Vector = []
    for index in range(size):
        forward.append((right[index] - _dot(root[index][:index], forward)) / root[index][index])
    solution = [0.0] * size
    for index in reversed(range(size)):
        later = sum(root[other][index] * solution[other] for other in range(index + 1, size))
        solution[index] = (forward[index] - later) / root[index][index]
    return solution


class Tenths(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Statistics about past predictions, from which new predictions are calibrated.

    The range of probabilities is split into ten intervals. Each field has one number for each interval.
    """

    counts: tuple[float, ...] = (0.0,) * TENTHS  # predictions with a probability in the interval
    sums: tuple[float, ...] = (0.0,) * TENTHS  # the sum of their probabilities
    hits: tuple[float, ...] = (0.0,) * TENTHS  # how many of the predicted files were needed

    def with_outcomes(self, outcomes: Iterable[tuple[float, bool]]) -> Tenths:
        counts, sums, hits = list(self.counts), list(self.sums), list(self.hits)
        for predicted, came_true in outcomes:
            tenth = tenth_of(predicted)
            counts[tenth] += 1
            sums[tenth] += predicted
            hits[tenth] += came_true
        return Tenths(counts=tuple(counts), sums=tuple(sums), hits=tuple(hits))

    @property
    def corrections(self) -> tuple[float, ...]:
        """For each interval, the number to add to a predicted probability.

        It is positive if the predictions in the interval were too low on average, and negative if they were too high.
        With few predictions it is close to 0.
        """
        known = zip(self.hits, self.sums, self.counts, strict=True)
        return tuple((hits - total) / (count + PSEUDO) for hits, total, count in known)


class ListSavings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The tokens that lists of files, offered with prompts, have saved so far, for each kind of prompt.

    A prompt that names one of the listed files is of the kind "named", any other is "open". A list that was not shown
    counts with the tokens that it would have saved.
    """

    expected: dict[str, float] = {}  # by kind: the sum over all lists of the probability that the first file is needed
    saved_tokens: dict[str, int] = {}  # by kind: the tokens that all lists together have saved

    def with_outcome(self, kind: str, best: float, saved_tokens: int) -> ListSavings:
        """Return a copy that includes one more list, shown with a prompt of this kind.

        `best` is the probability that the list's first file is needed, and `saved_tokens` is what the list saved; at
        most SAVED_MAX tokens are counted.
        """
        saved = min(saved_tokens, SAVED_MAX)
        return ListSavings(
            expected=self.expected | {kind: self.expected.get(kind, 0.0) + best},
            saved_tokens=self.saved_tokens | {kind: self.saved_tokens.get(kind, 0) + saved},
        )

    @property
    def by_kind(self) -> dict[str, float]:
        """For each kind of prompt, the tokens that a list saves if its first file is needed.

        It is 0 while too few lists of this kind are known.
        """
        worth: dict[str, float] = {}
        for kind, first in FIRST_WORTH.items():
            expected = self.expected.get(kind, 0.0)
            saved = self.saved_tokens.get(kind, 0) + WORTH_PSEUDO * first
            worth[kind] = saved / (expected + WORTH_PSEUDO) if expected >= KNOWN_MIN else 0.0
        return worth


class LearnedModel(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Everything that was learned from the tasks of a space: weights, calibration and savings. It contains no text."""

    model: SignalModel
    tenths: Tenths = Tenths()
    worth: ListSavings = ListSavings()
    task_numbers: tuple[int, ...] = msgspec.field(default=(), name="taught")  # hashes of the tasks used for learning

    @property
    def weights(self) -> Weights:
        """The model's weights and calibration in the form that the engine uses."""
        model = self.model
        slopes = [weight / scale for weight, scale in zip(model.weights[1:], model.scales, strict=True)]
        return Weights(start=model.weights[0], slopes=slopes, corrections=self.tenths.corrections)

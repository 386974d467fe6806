"""An online logistic regression over the features of files. It starts with a prior and learns one task at a time.

The prior is a model learned from a public history. After each task, the weights are set to their most probable values
given the prior and all tasks so far; the more certain a weight is, the less it moves. Earlier tasks are summarized in
one vector and one matrix, so learning costs the same after ten tasks and after ten thousand. It is plain Python: a task
takes a few milliseconds.
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
)  # files of a task that were not needed: the best untrained scores, and a sample of the others
STEPS = 2  # of Newton's method; more steps change nothing
HALVINGS = 6
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
    tasks: int = 0
    source: str = ""

    def fits(self) -> bool:
        """True if the model was made for the current version and list of features."""
        return self.version == VERSION and self.names == FEATURES and len(self.weights) == len(FEATURES) + 1


class TrainingTask(msgspec.Struct, frozen=True, kw_only=True):
    """The training rows of one task: features of a file, whether it was needed, and how many files it represents."""

    rows: list[Vector]
    needed: list[bool]
    counts: list[float]


def load_prior() -> SignalModel:
    """Load the model to start with, which bench/_prior.py learned from a public history."""
    return msgspec.json.decode(files("mica.navigation").joinpath("prior.json").read_bytes(), type=SignalModel)


def make_training_task(
    candidates: Candidates, by_hand: Scores, needed: Collection[str], *, scales: Sequence[float]
) -> TrainingTask:
    """Choose the training rows of a task: all needed files, the best 25 others by `by_hand`, and a sample of the rest.

    `by_hand` are the untrained scores of files; `scales` are the divisors of the features.
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
    """Compute the model after one more task. The given model is not changed."""
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
    """Multiply a symmetric matrix, given by its lower half, by a vector."""
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
    """Solve a linear system whose symmetric positive definite matrix is given by its lower half (Cholesky)."""
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
    """Counts for calibration, in ten intervals of predicted probability.

    Each interval has the number of its predictions, the sum of their probabilities, and how many of the predicted files
    were needed.
    """

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
    def corrections(self) -> tuple[float, ...]:
        """The amount by which the predictions in each interval were too low so far; negative if they were too high."""
        known = zip(self.hits, self.sums, self.counts, strict=True)
        return tuple((hits - total) / (count + PSEUDO) for hits, total, count in known)


class ListSavings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The tokens that lists of paths have saved or would have saved so far, by kind of prompt."""

    expected: dict[str, float] = {}  # sum of the probabilities of the best file of each list
    saved_tokens: dict[str, int] = {}

    def with_outcome(self, kind: str, best: float, saved_tokens: int) -> ListSavings:
        """Return a copy that includes one more list: the probability of its best file, and the tokens that it saved."""
        saved = min(saved_tokens, SAVED_MAX)
        return ListSavings(
            expected=self.expected | {kind: self.expected.get(kind, 0.0) + best},
            saved_tokens=self.saved_tokens | {kind: self.saved_tokens.get(kind, 0) + saved},
        )

    @property
    def by_kind(self) -> dict[str, float]:
        """The tokens that a list saves if its best file is needed, for each kind of prompt. 0 if tasks are too few."""
        worth: dict[str, float] = {}
        for kind, first in FIRST_WORTH.items():
            expected = self.expected.get(kind, 0.0)
            saved = self.saved_tokens.get(kind, 0) + WORTH_PSEUDO * first
            worth[kind] = saved / (expected + WORTH_PSEUDO) if expected >= KNOWN_MIN else 0.0
        return worth


class LearnedModel(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Everything learned from tasks: weights, calibration and savings. It contains no text."""

    model: SignalModel
    tenths: Tenths = Tenths()
    worth: ListSavings = ListSavings()
    task_numbers: tuple[int, ...] = msgspec.field(default=(), name="taught")  # of tasks already used for learning

    @property
    def weights(self) -> Weights:
        """The model's weights and calibration in the form that the engine uses."""
        model = self.model
        slopes = [weight / scale for weight, scale in zip(model.weights[1:], model.scales, strict=True)]
        return Weights(start=model.weights[0], slopes=slopes, corrections=self.tenths.corrections)

"""A logistic regression over the features that learns one task at a time, and begins with a prior.

After each task the weights move to the most probable ones given the prior, all tasks so far and this one; what they
were sure of moves least. Nothing is kept of earlier tasks but a vector and a matrix, so learning costs the same after
ten tasks and after ten thousand. Plain Python: a task takes some milliseconds.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from importlib.resources import files

import msgspec

from mica.navigation.engine.calibration import dot as _dot
from mica.navigation.engine.calibration import probability
from mica.navigation.engine.features import NAMES, Candidates
from mica.navigation.engine.signals import Scores

NEAR_MAX, FAR_MAX = 25, 15  # files of a task that were not needed: the best by hand, and some of the others
STEPS = 2  # of Newton's method; more change nothing
HALVINGS = 6
VERSION = 1

Vector = list[float]
Matrix = list[list[float]]  # of which the lower half is used


class Model(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What was learned: the weight of each feature, and how sure that is."""

    version: int
    names: tuple[str, ...]
    scales: Vector  # by which features are divided
    weights: Vector  # the first is that of being a candidate at all
    precision: Matrix  # row by row, up to the diagonal
    tasks: int = 0
    source: str = ""

    def fits(self) -> bool:
        """Whether it is about the features that there are."""
        return self.version == VERSION and self.names == NAMES and len(self.weights) == len(NAMES) + 1


class Lesson(msgspec.Struct, frozen=True, kw_only=True):
    """Files of one task: what was known of each, whether it was needed, and for how many it stands."""

    rows: list[Vector]
    needed: list[bool]
    counts: list[float]


def prior() -> Model:
    """What is known before anything was seen here: learned from a public history by bench/_prior.py."""
    return msgspec.json.decode(files("mica.navigation").joinpath("prior.json").read_bytes(), type=Model)


def lesson(found: Candidates, by_hand: Scores, needed: Collection[str], *, scales: Sequence[float]) -> Lesson:
    """All files that were needed, the best that were not, and every n-th of the others in their place."""
    order = sorted(range(len(found.paths)), key=lambda index: (-by_hand.get(found.paths[index], 0.0), index))
    hits = [index for index in order if found.paths[index] in needed]
    others = [index for index in order if found.paths[index] not in needed]
    near, rest = others[:NEAR_MAX], others[NEAR_MAX:]
    far = rest[:: max(1, -(-len(rest) // FAR_MAX))]
    chosen = [*hits, *near, *far]
    share = len(rest) / len(far) if far else 1.0
    return Lesson(
        rows=[[1.0, *(v / s for v, s in zip(found.rows[index], scales, strict=True))] for index in chosen],
        needed=[True] * len(hits) + [False] * (len(near) + len(far)),
        counts=[1.0] * (len(hits) + len(near)) + [share] * len(far),
    )


def learned(model: Model, task: Lesson) -> Model:
    """The model after one more task."""
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


def _step(model: Model, task: Lesson, weights: Vector) -> Vector:
    away = [weight - centre for weight, centre in zip(weights, model.weights, strict=True)]
    gradient = [-pull for pull in _times(model.precision, away)]
    for row, needed, count in zip(task.rows, task.needed, task.counts, strict=True):
        surprise = count * (needed - probability(_dot(row, weights)))
        gradient = [total + surprise * value for total, value in zip(gradient, row, strict=True)]
    return solved(_curvature(model.precision, task, weights), gradient)


def _curvature(precision: Matrix, task: Lesson, weights: Vector) -> Matrix:
    total = [list(row) for row in precision]
    for row, count in zip(task.rows, task.counts, strict=True):
        p = probability(_dot(row, weights))
        spread = count * p * (1 - p)
        for index, value in enumerate(row):
            if value:
                scaled = spread * value
                line = total[index]
                for other in range(index + 1):
                    line[other] += scaled * row[other]
    return total


def _cost(model: Model, task: Lesson, weights: Vector) -> float:
    away = [weight - centre for weight, centre in zip(weights, model.weights, strict=True)]
    total = _dot(away, _times(model.precision, away)) / 2
    for row, needed, count in zip(task.rows, task.needed, task.counts, strict=True):
        logit = _dot(row, weights)
        total += count * (max(logit, 0.0) + math.log1p(math.exp(-abs(logit))) - needed * logit)
    return total


def _times(lower: Matrix, vector: Vector) -> Vector:
    """A symmetric matrix, of which the lower half is given, times a vector."""
    product = [0.0] * len(vector)
    for index, row in enumerate(lower):
        value = vector[index]
        total = row[index] * value
        for other in range(index):
            total += row[other] * vector[other]
            product[other] += row[other] * value
        product[index] += total
    return product


def solved(lower: Matrix, right: Vector) -> Vector:
    """The vector that a symmetric positive matrix turns into `right` (Cholesky)."""
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
    found = [0.0] * size
    for index in reversed(range(size)):
        later = sum(root[other][index] * found[other] for other in range(index + 1, size))
        found[index] = (forward[index] - later) / root[index][index]
    return found

"""Learn the weights of unit counts from authors' summaries, by logistic regression on a few signals.

For every unit of an instance's marks: does the reference have it? Each instance weighs the same. The rarity of common
units and the weight of a unit's own name come from the same instances, if three projects have the unit.
"""

from __future__ import annotations

import hashlib
import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import NamedTuple, TypeAlias

import numpy
from numpy.typing import NDArray

from _judge import Instance
from mica.crystals.digest import DigestSource, count_mentions
from mica.crystals.salience import SIGNALS, Table, signals, units
from mica.model.event import EventId

COMMON_SHARE = 0.03  # of the instances that have a unit, for it to be in the table
PROJECTS_MIN = 3
RIDGE, SAMPLE = 3.0, 0.1  # units of an instance are not independent: they count a tenth
NAME_RIDGE = 4.0
ROUNDS = 12
PARTS = 4  # of a project that alone makes a family

Numbers: TypeAlias = NDArray[numpy.float64]


class Lesson(NamedTuple):
    """The counts of one instance, computed once for all folds."""

    instance: Instance
    units: list[str]
    signals: Numbers  # a row for each unit; rarity is filled in when it is known what is common
    in_reference: Numbers  # 1 for a unit in the reference


def sources(instance: Instance) -> list[DigestSource]:
    return [DigestSource(EventId(mark.id), mark.text, tuple(mark.tags)) for mark in instance.marks]


def lessons(instances: Iterable[Instance]) -> list[Lesson]:
    return [lesson for each in instances if (lesson := read(each)).units]


def read(instance: Instance) -> Lesson:
    counted = count_mentions(sources(instance))
    in_reference = frozenset(units(instance.reference))
    rows = [signals(unit, found, counted, 0.0) for unit, found in counted.units.items()]
    return Lesson(
        instance=instance,
        units=list(counted.units),
        signals=numpy.array(rows, dtype=float),
        in_reference=numpy.array([unit in in_reference for unit in counted.units], dtype=float),
    )


def fold(instance: Instance, alone: Iterable[str]) -> str:
    """Name the fold to leave out when an instance is scored: its project, or a quarter of a project without peers."""
    if instance.source not in alone:
        return instance.source
    return f"{instance.source}/{int(fingerprint(instance), 16) % PARTS}"


def alone(instances: Iterable[Instance]) -> set[str]:
    """Return the projects that are the only one of their family."""
    projects: dict[str, set[str]] = defaultdict(set)
    for instance in instances:
        projects[instance.family].add(instance.source)
    return {project for found in projects.values() if len(found) == 1 for project in found}


def fingerprint(instance: Instance) -> str:
    return hashlib.sha256(instance.id.encode()).hexdigest()[:10]


def learn(training: Sequence[Lesson]) -> Table:
    """Learn the salience table from these lessons."""
    rarities, rare = rarity_table(training)
    plain = Table(0.0, {}, {unit: (rarity, 0.0) for unit, rarity in rarities.items()}, rare)
    signal = numpy.vstack([lesson.signals for lesson in training])
    signal[:, SIGNALS.index("rarity")] = [plain.rarity(unit) for lesson in training for unit in lesson.units]
    in_reference = numpy.concatenate([lesson.in_reference for lesson in training])
    share = numpy.concatenate([numpy.full(len(lesson.units), 1 / len(lesson.units)) for lesson in training])
    intercept, weights = regress(signal, in_reference, share * (SAMPLE * len(in_reference) / share.sum()))
    own = own_names(training, in_reference, 1 / (1 + numpy.exp(-(intercept + signal @ weights))))
    return Table(
        intercept=round(intercept, 4),
        weights={name: round(float(weight), 4) for name, weight in zip(SIGNALS, weights, strict=True)},
        words={unit: (rarity, own[unit]) for unit, rarity in sorted(rarities.items())},
        rare=rare,
        learned_from=tuple(sorted(fingerprint(lesson.instance) for lesson in training)),
    )


def rarity_table(training: Sequence[Lesson]) -> tuple[dict[str, float], float]:
    """Return the rarity of each unit that many instances of several projects have, and one value for all others."""
    having: dict[str, list[str]] = defaultdict(list)
    for lesson in training:
        for unit in lesson.units:
            having[unit].append(lesson.instance.source)
    total = len(training)

    def rarity(count: float) -> float:
        return round(math.log(1 + total / (1 + count)) / math.log(1 + total), 3)

    common = {
        unit: rarity(len(projects))
        for unit, projects in having.items()
        if not unit.isdigit() and len(projects) >= COMMON_SHARE * total and len(set(projects)) >= PROJECTS_MIN
    }
    return common, rarity(COMMON_SHARE * total / 2)


def regress(signal: Numbers, in_reference: Numbers, share: Numbers) -> tuple[float, Numbers]:
    """Fit a logistic regression with a ridge on standardised signals, by Newton's method: intercept and weights."""
    mean = numpy.average(signal, axis=0, weights=share)
    spread = numpy.sqrt(numpy.average((signal - mean) ** 2, axis=0, weights=share)) + 1e-9
    matrix = numpy.hstack([numpy.ones((len(signal), 1)), (signal - mean) / spread])
    ridge = numpy.eye(matrix.shape[1]) * RIDGE
    ridge[0, 0] = 0
    weights = numpy.zeros(matrix.shape[1])
    for _ in range(ROUNDS):
        likely = 1 / (1 + numpy.exp(-matrix @ weights))
        slope = matrix.T @ (share * (in_reference - likely)) - ridge @ weights
        curve = (matrix * (share * likely * (1 - likely))[:, None]).T @ matrix + ridge
        weights += numpy.linalg.solve(curve, slope)
    plain = weights[1:] / spread
    return float(weights[0] - mean @ plain), plain


def own_names(training: Sequence[Lesson], in_reference: Numbers, likely: Numbers) -> dict[str, float]:
    """Estimate how much likelier each unit is in the reference than its counts predict, in log odds, shrunk to 0."""
    surplus: dict[str, float] = defaultdict(float)
    doubt: dict[str, float] = defaultdict(float)
    every = (unit for lesson in training for unit in lesson.units)
    for unit, is_in, chance in zip(every, in_reference, likely, strict=True):
        surplus[unit] += is_in - chance
        doubt[unit] += chance * (1 - chance)
    return {unit: round(float(surplus[unit] / (doubt[unit] + NAME_RIDGE)), 3) for unit in surplus}

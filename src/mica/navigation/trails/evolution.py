"""What a day did to the trails of a space, and what a task costs before anybody helps. Pure."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime

import msgspec

from mica.model.trail import Trail, passes, ranked
from mica.model.walk import WORKFLOW, Walk
from mica.navigation.trails.task_kinds import verb_class
from mica.settings import TrailSettings

CRYSTALLIZED_MAX = 5  # in one evolution, the best first: a flood of commands helps nobody
NAMED_MAX = 50  # crystallized trails that are in use: each costs a line in every agent's list of commands
LISTED_MAX = 20  # trails of each kind that a report names


class Evolution(msgspec.Struct, frozen=True, kw_only=True):
    """A day's report: names of trails, the best first."""

    at: datetime
    trails: int
    shapes: int
    states: dict[str, int]
    hot: tuple[str, ...] = ()  # that pass the gate for candidates and have no name yet
    crystallized: tuple[str, ...] = ()  # now
    refreshed: tuple[str, ...] = ()  # whose steps have changed: a new version
    cooling: tuple[str, ...] = ()  # soon archived, or suspended
    archived: tuple[str, ...] = ()  # that had a name
    suspended: tuple[str, ...] = ()
    drifted: dict[str, tuple[str, ...]] = {}  # what led to new versions, by name
    measured: tuple[str, ...] = ()  # whose saving is known anew
    published: tuple[str, ...] = ()  # files that were written
    withdrawn: tuple[str, ...] = ()  # and that were removed
    merged: int = 0  # keys that other trails stand for


class Baseline(msgspec.Struct, frozen=True, kw_only=True):
    """What tasks of one kind cost, counted from the log (A-01)."""

    shape: str  # what is done, or the workflow
    tasks: int
    tokens_mean: int  # read and searched, all in all
    tokens_before_edit_median: int  # read and searched before the first change, of the tasks that changed something


class Stats(msgspec.Struct, frozen=True, kw_only=True):
    """How much was learned, and from what."""

    walks: int
    trails: int
    shapes: int
    states: dict[str, int]
    known_outcomes: int  # walks whose end is explicit
    agents: dict[str, int]  # walks of each
    baselines: tuple[Baseline, ...] = ()  # of the most tasks first


def to_crystallize(trails: Sequence[Trail], gates: TrailSettings) -> list[Trail]:
    """The trails that a rule crystallizes now, the best first: a few at a time, few in all, and none twice.

    One that shares more than half of its files with a crystallized one would be a second name for the same place.
    """
    named = [trail for trail in trails if trail.version and trail.state == "crystallized"]
    room = min(CRYSTALLIZED_MAX, NAMED_MAX - len(named))
    places = [set(trail.paths) for trail in named]
    chosen: list[Trail] = []
    for trail in ranked(trails):
        files = set(trail.paths)
        if len(chosen) >= room:
            break
        if trail.version or trail.state != "hot" or not passes(trail, gates):
            continue
        if all(2 * len(files & place) <= min(len(files), len(place)) for place in places):
            chosen.append(trail)
            places.append(files)
    return chosen


def to_refresh(trails: Iterable[Trail]) -> list[Trail]:
    """The crystallized trails that are walked otherwise than they were named."""
    return [trail for trail in ranked(trails) if trail.drifted and trail.state == "crystallized"]


def evolution(
    trails: Sequence[Trail],
    *,
    at: datetime,
    crystallized: Sequence[str] = (),
    refreshed: Sequence[str] = (),
    drifted: Mapping[str, tuple[str, ...]] | None = None,
    measured: Sequence[str] = (),
) -> Evolution:
    """The report of trails as they are seen at a moment, after so many were crystallized, refreshed and measured."""
    best = ranked(trails)

    def names(*states: str, named: bool) -> tuple[str, ...]:
        fitting = (trail.name for trail in best if trail.state in states and bool(trail.version) == named)
        return tuple(fitting)[:LISTED_MAX]

    return Evolution(
        at=at,
        trails=len(trails),
        shapes=len({trail.shape for trail in trails}),
        states=dict(Counter(trail.state for trail in trails)),
        hot=names("hot", named=False),
        crystallized=tuple(crystallized),
        refreshed=tuple(refreshed),
        drifted=dict(drifted or {}),
        measured=tuple(measured),
        cooling=names("cooling", named=True),
        archived=names("archived", named=True),
        suspended=tuple(trail.name for trail in best if trail.suspended is not None)[:LISTED_MAX],
        merged=sum(len(trail.merged) for trail in trails),
    )


def stats_of(walks: Sequence[Walk], trails: Sequence[Trail], *, known_outcomes: int) -> Stats:
    """What was learned from these walks."""
    kinds: defaultdict[str, list[Walk]] = defaultdict(list)
    for walk in walks:
        if walk.steps:
            is_workflow = walk.task is not None and walk.task.startswith(WORKFLOW)
            kinds[walk.task or "" if is_workflow else verb_class(walk.prompt)].append(walk)
    baselines = [_baseline(shape, those) for shape, those in kinds.items()]
    return Stats(
        walks=len(walks),
        trails=len(trails),
        shapes=len({trail.shape for trail in trails}),
        states=dict(Counter(trail.state for trail in trails)),
        known_outcomes=known_outcomes,
        agents=dict(sorted(Counter(walk.agent for walk in walks if walk.agent is not None).items())),
        baselines=tuple(sorted(baselines, key=lambda each: (-each.tasks, each.shape))),
    )


def _baseline(shape: str, walks: Sequence[Walk]) -> Baseline:
    before = [tokens for walk in walks if (tokens := _before_edit(walk)) is not None]
    return Baseline(
        shape=shape,
        tasks=len(walks),
        tokens_mean=round(sum(step.tokens or 0 for walk in walks for step in walk.steps) / len(walks)),
        tokens_before_edit_median=_median(before),
    )


def _median(numbers: Sequence[int]) -> int:
    ordered = sorted(numbers)
    middle = len(ordered) // 2
    return 0 if not ordered else ordered[middle] if len(ordered) % 2 else (ordered[middle - 1] + ordered[middle]) // 2


def _before_edit(walk: Walk) -> int | None:
    """The tokens that were read before the first change; None where nothing was changed."""
    tokens = 0
    for step in walk.steps:
        if step.operation in ("edit", "create") and not step.failed:
            return tokens
        tokens += step.tokens or 0
    return None

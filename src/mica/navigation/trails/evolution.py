"""Select the trails to crystallize or refresh, detect drift, and report on trails."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from datetime import datetime
from pathlib import Path

import msgspec

from mica.errors import InvalidInput
from mica.model.trail import Trail, passes, rank_trails
from mica.model.walk import WORKFLOW, Step, Walk
from mica.navigation.anchors.followed import FollowedRange, OmittedRange, StepAnchor, anchor_step, follow, make_anchor
from mica.navigation.trails.task_kinds import verb_class
from mica.settings import TrailSettings

CRYSTALLIZED_MAX = 5  # in one evolution, the best first: many new commands at once do not help
NAMED_MAX = 50  # crystallized trails in use: each costs a line in every agent's list of commands
LISTED_MAX = 20  # trails of each kind that a report names


class Evolution(msgspec.Struct, frozen=True, kw_only=True):
    """The report of one evolution: names of trails, best first."""

    at: datetime
    trails: int
    shapes: int
    states: dict[str, int]
    hot: tuple[str, ...] = ()  # candidates without a name
    crystallized: tuple[str, ...] = ()  # in this evolution
    refreshed: tuple[str, ...] = ()  # with a new version because their steps have changed
    cooling: tuple[str, ...] = ()  # soon archived, or suspended
    archived: tuple[str, ...] = ()  # that had a name
    suspended: tuple[str, ...] = ()
    drifted: dict[str, tuple[str, ...]] = {}  # the reasons for new versions, by name
    measured: tuple[str, ...] = ()  # with a new measurement
    published: tuple[str, ...] = ()  # files written
    withdrawn: tuple[str, ...] = ()  # files removed
    merged: int = 0  # keys that were merged into other trails


class TrailChanges(msgspec.Struct, frozen=True, kw_only=True):
    """The changes of one evolution, as names of trails."""

    crystallized: tuple[str, ...] = ()
    refreshed: tuple[str, ...] = ()
    drifted: dict[str, tuple[str, ...]] = {}  # the reasons for new versions, by name
    measured: tuple[str, ...] = ()


class TaskKindCost(msgspec.Struct, frozen=True, kw_only=True):
    """The cost of tasks of one kind, counted from the log (A-01)."""

    shape: str  # the class of the task, or the workflow
    tasks: int
    tokens_mean: int  # read and searched in total
    tokens_before_edit_median: int  # read and searched before the first change, of the tasks that changed something


class TrailStatistics(msgspec.Struct, frozen=True, kw_only=True):
    """How much was learned, and from what."""

    walks: int
    trails: int
    shapes: int
    states: dict[str, int]
    known_outcomes: int  # walks with an explicit outcome
    agents: dict[str, int]  # number of walks
    baselines: tuple[TaskKindCost, ...] = ()  # the kind with the most tasks first


NO_CHANGES = TrailChanges()


def to_crystallize(trails: Sequence[Trail], gates: TrailSettings) -> list[Trail]:
    """The trails to crystallize now, best first: a few at a time, and few in total.

    A trail that shares more than half of its files with a crystallized one is left out: it would be a second name for
    the same place.
    """
    named = [trail for trail in trails if trail.version and trail.state == "crystallized"]
    room = min(CRYSTALLIZED_MAX, NAMED_MAX - len(named))
    places = [set(trail.paths) for trail in named]
    chosen: list[Trail] = []
    for trail in rank_trails(trails):
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
    """The crystallized trails that recent walks follow differently from their recorded steps."""
    return [trail for trail in rank_trails(trails) if trail.drifted and trail.state == "crystallized"]


def summarize_trails(
    trails: Sequence[Trail],
    *,
    at: datetime,
    changes: TrailChanges = NO_CHANGES,
) -> Evolution:
    """The report of trails as they are at a time, after these changes."""
    best = rank_trails(trails)

    def names(*states: str, named: bool) -> tuple[str, ...]:
        fitting = (trail.name for trail in best if trail.state in states and bool(trail.version) == named)
        return tuple(fitting)[:LISTED_MAX]

    return Evolution(
        at=at,
        trails=len(trails),
        shapes=len({trail.shape for trail in trails}),
        states=dict(Counter(trail.state for trail in trails)),
        hot=names("hot", named=False),
        crystallized=changes.crystallized,
        refreshed=changes.refreshed,
        drifted=changes.drifted,
        measured=changes.measured,
        cooling=names("cooling", named=True),
        archived=names("archived", named=True),
        suspended=tuple(trail.name for trail in best if trail.suspended is not None)[:LISTED_MAX],
        merged=sum(len(trail.merged) for trail in trails),
    )


def count_trails(walks: Sequence[Walk], trails: Sequence[Trail], *, known_outcomes: int) -> TrailStatistics:
    """Statistics of these walks and the trails learned from them."""
    kinds: defaultdict[str, list[Walk]] = defaultdict(list)
    for walk in walks:
        if walk.steps:
            is_workflow = walk.task is not None and walk.task.startswith(WORKFLOW)
            kinds[walk.task or "" if is_workflow else verb_class(walk.prompt)].append(walk)
    baselines = [_baseline(shape, those) for shape, those in kinds.items()]
    return TrailStatistics(
        walks=len(walks),
        trails=len(trails),
        shapes=len({trail.shape for trail in trails}),
        states=dict(Counter(trail.state for trail in trails)),
        known_outcomes=known_outcomes,
        agents=dict(sorted(Counter(walk.agent for walk in walks if walk.agent is not None).items())),
        baselines=tuple(sorted(baselines, key=lambda each: (-each.tasks, each.shape))),
    )


def _baseline(shape: str, walks: Sequence[Walk]) -> TaskKindCost:
    before = [tokens for walk in walks if (tokens := _before_edit(walk)) is not None]
    return TaskKindCost(
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
    """The tokens read before the first change; None if nothing was changed."""
    tokens = 0
    for step in walk.steps:
        if step.operation in ("edit", "create") and not step.failed:
            return tokens
        tokens += step.tokens or 0
    return None


class Drift(msgspec.Struct, frozen=True, kw_only=True):
    """The steps of a trail's next version, and the reasons for it."""

    steps: tuple[Step, ...]  # empty if nothing of the trail is left
    reasons: tuple[str, ...]
    renamed: tuple[tuple[str, str], ...] = ()  # (old path, new path)


def prove_step(step: Step, *, root: Path) -> Step:
    """The step with the hash of its current lines, to find them again. Raises InvalidInput if they do not exist."""
    now = make_anchor(root, step.path, step.start_line, step.end_line)
    if isinstance(now, OmittedRange):
        raise InvalidInput(f"{step.path!r} cannot be a step: {now.reason}")
    if step.start_line is None:
        return msgspec.structs.replace(step, total_lines=now.total)
    return msgspec.structs.replace(step, end_line=now.end, total_lines=now.total, content_hash=now.content_hash)


def find_drift(trail: Trail, *, root: Path, now: datetime) -> Drift | None:
    """The differences between a trail and the working tree at `root`; None if every reference is still valid.

    A file that was read as a whole drifts when it is renamed or deleted, not with each edit.
    """
    steps: list[Step] = []
    reasons: list[str] = []
    renamed: dict[str, str] = {}
    for step in trail.steps:
        found = anchor_step(step, root=root)
        here = follow(found.anchor, root=root, since=step.at) if isinstance(found, StepAnchor) else found
        if not isinstance(here, FollowedRange):
            reasons.append(f"{step.path}: {here.reason}")
            continue
        path = here.now.path
        if path != step.path:
            renamed[step.path] = path
            reasons.append(f"{step.path}: renamed to {path}")
        if _is_range(step) and (here.now.start, here.now.end) != (step.start_line, step.end_line):
            reasons.append(f"{path}: now at {here.now.start}-{here.now.end}")
        steps.append(_move_step(step, here, now=now))
    if not reasons:
        return None
    return Drift(steps=tuple(steps), reasons=tuple(dict.fromkeys(reasons)), renamed=tuple(renamed.items()))


def _is_range(step: Step) -> bool:
    """True if a step has lines and a hash to verify them."""
    return step.content_hash is not None and step.start_line is not None and step.end_line is not None


def _move_step(step: Step, here: FollowedRange, *, now: datetime) -> Step:
    """The step in its current place, with the current time so that an older walk does not move it back."""
    step = msgspec.structs.replace(step, path=here.now.path, at=max(now, step.at))
    if not _is_range(step):
        return step
    return msgspec.structs.replace(
        step,
        start_line=here.now.start,
        end_line=here.now.end,
        total_lines=here.now.total,
        content_hash=here.now.content_hash,
    )

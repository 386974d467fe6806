"""Choose the trails to crystallize or refresh, detect drift from the current files, and summarize trails."""

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

CRYSTALLIZED_MAX = 5  # trails that one evolution crystallizes: many new commands at once do not help
NAMED_MAX = 50  # crystallized trails in use: each costs a line in every agent's list of commands
LISTED_MAX = 20  # trails in each list of a report


class Evolution(msgspec.Struct, frozen=True, kw_only=True):
    """The report of one evolution (the daily work on trails): counts, and names of trails, best first."""

    at: datetime
    trails: int  # number of trails
    shapes: int  # number of kinds of tasks
    states: dict[str, int]  # number of trails in each state
    hot: tuple[str, ...] = ()  # hot trails without a permanent name
    crystallized: tuple[str, ...] = ()  # trails that were crystallized in this evolution
    refreshed: tuple[str, ...] = ()  # trails with a new version because their steps have changed
    cooling: tuple[str, ...] = ()  # crystallized trails that will soon be archived, or are suspended
    archived: tuple[str, ...] = ()  # crystallized trails that are archived
    suspended: tuple[str, ...] = ()
    drifted: dict[str, tuple[str, ...]] = {}  # trails whose lines or files have moved, with the changes
    measured: tuple[str, ...] = ()  # trails with a new measurement
    published: tuple[str, ...] = ()  # paths of the files that were written
    withdrawn: tuple[str, ...] = ()  # paths of the files that were removed
    merged: int = 0  # number of keys of all trails that were merged into others, in this or an earlier evolution


class TrailChanges(msgspec.Struct, frozen=True, kw_only=True):
    """The names of the trails that one evolution changed."""

    crystallized: tuple[str, ...] = ()
    refreshed: tuple[str, ...] = ()
    drifted: dict[str, tuple[str, ...]] = {}  # trails whose lines or files have moved, with the changes
    measured: tuple[str, ...] = ()


class TaskKindCost(msgspec.Struct, frozen=True, kw_only=True):
    """The tokens that tasks of one kind read, counted from the log."""

    shape: str  # the kind of task: an action such as "fix", or the name of a workflow
    tasks: int  # number of tasks of this kind
    tokens_mean: int  # tokens read and searched, mean over all tasks
    tokens_before_edit_median: int  # tokens read and searched before the first change, median over tasks with a change


class TrailStatistics(msgspec.Struct, frozen=True, kw_only=True):
    """Statistics of the learned trails and of the walks they were learned from."""

    walks: int  # number of walks
    trails: int  # number of trails
    shapes: int  # number of kinds of tasks
    states: dict[str, int]  # number of trails in each state
    known_outcomes: int  # number of walks that are known to have succeeded or failed
    agents: dict[str, int]  # number of walks by agent
    baselines: tuple[TaskKindCost, ...] = ()  # the kind with the most tasks first


NO_CHANGES = TrailChanges()


def to_crystallize(trails: Sequence[Trail], gates: TrailSettings) -> list[Trail]:
    """Choose the trails to crystallize now, best first.

    At most CRYSTALLIZED_MAX trails are chosen, and fewer if more than NAMED_MAX trails would then be crystallized. A
    trail is left out if it has too many files in common with a crystallized or chosen trail: more than half of the
    files of the smaller one. It would only be a second name for the same files.
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
    """Return the crystallized trails whose recorded steps differ from what recent walks read, best first."""
    return [trail for trail in rank_trails(trails) if trail.drifted and trail.state == "crystallized"]


def summarize_trails(
    trails: Sequence[Trail],
    *,
    at: datetime,
    changes: TrailChanges = NO_CHANGES,
) -> Evolution:
    """Return the report of one evolution, which was made at the time `at` and made these changes to trails."""
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
    """Return statistics of walks and of the trails learned from them.

    `known_outcomes` is the number of walks that are known to have succeeded or failed.
    """
    kinds: defaultdict[str, list[Walk]] = defaultdict(list)
    for walk in walks:
        if walk.steps:
            is_workflow = walk.task is not None and walk.task.startswith(WORKFLOW)
            kinds[walk.task or "" if is_workflow else verb_class(walk.prompt)].append(walk)
    baselines = [_baseline(shape, walks_of_kind) for shape, walks_of_kind in kinds.items()]
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
    tokens = 0
    for step in walk.steps:
        if step.operation in ("edit", "create") and not step.failed:
            return tokens
        tokens += step.tokens or 0
    return None


class Drift(msgspec.Struct, frozen=True, kw_only=True):
    """How a trail differs from the current files: the steps of its next version, and the differences in words."""

    steps: tuple[Step, ...]  # empty if none of the trail's lines exist any more
    reasons: tuple[str, ...]
    renamed: tuple[tuple[str, str], ...] = ()  # (old path, new path)


def prove_step(step: Step, *, root: Path) -> Step:
    """Return a copy of a step with the hash of its lines in the current file, and the file's number of lines.

    A step for a whole file gets only the number. Raises InvalidInput if the file or the lines do not exist.
    """
    now = make_anchor(root, step.path, step.start_line, step.end_line)
    if isinstance(now, OmittedRange):
        raise InvalidInput(f"{step.path!r} cannot be a step: {now.reason}")
    if step.start_line is None:
        return msgspec.structs.replace(step, total_lines=now.total)
    if step.end_line is not None and step.end_line > now.total:
        lines = f"{step.start_line}-{step.end_line}"
        raise InvalidInput(f"{step.path!r} has no lines {lines}: it has {now.total:,} lines; give lines that exist")
    return msgspec.structs.replace(step, end_line=now.end, total_lines=now.total, content_hash=now.content_hash)


def find_drift(trail: Trail, *, root: Path, now: datetime) -> Drift | None:
    """Return how a trail differs from the working tree at `root`; None if every path and line range is still valid.

    A step for a whole file differs only if the file was renamed or deleted, not after each edit. In the result, steps
    that were found again have the time `now`.
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
    return step.content_hash is not None and step.start_line is not None and step.end_line is not None


def _move_step(step: Step, here: FollowedRange, *, now: datetime) -> Step:
    """Return a copy of a step with its current path and lines, which are in `here`.

    The copy has the time `now`, so that the lines of older walks do not replace its lines.
    """
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

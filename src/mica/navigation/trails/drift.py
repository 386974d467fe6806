"""What became of a trail's steps in the files as they are: moved, renamed or gone. It makes a new version (K-06)."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

import msgspec

from mica.errors import InvalidInput
from mica.model.trail import Trail
from mica.model.walk import Step
from mica.navigation.anchors.followed import Followed, LeftOut, anchored, follow
from mica.navigation.anchors.step_anchors import Placed, placed


class Drift(msgspec.Struct, frozen=True, kw_only=True):
    """The steps of the next version, and what led to it, in words."""

    steps: tuple[Step, ...]  # empty where nothing of the trail is left
    reasons: tuple[str, ...]
    renamed: tuple[tuple[str, str], ...] = ()  # old name, new name


def proven(step: Step, *, root: Path) -> Step:
    """A step with the hash of its lines as they are, by which they are found again. Raises InvalidInput without any."""
    now = anchored(root, step.path, step.start_line, step.end_line)
    if isinstance(now, LeftOut):
        raise InvalidInput(f"{step.path!r} cannot be a step: {now.reason}")
    if step.start_line is None:
        return msgspec.structs.replace(step, total_lines=now.total)
    return msgspec.structs.replace(step, end_line=now.end, total_lines=now.total, content_hash=now.content_hash)


def drift_of(trail: Trail, *, root: Path, now: datetime) -> Drift | None:
    """What has drifted between a trail and the working tree at `root`; None where every reference still holds.

    A file that was read whole drifts when it is renamed or gone, not with each of its edits.
    """
    steps: list[Step] = []
    reasons: list[str] = []
    renamed: dict[str, str] = {}
    for step in trail.steps:
        found = placed(step, root=root)
        here = follow(found.anchor, root=root, since=step.at) if isinstance(found, Placed) else found
        if not isinstance(here, Followed):
            reasons.append(f"{step.path}: {here.reason}")
            continue
        path = here.now.path
        if path != step.path:
            renamed[step.path] = path
            reasons.append(f"{step.path}: renamed to {path}")
        if _is_range(step) and (here.now.start, here.now.end) != (step.start_line, step.end_line):
            reasons.append(f"{path}: now at {here.now.start}-{here.now.end}")
        steps.append(_moved(step, here, now=now))
    if not reasons:
        return None
    return Drift(steps=tuple(steps), reasons=tuple(dict.fromkeys(reasons)), renamed=tuple(renamed.items()))


def _is_range(step: Step) -> bool:
    """Whether a step is about lines, which the hash of what was shown proves."""
    return step.content_hash is not None and step.start_line is not None and step.end_line is not None


def _moved(step: Step, here: Followed, *, now: datetime) -> Step:
    """A step as it stands now. Its time says since when, so that an older walk does not take it back."""
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

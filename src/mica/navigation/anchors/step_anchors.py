"""The steps of a trail as anchors: where the lines are that were read, proved by the hash of what was shown.

Lines are looked for in the file as it is, then in the file as git had it when they were read, from where the anchor
follows them to today. Lines that nothing proves are not guessed: the whole file stands in their place.
"""

from __future__ import annotations

import subprocess
from contextlib import suppress
from datetime import datetime
from pathlib import Path

import msgspec

from mica.errors import InvalidInput
from mica.model.walk import Step
from mica.navigation.anchors.anchor import Anchor, anchor, content_hash
from mica.navigation.anchors.files import Contents, read
from mica.navigation.anchors.followed import LeftOut, anchored, moved
from mica.navigation.anchors.line_hashes import lines_of
from mica.navigation.repository import git

TEXT_BYTES_MAX = 2_000_000
CHANGED = "changed since it was read"


class Placed(msgspec.Struct, frozen=True, kw_only=True):
    """An anchor of a step, and what had drifted between the reading and the file that it was made from, in words."""

    anchor: Anchor
    drift: tuple[str, ...] = ()


def placed(step: Step, *, root: Path) -> Placed | LeftOut:
    """The anchor of a step, or why there is none."""
    if step.content_hash is None or step.start_line is None or step.end_line is None:
        return _whole(step, root=root)
    start, end = step.start_line, step.end_line
    now = anchored(root, step.path, start, end, shown_hash=step.content_hash)
    if isinstance(now, Anchor):
        return Placed(anchor=now, drift=moved(now.start - start))
    text = _text_at(root, step.path, step.at)
    if text is None:
        return now
    then = lines_of(text)[start - 1 : end]
    if step.content_hash in (content_hash(then), content_hash([*then, ""])):
        with suppress(InvalidInput):  # the file was shorter then; what could be said of today's stands
            return Placed(anchor=anchor(step.path, text, start, end))
    return now


def _whole(step: Step, *, root: Path) -> Placed | LeftOut:
    """The whole file in the place of lines that are not known or that nothing proves."""
    now = anchored(root, step.path)
    if isinstance(now, Anchor):
        return Placed(anchor=now, drift=_since_read(step, now, root=root))
    text = _text_at(root, step.path, step.at)
    if text is None:
        return now
    with suppress(InvalidInput):
        return Placed(anchor=anchor(step.path, text, 1, len(lines_of(text))))
    return now


def _since_read(step: Step, now: Anchor, *, root: Path) -> tuple[str, ...]:
    """Whether a file that was read whole is another one now, as far as that can be known."""
    if step.operation != "read" or step.start_line is not None:
        return ()
    if step.content_hash is not None:
        contents = read(root, step.path)
        lines = lines_of(contents.text) if isinstance(contents, Contents) else []
        return () if step.content_hash in (content_hash(lines), content_hash([*lines, ""])) else (CHANGED,)
    return () if step.total_lines in (None, now.total) else (CHANGED,)


def _text_at(root: Path, path: str, at: datetime) -> str | None:
    """A file as the last commit before a moment has it; None without git, or where there was no such text."""
    try:
        commit = git(root, "rev-list", "-1", f"--before={at.isoformat()}", "HEAD").decode().strip()
        content = git(root, "show", f"{commit}:./{path}") if commit else b""
    except (OSError, ValueError, subprocess.SubprocessError):
        return None
    if not content or len(content) > TEXT_BYTES_MAX or b"\0" in content[:8_000]:
        return None
    return content.decode("utf-8", "replace")

"""The steps of a trail as anchors: where the lines are that were read, proved by the hash of what was shown.

Lines are looked for in the file as it is, then in the file as git had it when they were read, from where the anchor
follows them to today. Lines that nothing proves are not guessed: the whole file stands in their place.
"""

from __future__ import annotations

import subprocess
from datetime import datetime
from pathlib import Path

from mica.crystallize.anchors import Anchor, anchor, content_hash
from mica.crystallize.following import LeftOut, anchored
from mica.crystallize.line_hashes import lines_of
from mica.errors import InvalidInput
from mica.walks import Step

GIT_TIMEOUT_S = 10.0
TEXT_BYTES_MAX = 2_000_000


def placed(step: Step, *, root: Path) -> Anchor | LeftOut:
    """The anchor of a step, or why there is none."""
    start, end = step.start_line, step.end_line
    if step.content_hash is None or end is None:
        start = end = None
    now = anchored(root, step.path, start, end, shown_hash=step.content_hash if start is not None else None)
    if isinstance(now, Anchor):
        return now
    text = _text_at(root, step.path, step.at)
    if text is None:
        return now
    lines = lines_of(text)
    try:
        if start is None or end is None:
            return anchor(step.path, text, 1, len(lines))
        then = lines[start - 1 : end]
        if step.content_hash in (content_hash(then), content_hash([*then, ""])):
            return anchor(step.path, text, start, end)
    except InvalidInput:
        pass  # the file was shorter then; what could be said of today's stands
    return now


def _text_at(root: Path, path: str, at: datetime) -> str | None:
    """A file as the last commit before a moment has it; None without git, or where there was no such text."""
    try:
        commit = _git(root, "rev-list", "-1", f"--before={at.isoformat()}", "HEAD").decode().strip()
        content = _git(root, "show", f"{commit}:./{path}") if commit else b""
    except (OSError, ValueError, subprocess.SubprocessError):
        return None
    if not content or len(content) > TEXT_BYTES_MAX or b"\0" in content[:8_000]:
        return None
    return content.decode("utf-8", "replace")


def _git(root: Path, *args: str) -> bytes:
    return subprocess.run(
        ["git", "-C", str(root), *args],
        capture_output=True,
        check=True,
        timeout=GIT_TIMEOUT_S,
        stdin=subprocess.DEVNULL,
    ).stdout

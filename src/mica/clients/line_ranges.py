"""Computes which lines of a file a tool showed or changed. Lines are numbered from 1, and ranges include both ends."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable

import msgspec

Range = tuple[int, int]

_NUMBERED = re.compile(r" *(\d{1,9})(?:\t|→)")
_DRIVE = re.compile(r"[A-Za-z]:[\\/]")


class Excerpt(msgspec.Struct, frozen=True):
    """The part of a file that a tool showed: its first and last line, and its text. Unknown fields are None."""

    start: int | None = None
    end: int | None = None
    total: int | None = None  # lines of the whole file
    text: str | None = None  # the lines as they are in the file


def excerpt_from_counts(text: str, *, start: int, count: int, total: int) -> Excerpt:
    """Build an excerpt from the line counts that Claude Code and Gemini CLI report.

    For a file that ends with a line break, these clients count an empty line after it, which is subtracted here. If the
    excerpt does not reach the end of the file, the file is assumed to end with a line break, as most files do.
    """
    if not text:
        return Excerpt(total=max(0, total - 1), text=text)
    end = start + count - 1
    if end < total:
        return Excerpt(start, end, total - 1, text)
    if text.endswith("\n"):
        return Excerpt(start, max(start, end - 1), total - 1, text)
    return Excerpt(start, end, total, text)


def excerpt_from_numbers(text: str, *, limit: int | None) -> Excerpt | None:
    """Build an excerpt from lines that begin with their numbers (`10<tab>text`); None if the first line has none.

    `limit` is the number of lines that was requested; None if all were. If there are fewer lines and the last one is
    empty, the excerpt reaches the end of the file.
    """
    found: list[str] = []
    start = 0
    for line in text.split("\n"):
        match = _NUMBERED.match(line)
        if match is None or (found and int(match[1]) != start + len(found)):
            break
        start = start or int(match[1])
        found.append(line[match.end() :])
    if not start:
        return None
    reaches_end = not found[-1] and (limit is None or len(found) < limit)
    end = start + len(found) - 1 - reaches_end
    if end < start:
        return Excerpt(total=0 if start == 1 else None, text="")
    return Excerpt(start, end, end if reaches_end else None, "\n".join(found))


def changed_range(lines: Iterable[str], *, start: int) -> Range | None:
    """Return the range of lines that a diff hunk changed, numbered as in the new file; None if it changed none.

    `start` is the number of the hunk's first line in the new file. Where lines were removed, the range includes the
    line that is now in their place.
    """
    first = last = None
    number = start
    for line in lines:
        if line.startswith(("+", "-")):
            first = number if first is None else first
            last = number
        number += not line.startswith(("-", "\\"))
    if first is None or last is None:
        return None
    end = max(1, number - 1)  # lines removed at the end of a file were after its last line
    return min(max(1, first), end), min(max(1, last), end)


def count_lines(text: str) -> int:
    """Return the number of lines of a text. A line end at the end of the text does not begin another line."""
    return text.count("\n") + (not text.endswith("\n") and text != "")


def relative_path(path: str, *, root: str | None, cwd: str | None) -> str:
    """Return a path relative to `root` if it is inside `root`, else absolute; always with forward slashes.

    A relative `path` is relative to `cwd` or, if that is None, to `root`. A path that begins with `~`, and a relative
    path if both are None, are only normalized.
    """
    path, root, cwd = with_slashes(path), root and with_slashes(root), cwd and with_slashes(cwd)
    if not path.startswith(("/", "~")) and not _DRIVE.match(path):
        path = posixpath.join(cwd or root or "", path)
    path = posixpath.normpath(path) if path else "."
    if not root:
        return path
    root = posixpath.normpath(root)
    if path == root:
        return "."
    return path.removeprefix(root.rstrip("/") + "/")


def with_slashes(path: str) -> str:
    """Replace backslashes in a Windows path by slashes; any other path is returned unchanged."""
    return path.replace("\\", "/") if _DRIVE.match(path) or path.startswith("\\\\") else path

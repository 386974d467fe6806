"""Which lines of a file a tool showed or changed. Line numbers start at 1 and ranges include both ends."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable

import msgspec

Range = tuple[int, int]

_NUMBERED = re.compile(r" *(\d{1,9})(?:\t|→)")
_DRIVE = re.compile(r"[A-Za-z]:[\\/]")


class Shown(msgspec.Struct, frozen=True):
    """A stretch of a file as a tool returned it."""

    start: int | None = None
    end: int | None = None
    total: int | None = None  # lines of the whole file
    text: str | None = None  # as it stands in the file


def shown(text: str, *, start: int, count: int, total: int) -> Shown:
    """A stretch from counts that include the empty line after a final line end, as Claude's and Gemini's do.

    Only a stretch that reaches the end tells whether there is such a line; otherwise it is taken to be there.
    """
    if not text:
        return Shown(total=max(0, total - 1), text=text)
    end = start + count - 1
    if end < total:
        return Shown(start, end, total - 1, text)
    if text.endswith("\n"):
        return Shown(start, max(start, end - 1), total - 1, text)
    return Shown(start, end, total, text)


def numbered(text: str, *, limit: int | None) -> Shown | None:
    """A stretch from lines that carry their numbers (`10<tab>text`), or None when the first does not.

    An empty last line that no limit explains is the one after a final line end.
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
        return Shown(total=0 if start == 1 else None, text="")
    return Shown(start, end, end if reaches_end else None, "\n".join(found))


def changed(lines: Iterable[str], *, start: int) -> Range | None:
    """The lines a hunk changed, numbered as in the new file; `start` is the number of its first line there.

    A line taken out counts as the place where it stood.
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
    end = max(1, number - 1)  # lines taken out at the end of a file stood after its last line
    return min(max(1, first), end), min(max(1, last), end)


def line_count(text: str) -> int:
    """The lines of a text; a final line end does not begin another."""
    return text.count("\n") + (not text.endswith("\n") and text != "")


def relative(path: str, *, root: str | None, cwd: str | None) -> str:
    """A path as trails know it: relative to the root when inside it, else absolute; always with slashes.

    What cannot be resolved (a path of the home folder, a relative one without a current folder) stays as is.
    """
    path, root, cwd = slashes(path), root and slashes(root), cwd and slashes(cwd)
    if not path.startswith(("/", "~")) and not _DRIVE.match(path):
        path = posixpath.join(cwd or root or "", path)
    path = posixpath.normpath(path) if path else "."
    if not root:
        return path
    root = posixpath.normpath(root)
    if path == root:
        return "."
    return path.removeprefix(root.rstrip("/") + "/")


def slashes(path: str) -> str:
    """A Windows path with slashes; others as they are."""
    return path.replace("\\", "/") if _DRIVE.match(path) or path.startswith("\\\\") else path

"""Find the line ranges of anchors and steps in the current files of a project, and describe what has changed.

A step is one recorded access to a file. It has the numbers and a hash of the lines that were read. First these lines
are searched in the current file. If the current file does not have them, they are read from the last commit before the
step, and an anchor made from that version locates them in the current file. For a step without lines or without a hash,
the whole file is used.
"""

from __future__ import annotations

import stat
import subprocess
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import assert_never

import msgspec

from mica.clients.line_ranges import relative_path
from mica.errors import InvalidInput
from mica.model.walk import Step
from mica.navigation.anchors.alignment import lines_of
from mica.navigation.anchors.anchor import Anchor, AnchorMatch, LostAnchor, anchor, content_hash, find
from mica.navigation.anchors.renames import Deleted, Renamed, UnknownFate, find_rename
from mica.navigation.engine.file_blocks import is_secret
from mica.navigation.repository import git
from mica.redact import redact_lines

FILE_BYTES_MAX = 16_000_000  # larger files are not read, because all lines of a file are hashed
BINARY_BYTES = 8_000  # searched for a zero byte, as git does
HOLDS_KEYS = "it may contain keys"
AROUND_LINES = 120  # a private key of 4,096 bits has 52 lines

COMPARED_LINES_MAX = 500_000  # lines that are hashed to find a range by its hash; takes some tenths of a second

TEXT_BYTES_MAX = 2_000_000
CHANGED = "changed since it was read"


class Contents(msgspec.Struct, frozen=True, kw_only=True):
    """The text of a project file that was read, with its path within the project."""

    path: str
    text: str
    replaced: int = 0  # number of invalid characters that were replaced by �


class UnreadFile(msgspec.Struct, frozen=True, kw_only=True):
    """A file that was not read, with the reason."""

    path: str
    reason: str
    is_missing: bool = False


def read(root: Path, path: str) -> Contents | UnreadFile:
    """Read a file of the project at `root`.

    The result is `UnreadFile` with the reason if the file is missing, outside the project, secret, binary, too large,
    or cannot be read.
    """
    path = relative_path(path, root=str(root), cwd=str(root))
    if path.startswith(("/", "~", "../")) or path in ("..", ".") or path[1:3] in (":/", ":"):
        return UnreadFile(path=path, reason="it is outside the project")
    if is_secret(path):
        return UnreadFile(path=path, reason=HOLDS_KEYS)
    try:
        home = root.resolve()
        full = (root / path).resolve(strict=True)
        if not full.is_relative_to(home):
            return UnreadFile(path=path, reason="a symbolic link leads out of the project")
        if is_secret(full.relative_to(home).as_posix()):
            return UnreadFile(path=path, reason=HOLDS_KEYS)
        status = full.stat()
        if not stat.S_ISREG(status.st_mode):
            return UnreadFile(path=path, reason="it is not a file")
        if status.st_size > FILE_BYTES_MAX:
            return UnreadFile(path=path, reason=f"it is larger than {FILE_BYTES_MAX // 1_000_000} MB")
        content = full.read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        return UnreadFile(path=path, reason="there is no such file", is_missing=True)
    except ValueError:  # a zero byte in the path
        return UnreadFile(path=path, reason="the path is not valid")
    except (OSError, RuntimeError) as error:  # RuntimeError: a loop of symlinks, before Python 3.13
        return UnreadFile(path=path, reason=f"it cannot be read ({getattr(error, 'strerror', None) or error})")
    return decode(path, content)


def decode(path: str, content: bytes) -> Contents | UnreadFile:
    """Decode the bytes of a file as UTF-8, or as UTF-16 if they begin with a byte order mark.

    Invalid bytes are replaced and counted. For a binary file, the result is `UnreadFile`.
    """
    if content.startswith((b"\xff\xfe", b"\xfe\xff")):
        text = content.decode("utf-16", "replace")
        return Contents(path=path, text=text, replaced=text.count("\ufffd"))
    if b"\0" in content[:BINARY_BYTES]:
        return UnreadFile(path=path, reason="it is binary")
    text = content.decode("utf-8-sig", "replace")
    return Contents(path=path, text=text, replaced=text.count("\ufffd") - content.count("\ufffd".encode()))


class FollowedRange(msgspec.Struct, frozen=True, kw_only=True):
    """The range of an anchor as it was found in the current files, with the text of its lines."""

    was: Anchor
    now: Anchor  # the anchor of the current range; equal to `was` if nothing has changed
    match: AnchorMatch
    lines: tuple[str, ...]  # the text of each line of the current range, with secrets redacted
    drift: tuple[str, ...] = ()  # a description of each change, such as "moved 3 lines down"
    replaced: int = 0  # number of invalid characters of the file that were replaced


class OmittedRange(msgspec.Struct, frozen=True, kw_only=True):
    """A range of lines that cannot or must not be shown, with the reason. Lines are counted from 1."""

    path: str
    start: int
    end: int
    reason: str


def follow(was: Anchor, *, root: Path, since: str | datetime | None = None) -> FollowedRange | OmittedRange:
    """Find an anchor's range in the current files of the project at `root`.

    If the file of the anchor was renamed, git shows its current path. `since` is a commit or a time at which the anchor
    was valid; earlier renames are ignored.
    """
    contents = read(root, was.path)
    if isinstance(contents, UnreadFile) and contents.is_missing:
        contents = _read_renamed(root, was.path, since)
    if isinstance(contents, UnreadFile):
        return _omit(was, contents.reason)
    sought = msgspec.structs.replace(was, path=contents.path)  # the suffix decides how symbols are found
    found = find(sought, contents.text)
    match found:
        case LostAnchor():
            return _omit(was, found.reason)
        case AnchorMatch():
            now = anchor(contents.path, contents.text, found.start, found.end)
            return FollowedRange(
                was=was,
                now=now,
                match=found,
                lines=_shown_lines(lines_of(contents.text), found.start, found.end),
                drift=_drift(was, now, found),
                replaced=contents.replaced,
            )
        case _:
            assert_never(found)


def _shown_lines(lines: list[str], start: int, end: int) -> tuple[str, ...]:
    """Return the lines `start` to `end` of a file without secrets, also of secrets that begin or end around them."""
    first = max(0, start - 1 - AROUND_LINES)
    return tuple(redact_lines(lines[first : end + AROUND_LINES])[start - 1 - first : end - first])


def make_anchor(
    root: Path, path: str, start: int | None = None, end: int | None = None, *, shown_hash: str | None = None
) -> Anchor | OmittedRange:
    """Make an anchor for the lines `start` to `end` in the current version of a file.

    Without `start`, the range is the whole file; without `end`, it is the line `start`. `shown_hash` is the hash of the
    lines as an agent saw them. If the lines `start` to `end` now have another hash, the file is searched for a range
    with as many lines and with this hash. The result is `OmittedRange` with the reason if no such range or more than
    one is found, or if the file cannot be read.
    """
    contents = read(root, path)
    if isinstance(contents, UnreadFile):
        return OmittedRange(path=contents.path, start=start or 1, end=end or start or 1, reason=contents.reason)
    lines = lines_of(contents.text)
    first, last = (1, len(lines)) if start is None else (start, min(end or start, len(lines)))
    if start is not None and first > len(lines):
        last = end or start  # reported as requested
    try:
        if start is not None and shown_hash is not None and not _has_hash(lines[first - 1 : last], shown_hash):
            height = (end or start) - start + 1
            first = _place(lines, height, shown_hash)
            last = first + height - 1
        return anchor(contents.path, contents.text, first, last)
    except InvalidInput as error:
        return OmittedRange(path=contents.path, start=start or 1, end=end or start or 1, reason=str(error))


def _has_hash(lines: list[str], shown_hash: str) -> bool:
    return shown_hash in (content_hash(lines), content_hash([*lines, ""]))


def _place(lines: list[str], height: int, shown_hash: str) -> int:
    """Return the number of the first line of the only range of `height` lines that has the hash `shown_hash`.

    `lines` is the text of the whole file. Raises InvalidInput if no range or several ranges have this hash, or if the
    file is too long to be searched.
    """
    if height * len(lines) > COMPARED_LINES_MAX:
        raise InvalidInput("its lines changed since they were shown, and the file is too long to search for them")
    places = [
        first + 1 for first in range(len(lines) - height + 1) if _has_hash(lines[first : first + height], shown_hash)
    ]
    if len(places) != 1:
        raise InvalidInput("its lines occur in several places" if places else "its lines changed since they were shown")
    return places[0]


def _read_renamed(root: Path, path: str, since: str | datetime | None) -> Contents | UnreadFile:
    fate = find_rename(root, path, since)
    match fate:
        case Renamed():
            found = read(root, fate.path)
            if isinstance(found, UnreadFile):
                return UnreadFile(path=path, reason=f"the file was renamed to {fate.path}, and {found.reason}")
            return found
        case Deleted():
            return UnreadFile(
                path=path, reason=f"the file was deleted{f' in {fate.commit[:10]}' if fate.commit else ''}"
            )
        case UnknownFate():
            return UnreadFile(path=path, reason=f"the file is gone ({fate.reason})")
        case _:
            assert_never(fate)


def _omit(was: Anchor, reason: str) -> OmittedRange:
    return OmittedRange(path=was.path, start=was.start, end=was.end, reason=reason)


def _drift(was: Anchor, now: Anchor, found: AnchorMatch) -> tuple[str, ...]:
    drift: list[str] = []
    if now.path != was.path:
        drift.append(f"file renamed from {was.path}")
    drift += describe_move(now.start - was.start)
    if grown := (now.end - now.start) - (was.end - was.start):
        drift.append(f"{_lines(abs(grown))} {'longer' if grown > 0 else 'shorter'}")
    if now.content_hash != was.content_hash and not grown:
        drift.append("changed")
    if found.share < 1:
        drift.append(f"{found.share:.0%} of its lines unchanged")
    if was.symbol and now.symbol != was.symbol:
        drift.append(f"was in {was.symbol}")
    return tuple(drift)


def describe_move(lines: int) -> tuple[str, ...]:
    """Describe how far a range has moved, for example ("moved 3 lines down",); empty if it has not moved."""
    return (f"moved {_lines(abs(lines))} {'down' if lines > 0 else 'up'}",) if lines else ()


def _lines(count: int) -> str:
    return f"{count:,} line{'s' if count != 1 else ''}"


class StepAnchor(msgspec.Struct, frozen=True, kw_only=True):
    """The anchor of a step. It was made from the current file or from a committed version of the file.

    `drift` describes how that version differs from the lines that the step read.
    """

    anchor: Anchor
    drift: tuple[str, ...] = ()


def anchor_step(step: Step, *, root: Path) -> StepAnchor | OmittedRange:
    """Make an anchor for the lines of a step from the current file, or else from the last commit before the step.

    If neither version has the lines, the result is `OmittedRange` with the reason. For a step without lines or without
    a hash of them, the anchor is for the whole file.
    """
    if step.content_hash is None or step.start_line is None or step.end_line is None:
        return _whole(step, root=root)
    start, end = step.start_line, step.end_line
    now = make_anchor(root, step.path, start, end, shown_hash=step.content_hash)
    if isinstance(now, Anchor):
        return StepAnchor(anchor=now, drift=describe_move(now.start - start))
    text = _text_at(root, step.path, step.at)
    if text is None:
        return now
    then = lines_of(text)[start - 1 : end]
    if step.content_hash in (content_hash(then), content_hash([*then, ""])):
        with suppress(InvalidInput):  # the file was shorter then; the result for the current file is used
            return StepAnchor(anchor=anchor(step.path, text, start, end))
    return now


def _whole(step: Step, *, root: Path) -> StepAnchor | OmittedRange:
    """Make an anchor for the whole file of a step that has no lines, or no hash to verify them."""
    now = make_anchor(root, step.path)
    if isinstance(now, Anchor):
        return StepAnchor(anchor=now, drift=_describe_change(step, now, root=root))
    text = _text_at(root, step.path, step.at)
    if text is None:
        return now
    with suppress(InvalidInput):
        return StepAnchor(anchor=anchor(step.path, text, 1, len(lines_of(text))))
    return now


def _describe_change(step: Step, now: Anchor, *, root: Path) -> tuple[str, ...]:
    """Return (CHANGED,) if the step read the whole file and the file has changed since; otherwise an empty tuple.

    `now` is an anchor for the whole current file. Without a hash in the step, the numbers of lines are compared.
    """
    if step.operation != "read" or step.start_line is not None:
        return ()
    if step.content_hash is not None:
        contents = read(root, step.path)
        lines = lines_of(contents.text) if isinstance(contents, Contents) else []
        return () if step.content_hash in (content_hash(lines), content_hash([*lines, ""])) else (CHANGED,)
    return () if step.total_lines in (None, now.total) else (CHANGED,)


def _text_at(root: Path, path: str, at: datetime) -> str | None:
    """Return the text of a file in the last commit before `at`.

    The result is None if there is no such commit, or if the file in it is missing, empty, binary or over 2 MB.
    """
    try:
        commit = git(root, "rev-list", "-1", f"--before={at.isoformat()}", "HEAD").decode().strip()
        content = git(root, "show", f"{commit}:./{path}") if commit else b""
    except (OSError, ValueError, subprocess.SubprocessError):
        return None
    if not content or len(content) > TEXT_BYTES_MAX or b"\0" in content[:8_000]:
        return None
    return content.decode("utf-8", "replace")

"""Anchors against the project as it is: where each range stands now, what drifted, and what must be left out."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import assert_never

import msgspec

from mica.errors import InvalidInput
from mica.navigation.anchors.anchor import Anchor, Found, Lost, anchor, content_hash, find
from mica.navigation.anchors.files import Contents, Unread, read
from mica.navigation.anchors.line_hashes import lines_of
from mica.navigation.anchors.renames import Deleted, Renamed, Untold, renamed

COMPARED_LINES_MAX = 500_000  # when a shown range is looked for by its hash: some tenths of a second


class Followed(msgspec.Struct, frozen=True, kw_only=True):
    """A range as it stands now: its lines, how they were found, and what drifted, in words."""

    was: Anchor
    now: Anchor  # the next version; equal to `was` where the range is fresh
    found: Found
    lines: tuple[str, ...]
    drift: tuple[str, ...] = ()  # empty where nothing has changed
    replaced: int = 0  # bytes of the file that are no UTF-8


class LeftOut(msgspec.Struct, frozen=True, kw_only=True):
    """A range that is not offered, and why."""

    path: str
    start: int
    end: int
    reason: str


def follow(was: Anchor, *, root: Path, since: str | datetime | None = None) -> Followed | LeftOut:
    """Where an anchor's range is now: in its file, or in the file that git renamed it to. Never wrong lines.

    `since` is a commit or a time when the anchor was right; renames before it do not matter.
    """
    contents = read(root, was.path)
    if isinstance(contents, Unread) and contents.gone:
        contents = _renamed(root, was.path, since)
    if isinstance(contents, Unread):
        return _left_out(was, contents.reason)
    sought = msgspec.structs.replace(was, path=contents.path)  # the suffix says how symbols are read
    found = find(sought, contents.text)
    match found:
        case Lost():
            return _left_out(was, found.reason)
        case Found():
            now = anchor(contents.path, contents.text, found.start, found.end)
            return Followed(
                was=was,
                now=now,
                found=found,
                lines=tuple(lines_of(contents.text)[found.start - 1 : found.end]),
                drift=_drift(was, now, found),
                replaced=contents.replaced,
            )
        case _:
            assert_never(found)


def anchored(
    root: Path, path: str, start: int | None = None, end: int | None = None, *, shown_hash: str | None = None
) -> Anchor | LeftOut:
    """The anchor of a step's range in the file as it is; without lines, of the whole file.

    With the hash of what the step was shown, the lines must be those: where they are not, they are looked for in the
    whole file, and a range that has changed since is left out rather than anchored to other lines.
    """
    contents = read(root, path)
    if isinstance(contents, Unread):
        return LeftOut(path=contents.path, start=start or 1, end=end or start or 1, reason=contents.reason)
    lines = lines_of(contents.text)
    first, last = (1, len(lines)) if start is None else (start, min(end or start, len(lines)))
    if start is not None and first > len(lines):
        last = end or start  # told as it was asked
    try:
        if start is not None and shown_hash is not None and not _shown(lines[first - 1 : last], shown_hash):
            height = (end or start) - start + 1
            first = _place(lines, height, shown_hash)
            last = first + height - 1
        return anchor(contents.path, contents.text, first, last)
    except InvalidInput as error:
        return LeftOut(path=contents.path, start=start or 1, end=end or start or 1, reason=str(error))


def _shown(lines: list[str], shown_hash: str) -> bool:
    return shown_hash in (content_hash(lines), content_hash([*lines, ""]))


def _place(lines: list[str], height: int, shown_hash: str) -> int:
    """The only place of lines with this hash."""
    if height * len(lines) > COMPARED_LINES_MAX:
        raise InvalidInput("its lines have changed since they were shown")
    places = [
        first + 1 for first in range(len(lines) - height + 1) if _shown(lines[first : first + height], shown_hash)
    ]
    if len(places) != 1:
        raise InvalidInput("its lines stand in several places" if places else "its lines changed since they were shown")
    return places[0]


def _renamed(root: Path, path: str, since: str | datetime | None) -> Contents | Unread:
    told = renamed(root, path, since)
    match told:
        case Renamed():
            found = read(root, told.path)
            if isinstance(found, Unread):
                return Unread(path=path, reason=f"the file was renamed to {told.path}, and {found.reason}")
            return found
        case Deleted():
            return Unread(path=path, reason=f"the file was deleted{f' in {told.commit[:10]}' if told.commit else ''}")
        case Untold():
            return Unread(path=path, reason=f"the file is gone ({told.reason})")
        case _:
            assert_never(told)


def _left_out(was: Anchor, reason: str) -> LeftOut:
    return LeftOut(path=was.path, start=was.start, end=was.end, reason=reason)


def _drift(was: Anchor, now: Anchor, found: Found) -> tuple[str, ...]:
    drift: list[str] = []
    if now.path != was.path:
        drift.append(f"file renamed from {was.path}")
    drift += moved(now.start - was.start)
    if grown := (now.end - now.start) - (was.end - was.start):
        drift.append(f"{_lines(abs(grown))} {'longer' if grown > 0 else 'shorter'}")
    if now.content_hash != was.content_hash and not grown:
        drift.append("changed")
    if found.share < 1:
        drift.append(f"{found.share:.0%} of its lines as they were")
    if was.symbol and now.symbol != was.symbol:
        drift.append(f"was in {was.symbol}")
    return tuple(drift)


def moved(lines: int) -> tuple[str, ...]:
    """How far a range has moved, in words; nothing where it has not."""
    return (f"moved {_lines(abs(lines))} {'down' if lines > 0 else 'up'}",) if lines else ()


def _lines(count: int) -> str:
    return f"{count:,} line{'s' if count != 1 else ''}"

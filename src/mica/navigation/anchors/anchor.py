"""Anchors: line ranges that can be found again after the file has changed. The text of the lines is not stored.

An anchor stores the symbol that contains the lines, a short hash of each line, and hashes of a few lines around them. A
line is "certain" if its text occurs exactly once in the old file and exactly once in the current one. Any other line is
expected at an unchanged distance from the nearest certain line, and must have the same text there. A range that matches
several places equally well is reported as lost.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from hashlib import blake2b
from typing import Literal

import msgspec

from mica.errors import InvalidInput
from mica.navigation.anchors.alignment import (
    ONCE,
    ONCE_IN_SYMBOL,
    SILENT,
    AlignedLines,
    CurrentLines,
    RememberedLines,
    align,
    align_symbol,
    digest,
    hashes_of,
    lines_of,
    pack_hashes,
)
from mica.navigation.anchors.symbols import Symbol, find_enclosing, find_symbols

AROUND = 8  # remembered lines before the range, and as many after it: they locate the range if its lines are common
HASHED_MAX = 2_000  # remembered lines of an anchor, 8 kB; of a longer range only every n-th line is remembered
SHARE_MIN = 0.5  # share of the range's lines with letters or digits that must be found again
WITNESSED_SHARE_MIN = 0.3  # the same for a whole symbol or file, whose name is evidence too
MARGIN_MIN = 0.2  # minimum difference between the shares of two symbols of the same name

How = Literal["exact", "symbol", "lines", "file"]


class Anchor(msgspec.Struct, frozen=True, kw_only=True):
    """A range of lines in one version of a file, stored as line numbers and hashes.

    Lines are counted from 1. `start` is the first line of the range and `end` the last one.
    """

    path: str
    start: int
    end: int
    total: int  # lines of the file
    symbol: str | None = None  # qualified name of the innermost symbol that contains the range
    kind: str | None = None  # of the symbol, such as "function"
    symbol_start: int | None = None  # the first line of the symbol
    symbol_end: int | None = None  # the last line of the symbol
    content_hash: str  # of the lines of the range, computed as for a step
    above: str  # hash of all lines of the file up to the end of the range
    below: str  # hash of all lines of the file from the start of the range
    lead: int = 0  # number of lines before the range of which hashes are stored
    every: int = 1  # n, if only every n-th line is remembered
    hashes: bytes = b""  # of the remembered lines (`alignment.pack_hashes`)

    @property
    def whole(self) -> bool:
        """True if the range is the whole file."""
        return self.start == 1 and self.end == self.total


class AnchorMatch(msgspec.Struct, frozen=True, kw_only=True):
    """The current range of an anchor, how the range was found, and the share of its old lines that are still there.

    `how` is "exact" if the lines and their numbers are the same, "symbol" or "lines" if the range was found by its
    symbol or by its lines, and "file" if the range is a whole file that has changed.
    """

    start: int
    end: int
    how: How
    share: float


class LostAnchor(msgspec.Struct, frozen=True, kw_only=True):
    """The result if the range of an anchor cannot be found. `reason` is a text such as "its lines are gone"."""

    reason: str


def anchor(path: str, text: str, start: int, end: int) -> Anchor:
    """Make an anchor for the lines `start` to `end` of a file, counted from 1, both included. `text` is the whole file.

    Raises InvalidInput if the file has no such lines.
    """
    lines = lines_of(text)
    if not 1 <= start <= end <= len(lines):
        raise InvalidInput(
            f"{path} has {len(lines):,} line{'' if len(lines) == 1 else 's'}, so there is no range {start}-{end} in it"
        )
    whole = (start, end) == (1, len(lines))
    around = None if whole else find_enclosing(find_symbols(path, text), start, end)
    hashes = hashes_of(lines)
    first, last = max(1, start - AROUND), min(len(lines), end + AROUND)
    every = -(-(last - first + 1) // HASHED_MAX)
    in_file = Counter(hashes)
    in_symbol = Counter(hashes[around.start - 1 : around.end]) if around else in_file
    return Anchor(
        path=path,
        start=start,
        end=end,
        total=len(lines),
        symbol=around.name if around else None,
        kind=around.kind if around else None,
        symbol_start=around.start if around else None,
        symbol_end=around.end if around else None,
        content_hash=content_hash(lines[start - 1 : end]),
        above=digest(hashes[:end]),
        below=digest(hashes[start - 1 :]),
        lead=start - first,
        every=every,
        hashes=pack_hashes(
            value | (in_file[value] == 1) * ONCE | (in_symbol[value] == 1) * ONCE_IN_SYMBOL
            for value in hashes[first - 1 : last : every]
        ),
    )


def find(anchor: Anchor, text: str) -> AnchorMatch | LostAnchor:
    """Find an anchor's range in `text`, the current text of its file.

    The range is searched first at its old place, then within its symbol, and then in the whole file. A match is
    returned only if enough of the old lines are still there; otherwise the result is `LostAnchor` with the reason. The
    running time is about linear in the length of the text.
    """
    was = RememberedLines.of(
        anchor.hashes, first=anchor.start - 1 - anchor.lead, every=anchor.every, inner=_inner(anchor)
    )
    now = CurrentLines.of(hashes_of(lines_of(text)))
    if anchor.whole:
        return _find_whole_file(anchor, was, now)
    if (shift := _unmoved(anchor, was, now)) is not None:
        how: How = "lines" if shift else "exact"
        return AnchorMatch(start=anchor.start + shift, end=anchor.end + shift, how=how, share=1.0)
    if not was.distinctive:
        return LostAnchor(reason="its lines are not distinctive, and the file has changed around them")
    named = (
        [symbol for symbol in find_symbols(anchor.path, text) if symbol.name == anchor.symbol] if anchor.symbol else []
    )
    place = _by_symbol(anchor, was, now, named)
    if place is not None:
        return _match(anchor, place, "symbol")
    place = align(was, now)
    if place is not None and place.share >= SHARE_MIN:
        return _match(anchor, place, "lines")
    return LostAnchor(reason=_reason(anchor, was, now, place, named))


def content_hash(lines: Sequence[str]) -> str:
    """Return the hash of lines that a step has as its `content_hash`."""
    return blake2b("\n".join(lines).encode("utf-8", "replace"), digest_size=8).hexdigest()


def _inner(anchor: Anchor) -> range:
    return range(anchor.start - 1, anchor.end)


def _match(anchor: Anchor, place: AlignedLines, how: How) -> AnchorMatch:
    start, end = place.start + 1, place.end
    same = place.share == 1 and (start, end) == (anchor.start, anchor.end)
    return AnchorMatch(start=start, end=end, how="exact" if same else how, share=place.share)


def _find_whole_file(anchor: Anchor, was: RememberedLines, now: CurrentLines) -> AnchorMatch | LostAnchor:
    unchanged = sum(was.values[line] in now.counts for line in was.distinctive)
    share = unchanged / len(was.distinctive) if was.distinctive else 1.0
    if not now.hashes or share < WITNESSED_SHARE_MIN:
        return LostAnchor(reason=f"the file was rewritten: {share:.0%} of its lines are left")
    same = digest(now.hashes) == anchor.above
    return AnchorMatch(start=1, end=len(now.hashes), how="exact" if same else "file", share=share)


def _unmoved(anchor: Anchor, was: RememberedLines, now: CurrentLines) -> int | None:
    """Return how many lines the range has moved down (a negative number: up), or None if this check cannot tell.

    The check can tell only if all lines of the range are unchanged, and either all lines above the range or all lines
    below it are unchanged, too.
    """
    shift = len(now.hashes) - anchor.total
    above = anchor.end <= len(now.hashes) and digest(now.hashes[: anchor.end]) == anchor.above
    below = anchor.start + shift >= 1 and digest(now.hashes[anchor.start - 1 + shift :]) == anchor.below
    if above and below:
        return 0
    if above and _is_proven(was, now, 0, beside=now.hashes[: anchor.start - 1]):
        return 0
    if below and _is_proven(was, now, shift, beside=now.hashes[anchor.end + shift :]):
        return shift
    return None


def _is_proven(was: RememberedLines, now: CurrentLines, shift: int, *, beside: Sequence[int]) -> bool:
    """Return True if it is unlikely that the range, moved by `shift` lines, matches only by chance.

    Such chance matches are common, because many files begin alike. `beside` are the hashes of the unchanged lines above
    or below the range. One of two proofs is enough: at least AROUND of the lines in `beside` have letters or digits; or
    a remembered line has moved by `shift`, and its text occurs exactly once in the old and in the current file.
    """
    if sum(value != SILENT for value in beside) >= AROUND:
        return True
    return any(
        line in was.once and now.counts[value] == 1 and now.at(line + shift) == value
        for line, value in was.values.items()
    )


def _by_symbol(anchor: Anchor, was: RememberedLines, now: CurrentLines, named: Sequence[Symbol]) -> AlignedLines | None:
    """Find the range in one of the symbols in `named`, and return its place.

    `named` are the symbols of the current file that have the name of the anchor's symbol. The result is None if the
    range fits none of them well, or several of them about equally well.
    """
    if anchor.symbol_start is None or anchor.symbol_end is None:
        return None
    then = range(anchor.symbol_start - 1, anchor.symbol_end)
    places: list[AlignedLines] = []
    for symbol in named:
        here = range(symbol.start - 1, symbol.end)
        whole = _inner(anchor) == then
        place = align_symbol(was, now, here) if whole else align(was, now, then, here)
        if place is not None and place.share >= (WITNESSED_SHARE_MIN if whole else SHARE_MIN):
            places.append(place)
    places.sort(key=lambda place: -place.share)
    if not places or (len(places) > 1 and places[0].share - places[1].share < MARGIN_MIN):
        return None
    return places[0]


def _reason(
    anchor: Anchor, was: RememberedLines, now: CurrentLines, place: AlignedLines | None, named: Sequence[Symbol]
) -> str:
    if anchor.symbol and not named:
        return f"{anchor.kind} {anchor.symbol} is gone"
    if place is not None:
        return f"{place.share:.0%} of its lines are left"
    share = sum(was.values[line] in now.counts for line in was.distinctive) / len(was.distinctive)
    return "its lines are gone" if share < SHARE_MIN else "its lines occur in several places"

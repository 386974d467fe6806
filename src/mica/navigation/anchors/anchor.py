"""Anchors: a range of lines that is found again after the file has changed, without its contents.

An anchor remembers which symbol the lines stand in and a short hash of each, with a few around them. Lines whose
trimmed text stood once in the file then and stands once in it now are certain; the others take the shift of the nearest
certain one where their text is equal there. What cannot be told apart is lost, not guessed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from hashlib import blake2b
from typing import Literal

import msgspec

from mica.errors import InvalidInput
from mica.navigation.anchors.alignment import Now, Place, Was, align, whole_of
from mica.navigation.anchors.line_hashes import ONCE, ONCE_IN_SYMBOL, SILENT, digest, hashes_of, lines_of, packed
from mica.navigation.anchors.symbols import Symbol, enclosing, symbols

AROUND = 8  # lines before and after the range that are remembered: they place it when its own lines are common
HASHED_MAX = 2_000  # lines of an anchor, 8 kB; of a longer range only every second, third … line is remembered
SHARE_MIN = 0.5  # of the lines that say something, so many must be there again
WITNESSED_SHARE_MIN = 0.3  # of a whole symbol or file: its name is a witness, too
MARGIN_MIN = 0.2  # of the share, between two symbols of the same name

How = Literal["exact", "symbol", "lines", "file"]


class Anchor(msgspec.Struct, frozen=True, kw_only=True):
    """A range of a file as it was: references and hashes, no contents. Lines count from 1, both ends belong to it."""

    path: str
    start: int
    end: int
    total: int  # lines of the file
    symbol: str | None = None  # the innermost that holds the range, by its qualified name
    kind: str | None = None
    symbol_start: int | None = None
    symbol_end: int | None = None
    content_hash: str  # of the lines as they were: what a step carries, too
    above: str  # hash of all lines up to the end of the range
    below: str  # and of all from its start on
    lead: int = 0  # remembered lines that stand before the range
    every: int = 1  # one of so many lines is remembered
    hashes: bytes = b""  # of the remembered lines, see `line_hashes`

    @property
    def whole(self) -> bool:
        """Whether it is the whole file."""
        return self.start == 1 and self.end == self.total


class Found(msgspec.Struct, frozen=True, kw_only=True):
    """Where the lines of an anchor are now, how that is known, and which share of them is as it was.

    "exact": the same lines under the same numbers. "file": the whole file, then and now.
    """

    start: int
    end: int
    how: How
    share: float


class Lost(msgspec.Struct, frozen=True, kw_only=True):
    """The lines are not there any more, or cannot be told from others."""

    reason: str


def anchor(path: str, text: str, start: int, end: int) -> Anchor:
    """The anchor of these lines of a file. Raises InvalidInput where the file has no such lines."""
    lines = lines_of(text)
    if not 1 <= start <= end <= len(lines):
        raise InvalidInput(
            f"{path} has {len(lines):,} line{'' if len(lines) == 1 else 's'}, so there is no range {start}-{end} in it"
        )
    whole = (start, end) == (1, len(lines))
    around = None if whole else enclosing(symbols(path, text), start, end)
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
        hashes=packed(
            value | (in_file[value] == 1) * ONCE | (in_symbol[value] == 1) * ONCE_IN_SYMBOL
            for value in hashes[first - 1 : last : every]
        ),
    )


def find(anchor: Anchor, text: str) -> Found | Lost:
    """Where the lines of an anchor stand in the file as it is now: by symbol, then by lines, or lost with a reason.

    Whatever is found has proved a share of its lines. Takes time in proportion to the length of the text.
    """
    was = Was.of(anchor.hashes, first=anchor.start - 1 - anchor.lead, every=anchor.every, inner=_inner(anchor))
    now = Now.of(hashes_of(lines_of(text)))
    if anchor.whole:
        return _whole(anchor, was, now)
    if (shift := _unmoved(anchor, was, now)) is not None:
        how: How = "lines" if shift else "exact"
        return Found(start=anchor.start + shift, end=anchor.end + shift, how=how, share=1.0)
    if not was.telling:
        return Lost(reason="its lines say nothing of their own, and the file has changed around them")
    named = [symbol for symbol in symbols(anchor.path, text) if symbol.name == anchor.symbol] if anchor.symbol else []
    place = _by_symbol(anchor, was, now, named)
    if place is not None:
        return _found(anchor, place, "symbol")
    place = align(was, now)
    if place is not None and place.share >= SHARE_MIN:
        return _found(anchor, place, "lines")
    return Lost(reason=_reason(anchor, was, now, place, named))


def content_hash(lines: Sequence[str]) -> str:
    """The hash that a step carries of the text it was shown."""
    return blake2b("\n".join(lines).encode("utf-8", "replace"), digest_size=8).hexdigest()


def _inner(anchor: Anchor) -> range:
    return range(anchor.start - 1, anchor.end)


def _found(anchor: Anchor, place: Place, how: How) -> Found:
    start, end = place.start + 1, place.end
    same = place.share == 1 and (start, end) == (anchor.start, anchor.end)
    return Found(start=start, end=end, how="exact" if same else how, share=place.share)


def _whole(anchor: Anchor, was: Was, now: Now) -> Found | Lost:
    """A whole file is found in the whole file of its path, unless another one has taken its place."""
    kept = sum(was.values[line] in now.counts for line in was.telling)
    share = kept / len(was.telling) if was.telling else 1.0
    if not now.hashes or share < WITNESSED_SHARE_MIN:
        return Lost(reason=f"the file was rewritten: {share:.0%} of its lines are left")
    same = digest(now.hashes) == anchor.above
    return Found(start=1, end=len(now.hashes), how="exact" if same else "file", share=share)


def _unmoved(anchor: Anchor, was: Was, now: Now) -> int | None:
    """How far the range has moved, where nothing has changed above it, or nothing below it."""
    shift = len(now.hashes) - anchor.total
    above = anchor.end <= len(now.hashes) and digest(now.hashes[: anchor.end]) == anchor.above
    below = anchor.start + shift >= 1 and digest(now.hashes[anchor.start - 1 + shift :]) == anchor.below
    if above and below:
        return 0
    if above and _proved(was, now, 0, beside=now.hashes[: anchor.start - 1]):
        return 0
    if below and _proved(was, now, shift, beside=now.hashes[anchor.end + shift :]):
        return shift
    return None


def _proved(was: Was, now: Now, shift: int, *, beside: Sequence[int]) -> bool:
    """Whether an end of the file that is as it was says enough: files often end alike."""
    if sum(value != SILENT for value in beside) >= AROUND:
        return True
    return any(
        line in was.once and now.counts[value] == 1 and now.at(line + shift) == value
        for line, value in was.values.items()
    )


def _by_symbol(anchor: Anchor, was: Was, now: Now, named: Sequence[Symbol]) -> Place | None:
    """The range within the symbol of that name; None where there is none, or several that are as good."""
    if anchor.symbol_start is None or anchor.symbol_end is None:
        return None
    then = range(anchor.symbol_start - 1, anchor.symbol_end)
    places: list[Place] = []
    for symbol in named:
        here = range(symbol.start - 1, symbol.end)
        whole = _inner(anchor) == then
        place = whole_of(was, now, here) if whole else align(was, now, then, here)
        if place is not None and place.share >= (WITNESSED_SHARE_MIN if whole else SHARE_MIN):
            places.append(place)
    places.sort(key=lambda place: -place.share)
    if not places or (len(places) > 1 and places[0].share - places[1].share < MARGIN_MIN):
        return None
    return places[0]


def _reason(anchor: Anchor, was: Was, now: Now, place: Place | None, named: Sequence[Symbol]) -> str:
    if anchor.symbol and not named:
        return f"{anchor.kind} {anchor.symbol} is gone"
    if place is not None:
        return f"{place.share:.0%} of its lines are left"
    left = sum(was.values[line] in now.counts for line in was.telling) / len(was.telling)
    return "its lines are gone" if left < SHARE_MIN else "its lines stand in several places"

"""Find a range of lines of an old version of a file in its current version. Of the old lines, only hashes are stored.

Lines are indexed from 0 here, and the end of a range is exclusive. The running time is linear in the length of the
file, apart from sorting. A line is "certain" if its text occurs exactly once in the old version and exactly once in the
current one: the text alone shows the new place of the line.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from hashlib import blake2b
from typing import NamedTuple

SILENT = 0  # the hash of lines without a letter or digit, which occur everywhere
ONCE, ONCE_IN_SYMBOL = 1, 2  # flags of a remembered line: it occurred once in its file, once in its symbol
FLAGS = ONCE | ONCE_IN_SYMBOL
SIZE = 4  # bytes per line: of 20 files with 10,000 lines, one has two different lines with the same hash

_WORD = re.compile(r"\w")

# A range with more inserted lines than this between two of its lines is split; short ranges use a lower limit.
STRETCH_LINES = 40

Pair = tuple[int, int]  # line index in the old and in the current file


def lines_of(text: str) -> list[str]:
    """Split a text into lines as git, editors and agents count them: a final line break does not start another line."""
    lines = text.split("\n")
    if lines[-1] == "":
        lines.pop()
    return [line.removesuffix("\r") for line in lines] if "\r" in text else lines


def hashes_of(lines: Iterable[str]) -> list[int]:
    """Return a hash of the trimmed text of each line; SILENT for a line without a letter, digit or underscore.

    The bits of FLAGS are 0 in every hash, so that callers can set them.
    """
    known: dict[str, int] = {}
    hashes = []
    for line in lines:
        trimmed = line.strip()
        value = known.get(trimmed)
        if value is None:
            value = known[trimmed] = _hash(trimmed) if _WORD.search(trimmed) else SILENT
        hashes.append(value)
    return hashes


def digest(hashes: Sequence[int]) -> str:
    """Return one short hash of the hashes of many lines."""
    return blake2b(pack_hashes(hashes), digest_size=8).hexdigest()


def pack_hashes(values: Iterable[int]) -> bytes:
    return b"".join(value.to_bytes(SIZE, "big") for value in values)


def unpack_hashes(stored: bytes) -> list[int]:
    return [int.from_bytes(stored[at : at + SIZE], "big") for at in range(0, len(stored), SIZE)]


def _hash(text: str) -> int:
    value = int.from_bytes(blake2b(text.encode("utf-8", "replace"), digest_size=SIZE).digest(), "big")
    return value & ~FLAGS or FLAGS + 1


class RememberedLines(NamedTuple):
    """The stored part of the old file: the hashes of the lines of a range, and of a few lines around the range."""

    values: Mapping[int, int]  # line index to hash
    once: frozenset[int]  # lines whose text occurred once in the file
    once_in_symbol: frozenset[int]  # lines whose text occurred once in their symbol
    inner: range  # the range to be found; the other lines surrounded it
    distinctive: tuple[int, ...]  # the remembered lines of the range that are not SILENT
    every: int  # n, if every n-th line is remembered

    @classmethod
    def of(cls, stored: bytes, *, first: int, every: int, inner: range) -> RememberedLines:
        flagged = {first + index * every: value for index, value in enumerate(unpack_hashes(stored))}
        values = {line: value & ~FLAGS for line, value in flagged.items()}
        return cls(
            values=values,
            once=frozenset(line for line, value in flagged.items() if value & ONCE),
            once_in_symbol=frozenset(line for line, value in flagged.items() if value & ONCE_IN_SYMBOL),
            inner=inner,
            distinctive=tuple(line for line, value in values.items() if value != SILENT and line in inner),
            every=every,
        )


class CurrentLines(NamedTuple):
    """The line hashes of the current file."""

    hashes: list[int]
    counts: Counter[int]  # how often each hash occurs

    @classmethod
    def of(cls, hashes: list[int]) -> CurrentLines:
        return cls(hashes, Counter(hashes))

    def at(self, line: int) -> int | None:
        return self.hashes[line] if 0 <= line < len(self.hashes) else None


class AlignedLines(NamedTuple):
    """The place of an old range in the current file, and the share of the old lines that are still there.

    The share is counted among the lines with letters or digits.
    """

    start: int
    end: int  # exclusive
    share: float  # from 0 to 1


def align(
    was: RememberedLines, now: CurrentLines, then: range | None = None, here: range | None = None
) -> AlignedLines | None:
    """Return the current place of the old range `was.inner`; None if it cannot be found.

    To search only within one symbol, pass the symbol's lines in the old file (`then`) and in the current file (`here`).
    """
    certain = _certain(was, now, then, here)
    inner = _in_order([pair for pair in certain if pair[0] in was.inner])
    outer = _in_order([pair for pair in certain if pair[0] not in was.inner])
    if inner:
        inner = max(_together(inner, _stretch(was.inner)), key=len)
        certain = _join(inner, outer, was.inner)
    else:
        certain = max(_together(outer, _stretch(was.inner)), key=len, default=[])
    if then is not None and here is not None:
        certain = [(then.start - 1, here.start - 1), *certain, (then.stop, here.stop)]
    if not certain:
        return None
    matched = _fill(was, now, certain)
    unchanged = [line for line in was.distinctive if line in matched]
    if not unchanged:
        return None
    start, end = _edges(was, matched, unchanged, total=len(now.hashes))
    if then is not None and here is not None:  # a range that began or ended with its symbol still does
        near = _stretch(was.inner)
        start = here.start if was.inner.start == then.start and start - here.start <= near else start
        end = here.stop if was.inner.stop == then.stop and here.stop - end <= near else end
    return AlignedLines(start, end, len(unchanged) / len(was.distinctive))


def align_symbol(was: RememberedLines, now: CurrentLines, here: range) -> AlignedLines | None:
    """Return `here`, the current lines of a symbol, as the place of an old range that was this whole symbol.

    `share` of the result is the share of the old lines that `here` still contains, in any order. It is counted among
    the lines with letters or digits; the result is None if the old range has no such lines.
    """
    if not was.distinctive:
        return None
    current = Counter(now.hashes[here.start : here.stop])
    unchanged = sum((Counter(was.values[line] for line in was.distinctive) & current).values())
    return AlignedLines(here.start, here.stop, unchanged / len(was.distinctive))


def _certain(was: RememberedLines, now: CurrentLines, then: range | None, here: range | None) -> list[Pair]:
    """Return pairs (old line, current line) with equal text that occurs exactly once in each version of the file.

    `then` and `here` are the old and the current lines of a symbol. With them, only lines of the symbol are paired, and
    their text must occur exactly once in each version of the symbol instead of the file.
    """
    part = range(len(now.hashes)) if here is None else here
    counts = now.counts if here is None else Counter(now.hashes[part.start : part.stop])
    flagged = was.once if then is None else was.once_in_symbol
    line_by_hash = {
        was.values[line]: line
        for line in flagged
        if was.values[line] != SILENT and counts[was.values[line]] == 1 and (then is None or line in then)
    }
    pairs = ((line_by_hash[value], line) for line in part if (value := now.hashes[line]) in line_by_hash)
    return sorted(pairs)


def _in_order(pairs: Sequence[Pair]) -> list[Pair]:
    """Return the longest sequence of pairs whose lines have the same order in both versions of the file.

    `pairs` are pairs (old line, current line), sorted by the old line. Lines that have changed places are left out.
    """
    tails: list[int] = []
    ends: list[int] = []  # index of the pair that ends the best run of each length
    before: list[int] = []
    for index, (_, line) in enumerate(pairs):
        length = bisect_left(tails, line)
        before.append(ends[length - 1] if length else -1)
        if length == len(tails):
            tails.append(line)
            ends.append(index)
        else:
            tails[length], ends[length] = line, index
    run: list[Pair] = []
    index = ends[-1] if ends else -1
    while index >= 0:
        run.append(pairs[index])
        index = before[index]
    return run[::-1]


def _stretch(inner: range) -> int:
    return min(STRETCH_LINES, len(inner) + 3)


def _together(pairs: Iterable[Pair], stretch: int) -> list[list[Pair]]:
    """Split pairs (old line, current line) into groups of lines that are still close together.

    A new group begins where more than `stretch` lines were inserted between two consecutive pairs.
    """
    runs: list[list[Pair]] = []
    for then, now in pairs:
        if runs and (now - runs[-1][-1][1]) - (then - runs[-1][-1][0]) <= stretch:
            runs[-1].append((then, now))
        else:
            runs.append([(then, now)])
    return runs


def _join(inner: Sequence[Pair], outer: Iterable[Pair], within: range) -> list[Pair]:
    """Return the pairs in `inner` and the nearby pairs in `outer`, in line order.

    A pair is (old line, current line). `inner` has pairs for lines of the old range `within`, and `outer` has pairs for
    lines around this range. A pair of `outer` is dropped if its current line is no longer close to those of `inner`.
    """
    first, last, stretch = inner[0], inner[-1], _stretch(within)
    near = [
        (then, now)
        for then, now in outer
        if (
            0 < first[1] - now <= first[0] - then + stretch
            if then < within.start
            else 0 < now - last[1] <= then - last[0] + stretch
        )
    ]
    return sorted([*near, *inner])


def _fill(was: RememberedLines, now: CurrentLines, certain: Sequence[Pair]) -> dict[int, int]:
    """Return a mapping from every remembered old line that can be found to its current line.

    `certain` has the pairs (old line, current line) that are already known. Any other old line is found if its text is
    still at the same distance from the line of the nearest pair before it or after it.
    """
    matched: dict[int, int] = {}
    last = -1
    thens = [then for then, _ in certain]
    for line, value in was.values.items():
        index = bisect_left(thens, line)
        after = certain[index] if index < len(certain) else None
        if after is not None and after[0] == line:
            matched[line] = last = after[1]
            continue
        before = certain[index - 1] if index else None
        low, high = max(last, before[1] if before else -1), after[1] if after else len(now.hashes)
        sides = [side for side in (before, after) if side is not None]
        for side in sorted(sides, key=lambda side: abs(side[0] - line)):
            place = line - side[0] + side[1]
            if low < place < high and now.at(place) == value:
                matched[line] = last = place
                break
    return matched


def _edges(
    was: RememberedLines, matched: Mapping[int, int], unchanged: Sequence[int], *, total: int
) -> tuple[int, int]:
    """Return the start and the exclusive end of the old range `was.inner` in the current file, which has `total` lines.

    `matched` maps old lines to current lines. `unchanged` are the matched old lines of the range that have letters or
    digits; the result always includes them. Further lines at an edge of the old range are included in two cases: they
    are matched next to the included lines, or they have changed and the line beyond the edge is matched close by.
    """
    first, last = unchanged[0], unchanged[-1]
    while first > was.inner.start and matched.get(first - 1) == matched[first] - 1:
        first -= 1
    while last + 1 < was.inner.stop and matched.get(last + 1) == matched[last] + 1:
        last += 1
    start, end = matched[first], matched[last] + 1
    missing, outside = first - was.inner.start, matched.get(was.inner.start - 1)
    if 0 < missing < was.every:
        start = max(0, start - missing)
    elif missing and outside is not None and 0 <= start - outside - 1 <= 2 * missing + 2:
        start = outside + 1
    missing, outside = was.inner.stop - 1 - last, matched.get(was.inner.stop)
    if 0 < missing < was.every:
        end = min(total, end + missing)
    elif missing and outside is not None and 0 <= outside - end <= 2 * missing + 2:
        end = outside
    return start, end

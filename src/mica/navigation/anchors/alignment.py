"""Where remembered lines stand in a file as it is now. Lines are indexed from 0 here, and ends do not belong.

Linear in the length of the file, up to the order of the certain lines. No line is placed by its text alone unless that
text stood once then and stands once now.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from mica.navigation.anchors.line_hashes import FLAGS, ONCE, ONCE_IN_SYMBOL, SILENT, unpacked

STRETCH_LINES = (
    40  # that may have come between two neighbours of a range before they are two ranges; fewer in short ones
)

Pair = tuple[int, int]  # a line then, and now


class Was(NamedTuple):
    """Remembered lines by their place in the file of then."""

    values: Mapping[int, int]
    once: frozenset[int]
    once_in_symbol: frozenset[int]
    inner: range  # the range that is looked for; the others stood around it
    telling: tuple[int, ...]  # remembered lines of it that say something
    every: int  # one of so many lines is remembered

    @classmethod
    def of(cls, stored: bytes, *, first: int, every: int, inner: range) -> Was:
        flagged = {first + index * every: value for index, value in enumerate(unpacked(stored))}
        values = {line: value & ~FLAGS for line, value in flagged.items()}
        return cls(
            values=values,
            once=frozenset(line for line, value in flagged.items() if value & ONCE),
            once_in_symbol=frozenset(line for line, value in flagged.items() if value & ONCE_IN_SYMBOL),
            inner=inner,
            telling=tuple(line for line, value in values.items() if value != SILENT and line in inner),
            every=every,
        )


class Now(NamedTuple):
    """The lines of the file as it is."""

    hashes: list[int]
    counts: Counter[int]

    @classmethod
    def of(cls, hashes: list[int]) -> Now:
        return cls(hashes, Counter(hashes))

    def at(self, line: int) -> int | None:
        return self.hashes[line] if 0 <= line < len(self.hashes) else None


class Place(NamedTuple):
    """Lines of now, and the share of the telling lines of then that stand there unchanged."""

    start: int
    end: int
    share: float


def align(was: Was, now: Now, then: range | None = None, here: range | None = None) -> Place | None:
    """The range in the whole file, or in the lines `here` of a symbol that had the lines `then`; None if nowhere."""
    certain = _certain(was, now, then, here)
    inner = _in_order([pair for pair in certain if pair[0] in was.inner])
    outer = _in_order([pair for pair in certain if pair[0] not in was.inner])
    if inner:
        inner = max(_together(inner, _stretch(was.inner)), key=len)
        certain = _joined(inner, outer, was.inner)
    else:
        certain = max(_together(outer, _stretch(was.inner)), key=len, default=[])
    if then is not None and here is not None:
        certain = [(then.start - 1, here.start - 1), *certain, (then.stop, here.stop)]
    if not certain:
        return None
    matched = _filled(was, now, certain)
    kept = [line for line in was.telling if line in matched]
    if not kept:
        return None
    start, end = _edges(was, matched, kept, total=len(now.hashes))
    if then is not None and here is not None:  # what begins or ends with its symbol still does
        near = _stretch(was.inner)
        start = here.start if was.inner.start == then.start and start - here.start <= near else start
        end = here.stop if was.inner.stop == then.stop and here.stop - end <= near else end
    return Place(start, end, len(kept) / len(was.telling))


def whole_of(was: Was, now: Now, here: range) -> Place | None:
    """A whole symbol is found in the whole symbol of its name."""
    if not was.telling:
        return None
    left = Counter(now.hashes[here.start : here.stop])
    kept = sum((Counter(was.values[line] for line in was.telling) & left).values())
    return Place(here.start, here.stop, kept / len(was.telling))


def _certain(was: Was, now: Now, then: range | None, here: range | None) -> list[Pair]:
    """Lines whose text stood once then and stands once now, in the file or in the symbol."""
    part = range(len(now.hashes)) if here is None else here
    counts = now.counts if here is None else Counter(now.hashes[part.start : part.stop])
    flagged = was.once if then is None else was.once_in_symbol
    wanted = {
        was.values[line]: line
        for line in flagged
        if was.values[line] != SILENT and counts[was.values[line]] == 1 and (then is None or line in then)
    }
    pairs = ((wanted[value], line) for line in part if (value := now.hashes[line]) in wanted)
    return sorted(pairs)


def _in_order(pairs: Sequence[Pair]) -> list[Pair]:
    """The most pairs whose lines are in the same order then and now; lines that changed places are left out."""
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
    """Runs of pairs between which no more than a stretch of lines has come in."""
    runs: list[list[Pair]] = []
    for then, now in pairs:
        if runs and (now - runs[-1][-1][1]) - (then - runs[-1][-1][0]) <= stretch:
            runs[-1].append((then, now))
        else:
            runs.append([(then, now)])
    return runs


def _joined(inner: Sequence[Pair], outer: Iterable[Pair], within: range) -> list[Pair]:
    """The pairs of the range with those around it that still stand near."""
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


def _filled(was: Was, now: Now, certain: Sequence[Pair]) -> dict[int, int]:
    """Every remembered line that stands where a neighbouring certain line says it should."""
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


def _edges(was: Was, matched: Mapping[int, int], kept: Sequence[int], *, total: int) -> tuple[int, int]:
    """The first line and the end of the range now.

    Silent lines belong to it where they touch it, changed lines at an edge where the line beside them is known to stand
    outside.
    """
    first, last = kept[0], kept[-1]
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

"""Which files were touched together again and again: closed sets of co-reads, found in walks. Pure and bounded.

A set is closed when no other file was touched in all of its walks: the smallest common context of those walks (A-46).
Only walks and their times count, never the order in which they are given.
"""

from __future__ import annotations

import heapq
import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from math import ceil

import msgspec

from mica.model.trail import STEPS_MAX, stands_for

WALK_FILES_MAX = 40  # of a walk, its first; whoever touches more sweeps through the project
SETS_MAX = 4_000  # that are looked at, those of the most walks first; a second or two
PAIRS_MAX = 10_000  # that are grown, those of the most walks first; several make the same set
WHOLE_MAX = 1_000  # walks, the latest, that are trails of one run
COMMON_SHARE = 0.1  # of the walks: a pattern that fits in more says nothing
COMMON_WALKS_MIN = 20  # fewer say nothing about what is common

_DRIVE = re.compile(r"[A-Za-z]:[\\/]")


class Found(msgspec.Struct, frozen=True, kw_only=True):
    """Files and patterns that were touched together, and the walks that did so."""

    items: frozenset[str]
    walks: frozenset[int]  # by their place
    absorbed: tuple[frozenset[str], ...] = ()  # the sets that were merged into it


def normalised(path: str) -> str | None:
    """A path of the project with slashes; None for one outside of it."""
    if _DRIVE.match(path) or path.startswith(("/", "~", "\\")):
        return None
    parts = [part for part in path.replace("\\", "/").split("/") if part not in ("", ".")]
    return None if not parts or ".." in parts else "/".join(parts)


@lru_cache(maxsize=65_536)
def generalised(path: str) -> str | None:
    """The pattern of a file's kind, `a/*.py` for `a/x.py`; None where the name has no ending."""
    folder, slash, name = path.rpartition("/")
    stem, dot, ending = name.rpartition(".")
    return f"{folder}{slash}*.{ending}" if stem and dot and ending else None


def similarity(first: Sequence[str], second: Sequence[str]) -> float:
    """How alike two walks are: 1 less the share of steps that must be put in, left out or replaced."""
    longest = max(len(first), len(second))
    if not longest:
        return 1.0
    row = list(range(len(second) + 1))
    for place, step in enumerate(first, 1):
        before, row[0] = row[0], place
        for other, each in enumerate(second, 1):
            changed = before + (not (stands_for(step, each) or stands_for(each, step)))
            before, row[other] = row[other], min(row[other] + 1, row[other - 1] + 1, changed)
    return 1 - row[-1] / longest


def overlap(first: Collection[str], second: Collection[str]) -> float:
    """The share of two sets' files that are in both."""
    together = set(first) | set(second)
    return len(set(first) & set(second)) / len(together) if together else 1.0


# -- Mining ---------------------------------------------------------------------------------------------------


def mined(walks: Sequence[Sequence[str]], *, runs_min: int = 2) -> list[Found]:
    """The closed sets of two to STEPS_MAX files that at least so many walks touched, those of the most walks first."""
    files = [frozenset(paths[:WALK_FILES_MAX]) for paths in walks]
    allowed = _telling(files)
    baskets = [basket | _kinds(basket, allowed) for basket in files]
    masks: defaultdict[str, int] = defaultdict(int)
    for place, basket in enumerate(baskets):
        for item in basket:
            masks[item] |= 1 << place
    pairs = heapq.nsmallest(PAIRS_MAX, _pairs(baskets, masks, runs_min=runs_min))
    return _closed([masks[first] & masks[second] for _, first, second in pairs], baskets, masks, runs_min=runs_min)


def _pairs(
    baskets: Sequence[frozenset[str]], masks: Mapping[str, int], *, runs_min: int
) -> Iterator[tuple[int, str, str]]:
    """Two items of enough walks, led by their number as a negative one. Item by item: all pairs would be millions."""
    for first, mask in masks.items():
        beside = Counter(item for place in _places(mask) for item in baskets[place] if item > first)
        for second, count in beside.items():
            if count >= runs_min and not _is_kind_of(first, second):
                yield -count, first, second


def _closed(
    waiting: list[int], baskets: Sequence[frozenset[str]], masks: Mapping[str, int], *, runs_min: int
) -> list[Found]:
    found: dict[frozenset[str], int] = {}
    known: set[int] = set()
    while waiting and len(known) < SETS_MAX:
        wave: list[tuple[int, frozenset[str]]] = []
        for mask in dict.fromkeys(waiting):
            if mask not in known and len(known) < SETS_MAX:
                known.add(mask)
                closure = frozenset.intersection(*(baskets[place] for place in _places(mask)))
                wave.append((mask, closure))
                items = _concrete(closure)
                if 2 <= len(items) <= STEPS_MAX and not all("*" in item for item in items):
                    found[items] = mask
        room = SETS_MAX - len(known)
        grown = (grown for mask, closure in wave for grown in _grown(mask, closure, baskets, masks, runs_min=runs_min))
        largest = heapq.nsmallest(room, ((-each.bit_count(), each) for each in grown)) if room else []
        waiting = [mask for _, mask in largest]
    sets = [Found(items=items, walks=frozenset(_places(mask))) for items, mask in found.items()]
    return sorted(sets, key=lambda each: (-len(each.walks), -len(each.items), sorted(each.items)))


def _grown(
    mask: int, closure: frozenset[str], baskets: Sequence[frozenset[str]], masks: Mapping[str, int], *, runs_min: int
) -> Iterator[int]:
    """The walks that touched one more item, for each of which there are enough."""
    beside = Counter(item for place in _places(mask) for item in baskets[place] - closure)
    return (mask & masks[item] for item, count in beside.items() if count >= runs_min)


def _telling(baskets: Sequence[frozenset[str]]) -> frozenset[str]:
    """The patterns that say something: of several files, and not in most walks."""
    files: defaultdict[str, set[str]] = defaultdict(set)
    counts: Counter[str] = Counter()
    for basket in baskets:
        kinds = set()
        for path in basket:
            if (kind := generalised(path)) is not None:
                files[kind].add(path)
                kinds.add(kind)
        counts.update(kinds)
    most = len(baskets) * COMMON_SHARE if len(baskets) >= COMMON_WALKS_MIN else len(baskets)
    return frozenset(kind for kind, those in files.items() if len(those) > 1 and counts[kind] <= most)


def _kinds(basket: Iterable[str], allowed: frozenset[str]) -> frozenset[str]:
    return frozenset(kind for path in basket if (kind := generalised(path)) in allowed and kind is not None)


def _is_kind_of(first: str, second: str) -> bool:
    return generalised(first) == second or generalised(second) == first


def _concrete(items: frozenset[str]) -> frozenset[str]:
    """Without patterns that one of the files fits."""
    kinds = {generalised(item) for item in items if "*" not in item}
    return frozenset(item for item in items if "*" not in item or item not in kinds)


def _places(mask: int) -> Iterator[int]:
    while mask:
        low = mask & -mask
        yield low.bit_length() - 1
        mask ^= low


# -- Merging --------------------------------------------------------------------------------------------------


def merged(sets: Iterable[Found], *, above: float, named: int = 0) -> list[Found]:
    """The sets in their order, where one that overlaps an earlier one by more than this is absorbed by it.

    Its walks become those of the earlier one, each counted once. The first `named` are absorbed by none. Only sets that
    share one of their rarest items are compared: two that overlap by so much share one of the first few.
    """
    listed = list(sets)
    rarity = Counter(item for each in listed for item in each.items)
    kept: list[tuple[frozenset[str], set[int], list[frozenset[str]]]] = []
    by_item: defaultdict[str, list[int]] = defaultdict(list)
    for number, each in enumerate(listed):
        rarest = sorted(each.items, key=lambda item: (rarity[item], item))
        prefix = rarest[: len(rarest) - ceil(above * len(rarest)) + 1]
        near = sorted({place for item in prefix for place in by_item[item]}) if number >= named else []
        host = next((place for place in near if overlap(kept[place][0], each.items) > above), None)
        if host is None:
            for item in prefix:
                by_item[item].append(len(kept))
            kept.append((each.items, set(each.walks), list(each.absorbed)))
        else:
            kept[host][1].update(each.walks)
            kept[host][2].extend(those for those in (each.items, *each.absorbed) if those != kept[host][0])
    return [Found(items=items, walks=frozenset(walks), absorbed=tuple(absorbed)) for items, walks, absorbed in kept]

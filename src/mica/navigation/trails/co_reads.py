"""Find sets of files that several walks touched together.

A set is closed if no other file was touched in all of its walks: it is the smallest common context of those walks
(A-46). The result depends on the walks and their times, not on the order of the input.
"""

from __future__ import annotations

import heapq
import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from math import ceil

import msgspec

from mica.model.text_cache import remember_texts
from mica.model.trail import STEPS_MAX, matches_step

WALK_FILES_MAX = 40  # the first files of a walk; a walk with more files scans the whole project
SETS_MAX = 4_000  # examined, those with the most walks first; takes a second or two
PAIRS_MAX = 10_000  # extended to sets, those with the most walks first; several give the same set
WHOLE_MAX = 1_000  # the latest walks, each of which may be a trail with one run
COMMON_SHARE = 0.1  # of the walks: a pattern that occurs in more is not distinctive
COMMON_WALKS_MIN = 20  # with fewer, no pattern is known to be common

_DRIVE = re.compile(r"[A-Za-z]:[\\/]")


class CoReadSet(msgspec.Struct, frozen=True, kw_only=True):
    """Files and patterns that were touched together, and the walks that touched them."""

    items: frozenset[str]
    walks: frozenset[int]  # their indexes in the input
    absorbed: tuple[frozenset[str], ...] = ()  # the sets that were merged into it


def normalize_path(path: str) -> str | None:
    """A project path with slashes; None for a path outside the project."""
    if _DRIVE.match(path) or path.startswith(("/", "~", "\\")):
        return None
    parts = [part for part in path.replace("\\", "/").split("/") if part not in ("", ".")]
    return None if not parts or ".." in parts else "/".join(parts)


@remember_texts(65_536)
def generalize(path: str) -> str | None:
    """The pattern for files of the same kind, `a/*.py` for `a/x.py`; None if the name has no extension."""
    folder, slash, name = path.rpartition("/")
    stem, dot, ending = name.rpartition(".")
    return f"{folder}{slash}*.{ending}" if stem and dot and ending else None


def similarity(first: Sequence[str], second: Sequence[str]) -> float:
    """Similarity of two walks: 1 minus the share of steps to insert, delete or replace."""
    longest = max(len(first), len(second))
    if not longest:
        return 1.0
    row = list(range(len(second) + 1))
    for place, step in enumerate(first, 1):
        before, row[0] = row[0], place
        for other, each in enumerate(second, 1):
            changed = before + (not (matches_step(step, each) or matches_step(each, step)))
            before, row[other] = row[other], min(row[other] + 1, row[other - 1] + 1, changed)
    return 1 - row[-1] / longest


def overlap(first: Collection[str], second: Collection[str]) -> float:
    """The share of two sets' files that are in both."""
    together = set(first) | set(second)
    return len(set(first) & set(second)) / len(together) if together else 1.0


# -- Mining ---------------------------------------------------------------------------------------------------


def mine(walks: Sequence[Sequence[str]], *, runs_min: int = 2) -> list[CoReadSet]:
    """The closed sets of 2 to STEPS_MAX files that enough walks touched, those with the most walks first."""
    files = [frozenset(paths[:WALK_FILES_MAX]) for paths in walks]
    allowed = _distinctive_patterns(files)
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
    """Pairs of items that enough walks touched, with their negative count first; made item by item to save memory."""
    for first, mask in masks.items():
        beside = Counter(item for place in _places(mask) for item in baskets[place] if item > first)
        for second, count in beside.items():
            if count >= runs_min and not _is_kind_of(first, second):
                yield -count, first, second


def _closed(
    waiting: list[int], baskets: Sequence[frozenset[str]], masks: Mapping[str, int], *, runs_min: int
) -> list[CoReadSet]:
    found: dict[frozenset[str], int] = {}
    known: set[int] = set()
    while waiting and len(known) < SETS_MAX:
        wave: list[tuple[int, frozenset[str]]] = []
        for mask in dict.fromkeys(waiting):
            if mask not in known and len(known) < SETS_MAX:
                known.add(mask)
                closure = frozenset.intersection(*(baskets[place] for place in _places(mask)))
                wave.append((mask, closure))
                items = _drop_covered_patterns(closure)
                if 2 <= len(items) <= STEPS_MAX and not all("*" in item for item in items):
                    found[items] = mask
        room = SETS_MAX - len(known)
        grown = (grown for mask, closure in wave for grown in _grow(mask, closure, baskets, masks, runs_min=runs_min))
        largest = heapq.nsmallest(room, ((-each.bit_count(), each) for each in grown)) if room else []
        waiting = [mask for _, mask in largest]
    sets = [CoReadSet(items=items, walks=frozenset(_places(mask))) for items, mask in found.items()]
    return sorted(sets, key=lambda each: (-len(each.walks), -len(each.items), sorted(each.items)))


def _grow(
    mask: int, closure: frozenset[str], baskets: Sequence[frozenset[str]], masks: Mapping[str, int], *, runs_min: int
) -> Iterator[int]:
    """For each further item, the walks that touched it too, if there are enough."""
    beside = Counter(item for place in _places(mask) for item in baskets[place] - closure)
    return (mask & masks[item] for item, count in beside.items() if count >= runs_min)


def _distinctive_patterns(baskets: Sequence[frozenset[str]]) -> frozenset[str]:
    """The patterns that match several files and do not occur in most walks."""
    files: defaultdict[str, set[str]] = defaultdict(set)
    counts: Counter[str] = Counter()
    for basket in baskets:
        kinds = set()
        for path in basket:
            if (kind := generalize(path)) is not None:
                files[kind].add(path)
                kinds.add(kind)
        counts.update(kinds)
    most = len(baskets) * COMMON_SHARE if len(baskets) >= COMMON_WALKS_MIN else len(baskets)
    return frozenset(kind for kind, those in files.items() if len(those) > 1 and counts[kind] <= most)


def _kinds(basket: Iterable[str], allowed: frozenset[str]) -> frozenset[str]:
    return frozenset(kind for path in basket if (kind := generalize(path)) in allowed and kind is not None)


def _is_kind_of(first: str, second: str) -> bool:
    return generalize(first) == second or generalize(second) == first


def _drop_covered_patterns(items: frozenset[str]) -> frozenset[str]:
    """The items without patterns that one of the files matches."""
    kinds = {generalize(item) for item in items if "*" not in item}
    return frozenset(item for item in items if "*" not in item or item not in kinds)


def _places(mask: int) -> Iterator[int]:
    while mask:
        low = mask & -mask
        yield low.bit_length() - 1
        mask ^= low


# -- Merging --------------------------------------------------------------------------------------------------


def merge_sets(sets: Iterable[CoReadSet], *, above: float, named: int = 0) -> list[CoReadSet]:
    """The sets in the same order; a set that overlaps an earlier one by more than `above` is merged into it.

    Its walks are added to the earlier set, each counted once. The first `named` sets are never merged into others. Only
    sets that share one of their rarest items are compared: sets with a large overlap always do.
    """
    listed = list(sets)
    rarity = Counter(item for each in listed for item in each.items)
    merged: list[tuple[frozenset[str], set[int], list[frozenset[str]]]] = []
    by_item: defaultdict[str, list[int]] = defaultdict(list)
    for number, each in enumerate(listed):
        rarest = sorted(each.items, key=lambda item: (rarity[item], item))
        prefix = rarest[: len(rarest) - ceil(above * len(rarest)) + 1]
        near = sorted({place for item in prefix for place in by_item[item]}) if number >= named else []
        host = next((place for place in near if overlap(merged[place][0], each.items) > above), None)
        if host is None:
            for item in prefix:
                by_item[item].append(len(merged))
            merged.append((each.items, set(each.walks), list(each.absorbed)))
        else:
            merged[host][1].update(each.walks)
            merged[host][2].extend(those for those in (each.items, *each.absorbed) if those != merged[host][0])
    return [
        CoReadSet(items=items, walks=frozenset(walks), absorbed=tuple(absorbed)) for items, walks, absorbed in merged
    ]

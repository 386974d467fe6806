"""Find the sets of files that several walks touched together, as closed frequent itemsets.

A walk is here the list of files that an agent read or changed for one prompt. An item is a file or a pattern of files.
A set is closed if the walks that touched all of its files have no other file in common.
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

WALK_FILES_MAX = 40  # only the first files of a walk are used; a walk with more files scans the whole project
SETS_MAX = 4_000  # sets that are examined, those with the most walks first; takes a second or two
PAIRS_MAX = 10_000  # pairs of items that are extended to sets, those with the most walks first
WHOLE_MAX = 1_000  # the latest walks, each of which may become a trail with a single run
COMMON_SHARE = 0.1  # a pattern that occurs in a larger share of the walks is not distinctive
COMMON_WALKS_MIN = 20  # with fewer walks, every pattern counts as distinctive

_DRIVE = re.compile(r"[A-Za-z]:[\\/]")


class CoReadSet(msgspec.Struct, frozen=True, kw_only=True):
    """Files and patterns that were touched together, and the walks that touched all of them."""

    items: frozenset[str]
    walks: frozenset[int]  # indexes of the walks in the input
    absorbed: tuple[frozenset[str], ...] = ()  # the items of the sets that were merged into this one


def normalize_path(path: str) -> str | None:
    """Return a path within the project in its normal form, with forward slashes and without `.` parts.

    Return None for an absolute path, and for one that is empty or contains `..`.
    """
    if _DRIVE.match(path) or path.startswith(("/", "~", "\\")):
        return None
    parts = [part for part in path.replace("\\", "/").split("/") if part not in ("", ".")]
    return None if not parts or ".." in parts else "/".join(parts)


@remember_texts(65_536)
def generalize(path: str) -> str | None:
    """Return the pattern for the files with the same extension in the same folder, such as `a/*.py` for `a/x.py`.

    Return None for a file without an extension.
    """
    folder, slash, name = path.rpartition("/")
    stem, dot, ending = name.rpartition(".")
    return f"{folder}{slash}*.{ending}" if stem and dot and ending else None


def similarity(first: Sequence[str], second: Sequence[str]) -> float:
    """Return the similarity of two lists of paths or patterns, from 0 to 1.

    It is 1 minus their edit distance divided by the length of the longer list. A pattern and a path that matches it
    count as equal.
    """
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
    """Return the Jaccard index of two sets: of the files in any of them, the share that is in both.

    The result is 1 if both are empty.
    """
    together = set(first) | set(second)
    return len(set(first) & set(second)) / len(together) if together else 1.0


# -- Mining ---------------------------------------------------------------------------------------------------


def mine(walks: Sequence[Sequence[str]], *, runs_min: int = 2) -> list[CoReadSet]:
    """Return the closed sets of 2 to STEPS_MAX files or patterns that occur together in at least `runs_min` walks.

    Each walk is the list of its files. The sets that occur in the most walks come first.
    """
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
    """Yield each pair of items that occur together in at least `runs_min` walks.

    A pair is yielded as (minus the number of walks, item, item), so that the most frequent pair sorts first.
    """
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
    """For each item that can be added to the set `closure`, yield a bit mask of the walks that touched the larger set.

    In a bit mask, bit n is set for the walk with the index n. `mask` is the bit mask of `closure`. Masks of fewer than
    `runs_min` walks are left out.
    """
    beside = Counter(item for place in _places(mask) for item in baskets[place] - closure)
    return (mask & masks[item] for item, count in beside.items() if count >= runs_min)


def _distinctive_patterns(baskets: Sequence[frozenset[str]]) -> frozenset[str]:
    """Return the patterns that match several files and occur in at most COMMON_SHARE of the walks.

    Each set in `baskets` has the files of one walk. If there are few walks, the share does not matter.
    """
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
    return frozenset(kind for kind, paths in files.items() if len(paths) > 1 and counts[kind] <= most)


def _kinds(basket: Iterable[str], allowed: frozenset[str]) -> frozenset[str]:
    return frozenset(kind for path in basket if (kind := generalize(path)) in allowed and kind is not None)


def _is_kind_of(first: str, second: str) -> bool:
    return generalize(first) == second or generalize(second) == first


def _drop_covered_patterns(items: frozenset[str]) -> frozenset[str]:
    kinds = {generalize(item) for item in items if "*" not in item}
    return frozenset(item for item in items if "*" not in item or item not in kinds)


def _places(mask: int) -> Iterator[int]:
    while mask:
        low = mask & -mask
        yield low.bit_length() - 1
        mask ^= low


# -- Merging --------------------------------------------------------------------------------------------------


def merge_sets(sets: Iterable[CoReadSet], *, above: float, named: int = 0) -> list[CoReadSet]:
    """Merge each set into the first earlier set with which it has an overlap above `above`, and return the sets left.

    The earlier set keeps its items and gets the walks of both sets. `named` is the number of sets at the beginning that
    are never merged into others. The order of the sets is preserved. Only sets that share one of their rarest items are
    compared, which saves time and still finds every large overlap.
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
            merged[host][2].extend(items for items in (each.items, *each.absorbed) if items != merged[host][0])
    return [
        CoReadSet(items=items, walks=frozenset(walks), absorbed=tuple(absorbed)) for items, walks, absorbed in merged
    ]

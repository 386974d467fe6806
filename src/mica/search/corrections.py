"""A mark that corrects another comes before it, and is named beside it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

import msgspec

from mica.model.event import EventId
from mica.search.ranker import Hit

CORRECTION = "correction"  # the tag of a mark that says how its parent really is


def corrected(hits: Sequence[Hit]) -> list[Hit]:
    """The hits, best first, where a correction ranks above what it corrects, however well that fits the question.

    Of corrections of one thing, and of corrections of corrections, the latest comes first and is named by the others.
    """
    if not any(CORRECTION in hit.mark.tags for hit in hits):
        return list(hits)
    by_id = {hit.id: hit for hit in hits}
    lines: defaultdict[EventId, list[Hit]] = defaultdict(list)
    steps: dict[EventId, int] = {}  # by which a hit corrects what its line began with
    for hit in hits:
        first, steps[hit.id] = _first(hit, by_id)
        lines[first].append(hit)
    told: list[Hit] = []
    for line in lines.values():
        newest_first = sorted(line, key=lambda hit: (steps[hit.id] > 0, hit.at, steps[hit.id], hit.id), reverse=True)
        scores = sorted((hit.score for hit in line), reverse=True)
        told.append(msgspec.structs.replace(newest_first[0], score=scores[0]))
        told += [
            msgspec.structs.replace(hit, score=score, corrected_by=newest_first[0].id)
            for hit, score in zip(newest_first[1:], scores[1:], strict=True)
        ]
    return sorted(told, key=lambda hit: (-hit.score, hit.corrected_by is not None))  # equal ones as they stand


def _first(hit: Hit, by_id: Mapping[EventId, Hit]) -> tuple[EventId, int]:
    """What a hit corrects in the end, and by how many steps; itself when it corrects no other hit."""
    seen = {hit.id}
    while CORRECTION in hit.mark.tags and (above := by_id.get(hit.mark.parent_id or hit.id)) and above.id not in seen:
        hit = above
        seen.add(hit.id)
    return hit.id, len(seen) - 1

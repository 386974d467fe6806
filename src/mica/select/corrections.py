"""A mark that corrects another comes before it, and is named beside it."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from mica.select.rank import Hit

CORRECTION = "correction"  # the tag of a mark that says how its parent really is


def corrected(hits: Sequence[Hit]) -> list[Hit]:
    """The hits, best first, where a correction ranks above what it corrects, however well that fits the question."""
    by_id = {hit.mark.id: hit for hit in hits}
    corrections = [hit for hit in hits if CORRECTION in hit.mark.tags and hit.mark.parent_id in by_id]
    if not corrections:
        return list(hits)
    scores = {hit.mark.id: hit.score for hit in hits}
    by: dict[str, Hit] = {}
    for hit in sorted(corrections, key=lambda hit: (hit.mark.at, hit.mark.id)):  # the latest correction counts
        wrong = by_id[hit.mark.parent_id or hit.mark.id]
        by[wrong.mark.id] = hit
        best = max(scores[hit.mark.id], scores[wrong.mark.id])
        scores[hit.mark.id], scores[wrong.mark.id] = best, min(scores[hit.mark.id], scores[wrong.mark.id])
    told = [
        msgspec.structs.replace(hit, score=scores[hit.mark.id], corrected_by=by[hit.mark.id].mark.id)
        if hit.mark.id in by
        else msgspec.structs.replace(hit, score=scores[hit.mark.id])
        for hit in hits
    ]
    return sorted(told, key=lambda hit: (-hit.score, hit.corrected_by is not None, hit.mark.position or 0))

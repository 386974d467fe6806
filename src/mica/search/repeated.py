"""Of marks that say the same, the latest comes first: what was said again today is not old."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import msgspec

from mica.search.ranker import Hit


def latest_raised(hits: Sequence[Hit]) -> list[Hit]:
    """The hits, best first, where of equal texts the one of the time asked for, and of those the latest, ranks highest.

    It takes the score of the best of them: `again` among its parts says by what it was raised.
    """
    alike: defaultdict[str, list[Hit]] = defaultdict(list)
    for hit in hits:
        alike[hit.text].append(hit)
    if len(alike) == len(hits):
        return list(hits)
    raised: dict[int, Hit] = {}
    for group in alike.values():
        first = max(group, key=lambda hit: ("period" in hit.parts, hit.at, hit.position))
        if first is not group[0] and first.score:
            factor = group[0].score / first.score
            raised[first.position] = msgspec.structs.replace(
                first, score=group[0].score, parts=first.parts | {"again": factor}
            )
    ordered = [raised.get(hit.position, hit) for hit in hits]
    return sorted(ordered, key=lambda hit: (-hit.score, hit.position not in raised))

"""Results that name files: what names a file which the task will probably need comes a little earlier."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from mica.navigation.engine.mentions import Names, mentions
from mica.search.ranker import Hit
from mica.search.search import CrystalHit

FILES_WEIGHT = 0.5  # of the probability of the likeliest file that is named; docs/ranking.md has the values tried
TEXT_CHARACTERS_MAX = 20_000  # of a result, in which files are looked for


def by_files(found: Sequence[Hit | CrystalHit], likely: Mapping[str, float]) -> list[Hit | CrystalHit]:
    """The same results, best first, where files that are `likely` needed raise what names them.

    What was corrected is raised by nothing: it stays behind its correction.
    """
    names = Names(likely)
    raised = [_raised(hit, names, likely) for hit in found]
    return sorted(raised, key=lambda hit: -hit.score)  # equal ones as they stand


def _raised(hit: Hit | CrystalHit, names: Names, likely: Mapping[str, float]) -> Hit | CrystalHit:
    if isinstance(hit, Hit) and hit.corrected_by is not None:
        return hit
    named = mentions(hit.text[:TEXT_CHARACTERS_MAX], names).paths
    best = max((share * likely[path] for path, share in named.items()), default=0.0)
    if best <= 0:
        return hit
    factor = 1 + FILES_WEIGHT * best
    return msgspec.structs.replace(hit, score=hit.score * factor, parts=hit.parts | {"files": factor})

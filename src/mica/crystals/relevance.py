"""Scores and selects crystals by relevance to a query and by recency."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime

import msgspec

from mica.model.crystal import Crystal, CrystalQuery
from mica.model.event import decay
from mica.store.protocol import CrystalIndex
from mica.words import terms, terms_of, words

HALF_LIFE_DAYS = 7.0
PHRASE_BONUS = 0.3  # for a query that occurs in the crystal word for word


def score_recency(at: datetime, now: datetime) -> float:
    """Return 1 for a crystal that ends at `now`. The score is halved for each week that a crystal ends earlier."""
    return decay(now - at, half_life_days=HALF_LIFE_DAYS)


def score_relevance(crystal: Crystal, query_terms: frozenset[str], query: str) -> float:
    """Return the relevance of a crystal, from 0 to 1.

    It is the share of `query_terms` that the crystal contains, plus a bonus if it contains the whole phrase.
    """
    if not query_terms:
        return 0.0
    texts = [*(statement.text for statement in crystal.statements), *crystal.topics, crystal.label or ""]
    crystal_words = words(" ".join(texts))
    share = len(query_terms.intersection(terms_of(crystal_words))) / len(query_terms)
    query_words = words(query)
    is_phrase = len(query_words) > 1 and f" {' '.join(query_words)} " in f" {' '.join(crystal_words)} "
    return min(1.0, share + (PHRASE_BONUS if is_phrase and share else 0.0))


async def read_matching(
    index: CrystalIndex, query_terms: Collection[str], query: CrystalQuery, *, limit: int | None = None
) -> list[Crystal]:
    """Return the crystals that fit `query` and contain at least one of `query_terms`, in the order of the index.

    At most `limit` crystals are read (None: all): those with the most terms and, of equals, the latest. Only crystals
    that are read are checked for lost sources, because the check is slow.
    """
    of_any = msgspec.structs.replace(query, is_stale=None)
    postings = await index.postings(sorted(query_terms), of_any) if query_terms else {}
    counts = Counter(posting.position for of_term in postings.values() for posting in of_term)
    best = sorted(counts, key=lambda position: (-counts[position], -position))
    positions = frozenset(best[:limit])
    return await index.query(msgspec.structs.replace(query, positions=positions, limit=None)) if positions else []


def rank_by_relevance(crystals: Iterable[Crystal], query: str) -> list[Crystal]:
    """Return the crystals that contain a term of the query, most relevant first; ties go to the latest."""
    query_terms = frozenset(terms(query))
    scored = [(score, each) for each in crystals if (score := score_relevance(each, query_terms, query)) > 0]
    return [each for _, each in sorted(scored, key=lambda pair: (pair[0], pair[1].end_at), reverse=True)]


def select_within(
    crystals: Sequence[Crystal],
    above: Mapping[int, frozenset[int]],
    *,
    budget_tokens: int,
    recency_weight: float,
    query: str = "",
    now: datetime,
) -> list[Crystal]:
    """Return crystals that together fit the budget, sorted by level, highest first, then by score.

    `above` maps the position of a crystal to the positions of the crystals that cover it. A crystal that is covered by
    a chosen one is considered last. With a query, only crystals that contain one of its terms are returned.
    """
    query_terms = frozenset(terms(query))
    relevance = {each.id: score_relevance(each, query_terms, query) if query else 0.0 for each in crystals}
    weight = recency_weight if query else 1.0

    def rank(crystal: Crystal) -> tuple[int, float, str]:
        score = weight * score_recency(crystal.end_at, now) + (1 - weight) * relevance[crystal.id]
        return -crystal.number, -score, crystal.id

    candidates = sorted((each for each in crystals if not query or relevance[each.id] > 0), key=rank)
    chosen: dict[int, Crystal] = {}
    left = budget_tokens
    for allows_covered in (False, True):
        for crystal in candidates:
            position = crystal.position or 0
            if position in chosen or crystal.tokens > left:
                continue
            if allows_covered or chosen.keys().isdisjoint(above.get(position, frozenset())):
                chosen[position] = crystal
                left -= crystal.tokens
    return sorted(chosen.values(), key=rank)

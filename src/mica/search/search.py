"""Searches marks and crystals in one ranking. Of a crystal and the marks it summarizes, only the best one is shown.

A crystal is scored like a mark, by its own text. It usually ranks above its marks if it combines words of several of
them, and below a mark that has all these words itself.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from datetime import datetime, tzinfo
from typing import Literal, TypeAlias

import msgspec

from mica.errors import InvalidInput
from mica.model.crystal import LEVELS, Crystal, CrystalQuery, Level
from mica.model.event import EventId
from mica.model.hit import CrystalHit, Hit
from mica.model.mark import Posting, Postings
from mica.search.dates import Period, parse_moment
from mica.search.mark_search import ALL, FEW, SHORTLIST_OF_FEW, Filters, Hits, no_likeness, search
from mica.search.ranker import (
    COMPLETE_FACTOR,
    SESSION_WEIGHT,
    SHORTLIST,
    ParsedQuery,
    find_complete,
    length_factor,
    score_postings,
    time_factors,
)
from mica.store.protocol import ChainIndex, CrystalIndex, EventLog, TextIndex
from mica.words import words

CRYSTALS_MAX = 2_000  # the latest crystals, which are searched: years of one person's sessions, days and weeks
OFFERED_MAX = 50  # the best of those crystals, which are read completely
REORDERED = 3  # `reorder` gets this many times `limit` hits; the others are dropped
BESIDE_MARKS = 0.5  # factor on a crystal's score, because marks are the evidence; docs/ranking.md has the values tried

Depth: TypeAlias = Level | Literal["mark"]
DEPTHS: tuple[Depth, ...] = ("mark", *LEVELS)


Reorder: TypeAlias = Callable[[list[Hit | CrystalHit]], Awaitable[list[Hit | CrystalHit]]]


class SearchResults(list[Hit | CrystalHit]):
    """The matching marks and crystals, best first. `periods` are the periods of time that the query mentions."""

    periods: tuple[Period, ...] = ()

    @property
    def marks(self) -> list[Hit]:
        """The hits that are marks, best first."""
        return [hit for hit in self if isinstance(hit, Hit)]


class SearchScope(msgspec.Struct, frozen=True, kw_only=True):
    """The scope of a search: marks, crystals, or both, and which crystals."""

    level: Depth | None = None  # None: marks and crystals of every level
    with_sources: bool = False  # show a crystal and its sources side by side
    with_superseded: bool = False  # include superseded and retracted crystals


EVERYTHING = SearchScope()


def parse_filters(
    query: str,
    *,
    limit: int,
    since: datetime | str | None,
    until: datetime | str | None,
    agent: str | None,
    tags: str | Sequence[str],
    level: Depth | None,
    now: datetime,
    zone: tzinfo | None,
) -> Filters:
    """Check the arguments of a search, and return the filters that they describe.

    Times as text are relative to `now` in the time zone `zone`. Raises InvalidInput for an invalid argument.
    """
    if not isinstance(query, str):
        raise InvalidInput(f"a query is a text, not {query!r}")
    if not any(map(str.isalnum, query)):
        raise InvalidInput(f"the query {query[:60]!r} has no word to search for; name what was observed")
    if limit < 0:
        raise InvalidInput(f"a limit of {limit} is not possible; give 0 or more")
    if level is not None and level not in DEPTHS:
        raise InvalidInput(f"there is no level {level!r}; use one of {', '.join(DEPTHS)}")
    return Filters(
        since=None if since is None else parse_moment(since, now=now, zone=zone),
        until=None if until is None else parse_moment(until, now=now, zone=zone),
        agent=agent,
        tags=tuple(tag.lstrip("#") for tag in ([tags] if isinstance(tags, str) else tags)),
    )


async def find(
    query: str,
    *,
    log: EventLog,
    chains: ChainIndex,
    texts: TextIndex,
    crystals: CrystalIndex,
    limit: int,
    now: datetime,
    zone: tzinfo | None = None,
    filters: Filters = ALL,
    scope: SearchScope = EVERYTHING,
    likeness: Callable[[ParsedQuery], Awaitable[Mapping[int, float] | None]] = no_likeness,
    reorder: Reorder | None = None,
) -> SearchResults:
    """Return the marks and crystals that match the query and the filters, best first.

    A crystal passes a time filter if the time that it covers overlaps the time of the filter. A crystal passes a filter
    by agent or tags if it covers a matching mark that passes the filter. `likeness` returns how similar in meaning
    marks are to the query, by position. `reorder` gets the best hits, at most REORDERED times `limit`, and returns them
    in a new order.
    """
    marks = await search(
        query,
        log=log,
        chains=chains,
        texts=texts,
        limit=max(limit, SHORTLIST if limit > FEW else SHORTLIST_OF_FEW),
        now=now,
        zone=zone,
        filters=filters,
        likeness=likeness,
        shown=limit,
    )
    crystal_hits = [] if scope.level == "mark" else await _search_crystals(crystals, marks, filters, scope)
    above = await crystals.above([hit.position for hit in (*marks, *crystal_hits)]) if crystal_hits else {}
    if filters.needs_text:
        fitting = frozenset[int]().union(*(above[hit.position] for hit in marks)) if above else frozenset[int]()
        crystal_hits = [hit for hit in crystal_hits if hit.position in fitting]
    ranking = merge_rankings(() if scope.level in LEVELS else marks, crystal_hits, above, scope=scope)
    if reorder is not None:
        ranking = await reorder(ranking[: REORDERED * limit])
    results = SearchResults(ranking[:limit])
    results.periods = marks.periods
    return results


async def _search_crystals(index: CrystalIndex, marks: Hits, filters: Filters, scope: SearchScope) -> list[CrystalHit]:
    query = marks.query
    of_level = CrystalQuery(
        level=None if scope.level == "mark" else scope.level,
        since=filters.since,
        until=filters.until,
        is_live=None if scope.with_superseded else True,
        limit=CRYSTALS_MAX,
    )
    postings = await index.postings([term.term for term in query.terms], of_level) if query.terms else {}
    best = sorted(score_crystals(query, postings, marks.statistics).items(), key=lambda pair: (-pair[1][0], pair[0]))
    scores = dict(best[:OFFERED_MAX])
    if not scores:
        return []
    is_stale = None if scope.with_superseded else False
    read = await index.query(
        CrystalQuery(positions=frozenset(scores), is_live=of_level.is_live, is_stale=is_stale, limit=None)
    )
    complete = find_complete(query, postings)
    return [
        make_crystal_hit(
            query,
            crystal,
            *scores[crystal.position or 0],
            statistics=marks.statistics,
            is_complete=crystal.position in complete,
        )
        for crystal in read
    ]


def score_crystals(
    query: ParsedQuery, postings: Mapping[str, tuple[Posting, ...]], statistics: Postings
) -> dict[int, tuple[float, int]]:
    """Return a pair for each crystal, by its position in the log: its BM25 score, and the number of its words.

    `postings` has the crystals that contain each term. `statistics` are those of the marks: how rare a term is depends
    on the number of marks that contain it, as in the search for marks.
    """
    scores: dict[int, tuple[float, int]] = {}
    for posting, score in score_postings(query.terms, msgspec.structs.replace(statistics, by_term=dict(postings))):
        before, _ = scores.get(posting.position, (0.0, 0))
        scores[posting.position] = before + score, posting.length
    return scores


def make_crystal_hit(
    query: ParsedQuery, crystal: Crystal, own: float, length: int, *, statistics: Postings, is_complete: bool
) -> CrystalHit:
    """Return the hit of a crystal, with its total score.

    `own` is the BM25 score of the crystal's text, and `length` the number of its words. `is_complete` is True if it
    contains all words of a query that is a bare list of words.
    """
    parts = {"own": own, "whole": SESSION_WEIGHT * own}
    factors = {"crystal": BESIDE_MARKS, "length": length_factor(length, statistics)}
    factors |= time_factors(query, crystal.start_at, crystal.end_at)
    factors |= {"complete": COMPLETE_FACTOR} if is_complete else {}
    score = math.fsum(parts.values()) * math.prod(factors.values())
    return CrystalHit(crystal=crystal, score=score, parts=parts | factors)


def merge_rankings(
    marks: Sequence[Hit],
    crystals: Sequence[CrystalHit],
    above: Mapping[int, frozenset[int]],
    *,
    scope: SearchScope = EVERYTHING,
) -> list[Hit | CrystalHit]:
    """Merge hits of marks and crystals into one list, best first.

    Of a crystal and the marks and crystals that it covers, only the best hit stays, except with `scope.with_sources`.
    `above` maps the position of each hit to the positions of the crystals that cover the hit.
    """
    every: list[Hit | CrystalHit] = [*marks, *crystals]
    ordered = sorted(every, key=lambda hit: (-hit.score, isinstance(hit, CrystalHit)))  # stable for equal scores
    if scope.with_sources or not crystals:
        return ordered
    shown: dict[int, Hit | CrystalHit] = {}
    beneath: dict[int, list[EventId]] = {}
    over: set[int] = set()  # crystals that cover a shown hit
    for hit in ordered:
        covering = above[hit.position] & shown.keys()
        for position in covering:
            beneath.setdefault(position, []).append(hit.id)
        if not covering and hit.position not in over:
            shown[hit.position] = hit
            over |= above[hit.position]
    return [
        msgspec.structs.replace(hit, in_place_of=tuple(beneath.get(position, ())))
        if isinstance(hit, CrystalHit)
        else hit
        for position, hit in shown.items()
    ]


def collapse_repeats(hits: Iterable[Hit | CrystalHit]) -> list[tuple[Hit | CrystalHit, int]]:
    """Return a pair for each distinct text: the first hit with this text, and the number of hits with it.

    Texts are compared without case, punctuation and blanks. The order of the hits is preserved.
    """
    first: dict[tuple[str, ...], Hit | CrystalHit] = {}
    times: Counter[tuple[str, ...]] = Counter()
    for hit in hits:
        claim = tuple(words(hit.text))
        first.setdefault(claim, hit)
        times[claim] += 1
    return [(hit, times[claim]) for claim, hit in first.items()]

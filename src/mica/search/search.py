"""Marks and crystals in one ranking: the better of a crystal and what it rests on, never both.

A crystal is scored by the formula of marks, as a text of its own. It comes before its marks where it says together what
they say apart, and after them where one of them says it.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from datetime import datetime, tzinfo
from typing import Literal, TypeAlias

import msgspec

from mica.model.crystal import LEVELS, Crystal, CrystalQuery, Level
from mica.model.event import EventId, Posting, Postings
from mica.search.dates import Period
from mica.search.mark_search import ALL, FEW, SHORTLIST_OF_FEW, Filters, Hits, search, unknown
from mica.search.ranker import (
    COMPLETE_FACTOR,
    SESSION_WEIGHT,
    SHORTLIST,
    Hit,
    Query,
    complete,
    length_factor,
    scored,
    time_factors,
)
from mica.store.protocol import Store
from mica.words import words

CRYSTALS_MAX = 2_000  # the latest that are looked at: years of one person's sessions, days and weeks
OFFERED_MAX = 50  # of those, that are read
REORDERED = 3  # times as many as are shown are looked at again: what is far behind is not what was asked for
BESIDE_MARKS = 0.5  # of a crystal's score: marks are the evidence; docs/ranking.md has the values tried

Depth: TypeAlias = Level | Literal["mark"]
DEPTHS: tuple[Depth, ...] = ("mark", *LEVELS)


class CrystalHit(msgspec.Struct, frozen=True, kw_only=True):
    """A crystal that answers, and why. `own` and `whole` are added, the other parts multiply."""

    crystal: Crystal
    score: float
    parts: dict[str, float]
    in_place_of: tuple[EventId, ...] = ()  # what lies beneath it and answers too, best first

    @property
    def id(self) -> EventId:
        return self.crystal.id

    @property
    def text(self) -> str:
        return self.crystal.text

    @property
    def at(self) -> datetime:
        return self.crystal.end_at

    @property
    def position(self) -> int:
        assert self.crystal.position is not None, "what is found is stored"
        return self.crystal.position


Reorder: TypeAlias = Callable[[list[Hit | CrystalHit]], Awaitable[list[Hit | CrystalHit]]]


class Found(list[Hit | CrystalHit]):
    """The marks and crystals that answer, best first, and which times the question was understood to name."""

    periods: tuple[Period, ...] = ()

    @property
    def marks(self) -> list[Hit]:
        """The marks among them."""
        return [hit for hit in self if isinstance(hit, Hit)]


class Wanted(msgspec.Struct, frozen=True, kw_only=True):
    """Which of the two, and which crystals."""

    level: Depth | None = None  # None: all of them
    with_sources: bool = False  # a crystal and what it rests on may stand beside each other
    with_superseded: bool = False  # also crystals that do not stand any more


BOTH = Wanted()


async def find(
    store: Store,
    query: str,
    *,
    limit: int,
    now: datetime,
    zone: tzinfo | None = None,
    filters: Filters = ALL,
    wanted: Wanted = BOTH,
    likeness: Callable[[Query], Awaitable[Mapping[int, float] | None]] = unknown,
    reorder: Reorder | None = None,
) -> Found:
    """The marks and crystals that answer the query and fit, best first.

    A crystal fits a time that it overlaps, and an agent or tags when a mark beneath it fits and answers. `reorder` is
    given the best, some more than are wanted, and may know better.
    """
    marks = await search(
        store,
        query,
        limit=max(limit, SHORTLIST if limit > FEW else SHORTLIST_OF_FEW),
        now=now,
        zone=zone,
        filters=filters,
        likeness=likeness,
        shown=limit,
    )
    crystals = [] if wanted.level == "mark" else await _crystals(store, marks, filters, wanted)
    above = await store.above([hit.position for hit in (*marks, *crystals)]) if crystals else {}
    if filters.needs_text:
        fitting = frozenset[int]().union(*(above[hit.position] for hit in marks)) if above else frozenset[int]()
        crystals = [hit for hit in crystals if hit.position in fitting]
    ranking = one_ranking(() if wanted.level in LEVELS else marks, crystals, above, wanted=wanted)
    if reorder is not None:
        ranking = await reorder(ranking[: REORDERED * limit])
    found = Found(ranking[:limit])
    found.periods = marks.periods
    return found


async def _crystals(store: Store, marks: Hits, filters: Filters, wanted: Wanted) -> list[CrystalHit]:
    asked = marks.asked
    of_level = CrystalQuery(
        level=None if wanted.level == "mark" else wanted.level,
        since=filters.since,
        until=filters.until,
        is_live=None if wanted.with_superseded else True,
        limit=CRYSTALS_MAX,
    )
    said = await store.crystal_postings([term.term for term in asked.terms], of_level) if asked.terms else {}
    best = sorted(own_scores(asked, said, marks.statistics).items(), key=lambda pair: (-pair[1][0], pair[0]))
    scores = dict(best[:OFFERED_MAX])
    if not scores:
        return []
    standing = None if wanted.with_superseded else False
    read = await store.crystals(
        CrystalQuery(positions=frozenset(scores), is_live=of_level.is_live, is_stale=standing, limit=None)
    )
    whole = complete(asked, said)
    return [
        crystal_hit(
            asked,
            crystal,
            *scores[crystal.position or 0],
            statistics=marks.statistics,
            is_complete=crystal.position in whole,
        )
        for crystal in read
    ]


def own_scores(
    query: Query, said: Mapping[str, tuple[Posting, ...]], statistics: Postings
) -> dict[int, tuple[float, int]]:
    """What the words of crystals are worth, and how many they have, by position. Rare is what few marks say."""
    scores: dict[int, tuple[float, int]] = {}
    for posting, score in scored(query.terms, msgspec.structs.replace(statistics, by_term=dict(said))):
        before, _ = scores.get(posting.position, (0.0, 0))
        scores[posting.position] = before + score, posting.length
    return scores


def crystal_hit(
    query: Query, crystal: Crystal, own: float, length: int, *, statistics: Postings, is_complete: bool
) -> CrystalHit:
    """A crystal with its score. Where a mark is helped by its session, a crystal is the whole of it."""
    parts = {"own": own, "whole": SESSION_WEIGHT * own}
    factors = {"crystal": BESIDE_MARKS, "length": length_factor(length, statistics)}
    factors |= time_factors(query, crystal.start_at, crystal.end_at)
    factors |= {"complete": COMPLETE_FACTOR} if is_complete else {}
    score = math.fsum(parts.values()) * math.prod(factors.values())
    return CrystalHit(crystal=crystal, score=score, parts=parts | factors)


def one_ranking(
    marks: Sequence[Hit],
    crystals: Sequence[CrystalHit],
    above: Mapping[int, frozenset[int]],
    *,
    wanted: Wanted = BOTH,
) -> list[Hit | CrystalHit]:
    """All of them, best first; of a crystal and what lies beneath it the better one, unless both are wanted.

    `above` says which crystals rest on what is at a position.
    """
    every: list[Hit | CrystalHit] = [*marks, *crystals]
    ordered = sorted(every, key=lambda hit: (-hit.score, isinstance(hit, CrystalHit)))  # equal ones as they stand
    if wanted.with_sources or not crystals:
        return ordered
    shown: dict[int, Hit | CrystalHit] = {}
    beneath: dict[int, list[EventId]] = {}
    over: set[int] = set()  # what rests on something shown
    for hit in ordered:
        standing = above[hit.position] & shown.keys()
        for position in standing:
            beneath.setdefault(position, []).append(hit.id)
        if not standing and hit.position not in over:
            shown[hit.position] = hit
            over |= above[hit.position]
    return [
        msgspec.structs.replace(hit, in_place_of=tuple(beneath.get(position, ())))
        if isinstance(hit, CrystalHit)
        else hit
        for position, hit in shown.items()
    ]


def collapsed(hits: Iterable[Hit | CrystalHit]) -> list[tuple[Hit | CrystalHit, int]]:
    """Hits of which each says something else than those before it, and how often each is said.

    Two say the same whose words are the same, whatever their case, punctuation and blanks.
    """
    first: dict[tuple[str, ...], Hit | CrystalHit] = {}
    times: Counter[tuple[str, ...]] = Counter()
    for hit in hits:
        claim = tuple(words(hit.text))
        first.setdefault(claim, hit)
        times[claim] += 1
    return [(hit, times[claim]) for claim, hit in first.items()]

"""Searches for marks: reads candidates from the store and ranks them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import datetime, tzinfo
from itertools import islice

import msgspec

from mica.model.event import MARK, EventId, EventQuery
from mica.model.hit import Hit
from mica.model.mark import Mark, Postings, Text
from mica.search.dates import Period
from mica.search.ranker import NEIGHBOURS, SHORTLIST, ParsedQuery, parse, rank, shortlist
from mica.search.second_query import CLASS, PINNED, broaden, join_hits, select_pinned
from mica.search.vectors import NEAREST
from mica.store.protocol import ChainIndex, EventLog, TextIndex

CANDIDATES = 500  # marks whose words are weighed; measured: 300 find what 4,000 do
FEW, SHORTLIST_OF_FEW = 20, 100  # if at most 20 hits are shown, a longer shortlist changes almost nothing
QUICK_LOOK = 20  # candidates for an early result, for callers with a deadline
CHOOSING = 400  # candidates that are read at a time to apply filters
CHOOSING_MAX = 4_000  # candidates that are read in total to apply filters


class Filters(msgspec.Struct, frozen=True, kw_only=True):
    """Conditions that a mark must meet: time, agent and tags. None, or no tags, means no condition."""

    since: datetime | None = None
    until: datetime | None = None  # exclusive
    agent: str | None = None
    tags: tuple[str, ...] = ()  # a mark must have all of them

    @property
    def needs_text(self) -> bool:
        """True if marks must be read to apply the filters. Times alone can be looked up in the index."""
        return self.agent is not None or bool(self.tags)

    def fits(self, mark: Mark) -> bool:
        return (
            (self.since is None or mark.at >= self.since)
            and (self.until is None or mark.at < self.until)
            and (self.agent is None or mark.agent == self.agent)
            and set(self.tags) <= set(mark.tags)
        )


ALL = Filters()


class Hits(list[Hit]):
    """The marks that match a query, best first, with the parsed query and how many marks contain each term."""

    query: ParsedQuery
    statistics: Postings  # how many marks contain each term of the query

    @property
    def periods(self) -> tuple[Period, ...]:
        """The periods of time that the query mentions."""
        return self.query.periods


async def no_likeness(_: ParsedQuery) -> None:
    """Return None. This is the default of the parameter `likeness`, for a search without an embedding model."""


async def search(
    query: str,
    *,
    log: EventLog,
    chains: ChainIndex,
    texts: TextIndex,
    limit: int,
    now: datetime,
    zone: tzinfo | None = None,
    filters: Filters = ALL,
    likeness: Callable[[ParsedQuery], Awaitable[Mapping[int, float] | None]] = no_likeness,
    shown: int | None = None,
    on_partial: Callable[[list[Hit]], None] | None = None,
) -> Hits:
    """Return the marks that match the query and the filters, best first.

    `likeness` returns how similar in meaning marks are to the query, by position. `shown` is the number of hits that
    will be used, if fewer than `limit`; fewer candidates are then read. `on_partial` is called with at most two early
    results: first the marks that share the most words with the query, then all hits of the query before it is extended
    by related words.
    """
    parsed = parse(query, now=now, zone=zone, speakers=await chains.agents())
    near = await likeness(parsed)
    shown = limit if shown is None else shown
    read = SHORTLIST if shown > FEW else SHORTLIST_OF_FEW
    marks = MarkQuery(texts, limit=max(limit, read), read=read, filters=filters, likeness=near, on_partial=on_partial)
    first = await marks.rank(parsed, limit=max(CLASS, limit) if parsed.is_bare or shown <= PINNED else CLASS)
    hits = Hits()
    if len(select_pinned(first)) < shown and first:
        if on_partial is not None:
            on_partial(first)
        second = await marks.rank(broaden(parsed, first), limit=max(limit, read))
        hits.extend(put_corrections_first(raise_latest_repeats(join_hits(parsed, first, second))[:limit]))
    else:
        hits.extend(put_corrections_first(raise_latest_repeats(first)[:limit]))
    hits.query, hits.statistics = parsed, marks.postings
    if not parsed.all_terms and parsed.periods:
        hits.extend(await _read_periods(log, texts, parsed.periods, filters, limit))
    return hits


async def _read_periods(
    log: EventLog, texts: TextIndex, periods: Sequence[Period], filters: Filters, limit: int
) -> list[Hit]:
    """Return the latest marks in these periods as hits, at most `limit`. Used for a query that has only times."""
    events = [
        event
        for period in periods
        for event in await log.query(EventQuery(names=(MARK,), since=period.start_at, until=period.end_at, limit=limit))
    ]
    texts_read = await texts.read([event.position or 0 for event in events], neighbours=0)
    marks = sorted(
        (text.mark for text in texts_read if filters.fits(text.mark)), key=lambda mark: mark.at, reverse=True
    )
    return [Hit(mark=mark, score=1 / rank, parts={"own": 1.0}) for rank, mark in enumerate(marks[:limit], start=1)]


class MarkQuery:
    """Ranks marks for a query, and again for the same query extended by related words. No mark is read twice.

    `limit` is the number of hits that are wanted, and `read` the least number of candidates that are read.
    """

    def __init__(
        self,
        index: TextIndex,
        *,
        limit: int,
        read: int,
        filters: Filters,
        likeness: Mapping[int, float] | None,
        on_partial: Callable[[list[Hit]], None] | None = None,
    ) -> None:
        self._index = index
        self._limit = limit
        self._read = max(read, limit // 2)  # together with their neighbours more marks than the limit
        self._filters = filters
        self._likeness = likeness
        self._on_partial = on_partial
        self._postings: Postings | None = None
        self._chosen: set[int] = set()
        self._texts: dict[int, Text] = {}  # the chosen marks and their neighbours, by position

    @property
    def postings(self) -> Postings:
        """The postings of the query that was ranked last: for each term, which marks contain it, and how often."""
        assert self._postings is not None, "`rank` was called"
        return self._postings

    async def rank(self, query: ParsedQuery, *, limit: int) -> list[Hit]:
        """Return the marks that match the query and the filters, best first. With filters, `limit` is ignored."""
        self._postings = postings = await self._index.postings(
            query.all_terms,
            weights={term.term: term.weight for term in (*query.learned, *query.terms)},
            limit=CHOOSING_MAX if self._filters.needs_text else max(CANDIDATES, self._limit),
            since=self._filters.since,
            until=self._filters.until,
        )
        fitting = await self._find_fitting(query, postings)
        if len(fitting) >= self._read:  # not all of them
            fitting = list(dict.fromkeys([*fitting, *await self._find_in_periods(query)]))
        chosen = [position for position in fitting if position not in self._chosen]
        if self._on_partial is not None:
            await self._report_early(query, postings, chosen[:QUICK_LOOK])
        self._chosen.update(chosen)
        for text in await self._index.read(chosen, neighbours=NEIGHBOURS):
            self._texts[text.position] = text
        texts = [self._texts[position] for position in sorted(self._texts)]
        postings = await self._complete_postings(query, postings)
        if self._filters == ALL:
            return rank(query, texts, postings, self._likeness, limit=limit)
        return [hit for hit in rank(query, texts, postings, self._likeness) if self._filters.fits(hit.mark)]

    async def _find_in_periods(self, query: ParsedQuery) -> list[int]:
        """Return the positions of the best candidates in the periods that the query mentions.

        They are looked up separately, because better matches outside the periods could fill the list of candidates.
        """
        positions: list[int] = []
        for period in query.periods:
            listed = await self._index.postings(
                query.all_terms,
                weights={term.term: term.weight for term in (*query.learned, *query.terms)},
                limit=self._read,
                since=max(filter(None, [period.start_at, self._filters.since])),
                until=min(filter(None, [period.end_at, self._filters.until])),
            )
            positions += shortlist(query, listed, limit=self._read)
        return positions

    async def _report_early(self, query: ParsedQuery, postings: Postings, chosen: Sequence[int]) -> None:
        """Rank only the candidates in `chosen` and pass the hits to `on_partial`. A second call does nothing."""
        on_partial, self._on_partial = self._on_partial, None
        if on_partial is not None:
            texts = await self._index.read(chosen, neighbours=0)
            hits = rank(query, texts, postings, self._likeness)
            on_partial([hit for hit in hits if self._filters.fits(hit.mark)])

    async def _complete_postings(self, query: ParsedQuery, postings: Postings) -> Postings:
        """Return a copy of `postings` that is complete for the marks that were read.

        For a frequent term, `postings` lists only the best marks that contain it. So it may lack marks that were read
        only because they are next to a candidate. These are added.
        """
        unlisted = [term for term in query.all_terms if postings.count_marks(term) > len(postings.by_term[term])]
        if not unlisted:
            return postings
        known = {posting.position for entries in postings.by_term.values() for posting in entries}
        unlisted_postings = await self._index.postings_at(unlisted, list(self._texts.keys() - known))
        more = {term: (*postings.by_term[term], *entries) for term, entries in unlisted_postings.items()}
        return postings.with_postings(postings.by_term | more)

    async def _find_fitting(self, query: ParsedQuery, postings: Postings) -> Sequence[int]:
        """Return the positions of the candidates that pass the filters: the best by words, and the nearest by meaning.

        `postings` has the marks that contain terms of the query.
        """
        near = list(islice(self._likeness or {}, NEAREST))
        if not self._filters.needs_text:
            return list(dict.fromkeys([*shortlist(query, postings, limit=self._read), *near]))
        candidates = list(dict.fromkeys([*near, *shortlist(query, postings, limit=CHOOSING_MAX)]))
        fitting_positions: list[int] = []
        for start in range(0, len(candidates), CHOOSING):
            some = candidates[start : start + CHOOSING]
            texts = await self._index.read(some, neighbours=0)
            fitting = {text.position for text in texts if self._filters.fits(text.mark)}
            fitting_positions += [position for position in some if position in fitting]
            if len(fitting_positions) >= self._limit:
                break
        return fitting_positions[: self._limit]


# -- Repeated texts -------------------------------------------------------------------------------------------


def raise_latest_repeats(hits: Sequence[Hit]) -> list[Hit]:
    """Return the hits, best first. Of several hits with equal text, the latest one gets the best score of them.

    If the query mentions a period, a hit in the period counts as later than hits outside the period. If the score of a
    hit was raised, `parts["again"]` is the factor.
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


# -- Corrections ----------------------------------------------------------------------------------------------


CORRECTION = "correction"  # the tag of a mark that corrects its parent


def put_corrections_first(hits: Sequence[Hit]) -> list[Hit]:
    """Return the hits, best first, with each correction above the mark that it corrects.

    A correction is a mark that replaces an earlier mark. If a mark has several corrections, the latest one comes first,
    and the mark and its other corrections get the id of the latest correction as `corrected_by`.
    """
    if not any(CORRECTION in hit.mark.tags for hit in hits):
        return list(hits)
    by_id = {hit.id: hit for hit in hits}
    lines: defaultdict[EventId, list[Hit]] = defaultdict(list)
    steps: dict[EventId, int] = {}  # number of corrections between a hit and its original
    for hit in hits:
        first, steps[hit.id] = _find_original(hit, by_id)
        lines[first].append(hit)
    ordered: list[Hit] = []
    for line in lines.values():
        newest_first = sorted(line, key=lambda hit: (steps[hit.id] > 0, hit.at, steps[hit.id], hit.id), reverse=True)
        scores = sorted((hit.score for hit in line), reverse=True)
        ordered.append(msgspec.structs.replace(newest_first[0], score=scores[0]))
        ordered += [
            msgspec.structs.replace(hit, score=score, corrected_by=newest_first[0].id)
            for hit, score in zip(newest_first[1:], scores[1:], strict=True)
        ]
    return sorted(ordered, key=lambda hit: (-hit.score, hit.corrected_by is not None))  # stable for equal scores


def _find_original(hit: Hit, by_id: Mapping[EventId, Hit]) -> tuple[EventId, int]:
    """Return the id of the first mark in the chain of corrections that ends with a hit, and the number of corrections.

    A correction may correct another correction, and so on. The first mark of the chain is not a correction, or corrects
    a mark that is not in `by_id`. For a hit that corrects nothing, the result is its own id and 0.
    """
    visited = {hit.id}
    while (
        CORRECTION in hit.mark.tags and (above := by_id.get(hit.mark.parent_id or hit.id)) and above.id not in visited
    ):
        hit = above
        visited.add(hit.id)
    return hit.id, len(visited) - 1

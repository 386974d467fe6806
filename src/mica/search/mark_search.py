"""Search: the store's candidates, ranked by one pure formula."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import datetime, tzinfo
from itertools import islice

import msgspec

from mica.model.event import MARK, EventQuery, Mark, Postings, Text
from mica.search.corrections import corrected
from mica.search.dates import Period
from mica.search.ranker import NEIGHBOURS, SHORTLIST, Hit, Query, parse, rank, shortlist
from mica.search.repeated import latest_raised
from mica.search.second_query import CLASS, KEPT, broader, joined, kept_first
from mica.search.vectors import NEAREST
from mica.store.protocol import Store

CANDIDATES = 500  # marks whose words are weighed: measured, 300 find what 4,000 do
FEW, SHORTLIST_OF_FEW = 20, 100  # where so few are shown, the rest of a shortlist changes next to nothing of them
QUICK_LOOK = 20  # candidates that are read first, for who cannot wait
CHOOSING = 400  # candidates that are read at once to see which of them fit
CHOOSING_MAX = 4_000  # and in all


class Filters(msgspec.Struct, frozen=True, kw_only=True):
    """What a mark must be, whatever it says."""

    since: datetime | None = None
    until: datetime | None = None
    agent: str | None = None
    tags: tuple[str, ...] = ()  # all of them

    @property
    def needs_text(self) -> bool:
        """Whether a mark must be read to know."""
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
    """The marks that answer, best first, and how the question was understood."""

    asked: Query
    statistics: Postings  # how many marks contain its terms

    @property
    def periods(self) -> tuple[Period, ...]:
        """The times that it names."""
        return self.asked.periods


async def unknown(_: Query) -> None:
    """No model is there."""


async def search(
    store: Store,
    query: str,
    *,
    limit: int,
    now: datetime,
    zone: tzinfo | None = None,
    filters: Filters = ALL,
    likeness: Callable[[Query], Awaitable[Mapping[int, float] | None]] = unknown,
    shown: int | None = None,
    tell: Callable[[list[Hit]], None] | None = None,
) -> Hits:
    """The marks that answer the query and fit, best first; `likeness` says how near marks are to it in meaning.

    Where only the first of them are `shown`, less is read. What stays of the first asking need not be asked for again:
    that fills what follows. `tell` hears of a quick look as soon as there is one: the marks that say most of the words,
    before anything around them is weighed; and then of the first asking's answer.
    """
    asked = parse(query, now=now, zone=zone, speakers=await store.agents())
    near = await likeness(asked)
    shown = limit if shown is None else shown
    read = SHORTLIST if shown > FEW else SHORTLIST_OF_FEW
    asking = Asking(store, limit=max(limit, read), read=read, filters=filters, likeness=near, tell=tell)
    first = await asking.answers(asked, limit=max(CLASS, limit) if asked.is_bare or shown <= KEPT else CLASS)
    hits = Hits()
    if len(kept_first(first)) < shown and first:
        if tell is not None:
            tell(first)
        second = await asking.answers(broader(asked, first), limit=max(limit, read))
        hits.extend(corrected(latest_raised(joined(asked, first, second))[:limit]))
    else:
        hits.extend(corrected(latest_raised(first)[:limit]))
    hits.asked, hits.statistics = asked, asking.listed
    if not asked.wanted and asked.periods:
        hits.extend(await _within(store, asked.periods, filters, limit))
    return hits


async def _within(store: Store, periods: Sequence[Period], filters: Filters, limit: int) -> list[Hit]:
    """The latest marks of the times that a question names, where it asks for nothing else."""
    events = [
        event
        for period in periods
        for event in await store.events(
            EventQuery(names=(MARK,), since=period.start_at, until=period.end_at, limit=limit)
        )
    ]
    standing = await store.texts([event.position or 0 for event in events], neighbours=0)
    marks = sorted((text.mark for text in standing if filters.fits(text.mark)), key=lambda mark: mark.at, reverse=True)
    return [Hit(mark=mark, score=1 / rank, parts={"own": 1.0}) for rank, mark in enumerate(marks[:limit], start=1)]


class Asking:
    """What is asked of a store, once or again. What was read before is not read twice, and stays a candidate."""

    def __init__(
        self,
        store: Store,
        *,
        limit: int,
        read: int,
        filters: Filters,
        likeness: Mapping[int, float] | None,
        tell: Callable[[list[Hit]], None] | None = None,
    ) -> None:
        self._store = store
        self._limit = limit
        self._read = max(read, limit // 2)  # with their neighbours they are more than can be shown
        self._filters = filters
        self._likeness = likeness
        self._tell = tell
        self._listed: Postings | None = None
        self._chosen: set[int] = set()
        self._texts: dict[int, Text] = {}  # the chosen ones and their neighbours, by position

    @property
    def listed(self) -> Postings:
        """What was read of the terms asked for."""
        assert self._listed is not None, "something was asked"
        return self._listed

    async def answers(self, query: Query, *, limit: int) -> list[Hit]:
        """The marks that answer and fit, best first; more than the limit where it must be seen whether they fit."""
        self._listed = postings = await self._store.postings(
            query.wanted,
            weights={term.term: term.weight for term in (*query.learned, *query.terms)},
            limit=CHOOSING_MAX if self._filters.needs_text else max(CANDIDATES, self._limit),
            since=self._filters.since,
            until=self._filters.until,
        )
        fitting = await self._fitting(query, postings)
        if len(fitting) >= self._read:  # not all of them
            fitting = list(dict.fromkeys([*fitting, *await self._of_periods(query)]))
        chosen = [position for position in fitting if position not in self._chosen]
        if self._tell is not None:
            await self._look(query, postings, chosen[:QUICK_LOOK])
        self._chosen.update(chosen)
        for text in await self._store.texts(chosen, neighbours=NEIGHBOURS):
            self._texts[text.position] = text
        texts = [self._texts[position] for position in sorted(self._texts)]
        postings = await self._completed(query, postings)
        if self._filters == ALL:
            return rank(query, texts, postings, self._likeness, limit=limit)
        return [hit for hit in rank(query, texts, postings, self._likeness) if self._filters.fits(hit.mark)]

    async def _of_periods(self, query: Query) -> list[int]:
        """The best candidates of the times that a question names: too many others may stand before them."""
        found: list[int] = []
        for period in query.periods:
            listed = await self._store.postings(
                query.wanted,
                weights={term.term: term.weight for term in (*query.learned, *query.terms)},
                limit=self._read,
                since=max(filter(None, [period.start_at, self._filters.since])),
                until=min(filter(None, [period.end_at, self._filters.until])),
            )
            found += shortlist(query, listed, limit=self._read)
        return found

    async def _look(self, query: Query, postings: Postings, chosen: Sequence[int]) -> None:
        """Tell what the best candidates say, once: whoever cannot wait for the answer has this."""
        tell, self._tell = self._tell, None
        if tell is not None:
            texts = await self._store.texts(chosen, neighbours=0)
            hits = rank(query, texts, postings, self._likeness)
            tell([hit for hit in hits if self._filters.fits(hit.mark)])

    async def _completed(self, query: Query, postings: Postings) -> Postings:
        """The postings with what those texts say that are not listed: neighbours, and what answered before."""
        unlisted = [term for term in query.wanted if postings.held(term) > len(postings.by_term[term])]
        if not unlisted:
            return postings
        known = {posting.position for found in postings.by_term.values() for posting in found}
        there = await self._store.postings_at(unlisted, list(self._texts.keys() - known))
        more = {term: (*postings.by_term[term], *found) for term, found in there.items()}
        return postings.with_postings(postings.by_term | more)

    async def _fitting(self, query: Query, postings: Postings) -> Sequence[int]:
        """The candidates that fit, best first: by their words, and the nearest by their meaning."""
        near = list(islice(self._likeness or {}, NEAREST))
        if not self._filters.needs_text:
            return list(dict.fromkeys([*shortlist(query, postings, limit=self._read), *near]))
        candidates = list(dict.fromkeys([*near, *shortlist(query, postings, limit=CHOOSING_MAX)]))
        found: list[int] = []
        for start in range(0, len(candidates), CHOOSING):
            some = candidates[start : start + CHOOSING]
            texts = await self._store.texts(some, neighbours=0)
            fitting = {text.position for text in texts if self._filters.fits(text.mark)}
            found += [position for position in some if position in fitting]
            if len(found) >= self._limit:
                break
        return found[: self._limit]

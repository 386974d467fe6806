"""Search: the store's candidates, ranked by one pure formula."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import datetime, tzinfo
from itertools import islice

import msgspec

from mica.model import Mark, Postings
from mica.select.again import broader, joined
from mica.select.meaning import NEAREST
from mica.select.rank import NEIGHBOURS, SHORTLIST, Hit, Query, parse, rank, shortlist
from mica.select.when import Period
from mica.store.protocol import Store

POSTINGS_MAX = 8_000  # listed for one asking: some 20 ms; what is commoner than that only helps to order what is found
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
    """The marks that answer, best first, and which times the question was understood to name."""

    periods: tuple[Period, ...] = ()


async def _unknown(_: Query) -> None:
    """No model is there."""


async def search(
    store: Store,
    query: str,
    *,
    limit: int,
    now: datetime,
    zone: tzinfo | None = None,
    filters: Filters = ALL,
    likeness: Callable[[Query], Awaitable[Mapping[int, float] | None]] = _unknown,
) -> Hits:
    """The marks that answer the query and fit, best first; `likeness` says how near marks are to it in meaning."""
    asked = parse(query, now=now, zone=zone, speakers=await store.agents())
    near = await likeness(asked)
    first = await _asked(store, asked, limit=limit, filters=filters, likeness=near)
    hits = Hits()
    if first:
        second = await _asked(store, broader(asked, first), limit=limit, filters=filters, likeness=near)
        hits.extend(joined(asked, first, second)[:limit])
    hits.periods = asked.periods
    return hits


async def _asked(
    store: Store, query: Query, *, limit: int, filters: Filters, likeness: Mapping[int, float] | None
) -> list[Hit]:
    postings = await store.postings(query.wanted, limit=POSTINGS_MAX, since=filters.since, until=filters.until)
    wanted = max(limit, SHORTLIST)
    chosen = await _fitting(store, query, postings, limit=wanted, filters=filters, likeness=likeness)
    texts = await store.texts(chosen, neighbours=NEIGHBOURS)
    unlisted = [term for term in query.wanted if postings.held(term) > len(postings.by_term[term])]
    if unlisted:
        there = await store.postings_at(unlisted, [text.mark.position or 0 for text in texts])
        postings = msgspec.structs.replace(postings, by_term=postings.by_term | there)
    return [hit for hit in rank(query, texts, postings, likeness) if filters.fits(hit.mark)]


async def _fitting(
    store: Store,
    query: Query,
    postings: Postings,
    *,
    limit: int,
    filters: Filters,
    likeness: Mapping[int, float] | None,
) -> Sequence[int]:
    """The candidates that fit, best first, by their words, and the nearest by their meaning."""
    near = list(islice(likeness or {}, NEAREST))
    if not filters.needs_text:
        return list(dict.fromkeys([*shortlist(query, postings, limit=limit), *near]))
    candidates = list(dict.fromkeys([*near, *shortlist(query, postings, limit=CHOOSING_MAX)]))
    found: list[int] = []
    for start in range(0, len(candidates), CHOOSING):
        texts = await store.texts(candidates[start : start + CHOOSING], neighbours=0)
        fitting = {text.mark.position for text in texts if filters.fits(text.mark)}
        found += [position for position in candidates[start : start + CHOOSING] if position in fitting]
        if len(found) >= limit:
            break
    return found[:limit]

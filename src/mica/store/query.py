"""Functions that all engines use to answer queries, so that their results are equal: terms, weights and statistics.

Two functions need no engine: one matches an event in memory, one pages backwards through all matches of a log.
"""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from datetime import timedelta
from typing import Protocol

import msgspec

from mica.errors import InvalidInput
from mica.model.event import Event, EventId, EventQuery, name_pattern
from mica.model.mark import Posting, Postings, searchable_text
from mica.words import terms

WEIGHT_STEPS = 4  # per unit of rarity; weights are integers, whose sums are equal in every engine


def query_terms(text: str) -> list[str]:
    """Return the distinct terms of a full-text query, sorted. Raises InvalidInput when there are none."""
    distinct = sorted(set(terms(text)))
    if not distinct:
        raise InvalidInput(f"nothing to search for in {text!r}; give at least one word that is not a stop word")
    return distinct


def rarity(containing: int, total: float) -> float:
    """Return the BM25 weight of a term that occurs in `containing` of `total` documents. It is always above 0."""
    return math.log1p((max(total, containing) - containing + 0.5) / (containing + 0.5))


def term_weights(containing: Mapping[str, int], weights: Mapping[str, float], marks: int) -> dict[str, int]:
    """Return an integer weight of at least 1 for each term, higher for rarer terms.

    A search with a limit keeps the marks with the highest sum of weights. `containing` maps each term to the number of
    marks that contain it, and `marks` is the number of all marks. `weights` are factors by term, 1 by default.
    """
    return {
        term: max(1, round(WEIGHT_STEPS * weights.get(term, 1.0) * rarity(count, marks)))
        for term, count in containing.items()
    }


def with_statistics(
    by_term: dict[str, tuple[Posting, ...]],
    lengths: Iterable[tuple[int, int]],
    containing: dict[str, int] | None = None,
) -> Postings:
    """Return the postings (text index entries) in `by_term`, together with statistics of all marks.

    `lengths` are pairs of a length in words and the number of marks that have it, in order of length. `containing` maps
    each term to the number of marks that contain it; by default, the postings of each term are counted.
    """
    containing = {term: len(postings) for term, postings in by_term.items()} if containing is None else containing
    histogram = list(lengths)
    marks = sum(count for _, count in histogram)
    if not marks:
        return Postings(by_term=by_term, marks=0, mean_length=0.0, length_spread=0.0, containing=containing)
    logarithms = [(math.log(max(1, length)), count) for length, count in histogram]
    mean = math.fsum(logarithm * count for logarithm, count in logarithms) / marks
    spread = math.fsum((logarithm - mean) ** 2 * count for logarithm, count in logarithms) / marks
    return Postings(
        by_term=by_term,
        marks=marks,
        mean_length=sum(length * count for length, count in histogram) / marks,
        length_spread=spread,
        containing=containing,
    )


def group_by_origin(origins: Iterable[int], pairs: Iterable[tuple[int, int]]) -> dict[int, frozenset[int]]:
    """Group `pairs` of an origin and a position: return the set of positions for each of `origins`."""
    found: dict[int, set[int]] = {origin: set() for origin in origins}
    for origin, position in pairs:
        found[origin].add(position)
    return {origin: frozenset(positions) for origin, positions in found.items()}


EVENTS_AT_ONCE = 1_000  # per page


class QueriedLog(Protocol):
    """The part of `EventLog` that `latest_first` needs."""

    async def query(self, query: EventQuery) -> list[Event]: ...


def matcher(query: EventQuery) -> Callable[[Event], bool]:
    """Return a function that is True for the events that match the query. The limit of the query is ignored.

    Raises InvalidInput when the text of the query has no word to search for.
    """
    wanted = frozenset(query_terms(query.text)) if query.text is not None else frozenset[str]()
    patterns = [name_pattern(pattern) for pattern in query.names]

    def matches(event: Event) -> bool:
        context = event.context
        return (
            (query.session is None or context.session == query.session)
            and (query.agent is None or context.agent == query.agent)
            and (query.user is None or context.user == query.user)
            and (not patterns or any(pattern.fullmatch(event.name) for pattern in patterns))
            and (query.since is None or event.at >= query.since)
            and (query.until is None or event.at < query.until)
            and (query.errors is None or event.error == query.errors)
            and (not wanted or wanted <= set(terms(searchable_text(event) or "")))
        )

    return matches


async def latest_first(log: QueriedLog, query: EventQuery) -> AsyncIterator[list[Event]]:
    """Yield all matching events in pages, each event once: the latest page first, but oldest first within a page."""
    query = msgspec.structs.replace(query, limit=EVENTS_AT_ONCE)
    shown_ids: set[EventId] = set()
    while True:
        events = await log.query(query)
        yield [event for event in events if event.id not in shown_ids]
        if query.limit is None or len(events) < query.limit:
            return
        oldest = events[0].at
        shown_ids = {event.id for event in events if event.at == oldest}
        until = oldest + timedelta(microseconds=1)
        if until == query.until:  # all events of the page have the same time: only a longer page gets past them
            query = msgspec.structs.replace(query, limit=2 * query.limit)
        else:
            query = msgspec.structs.replace(query, until=until, limit=EVENTS_AT_ONCE)

"""Event queries without an engine: match one event in memory, and page backwards through all matches of a log."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from datetime import timedelta
from typing import Protocol

import msgspec

from mica.model.event import Event, EventId, EventQuery, name_pattern
from mica.model.mark import searchable_text
from mica.store.candidates import query_terms
from mica.words import terms

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

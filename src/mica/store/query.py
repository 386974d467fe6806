"""Whether an event is one that a query asks for: the same answer as a store gives, without a store."""

from __future__ import annotations

from collections.abc import Callable

from mica.model.event import Event, EventQuery, name_pattern, searchable_text
from mica.store.protocol import wanted_terms
from mica.words import terms


def matcher(query: EventQuery) -> Callable[[Event], bool]:
    """Whether every given field of a query holds for an event; its limit says how many to read, not which.

    Raises InvalidInput when its text has no word to look for.
    """
    wanted = frozenset(wanted_terms(query.text)) if query.text is not None else frozenset[str]()
    patterns = [name_pattern(pattern) for pattern in query.names]

    def fits(event: Event) -> bool:
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

    return fits

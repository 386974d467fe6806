"""Marks that ask for something, until another says that it fulfills them."""

from __future__ import annotations

from mica.model import MARK, EventId, mark_of
from mica.store.protocol import Store

OPEN_TAGS = frozenset(["friction", "question", "task", "todo", "blocked"])  # of marks that something should fulfil


async def is_fulfilled(store: Store, mark: EventId) -> bool:
    """Whether something that followed from this mark says that it fulfills what was asked."""
    below = await store.descendants(mark)
    return any(event.name == MARK and mark_of(event).relation == "fulfills" for event in below)

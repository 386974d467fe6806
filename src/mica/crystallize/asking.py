"""Marks that ask for something, until another says that it fulfills them."""

from __future__ import annotations

from mica.model import MARK, EventId
from mica.store.protocol import Store

OPEN_TAGS = frozenset(["friction", "question", "task", "todo", "blocked"])  # of marks that something should fulfil


async def is_fulfilled(store: Store, mark: EventId) -> bool:
    """Whether a mark that still stands says that it fulfills what this one asks."""
    below = await store.descendants(mark, depth=1)
    positions = [event.position for event in below if event.name == MARK and event.position is not None]
    fulfilling = [text.mark for text in await store.texts(positions, neighbours=0)] if positions else []
    return any(each.relation == "fulfills" and each.parent_id == mark for each in fulfilling)

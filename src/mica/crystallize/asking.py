"""Marks that stand, and those that ask for something until another says that it fulfills them."""

from __future__ import annotations

from collections.abc import Iterable

from mica.model import MARK, Event, EventId, Mark
from mica.store.protocol import Store

OPEN_TAGS = frozenset(["friction", "question", "task", "todo", "blocked"])  # of marks that something should fulfil


async def is_fulfilled(store: Store, mark: EventId) -> bool:
    """Whether a mark that still stands says that it fulfills what this one asks."""
    below = await standing(store, await store.descendants(mark, depth=1))
    return any(each.relation == "fulfills" and each.parent_id == mark for each in below)


async def standing(store: Store, events: Iterable[Event]) -> list[Mark]:
    """The marks among these events, without those that were retracted or only recalled, in order of time."""
    positions = sorted({event.position for event in events if event.name == MARK and event.position is not None})
    found = [text.mark for text in await store.texts(positions, neighbours=0)] if positions else []
    return sorted(found, key=lambda mark: (mark.at, mark.position or 0))

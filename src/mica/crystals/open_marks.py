"""Marks that stand, and those that ask for something until another says that it fulfills them."""

from __future__ import annotations

from collections.abc import Iterable

from mica.model.crystal import CrystalQuery
from mica.model.event import MARK, Event, EventId, Mark, mark_of
from mica.store.protocol import LATEST_MARKS, Store

OPEN_TAGS = frozenset(["friction", "question", "task", "todo", "blocked"])  # of marks that something should fulfil

CRYSTALS_LOOKED_AT = 60  # the latest that no other covers: what is open in older ones was left open on purpose


async def unfulfilled(store: Store, *, limit: int) -> list[Mark]:
    """The latest marks that ask for something and that nothing has fulfilled, in order of time."""
    crystals = await store.crystals(CrystalQuery(is_sealed=False, limit=CRYSTALS_LOOKED_AT))
    asked = dict.fromkeys(mark for crystal in crystals for mark in crystal.open)
    fresh = await store.unsealed(limit=LATEST_MARKS, latest=True)
    asked |= dict.fromkeys(event.id for event in fresh if OPEN_TAGS.intersection(mark_of(event).tags))
    found: list[Mark] = []
    for mark in reversed(await standing(store, await store.events_of(list(asked)))):
        if len(found) == limit:
            break
        if not await is_fulfilled(store, mark.id):
            found.append(mark)
    return found[::-1]


async def is_fulfilled(store: Store, mark: EventId) -> bool:
    """Whether a mark that still stands says that it fulfills what this one asks."""
    below = await standing(store, await store.descendants(mark, depth=1))
    return any(each.relation == "fulfills" and each.parent_id == mark for each in below)


async def standing(store: Store, events: Iterable[Event]) -> list[Mark]:
    """The marks among these events, without those that were retracted or only recalled, in order of time."""
    positions = sorted({event.position for event in events if event.name == MARK and event.position is not None})
    found = [text.mark for text in await store.texts(positions, neighbours=0)] if positions else []
    return sorted(found, key=lambda mark: (mark.at, mark.position or 0))

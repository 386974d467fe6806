"""Crystals that time alone does not make again, epochs and trees: what the record of a purge keeps of those it takes.

Sessions, days and weeks are closed by the clock, whatever becomes of their crystals. That an epoch ended, what a person
called it, and that a tree was asked for stands in no other event.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from mica.crystals.periods import Survivor
from mica.model.crystal import Crystal, CrystalQuery, crystal_of, retracted_by
from mica.model.event import CRYSTAL, PURGED, RETRACTED, Event, EventId, EventQuery, is_id, is_tombstone, tombstone_of
from mica.store.protocol import Store
from mica.store.purges import PURGE, Selection

SURVIVORS = "survivors"  # among the data of a record


async def bystanders(store: Store, taken: Iterable[Event], selection: Selection) -> list[Crystal]:
    """The crystals among what a purge takes that stood until then and were not themselves what was asked for."""
    others = [event for event in taken if selection.conditions == ("value",) or not selection.fits(event)]
    positions = frozenset([event.position for event in others if event.position is not None])
    return await store.crystals(CrystalQuery(positions=positions, limit=None)) if positions else []


async def survivors(
    store: Store, taken: Iterable[Crystal], records: Iterable[Event], selection: Selection
) -> list[Survivor]:
    """What is kept of these crystals that a purge takes, and of those that earlier ones took whose records it takes."""
    kept = [await _survivor(store, each) for each in taken if each.level == "epoch" or each.is_tree]
    # A record that goes is forgotten, with the names in it.
    kept += [msgspec.structs.replace(each, label=None) for each in await _left_by(store, records)]
    return [_without_said(each, selection) for each in kept if not selection.is_said(each.period)]


async def _survivor(store: Store, crystal: Crystal) -> Survivor:
    beneath = [] if crystal.is_tree else await store.events_of(crystal.sources)
    return Survivor(
        crystal=crystal.id,
        period=crystal.period,
        revision=crystal.revision,
        label=crystal.label,
        weeks=tuple(crystal_of(event).period for event in beneath if event.name == CRYSTAL),
    )


def _without_said(survivor: Survivor, selection: Selection) -> Survivor:
    """One that does not say what is purged."""
    return msgspec.structs.replace(
        survivor,
        label=None if survivor.label is None or selection.is_said(survivor.label) else survivor.label,
        weeks=tuple(week for week in survivor.weeks if not selection.is_said(week)),
    )


class Surviving(msgspec.Struct, frozen=True, kw_only=True):
    """What purges have left of epochs and trees."""

    pending: tuple[Survivor, ...]  # not made again yet
    known: tuple[Survivor, ...]  # all of them

    @classmethod
    async def of(cls, store: Store) -> Surviving:
        """As the log tells it. What was retracted is not made again."""
        records = await store.events(EventQuery(names=(PURGE,), limit=None))
        if not (known := await _left_by(store, records)):
            return cls(pending=(), known=())
        told = await store.events(EventQuery(names=(RETRACTED,), limit=None))
        retracted = set(map(retracted_by, told))
        pending = [each for each in known if each.crystal not in retracted]
        followed = {
            gone
            for each in pending
            for later in await store.crystals(CrystalQuery(period=each.period, is_live=None, limit=None))
            for gone in later.supersedes
        }
        if any(each.crystal not in followed for each in pending):  # what followed may be gone, too
            stones = await store.events(EventQuery(names=(PURGED,), limit=None))
            followed.update(gone for stone in stones for gone in tombstone_of(stone).supersedes)
        return cls(pending=tuple(each for each in pending if each.crystal not in followed), known=tuple(known))

    def homes(self, epochs: Iterable[Crystal]) -> dict[str, str]:
        """The epoch that a week belonged to, by their periods, where there is one or will be."""
        there = {epoch.period for epoch in epochs}.union(each.period for each in self.pending)
        return {week: each.period for each in self.known if each.period in there for week in each.weeks}


async def _left_by(store: Store, records: Iterable[Event]) -> list[Survivor]:
    """What these purges have left: a crystal is a tombstone of that very purge, for anybody can emit such a record.

    Where the record of that one was purged, the next record tells it.
    """
    told = [(record.id, each) for record in records for each in _told_by(record) if is_id(each.crystal)]
    if not told:
        return []
    taken = await _purges_of(store, [each.crystal for _, each in told])
    asked: set[EventId] = set()
    while records_gone := await _purges_of(store, [each for each in taken.values() if each not in asked]):
        asked.update(records_gone)
        taken = {each: records_gone.get(purge, purge) for each, purge in taken.items()}
    return [each for record, each in told if taken.get(each.crystal) == record]


async def _purges_of(store: Store, identifiers: Sequence[EventId]) -> dict[EventId, EventId]:
    """By which purge each of these events went, if it did."""
    events = await store.events_of(identifiers) if identifiers else []
    return {event.id: tombstone_of(event).purge for event in events if is_tombstone(event)}


def _told_by(record: Event) -> list[Survivor]:
    try:
        return msgspec.convert(record.data.get(SURVIVORS, []), list[Survivor])
    except msgspec.ValidationError:
        return []  # nothing of ours

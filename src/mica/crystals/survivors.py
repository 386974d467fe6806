"""Survivors: data in the record of a purge, from which purged crystals of epochs and causal trees are made again.

Crystals of other kinds need no such data: the periods of sessions, days and weeks follow from the clock. But the end
and label of an epoch, and the request for a causal tree, are recorded only in the crystal itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from mica.crystals.periods import Survivor
from mica.model.crystal import Crystal, CrystalQuery, crystal_of, retraction_target
from mica.model.event import CRYSTAL, PURGED, RETRACTED, Event, EventId, EventQuery, is_id, is_tombstone, tombstone_of
from mica.store.protocol import CrystalIndex, EventLog
from mica.store.purges import PURGE, Selection

SURVIVORS = "survivors"  # a key of the record's data


async def crystals_to_remake(index: CrystalIndex, removed: Iterable[Event], selection: Selection) -> list[Crystal]:
    """Return the live crystals that a purge removes and that are to be made again.

    `removed` has the events of all crystals that the purge removes, and `selection` its conditions. A crystal is made
    again if it does not fit the conditions itself, but only lost a source. If a value is the only condition, crystals
    that contain the value are made again, too.
    """
    others = [event for event in removed if selection.conditions == ("value",) or not selection.fits(event)]
    positions = frozenset([event.position for event in others if event.position is not None])
    return await index.query(CrystalQuery(positions=positions, limit=None)) if positions else []


async def survivors(
    log: EventLog, removed: Iterable[Crystal], records: Iterable[Event], selection: Selection
) -> list[Survivor]:
    """Return survivors for the epoch and tree crystals in `removed`, from which these can be made again.

    `records` are the records of earlier purges that are purged now. Their survivors are returned, too, but without
    labels. A survivor is left out if its period contains text that `selection` purges.
    """
    found = [await _survivor(log, each) for each in removed if each.level == "epoch" or each.is_tree]
    # Labels in a purged record are dropped with it.
    found += [msgspec.structs.replace(each, label=None) for each in await _read_survivors(log, records)]
    return [_redact(each, selection) for each in found if not selection.is_in(each.period)]


async def _survivor(log: EventLog, crystal: Crystal) -> Survivor:
    beneath = [] if crystal.is_tree else await log.get_many(crystal.sources)
    return Survivor(
        crystal=crystal.id,
        period=crystal.period,
        revision=crystal.revision,
        label=crystal.label,
        weeks=tuple(crystal_of(event).period for event in beneath if event.name == CRYSTAL),
    )


def _redact(survivor: Survivor, selection: Selection) -> Survivor:
    """Return the survivor without its label and its names of weeks, if these contain purged text."""
    return msgspec.structs.replace(
        survivor,
        label=None if survivor.label is None or selection.is_in(survivor.label) else survivor.label,
        weeks=tuple(week for week in survivor.weeks if not selection.is_in(week)),
    )


class Survivors(msgspec.Struct, frozen=True, kw_only=True):
    """The records of purged epoch and tree crystals, from all purges of a store."""

    pending: tuple[Survivor, ...]  # not made again yet
    known: tuple[Survivor, ...]  # all survivors

    @classmethod
    async def of(cls, log: EventLog, index: CrystalIndex) -> Survivors:
        """Read the records of purged epoch and tree crystals from a log.

        A record is pending until its crystal has a successor or is retracted.
        """
        records = await log.query(EventQuery(names=(PURGE,), limit=None))
        if not (known := await _read_survivors(log, records)):
            return cls(pending=(), known=())
        retractions = await log.query(EventQuery(names=(RETRACTED,), limit=None))
        retracted = set(map(retraction_target, retractions))
        pending = [each for each in known if each.crystal not in retracted]
        followed = {
            replaced
            for each in pending
            for later in await index.query(CrystalQuery(period=each.period, is_live=None, limit=None))
            for replaced in later.supersedes
        }
        if any(each.crystal not in followed for each in pending):  # the successor may be purged, too
            stones = await log.query(EventQuery(names=(PURGED,), limit=None))
            followed.update(replaced for stone in stones for replaced in tombstone_of(stone).supersedes)
        return cls(pending=tuple(each for each in pending if each.crystal not in followed), known=tuple(known))

    def homes(self, epochs: Iterable[Crystal]) -> dict[str, str]:
        """Map each week of a purged epoch to that epoch, by period.

        An epoch is included if it is in `epochs`, or if it has not been made again yet.
        """
        there = {epoch.period for epoch in epochs}.union(each.period for each in self.pending)
        return {week: each.period for each in self.known if each.period in there for week in each.weeks}


async def _read_survivors(log: EventLog, records: Iterable[Event]) -> list[Survivor]:
    """Return the survivors in purge records whose crystal was really removed by that purge.

    This check rejects records that another program emitted. If a purge record was purged itself, the record of the
    later purge takes its place.
    """
    listed = [(record.id, each) for record in records for each in _parse_survivors(record) if is_id(each.crystal)]
    if not listed:
        return []
    purges = await _purges_of(log, [each.crystal for _, each in listed])
    resolved: set[EventId] = set()
    while records_gone := await _purges_of(log, [each for each in purges.values() if each not in resolved]):
        resolved.update(records_gone)
        purges = {each: records_gone.get(purge, purge) for each, purge in purges.items()}
    return [each for record, each in listed if purges.get(each.crystal) == record]


async def _purges_of(log: EventLog, identifiers: Sequence[EventId]) -> dict[EventId, EventId]:
    """Return the id of the purge that removed each event; events that were not purged are left out."""
    events = await log.get_many(identifiers) if identifiers else []
    return {event.id: tombstone_of(event).purge for event in events if is_tombstone(event)}


def _parse_survivors(record: Event) -> list[Survivor]:
    try:
        return msgspec.convert(record.data.get(SURVIVORS, []), list[Survivor])
    except msgspec.ValidationError:
        return []  # not written by mica

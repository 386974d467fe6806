"""Derive the table rows about crystals from the events of a log, for the reference store and for `verify`."""

from __future__ import annotations

from array import array
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple

import msgspec

from mica.errors import LawBroken
from mica.model.crystal import OF_MARKS, Crystal, Fact, check_laws, crystal_of, overlap, retraction_target, source_fact
from mica.model.event import CRYSTAL, MARK, PURGED, RETRACTED, Event, EventId, microseconds, tombstone_of


class SourceRow(NamedTuple):
    """The row that an engine stores for one source of a crystal."""

    crystal: int  # the position of the crystal
    source: int  # the position of the source
    tokens: int
    is_live: bool  # its crystal is not superseded, and summarizes a session, day, week or epoch, not a causal tree


class CrystalRow(NamedTuple):
    """The row that an engine stores for a crystal, in addition to its event."""

    position: int
    level: int
    period: str
    start_at: int
    end_at: int
    tokens: int
    superseded_by: int | None  # the position of the event that superseded or retracted it


class CrystalRows(NamedTuple):
    """All rows about crystals that an engine stores in addition to the log."""

    crystals: Iterable[CrystalRow]
    sources: Iterable[SourceRow]
    retracted: Collection[str]  # ids of retracted events
    marks: Collection[int] | None = None  # positions of searchable marks; None if the engine has no such rows


class DerivedCrystals:
    """The crystals of a log, derived by adding its events in order. The sources of a crystal must come before it.

    `named` are the ids that other events refer to (see `referenced_ids`). Passing them saves memory, because the other
    marks are then remembered only by position.
    """

    def __init__(self, named: Collection[EventId] | None = None) -> None:
        self._named = named
        self._unnamed = array("q")  # positions of marks that no event refers to
        self.crystals: dict[EventId, Crystal] = {}
        self.superseded: dict[EventId, int] = {}  # to the position of the superseding event
        self.retracted: dict[EventId, int] = {}  # to the position of the retraction; the event may arrive later
        self.unsupported: dict[EventId, LawBroken] = {}  # crystals whose sources were purged
        self._above: dict[EventId, EventId] = {}  # from a source to the live crystal that covers it
        self._facts: dict[EventId, Fact] = {}
        self._positions: dict[EventId, int] = {}

    def add(self, event: Event) -> None:
        """Add one event. A crystal that breaks a law of crystals raises LawBroken and is not added."""
        position = event.position or 0
        if event.name == CRYSTAL:
            self._crystallize(crystal_of(event), position)
        elif event.name == RETRACTED:
            self._retract(retraction_target(event), position)
        elif event.name == PURGED:
            tombstone = tombstone_of(event)
            self._supersede(tombstone.supersedes, position)
            if tombstone.retracts is not None:
                self._retract(tombstone.retracts, position)
            return
        if event.name == MARK and self._named is not None and event.id not in self._named:
            if event.origin != "recalled":
                self._unnamed.append(position)
        elif (fact := source_fact(event)) is not None:
            self._facts[event.id], self._positions[event.id] = fact, position

    def add_stored(self, events: Iterable[Event]) -> None:
        """Add events that are already stored. A crystal whose sources were purged is added to `unsupported`."""
        for event in events:
            try:
                self.add(event)
            except LawBroken as error:
                self.unsupported[event.id] = error
                self._supersede(crystal_of(event).supersedes, event.position or 0)

    @property
    def sealed(self) -> set[EventId]:
        """The ids of all sources of live crystals in the time hierarchy (sessions, days, weeks, epochs)."""
        return set(self._above)

    def is_live(self, identifier: EventId) -> bool:
        """True for a known mark or crystal that is neither retracted nor superseded."""
        return identifier in self._facts and identifier not in self.retracted and identifier not in self.superseded

    @property
    def rows(self) -> CrystalRows:
        """The rows that an engine should store for the events added so far."""
        marks = array("q", self._unnamed)
        marks.extend(
            self._positions[identifier]
            for identifier, fact in self._facts.items()
            if fact.level == OF_MARKS and identifier not in self.retracted
        )
        crystals = self.crystals.values()
        sources = [row for crystal in crystals for row in self._sources(crystal)]
        return CrystalRows(list(map(self._row, crystals)), sources, self.retracted, marks)

    def _crystallize(self, crystal: Crystal, position: int) -> None:
        facts = {
            source: msgspec.structs.replace(self._facts[source], is_live=self.is_live(source))
            for source in crystal.sources
            if source in self._facts
        }
        check_laws(crystal, facts)
        if not crystal.is_tree:
            above = {self._above.get(source) for source in crystal.sources}
            if above.difference(crystal.supersedes, [None]):
                raise overlap(crystal)
        self._supersede(crystal.supersedes, position)
        self.crystals[crystal.id] = crystal
        if not crystal.is_tree:
            self._above |= dict.fromkeys(crystal.sources, crystal.id)
        if crystal.id in self.retracted:
            self._supersede([crystal.id], self.retracted[crystal.id])

    def _retract(self, identifier: EventId, position: int) -> None:
        self.retracted.setdefault(identifier, position)
        self._supersede([identifier], position)

    def _supersede(self, identifiers: Iterable[EventId], position: int) -> None:
        for identifier in identifiers:
            if (crystal := self.crystals.get(identifier)) is not None:
                self.superseded.setdefault(identifier, position)
                for source in crystal.sources:
                    if self._above.get(source) == identifier:
                        del self._above[source]

    def _row(self, crystal: Crystal) -> CrystalRow:
        return CrystalRow(
            self._positions[crystal.id],
            crystal.number,
            crystal.period,
            microseconds(crystal.start_at),
            microseconds(crystal.end_at),
            crystal.tokens,
            self.superseded.get(crystal.id),
        )

    def _sources(self, crystal: Crystal) -> list[SourceRow]:
        is_live = not crystal.is_tree and crystal.id not in self.superseded
        return [
            SourceRow(self._positions[crystal.id], self._positions[source], self._facts[source].tokens, is_live)
            for source in crystal.sources
        ]


def derive(log: Iterable[Event]) -> DerivedCrystals:
    """Derive the crystals of a whole log of stored events."""
    crystals = DerivedCrystals()
    crystals.add_stored(log)
    return crystals


def referenced_ids(events: Iterable[Event]) -> set[EventId]:
    """Return the ids of the sources of all crystals in `events`, and of all events that `events` retract."""
    named: set[EventId] = set()
    for event in events:
        if event.name == CRYSTAL:
            named.update(crystal_of(event).sources)
        elif event.name == RETRACTED:
            named.add(retraction_target(event))
        elif event.name == PURGED and (target := tombstone_of(event).retracts) is not None:
            named.add(target)
    return named


REFERRING = (CRYSTAL, RETRACTED, PURGED)  # the names of events that refer to others


def broken_crystals(derived: DerivedCrystals, stored: CrystalRows) -> list[str]:
    """Return one sentence for each crystal that breaks a law, and each stored row that differs from the derived one."""
    right = derived.rows
    problems = [
        f"crystal {identifier} breaks the law of {error.law}: {error.reason}; purge it, and `mica crystals make` makes "
        "another"
        for identifier, error in derived.unsupported.items()
    ]
    remedy = "`mica upkeep rebuild` repairs it"
    names = {crystal.position or 0: crystal.id for crystal in derived.crystals.values()}
    found, expected = _by_position(stored), _by_position(right)
    for position in sorted(found.keys() | expected.keys()):
        name, differing = names.get(position), _differing(found.get(position), expected.get(position))
        if name is None:
            problems.append(f"the index has a crystal at position {position}, where the log has none; {remedy}")
        elif differing:
            problems.append(f"crystal {name} differs from its event in {differing}; {remedy}")
    if stored.marks is not None and sorted(stored.marks) != sorted(right.marks or ()):
        problems += [
            f"the mark at position {position} is not indexed as in the log; {remedy}"
            for position in sorted({*stored.marks} ^ {*(right.marks or ())})
        ]
    return problems + [
        f"the retraction of {identifier} differs from the log; {remedy}"
        for identifier in sorted({*stored.retracted} ^ {*right.retracted})
    ]


def _by_position(rows: CrystalRows) -> dict[int, dict[str, object]]:
    """Return a dict from the position of each crystal to its column values. The key `sources` has its source rows."""
    found: defaultdict[int, dict[str, object]] = defaultdict(dict)
    for row in rows.crystals:
        found[row.position] |= row._asdict()
    sources: defaultdict[int, set[SourceRow]] = defaultdict(set)
    for source in rows.sources:
        sources[source.crystal].add(source)
    for position, source_rows in sources.items():
        found[position]["sources"] = source_rows
    return found


def _differing(found: Mapping[str, object] | None, expected: Mapping[str, object] | None) -> str:
    """Return the names of the columns whose values differ from `expected`, separated by commas."""
    found, expected = found or {}, expected or {}
    return ", ".join(name for name in expected if name not in found or found[name] != expected[name])

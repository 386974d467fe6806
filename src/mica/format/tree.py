"""Crystals above crystals, and events below events: the order in which trees of them are shown."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from mica.model.crystal import Crystal
from mica.model.event import Event, EventId


class Branch(msgspec.Struct, frozen=True, kw_only=True):
    """A crystal, and those of the level below that it rests on."""

    crystal: Crystal
    below: tuple[Branch, ...] = ()


def forest(crystals: Sequence[Crystal]) -> list[Branch]:
    """The hierarchy: highest level first, the latest first; what no higher crystal covers stands at the top."""
    known = {crystal.id: crystal for crystal in crystals}
    covered = {source for crystal in crystals if not crystal.is_tree for source in crystal.sources if source in known}
    return [_branch(crystal, known) for crystal in _latest_first(crystals) if crystal.id not in covered]


def _branch(crystal: Crystal, known: Mapping[EventId, Crystal]) -> Branch:
    below = [known[source] for source in crystal.sources if source in known]
    return Branch(crystal=crystal, below=tuple(_branch(each, known) for each in _latest_first(below)))


def _latest_first(crystals: Iterable[Crystal]) -> list[Crystal]:
    return sorted(crystals, key=lambda crystal: (crystal.number, crystal.end_at, crystal.id), reverse=True)


def in_tree_order(top: EventId | None, below: Iterable[Event]) -> list[Event]:
    """Events below one, or below none, each before what it led to; those of one parent in the order given."""
    children: dict[str | None, list[Event]] = {}
    for event in below:
        children.setdefault(event.parent_id, []).append(event)
    ordered: list[Event] = []
    waiting = list(reversed(children.get(top, [])))
    while waiting:
        event = waiting.pop()
        ordered.append(event)
        waiting += reversed(children.get(event.id, []))
    return ordered

"""What can be asked of the crystallizer, and what it answers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING

import msgspec

from mica.model.crystal import Crystal, Level, Waiting
from mica.model.event import EventId

if TYPE_CHECKING:  # what makes crystals is loaded when one is made
    from mica.crystals.crystallizer import Digester


LITTLE_LEFT = "too little is left that it rests on"


class Taken(msgspec.Struct, frozen=True, kw_only=True):
    """What crystals that are gone were about, and what they rested on."""

    periods: frozenset[str] = frozenset()
    sources: frozenset[EventId] = frozenset()
    sealed: frozenset[EventId] = frozenset()  # those of them that are marks and were closed, not only part of a tree
    stood: tuple[Crystal, ...] = ()  # those that should be made anew

    @classmethod
    def of(cls, crystals: Iterable[Crystal], *, stood: Iterable[Crystal]) -> Taken:
        gone = list(crystals)
        return cls(
            periods=frozenset(each.period for each in gone),
            sources=frozenset(source for each in gone for source in each.sources),
            sealed=frozenset(
                source for each in gone if each.level == "session" and not each.is_tree for source in each.sources
            ),
            stood=tuple(stood),
        )

    def waiting(self, reason: str) -> tuple[Waiting, ...]:
        """All that should be made anew, where nothing of it is."""
        return tuple([Waiting(period=each.period, count=0, reason=reason) for each in self.stood])

    def ended(self, done: Crystallized) -> tuple[Waiting, ...]:
        """What should be made anew and was not, each with the number of sources that are left, and why."""
        made = {each.period for each in done.crystals}
        known = {each.period: each for each in done.waiting}
        return tuple([known.get(each.period) or _left_of(each, done) for each in self.stood if each.period not in made])


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """Which crystals are wanted: those of a level and below that are due, or at once what is named."""

    level: Level = "epoch"  # the highest
    session: str | None = None  # only this one, over or not
    tree: EventId | None = None  # one crystal over an event and all that followed from it
    since: datetime | None = None  # nothing that happened before
    label: str | None = None
    is_forced: bool = False  # what is not over yet, too
    taken: Taken | None = None  # nothing but what takes the place of these, or of what is not as it was
    is_dry: bool = False  # record nothing
    digest: Digester | None = None  # another way than the words of the marks


class Written(msgspec.Struct, frozen=True, kw_only=True):
    """What an agent says of its own work, each statement with the marks it rests on."""

    insight: Sequence[tuple[str, Sequence[EventId]]]
    significance: Sequence[tuple[str, Sequence[EventId]]] = ()
    principles: Sequence[tuple[str, Sequence[EventId]]] = ()
    topics: Sequence[str] = ()
    dropped: Mapping[EventId, str] = {}


class Crystallized(msgspec.Struct, frozen=True, kw_only=True):
    """What was made, and what waits, with the reason."""

    crystals: tuple[Crystal, ...] = ()
    waiting: tuple[Waiting, ...] = ()


def _left_of(gone: Crystal, done: Crystallized) -> Waiting:
    """What became of a crystal whose period is not closed any more."""
    for each in done.crystals:
        if left := set(each.sources).intersection(gone.sources):
            return Waiting(period=gone.period, count=len(left), reason=f"what is left of it is in {each.period} now")
    return Waiting(period=gone.period, count=0, reason=LITTLE_LEFT)


class Made(list[Crystal]):
    """Crystals that were made, and what waits."""

    waiting: tuple[Waiting, ...] = ()

    @classmethod
    def of(cls, done: Crystallized) -> Made:
        made = cls(done.crystals)
        made.waiting = done.waiting
        return made

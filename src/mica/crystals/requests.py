"""Requests to the crystallizer and its results."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Protocol

import msgspec

from mica.model.crystal import Crystal, Level, Waiting
from mica.model.event import EventId
from mica.model.mark import Mark

if TYPE_CHECKING:  # reading a request must not load the digest modules
    from mica.crystals.digest import Digest, DigestSource

LITTLE_LEFT = "too few of its sources remain"


class RemovedCrystals(msgspec.Struct, frozen=True, kw_only=True):
    """The periods and sources of the crystals that a purge removed."""

    periods: frozenset[str] = frozenset()
    sources: frozenset[EventId] = frozenset()
    sealed: frozenset[EventId] = frozenset()  # the marks that were sources of session crystals (trees do not count)
    to_remake: tuple[Crystal, ...] = ()  # the crystals to make again

    @classmethod
    def of(cls, crystals: Iterable[Crystal], *, to_remake: Iterable[Crystal]) -> RemovedCrystals:
        gone = list(crystals)
        return cls(
            periods=frozenset(each.period for each in gone),
            sources=frozenset(source for each in gone for source in each.sources),
            sealed=frozenset(
                source for each in gone if each.level == "session" and not each.is_tree for source in each.sources
            ),
            to_remake=tuple(to_remake),
        )

    def waiting(self, reason: str) -> tuple[Waiting, ...]:
        """Return the crystals in `to_remake` as waiting periods, all with this reason."""
        return tuple([Waiting(period=each.period, count=0, reason=reason) for each in self.to_remake])

    def ended(self, done: Crystallized) -> tuple[Waiting, ...]:
        """Return the removed crystals that `done` did not make again, as waiting periods, each with the reason."""
        made = {each.period for each in done.crystals}
        known = {each.period: each for each in done.waiting}
        ended = [each for each in self.to_remake if each.period not in made]
        return tuple([known.get(each.period) or _explain_ended(each, done) for each in ended])


class Digester(Protocol):
    """Makes a digest of sources within `budget_tokens`. Returns it with the name of the method that made it."""

    async def __call__(
        self, sources: Sequence[DigestSource], budget_tokens: int, *, task: str, marks: Sequence[Mark]
    ) -> tuple[Digest, str]:
        """Return a digest of the sources within the budget, and the name of the method that made it.

        If the sources are statements of crystals, `marks` may have all marks beneath them; otherwise it is empty.
        """


class CrystalScope(msgspec.Struct, frozen=True, kw_only=True):
    """Which crystals to make: everything due up to a level, or one session, or one event with its descendants."""

    level: Level = "epoch"  # the highest
    session: str | None = None  # only this one, even if it is not over
    tree: EventId | None = None  # one crystal over an event and its descendants
    since: datetime | None = None  # ignore earlier events
    label: str | None = None
    is_forced: bool = False  # also periods that are not over
    removed: RemovedCrystals | None = None  # if set, make only replacements of these and of stale crystals
    is_dry: bool = False  # record nothing
    digest: Digester | None = None  # None: the extractive one


class WrittenCrystal(msgspec.Struct, frozen=True, kw_only=True):
    """A crystal as an agent writes it: statements with the marks they cite."""

    insight: Sequence[tuple[str, Sequence[EventId]]]
    significance: Sequence[tuple[str, Sequence[EventId]]] = ()
    principles: Sequence[tuple[str, Sequence[EventId]]] = ()
    topics: Sequence[str] = ()
    dropped: Mapping[EventId, str] = {}


class Crystallized(msgspec.Struct, frozen=True, kw_only=True):
    """The new crystals, and the waiting periods with their reasons."""

    crystals: tuple[Crystal, ...] = ()
    waiting: tuple[Waiting, ...] = ()


def _explain_ended(gone: Crystal, done: Crystallized) -> Waiting:
    for each in done.crystals:
        if left := set(each.sources).intersection(gone.sources):
            return Waiting(period=gone.period, count=len(left), reason=f"its other sources are in {each.period} now")
    return Waiting(period=gone.period, count=0, reason=LITTLE_LEFT)


class MadeCrystals(list[Crystal]):
    """A list of new crystals, with the waiting periods as an attribute."""

    waiting: tuple[Waiting, ...] = ()

    @classmethod
    def of(cls, done: Crystallized) -> MadeCrystals:
        made = cls(done.crystals)
        made.waiting = done.waiting
        return made

"""Finds the events that quote other events, so that a purge leaves no quotation of what it removes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import msgspec

from mica.brief.receipts import receipts_quoting
from mica.crystals.teachings import teachings_citing
from mica.model.event import CRYSTAL, EventId
from mica.model.teaching import PROMOTED
from mica.navigation.trails.records import find_naming_events
from mica.store.protocol import Store


class Quotations(msgspec.Struct, frozen=True, kw_only=True):
    """The events that quote others: crystals, teachings, trail names and recorded briefs."""

    ids: tuple[EventId, ...]  # those that quote others of these come first
    names: dict[str, int]  # the number of events with each name


async def find_quotations(store: Store, identifiers: Sequence[EventId]) -> Quotations:
    """Find the events that quote one of the events `identifiers`, directly or through a crystal.

    The events in `identifiers` themselves are not included. If quotations are purged in the order of `ids` and before
    what they quote, an interrupted purge never leaves a quotation of a purged event.
    """
    known = set(identifiers)
    crystals = [each for each in await store.crystals.citing(identifiers) if each not in known]
    teachings = [each for each in await teachings_citing(store.log, [*identifiers, *crystals]) if each not in known]
    trails = [each for each in await find_naming_events(store.log, store.trails, identifiers) if each.id not in known]
    ids = (*(event.id for event in trails), *teachings, *crystals)
    receipts = [each for each in await receipts_quoting(store.log, (*ids, *identifiers)) if each.id not in known]
    names = Counter({CRYSTAL: len(crystals), PROMOTED: len(teachings)})
    names.update(event.name for event in (*trails, *receipts))
    return Quotations(ids=(*(event.id for event in receipts), *ids), names=dict(+names))

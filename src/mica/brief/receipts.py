"""Receipts: for each brief, an event that records the passages shown, their cost, and what was missing."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime

from mica.model.brief import Brief, Passage
from mica.model.event import Event, EventId, EventQuery, is_id, is_tombstone, tombstone_of
from mica.redact import redact
from mica.sources.protocol import GATHERED_NAMES
from mica.store.protocol import EventLog, PurgeLog
from mica.tokens import ESTIMATOR

BRIEF = "brief"  # the event that is the receipt of a brief
SWITCHED = "brief.switched"  # {"on": bool}: switches the briefs of a space; the latest one counts
CONFLICTS = "conflicts"  # first word of the line that lists conflicts


def receipt(brief: Brief, *, latency_ms: float | None = None, as_of: datetime | None = None) -> dict[str, object]:
    """Return the data of the event that records a brief: what it shows, what it costs, and what is missing.

    `as_of` is the past time that the brief was made for; None for a brief of the present.
    """
    data: dict[str, object] = {
        "query": redact(brief.query),
        "passages": [_passage(passage) for passage in brief.passages],
        "tokens": brief.tokens,
        "budget_tokens": brief.budget_tokens,
        "estimator": ESTIMATOR,
        "left_out": brief.left_out,
        "missing": brief.missing,
    }
    if brief.concepts:
        data |= {"concepts": brief.concepts, "coherence": brief.coherence, "conflicts": len(brief.conflicts)}
    if brief.lost:
        data["lost"] = [_passage(each) for each in brief.lost]
    data |= {name: True for name in ("is_compressed", "is_off") if getattr(brief, name)}
    if latency_ms is not None:
        data["latency_ms"] = round(latency_ms, 3)
    if as_of is not None:
        data["as_of"] = as_of.isoformat()
    return data


def _passage(passage: Passage) -> dict[str, object]:
    data: dict[str, object] = {
        "source": passage.source,
        "sources": passage.sources,
        "tokens": passage.tokens,
        "score": passage.score,
    }
    if passage.origins:  # other systems may change later, so their text is recorded
        data |= {"text": redact(passage.text), "kind": passage.kind, "origins": passage.origins}
    return data


async def receipts_quoting(log: EventLog, events: Iterable[EventId]) -> list[Event]:
    """Return the records of briefs, and of answers of sources about concepts, that quote one of `events`."""
    wanted = set(events)
    recorded = await log.query(EventQuery(names=(BRIEF, *GATHERED_NAMES), limit=None))
    return [event for event in recorded if any(each in wanted for each in _quoted(event))]


async def bury_late(log: EventLog, purges: PurgeLog, recorded: Iterable[Event]) -> None:
    """Empty each receipt in `recorded` that quotes an event which was purged while the receipt was made.

    The events in `recorded` were just stored. A purge first replaces events by tombstones, then searches for receipts.
    This function searches for tombstones after the receipts were stored, so it finds the receipts that a purge misses.
    """
    quoted = {event.id: set(_quoted(event)) for event in recorded if event.name in (BRIEF, *GATHERED_NAMES)}
    stones = {}
    for each in set().union(*quoted.values()):
        event = await log.get(EventId(each)) if is_id(each) else None
        if event is not None and is_tombstone(event):
            stones[each] = tombstone_of(event)
    for identifier, sources in quoted.items():
        if stone := next((stones[each] for each in sorted(sources) if each in stones), None):
            await purges.bury([identifier], stone)


def _quoted(receipt: Event) -> Iterator[str]:
    """Yield the ids of the events whose text is in `receipt`."""
    for name in ("passages", "fragments", "lost"):
        passages = receipt.data.get(name)
        for each in passages if isinstance(passages, list) else ():
            if isinstance(each, dict) and "text" in each and isinstance(sources := each.get("sources"), list):
                yield from (source for source in sources if isinstance(source, str))


async def is_switched_on(log: EventLog) -> bool:
    """Return True if briefs are switched on in this space, even if some sessions get none for comparison."""
    latest = await log.query(EventQuery(names=(SWITCHED,), limit=1))
    return not latest or latest[-1].data.get("on") is not False

"""What is kept of a brief: which passages an agent was shown, what they cost, and what was missing."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime

from mica.model.brief import Brief, Passage
from mica.model.event import Event, EventId, EventQuery, is_id, is_tombstone, tombstone_of
from mica.redact import redact
from mica.sources.protocol import GATHERED
from mica.store.protocol import EventLog, PurgeLog
from mica.tokens import ESTIMATOR

BRIEF = "brief"  # the event that is the receipt of a brief
SWITCHED = "brief.switched"  # {"on": bool}: switches the briefs of a space; the latest holds
CONFLICTS = "conflicts"  # how the line of a brief begins that tells what lost


def receipt(brief: Brief, *, latency_ms: float | None = None, as_of: datetime | None = None) -> dict[str, object]:
    """The data of the event that records a brief."""
    told: dict[str, object] = {
        "query": redact(brief.query),
        "passages": [_passage(passage) for passage in brief.passages],
        "tokens": brief.tokens,
        "budget_tokens": brief.budget_tokens,
        "estimator": ESTIMATOR,
        "left_out": brief.left_out,
        "missing": brief.missing,
    }
    if brief.concepts:
        told |= {"concepts": brief.concepts, "coherence": brief.coherence, "conflicts": len(brief.conflicts)}
    if brief.lost:
        told["lost"] = [_passage(each) for each in brief.lost]
    told |= {name: True for name in ("is_compressed", "is_off") if getattr(brief, name)}
    if latency_ms is not None:
        told["latency_ms"] = round(latency_ms, 3)
    if as_of is not None:
        told["as_of"] = as_of.isoformat()
    return told


def _passage(passage: Passage) -> dict[str, object]:
    told: dict[str, object] = {
        "source": passage.source,
        "sources": passage.sources,
        "tokens": passage.tokens,
        "score": passage.score,
    }
    if passage.origins:  # other systems forget what they stated; the log does not
        told |= {"text": redact(passage.text), "kind": passage.kind, "origins": passage.origins}
    return told


async def quoting(log: EventLog, events: Iterable[EventId]) -> list[Event]:
    """The receipts of briefs and gathers that hold words of these events."""
    wanted = set(events)
    recorded = await log.query(EventQuery(names=(BRIEF, GATHERED), limit=None))
    return [event for event in recorded if any(each in wanted for each in _quoted(event))]


async def bury_late(log: EventLog, purges: PurgeLog, recorded: Iterable[Event]) -> None:
    """Make tombstones of receipts that were just stored and hold words of purged events: they were read before.

    A purge looks for receipts after its last tombstone, and this for tombstones after storing a receipt: one finds it.
    """
    quoted = {event.id: set(_quoted(event)) for event in recorded if event.name in (BRIEF, GATHERED)}
    stones = {}
    for each in set().union(*quoted.values()):
        found = await log.get(EventId(each)) if is_id(each) else None
        if found is not None and is_tombstone(found):
            stones[each] = tombstone_of(found)
    for identifier, sources in quoted.items():
        if told := next((stones[each] for each in sorted(sources) if each in stones), None):
            await purges.bury([identifier], told)


def _quoted(receipt: Event) -> Iterator[str]:
    """The events whose words stand in a receipt."""
    for name in ("passages", "fragments", "lost"):
        said = receipt.data.get(name)
        for each in said if isinstance(said, list) else ():
            if isinstance(each, dict) and "text" in each and isinstance(sources := each.get("sources"), list):
                yield from (source for source in sources if isinstance(source, str))


async def is_switched_on(log: EventLog) -> bool:
    """Whether briefs are switched on in this space. Which sessions are held out is drawn by `mica.hook`."""
    latest = await log.query(EventQuery(names=(SWITCHED,), limit=1))
    return not latest or latest[-1].data.get("on") is not False

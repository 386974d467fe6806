"""The figures of the Briefs page: the recorded briefs, the source of each line, and the effect of briefs."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import datetime

import msgspec

from mica.brief.quality import WEEK, WEEKS, Quality, quality
from mica.brief.receipts import BRIEF
from mica.brief.why import Why
from mica.memory import Memory
from mica.model.event import CRYSTAL, MICROSECOND, Event, EventId, EventQuery
from mica.model.teaching import PROMOTED
from mica.model.trail import CRYSTALLIZED
from mica.model.walk import WALK_EVENTS
from mica.sources.protocol import GATHERED_NAMES

LISTED = 40
EVENTS_READ = 40_000  # the latest; reading them takes a few seconds at most
OUTCOME_EVENTS = (*WALK_EVENTS, BRIEF, *GATHERED_NAMES, CRYSTAL, PROMOTED, CRYSTALLIZED)


class ReceiptLine(msgspec.Struct):
    source: str
    tokens: int
    score: float
    sources: tuple[str, ...] = ()


class ReceiptHead(msgspec.Struct):
    """The fields of a recorded brief that the list of briefs shows."""

    query: str = ""
    tokens: int = 0
    budget_tokens: int = 0
    left_out: int = 0
    passages: tuple[ReceiptLine, ...] = ()
    missing: dict[str, str] = {}


class ReceiptSummary(msgspec.Struct, frozen=True, kw_only=True):
    """A brief as one line: its query, its cost, and the sources it lists as missing."""

    id: EventId
    position: int | None
    at: datetime
    query: str
    session: str | None
    agent: str | None
    tokens: int
    budget_tokens: int
    lines: int
    left_out: int
    sources: tuple[tuple[str, int], ...]  # the number of lines of each source, highest first
    missing: dict[str, str]


class ExplainedReceipt(msgspec.Struct, frozen=True, kw_only=True):
    """A recorded brief, and the evidence for each of its lines."""

    receipt: ReceiptSummary
    why: Why


def receipt_of(event: Event) -> ReceiptSummary | None:
    """Read the record of a brief. Returns None if its data does not fit, because another program recorded the event."""
    try:
        head = msgspec.convert(event.data, ReceiptHead)
    except msgspec.ValidationError:
        return None
    counts: dict[str, int] = {}
    for passage in head.passages:
        counts[passage.source] = counts.get(passage.source, 0) + 1
    return ReceiptSummary(
        id=event.id,
        position=event.position,
        at=event.at,
        query=head.query,
        session=event.context.session,
        agent=event.context.agent,
        tokens=head.tokens,
        budget_tokens=head.budget_tokens,
        lines=len(head.passages),
        left_out=head.left_out,
        sources=tuple(sorted(counts.items(), key=lambda pair: (-pair[1], pair[0]))),
        missing=head.missing,
    )


class BriefEffectView(msgspec.Struct, frozen=True, kw_only=True):
    """The measured effect of briefs, and whether agents receive them now."""

    quality: Quality
    is_on: bool
    is_partial: bool  # older events were not read


async def brief_effect(memory: Memory, *, now: datetime) -> BriefEffectView:
    """Compare tasks with briefs to tasks without, from the events of the last eight weeks, at most EVENTS_READ."""
    since = now - WEEKS * WEEK
    events = await memory.events.query(
        EventQuery(names=OUTCOME_EVENTS, since=since, until=now + MICROSECOND, limit=EVENTS_READ)
    )
    measured = await asyncio.to_thread(quality, events, since=since, until=now)
    return BriefEffectView(quality=measured, is_on=await memory.briefs.is_on(), is_partial=len(events) == EVENTS_READ)


async def receipts(memory: Memory) -> Sequence[ReceiptSummary]:
    """Get the records of the latest briefs, latest first."""
    events = await memory.events.query(EventQuery(names=(BRIEF,), limit=LISTED))
    return [receipt for event in reversed(events) if (receipt := receipt_of(event)) is not None]


async def explain(memory: Memory, reference: str) -> ExplainedReceipt | None:
    """Get a recorded brief with the evidence for each line, or None if the event is not a brief.

    Raises UnknownEvent.
    """
    event = await memory.events.get(reference)
    receipt = receipt_of(event) if event.name == BRIEF else None
    if receipt is None:
        return None
    return ExplainedReceipt(receipt=receipt, why=(await memory.why(event))[0])

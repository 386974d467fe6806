"""Briefs: the receipts of what agents were told, each line with its source."""

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
from mica.sources.protocol import GATHERED

LISTED = 40
EVENTS_READ = 40_000  # the latest: some seconds at the most
JUDGED_FROM = (*WALK_EVENTS, BRIEF, GATHERED, CRYSTAL, PROMOTED, CRYSTALLIZED)


class ReceiptLine(msgspec.Struct):
    source: str
    tokens: int
    score: float
    sources: tuple[str, ...] = ()


class ReceiptHead(msgspec.Struct):
    """What a receipt holds, as far as a list shows it."""

    query: str = ""
    tokens: int = 0
    budget_tokens: int = 0
    left_out: int = 0
    passages: tuple[ReceiptLine, ...] = ()
    missing: dict[str, str] = {}


class ReceiptSummary(msgspec.Struct, frozen=True, kw_only=True):
    """A brief in a line: what was asked, what it cost, what it named as missing."""

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
    sources: tuple[tuple[str, int], ...]  # lines of each source, the most first
    missing: dict[str, str]


class ExplainedReceipt(msgspec.Struct, frozen=True, kw_only=True):
    """A receipt, and what each of its lines rests on."""

    receipt: ReceiptSummary
    why: Why


def receipt_of(event: Event) -> ReceiptSummary | None:
    """What a receipt says; None where an event of this name is somebody else's."""
    try:
        told = msgspec.convert(event.data, ReceiptHead)
    except msgspec.ValidationError:
        return None
    counts: dict[str, int] = {}
    for passage in told.passages:
        counts[passage.source] = counts.get(passage.source, 0) + 1
    return ReceiptSummary(
        id=event.id,
        position=event.position,
        at=event.at,
        query=told.query,
        session=event.context.session,
        agent=event.context.agent,
        tokens=told.tokens,
        budget_tokens=told.budget_tokens,
        lines=len(told.passages),
        left_out=told.left_out,
        sources=tuple(sorted(counts.items(), key=lambda pair: (-pair[1], pair[0]))),
        missing=told.missing,
    )


class BriefEffectView(msgspec.Struct, frozen=True, kw_only=True):
    """Whether briefs helped, as far as that can be told, and whether they are told at all now."""

    quality: Quality
    is_on: bool
    is_partial: bool  # older events were not read


async def helped(memory: Memory, *, now: datetime) -> BriefEffectView:
    """Tasks with briefs beside tasks without, from the latest events of eight weeks."""
    since = now - WEEKS * WEEK
    events = await memory.events.query(
        EventQuery(names=JUDGED_FROM, since=since, until=now + MICROSECOND, limit=EVENTS_READ)
    )
    found = await asyncio.to_thread(quality, events, since=since, until=now)
    return BriefEffectView(quality=found, is_on=await memory.briefs.is_on(), is_partial=len(events) == EVENTS_READ)


async def receipts(memory: Memory) -> Sequence[ReceiptSummary]:
    """The latest briefs, the latest first; older ones are events like any other."""
    events = await memory.events.query(EventQuery(names=(BRIEF,), limit=LISTED))
    return [found for event in reversed(events) if (found := receipt_of(event)) is not None]


async def explained(memory: Memory, reference: str) -> ExplainedReceipt | None:
    """A brief line by line; None when the event is no receipt of ours. Raises UnknownEvent."""
    event = await memory.events.get(reference)
    receipt = receipt_of(event) if event.name == BRIEF else None
    if receipt is None:
        return None
    return ExplainedReceipt(receipt=receipt, why=(await memory.why(event))[0])

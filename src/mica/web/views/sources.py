"""Sources: who answers, how soon, how far they agree, what was answered for by the cache, and what it all took."""

from __future__ import annotations

from datetime import datetime

import msgspec

from mica.brief.quality import GatherCost, Yield, quality
from mica.brief.receipts import BRIEF
from mica.memory import Memory
from mica.model.event import Event, EventId, EventQuery
from mica.sources.account import GatheredAccount
from mica.sources.protocol import GATHERED
from mica.sources.registry import SourceHealth
from mica.web.views.briefs import receipt_of

BRIEFS_READ = 200  # the latest
GATHERS_READ = 400
LISTED = 20  # gathers


class SourceContribution(msgspec.Struct, kw_only=True):
    """What a source gave to the latest briefs and gathers."""

    name: str
    asked: int = 0
    lines: int = 0  # that agents were told in its words
    cached: int = 0  # times that its earlier answer served
    missed: int = 0  # times that it could not answer
    reason: str = ""  # the last time
    last_at: datetime | None = None


class Gather(msgspec.Struct, frozen=True, kw_only=True):
    """One question to all sources, and what it took."""

    id: EventId
    position: int | None
    at: datetime
    concept: str
    coherence: float | None
    fragments: int
    conflicts: int
    asked: tuple[str, ...]
    cached: tuple[str, ...]
    missing: dict[str, str]
    latency_ms: float
    tokens: int
    dollars: float


class SourcesView(msgspec.Struct, frozen=True, kw_only=True):
    """Everyone who answered lately, the most lines first, and the latest gathers, the latest first."""

    answered: tuple[SourceContribution, ...] = ()
    briefs: int = 0
    gathers: tuple[Gather, ...] = ()
    cost: GatherCost = GatherCost()  # of the gathers, all in all (C-20)
    yielded: Yield = Yield()
    declared: int = 0


class SourceStatus(msgspec.Struct, frozen=True, kw_only=True):
    """A source that the settings or a program declare, and whether it answers now."""

    health: SourceHealth
    rank: int
    concepts: tuple[str, ...]
    is_live: bool
    ttl_s: float | None
    hanging: int


class ReceiptFragment(msgspec.Struct):
    source: str = ""


class GatherRow(msgspec.Struct):
    concept: str
    coherence: float | None = None
    fragments: tuple[ReceiptFragment, ...] = ()
    conflicts: int = 0
    missing: dict[str, str] = {}
    latency_ms: float = 0.0
    tokens: int = 0
    dollars: float = 0.0
    asked: tuple[str, ...] = ()
    cached: tuple[str, ...] = ()


async def sources(memory: Memory, *, now: datetime) -> SourcesView:
    """What each source gave to the latest briefs and gathers."""
    known: dict[str, SourceContribution] = {}
    briefed = await memory.events.query(EventQuery(names=(BRIEF,), limit=BRIEFS_READ))
    receipts = [found for event in briefed if (found := receipt_of(event)) is not None]
    for receipt in receipts:
        for name, lines in receipt.sources:
            _count(known, name, at=receipt.at, lines=lines)
        for name, reason in receipt.missing.items():
            _miss(known, name, reason, is_counted=name in dict(receipt.sources))
    told = await memory.events.query(EventQuery(names=(GATHERED,), limit=GATHERS_READ))
    gathers = [gather for event in told if (gather := _gathered(event, known)) is not None]
    events = sorted([*briefed, *told], key=lambda event: event.sort_key)
    counted = quality(events, since=events[0].at if events else now, until=now)
    ordered = sorted(known.values(), key=lambda each: (-each.lines, each.name))
    return SourcesView(
        answered=tuple(ordered),
        briefs=len(receipts),
        gathers=tuple(reversed(gathers[-LISTED:])),
        cost=counted.cost,
        yielded=counted.yielded,
        declared=len(memory.sources),
    )


def _gathered(event: Event, known: dict[str, SourceContribution]) -> Gather | None:
    """A gather by its receipt, counted for its sources; None for somebody else's event of this name."""
    try:
        told = msgspec.convert(event.data, GatherRow)
    except msgspec.ValidationError:
        return None
    for name in told.asked:
        said = sum(fragment.source == name for fragment in told.fragments)
        _count(known, name, at=event.at, lines=said, cached=name in told.cached)
    for name, reason in told.missing.items():
        _miss(known, name, reason, is_counted=name in told.asked)
    return Gather(
        id=event.id,
        position=event.position,
        at=event.at,
        concept=told.concept,
        coherence=told.coherence,
        fragments=len(told.fragments),
        conflicts=told.conflicts,
        asked=told.asked,
        cached=told.cached,
        missing=told.missing,
        latency_ms=told.latency_ms,
        tokens=told.tokens,
        dollars=told.dollars,
    )


def _count(known: dict[str, SourceContribution], name: str, *, at: datetime, lines: int, cached: bool = False) -> None:
    source = known.setdefault(name, SourceContribution(name=name))
    source.asked += 1
    source.lines += lines
    source.cached += cached
    source.last_at = at if lines else source.last_at


def _miss(known: dict[str, SourceContribution], name: str, reason: str, *, is_counted: bool) -> None:
    """A source that could not answer was asked: receipts name only those among the asked that spoke."""
    source = known.setdefault(name, SourceContribution(name=name))
    source.asked += not is_counted
    source.missed += 1
    source.reason = reason


async def declared(memory: Memory) -> list[SourceStatus]:
    """Every source that is declared or registered, asked whether it is there."""
    return [_declared(memory, health) for health in await memory.sources.health()]


def _declared(memory: Memory, health: SourceHealth) -> SourceStatus:
    source = memory.sources[health.source].declared
    return SourceStatus(
        health=health,
        rank=source.rank,
        concepts=source.concepts,
        is_live=source.is_live,
        ttl_s=source.ttl_s,
        hanging=memory.sources.hanging(health.source),
    )


async def gathered(memory: Memory, concept: str) -> GatheredAccount:
    """One account of a concept, now. A preview: nobody is shown it, so nothing is recorded."""
    return await memory.sources.gather(concept, deadline_s=2.0, is_preview=True)

"""The figures of the Sources page: which sources answer, how fast, and how far they agree.

A gather is one question about a concept that was sent to all sources.
"""

from __future__ import annotations

from datetime import datetime

import msgspec

from mica.brief.quality import GatherCost, Yield, quality
from mica.brief.receipts import BRIEF
from mica.memory import Memory
from mica.model.event import Event, EventId, EventQuery
from mica.sources.account import GatheredAccount
from mica.sources.protocol import GATHERED_NAMES
from mica.sources.registry import SourceHealth
from mica.web.views.briefs import receipt_of

BRIEFS_READ = 200  # the latest
GATHERS_READ = 400
LISTED = 20  # gathers


class SourceContribution(msgspec.Struct, kw_only=True):
    """The contribution of one source to the latest briefs, and to the latest questions about concepts."""

    name: str
    requests: int = 0
    lines: int = 0  # that agents received from it
    cached: int = 0  # requests answered from the cache
    failures: int = 0
    reason: str = ""  # of the last failure
    last_at: datetime | None = None


class Gather(msgspec.Struct, frozen=True, kw_only=True):
    """One question about a concept to all sources: how many answered, how far they agreed, and the cost."""

    id: EventId
    position: int | None
    at: datetime
    concept: str
    coherence: float | None
    fragments: int
    conflicts: int
    requested: tuple[str, ...]  # names of the sources
    cached: tuple[str, ...]
    missing: dict[str, str]
    latency_ms: float
    tokens: int
    dollars: float


class SourcesView(msgspec.Struct, frozen=True, kw_only=True):
    """The sources used lately, those with the most lines first, and the latest questions to all sources (gathers)."""

    contributions: tuple[SourceContribution, ...] = ()
    briefs: int = 0
    gathers: tuple[Gather, ...] = ()
    cost: GatherCost = GatherCost()  # total of the gathers
    yielded: Yield = Yield()
    declared: int = 0


class SourceStatus(msgspec.Struct, frozen=True, kw_only=True):
    """A source declared by the settings or by a program, and its current health."""

    health: SourceHealth
    rank: int
    concepts: tuple[str, ...]
    is_live: bool
    ttl_s: float | None
    hanging: int


class ReceiptFragment(msgspec.Struct):
    """One statement of a recorded answer. Only the name of its source is decoded."""

    source: str = ""


class GatherRow(msgspec.Struct):
    """The fields that are read from the record of the sources' answers about a concept."""

    concept: str
    coherence: float | None = None
    fragments: tuple[ReceiptFragment, ...] = ()
    conflicts: int = 0
    missing: dict[str, str] = {}
    latency_ms: float = 0.0
    tokens: int = 0
    dollars: float = 0.0
    requested: tuple[str, ...] = msgspec.field(default=(), name="asked")
    cached: tuple[str, ...] = ()


async def sources(memory: Memory, *, now: datetime) -> SourcesView:
    """Count the contributions of each source to the latest briefs, and to the latest questions about concepts."""
    contributions: dict[str, SourceContribution] = {}
    briefs = await memory.events.query(EventQuery(names=(BRIEF,), limit=BRIEFS_READ))
    receipts = [receipt for event in briefs if (receipt := receipt_of(event)) is not None]
    for receipt in receipts:
        for name, lines in receipt.sources:
            _count(contributions, name, at=receipt.at, lines=lines)
        for name, reason in receipt.missing.items():
            _count_failure(contributions, name, reason, is_counted=name in dict(receipt.sources))
    gathered = await memory.events.query(EventQuery(names=GATHERED_NAMES, limit=GATHERS_READ))
    gathers = [gather for event in gathered if (gather := _count_gather(event, contributions)) is not None]
    events = sorted([*briefs, *gathered], key=lambda event: event.sort_key)
    counted = quality(events, since=events[0].at if events else now, until=now)
    ordered = sorted(contributions.values(), key=lambda each: (-each.lines, each.name))
    return SourcesView(
        contributions=tuple(ordered),
        briefs=len(receipts),
        gathers=tuple(reversed(gathers[-LISTED:])),
        cost=counted.cost,
        yielded=counted.yielded,
        declared=len(memory.sources),
    )


def _count_gather(event: Event, contributions: dict[str, SourceContribution]) -> Gather | None:
    """Read the record of the sources' answers about a concept, and add it to `contributions`.

    Returns None if the event was not recorded by mica.
    """
    try:
        row = msgspec.convert(event.data, GatherRow)
    except msgspec.ValidationError:
        return None
    for name in row.requested:
        lines = sum(fragment.source == name for fragment in row.fragments)
        _count(contributions, name, at=event.at, lines=lines, cached=name in row.cached)
    for name, reason in row.missing.items():
        _count_failure(contributions, name, reason, is_counted=name in row.requested)
    return Gather(
        id=event.id,
        position=event.position,
        at=event.at,
        concept=row.concept,
        coherence=row.coherence,
        fragments=len(row.fragments),
        conflicts=row.conflicts,
        requested=row.requested,
        cached=row.cached,
        missing=row.missing,
        latency_ms=row.latency_ms,
        tokens=row.tokens,
        dollars=row.dollars,
    )


def _count(
    contributions: dict[str, SourceContribution], name: str, *, at: datetime, lines: int, cached: bool = False
) -> None:
    source = contributions.setdefault(name, SourceContribution(name=name))
    source.requests += 1
    source.lines += lines
    source.cached += cached
    source.last_at = at if lines else source.last_at


def _count_failure(contributions: dict[str, SourceContribution], name: str, reason: str, *, is_counted: bool) -> None:
    """Count a failed request of a source: the failure and, unless `is_counted`, the request."""
    source = contributions.setdefault(name, SourceContribution(name=name))
    source.requests += not is_counted
    source.failures += 1
    source.reason = reason


async def statuses(memory: Memory) -> list[SourceStatus]:
    """Check every declared or registered source, and return its status."""
    return [_status(memory, health) for health in await memory.sources.health()]


def _status(memory: Memory, health: SourceHealth) -> SourceStatus:
    source = memory.sources[health.source].declared
    return SourceStatus(
        health=health,
        rank=source.rank,
        concepts=source.concepts,
        is_live=source.is_live,
        ttl_s=source.ttl_s,
        hanging=memory.sources.hanging(health.source),
    )


async def gather(memory: Memory, concept: str) -> GatheredAccount:
    """Ask all sources about a concept now, and return their merged answer. Nothing is recorded."""
    return await memory.sources.gather(concept, deadline_s=2.0, is_preview=True)

"""Sources: what briefs were gathered from lately, and what could not answer."""

from __future__ import annotations

from datetime import datetime

import msgspec

from mica.inject.receipts import BRIEF
from mica.memory import Memory
from mica.model import EventQuery
from mica.web.views.briefs import receipt_of

BRIEFS_READ = 200  # the latest


class Answered(msgspec.Struct, kw_only=True):
    """What a source contributed to the latest briefs."""

    name: str
    briefs: int = 0  # that it had a line in
    lines: int = 0
    missed: int = 0  # briefs in which it could not answer
    reason: str = ""  # the last time
    last_at: datetime | None = None


class Sources(msgspec.Struct, frozen=True, kw_only=True):
    """Who answered the latest briefs, the most lines first."""

    answered: tuple[Answered, ...]
    briefs: int


async def sources(memory: Memory) -> Sources:
    """What each source gave to the latest briefs."""
    events = await memory.events(EventQuery(names=(BRIEF,), limit=BRIEFS_READ))
    receipts = [found for event in events if (found := receipt_of(event)) is not None]
    known: dict[str, Answered] = {}
    for receipt in receipts:
        for name, lines in receipt.sources:
            source = known.setdefault(name, Answered(name=name))
            source.briefs += 1
            source.lines += lines
            source.last_at = receipt.at
        for name, reason in receipt.missing.items():
            source = known.setdefault(name, Answered(name=name))
            source.missed += 1
            source.reason = reason
    ordered = sorted(known.values(), key=lambda each: (-each.lines, each.name))
    return Sources(answered=tuple(ordered), briefs=len(receipts))

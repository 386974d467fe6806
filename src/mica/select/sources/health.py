"""How sources do: whether they answer now, and how their latest questions went."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime

import msgspec

from mica.model import Event


class Past(msgspec.Struct, kw_only=True):
    """How a source's latest questions went, as the records of gathering tell."""

    asked: int = 0  # times that it was asked, and not answered for from the cache
    failed: int = 0
    answered_at: datetime | None = None  # the last time
    failure: str = ""  # the last one's reason


class Health(msgspec.Struct, frozen=True, kw_only=True):
    """How a source does."""

    source: str
    driver: str
    is_there: bool
    told: str  # what it says of itself, or why it does not answer
    milliseconds: float
    past: Past = msgspec.field(default_factory=Past)
    breaker: str = "closed"  # `open` while it is left alone after several failures, in this process


def past(gathered: Iterable[Event]) -> dict[str, Past]:
    """How sources did in records of gathering, oldest first."""
    found: dict[str, Past] = {}
    for event in gathered:
        asked, cached = (_names(event.data.get(key)) for key in ("asked", "cached"))
        missing = event.data.get("missing")
        failures = missing if isinstance(missing, Mapping) else {}
        for name in asked - cached:
            each = found.setdefault(name, Past())
            each.asked += 1
            if name in failures:
                each.failed += 1
                each.failure = str(failures[name])
            else:
                each.answered_at = event.at
    return found


def _names(value: object) -> set[str]:
    return {str(each) for each in value} if isinstance(value, list | tuple) else set()

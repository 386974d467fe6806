"""How sources do: whether they answer now, and how their latest questions went."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Literal

import msgspec

from mica.model.event import Event
from mica.sources.protocol import IN_PART

TESTED = "source.tested"  # records that a source was asked by hand: {"source", "concept", "error", "milliseconds"}
FAILING_MIN = 3  # failures in a row, after which a source that is there is not well all the same

State = Literal["answers", "failing", "missing"]


class Past(msgspec.Struct, kw_only=True):
    """How a source's latest questions went, as the records of gathering tell."""

    asked: int = 0  # times that it was asked, and not answered for from the cache
    failed: int = 0
    failed_in_a_row: int = 0  # the latest
    tried_at: datetime | None = None  # the last time that it was asked
    answered_at: datetime | None = None  # the last time
    failure: str = ""  # the last one's reason

    @property
    def is_failing(self) -> bool:
        return self.failed_in_a_row >= FAILING_MIN

    def note(self, at: datetime, failure: object) -> None:
        """It was asked once more; None where it answered."""
        self.asked += 1
        self.tried_at = at
        if failure is None:
            self.failed_in_a_row = 0
            self.answered_at = at
        else:
            self.failed += 1
            self.failed_in_a_row += 1
            self.failure = str(failure)


class Health(msgspec.Struct, frozen=True, kw_only=True):
    """How a source does."""

    source: str
    driver: str
    is_there: bool
    told: str  # what it says of itself, or why it does not answer
    milliseconds: float
    state: State  # `failing`: it is there, and its latest questions all failed
    past: Past = msgspec.field(default_factory=Past)
    breaker: str = "closed"  # `open` while it is left alone after several failures, in this process

    def after(self, past: Past, *, breaker: str) -> Health:
        """The same with how its latest questions went."""
        state: State = "failing" if self.is_there and past.is_failing else self.state
        return msgspec.structs.replace(self, past=past, breaker=breaker, state=state)


def past(told: Iterable[Event]) -> dict[str, Past]:
    """How sources did in records of gathering and of asking by hand, oldest first."""
    found: dict[str, Past] = {}
    for event in told:
        if event.name == TESTED:
            name, error = event.data.get("source"), event.data.get("error")
            found.setdefault(str(name), Past()).note(event.at, error or None)
            continue
        asked, cached = (_names(event.data.get(key)) for key in ("asked", "cached"))
        missing = event.data.get("missing")
        failures = {**_stale(event.data.get("degraded")), **(missing if isinstance(missing, Mapping) else {})}
        for name in asked - cached:
            failure = failures.get(name)
            is_part = isinstance(failure, str) and failure.startswith(IN_PART)
            found.setdefault(name, Past()).note(event.at, None if is_part else failure)
    return found


def _names(value: object) -> set[str]:
    return {str(each) for each in value} if isinstance(value, list | tuple) else set()


def _stale(degraded: object) -> dict[str, object]:
    """The sources that were answered for by what they said earlier, and why: they failed, too."""
    listed = degraded if isinstance(degraded, list | tuple) else ()
    return {str(each.get("source")): each.get("reason") for each in listed if isinstance(each, Mapping)}

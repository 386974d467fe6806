"""Builders of events for tests, and a clock that only the test moves."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

from mica.model.event import EMPTY, Context, Event, Origin, Ref, Tombstone, WriterId, event_id, make_event, writer_named

START_AT = datetime(2026, 11, 1, 9, 0, tzinfo=UTC)
WRITER = writer_named("test")


class HandClock:
    """A clock that moves only when the test moves it."""

    def __init__(self, at: datetime = START_AT) -> None:
        self.at = at

    def __call__(self) -> datetime:
        return self.at

    def monotonic(self) -> float:
        """Return the time in seconds, for code that measures intervals."""
        return self.at.timestamp()

    async def sleep(self, seconds: float) -> None:
        """Move the clock by `seconds` instead of waiting, and let other tasks run."""
        self.move(seconds=seconds)
        await asyncio.sleep(0)

    def move(self, **by: float) -> None:
        """Move the clock by `hours=…`, `seconds=…` and so on, as in timedelta; negative numbers move it back."""
        self.at += timedelta(**by)


def build(
    sequence: int,
    name: str = "test.happened",
    data: dict[str, object] | None = None,
    *,
    parent: Event | Ref | None = None,
    context: Context = EMPTY,
    after_s: float | None = None,
    writer: WriterId = WRITER,
    origin: Origin = "agent",
    error: bool = False,
) -> Event:
    """Return an event with this sequence in its id, at START_AT plus `after_s` seconds (by default `sequence`)."""
    at = START_AT + timedelta(seconds=sequence if after_s is None else after_s)
    return make_event(
        event_id(writer, sequence), name, data or {}, at=at, context=context, parent=parent, origin=origin, error=error
    )


TOMBSTONE = Tombstone(purge=build(1_000).id, reason="leaked")

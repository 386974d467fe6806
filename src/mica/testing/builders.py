"""Events for tests: few words to build one, and random histories that are always whole."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import TypeAlias

from hypothesis import strategies as st

from mica.model.event import EMPTY, Context, Event, Origin, Ref, Tombstone, WriterId, event_id, make_event, writer_named

START_AT = datetime(2026, 11, 1, 9, 0, tzinfo=UTC)
WRITER = writer_named("test")
History: TypeAlias = list[Event]


class HandClock:
    """A clock that moves only when told to."""

    def __init__(self, at: datetime = START_AT) -> None:
        self.at = at

    def __call__(self) -> datetime:
        return self.at

    def monotonic(self) -> float:
        """Seconds, for what measures intervals."""
        return self.at.timestamp()

    async def sleep(self, seconds: float) -> None:
        """Move by so much instead of waiting, and let others run."""
        self.move(seconds=seconds)
        await asyncio.sleep(0)

    def move(self, **by: float) -> None:
        """Move by hours=…, seconds=…; negative numbers step back."""
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
    """An event whose id is its sequence; it happened `after_s` (its sequence) seconds after the start."""
    at = START_AT + timedelta(seconds=sequence if after_s is None else after_s)
    return make_event(
        event_id(writer, sequence), name, data or {}, at=at, context=context, parent=parent, origin=origin, error=error
    )


TOLD = Tombstone(purge=build(1_000).id, reason="leaked")  # what a purge leaves of an event


_WORDS = st.sampled_from("cookie session redirect login auth the running réseau 数据 x SessionCookie 42".split())
_NAMES = st.sampled_from(["mark", "file.read", "file.edit", "shell.run", "error_free", "brief"])
_CONTEXTS = st.builds(
    Context,
    session=st.sampled_from([None, "s1", "s2"]),
    agent=st.sampled_from([None, "scout", "smith"]),
    user=st.sampled_from([None, "ann"]),
    correlation=st.sampled_from([None, "req-1"]),
    labels=st.sampled_from([(), (("branch", "main"),)]),
)


@st.composite
def histories(draw: st.DrawFn, max_size: int = 25) -> History:
    """Events of two writers in an order in which they can be appended; times may step back."""
    events: History = []
    for sequence in range(1, draw(st.integers(0, max_size)) + 1):
        parent = draw(st.sampled_from([None, *events[-4:]]))
        name = draw(_NAMES)
        text = " ".join(draw(st.lists(_WORDS, max_size=6)))
        data: dict[str, object] = {"path": "a.py"} if name.startswith("file") else {"text": text}
        events.append(
            build(
                sequence,
                name,
                data,
                parent=parent,
                context=draw(_CONTEXTS),
                after_s=draw(st.integers(-5, 20)),
                writer=draw(st.sampled_from([WRITER, writer_named("other")])),
                origin="recalled" if name == "brief" else draw(st.sampled_from(["user", "agent"])),
                error=draw(st.booleans()),
            )
        )
    return events

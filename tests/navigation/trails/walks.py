"""Walks and their steps, built for tests."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

import msgspec
from hypothesis import strategies as st

from mica.model.event import EventId, event_id
from mica.model.walk import Outcome, Step, Walk
from mica.testing.builders import START_AT, WRITER

FILES = st.lists(st.sampled_from("a/x.py a/y.py a/z.py b.py c.py d.py e.ts f.ts".split()), max_size=6)


def read(
    path: str, lines: tuple[int, int] | None = None, *, at: datetime = START_AT, tokens: int | None = 100, of: int = 500
) -> Step:
    start, end = lines or (None, None)
    return Step(
        path=path,
        operation="read",
        start_line=start,
        end_line=end,
        total_lines=of,
        tokens=tokens,
        at=at,
        event=EventId("e"),
    )


def walk(
    number: int,
    paths: Sequence[str | Step],
    *,
    prompt: str = "Fix the login",
    session: str | None = None,
    outcome: Outcome = "unknown",
    agent: str | None = "scout",
    **changes: object,
) -> Walk:
    at = START_AT + timedelta(hours=number)
    made = Walk(
        id=event_id(WRITER, number),
        prompt=prompt,
        at=at,
        ended_at=at + timedelta(minutes=5),
        session=session or f"s{number}",
        agent=agent,
        steps=tuple(read(path, at=at) if isinstance(path, str) else path for path in paths),
        outcome=outcome,
    )
    return msgspec.structs.replace(made, **changes)

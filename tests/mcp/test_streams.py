"""Message streams: order, resuming, and quiet periods."""

from __future__ import annotations

import pytest

from mica.format.documents import QUIET
from mica.mcp import streams
from mica.mcp.streams import Stream


async def test_messages_arrive_in_order_until_the_stream_ends() -> None:
    stream = Stream("1")
    stream.put({"n": 1})
    stream.put({"n": 2})
    stream.end()

    assert [each async for each in stream.read()] == [(1, {"n": 1}), (2, {"n": 2})]
    assert await stream.first() == {"n": 1}


async def test_a_reader_resumes_after_the_number_it_names() -> None:
    stream = Stream("7")
    for number in range(1, 4):
        stream.put({"n": number})
    stream.end()

    resumed = [each async for each in stream.events(2)]

    assert resumed == [b'event: message\nid: 7/3\ndata: {"n":3}\n\n']


async def test_the_buffer_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "BUFFERED_MAX", 2)
    stream = Stream("1")
    for number in range(1, 6):
        stream.put({"n": number})
    stream.end()

    assert [number async for number, _ in stream.read()] == [4, 5]


async def test_a_quiet_period_yields_a_comment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "QUIET_S", 0.001)
    stream = Stream("1")
    events = stream.events()

    assert await anext(events) == QUIET
    assert stream.is_read
    await events.aclose()  # type: ignore[attr-defined]  # an async generator
    assert not stream.is_read


async def test_a_stream_without_messages_has_no_first_one() -> None:
    stream = Stream()
    stream.end()

    assert await stream.first() is None

"""`emit`: accepted, converted and refused data."""

from __future__ import annotations

import asyncio
from datetime import datetime

import pytest

from mica import EventQuery, Memory
from mica.errors import (
    InvalidEvent,
)
from mica.model.event import new_writer, split_id
from mica.testing import HandClock
from mica.testing.builders import START_AT


async def test_data_is_recorded_as_it_was_at_the_call(memory: Memory) -> None:
    data: dict[str, object] = {"list": [1], "at": START_AT}
    ref = memory.emit("tool.ran", data)
    data["list"] = "changed"

    assert (await memory.events.get(ref.id)).data == {"list": [1], "at": "2026-11-01T09:00:00Z"}


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        ({"x": object()}, "object"),
        ({"x": float("nan")}, r"\$\.x"),
        ({"x": 1.5, "y": float("-inf")}, r"\$\.y"),
        ({"deep": [{"y": float("inf"), "z": None}]}, r"\$\.deep\.0\.y"),
        ({"x": "ab\ud800"}, r"half of a character, U\+D800, at character 3"),
        ({"x": "a\udcff"}, "a text with the byte 0xff at character 2, which is not UTF-8; decode it"),
        ([1], "list"),
    ],
)
async def test_data_that_cannot_be_recorded_is_refused_and_nothing_else_is_lost(
    memory: Memory, data: dict[str, object], reason: str
) -> None:
    memory.emit("before")
    with pytest.raises(InvalidEvent, match=reason):
        memory.emit("tool.ran", data)
    memory.emit("after")

    assert [event.name for event in await memory.events.query()] == ["before", "after"]


async def test_non_text_keys_are_refused_at_once_for_new_event_names(memory: Memory) -> None:
    """A caller that always uses such keys gets an error on the first call, and nothing is stored."""
    name = new_writer()  # never emitted before in this process
    for _ in range(2):
        with pytest.raises(InvalidEvent, match=r"has the key 1; keys must be strings"):
            memory.emit(name, {1: "one"})  # type: ignore[dict-item]  # the point
    assert await memory.events.query() == []


async def test_values_outside_json_are_converted(memory: Memory) -> None:
    """`docs/events.md` lists the conversions."""
    memory.emit("told", {"bytes": b"\x00\xff", "tuple": (1, 2), "set": {3}, "at": START_AT, "keys": {1: "one"}})

    [event] = await memory.events.query()
    assert event.data == {
        "bytes": "AP8=",
        "tuple": [1, 2],
        "set": [3],
        "at": "2026-11-01T09:00:00Z",
        "keys": {"1": "one"},
    }


async def test_nested_non_text_keys_are_reported_and_block_no_other_event(memory: Memory) -> None:
    memory.emit("tool.ran", {"deep": {(1, 2): 3}})
    memory.emit("twice")
    memory.emit("twice", {1: "one", "1": "uno"})  # type: ignore[dict-item]  # the point
    memory.emit("after", {"large": 2**70, "numbers": {1: "one"}})

    refused, _, twice, after = await memory.events.query()
    assert "keys must be strings" in str(twice.data["text"])

    assert (refused.name, refused.error) == ("event.refused", True)
    assert "cannot be written as JSON" in str(refused.data["text"])
    assert after.data == {"large": 2**70, "numbers": {"1": "one"}}


async def test_data_that_contains_itself_is_refused(memory: Memory) -> None:
    loop: dict[str, object] = {}
    loop["self"] = loop
    with pytest.raises(InvalidEvent, match="cannot be written as JSON"):
        memory.emit("tool.ran", loop)


@pytest.mark.parametrize("name", ["", "two words", "new\nline", "x" * 201, "star*", "nul\0"])
async def test_names_that_cannot_be_queried_are_refused(memory: Memory, name: str) -> None:
    with pytest.raises(InvalidEvent, match="event name"):
        memory.emit(name)


@pytest.mark.parametrize("name", ["event.purged", "event.refused"])
async def test_names_reserved_for_tombstones_and_refusals_are_refused(memory: Memory, name: str) -> None:
    with pytest.raises(InvalidEvent, match="is reserved for the store"):
        memory.emit(name, {"purge": "x", "reason": "y"})


async def test_an_event_without_a_time_zone_is_refused(memory: Memory) -> None:
    """keeps: TB-16"""
    with pytest.raises(InvalidEvent, match="time zone"):
        memory.emit("x", at=datetime(2026, 1, 1))  # noqa: DTZ001


async def test_a_clock_that_jumps_back_loses_nothing(memory: Memory, clock: HandClock) -> None:
    first = memory.emit("first")
    clock.move(hours=-5)
    second = memory.emit("second", parent=first)
    clock.move(hours=9)
    memory.emit("third")

    events = await memory.events.query(EventQuery(limit=None))
    assert [event.name for event in events] == ["second", "first", "third"]
    assert split_id(second.id)[1] == split_id(first.id)[1] + 1
    assert await memory.upkeep.verify() == []


async def test_events_from_many_threads_all_arrive_once(memory: Memory) -> None:
    def work(number: int) -> None:
        for step in range(100):
            memory.emit("step", {"n": number * 100 + step})

    await asyncio.gather(*(asyncio.to_thread(work, number) for number in range(8)))
    events = await memory.events.query(EventQuery(limit=None))

    assert sorted(int(str(event.data["n"])) for event in events) == list(range(800))


async def test_ids_of_one_memory_sort_in_the_order_of_emitting(memory: Memory) -> None:
    """keeps: K-47"""
    identifiers = [memory.emit("step").id for _ in range(300)]
    assert identifiers == sorted(identifiers)

"""Rows of events, and chains as trees."""

from __future__ import annotations

from datetime import timedelta

import msgspec
import pytest
from tests.web.views.conftest import NOW

import mica
from mica.model.event import EventQuery
from mica.web.views import events


async def test_a_tail_resumes_after_its_position_with_its_filters(memory: mica.Memory) -> None:
    filters = events.EventFilter(names="mark", agent="codex")
    tail = await events.latest(memory, filters)
    with memory.context(agent="codex"):
        memory.mark("a new one")
        memory.emit("file.read", {"path": "x.py"})
    memory.mark("by another agent")

    later = await events.later(memory, filters, after=tail.position)

    assert [row.summary for row in later.rows] == ["a new one"]
    assert {row.name for row in tail.rows} == {"mark"}


async def test_a_tail_far_behind_shows_only_the_latest_events(empty: mica.Memory) -> None:
    empty.emit("tick", {"text": "seven"})
    for number in range(events.BEHIND_MAX + 50):
        empty.emit("tick", {"text": str(number)})

    later = await events.later(empty, events.EventFilter(), after=0)
    older = await events.later(empty, events.EventFilter(text="seven"), after=0)

    assert older.rows == ()  # events that far behind are not read
    assert len(later.rows) == events.ROWS_MAX
    assert later.rows[0].summary == str(events.BEHIND_MAX + 49)


async def test_older_events_are_paged_without_a_gap_even_at_equal_times(empty: mica.Memory) -> None:
    for number in range(250):
        empty.emit("tick", {"text": str(number)}, at=NOW - timedelta(seconds=number // 80))
    filters = events.EventFilter(names="tick")

    tail = await events.latest(empty, filters)
    rows = [*tail.rows]
    while tail.has_older:
        tail = await events.older(empty, filters, before=rows[-1].id)
        rows += tail.rows

    expected = await empty.events.query(EventQuery(names=("tick",), limit=None))
    assert [row.id for row in rows] == [event.id for event in reversed(expected)]


async def test_a_chain_is_in_tree_order_with_times_since_its_start(memory: mica.Memory) -> None:
    walk = (await memory.events.query(EventQuery(session="now", names=("mark",))))[0]

    chain = await events.chain_of(memory, walk)

    assert chain.events == len(await memory.events.chain(walk))
    assert chain.links[0].row.id == walk.id
    assert chain.links[0].is_current
    assert [link.indent for link in chain.links][:2] == [0, 1]
    assert all(link.after_s >= 0 for link in chain.links)


def test_filters_are_parsed_from_an_address_and_unknown_ones_ignored() -> None:
    filters = events.EventFilter.of({"names": "file.*, mark", "errors": "1", "bundle": "nonsense", "space": "x"})

    assert filters.query() == EventQuery(names=("file.*", "mark"), errors=True, limit=events.ROWS_MAX)
    assert filters.bundle == ""
    assert filters.is_narrowed


async def test_a_purged_event_is_shown_without_its_content(memory: mica.Memory) -> None:
    mark = (await memory.events.query(EventQuery(names=("mark",), limit=1)))[0]

    await memory.purge(ids=[mark.id])

    row = events.row_of(await memory.events.get(mark.id))
    assert row.summary == "purged"
    assert msgspec.json.encode(row).find(b"discounts") == -1


@pytest.mark.parametrize(
    ("name", "data", "description"),
    [
        ("model.answer", {"model": "m-1", "output_tokens": 1_234}, "m-1, 1,234 tokens"),
        ("model.answer", {"model": "m-1"}, "m-1"),
        ("sources.gathered", {"concept": "judgment:code_review:1"}, "judgment:code_review:1"),
        ("brief.switched", {"on": True}, "on"),
        ("brief.switched", {"on": False}, "off"),
    ],
)
async def test_an_event_without_a_text_has_a_description(
    empty: mica.Memory, name: str, data: dict[str, object], description: str
) -> None:
    empty.emit(name, data)
    [event] = await empty.events.query()

    assert events.describe_event(event) == description

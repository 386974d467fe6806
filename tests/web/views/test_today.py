"""The figures of the page Today."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import mica
from mica.testing.sample_work import OPEN
from mica.web.views import briefs, today

NOW = datetime(2026, 11, 13, 15, 0, tzinfo=UTC)


async def test_today_tells_the_sessions_of_the_day_and_what_is_open(memory: mica.Memory) -> None:
    day = await today.happened(memory, now=NOW)
    still = await today.still_open(memory)

    assert day is not None
    assert day.is_today
    assert [line.session for line in day.sessions] == ["now", "today-2", "today-4"]
    assert (day.prompts, day.edits) == (3, 3)
    assert sum(day.hours) > 0
    assert [each.session for each in still.sessions] == ["now"]
    assert {mark.text for mark in still.threads} == {text for text, _ in OPEN}


async def test_a_quiet_day_shows_the_latest_one_that_had_work(memory: mica.Memory) -> None:
    day = await today.happened(memory, now=NOW + timedelta(days=9))

    assert day is not None
    assert not day.is_today
    assert day.begins_at <= NOW


async def test_what_a_mark_fulfils_is_open_no_more(memory: mica.Memory) -> None:
    asked = next(mark for mark in (await today.still_open(memory)).threads if "question" in mark.tags)

    memory.mark("Only the accountants", parent=await memory.events.get(asked.id), relation="fulfills")

    assert asked.id not in {mark.id for mark in (await today.still_open(memory)).threads}


async def test_the_next_agents_brief_is_a_preview_that_leaves_no_receipt(memory: mica.Memory) -> None:
    before = len(await briefs.receipts(memory))

    told = await today.told_next(memory, now=NOW)

    assert told.passages
    assert len(await briefs.receipts(memory)) == before

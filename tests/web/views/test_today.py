"""The figures of the page Today."""

from __future__ import annotations

from datetime import timedelta

from tests.sample_work import OPEN
from tests.web.views.conftest import NOW

import mica
from mica.web.views import briefs, today

# A report that the classifier takes for a task, because of "half". Remove it here when that is mended.
TAKEN_FOR_OPEN = "Two machines ran the same migration at once, and one of them failed half way"


def shown(work: today.OpenWork) -> set[str]:
    return {mark.text for mark in work.threads} | {belief.text for belief in work.beliefs}


async def test_today_shows_the_sessions_of_the_day_and_open_work(memory: mica.Memory) -> None:
    day = await today.latest_day(memory, now=NOW)
    open_work = await today.open_work(memory)

    assert day is not None
    assert day.is_today
    assert [line.session for line in day.sessions] == ["now", "today-2", "today-4"]
    assert (day.prompts, day.edits) == (3, 3)
    assert sum(day.hours) > 0
    assert [each.session for each in open_work.sessions] == ["now"]
    assert shown(open_work) == {text for text, _ in OPEN} | {TAKEN_FOR_OPEN}


async def test_a_quiet_day_shows_the_latest_day_with_work(memory: mica.Memory) -> None:
    day = await today.latest_day(memory, now=NOW + timedelta(days=9))

    assert day is not None
    assert not day.is_today
    assert day.begins_at <= NOW


async def test_a_fulfilled_question_is_no_longer_open(memory: mica.Memory) -> None:
    question = next(each for each in (await today.open_work(memory)).beliefs if each.kind == "question")

    memory.mark("Only the accountants", parent=await memory.events.get(question.evidence[0]), relation="fulfills")

    assert question.text not in shown(await today.open_work(memory))


async def test_the_next_agents_brief_is_a_preview_that_leaves_no_receipt(memory: mica.Memory) -> None:
    before = len(await briefs.receipts(memory))

    brief = await today.next_brief(memory, now=NOW)

    assert brief.passages
    assert len(await briefs.receipts(memory)) == before

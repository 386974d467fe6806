"""Crystals in briefs: the highest that cover the time, replaced where a question asks; corrections above what they
correct."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import msgspec
import pytest
from tests.crystals.test_crystallizer import SAID

import mica
from mica.brief.crystal_source import Crystals, recency
from mica.brief.question import Question
from mica.errors import InvalidInput
from mica.model.event import EventId, Mark
from mica.model.trail import freshness
from mica.search.corrections import corrected
from mica.search.ranker import Hit
from mica.settings import CrystalSettings, Settings, TrailSettings
from mica.testing import HandClock
from mica.testing.builders import START_AT, build


@pytest.fixture
def clock() -> HandClock:
    return HandClock(datetime(2026, 11, 2, 9, tzinfo=UTC))


@pytest.fixture
def home(home: Settings) -> Settings:
    return msgspec.structs.replace(home, crystals=CrystalSettings(auto=False))


async def observe(memory: mica.Memory, clock: HandClock, *, days: int) -> None:
    for day in range(days):
        clock.at = datetime(2026, 11, 2 + day, 9, tzinfo=UTC)
        with memory.context(session=f"s{day}", agent="scout"):
            for text in SAID:
                clock.move(minutes=1)
                memory.mark(f"{text} (day {day})")
    clock.move(days=1)
    await memory.auto_crystallize()


def beneath(crystals: dict[EventId, mica.Crystal], identifier: EventId) -> set[EventId]:
    """Everything that a crystal rests on, at every level."""
    crystal = crystals.get(identifier)
    if crystal is None:
        return set()
    return {*crystal.sources}.union(*(beneath(crystals, source) for source in crystal.sources))


async def test_a_brief_never_shows_a_crystal_beside_what_it_stands_for(memory: mica.Memory, clock: HandClock) -> None:
    """TB-08: nothing is paid for twice, whatever is asked."""
    await observe(memory, clock, days=9)
    with memory.context(session="now"):
        memory.mark("The cookie of the admin page has no expiry yet")
    crystals = {crystal.id: crystal for crystal in await memory.crystals(limit=None)}
    for query in ("", "cookie redirect", "vault secret deploy", "utils/http.py"):
        for budget in (300, 1_000, 10_000):
            brief = await memory.brief(query, budget_tokens=budget)
            shown = [passage.sources[0] for passage in brief.passages if passage.source in ("marks", "crystals")]
            for one in shown:
                assert not beneath(crystals, one).intersection(shown), (query, budget)


async def test_the_highest_level_covers_what_nobody_asks_about(memory: mica.Memory, clock: HandClock) -> None:
    """TB-09, K-12, B-26: a week stands for its days; where there is room, what it rests on takes its place."""
    await observe(memory, clock, days=9)
    [week] = await memory.crystals(level="week")
    brief = await memory.brief(budget_tokens=400)
    shown = [passage.sources[0] for passage in brief.passages if passage.source == "crystals"]
    assert week.id in shown
    assert not set(week.sources) & set(shown)
    roomy = await memory.brief(budget_tokens=10_000)
    assert week.id not in [passage.sources[0] for passage in roomy.passages]
    assert len(roomy.passages) > len(brief.passages)
    assert roomy.tokens > 5 * brief.tokens
    for budget in range(60, 400, 20):
        small = [p for p in (await memory.brief(budget_tokens=budget)).passages if p.source == "crystals"]
        if small:
            assert week.id in [passage.sources[0] for passage in small]
            break


async def test_a_question_gets_its_evidence_not_only_what_covers_it(memory: mica.Memory, clock: HandClock) -> None:
    """K-11, K-12: marks that answer come first; a crystal that says nothing of the question is left out."""
    await observe(memory, clock, days=3)
    brief = await memory.brief("who uses utils/http.py", budget_tokens=600)
    assert any("utils/http.py" in passage.text for passage in brief.passages if passage.source == "marks")
    nothing = await memory.brief("quarterly zeppelin insurance", budget_tokens=600)
    assert [passage for passage in nothing.passages if passage.source == "crystals"] == []


async def test_presets_are_budgets_by_name(memory: mica.Memory) -> None:
    """B-68"""
    memory.mark("one thing")
    budgets = {preset: (await memory.brief(preset=preset)).budget_tokens for preset in mica.memory.PRESETS}
    assert budgets == {"quick": 500, "standard": 1_500, "research": 3_000, "coordinator": 5_000}
    for wrong in ({"preset": "huge"}, {"recency_weight": 1.5}, {"recency_weight": -0.1}, {"budget_tokens": -1}):
        with pytest.raises(InvalidInput):
            await memory.brief(**wrong)


async def test_how_much_being_fresh_counts_can_be_set(memory: mica.Memory, clock: HandClock) -> None:
    """B-50, B-51, B-52: with all the weight on it the latest crystal comes first, without any the fitting one."""
    for number, texts in enumerate((SAID, [text.replace("cookie", "header") for text in SAID])):
        with memory.context(session=f"s{number}"):
            for text in texts:
                clock.move(minutes=1)
                memory.mark(text)
        clock.move(days=30)
        await memory.crystallize(session=f"s{number}")

    async def first(weight: float) -> str:
        question = Question(query="cookie redirect", now=clock(), store=memory._store, recency_weight=weight)
        return max(await Crystals(memory._store).passages(question), key=lambda passage: passage.score).kind

    fresh, fitting = await first(1.0), await first(0.0)
    assert "s1" in fresh
    assert "s1" not in fitting


async def test_a_correction_outranks_what_it_corrects_and_is_named(memory: mica.Memory, clock: HandClock) -> None:
    """B-44: when both are found, whichever fits the question better."""
    wrong = memory.mark("The login cookie lives for ninety days in the login cookie store")
    clock.move(minutes=1)
    right = memory.mark("It lives for thirty days: login cookie", parent=wrong, tags=("correction",))
    hits = (await memory.search("login cookie store ninety days")).marks
    assert [hit.mark.id for hit in hits][:2] == [right.id, wrong.id]
    assert hits[1].corrected_by == right.id
    brief = await memory.brief("login cookie", budget_tokens=1_000)
    position = (await memory.event(right.id)).position
    assert f"corrected by #{position}" in brief.text


async def test_crystals_are_found_by_what_they_say_at_a_level(memory: mica.Memory, clock: HandClock) -> None:
    """B-51, B-27: best first; none where none speaks of it."""
    await observe(memory, clock, days=3)
    found = await memory.crystals("vault secret", level="session")
    assert found
    assert {crystal.level for crystal in found} == {"session"}
    assert all("vault" in crystal.text or "secret" in str(crystal.statements) for crystal in found)
    assert await memory.crystals("quarterly zeppelin") == []
    assert len(await memory.crystals("vault secret", limit=1)) == 1


async def test_what_is_no_question_or_no_budget_is_refused(memory: mica.Memory) -> None:
    """B-27: a clear error, not a traceback from within."""
    for wrong in (
        {"query": None},
        {"query": 3},
        {"budget_tokens": "many"},
        {"budget_tokens": 1.5},
        {"budget_tokens": True},
        {"budget_tokens": 100, "preset": "quick"},
    ):
        with pytest.raises(InvalidInput):
            await memory.brief(**wrong)
    with pytest.raises(InvalidInput, match="whole number"):
        await memory.handoff(budget_tokens=-1)


async def test_of_several_corrections_the_latest_comes_first(memory: mica.Memory, clock: HandClock) -> None:
    """B-44: a correction of a correction, and a second one of the same mark, whichever fits the question best."""
    wrong = memory.mark("The login cookie lives for ninety days in the login cookie store of the login page")
    clock.move(minutes=1)
    better = memory.mark("The login cookie lives sixty days", parent=wrong, tags=("correction",))
    clock.move(minutes=1)
    best = memory.mark("Thirty: login cookie", parent=better, tags=("correction",))

    hits = (await memory.search("login cookie store ninety days")).marks
    assert [hit.id for hit in hits][:3] == [best.id, better.id, wrong.id]
    assert [hit.corrected_by for hit in hits][:3] == [None, best.id, best.id]
    clock.move(minutes=1)
    last = memory.mark("Twenty, says the login cookie code", parent=wrong, tags=("correction",))
    hits = (await memory.search("login cookie store ninety days")).marks
    assert [hit.id for hit in hits][:4] == [last.id, best.id, better.id, wrong.id]


def test_what_is_a_week_old_counts_half() -> None:
    """K-52: in a brief; a trail after thirty days. What is yet to come counts whole."""
    now = datetime(2026, 11, 15, tzinfo=UTC)

    assert [recency(now - timedelta(days=days), now) for days in (0, 7, 14, -7)] == [1.0, 0.5, 0.25, 1.0]
    gates = TrailSettings()
    assert [freshness(now - timedelta(days=days), now=now, gates=gates) for days in (0, 30, 60, -1)] == [
        1,
        0.5,
        0.25,
        1,
    ]
    assert recency(now + timedelta(days=1), now) == 1.0


def test_corrections_of_one_moment_come_in_the_order_in_which_they_correct() -> None:
    """B-44: imported marks may share a time; what corrects a correction is still the newer, also among equal scores."""

    def hit(number: int, parent: int | None = None) -> Hit:
        above = None if parent is None else build(parent).id
        tags = () if parent is None else ("correction",)
        mark = Mark(
            id=build(number).id, text=f"mark {number}", at=START_AT, tags=tags, parent_id=above, position=number
        )
        return Hit(mark=mark, score=1.0, parts={})

    told = corrected([hit(4), hit(1, parent=2), hit(2, parent=3), hit(3)])  # 1 corrects 2, which corrects 3

    assert [(each.position, each.corrected_by) for each in told] == [
        (4, None), (1, None), (2, build(1).id), (3, build(1).id),
    ]  # fmt: skip

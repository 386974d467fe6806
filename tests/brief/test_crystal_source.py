"""Crystals in briefs: single statements for the background; corrections come first."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import msgspec
import pytest
from tests.crystals.working_days import NOTES

import mica
from mica.brief.crystal_source import CrystalSource
from mica.brief.excerpt import passage_of
from mica.brief.layout import GAP
from mica.crystals.relevance import score_recency
from mica.errors import InvalidInput
from mica.model.brief import PRESETS, SECTIONS
from mica.model.event import EventId
from mica.model.hit import Hit
from mica.model.mark import Mark
from mica.model.trail import freshness
from mica.search.mark_search import put_corrections_first
from mica.settings import CrystalSettings, Settings, TrailSettings
from mica.sources.protocol import Concept, Question
from mica.testing import HandClock
from mica.testing.builders import START_AT, build
from mica.tokens import estimate
from mica.words import words


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
            for text in NOTES:
                clock.move(minutes=1)
                memory.mark(f"{text} (day {day})")
    clock.move(days=1)
    await memory.crystals.make_due()


async def test_a_brief_says_nothing_twice(memory: mica.Memory, clock: HandClock) -> None:
    """keeps: TB-08. No statement is paid for twice, for any question: not by a crystal beside its marks either."""
    await observe(memory, clock, days=9)
    with memory.context(session="now"):
        memory.mark("The cookie of the admin page has no expiry yet")
    for query in ("", "cookie redirect", "vault secret deploy", "utils/http.py"):
        for budget in (300, 1_000, 10_000):
            brief = await memory.brief(query, budget_tokens=budget)
            told = [
                " ".join(words(piece))
                for passage in brief.passages
                if passage.section != "files"
                for piece in passage.text.split(GAP)
            ]
            assert len(told) == len(set(told)), (query, budget)


async def test_the_background_comes_last_and_only_where_the_lines_above_leave_room(
    memory: mica.Memory, clock: HandClock
) -> None:
    """keeps: K-12, B-26. A statement of a crystal is shown alone, with the time and the name of its crystal."""
    await observe(memory, clock, days=9)
    roomy = await memory.brief(budget_tokens=10_000)
    [headings] = [[line for line in roomy.text.splitlines() if line.startswith("## ")]]

    small = await memory.brief(budget_tokens=150)

    background = [each for each in roomy.passages if each.section == "background"]
    assert all(each.source == "crystals" for each in background)
    assert headings == sorted(headings, key=[f"## {each.capitalize()}" for each in SECTIONS].index)
    assert len(roomy.passages) > len(small.passages) > 0
    assert all(each.section != "background" for each in small.passages)


async def test_the_background_has_single_statements_without_ended_ones(memory: mica.Memory) -> None:
    """keeps: C-42. A statement of a crystal is left out if the belief that it repeats has ended."""
    with memory.context(session="s1"):
        port = memory.mark("The shop listens on port 8080", tags=("fact",))
        cookie = memory.mark("The cookie lives in the vault of the shop", tags=("fact",))
        memory.mark("Looked at the login page for a long time without any result")
        crystal = await memory.crystals.commit(
            [("The shop listens on port 8080", [port.id]), ("The cookie lives in the vault of the shop", [cookie.id])]
        )

    before = await statements_of_crystals(memory)
    await memory.beliefs.end(port.id, reason="it is 8443 now")
    after = await statements_of_crystals(memory)

    assert before == [("The shop listens on port 8080", (crystal.id, port.id), 0), after[0]]
    assert after == [("The cookie lives in the vault of the shop", (crystal.id, cookie.id), 1)]


async def statements_of_crystals(memory: mica.Memory) -> list[tuple[str, tuple[EventId, ...], int | None]]:
    """What the source of crystals has for a brief without a task: text, sources and number of each statement."""
    await memory.beliefs.refresh()
    source = CrystalSource(memory._store.crystals, memory._store.beliefs)
    found = await source.fragments(Question(task="", now=START_AT + timedelta(days=40)))
    assert {passage_of(each).section for each in found} == {"background"}
    return [(each.text, each.sources, passage_of(each).ordinal) for each in found]


async def test_a_question_gets_evidence_and_not_only_a_summary(memory: mica.Memory, clock: HandClock) -> None:
    """keeps: K-11, K-12. Marks that answer are shown; a crystal unrelated to the question is left out."""
    await observe(memory, clock, days=3)
    brief = await memory.brief("who uses utils/http.py", budget_tokens=600)
    assert any("utils/http.py" in passage.text for passage in brief.passages if passage.section != "background")
    nothing = await memory.brief("quarterly zeppelin insurance", budget_tokens=600)
    assert [passage for passage in nothing.passages if passage.source == "crystals"] == []


async def test_presets_are_named_budgets(memory: mica.Memory) -> None:
    """keeps: B-68. A brief has its budget, and each passage its score and its tokens."""
    memory.mark("one thing")
    [passage] = (await memory.brief()).passages
    assert passage.score > 0
    assert passage.tokens >= estimate(passage.text) > 0
    budgets = {preset: (await memory.brief(preset=preset)).budget_tokens for preset in PRESETS}
    assert budgets == {"quick": 500, "standard": 1_500, "research": 3_000, "coordinator": 5_000}
    for wrong in ({"preset": "huge"}, {"recency_weight": 1.5}, {"recency_weight": -0.1}, {"budget_tokens": -1}):
        with pytest.raises(InvalidInput):
            await memory.brief(**wrong)


async def test_the_weight_of_recency_can_be_set(memory: mica.Memory, clock: HandClock) -> None:
    """keeps: B-52. At full weight the latest crystal comes first, at zero the best match."""
    for number, texts in enumerate((NOTES, [text.replace("cookie", "header") for text in NOTES])):
        with memory.context(session=f"s{number}"):
            for text in texts:
                clock.move(minutes=1)
                memory.mark(text)
        clock.move(days=30)
        await memory.crystals.make(session=f"s{number}")

    async def first(weight: float) -> str:
        question = Question(task="cookie redirect", now=clock(), recency_weight=weight)
        store = memory._store
        source = CrystalSource(store.crystals, store.beliefs)
        return max(map(passage_of, await source.fragments(question)), key=lambda passage: passage.score).kind

    fresh, fitting = await first(1.0), await first(0.0)
    assert "header" in fresh
    assert "header" not in fitting


async def test_a_correction_outranks_the_mark_it_corrects_and_is_labelled(
    memory: mica.Memory, clock: HandClock
) -> None:
    """keeps: B-44. This holds whichever of the two matches the question better."""
    wrong = memory.mark("The login cookie lives for ninety days in the login cookie store")
    clock.move(minutes=1)
    right = memory.mark("It lives for thirty days: login cookie", parent=wrong, tags=("correction",))
    hits = (await memory.search("login cookie store ninety days")).marks
    assert [hit.mark.id for hit in hits][:2] == [right.id, wrong.id]
    assert hits[1].corrected_by == right.id
    brief = await memory.brief("login cookie", budget_tokens=1_000)
    position = (await memory.events.get(right.id)).position
    assert f"corrected by #{position}" in brief.text


async def test_crystals_of_a_level_are_found_by_their_text(memory: mica.Memory, clock: HandClock) -> None:
    """The best match comes first; without a match there is no result."""
    await observe(memory, clock, days=3)
    found = await memory.crystals.list("vault secret", level="session")
    assert found
    assert {crystal.level for crystal in found} == {"session"}
    assert all("vault" in crystal.text or "secret" in str(crystal.statements) for crystal in found)
    assert await memory.crystals.list("quarterly zeppelin") == []
    assert len(await memory.crystals.list("vault secret", limit=1)) == 1


async def test_an_invalid_question_or_budget_is_refused(memory: mica.Memory) -> None:
    """keeps: B-27, B-62. The error is clear, not a traceback from inside."""
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


async def test_the_latest_of_several_corrections_comes_first(memory: mica.Memory, clock: HandClock) -> None:
    """keeps: B-44.

    This covers a correction of a correction and a second correction of one mark, whichever matches best.
    """
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


def test_a_week_old_mark_counts_half() -> None:
    """keeps: K-52. A trail counts half after thirty days. Times in the future count in full."""
    now = datetime(2026, 11, 15, tzinfo=UTC)

    assert [score_recency(now - timedelta(days=days), now) for days in (0, 7, 14, -7)] == [1.0, 0.5, 0.25, 1.0]
    gates = TrailSettings()
    assert [freshness(now - timedelta(days=days), now=now, gates=gates) for days in (0, 30, 60, -1)] == [
        1,
        0.5,
        0.25,
        1,
    ]
    assert score_recency(now + timedelta(days=1), now) == 1.0


def test_simultaneous_corrections_are_ordered_by_what_they_correct() -> None:
    """keeps: B-44.

    Imported marks may share a time; a correction of a correction is still the newer one, even at equal scores.
    """

    def hit(number: int, parent: int | None = None) -> Hit:
        above = None if parent is None else build(parent).id
        tags = () if parent is None else ("correction",)
        mark = Mark(
            id=build(number).id, text=f"mark {number}", at=START_AT, tags=tags, parent_id=above, position=number
        )
        return Hit(mark=mark, score=1.0, parts={})

    hits = put_corrections_first([hit(4), hit(1, parent=2), hit(2, parent=3), hit(3)])  # 1 corrects 2, which corrects 3

    assert [(each.position, each.corrected_by) for each in hits] == [
        (4, None), (1, None), (2, build(1).id), (3, build(1).id),
    ]  # fmt: skip


async def test_a_teaching_that_names_a_concept_is_gathered_until_withdrawn(memory: mica.Memory) -> None:
    """keeps: C-12. Teachings are a source like all others."""
    with memory.context(session="s1", agent="scout"):
        ids = [memory.mark(f"The login-proxy drops cookie {number} of the page").id for number in range(6)]
        crystal = await memory.crystals.commit(
            [("The login-proxy drops cookies", ids[:2])], sources=ids, period="session:s1", confidence=0.9
        )
    teaching = await memory.crystals.promote(crystal.id, by="ann")
    source = memory.sources.all["teachings"]
    now = teaching.at + timedelta(seconds=1)

    [fragment] = await source.fragments(Question(concept=Concept("service", "proxy", "login-proxy"), now=now))

    assert fragment.text == "The login-proxy drops cookies"
    assert (fragment.confidence, fragment.locator) == (0.9, f"#{teaching.position}")
    assert fragment.sources[0] == teaching.id
    assert set(ids[:2]) <= set(fragment.sources)
    assert list(await source.fragments(Question(concept=Concept("service", "proxy", "mailer"), now=now))) == []
    assert (
        list(
            await source.fragments(
                Question(concept=Concept("service", "proxy", "login-proxy"), now=teaching.at - timedelta(days=1))
            )
        )
        == []
    )
    await memory.crystals.withdraw(teaching.id, reason="fixed")
    assert list(await source.fragments(Question(concept=Concept("service", "proxy", "login-proxy"), now=now))) == []

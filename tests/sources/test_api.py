"""`memory.sources`: gather, judge and warm, what each records, and what is gathered in advance."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import msgspec
import pytest
from tests.sources.scripted_sources import ScriptedSource

import mica
from mica import EventQuery, Memory
from mica.errors import InvalidInput
from mica.model.event import JUDGED
from mica.settings import Settings
from mica.sources.judgments import judgment_data
from mica.sources.protocol import Concept, Value
from mica.testing import HandClock

CONCEPT = "judgment:code_review:abc123"


# -- What is told --------------------------------------------------------------------------------------------------


async def test_scattered_state_becomes_one_account_with_its_conflict(memory: Memory) -> None:
    """keeps: C-08, C-13.

    The account has a header, the agreement with the number of sources, and one line per fragment.
    """
    memory.sources.judge(CONCEPT, "GROWL", confidence=0.52, reasons=["tests passed", "no types"])
    memory.sources.add(ScriptedSource("readback", {"fatigue": 0.42, "port": "8081"}))
    memory.sources.add(ScriptedSource("patterns", {"port": 8080}, rank=15))

    answer = await memory.sources.gather(CONCEPT)

    lines = answer.injection.splitlines()
    assert lines[0].startswith(f'<memory from="mica" about="{CONCEPT}" note="')
    assert lines[1] == "agreement 69%, 3 sources"
    assert "- [judgments] verdict: GROWL: tests passed; no types (52%)" in lines
    assert "- [readback] fatigue is 0.42 (62%)" in lines
    assert "- [patterns] port is 8080 (62%)" in lines
    assert (
        "- conflict on port: [readback] says port is 8081 (loses to [patterns]: less trusted, rank 20 against 15)"
        in lines
    )
    assert lines[-1] == "</memory>"


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"budget_tokens": -1}, "-1 tokens"),
        ({"deadline_s": 0.0}, "deadline of 0.0"),
        ({"deadline_s": float("inf")}, "inf"),
    ],
)
async def test_an_impossible_budget_or_deadline_is_refused(home: Settings, wrong: dict[str, float], said: str) -> None:
    async with mica.open(":memory:", settings=home) as memory:
        with pytest.raises(InvalidInput, match=said):
            await memory.sources.gather(CONCEPT, **wrong)  # type: ignore[arg-type]  # the fault itself
        with pytest.raises(InvalidInput, match="domain:type:id"):
            await memory.sources.gather("abc123")


# -- What it costs -------------------------------------------------------------------------------------------------


# -- Judgments -----------------------------------------------------------------------------------------------------


# -- Ahead of time -------------------------------------------------------------------------------------------------


async def gathered(memory: Memory, count: int) -> list[str]:
    """The concepts of the first gathers that are recorded."""
    found: list[str] = []
    async with asyncio.timeout(20):
        async for event in memory.events.follow(EventQuery(names=("sources.gathered",)), after=0):
            found.append(str(event.data["concept"]))
            if len(found) == count:
                break
    return found


async def test_warming_gathers_the_last_five_judgments_and_the_concepts_of_briefs(
    home: Settings, clock: HandClock
) -> None:
    """keeps: C-14"""
    home = msgspec.structs.replace(home, brief=msgspec.structs.replace(home.brief, concepts=("state:self:now",)))
    async with mica.open(":memory:", settings=home, clock=clock) as memory:
        app = ScriptedSource("app", {"port": 1})
        memory.sources.add(app)
        for number in (1, 2, 3, 4, 5, 6, 6, 6):
            clock.move(seconds=1)
            memory.emit(JUDGED, judgment_data(Concept("judgment", "x", str(number)), "OK", confidence=1, reasons=()))

        done = await memory.sources.warm()

        assert [each.concept for each in done] == [
            "judgment:x:6", "judgment:x:5", "judgment:x:4", "judgment:x:3", "judgment:x:2", "state:self:now",
        ]  # fmt: skip
        app.requests.clear()
        assert "app" in (await memory.sources.gather("judgment:x:2")).cached


async def test_a_judgment_is_gathered_as_soon_as_it_is_made(memory: Memory) -> None:
    """keeps: C-15"""
    memory.sources.judge(CONCEPT, "GROWL", confidence=0.5)

    assert await gathered(memory, 1) == [CONCEPT]


@pytest.mark.parametrize("name", ["session.started", "session.ended"])
async def test_the_start_and_the_end_of_a_session_gather_its_judgments(home: Settings, name: str) -> None:
    """keeps: C-14, C-15"""
    async with mica.open(":memory:", settings=home) as memory:
        memory.emit(JUDGED, judgment_data(Concept.parse(CONCEPT), "OK", confidence=1, reasons=()))
        assert await gathered(memory, 1) == [CONCEPT]

        memory.emit(name)

        assert await gathered(memory, 2) == [CONCEPT, CONCEPT]


async def test_the_most_used_concepts_are_gathered_every_89_minutes(memory: Memory, clock: HandClock) -> None:
    """keeps: C-16, K-56. The common scheduler runs it; a concept that was asked about less often is not gathered."""
    app = ScriptedSource("app", {"port": 1}, ttl_s=60)
    memory.sources.add(app)
    assert [(ran.kind, ran.done) for ran in await memory.upkeep.tick(["warm"])] == [("warm", 0)]
    most_used = [f"a:b:{number}" for number in range(2, 7)]
    for concept in ("a:b:1", *most_used, *most_used):
        await memory.sources.gather(concept)
    app.requests.clear()

    clock.move(minutes=88)
    assert await memory.upkeep.tick(["warm"]) == []
    clock.move(minutes=1)
    (ran,) = await memory.upkeep.tick(["warm"])

    assert (ran.kind, ran.done, ran.error) == ("warm", 5, None)
    assert sorted(app.requests) == most_used
    assert ran.next_at == clock() + timedelta(minutes=89)
    assert "app" in (await memory.sources.gather("a:b:2")).cached


@pytest.mark.parametrize(
    ("concept", "facts"),
    [
        ("state:self:now", {"level": "L1", "budget": 0.32}),
        (CONCEPT, {"verdict": "GROWL"}),
        ("learning:router:accuracy", {"accuracy": 0.73}),
        ("code:file:src/auth.py", {"last review": "WAG"}),
        ("psychology:user:ann", {"prefers": "short answers"}),
    ],
)
async def test_questions_about_oneself_code_and_people_are_ordinary_concepts(
    home: Settings, concept: str, facts: dict[str, Value]
) -> None:
    """keeps: C-21. These are the worked examples of docs/gather.md."""
    async with mica.open(":memory:", settings=home) as memory:
        memory.sources.add(ScriptedSource("app", facts, concepts=(f"{concept.partition(':')[0]}:*",)))

        answer = await memory.sources.gather(concept)

    assert {each.key: each.value for each in answer.fragments} == facts

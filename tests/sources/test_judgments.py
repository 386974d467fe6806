"""Judgments: decisions about a concept, as events and as a source."""

from __future__ import annotations

import pytest

from mica import EventQuery, Memory
from mica.errors import InvalidInput
from mica.model.event import JUDGED
from mica.sources.judgments import judgment_data
from mica.sources.protocol import (
    Concept,
)
from mica.testing import HandClock

CONCEPT = "judgment:code_review:abc123"


async def test_a_judgment_is_an_event_and_the_latest_one_holds(memory: Memory, clock: HandClock) -> None:
    """keeps: C-12, K-30. Any verdict is allowed; the earlier judgment stays visible."""
    with memory.context(session="s1", agent="scout"):
        memory.sources.judge(CONCEPT, "GROWL", confidence=0.9, reasons="no tests")
        clock.move(minutes=1)
        memory.sources.judge(CONCEPT, "WAG", confidence=0.5, reasons=["tests were added"])
        memory.sources.judge("judgment:code_review:other", "looks fine to me", confidence=1)

    answer = await memory.sources.gather(CONCEPT)
    known = await memory.sources.judgments(CONCEPT)

    assert [each.text for each in answer.fragments] == ["WAG: tests were added"]
    assert [(each.text, each.reason) for each in answer.conflicts] == [("GROWL: no tests", "expired")]
    assert [(each.verdict, each.confidence, each.agent, each.session) for each in known] == [
        ("GROWL", 0.9, "scout", "s1"),
        ("WAG", 0.5, "scout", "s1"),
    ]
    assert {each.verdict for each in await memory.sources.judgments()} == {"GROWL", "WAG", "looks fine to me"}


async def test_a_retracted_judgment_is_no_longer_stated(memory: Memory, clock: HandClock) -> None:
    """keeps: C-15. Its cached replies are outdated, and the judgment before it holds again."""
    memory.sources.judge(CONCEPT, "HOWL", confidence=0.9)
    clock.move(minutes=1)
    wrong = memory.sources.judge(CONCEPT, "GROWL", confidence=0.9, reasons=["looked at the wrong branch"])
    memory.sources.judge("judgment:code_review:other", "WAG", confidence=0.9)
    assert "GROWL" in (await memory.sources.gather(CONCEPT)).injection

    await memory.retract(wrong.id, reason="it was the wrong branch")
    again, brief = await memory.sources.gather(CONCEPT), await memory.brief(concept=CONCEPT)

    assert "GROWL" not in again.injection + brief.text
    assert "HOWL" in again.injection
    assert [each.verdict for each in await memory.sources.judgments(CONCEPT)] == ["HOWL"]
    assert [each.verdict for each in await memory.sources.judgments(limit=2)] == ["HOWL", "WAG"]
    assert (await memory.events.get(wrong.id)).data["verdict"] == "GROWL"  # the log keeps what was said
    with pytest.raises(InvalidInput, match="retracted already"):
        await memory.retract(wrong.id, reason="again")


async def test_why_marks_a_retracted_judgment(memory: Memory) -> None:
    """keeps: C-15"""
    mark, wrong = memory.mark("The port is 8080"), memory.sources.judge(CONCEPT, "GROWL", confidence=0.9)
    stands = memory.sources.judge(CONCEPT, "WAG", confidence=0.9)
    for each in (mark, wrong):
        await memory.retract(each.id, reason="it was the wrong branch")

    told = [(await memory.why(each.id))[0].retracted for each in (mark, wrong, stands)]

    assert told == ["it was the wrong branch", "it was the wrong branch", None]


async def test_a_judgment_is_found_among_many_later_ones(memory: Memory) -> None:
    memory.sources.judge(CONCEPT, "GROWL", confidence=0.9)
    for number in range(1_100):
        memory.sources.judge(f"judgment:code_review:z{number}", "WAG", confidence=0.5)

    assert [each.verdict for each in await memory.sources.judgments(CONCEPT)] == ["GROWL"]


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"verdict": " "}, "verdict"),
        ({"confidence": 1.5}, "confidence of 1.5"),
        ({"confidence": True}, "confidence of True"),
        ({"reasons": ["x"] * 21}, "at most 20"),
    ],
)
def test_an_invalid_judgment_is_refused(wrong: dict[str, object], said: str) -> None:
    whole: dict[str, object] = {"verdict": "WAG", "confidence": 0.5, "reasons": ()}

    with pytest.raises(InvalidInput, match=said):
        judgment_data(Concept.parse(CONCEPT), **(whole | wrong))  # type: ignore[arg-type]  # the fault itself


async def test_only_a_concept_can_be_judged(memory: Memory) -> None:
    for wrong in (5, None, "domain", ["a:b:c"]):
        with pytest.raises(InvalidInput, match="is not a concept; name it domain:type:id"):
            memory.sources.judge(wrong, "GROWL", confidence=0.5)  # type: ignore[arg-type]  # the fault itself
    assert await memory.sources.judgments() == []


async def test_a_foreign_event_named_as_a_retraction_retracts_nothing(memory: Memory) -> None:
    memory.sources.judge(CONCEPT, "GROWL", confidence=0.5)
    strange: object
    for strange in ([], {}, None, 5):
        memory.emit("judgment.retracted", {"judgment": strange, "concept": CONCEPT})

    [standing] = await memory.sources.judgments()
    answer = await memory.sources.gather(CONCEPT)

    assert standing.verdict == "GROWL"
    assert "GROWL" in answer.injection
    assert "judgments" not in answer.missing


async def test_a_judgment_is_redacted(memory: Memory) -> None:
    secret = "ghp_" + "a1B2" * 9

    memory.sources.judge(CONCEPT, "GROWL", confidence=0.5, reasons=[f"the key {secret} was in it"])

    (event,) = await memory.events.query(EventQuery(names=(JUDGED,)))
    assert secret not in str(event.data)


async def test_the_first_judgment_is_gathered_at_once(memory: Memory) -> None:
    """keeps: C-15. This holds in a space that was queried before it had any judgment."""
    assert (await memory.sources.gather(CONCEPT)).fragments == ()

    memory.sources.judge(CONCEPT, "accept", confidence=0.9)

    assert [each.text for each in (await memory.sources.gather(CONCEPT)).fragments] == ["accept"]

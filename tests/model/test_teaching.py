"""Which crystals are good enough to become teachings."""

from __future__ import annotations

import pytest

from mica.model.crystal import LEVELS, Crystal, Level, Statement
from mica.model.event import EMPTY, EventId
from mica.model.teaching import SHARE_MIN, score, score_max, select_candidates
from mica.testing import HandClock


def crystal(
    level: Level = "session", *, marks: int = 20, confidence: float = 0.9, principles: int = 2, topics: int = 3
) -> Crystal:
    clock = HandClock()
    statement = ("It is so", (EventId("m"),))
    return Crystal(
        id=EventId("c"),
        made_at=clock(),
        context=EMPTY,
        level=level,
        period=f"{level}:x",
        insight=(Statement(*statement),),
        principles=tuple(Statement(f"Rule {number}", (EventId("m"),)) for number in range(principles)),
        topics=tuple(f"t{number}" for number in range(topics)),
        sources=(EventId("m"),),
        start_at=clock(),
        end_at=clock(),
        tokens=1,
        source_tokens=2,
        method="test",
        marks=marks,
        confidence=confidence,
    )


@pytest.mark.parametrize("level", LEVELS)
def test_every_level_can_pass_the_gate_and_none_passes_without_rules(level: Level) -> None:
    """keeps: K-14, TB-14, B-55"""
    best = crystal(level, confidence=1.0)

    assert score(best) == score_max(level)
    assert [candidate.share for candidate in select_candidates([best])] == [1.0]
    assert select_candidates([crystal(level, confidence=0.86)])
    assert not select_candidates([crystal(level, confidence=0.84)])
    assert not select_candidates([crystal(level, marks=4)])


def test_the_score_follows_the_formula_of_the_design() -> None:
    """keeps: B-55"""
    assert score(crystal("session", confidence=0.5, marks=10, principles=1, topics=2)) == pytest.approx(0.25)
    assert score(crystal("session", confidence=1.0)) == pytest.approx(0.65)
    assert score(crystal("day", confidence=1.0)) == pytest.approx(0.75)
    assert score(crystal("week", confidence=1.0)) == pytest.approx(0.95)
    assert score(crystal("epoch", confidence=1.0)) == pytest.approx(1.15)
    assert not select_candidates([crystal("session", principles=1)])
    assert SHARE_MIN == 0.85

"""Recency and relevance of crystals, and the choice within a budget."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from mica.crystals.relevance import (
    PHRASE_BONUS,
    rank_by_relevance,
    score_recency,
    score_relevance,
    select_within,
)
from mica.model.crystal import Crystal, Level, Statement
from mica.model.event import EMPTY, EventId
from mica.words import terms

NOW = datetime(2026, 11, 18, tzinfo=UTC)


def crystal(number: int, text: str, *, level: Level = "session", days_ago: float = 0.0, tokens: int = 10) -> Crystal:
    at = NOW - timedelta(days=days_ago)
    return Crystal(
        id=EventId(f"c{number}"),
        level=level,
        period=f"{level}:{number}",
        insight=(Statement(text, (EventId("m"),)),),
        sources=(EventId("m"),),
        start_at=at,
        end_at=at,
        tokens=tokens,
        source_tokens=10 * tokens,
        method="extractive-1",
        made_at=at,
        context=EMPTY,
        position=number,
    )


def test_recency_halves_every_seven_days() -> None:
    """keeps: B-50"""
    assert score_recency(NOW, NOW) == 1.0
    assert score_recency(NOW - timedelta(days=7), NOW) == pytest.approx(0.5)
    assert score_recency(NOW - timedelta(days=21), NOW) == pytest.approx(0.125)
    assert score_recency(NOW + timedelta(days=1), NOW) == 1.0


def test_relevance_is_the_share_of_terms_with_a_bonus_for_the_phrase() -> None:
    """keeps: B-51"""
    about = crystal(1, "The session cookie is lost behind the proxy")

    def relevance(query: str) -> float:
        return score_relevance(about, frozenset(terms(query)), query)

    assert relevance("cookie database") == pytest.approx(0.5)
    assert relevance("cookie proxy") == 1.0
    assert relevance("session cookie database index") == pytest.approx(0.5)
    assert relevance("proxy kubernetes database") == pytest.approx(1 / 3)
    assert relevance("kubernetes") == 0.0
    assert relevance("") == 0.0


def test_a_phrase_that_occurs_word_for_word_raises_relevance_but_never_above_one() -> None:
    """keeps: B-51"""
    about = crystal(1, "It is the session cookie that is lost")
    query = "session cookie"
    assert score_relevance(about, frozenset([*terms(query), "database"]), query) == pytest.approx(2 / 3 + PHRASE_BONUS)
    assert score_relevance(about, frozenset(terms(query)), query) == 1.0


def test_ranking_puts_the_most_relevant_first_and_of_equals_the_latest() -> None:
    old, new = crystal(1, "The cookie is lost", days_ago=9), crystal(2, "A cookie was lost")
    both, other = crystal(3, "The cookie of the proxy", days_ago=30), crystal(4, "An index was added")

    assert [each.id for each in rank_by_relevance([old, new, both, other], "cookie proxy")] == ["c3", "c2", "c1"]


def test_levels_come_before_scores_in_a_selection() -> None:
    """keeps: B-26"""
    week, session = crystal(1, "A week", level="week", days_ago=30), crystal(2, "Today")

    chosen = select_within([session, week], {}, budget_tokens=100, recency_weight=0.7, now=NOW)

    assert [each.id for each in chosen] == ["c1", "c2"]


@pytest.mark.parametrize(("recency_weight", "order"), [(0.0, ["c1", "c2"]), (0.3, ["c1", "c2"]), (0.7, ["c2", "c1"])])
def test_a_score_is_the_weighted_sum_of_recency_and_relevance(recency_weight: float, order: list[str]) -> None:
    """keeps: K-11. A crystal without a word of the query is left out, however recent it is."""
    whole, part = crystal(1, "The cookie of the proxy", days_ago=14), crystal(2, "The cookie", days_ago=0)
    unrelated = crystal(3, "An index was added")

    chosen = select_within(
        [part, unrelated, whole], {}, budget_tokens=100, recency_weight=recency_weight, query="cookie proxy", now=NOW
    )

    # Their relevance is 1 and 0.5, their recency 0.25 and 1: the sums are equal at a weight of 0.4.
    assert [each.id for each in chosen] == order


def test_a_crystal_too_long_for_the_rest_of_the_budget_leaves_room_for_a_shorter_one() -> None:
    """keeps: B-52"""
    first, long, short = crystal(1, "First"), crystal(2, "Long", days_ago=1, tokens=90), crystal(3, "Short", days_ago=2)

    chosen = select_within([first, long, short], {}, budget_tokens=25, recency_weight=1.0, now=NOW)

    assert [each.id for each in chosen] == ["c1", "c3"]


def test_a_covered_crystal_is_chosen_only_when_budget_remains() -> None:
    day, covered, other = crystal(1, "Day", level="day"), crystal(2, "Covered"), crystal(3, "Other", days_ago=20)
    above = {2: frozenset([1])}

    tight = select_within([day, covered, other], above, budget_tokens=20, recency_weight=1.0, now=NOW)
    roomy = select_within([day, covered, other], above, budget_tokens=30, recency_weight=1.0, now=NOW)

    assert [each.id for each in tight] == ["c1", "c3"]
    assert [each.id for each in roomy] == ["c1", "c2", "c3"]

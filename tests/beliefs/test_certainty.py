"""Certainty and state of beliefs follow from the evidence."""

from __future__ import annotations

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.beliefs.marks import learned, mark

from mica.beliefs.certainty import as_of, first_state, mature, observed_certainty, relevance, supported
from mica.model.belief import STATES


@pytest.mark.parametrize(
    ("values", "sources", "expected"),
    [
        ([0.9], 1, 0.077),
        ([0.9] * 8, 1, 0.6164),
        ([0.9] * 9, 1, 0.6934),
        ([0.9] * 13, 1, 1.0),
        ([0.9] * 5, 6, 0.6233),
        ([0.9] + [0.9, 0.2] * 15, 1, 0.3059),
        ([0.618] * 25 + [1.0, 0.0] * 50, 1, 0.2147),
    ],
)
def test_certainty_of_repeated_observations_is_concordance_times_volume(
    values: list[float], sources: int, expected: float
) -> None:
    """keeps: C-41."""
    assert observed_certainty(values, sources=sources) == pytest.approx(expected, abs=5e-5)


def test_every_state_is_reached_and_the_gate_holds() -> None:
    """keeps: TC-14, C-42, K-25. A certain belief of one source stays forming, and a refuted one dissolves."""
    refuted = [0.618] * 25 + [1.0, 0.0] * 50

    assert mature([0.9] * 30, sources=1) == "forming"
    assert mature([0.9] * 7, sources=6) == "forming"
    assert mature([0.9] * 8, sources=2) == "held"
    assert mature([0.9] * 232, sources=3) == "held"
    assert mature([0.9] * 233, sources=3) == "settled"
    assert mature(refuted, sources=3) == "forming"
    assert mature(refuted, sources=3, idle=timedelta(days=90)) == "ended"


@given(st.lists(st.floats(0, 1), max_size=60), st.integers(1, 9))
def test_certainty_is_between_0_and_1(values: list[float], sources: int) -> None:
    assert 0 <= observed_certainty(values, sources=sources) <= 1
    assert mature(values, sources=sources) in STATES


def test_a_users_word_is_held_at_once_and_an_agents_needs_a_second_source() -> None:
    """keeps: K-60."""
    assert first_state("user", "prompt", "rule") == "held"
    assert first_state("agent", "closing", "fact") == "forming"
    assert first_state("agent", "closing", "task") == "held"
    assert first_state("agent", "commit", "fact") == "held"
    assert first_state("agent", "judgment", "fact") == "forming"
    [belief] = learned([mark(1, "Login sessions last 14 days on the apex domain.", "closing")])
    assert belief.state == "forming"

    assert supported(belief, by="agent", place="closing", is_independent=False)[1] == "forming"
    certainty, state = supported(belief, by="agent", place="closing", is_independent=True)

    assert state == "held"
    assert certainty > belief.certainty


def test_relevance_fades_by_kind_and_a_forming_belief_expires() -> None:
    """keeps: C-44."""
    task, fact = (
        learned([mark(1, text, "closing")])[0]
        for text in ("Still open: tests on iPad", "Login sessions last 14 days on the apex domain.")
    )
    later = task.at + timedelta(days=30)

    assert relevance(task, now=later) == pytest.approx(task.certainty / 2)
    assert relevance(fact, now=later) > fact.certainty / 2
    assert as_of(fact, fact.at + timedelta(days=91)).ending == "expired"
    assert as_of(task, task.at + timedelta(days=91)) == task

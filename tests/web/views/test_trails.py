"""The figures of the page Trails."""

from __future__ import annotations

from datetime import timedelta

import pytest
from tests.web.views.conftest import NOW

import mica
from mica.model.event import event_id, writer_named
from mica.model.trail import Figures, Measurement, Trail
from mica.model.walk import Step
from mica.settings import TrailSettings
from mica.web.views import trails

GATES = TrailSettings()


def trail(**fields: object) -> Trail:
    step = Step(path="a.py", operation="read", at=NOW, event=event_id(writer_named("t"), 1))
    whole: dict[str, object] = {
        "key": "k",
        "exact": "e",
        "slug": "fix-login",
        "shape": "fix-login",
        "description": "",
        "steps": (step,),
        "first_at": NOW - timedelta(days=20),
        "last_at": NOW - timedelta(days=1),
        "state": "crystallized",
        "version": 1,
    }
    return Trail(**(whole | fields))  # type: ignore[arg-type]  # built from a mapping


async def test_hot_paths_have_readiness_preferences_and_evolution(memory: mica.Memory) -> None:
    """keeps: A-21"""
    found = await trails.patterns(memory, gates=GATES, now=NOW)
    weeks = await trails.evolution(memory, now=NOW)

    assert 0 < len(found.hot) <= 10
    assert found.hot[0].trail.score == max(each.trail.score for each in found.hot)
    assert all(0 <= each.readiness.score <= 1 for each in found.hot)
    agents = dict(zip(found.preferences.agents, found.preferences.rows[0][1], strict=True))
    assert agents == {name: figures.runs for name, figures in found.preferences.rows[0][0].agents.items()} | {
        name: 0 for name in agents if name not in found.preferences.rows[0][0].agents
    }
    assert [week.known for week in weeks] == sorted(week.known for week in weeks)
    assert weeks[-1].known == found.trails


def test_readiness_is_that_of_the_weakest_condition() -> None:
    young = trail(runs=1, sessions=1, successes=1, version=0, state="observed")
    ready = trail(runs=9, sessions=9, successes=9, version=0, state="hot")

    assert trails.readiness(young, GATES).weakest.name == "walks"
    assert trails.readiness(young, GATES).score == pytest.approx(1 / GATES.runs)
    assert not trails.readiness(young, GATES).is_ready
    assert trails.readiness(ready, GATES).score == 1
    assert trails.readiness(ready, GATES).is_ready


@pytest.mark.parametrize(
    ("fields", "kinds"),
    [
        ({"successes": 3, "failures": 1}, ["failing"]),
        ({"successes": 4, "failures": 1}, []),
        ({"measured": Measurement(method="replay", sample=9, baseline_tokens=1_000, tokens=600)}, ["saves little"]),
        ({"measured": Measurement(method="replay", sample=9, baseline_tokens=1_000, tokens=400)}, []),
        ({"last_at": NOW - timedelta(days=25)}, ["cooling"]),
        ({"last_at": NOW - timedelta(days=10)}, []),
        ({"last_at": NOW - timedelta(days=40), "state": "cooling"}, []),  # it has cooled, and is not archived soon
        ({"last_at": NOW - timedelta(days=55), "state": "cooling"}, ["cooling"]),
        ({"version": 1, "state": "hot"}, []),
        ({"version": 0, "state": "hot", "runs": 3, "sessions": 2}, ["new"]),
        ({"successes": 1, "failures": 9, "state": "archived"}, []),
    ],
)
def test_warnings_name_failing_wasteful_cooling_and_new_trails(fields: dict[str, object], kinds: list[str]) -> None:
    """keeps: A-36"""
    assert [each.kind for each in trails.warnings([trail(**fields)], now=NOW, gates=GATES)] == kinds


def test_the_preference_matrix_counts_walks_by_agent() -> None:
    """keeps: A-29"""
    matrix = trails.preference_matrix([trail(agents={"codex": Figures(runs=2), "gemini": Figures(runs=5)})])

    assert matrix.agents == ("gemini", "codex")
    assert matrix.rows[0][1] == (5, 2)
    assert matrix.most == 5

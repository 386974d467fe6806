"""The continuity benchmark: its scores follow its rules, and its questions reach mica through the real hook."""

from __future__ import annotations

import asyncio
import importlib
from pathlib import Path
from types import ModuleType

import pytest

BENCH = Path(__file__).parent.parent / "bench"
SCENARIOS = Path(__file__).parent / "fixtures" / "continuity"


@pytest.fixture
def continuity(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(BENCH))
    return importlib.import_module("continuity")


@pytest.fixture
def scoring(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(BENCH))
    return importlib.import_module("_continuity")


def check_of(scoring: ModuleType, **fields: object) -> object:
    return scoring.Check(id="c", after="s", ask="start", budgets=[600], **fields)


def test_must_is_weighted_and_matched_without_case_or_line_breaks(scoring: ModuleType) -> None:
    gold = [scoring.Gold("a", [["unique index"]], weight=3), scoring.Gold("b", [["ON CONFLICT"]], weight=1)]

    result = scoring.score(
        check_of(scoring, must=gold), "<memory from>\n# Heading unique index\n- a Unique\n  INDEX now\n"
    )

    assert (result.must, result.says) == (0.75, {"a"})


def test_an_outdated_statement_counts_unless_its_correction_is_shown(scoring: ModuleType) -> None:
    check = check_of(scoring, stale=[scoring.Gold("lock", [["takes a lock"]], unless=[["no locks"]])])

    assert scoring.score(check, "- it takes a lock").truth == 0.0
    assert scoring.score(check, "- it takes a lock\n- no locks any more").truth == 1.0


def test_noise_is_measured_only_where_a_check_names_some(scoring: ModuleType) -> None:
    named = check_of(scoring, noise=[scoring.Gold("log", [["ERROR worker"]])])

    assert scoring.score(named, "- ERROR worker-12").noise == 1.0
    assert scoring.score(check_of(scoring), "- ERROR worker-12").noise is None


def test_every_question_of_a_scenario_is_answered_from_the_replayed_sessions(
    continuity: ModuleType, tmp_path: Path
) -> None:
    for scenario in continuity.load(SCENARIOS):
        (folder := tmp_path / scenario.name).mkdir()

        answers = asyncio.run(continuity.play(scenario, continuity.BUDGETS, folder))

        questions = {(each.check.id, each.budget) for each in answers}
        assert questions == {(check.id, budget) for check in scenario.checks for budget in check.budgets}
        briefs = [each for each in answers if each.check.ask in {"start", "task"}]
        assert all(each.score.says for each in briefs), [(each.check.id, each.score) for each in briefs]

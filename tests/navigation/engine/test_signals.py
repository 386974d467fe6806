"""Signals and calibrated probabilities."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from mica.navigation.engine.signals import (
    BACK,
    CAP,
    FEATURES,
    SIGNALS,
    PromptQuestion,
    Weights,
    collect_candidates,
    compute_signals,
    make_monotone,
    score_session,
    weigh,
)
from mica.navigation.engine.task_history import Task, TaskHistory
from mica.navigation.engine.tree import FileTree, IndexedFile
from mica.navigation.regression import Tenths


@given(st.lists(st.tuples(st.floats(0, 1), st.booleans()), max_size=60), st.floats(0, 1))
def test_a_corrected_probability_is_between_0_and_the_cap(outcomes: list[tuple[float, bool]], predicted: float) -> None:
    assert 0 <= corrected(Tenths().with_outcomes(outcomes), predicted) <= CAP
    assert make_monotone([0.5, 0.6, 0.2]) == [0.5, 0.5, 0.2]


def corrected(tenths: Tenths, predicted: float) -> float:
    return Weights(start=0.0, slopes=(), corrections=tenths.corrections).correct(predicted)


def test_files_of_the_latest_prompt_count_most() -> None:
    scores = score_session([("a.py",), ("b.py",), ("a.py", "c.py")])

    assert scores["c.py"] == 1.0
    assert scores["a.py"] == 1.0 + BACK**2
    assert scores["b.py"] == BACK


def test_signals_are_weighed_by_shares_of_their_best_score() -> None:
    assert weigh({"content": {"a.py": 8.0, "b.py": 4.0}, "walk": {}}, {"content": 0.5, "walk": 1.0, "recent": 1.0}) == {
        "a.py": 0.5,
        "b.py": 0.25,
    }


def test_only_files_of_the_tree_have_scores() -> None:
    tree, past = FileTree(), TaskHistory()
    tree.put("auth/session.py", IndexedFile(terms={"cooki": 2}, symbols=("renew",), size_bytes=10))
    past.learn(Task(text="the cookie is lost", files=("auth/session.py", "gone.py")))

    found = compute_signals(tree, past, PromptQuestion(text="renew the cookie", session=(("gone.py",),)))

    assert set(found.scores) == set(SIGNALS)
    assert {path for scores in found.scores.values() for path in scores} == {"auth/session.py"}
    assert found.mentions.symbols == {}, "a plain word is not a symbol"
    assert (found.task_count, found.word_count) == (1, 2)


def test_every_candidate_has_one_number_for_each_feature() -> None:
    tree = FileTree()
    for path in ("a.py", "b.py"):
        tree.put(path, IndexedFile(terms={"cooki": 1}, size_bytes=10))

    found = collect_candidates(compute_signals(tree, TaskHistory(), PromptQuestion(text="cookie")), tree)

    assert found.paths == ("a.py", "b.py")
    assert {len(row) for row in found.rows} == {len(FEATURES)}
    assert found.rows[0] == found.rows[1], "files with equal scores share their rank"


@given(st.lists(st.floats(0, 1), max_size=20))
def test_a_ranking_never_rises(probabilities: list[float]) -> None:
    lowered = make_monotone(probabilities)

    assert lowered == sorted(lowered, reverse=True)
    assert all(one <= other for one, other in zip(lowered, probabilities, strict=True))

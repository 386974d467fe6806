"""The history of tasks and commits."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.navigation.file_trees import PATHS, save, tree_of

from mica.navigation.engine.inverted_index import count_terms
from mica.navigation.engine.signals import PromptQuestion
from mica.navigation.engine.task_history import PAIRED_FILES_MAX, SHORT, CommitFiles, Task, TaskHistory
from mica.navigation.predictor import Predictor
from mica.words import terms


def test_a_renamed_file_keeps_its_history() -> None:
    """After a rename in git, the history of a file belongs to its new path, and the old path is never offered."""
    past = TaskHistory()
    past.learn(Task(text="login cookie lost", files=("auth/cookies.py", "auth/redirect.py")))
    past.learn_commit(CommitFiles(subject="Move", files=(PATHS[0],), renamed=(("auth/cookies.py", PATHS[0]),)))

    places = Predictor(tree_of([{}] * 5), past).rank(PromptQuestion(text="login cookie lost"))

    found = {place.path: place for place in places}
    assert "auth/cookies.py" not in found
    assert any(reason.startswith("similar task") for reason in found[PATHS[0]].reasons)


def save_and_load(past: TaskHistory) -> TaskHistory:
    return TaskHistory(save(past.entries()))


words = st.lists(st.sampled_from("cookie login invoice total".split()), min_size=1, max_size=3).map(" ".join)
files = st.lists(st.sampled_from(PATHS), max_size=4, unique=True).map(tuple)


@given(st.lists(st.tuples(words, files), max_size=8), st.lists(st.tuples(words, files), max_size=4), words)
def test_a_saved_history_answers_as_the_one_it_was_saved_from(
    tasks: list[tuple[str, tuple[str, ...]]], commits: list[tuple[str, tuple[str, ...]]], question: str
) -> None:
    past = TaskHistory()
    for text, paths in tasks:
        past.learn(Task(text=text, files=paths))
    for text, paths in commits:
        past.learn_commit(CommitFiles(subject=text, files=paths))
    query = count_terms(terms(question))

    again = save_and_load(past)

    assert (again.task_count, again.commit_count) == (past.task_count, past.commit_count)
    assert again.tasks.vote(query) == past.tasks.vote(query)
    assert again.commits.vote(query) == past.commits.vote(query)
    assert again.recent("short") == past.recent("short")
    assert again.recently_changed("long") == past.recently_changed("long")
    assert again.last_commits() == past.last_commits()
    assert again.walk({PATHS[0]: 1.0}) == past.walk({PATHS[0]: 1.0})


def test_the_most_similar_texts_vote_for_their_files() -> None:
    past = TaskHistory()
    past.learn(Task(text="the login cookie is lost", files=(PATHS[0],)))
    past.learn(Task(text="invoices show a wrong total", files=(PATHS[2],)))

    votes = past.tasks.vote(count_terms(terms("login cookie")))

    assert set(votes.scores) == {PATHS[0]}
    assert votes.best == {PATHS[0]: "the login cookie is lost"}
    assert 0 < votes.nearest < 1
    assert past.tasks.vote({}).nearest == 0


def test_a_task_without_files_is_ignored() -> None:
    past = TaskHistory()
    past.learn(Task(text="thanks", files=()))
    past.learn_commit(CommitFiles(subject="empty", files=()))

    assert (past.task_count, past.commit_count) == (0, 0)


def test_recent_counts_halve_with_their_half_life() -> None:
    past = TaskHistory()
    past.learn(Task(text="a", files=(PATHS[0],)))
    for _ in range(int(SHORT)):
        past.learn(Task(text="b", files=(PATHS[1],)))

    assert past.recent("short")[PATHS[0]] == pytest.approx(0.5)
    assert past.recent("long")[PATHS[0]] > 0.8


def test_files_used_together_are_companions_unless_there_are_too_many() -> None:
    past = TaskHistory()
    past.learn(Task(text="a", files=(PATHS[0], PATHS[1])))
    past.learn(Task(text="a", files=(PATHS[0], PATHS[1], PATHS[2])))
    past.learn(Task(text="sweep", files=tuple(f"{number}.py" for number in range(PAIRED_FILES_MAX + 1))))

    assert past.companion(PATHS[0], PATHS) == PATHS[1]
    assert past.companion(PATHS[0], [PATHS[0]]) is None
    assert past.companion("1.py", ["2.py"]) is None

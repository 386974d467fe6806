"""Properties of the predictor: the same state gives the same answer, and only files of the tree are offered."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st
from tests.navigation.file_trees import counts, some_paths, some_words, tree_of

from mica.navigation.engine.signals import CAP, PromptQuestion
from mica.navigation.engine.task_history import Task
from mica.navigation.predictor import Predictor

tasks = st.lists(st.builds(Task, text=some_words, files=some_paths), max_size=8)


def navigator_of(contents: Sequence[dict[str, int]], past: Sequence[Task]) -> Predictor:
    navigator = Predictor(tree_of(contents))
    for task in past:
        navigator.learn(task, navigator.predict(PromptQuestion(text=task.text)))
    return navigator


@given(st.lists(counts, max_size=5), tasks, some_words, st.lists(some_paths, max_size=3).map(tuple))
def test_the_same_question_gets_the_same_answer_from_files_of_the_tree(
    contents: list[dict[str, int]], past: list[Task], text: str, session: tuple[tuple[str, ...], ...]
) -> None:
    """Only existing files are offered, and no probability is above 0.9."""
    question = PromptQuestion(text=text, session=session)
    one = navigator_of(contents, past)
    places = one.rank(question, limit=50)

    assert places == navigator_of(contents, past).rank(question, limit=50)
    assert {place.path for place in places} <= set(one.tree)
    assert all(0 <= place.probability <= CAP and place.reasons for place in places)
    assert [place.probability for place in places] == sorted((place.probability for place in places), reverse=True)


def test_learning_corrects_wrong_predictions() -> None:
    """The weights start with the prior and move with the tasks of a space."""
    navigator = Predictor(tree_of([{"login": 3}, {"redirect": 3}, {"total": 3}, {}, {}]))
    before = dict(navigator.predict(PromptQuestion(text="login redirect")).ranked)["auth/redirect.py"]
    for _ in range(12):
        prediction = navigator.predict(PromptQuestion(text="login redirect"))
        navigator.learned = navigator.train(prediction, ("auth/redirect.py",))
    after = dict(navigator.predict(PromptQuestion(text="login redirect")).ranked)

    assert after["auth/redirect.py"] > max(0.5, before)
    assert after["auth/session.py"] < 0.5
    assert navigator.learned.model.tasks == 12
    assert sum(navigator.learned.tenths.counts) > 0

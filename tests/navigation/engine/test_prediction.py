"""A prediction is offered only if it is likely to save more than it costs."""

from __future__ import annotations

import pytest

from mica.navigation.engine.prediction import REASONS_MAX, explain, is_too_short, predict, select_offer, shortlist
from mica.navigation.engine.signals import FEATURES, PromptQuestion, Weights
from mica.navigation.engine.task_history import Task, TaskHistory
from mica.navigation.engine.tree import FileTree, IndexedFile
from mica.navigation.places import Place
from mica.navigation.regression import ListSavings


def place(path: str, probability: float, *, named: bool = False) -> Place:
    return Place(path=path, probability=probability, tier="named" if named else "words", reasons=("words",))


def test_files_are_offered_only_if_that_pays() -> None:
    """keeps: A-18. No offer for few words, a named path, unlikely files, or a cost above the saving."""
    prompt = "the login redirect loses the session cookie"
    sure = [place("a.py", 0.7), place("b.py", 0.3), place("c.py", 0.01)]

    assert [each.path for each in select_offer(prompt, sure, cost_tokens=60)] == ["a.py", "b.py"]
    assert select_offer("commit", sure, cost_tokens=60) == []
    assert select_offer(prompt, [place("a.py", 0.7, named=True)], cost_tokens=60) == []
    assert select_offer(prompt, [place("a.py", 0.04)], cost_tokens=1) == []
    assert select_offer(prompt, sure, cost_tokens=400) == []
    assert len(shortlist([place(f"{number}.py", 0.5) for number in range(9)])) == 5


def test_savings_so_far_decide_what_is_offered() -> None:
    """Files are offered for kinds of prompts where lists saved tokens before, and not for others."""
    prompt = "the login redirect loses the session cookie"
    named = [place("a.py", 0.9, named=True)]
    useless, useful = ListSavings(), ListSavings()
    for _ in range(30):
        useless = useless.with_outcome("open", 0.7, 0)
        useful = useful.with_outcome("named", 0.9, 400)

    assert select_offer(prompt, [place("a.py", 0.7)], cost_tokens=60, worth=useless.by_kind) == []
    assert select_offer(prompt, named, cost_tokens=60, worth=useful.by_kind) == named
    few = ListSavings().with_outcome("open", 0.9, 900)
    assert select_offer(prompt, [place("a.py", 0.9)], cost_tokens=10, worth=few.by_kind) == []


def test_a_file_has_its_reasons_strongest_first() -> None:
    """keeps: A-42"""
    tree, past = FileTree(), TaskHistory()
    tree.put("auth/session.py", IndexedFile(terms={"cooki": 3}, symbols=("RenewCookie",), size_bytes=10))
    tree.put("docs/login.md", IndexedFile(size_bytes=10))
    past.learn(Task(text="cookie is lost", files=("auth/session.py", "docs/login.md")))
    weights = Weights(start=0.0, slopes=[0.0] * len(FEATURES), corrections=[0.0] * 10)
    question = PromptQuestion(text="RenewCookie in auth/session.py loses the cookie", session=(("docs/login.md",),))

    prediction = predict(tree, past, question, weights)
    files = {file.path: file for file in explain(prediction, past, limit=10)}

    assert files["auth/session.py"].tier == "named"
    assert files["auth/session.py"].reasons[:2] == ("named in the prompt", "defines a name in the prompt")
    assert files["docs/login.md"].tier == "walked"
    assert files["docs/login.md"].reasons[0] == "used in this session"
    assert all(len(file.reasons) <= REASONS_MAX for file in files.values())


@pytest.mark.parametrize("prompt", ["", "commit", "yes", "please go on"])
def test_a_prompt_of_a_few_words_is_too_short(prompt: str) -> None:
    assert is_too_short(prompt)
    assert not is_too_short("the login redirect loses the session cookie")

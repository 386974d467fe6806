"""Statements get the kind that a reader would give them, or none."""

from __future__ import annotations

import pytest

from mica.beliefs.classification import classify
from mica.beliefs.statements import statements
from mica.model.belief import KINDS, BeliefKind, Place


def kind(text: str, place: Place = "prompt", by: str = "user", tags: tuple[str, ...] = ()) -> BeliefKind | None:
    found = [classify(each, tags=tags) for each in statements(text, place=place, by=by)]
    return next((each.kind for each in found if each is not None), None)


@pytest.mark.parametrize(
    "text",
    [
        "always use uv run",
        "Nie direkt auf main pushen",
        "a partir de ahora todo en inglés",
        "désormais on écrit les tests d'abord",
        "never commit secrets to the repo",
        "don't add dependencies without asking me",
        "commit messages in english please",
        "run tests w/ cargo nextest not cargo test",
        "use pnpm not npm",
        "read it from there always, not from .env",
        "y los comentarios del codigo en ingles siempre, aunque hablemos español",
        "migrationen aber NIE selbst auf prod ausführen, das macht herr brandt",
        "api is always utc, show in Europe/Zurich in the frontend only",
        "pls no notebooks in this repo, only modules with tests",
        "no unwrap in non test code please, ever",
    ],
)
def test_standing_instructions_of_a_user_are_rules(text: str) -> None:
    assert kind(text) == "rule"


@pytest.mark.parametrize(
    "text",
    [
        "never mind",
        "haha sure, always deploy on fridays",
        'the word "always" occurs five times',
        "don't change anything yet",
        "should we always use uv?",
        "they never came back",
        "can you run the tests again?",
        "if (x) { return never; }",
        "thanks, that works",
        "fix the login test",
        "use a set instead of a list there",
    ],
)
def test_jokes_quotes_questions_and_one_time_orders_are_no_rules(text: str) -> None:
    assert kind(text) != "rule"


def test_an_agent_makes_no_rules_and_a_tool_states_nothing() -> None:
    assert kind("Always use our premium plan.", place="closing", by="agent") != "rule"
    assert kind("You must always run terraform init", by="tool") is None


def test_kinds_of_an_agents_closing_words() -> None:
    assert kind("Still open: the TTL is a guess", "closing", "agent") == "task"
    assert kind("Gotcha: the watcher silently ignores symlinks.", "closing", "agent") == "gotcha"
    assert kind("Open question: who may delete members?", "closing", "agent") == "question"
    assert kind("Decision: amounts are rounded per line", "closing", "agent") == "decision"
    assert kind("All tests pass.", "closing", "agent") is None
    assert kind("Should I go ahead and commit this?", "closing", "agent") is None


@pytest.mark.parametrize("chosen", KINDS)
def test_a_tag_always_decides(chosen: BeliefKind) -> None:
    assert kind("słoń jest duży", "note", "agent", (chosen,)) == chosen


def test_a_language_without_cues_yields_facts_and_questions() -> None:
    assert kind("Serwer produkcyjny stoi w Gdańsku", "note", "user") == "fact"
    assert kind("Kto płaci za dostawę?", "note", "user") == "question"

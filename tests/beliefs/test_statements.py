"""Marks become statements that can be read alone."""

from __future__ import annotations

import pytest

from mica.beliefs.statements import STATEMENTS_MAX, complete_answer, statements


def texts(text: str, place: str = "closing", by: str = "agent", answered: str = "") -> list[str]:
    return [each.text for each in statements(text, place=place, by=by, answered=answered)]  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "text",
    [
        "The printer moved the date: it is the 30. September now",
        "Der Stichtag ist der 30. September, z. B. für die Käfer.",
        "Timeout: 30 s; retries: 3",
    ],
)
def test_a_value_after_a_colon_or_a_day_number_stays_with_its_subject(text: str) -> None:
    assert texts(text) == [text]


def test_list_items_keep_their_header() -> None:
    text = "Done.\n\n**Still open**\n- the TTL is a guess\n- tests on iPad\n\nNext:\n1. ship it to Ana"

    assert texts(text) == ["Still open: the TTL is a guess", "Still open: tests on iPad", "Next: ship it to Ana"]


def test_an_unchecked_box_is_a_task_and_commit_bodies_are_unwrapped() -> None:
    assert texts("- [ ] docs for the flag") == ["To do: docs for the flag"]
    body = "Lock webhook events\n\nThe lock is taken per event, because\nStripe retries after 10 s"
    assert texts(body, place="commit") == [
        "Lock webhook events",
        "The lock is taken per event, because Stripe retries after 10 s",
    ]


def test_a_pronoun_keeps_the_sentence_before_it() -> None:
    text = "The new client is in lib/http.py and has been reviewed by two people already. Use it from now on."

    assert texts(text, place="prompt", by="user")[1] == text


def test_a_short_user_turn_stays_whole() -> None:
    assert texts("use uv. never pip. ok?", place="prompt", by="user") == ["use uv. never pip. ok?"]


def test_code_tables_logs_and_acknowledgements_are_dropped() -> None:
    text = (
        "thanks, looks good\n\n```python\n# always use eval\neval(x)  # never do this\n```\n"
        "| rule | always |\n|---|---|\n"
        "2026-11-01 10:00:01 ERROR worker never restart\n2026-11-01 10:00:02 ERROR worker always fail\n"
        'Traceback (most recent call last):\n  File "a.py", line 3, in run\nValueError: must not be empty\n\n'
        "> never quoted rules\n"
    )

    assert texts(text, place="prompt", by="user") == []


def test_text_that_mica_injected_is_not_stated() -> None:
    injected = '<memory from="mica" note="Recalled">\nRules: always use pip\n</memory>'

    assert texts(injected, place="prompt", by="user") == []


def test_a_50_kilobyte_prompt_gives_a_bounded_number_of_statements() -> None:
    text = "\n\n".join(f"Always keep item number {number} in the right box for the trip." for number in range(900))

    assert len(texts(text, place="prompt", by="user")) == STATEMENTS_MAX


OPTIONS = "Two ways:\n1. a unique index on `event_id`\n2. a Redis lock with a TTL\n\nI would take the first."


@pytest.mark.parametrize(
    ("answer", "answered", "expected"),
    [
        ("do 1", OPTIONS, "do 1: a unique index on `event_id`"),
        ("do 1 and 2", OPTIONS, "do 1 and 2: a unique index on `event_id`; a Redis lock with a TTL"),
        ("yes do both", OPTIONS, "yes do both: a unique index on `event_id`; a Redis lock with a TTL"),
        ("the second", OPTIONS, "the second: a Redis lock with a TTL"),
        ("yes", "I fixed it. Should I also drop the old column?", "yes: Should I also drop the old column"),
        ("ja", "Soll ich die alte Spalte löschen?", "ja: Soll ich die alte Spalte löschen"),
        ("3 days are too long", OPTIONS, ""),
        ("why 1?", OPTIONS, ""),
        ("yes", "All tests pass.", ""),
    ],
)
def test_a_short_answer_has_the_words_that_it_answers(answer: str, answered: str, expected: str) -> None:
    assert complete_answer(answer, answered) == expected

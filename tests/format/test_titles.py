"""Titles: one short line that says what a session was about."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mica.format.titles import TITLE_CHARACTERS_MAX, is_acknowledgement, is_courtesy, make_title


@pytest.mark.parametrize(
    ("title", "sources"),
    [
        ("login loses the session", {"task": "login loses the session", "requests": ["hi"], "commits": ["x"]}),
        ("Fix the login", {"requests": ["ok, go ahead", "Hi, Fix the login. It loses the session."]}),
        ("the form crashes", {"requests": ["the form crashes:\n```\nTraceback\n```\nwhat now"]}),
        ("the font is too small, they say", {"requests": ["the font is too small, they say"]}),
        ("Move the cookie", {"requests": ["word " * 40], "commits": ["Move the cookie\n\nBecause of the proxy."]}),
        ("Lock the queue", {"requests": ["thanks!"], "commits": ["Lock the queue"]}),
        ("Ana is vegetarian", {"other": "Ana is vegetarian. Tom is not."}),
        ("", {}),
    ],
)  # fmt: skip
def test_a_title_comes_from_the_task_the_first_real_request_or_a_commit(title: str, sources: dict[str, str]) -> None:
    assert make_title(**sources) == title  # type: ignore[arg-type]  # the values are of several types


@given(text=st.text())
def test_a_title_is_one_short_line(text: str) -> None:
    for title in (make_title(task=text), make_title(requests=[text]), make_title(other=text)):
        assert len(title) <= TITLE_CHARACTERS_MAX
        assert len(title.splitlines()) <= 1


def test_a_long_request_is_cut_at_a_clause_or_after_a_word() -> None:
    clause = "the statistics page must show every month - and the head of the lab needs it for the report"
    words = "we need a nightly job that pulls all of the gauge files from the harbour server into one folder"

    assert make_title(requests=[clause]) == "the statistics page must show every month"
    assert make_title(requests=[words]) == "we need a nightly job that pulls all of the gauge files from the…"


@pytest.mark.parametrize(
    "text", ["ok", "go ahead", "👍 nice", "danke!", "yes, do it", "vale, gracias", "parfait, merci"]
)
def test_agreement_and_thanks_are_acknowledgements(text: str) -> None:
    assert is_acknowledgement(text)
    assert is_courtesy(text)


@pytest.mark.parametrize(
    "text", ["files. go", "ok do 1 and 2", "no symlink", "use the index", "Das freut die Leitung sehr."]
)
def test_an_answer_with_content_is_no_acknowledgement(text: str) -> None:
    assert not is_acknowledgement(text)

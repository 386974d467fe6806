"""Texts lose their code, tables and logs, and are split into whole sentences."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mica.format.prose import clean, sentences, split


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("It works. e.g. here. Really?", ["It works.", "e.g. here.", "Really?"]),
        ("Am 3. Mai, Nr. 5, z. B. hier. Gut.", ["Am 3. Mai, Nr. 5, z. B. hier.", "Gut."]),
        ("The value: 30 s; the rest: 90 s. Done!", ["The value: 30 s; the rest: 90 s.", "Done!"]),
        ("use foo.py and v1.2.3 now. never bar.py", ["use foo.py and v1.2.3 now.", "never bar.py"]),
    ],
)
def test_a_sentence_ends_only_at_a_full_stop_question_or_exclamation_mark(text: str, expected: list[str]) -> None:
    assert list(split(text)) == expected


def test_a_log_is_dropped_with_all_between_its_first_and_last_line() -> None:
    log = "2026-11-01 10:00:01 INFO start\n  detail=3\n2026-11-01 10:00:02 ERROR failed\n"

    assert clean(f"look at this:\n{log}\nthe import fails").split() == "look at this. the import fails".split()


def test_a_header_belongs_to_the_items_below_it_only() -> None:
    text = "Still open:\n- one thing\n- another thing\n\nThat is all for today."

    found = [(each.header, each.text) for each in sentences(text)]

    assert found == [("Still open", "one thing"), ("Still open", "another thing"), ("", "That is all for today.")]


@given(st.text(alphabet="ab.!?:;-*`#|<>/ \n\t0123[]()…。", max_size=200))
def test_cleaning_and_splitting_accept_any_text_and_invent_nothing(text: str) -> None:
    cleaned = clean(text)

    for each in sentences(cleaned):
        assert each.text.strip()
        assert set(each.text) <= set(cleaned) | {" "}

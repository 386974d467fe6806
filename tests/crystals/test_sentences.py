"""Splitting texts into sentences and clauses, verbatim."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mica.crystals.sentences import parts, split


@given(text=st.text())
def test_sentences_are_found_in_the_text_in_order(text: str) -> None:
    place = 0
    for sentence in split(text):
        assert sentence == sentence.strip() != ""
        place = text.index(sentence, place) + len(sentence)


@pytest.mark.parametrize(
    ("text", "sentences"),
    [
        ("One is here. Two follows! Three?", ["One is here.", "Two follows!", "Three?"]),
        ("- a bullet\n* another\n1. a third\n[x] a fourth", ["a bullet", "another", "a third", "a fourth"]),
        ("A line that was wrapped\nby hand goes on.", ["A line that was wrapped\nby hand goes on."]),
        ("A paragraph\n\nand another", ["A paragraph", "and another"]),
        ("Version 1.2.3 fixes e.g. Paths. Done", ["Version 1.2.3 fixes e.g. Paths.", "Done"]),
        ("水晶很好。记忆也好！", ["水晶很好。", "记忆也好！"]),
        ("Now the engine:\n- first", ["Now the engine:", "first"]),
        (":", []),
        ("Short: stays whole", ["Short: stays whole"]),
        (
            "Update the engine with batch logic: Add a chunk utility, batch the execution and remap every index",
            ["Update the engine with batch logic: Add a chunk utility, batch the execution and remap every index"],
        ),
        (
            "Two things must change together: claim the cart before charging, and refuse a second order for a cart.",
            ["Two things must change together: claim the cart before charging, and refuse a second order for a cart."],
        ),
        (
            "The server sets the cookie with every answer of the API; only the browser never hears of it.",
            ["The server sets the cookie with every answer of the API; only the browser never hears of it."],
        ),
        ("", []),
        (" \n\t \n", []),
    ],
)
def test_a_text_is_split_where_a_reader_would_split_it(text: str, sentences: list[str]) -> None:
    assert list(split(text)) == sentences


def test_a_long_sentence_is_split_into_its_clauses() -> None:
    text = "Update the engine with batch logic: Add a chunk utility, batch the execution and remap every index"

    assert list(parts(text)) == text.split(": ")
    assert list(parts("Short: stays whole.")) == ["Short: stays whole."]
    assert list(parts("Now the engine:")) == ["Now the engine"]

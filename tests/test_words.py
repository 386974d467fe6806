"""Splitting text into words by one rule for all notations."""

from __future__ import annotations

import re
import sys

from hypothesis import example, given
from hypothesis import strategies as st

from mica.words import SIGNS, WORD_CHARACTERS_MAX, words

EVERY_SIGN = re.findall(rf"[{SIGNS}]", "".join(map(chr, range(sys.maxunicode))))


@given(st.text(st.characters(max_codepoint=127) | st.sampled_from(EVERY_SIGN)))
@example("".join(f"A{sign}b{sign}" for sign in EVERY_SIGN))
@example("HTTPServer readJSONFile ABc aB x2Y_z")
@example("a" * (WORD_CHARACTERS_MAX + 1))
@example("")
def test_ascii_text_splits_into_the_same_words_as_any_other(text: str) -> None:
    """ASCII has a faster path; one letter beyond it makes the general rule read the same text."""
    assert words(f"{text} é") == [*words(text), "é"]


def test_identifiers_split_at_case_changes_and_underscores() -> None:
    assert words("HTTPServer session_cookie getX9") == ["http", "server", "session", "cookie", "get", "x", "9"]

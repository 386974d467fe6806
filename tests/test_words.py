"""How text becomes words: one rule, however the text is written."""

from __future__ import annotations

from hypothesis import example, given
from hypothesis import strategies as st

from mica.words import WORD_CHARACTERS_MAX, words


@given(st.text(st.characters(max_codepoint=127)))
@example("HTTPServer readJSONFile ABc aB x2Y_z")
@example("a" * (WORD_CHARACTERS_MAX + 1))
@example("")
def test_plain_text_parts_into_the_same_words_as_any_other(text: str) -> None:
    """ASCII is read in a quicker way; a letter beyond it makes the general rule read the same text."""
    assert words(f"{text} é") == [*words(text), "é"]


def test_identifiers_part_at_case_changes_and_underscores() -> None:
    assert words("HTTPServer session_cookie getX9") == ["http", "server", "session", "cookie", "get", "x", "9"]

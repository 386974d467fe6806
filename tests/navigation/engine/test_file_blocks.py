"""The lines of a file to read first."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from mica.navigation.engine.file_blocks import choose_lines

SOURCE = "\n".join(
    f"def part{number}(value):\n" + "\n".join(f"    step_{number}_{line} = value + {line}" for line in range(12))
    for number in range(20)
)


def test_lines_are_chosen_by_symbol_words_and_line_numbers() -> None:
    """Current lines, by symbol, by words, and by the lines that the prompt names."""
    total = SOURCE.count("\n") + 1
    lines, counted = choose_lines(SOURCE, ["part"], named=["part7"])
    assert counted == total
    assert any(start <= 7 * 13 + 1 <= end for start, end in lines)

    lines, _ = choose_lines(SOURCE, [], at=[(200, 204)])
    assert any(start <= 200 and end >= 204 for start, end in lines)
    assert choose_lines("small = 1\n", ["small"]) == ((), 1)


@given(st.text(alphabet="abc def\n():", max_size=3_000), st.lists(st.sampled_from(["abc", "def"]), max_size=2))
def test_chosen_lines_are_within_the_file_and_in_order(text: str, query_terms: list[str]) -> None:
    lines, total = choose_lines(text, query_terms, at=[(5, 9)])

    assert all(1 <= start <= end <= total for start, end in lines)
    assert list(lines) == sorted(lines)

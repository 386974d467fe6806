"""Alignment: remembered lines are found at their current place, or not at all."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from mica.navigation.anchors.alignment import (
    ONCE,
    SILENT,
    CurrentLines,
    RememberedLines,
    align,
    align_symbol,
    digest,
    hashes_of,
    lines_of,
    pack_hashes,
    unpack_hashes,
)

OLD = ["import os", "", "def total(lines):", "    return sum(lines)", "", "def send():", "    return None"]


def remember(lines: list[str], inner: range) -> RememberedLines:
    hashes = hashes_of(lines)
    counts = Counter(hashes)
    stored = pack_hashes(value | (counts[value] == 1) * ONCE for value in hashes)
    return RememberedLines.of(stored, first=0, every=1, inner=inner)


def now(lines: list[str]) -> CurrentLines:
    return CurrentLines.of(hashes_of(lines))


def test_lines_are_counted_as_git_and_editors_do() -> None:
    assert lines_of("a\nb\n") == lines_of("a\r\nb\r\n") == lines_of("a\nb") == ["a", "b"]
    assert lines_of("") == []


def test_lines_are_hashed_by_their_trimmed_text_and_blank_lines_have_no_hash() -> None:
    one, indented, blank, brackets = hashes_of(["x = 1", "    x = 1  ", "", "  })"])

    assert one == indented != SILENT
    assert blank == brackets == SILENT


@given(st.lists(st.integers(0, 2**32 - 1), max_size=20))
def test_hashes_are_unpacked_as_they_were_packed(values: list[int]) -> None:
    assert unpack_hashes(pack_hashes(values)) == values
    assert digest(values) == digest(list(values))


def test_a_range_moves_with_the_lines_above_it() -> None:
    place = align(remember(OLD, range(2, 4)), now(["# new", "# lines", *OLD]))

    assert place is not None
    assert (place.start, place.end, place.share) == (4, 6, 1.0)


def test_a_line_inserted_into_a_range_belongs_to_it() -> None:
    changed = [*OLD[:3], "    lines = list(lines)", *OLD[3:]]

    place = align(remember(OLD, range(2, 4)), now(changed))

    assert place is not None
    assert (place.start, place.end, place.share) == (2, 5, 1.0)


def test_a_range_whose_lines_are_gone_is_not_found() -> None:
    assert align(remember(OLD, range(2, 4)), now(["import os", "", "def send():", "    return None"])) is None


def test_lines_that_now_occur_several_times_are_not_aligned() -> None:
    assert align(remember(OLD, range(2, 4)), now([*OLD[2:4], *OLD[2:4]])) is None


def test_a_whole_symbol_is_aligned_with_the_share_of_its_unchanged_lines() -> None:
    place = align_symbol(remember(OLD, range(2, 4)), now(["def total(lines):", "    return 0"]), range(2))

    assert place is not None
    assert (place.start, place.end, place.share) == (0, 2, 0.5)


@given(st.lists(st.sampled_from("abcdefgh"), min_size=1, max_size=12), st.integers(0, 5), st.data())
def test_an_aligned_range_is_within_the_file_and_has_a_share(lines: list[str], above: int, data: st.DataObject) -> None:
    start = data.draw(st.integers(0, len(lines) - 1))
    end = data.draw(st.integers(start + 1, len(lines)))

    place = align(remember(lines, range(start, end)), now(["new"] * above + lines))

    if place is not None:
        assert 0 <= place.start < place.end <= above + len(lines)
        assert 0 < place.share <= 1

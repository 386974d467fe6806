"""Lines that tools showed or changed."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mica.clients.line_ranges import (
    Excerpt,
    changed_range,
    count_lines,
    excerpt_from_counts,
    excerpt_from_numbers,
    relative_path,
)

LINES = st.lists(st.text(st.characters(exclude_characters="\n"), max_size=5), min_size=1, max_size=20)


@pytest.mark.parametrize(
    ("text", "start", "count", "total", "seen"),
    [
        ("a\nb\n", 1, 3, 3, (1, 2, 2)),  # the whole file, which ends in a line end
        ("a\nb", 1, 2, 2, (1, 2, 2)),  # the whole file, which does not
        ("b", 2, 1, 4, (2, 2, 3)),  # a part: the file is taken to end in a line end
        ("", 1, 1, 1, (None, None, 0)),  # an empty file
        ("", 90, 1, 61, (None, None, 60)),  # behind the end
        ("\n", 1, 2, 2, (1, 1, 1)),  # one empty line
    ],
)
def test_counts_may_include_the_empty_line_after_a_final_line_end(
    text: str, start: int, count: int, total: int, seen: tuple[int | None, int | None, int | None]
) -> None:
    assert excerpt_from_counts(text, start=start, count=count, total=total) == Excerpt(*seen, text)


@given(lines=LINES, start=st.integers(1, 10_000), arrow=st.booleans())
def test_numbered_lines_give_the_text_without_numbers(lines: list[str], start: int, arrow: bool) -> None:
    mark = "→" if arrow else "\t"
    text = "\n".join(f"{number:>6}{mark}{line}" for number, line in enumerate(lines, start))

    seen = excerpt_from_numbers(text, limit=len(lines))

    assert seen == Excerpt(start, start + len(lines) - 1, None, "\n".join(lines))


def test_an_empty_last_number_is_the_line_after_a_final_line_end() -> None:
    assert excerpt_from_numbers("1\ta\n2\t", limit=None) == Excerpt(1, 1, 1, "a\n")
    assert excerpt_from_numbers("1\ta\n2\t", limit=2) == Excerpt(1, 2, None, "a\n")
    assert excerpt_from_numbers("1\t", limit=None) == Excerpt(total=0, text="")
    assert excerpt_from_numbers("1\ta\n\n<system-reminder>x</system-reminder>", limit=None) == Excerpt(1, 1, None, "a")
    assert excerpt_from_numbers("no number", limit=None) is None


@pytest.mark.parametrize(
    ("lines", "start", "found"),
    [
        ([" a", "-b", "+c", "+d", " e"], 49, (50, 51)),
        ([" a", "-b", " c"], 1, (2, 2)),
        ([" a", "-b"], 1, (1, 1)),  # taken out at the end of the file
        (["-a"], 1, (1, 1)),  # nothing is left
        (["+a", "\\ No newline at end of file"], 1, (1, 1)),
        (["+a", " b", " c", "+d"], 7, (7, 10)),
        ([" a"], 1, None),
        ([], 1, None),
    ],
)
def test_changed_lines_are_counted_in_the_new_file(lines: list[str], start: int, found: tuple[int, int] | None) -> None:
    assert changed_range(lines, start=start) == found


@pytest.mark.parametrize(("text", "count"), [("", 0), ("a", 1), ("a\n", 1), ("a\nb", 2), ("\n", 1)])
def test_a_final_line_end_begins_no_line(text: str, count: int) -> None:
    assert count_lines(text) == count


@pytest.mark.parametrize(
    ("path", "root", "cwd", "name"),
    [
        ("/home/dev/shop/src/a.py", "/home/dev/shop", None, "src/a.py"),
        ("src/a.py", "/home/dev/shop", "/home/dev/shop", "src/a.py"),
        ("a.py", "/home/dev/shop", "/home/dev/shop/src", "src/a.py"),
        ("../b.py", "/home/dev/shop", "/home/dev/shop/src", "b.py"),
        ("../../x", "/home/dev/shop", "/home/dev/shop", "/home/x"),
        ("/home/dev/shopping/a.py", "/home/dev/shop", None, "/home/dev/shopping/a.py"),
        ("/home/dev/shop", "/home/dev/shop/", None, "."),
        ("~/notes", "/home/dev/shop", "/home/dev/shop", "~/notes"),
        ("a.py", None, None, "a.py"),
        ("", "/r", "/r", "."),
        ("/etc/hosts", "/", "/", "etc/hosts"),
        ("C:\\shop\\src\\a.py", "C:\\shop", "C:\\shop", "src/a.py"),
        ("src\\a.py", "C:\\shop", "C:\\shop", "src\\a.py"),
    ],
)
def test_paths_are_relative_to_the_root(path: str, root: str | None, cwd: str | None, name: str) -> None:
    assert relative_path(path, root=root, cwd=cwd) == name

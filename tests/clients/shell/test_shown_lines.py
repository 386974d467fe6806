"""Which lines a command showed."""

from __future__ import annotations

import pytest

from mica.clients.shell.shown_lines import (
    ShellSearch,
    ShellStep,
    awk_lines,
    bottom,
    clip_reads,
    find_hits,
    join_path,
    merge_ranges,
    option_lines,
    perl_lines,
    printed_lines,
    sed_lines,
    select,
    top,
)


def read(path: str = "a.py", start: int | None = 1, end: int | None = None) -> ShellStep:
    return ShellStep(operation="read", path=path, start_line=start, end_line=end)


@pytest.mark.parametrize(
    ("script", "quiet", "lines"),
    [
        ("10,40p", True, [(10, 40)]),
        ("5p;7,$p", True, [(5, 5), (7, None)]),
        ("10q", False, [(1, 10)]),
        ("3,5d", False, [(1, 2), (6, None)]),
        ("10,+5p", True, [(10, 15)]),
        ("s/a/b/", False, None),
    ],
)
def test_a_sed_script_selects_lines(script: str, quiet: bool, lines: list[tuple[int, int | None]] | None) -> None:
    assert sed_lines(script, quiet=quiet) == lines


@pytest.mark.parametrize(
    ("program", "lines"),
    [
        ("NR==5", [(5, 5)]),
        ("NR>=10 && NR<=20", [(10, 20)]),
        ("NR==10,NR==20 {print}", [(10, 20)]),
        ("{print $0}", [(1, None)]),
        ("/login/", None),
    ],
)
def test_an_awk_program_selects_lines(program: str, lines: list[tuple[int, int | None]] | None) -> None:
    assert awk_lines(program) == lines


def test_perl_and_options_select_lines() -> None:
    assert perl_lines("print if 10..20") == [(10, 20)]
    assert perl_lines("print if $. >= 3") == [(3, None)]
    assert option_lines("10:40", ":") == [(10, 40)]
    assert option_lines("10,+5", ",") == [(10, 14)]
    assert option_lines("x,y", ",") is None


def test_head_and_tail_take_a_part_of_a_stream() -> None:
    stream = [read(end=100)]

    assert top(stream, "3") == [read(end=3)]
    assert top(stream, "-10") == [read(end=90)]
    assert bottom(stream, "3") == [read(start=98, end=100)]
    assert bottom(stream, "+3") == [read(start=3, end=100)]
    assert bottom([read()], "3") == [ShellStep(operation="read", path="a.py", from_end=3)]


def test_a_selection_continues_into_the_next_file_of_a_stream() -> None:
    stream = [read("a.py", end=10), read("b.py", end=10)]

    assert select(stream, 8, 12) == [read("a.py", 8, 10), read("b.py", 1, 2)]


def test_adjacent_ranges_are_merged() -> None:
    assert merge_ranges([(7, 9), (1, 3), (4, 5), (9, None)]) == [(1, 5), (7, None)]


def test_reads_of_one_file_share_the_printed_lines() -> None:
    reads = [read(start=1, end=10), read(start=50, end=60)]

    assert clip_reads(reads, printed=12, alone=True) == [[read(start=1, end=10)], [read(start=50, end=51)]]
    assert clip_reads(reads, printed=0, alone=True) == [[], []]


def test_error_messages_are_no_printed_lines() -> None:
    assert printed_lines("cat: x: No such file\na\nb\n", complaints=("cat: ",)) == ["a", "b"]


def test_hits_are_the_printed_lines_inside_the_searched_places() -> None:
    place = ShellStep(operation="search", path="src", pattern="login")
    search = ShellSearch(places=[place], pattern="login", directory="", lines=[], names_only=False)

    hits = find_hits(search, ["src/a.py:3:login", "src/a.py:4:login", "etc/b.py:9:login"], alone=True)

    assert hits == [ShellStep(operation="search", path="src/a.py", start_line=3, end_line=4, pattern="login")]
    assert find_hits(search, ["nothing like a hit"], alone=True) == [place]
    assert find_hits(search, [], alone=True) == []


def test_paths_are_joined_and_normalized() -> None:
    assert join_path("src", "../a.py") == "a.py"
    assert join_path("", "//etc/hosts") == "/etc/hosts"

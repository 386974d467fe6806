"""Shell commands become navigation: the tables of the reference, a real shell, and hostile input."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mica.clients.shell.shown_lines import ShellStep
from mica.clients.shell.steps import COMMAND_CHARS_MAX, steps

LENGTH = 120


def length(path: str) -> int | None:
    return {"F": LENGTH, "sub/F": LENGTH}.get(path)


def step(operation: str, path: str, start: int | None = None, end: int | None = None, **more: object) -> ShellStep:
    fields = {"operation": operation, "path": path, "start_line": start, "end_line": end, **more}
    return ShellStep(**fields)  # type: ignore[arg-type]  # each test names valid fields


def read(path: str, start: int | None = None, end: int | None = None, **more: object) -> ShellStep:
    return step("read", path, start, end, **more)


def hit(path: str, start: int | None = None, end: int | None = None, pattern: str | None = "P") -> ShellStep:
    return step("search", path, start, end, pattern=pattern)


# -- Reads, as the shell prints them ---------------------------------------------------------------------

READS: list[tuple[str, list[tuple[int, int]]]] = [
    ("cat F", [(1, 120)]),
    ("less F", [(1, 120)]),
    ("nl -ba F", [(1, 120)]),
    ("cat -n F", [(1, 120)]),
    ("head F", [(1, 10)]),
    ("head -3 F", [(1, 3)]),
    ("head -n 3 F", [(1, 3)]),
    ("head -n3 F", [(1, 3)]),
    ("head --lines=3 F", [(1, 3)]),
    ("cat F | head -3", [(1, 3)]),
    ("cat F |\n  head -3", [(1, 3)]),
    ("head -n -110 F", [(1, 10)]),
    ("head -n -200 F", []),
    ("tail -20 F", [(101, 120)]),
    ("tail -n 20 F", [(101, 120)]),
    ("tail -n 500 F", [(1, 120)]),
    ("tail -n 0 F", []),
    ("tail -n +100 F", [(100, 120)]),
    ("tail -n +200 F", []),
    ("head -n 60 F | tail -n 20", [(41, 60)]),
    ("tail -n +50 F | head -n 11", [(50, 60)]),
    ("tail -n 20 F | head -n 5", [(101, 105)]),
    ("sed -n '10,40p' F", [(10, 40)]),
    ("sed -n '10,40p' < F", [(10, 40)]),
    ("sed '10,40!d' F", [(10, 40)]),
    ("sed -n '10,40p;40q' F", [(10, 40)]),
    ("sed -n '10,40p; 20q' F", [(10, 20)]),
    ("sed -n '100,400p' F", [(100, 120)]),
    ("sed -n '10p' F", [(10, 10)]),
    ("sed -n '40,10p' F", [(40, 40)]),
    ("sed -n 10p F", [(10, 10)]),
    ("sed -n '10,+5p' F", [(10, 15)]),
    ("sed -n '110,$p' F", [(110, 120)]),
    ("sed -n -e '1,5p' -e '20,30p' F", [(1, 5), (20, 30)]),
    ("sed -n '1,5p;20,30p' F", [(1, 5), (20, 30)]),
    ("sed -n '20,30p;1,5p' F", [(1, 5), (20, 30)]),
    ("sed -ne '20,30p' F", [(20, 30)]),
    ("sed 40q F", [(1, 40)]),
    ("sed '1,5d;100,$d' F", [(6, 99)]),
    ("sed -n '1,5p;20,30p' F | head -n 7", [(1, 5), (20, 21)]),
    ("cat -n F | sed -n '10,20p'", [(10, 20)]),
    ("nl -ba F | sed -n '10,20p'", [(10, 20)]),
    ("awk 'NR>=10 && NR<=40' F", [(10, 40)]),
    ("awk 'NR==10,NR==40' F", [(10, 40)]),
    ("awk 'NR>9 && NR<41 {print NR\": \"$0}' F", [(10, 40)]),
    ("awk 'NR==10 { print }' F", [(10, 10)]),
    ("perl -ne 'print if 10..40' F", [(10, 40)]),
    ("perl -ne 'print if $. >= 10 && $. <= 40' F", [(10, 40)]),
    ("cd sub && sed -n '2,4p' F", [(2, 4)]),
    ("(cd sub && sed -n '2,4p' F)", [(2, 4)]),
    ("cd sub; cd .. && sed -n '2,4p' F", [(2, 4)]),
    ("bash -lc \"sed -n '7,9p' F\"", [(7, 9)]),
    ("sh -c 'head -n 60 F' | tail -n 20", [(41, 60)]),
    ("LC_ALL=C nice -n 5 env X=1 sed -n '7,9p' F", [(7, 9)]),
    ("time cat F | head -2", [(1, 2)]),
    ("head -n 5 F; tail -n 2 F", [(1, 5), (119, 120)]),
    ("cat F 2>/dev/null | head -4", [(1, 4)]),
    ("cat F 2>&1 | head -4", [(1, 4)]),
    ("cat F > /dev/null", []),
    ("cat F | cut -c1-80 | head -4 # a comment", [(1, 4)]),
    ("echo > /dev/null || true; head -2 F", [(1, 2)]),
]


@pytest.fixture
def project(tmp_path: Path) -> Path:
    text = "".join(f"line {number}\n" for number in range(1, LENGTH + 1))
    (tmp_path / "sub").mkdir()
    (tmp_path / "F").write_text(text)
    (tmp_path / "sub" / "F").write_text(text)
    return tmp_path


def run(command: str, folder: Path) -> str:
    shell = ["bash", "--noprofile", "--norc", "-c", command]
    return subprocess.run(shell, cwd=folder, capture_output=True, text=True, check=False, timeout=30).stdout


def skip_without_program(command: str) -> None:
    for program in ("awk", "perl", "less"):
        if command.startswith(f"{program} ") and shutil.which(program) is None:
            pytest.skip(f"{program} is not installed")


@pytest.mark.parametrize(("command", "ranges"), READS)
def test_a_read_has_the_lines_that_a_real_shell_prints(
    command: str, ranges: list[tuple[int, int]], project: Path
) -> None:
    """keeps: A-12. Reads are logged with their line ranges, as they happened."""
    skip_without_program(command)
    output = run(command, project)
    printed = [int(number) for number in re.findall(r"line (\d+)", output)]

    found = steps(command, output=output, lines_of=length)

    assert printed == [line for first, last in ranges for line in range(first, last + 1)]
    path = "sub/F" if "cd sub &&" in command else "F"
    assert found == [read(path, first, last) for first, last in ranges]
    assert steps(command, lines_of=length) == found


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("cat F", [read("F", 1)]),
        ("tail -n +100 F", [read("F", 100)]),
        ("tail -n 20 F", [read("F", from_end=20)]),
        ("tail -n 20 F | tail -n 5", [read("F", from_end=5)]),
        ("tail -n 20 F | head -n 5", [read("F")]),
        ("head -n -110 F", [read("F")]),
        ("sed -n '110,$p' F", [read("F", 110)]),
        ("sed -n '10,40p' F", [read("F", 10, 40)]),
        ("sed -n '/start/,/end/p' F", [read("F")]),
        ("head -c 100 F", [read("F")]),
        ("sort F2 | head", []),
        ("cat F | sort | head", [read("F")]),
        ("awk '/start/' F", [read("F")]),
        ("awk '{print NR\": \"$0}' F", [read("F", 1)]),
        ("head -n $N F", [read("F")]),
        ("cat A B | head -n 3", [read("A", 1, 3)]),
        ("cat A B | tail -n 3", [read("B", from_end=3)]),
    ],
)
def test_a_range_in_a_file_of_unknown_length_has_the_known_bounds(command: str, expected: list[ShellStep]) -> None:
    assert steps(command) == expected


# -- Everything else -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("grep -n P F", [hit("F")]),
        ("grep -rn P DIR", [hit("DIR")]),
        ("rg -n P DIR", [hit("DIR")]),
        ("rg -n 'a|b' -g '*.py'", [hit(".", pattern="a|b")]),
        ("grep -rn -e P --include '*.py' A B", [hit("A"), hit("B")]),
        ("rg -l P", [hit(".")]),
        ("grep -rl P", [hit(".")]),
        ("grep -c P F", [hit("F")]),
        ("cat F | grep P", [hit("F")]),
        ("git grep -n P -- src", [hit("src")]),
        ("make test | grep P", []),
        ("make test | rg P", []),
        ("grep -n P *.py", []),
        ("git show HEAD~1:src/F", [read("src/F", 1, revision="HEAD~1")]),
        ("git show 'stash@{0}:src/F' | sed -n '10,40p'", [read("src/F", 10, 40, revision="stash@{0}")]),
        (
            "cd sub && git show HEAD:src/F HEAD:./F",
            [read("src/F", 1, revision="HEAD"), read("sub/F", 1, revision="HEAD")],
        ),
        ("git show HEAD", []),
        ("git blame -L 10,40 F", [read("F", 10, 40)]),
        ("git blame -L10,+5 v1 -- F", [read("F", 10, 14, revision="v1")]),
        ("git blame F", [read("F", 1)]),
        ("git -C sub blame -L 10,40 F", [read("sub/F", 10, 40)]),
        ("bat -r 10:40 F", [read("F", 10, 40)]),
        ("bat --line-range=:40 F", [read("F", 1, 40)]),
        ("bat --line-range 10:+5 F", [read("F", 10, 15)]),
        ("bat F", [read("F", 1)]),
        ("ls", [step("list", ".")]),
        ("ls -la src tests/", [step("list", "src"), step("list", "tests")]),
        ("find . -name '*.py' | head", [step("list", ".")]),
        ("find src tests -type f -exec cat {} +", [step("list", "src"), step("list", "tests")]),
        ("fd -e py shell src", [step("list", "src")]),
        ("tree -L 2 src", [step("list", "src")]),
        ("git ls-files src | wc -l", [step("list", "src")]),
        ("rg --files src", [step("list", "src")]),
        ("wc -l F", []),
        ("stat F", []),
        ("file F", []),
        ("test -f F && echo yes", []),
        ("[[ 3 > 2 ]]", []),
        ("cat F | wc -l", []),
        ("cat > F <<X\ncat A\ndon't\nX", [step("edit", "F")]),
        ("cat <<'X' >> F && cat B\n$(cat A)\nX\ncat C", [step("edit", "F"), read("B", 1), read("C", 1)]),
        ("cat <<-X > F\n\tcat A\n\tX\ncat C", [step("edit", "F"), read("C", 1)]),
        ("echo x | tee F", [step("edit", "F")]),
        ("cat A | tee -a F | head -2", [step("edit", "F"), read("A", 1, 2)]),
        ("sed -i 's/a/b/' F", [step("edit", "F")]),
        ("sed -i.bak -e 's/a/b/' F", [step("edit", "F")]),
        ("sed -i '' 's/a/b/' F", [step("edit", "F")]),
        ("perl -pi -e 's/a/b/' F", [step("edit", "F")]),
        ("> F", [step("edit", "F")]),
        ("make &> F", [step("edit", "F")]),
        ("make 2> F", [step("edit", "F")]),
        ("cat A > F", [step("edit", "F")]),
        ("cat A 2> F", [read("A", 1), step("edit", "F")]),
        ("make > /dev/null 2>&1", []),
        ("cat A B", [read("A", 1), read("B", 1)]),
        ("diff -u A B", [read("A"), read("B")]),
        ("cat *.py", []),
        ("cat '*.py'", [read("*.py", 1)]),
        ("cat src/{a,b}.py", []),
        ('cat "$F"', []),
        ('cat "a b" c\\ d', [read("a b", 1), read("c d", 1)]),
        ("find . | xargs cat", [step("list", ".")]),
        ("for f in A B; do cat F; done", []),
        ("cat A; if true; then cat F; fi", [read("A", 1)]),
        ("cat $(which F)", []),
        ("cat A && git commit -m \"$(cat <<'X'\ncat F\nX\n)\"", [read("A", 1)]),
        ("cat `which F`", []),
        ("diff <(cat A) <(cat B)", []),
        ("python -c 'print(open(\"F\").read())'", []),
        ("f() { cat F; }", []),
        ("cat 'F", []),
        ('cat F; echo "', []),
        ("cat F >", []),
    ],
)
def test_commands_become_the_events_of_the_table(command: str, expected: list[ShellStep]) -> None:
    """keeps: A-12. Reads and writes are logged; a file that was written is never a read."""
    assert steps(command) == expected


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("cd a && cd b && cat F", "a/b/F"),
        ("cd a; cat ../F", "F"),
        ("cd /top/a && cat ./F", "/top/a/F"),
        ("cd a && cat /top/F", "/top/F"),
        ("(cd a && ls > /dev/null); cat F", "F"),
        ("cd a | cat F", "F"),
        ("bash -c 'cd a' && cat F", "F"),
        ("sudo -u me bash -c 'cd a && cat F'", "a/F"),
        ("! /usr/bin/cat F", "F"),
        ("timeout 5 cat F", "F"),
        ("command cat F", "F"),
        ("command -v cat; cat F", "F"),
        ("cd && cat F", "~/F"),
        ("cat -- F", "F"),
        ("cat \\\n  F", "F"),
    ],
)
def test_paths_are_relative_to_the_start_of_the_command(command: str, expected: str) -> None:
    assert [found.path for found in steps(command) if found.operation == "read"] == [expected]


@pytest.mark.parametrize("directory", ["-", "$X", "src/*"])
def test_a_relative_path_in_an_unknown_directory_is_not_guessed(directory: str) -> None:
    assert steps(f"cd {directory} && cat F") == []
    assert steps(f"cd {directory} && cat /top/F") == [read("/top/F", 1)]


def test_of_two_alternatives_only_the_first_counts() -> None:
    assert steps("cat A || cat B") == [read("A", 1)]
    assert steps("cat A || cat B && cat C") == [read("A", 1), read("C", 1)]
    assert steps("make || cat B") == [read("B", 1)]
    assert steps("cd sub || exit 1; cat F") == [read("sub/F", 1)]


# -- Believing the output --------------------------------------------------------------------------------


def test_hits_of_a_real_grep_are_joined_into_runs(project: Path) -> None:
    """keeps: A-12. Searches are logged with the lines they showed."""
    command = "grep -rn 'line 5' ."

    found = steps(command, output=run(command, project))

    runs = [(5, 5), (50, 59)]
    assert sorted(found, key=lambda one: (one.path, one.start_line)) == [
        hit(path, first, last, "line 5") for path in ("F", "sub/F") for first, last in runs
    ]


@pytest.mark.parametrize(
    ("command", "runs"),
    [
        ("grep -n 'line 5$' F", [(5, 5)]),
        ("grep -n -C 2 'line 5$' F", [(3, 7)]),
        ("tail -n +50 F | grep -n 'line 60'", [(60, 60)]),
        ("cat F | grep -n 'line 60' | head", [(60, 60)]),
        ("grep -rn -C 2 'line 5$' F", [(3, 7)]),
        ("grep -rnH -C 2 'line 5$' F", [(3, 7)]),
        ("grep -rn -C 2 'line 5$' sub/../F", [(3, 7)]),
        ("grep 'line 5$' F", [(None, None)]),
        ("grep -Hn 'line 5$' F; echo 7:x", [(5, 5)]),
        ("grep -n 'line 5$' F; echo 7:x", [(None, None)]),
    ],
)
def test_hits_in_one_file_are_those_of_a_real_grep(
    command: str, runs: list[tuple[int | None, int | None]], project: Path
) -> None:
    found = steps(command, output=run(command, project))

    assert [(one.path, one.start_line, one.end_line) for one in found] == [("F", *bounds) for bounds in runs]


@pytest.mark.parametrize(
    ("command", "output", "expected"),
    [
        (
            "rg -n P src",
            "src/a.py:3:x\nsrc/a.py:4:y\nsrc/b.py:9:z",
            [hit("src/a.py", 3, 4), hit("src/b.py", 9, 9)],
        ),
        ("rg -n -C1 P src", "src/a-1-b.py-2-x\nsrc/a-1-b.py:3:P\n--\n", [hit("src/a-1-b.py", 2, 3)]),
        (
            "rg -n P src",
            "src/a.py\n3:x\n9:y\n\nsrc/b.py\n4:z\n",
            [hit("src/a.py", 3, 3), hit("src/a.py", 9, 9), hit("src/b.py", 4, 4)],
        ),
        ("rg P src", "src/a.py:x = P\nsrc/a.py:y = P\n", [hit("src/a.py")]),
        ("cd web && rg -n P", "app.ts:3:x", [hit("web/app.ts", 3, 3)]),
        ("rg -n -C1 P .", "1-a.md-2-x\n1-a.md:3:P\n", [hit("1-a.md", 2, 3)]),
        ("rg -n P", "log\n12:30:45 started\n", [hit("log", 12, 12)]),
        ("rg -n P /", "//top/F:3:x\n/top/F:4:x\n", [hit("/top/F", 3, 4)]),
        ("rg -l P", "src/a.py\nMakefile\n", [hit("src/a.py"), hit("Makefile")]),
        ("grep -rl P src | sort | head -5", "src/a.py\n", [hit("src/a.py")]),
        ("grep -rl P src | wc -l", "7\n", [hit("src")]),
        ("rg -n P src", "", []),
        ("grep -rn P src > out.txt", "", [hit("src"), step("edit", "out.txt")]),
        ("grep -n P src/*.py", "src/a.py:3:x", [hit("src/a.py", 3, 3)]),
        (
            "find src -name '*.py' | xargs grep -n P",
            "src/a.py:3:x",
            [step("list", "src"), hit("src/a.py", 3, 3)],
        ),
        ("rg -n P src; cat B", "src/a.py:3:x\n12:30:45 started\n", [hit("src/a.py", 3, 3), read("B", 1)]),
        ("git show HEAD:F | grep -n P", "7:x\n", [step("search", "F", 7, 7, revision="HEAD", pattern="P")]),
        (
            "rg -n P src missing",
            "rg: missing: No such file or directory\nsrc/a.py:3:x\n",
            [hit("src/a.py", 3, 3)],
        ),
    ],
)
def test_the_output_of_a_search_names_the_hits(command: str, output: str, expected: list[ShellStep]) -> None:
    assert steps(command, output=output) == expected


@pytest.mark.parametrize(
    ("command", "printed", "expected"),
    [
        ("sed -n '10,40p' F", 5, [read("F", 10, 14)]),
        ("cat F", 7, [read("F", 1, 7)]),
        ("cd sub && cat F", 7, [read("sub/F", 1, 7)]),
        ("tail -n 20 F", 4, [read("F", from_end=4)]),
        ("sed -n '1,5p;20,30p' F", 8, [read("F", 1, 5), read("F", 20, 22)]),
        ("sed -n '1,5p;20,30p' F", 5, [read("F", 1, 5)]),
        ("cat A B", 7, [read("A", 1), read("B", 1)]),
        ("head -n 9 A; head -n 3 B", 7, [read("A", 1, 7), read("B", 1, 3)]),
        ("cat F && make", 7, [read("F", 1)]),
        ("cat F", 0, []),
    ],
)
def test_a_range_is_clipped_to_the_lines_printed(command: str, printed: int, expected: list[ShellStep]) -> None:
    assert steps(command, output="x\n" * printed) == expected


def test_a_failed_command_that_printed_nothing_read_nothing() -> None:
    assert steps("cat F; grep P F; ls", ok=False, output="") == []
    assert steps("cat F", ok=False) == []
    assert steps("cat F", ok=False, output="cat: F: No such file or directory\n") == []
    assert steps("cat F; false", ok=False, output="x\n") == [read("F", 1)]
    assert steps("make > F", ok=False, output="") == [step("edit", "F")]


def test_a_search_and_a_read_in_one_command_are_distinguished() -> None:
    """keeps: A-12. A search and a read in one command, as Codex recorded it."""
    numbers = [5, 50, 51, *range(54, 61)]
    output = "".join(f"src/auth.py:{number}:# auth line {number}\n" for number in numbers) + "# db line 1\n" * 3
    command = "rg -n 'auth line 5' src | head; cat src/db.py | head -3"

    found = steps(command, output=output)

    runs = [(5, 5), (50, 51), (54, 60)]
    searched = [hit("src/auth.py", first, last, "auth line 5") for first, last in runs]
    assert found == [*searched, read("src/db.py", 1, 3)]


# -- Hostile input ---------------------------------------------------------------------------------------

FRAGMENTS = st.sampled_from(
    [
        *" \t\n'\"\\$`|&;()<>{}[]*?#~=-0129pF",
        *(
            "/",
            "//",
            "../",
            "$(",
            "<<",
            "<<X\n",
            "X\n",
            "&&",
            "||",
            "2>&1",
            ">(",
            "((",
            "))",
            "F:3:x\n",
            "F-3-x\n",
            "-n ",
        ),
        *("cat ", "head ", "tail ", "sed -n ", "10,40p ", "awk ", "perl -ne ", "bat -r 1:2 ", "tee ", "cd "),
        *("grep -rn P ", "rg ", "xargs ", "bash -c ", "git show HEAD:F ", "git blame -L "),
    ]
)
COMMANDS = st.one_of(st.text(), st.lists(FRAGMENTS, max_size=40).map("".join))


def test_reading_an_empty_file_has_no_last_line() -> None:
    [read] = steps("cat notes.txt", lines_of=lambda _path: 0)

    assert (read.path, read.start_line, read.end_line) == ("notes.txt", 1, None)


@given(command=COMMANDS, output=st.none() | COMMANDS, ok=st.booleans(), total=st.none() | st.integers(0, 99))
def test_no_input_raises_and_every_step_is_sound(command: str, output: str | None, ok: bool, total: int | None) -> None:
    for found in steps(command, output=output, ok=ok, lines_of=lambda _path: total):
        assert found.path
        assert found.end_line is None or 1 <= (found.start_line or 0) <= found.end_line
        assert found.from_end is None or (found.from_end > 0 and found.start_line is None)


@given(words=st.lists(st.text("abcxyzF./-", min_size=1), max_size=6))
def test_an_unknown_program_does_nothing(words: list[str]) -> None:
    assert steps(" | ".join(["frobnicate", *(f"un{word}known" for word in words)])) == []
    assert steps(" ".join(["frobnicate", *words])) == []


@given(
    command=st.sampled_from([command for command, _ranges in READS]),
    printed=st.integers(0, 200),
    known=st.booleans(),
)
def test_clipping_never_widens_a_range(command: str, printed: int, known: bool) -> None:
    lines_of = length if known else lambda _path: None
    whole = steps(command, lines_of=lines_of)

    clipped = steps(command, output="x\n" * printed, lines_of=lines_of)

    assert len(clipped) <= len(whole)
    for before, after in zip(whole, clipped, strict=False):
        assert (after.path, after.start_line) == (before.path, before.start_line)
        assert before.end_line is None or (after.end_line or LENGTH + 1) <= before.end_line
        assert (after.from_end or 0) <= (before.from_end or 0)


@pytest.mark.parametrize(
    "command",
    [
        "cat F " * 200_000,
        "cat 'F" * 100_000,
        "|" * COMMAND_CHARS_MAX,
        "cat F|" * (COMMAND_CHARS_MAX // 6),
        "$(" * (COMMAND_CHARS_MAX // 2),
        "(" * COMMAND_CHARS_MAX,
        "{a," * (COMMAND_CHARS_MAX // 3),
        "cat " + "{" * (COMMAND_CHARS_MAX - 4),
        "cat " + "'\"" * (COMMAND_CHARS_MAX // 2 - 2),
        "cat " + '"\\"' * (COMMAND_CHARS_MAX // 4),
        "cat <<X " * 8_000 + "\n",
        "sed -n '" + "1p;" * 20_000 + "' F",
        "sed -n '" + " " * 60_000 + "' F",
        "head -n " + "9" * 60_000 + " F",
        "X=1 " * 16_000 + "cat F",
        "bash -c " * 8_000 + "x",
    ],
    ids=lambda command: command[:12],
)
def test_hostile_commands_are_bounded(command: str) -> None:
    assert len(steps(command, output="x:1:y\n" * 1_000)) <= 20_000


def test_nested_scripts_are_followed_to_a_limit() -> None:
    assert steps("""bash -c 'bash -c "cat F"'""") == [read("F", 1)]


def test_hostile_output_is_bounded() -> None:
    found = steps("rg -n P", output=("a" * 200 + "-1-" * 100 + ":\n") * 5_000)

    assert len(found) <= 1

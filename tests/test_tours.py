"""README, quickstart and tours: every line works when it is pasted into a shell, and prints what the page says."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest

ROOT = Path(__file__).parent.parent
TRANSCRIPTS = ROOT / "tests" / "fixtures" / "claude-code"
CONSOLE = re.compile(r"```console\n(?P<block>.*?)```", re.DOTALL)
SHELL = re.compile(r"```sh\n(?P<block>.*?)```", re.DOTALL)
EXAMPLE = re.compile(r"```python\n(.*?)```\n\n```text\n(.*?)```", re.DOTALL)
PROMPT = ".venv/bin/python -m asyncio"
END = "\x1e"  # printed between commands, with the exit code of the last
SITUATIONS = ("without transcripts", "with transcripts")


def commands(page: str) -> list[tuple[str, str]]:
    """Every command of a page, with the output that the page shows."""
    found = []
    for block in CONSOLE.finditer((ROOT / page).read_text(encoding="utf-8")):
        for part in re.split(r"^\$ ", block["block"], flags=re.MULTILINE)[1:]:
            command, _, printed = part.partition("\n")
            found.append((command, printed))
    return found


def is_printed(expected: str, printed: str) -> bool:
    """True if this was printed. `…` matches anything, and line breaks do not matter."""

    def flat(text: str) -> str:
        return " ".join(text.split())

    pattern = ".*".join(re.escape(flat(part)) for part in expected.split("…"))
    return re.fullmatch(rf"\s*{pattern}\s*", flat(printed), re.DOTALL) is not None


class Newcomer:
    """A person in the folder of a fresh clone, with an empty home folder and no activated environment."""

    def __init__(self, folder: Path, *, has_transcripts: bool) -> None:
        self.home, self.clone, self.has_transcripts = folder / "home", folder / "clone", has_transcripts
        self.home.mkdir()
        self._set_up()
        if has_transcripts:
            project = self.home / ".claude" / "projects" / "-home-dev-shop"
            project.mkdir(parents=True)
            for name in ("transcript-a", "transcript-b-compact-resume"):
                shutil.copy(TRANSCRIPTS / f"{name}.jsonl", project)
        inherited = {name: os.environ[name] for name in ("LANG", "CHROMIUM") if name in os.environ}
        system = ":".join(each for each in os.defpath.split(":") if each)
        self.environment = {**inherited, "HOME": str(self.home), "PATH": system, "COLUMNS": "160"}

    def _set_up(self) -> None:
        """The clone as `make setup` leaves it, with this environment's programs."""
        (self.clone / ".venv").mkdir(parents=True)
        for name in ("Makefile", "pyproject.toml", "requirements", "scripts"):
            (self.clone / name).symlink_to(ROOT / name)
        (self.clone / ".venv" / "bin").symlink_to(Path(sys.executable).parent)
        for name in ("lib", "pyvenv.cfg"):  # so that `.venv/bin/python` finds the packages
            (self.clone / ".venv" / name).symlink_to(Path(sys.prefix) / name)
        for stamp in (".made", ".run", ".dev"):
            (self.clone / ".venv" / stamp).touch()

    def paste(self, lines: list[str]) -> list[tuple[int, str, str]]:
        """Exit code, output and errors of each line, pasted into one shell."""
        errors = self.home / ".errors"
        typed = "".join(
            f"{line}\nprintf '{END}%s{END}' $?; cat {errors}; printf '{END}'; : > {errors}\n" for line in lines
        )
        done = subprocess.run(
            ["bash", "--noprofile", "--norc", "-c", f"exec 2>>{errors}\n{typed}"],
            cwd=self.clone,
            env=self.environment,
            capture_output=True,
            text=True,
            check=False,
            stdin=subprocess.DEVNULL,
        )
        parts = done.stdout.split(END)
        return [(int(parts[at + 1]), parts[at], parts[at + 2]) for at in range(0, len(parts) - 1, 3)]


@pytest.fixture(params=SITUATIONS)
def newcomer(request: pytest.FixtureRequest, tmp_path: Path) -> Newcomer:
    return Newcomer(tmp_path, has_transcripts=request.param == SITUATIONS[1])


def check_page(newcomer: Newcomer, listed: list[tuple[str, str]]) -> None:
    results = newcomer.paste([command for command, _ in listed])

    assert len(results) == len(listed)
    for (command, expected), (code, out, err) in zip(listed, results, strict=True):
        assert code == 0, (command, out, err)
        assert "no space is called" not in err, (command, "a page hides no warning")
        assert is_printed(expected, out), (command, out, err)


@pytest.mark.parametrize("page", ["docs/quickstart.md", "docs/tours/coding-agents.md", "docs/tours/constellation.md"])
def test_every_line_of_a_page_works_when_pasted(page: str, newcomer: Newcomer) -> None:
    """keeps: U-11. It works offline, without a key, with the user's own transcripts and without any."""
    listed = commands(page)
    assert len(listed) > 5

    check_page(newcomer, listed)


@pytest.mark.parametrize("page", ["README.md", "docs/tours/python.md"])
def test_every_example_works_when_pasted_into_the_prompt_of_the_page(page: str, newcomer: Newcomer) -> None:
    """keeps: U-11. The page names the command that starts the prompt."""
    text = (ROOT / page).read_text(encoding="utf-8")
    examples = EXAMPLE.findall(text)
    assert examples
    assert PROMPT in text
    newcomer.environment["MICA_BRIEF_DEADLINE_S"] = "10"  # a busy machine must not change the answer

    done = subprocess.run(
        PROMPT.split(),
        cwd=newcomer.clone,
        env=newcomer.environment,
        input="".join(f"{code}\n" for code, _ in examples),
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr, done.stderr
    printed = done.stdout.replace(">>> ", "").replace("... ", "")
    assert is_printed("…".join(["", *(output for _, output in examples), ""]), printed), printed


@pytest.fixture
def team_server() -> Iterator[list[str]]:
    """The lines that the command of the team tour prints while its server runs."""
    with subprocess.Popen(
        [sys.executable, "-m", "mica.testing.postgres"], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        try:
            yield [process.stdout.readline().rstrip("\n") for _ in range(2)]
        finally:
            process.send_signal(signal.SIGINT)
            process.communicate()


def test_every_line_of_the_team_tour_works_when_pasted(newcomer: Newcomer, team_server: list[str]) -> None:
    listed = commands("docs/tours/team.md")
    assert ".venv/bin/python -m mica.testing.postgres" in (ROOT / "docs/tours/team.md").read_text(encoding="utf-8")
    assert len(listed) > 5

    check_page(newcomer, [*((line, "") for line in team_server), *listed])


def readme_commands() -> list[str]:
    block = SHELL.search((ROOT / "README.md").read_text(encoding="utf-8"))
    assert block is not None
    return block["block"].splitlines()


def test_the_readme_has_six_commands_on_one_and_a_half_screens() -> None:
    assert len(readme_commands()) == 6
    # In zsh, the usual shell of macOS, a pasted comment is passed to the command as arguments.
    assert not any("#" in line for line in readme_commands())
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) <= 75


def test_every_command_of_the_readme_works_when_pasted(newcomer: Newcomer) -> None:
    """keeps: U-11. The shell has no activated environment, and each command has something to show."""
    first, *others = readme_commands()
    assert first == "make run"

    for line, (code, out, err) in zip(others, newcomer.paste(others), strict=True):
        assert code == 0, (line, out, err)
        assert out.strip(), line
        assert not re.match("no(thing)? ", out, flags=re.IGNORECASE), (line, out)


@pytest.fixture
def running(newcomer: Newcomer) -> Iterator[subprocess.Popen[str]]:
    """`make run`, as in the README."""
    with subprocess.Popen(
        ["make", "run", "ARGS=--port 0"],  # another program of this machine may use the usual port
        cwd=newcomer.clone,
        env=newcomer.environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    ) as process:
        try:
            yield process
        finally:
            os.killpg(process.pid, signal.SIGINT)
            process.communicate()


def test_make_run_serves_and_says_how_to_put_mica_on_the_path(
    newcomer: Newcomer, running: subprocess.Popen[str]
) -> None:
    """keeps: U-11. One command gives a first look with a dashboard."""
    assert running.stdout is not None
    lines: list[str] = []
    for line in running.stdout:
        lines.append(line)
        if "export PATH=" in line:
            break

    printed = "".join(lines)
    assert "Open http://127.0.0.1:" in printed
    assert "`.venv/bin/mica server open` makes another" in printed, "a command that can be pasted"
    link = next(line.split()[1] for line in lines if line.startswith("Open "))
    with pytest.raises(HTTPError) as outdated:
        urlopen(link.partition("=")[0] + "=an-old-key")
    assert "`.venv/bin/mica server open` makes a new one" in outdated.value.read().decode()
    assert "What happened lately" in printed
    assert ("This is the bundled sample" in printed) is not newcomer.has_transcripts
    assert f"{newcomer.clone}/.venv/bin" in printed or str(Path(sys.executable).parent) in printed


def test_a_page_with_different_output_is_noticed() -> None:
    assert is_printed("#… \n", "#1  01m7hm\n")
    assert is_printed("a …b\n", "a long b\n")
    assert not is_printed("a\n", "b\n")
    assert not is_printed("[]\n", '[{"id": 1}]\n')

"""The tours: every command on their pages runs, in order, and prints what the page says."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from pathlib import Path

import pytest
from click.testing import CliRunner

from mica.cli import cli
from mica.testing.postgres import APP, Server
from mica.testing.postgres import OWNER as OWNER_ROLE

TOURS = Path(__file__).parent.parent / "docs" / "tours"
BLOCK = re.compile(r"```console\n(?P<block>.*?)```", re.DOTALL)
USER, OWNER = "postgresql://mica@db.example/mica", "postgresql://owner@db.example/mica"


def commands(page: Path) -> list[tuple[str, str]]:
    """Every command of a page, and what it is said to print."""
    found = []
    for block in BLOCK.finditer(page.read_text(encoding="utf-8")):
        for part in re.split(r"^\$ ", block["block"], flags=re.MULTILINE)[1:]:
            command, _, printed = part.partition("\n")
            found.append((command, printed))
    return found


def spoken(command: str, real: Mapping[str, str]) -> str:
    """A command with addresses that are there in place of those of the page."""
    for written, meant in real.items():
        command = command.replace(written, meant)
    return command


def fits(expected: str, printed: str) -> bool:
    """Whether this was printed: `…` stands for anything, and where lines are broken does not matter."""

    def flat(text: str) -> str:
        return " ".join(text.split())

    pattern = ".*".join(re.escape(flat(part)) for part in expected.split("…"))
    return re.fullmatch(rf"\s*{pattern}\s*", flat(printed), re.DOTALL) is not None


@pytest.mark.parametrize("name", ["coding-agents", "constellation", "team"])
def test_every_command_of_a_tour_prints_what_the_page_says(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    """U-11: a newcomer types what the page says, offline and without a key, and sees what it says."""
    (tmp_path / "shop" / ".git").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "shop")
    real: dict[str, str] = {}
    if name == "team":
        server: Server = request.getfixturevalue("server")
        schema = "&schema=tour"
        real[f"{USER}?"] = f"{server.dsn(role=APP)}{schema}&"
        real[f'"{OWNER}" --admit mica'] = f'"{server.dsn(role=OWNER_ROLE)}{schema}" --admit {APP}'
    variables = {"HOME": str(tmp_path / "home"), "MICA_SEMANTIC": "off", "COLUMNS": "160"}
    listed = commands(TOURS / f"{name}.md")
    assert len(listed) > 5

    for command, expected in listed:
        words = shlex.split(spoken(command, real))
        assert words[0] == "mica"
        result = CliRunner().invoke(cli, words[1:], env=variables, prog_name="mica")
        assert result.exit_code == 0, (command, result.output, result.exception)
        assert fits(expected, result.stdout), (command, result.output)


def test_what_the_readme_shows_of_the_sample_shows_something(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """U-11: typed right after the first look, each of these commands has an answer."""
    monkeypatch.chdir(tmp_path)
    variables = {"HOME": str(tmp_path / "home"), "MICA_SEMANTIC": "off", "COLUMNS": "160"}
    readme = (TOURS.parent.parent / "README.md").read_text(encoding="utf-8")
    listed = re.findall(r"^\.venv/bin/mica (.*--space sample)", readme, flags=re.MULTILINE)
    assert len(listed) >= 5

    assert CliRunner().invoke(cli, ["up", "--once"], env=variables, prog_name="mica").exit_code == 0
    for command in listed:
        result = CliRunner().invoke(cli, shlex.split(command), env=variables, prog_name="mica")

        assert result.exit_code == 0, (command, result.output, result.exception)
        assert result.stdout.strip(), command
        assert not re.match("no(thing)? ", result.stdout, flags=re.IGNORECASE), (command, result.stdout)


def test_a_page_that_says_something_else_is_found_out() -> None:
    assert fits("#… \n", "#1  01m7hm\n")
    assert fits("a …b\n", "a long b\n")
    assert not fits("a\n", "b\n")
    assert not fits("[]\n", '[{"id": 1}]\n')

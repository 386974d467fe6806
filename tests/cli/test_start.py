"""mica up: from transcripts to a first look, with the user's own and with the sample."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest
from tests.cli.terminal import FIXTURES, Terminal

from mica.settings import load_settings
from mica.store.space import space_of
from mica.web.process import only_server


def test_up_without_transcripts_shows_the_sample_and_says_so(terminal: Terminal) -> None:
    """keeps: U-11. One command gives a first look, offline."""
    result = terminal.run("up", "--once")
    assert result.exit_code == 0, result.output
    assert "This is the bundled sample" in result.stdout
    assert "What your agents did lately" in result.stdout
    assert "What the next agent would receive" in result.stdout
    assert "mica search" in result.stdout
    assert "--space sample" in result.stdout
    assert "mica navigate" not in result.stdout  # its files are not on this machine
    document = terminal.json("up")
    assert isinstance(document, dict)
    assert document["is_sample"] is True
    assert document["imported"]["sample"]["events"] == 0
    assert document["brief"]["text"]


def test_up_imports_the_transcripts_it_finds(terminal: Terminal, transcripts: Path) -> None:
    result = terminal.run("up", "--once")
    assert result.exit_code == 0, result.output
    assert "Found 2 transcripts" in result.stdout
    assert "Explain how auth works" in result.stdout
    assert "src/auth.py" in result.stdout
    assert "sample" not in result.stdout


def test_a_folder_without_transcripts_shows_the_sample(terminal: Terminal, transcripts: Path) -> None:
    for path in (transcripts / "-home-dev-shop").iterdir():
        path.write_text("")
    result = terminal.run("up", "--once")
    assert result.exit_code == 0, result.output
    assert "This is the bundled sample" in result.stdout


def test_up_without_import_shows_a_space_that_a_server_holds(terminal: Terminal, transcripts: Path) -> None:
    terminal.run("mark", "The cookie is set before the redirect")
    settings = load_settings(terminal.variables)
    with only_server(space_of(Path.cwd(), home=settings.home).file, address="http://127.0.0.1:1"):
        shown = terminal.run("up", "--once", "--no-import")
        document = terminal.json("up", "--no-import")

    assert shown.exit_code == 0, shown.output
    assert "The cookie is set before the redirect" in shown.stdout
    assert isinstance(document, dict)
    assert "cookie" in document["brief"]["text"]
    assert "imported" not in document


def test_up_again_says_that_nothing_is_new(terminal: Terminal, transcripts: Path) -> None:
    terminal.run("up", "--once")
    assert "Nothing new in 2 transcripts" in terminal.run("up", "--once").stdout


def test_up_into_one_store_says_so(terminal: Terminal, transcripts: Path, tmp_path: Path) -> None:
    result = terminal.run("up", "--once", "--store", str(tmp_path / "one.db"))
    assert "all go into" in result.stdout.replace("\n", " ")
    assert f"--store {tmp_path / 'one.db'}" in result.stdout


def test_overview_of_a_space(terminal: Terminal, transcripts: Path) -> None:
    terminal.run("up", "--once")
    [name] = [row["name"] for row in json.loads(terminal.run("upkeep", "spaces", "--json").stdout)]
    document = terminal.json("events", "overview", "--space", name)
    assert isinstance(document, dict)
    assert document["overview"]["usage"]["answers"] == 15
    assert document["overview"]["files"][0]["path"] == "src/auth.py"


def projects(terminal: Terminal, *directories: Path) -> None:
    """A transcript for each directory, the last one the latest."""
    source = next(FIXTURES.glob("*transcript-a*")).read_text()
    for number, directory in enumerate(directories):
        directory.mkdir(parents=True, exist_ok=True)
        file = terminal.home / ".claude" / "projects" / f"-{number}" / f"{number}.jsonl"
        file.parent.mkdir(parents=True)
        moved = source.replace("/home/dev/shop", str(directory))
        file.write_text(moved.replace('sessionId":"', f'sessionId":"{number}'))
        os.utime(file, (number, number))


def test_up_lists_several_projects_with_the_current_directorys_first(terminal: Terminal, tmp_path: Path) -> None:
    projects(terminal, Path.cwd(), tmp_path / "mail", tmp_path / "shop")

    shown = terminal.run("up", "--once")

    assert shown.exit_code == 0, shown.output
    assert "Found 3 transcripts" in shown.stdout
    assert "in 3 projects" in shown.stdout
    table = shown.stdout.partition("directory")[2].splitlines()[1:]
    assert [line.partition("-")[0] for line in table if " kB " in line] == ["project", "shop", "mail"]
    assert "(here)" in table[0]
    assert 'mica brief "your task" ' in shown.stdout
    assert "--space" not in shown.stdout, "commands typed here are about the project shown"


def test_up_elsewhere_shows_the_latest_project_and_how_to_name_it(
    terminal: Terminal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    projects(terminal, tmp_path / "mail", tmp_path / "shop")
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")

    shown = terminal.run("up", "--once").stdout

    assert 'mica search "words" --space shop ' in shown
    assert terminal.run("search", "session", "--space", "shop").exit_code == 0


def test_the_sample_is_shown_at_any_time(terminal: Terminal, transcripts: Path) -> None:
    shown = terminal.run("up", "--sample", "--once")

    assert shown.exit_code == 0, shown.output
    assert "This is the bundled sample, an invented web shop." in shown.stdout
    assert "No transcripts" not in shown.stdout
    assert [row["name"] for row in terminal.documents("upkeep", "spaces")] == ["sample"], "nothing else was imported"
    assert terminal.documents("up", "--sample", "--once")[0]["is_sample"] is True
    assert terminal.run("up", "--sample", "--no-import").exit_code == 2


def test_up_says_how_a_shell_finds_mica(terminal: Terminal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "bin" / "mica"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    monkeypatch.setattr(sys, "argv", [str(program), "up"])

    hidden = terminal.run("up", "--sample", "--once", PATH="/nowhere").stdout
    found = terminal.run("up", "--sample", "--once", PATH=str(program.parent)).stdout

    assert f'export PATH="{program.parent}:$PATH"' in hidden
    assert "export PATH" not in found

"""The first page of help, and the suggestions for unknown commands."""

from __future__ import annotations

import re
from pathlib import Path

import click
import pytest
from tests.cli.terminal import Terminal

import mica.cli as cli_package
from mica.cli import EVERYDAY, GROUPS, cli
from mica.cli.groups import SUGGESTIONS, command_paths

EVERYDAY_NAMES = (
    "up install uninstall import export mark search brief navigate handoff beliefs why purge doctor".split()
)
GROUP_NAMES = "events crystals trails sources briefs server upkeep".split()


def test_mica_alone_shows_everyday_commands_then_groups(terminal: Terminal) -> None:
    page = terminal.run()

    assert page.exit_code == 0
    assert page.stderr == ""
    everyday, groups = page.stdout.split("Every day:")[1].split("Groups of commands:")
    assert [line.split()[0] for line in everyday.splitlines() if line.strip()] == EVERYDAY_NAMES
    assert [line.split()[0] for line in groups.splitlines() if line.strip()] == GROUP_NAMES


def test_commands_of_machines_are_hidden_and_work(terminal: Terminal) -> None:
    assert [name for name, command in cli.commands.items() if command.hidden] == ["hook", "ingest", "mcp"]
    assert {command.name for command in (*EVERYDAY, *GROUPS)} == {*EVERYDAY_NAMES, *GROUP_NAMES}
    assert terminal.json("ingest")


@pytest.mark.parametrize("group", ["", "beliefs", *GROUP_NAMES, "server token", "upkeep hooks"])
def test_every_summary_fits_on_its_line(terminal: Terminal, group: str) -> None:
    assert "..." not in terminal.run(*group.split(), "--help").stdout.partition("Options:")[2]


@pytest.mark.parametrize(
    ("typed", "suggestion"),
    [
        (["remember", "it"], "`mica mark` or `mica beliefs add`"),
        (["correct", "12"], "`mica beliefs correct`"),
        (["beliefs", "forget"], "`mica beliefs end`"),
        (["forget"], "`mica purge`"),
        (["delete", "12"], "`mica purge`"),
        (["status"], "`mica doctor`"),
        (["list"], "`mica events tail`, `mica crystals list`, `mica trails list` or `mica upkeep spaces`"),
        (["tail"], "`mica events tail`"),
        (["retract", "12"], "`mica crystals retract`"),
        (["replay"], "`mica events replay` or `mica trails replay`"),
        (["serach", "cookie"], "`mica search`"),
        (["events", "tial"], "`mica events tail`"),
    ],
)
def test_an_unknown_command_names_the_one_that_was_meant(terminal: Terminal, typed: list[str], suggestion: str) -> None:
    refused = terminal.run(*typed)

    assert (refused.exit_code, refused.stdout) == (2, "")
    assert f"Did you mean {suggestion}" in refused.stderr


def test_an_unrecognizable_word_leads_to_the_help(terminal: Terminal) -> None:
    assert "`mica --help` lists the commands" in terminal.run("zzzzzz").stderr
    assert "`mica events --help` lists the commands" in terminal.run("events", "zzzzzz").stderr


def test_every_suggestion_is_a_command_for_a_word_that_is_none() -> None:
    paths = {" ".join(path) for path in command_paths(cli)}

    assert set(SUGGESTIONS) == {"decisions", "delete", "forget", "list", "remember", "rules", "status"}
    assert not paths & set(SUGGESTIONS)
    assert {path for suggested in SUGGESTIONS.values() for path in suggested} <= paths


def test_every_command_has_an_example_of_itself() -> None:
    for path in command_paths(cli):
        command: click.Command = cli
        for word in path:
            assert isinstance(command, click.Group)
            command = command.commands[word]
        if not isinstance(command, click.Group):
            assert command.help is not None
            assert f"Example: mica {' '.join(path)}" in command.help, path


NAMED = re.compile(r"(?:`|<code>|<pre>|Example: )mica ((?:[a-z][a-z-]*(?: |\b))+)")


def test_every_command_that_a_message_names_exists() -> None:
    paths = set(command_paths(cli)) | {(name,) for name in cli.commands}
    groups = {path[:-1] for path in paths}

    for file in (Path(cli_package.__file__).parents[1]).rglob("*"):
        if file.suffix not in (".py", ".html"):
            continue
        for match in NAMED.finditer(file.read_text(encoding="utf-8")):
            words = tuple(match[1].split())
            path = max(
                (words[:length] for length in range(len(words) + 1) if words[:length] in paths), key=len, default=()
            )
            assert path, f"{file.name}: mica {match[1]}"
            assert path not in groups or path == words, f"{file.name}: mica {match[1]}"


@pytest.mark.parametrize(
    "words", ["hook", "ingest", "mcp", "trails explore", "trails load", "trails list", "trails show"]
)
def test_a_command_in_a_file_that_an_older_mica_installed_still_works(terminal: Terminal, words: str) -> None:
    """Launchers, hooks and published commands are written once and stay after an upgrade."""
    assert terminal.run(*words.split(), "--help").exit_code == 0


@pytest.mark.parametrize("option", ["--count", "--lines"])
def test_an_option_of_other_programs_leads_to_ours(terminal: Terminal, option: str) -> None:
    """The letters of --count are most like those of --json."""
    refused = terminal.run("events", "tail", option, "0")

    assert refused.exit_code == 2
    assert "Did you mean '--limit'?" in refused.stderr
    assert "--limit" not in terminal.run("doctor", option, "1").stderr, "it has no such option"

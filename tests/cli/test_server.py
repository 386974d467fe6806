"""mica server: tokens and the link to the dashboard."""

from __future__ import annotations

import json
from pathlib import Path

from click.testing import CliRunner
from tests.cli.terminal import Terminal

from mica.cli import cli


def test_a_token_for_an_unknown_space_is_made_with_a_warning(tmp_path: Path) -> None:
    variables = {"HOME": str(tmp_path)}
    CliRunner().invoke(cli, ["up", "--once", "--json"], env={**variables, "MICA_SEMANTIC": "off"})
    made = CliRunner().invoke(
        cli, ["server", "token", "make", "z", "--space", "nosuch", "--space", "sample"], env=variables
    )

    assert made.exit_code == 0, made.output
    assert made.stdout.startswith("mica_")
    assert "no space is called 'nosuch' yet" in made.stderr
    assert "'sample'" not in made.stderr


def test_tokens_are_made_listed_and_revoked_by_commands(tmp_path: Path) -> None:
    variables = {"HOME": str(tmp_path)}

    def run(*arguments: str) -> str:
        done = CliRunner().invoke(cli, ["server", "token", *arguments], env=variables)
        assert done.exit_code == 0, done.output
        return done.stdout

    secret = run("make", "laptop", "--space", "shop", "--days", "3").strip()
    run("make", "reader", "--scope", "read")
    run("make", "admin", "--scope", "admin")
    listed, *others = json.loads(run("list", "--json"))

    assert secret.startswith("mica_")
    assert secret not in run("list")
    assert (listed["name"], listed["scopes"], listed["spaces"]) == ("laptop", ["read", "write"], ["shop"])
    assert [each["scopes"] for each in others] == [["read"], ["read", "write", "admin"]]
    assert "laptop  read, write in shop, until" in run("list")
    assert "reader  read in all spaces" in run("list")
    for each in (listed, *others):
        run("revoke", each["id"])
    assert json.loads(run("list", "--json")) == []


def test_open_without_a_server_says_how_to_start_one(terminal: Terminal) -> None:
    refused = terminal.run("server", "open")

    assert (refused.exit_code, refused.stdout) == (1, "")
    assert refused.stderr == "mica: no server is running; `mica up` starts one\n"
    assert "no server is running at port 7000" in terminal.run("server", "open", "--port", "7000").stderr


def test_a_terminal_dashboard_needs_a_terminal(terminal: Terminal) -> None:
    refused = terminal.run("server", "tui")

    assert refused.exit_code == 1
    assert "the dashboard needs a terminal; `mica crystals list` works without one" in refused.stderr

"""The trails commands: each parses, calls memory, prints."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from mica.cli import cli


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> CliRunner:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "src").mkdir()
    for name in ("auth", "session"):
        (tmp_path / f"src/{name}.py").write_text("".join(f"line_{number} = {number}\n" for number in range(60)))
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    for name in ("XDG_DATA_HOME", "XDG_CONFIG_HOME", "MICA_CONFIG", "MICA_STORE"):
        monkeypatch.delenv(name, raising=False)
    return CliRunner()


def told(run: CliRunner, *arguments: str) -> str:
    done = run.invoke(cli, [*arguments], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.stdout


def test_a_trail_is_made_listed_shown_and_published(run: CliRunner, tmp_path: Path) -> None:
    """A-32, A-31, K-10: the verbs of trails, for people and as JSON."""
    assert "No trail was learned yet" in told(run, "trails", "list")
    made = told(run, "trails", "create", "login", "src/auth.py:10-40", "src/session.py", "--description", "Signing in")
    assert "1. src/auth.py:10-40" in made
    assert "2. src/session.py (full)" in made
    assert "Saving: unknown, not measured" in made

    (listed,) = json.loads(told(run, "trails", "list", "--json"))
    assert (listed["name"], listed["entry"], listed["saving"]) == ("nav:login", "src/auth.py", None)
    assert json.loads(told(run, "trails", "show", "nav:login", "--json"))["key"] == listed["key"]

    assert "written   .claude/commands/nav/login.md" in told(run, "trails", "publish", "--write")
    assert (tmp_path / ".claude/commands/nav/login.md").exists()
    assert told(run, "trails", "rename", "login", "sign-in").startswith("nav:sign-in")
    fates = json.loads(told(run, "trails", "publish", "--write", "--json"))
    assert {"path": ".claude/commands/nav/login.md", "fate": "removed", "reason": ""} in fates


def test_a_trail_is_explored_tracked_suspended_and_measured(run: CliRunner) -> None:
    """A-33, A-07, TA-12: on request, with the reason for each."""
    told(run, "trails", "create", "login", "src/auth.py", "src/session.py")
    assert "2 of its files are there" in told(run, "trails", "explore", "src")
    assert "No trail leads there" in told(run, "trails", "explore", "nowhere/else")
    assert json.loads(told(run, "trails", "explore", "src/auth.py", "--json"))[0]["match"] == "shape"
    assert told(run, "trails", "track", "login", "--outcome", "failure") == "Recorded: login, failure.\n"
    assert "0 of 1 tasks succeeded, which is too few" in told(run, "trails", "show", "login")
    assert "Suspended: moved" in told(run, "trails", "suspend", "login", "--reason", "moved")
    assert json.loads(told(run, "trails", "stats", "--json"))["trails"] == 1
    assert "1 trail (1 cooling) for 1 kind of task" in told(run, "trails", "stats")


def test_learning_is_run_and_switched(run: CliRunner) -> None:
    """A-32, A-47, A-17: now, off, on; and the day's report."""
    assert told(run, "trails", "learn") == "0 trails; `mica trails list` shows them.\n"
    assert told(run, "trails", "learn", "off") == "Learning is off.\n"
    assert told(run, "trails", "learn", "status") == "Learning is off.\n"
    assert json.loads(told(run, "trails", "learn", "on", "--json")) == {"learning": True, "trails": None}
    assert told(run, "evolve") == "0 trails for 0 kinds of task: none\n"
    assert json.loads(told(run, "evolve", "--json"))["crystallized"] == []


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (["show", "nobody"], 1, "mica: no trail 'nobody'"),
        (["create", "login"], 2, "give files, or --from"),
        (["create", "Log In", "a.py"], 1, "mica: a trail cannot be called 'Log In'"),
        (["create", "login", "a.py:9-1"], 2, "has no lines from 9 to 1"),
        (["create", "login", "../a.py"], 1, "is not a path within the project"),
        (["create", "login", "src/nowhere.py"], 1, "'src/nowhere.py' cannot be a step: there is no such file"),
        (["create", "login", "src/auth.py:900-1000"], 1, "'src/auth.py' cannot be a step"),
        (["publish"], 2, "give --write for this project, or --to"),
    ],
)
def test_wrong_use_is_one_line(run: CliRunner, arguments: list[str], code: int, says: str) -> None:
    """K-03: what cannot be meant is refused, in words."""
    done = run.invoke(cli, ["trails", *arguments])
    assert done.exit_code == code
    assert says in done.stderr


@pytest.mark.parametrize("name", ["help", "explore", "handoff"])
def test_a_trail_cannot_take_the_name_of_a_command_of_ours(run: CliRunner, name: str) -> None:
    """K-10, A-23: what is generated never stands over what is there."""
    result = run.invoke(cli, ["trails", "create", name, "src/auth.py"])
    assert result.exit_code == 1
    assert "command of mica's own" in result.output


def test_files_that_have_a_name_keep_it(run: CliRunner) -> None:
    """A-23: making a second trail of the same files never takes the first away."""
    told(run, "trails", "create", "login", "src/auth.py:10-40")
    result = run.invoke(cli, ["trails", "create", "signing-in", "src/auth.py:50-60"])
    assert result.exit_code == 1
    assert "nav:login already" in result.output
    assert "nav:login" in told(run, "trails", "show", "login")

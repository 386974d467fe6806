"""The trails commands: each parses, calls memory, prints."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner
from rich.console import Console

from mica.cli import cli
from mica.cli.trails import _print_trail
from mica.model.trail import Trail
from mica.model.walk import Step
from mica.testing.builders import START_AT, build


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


def printed(run: CliRunner, *arguments: str) -> str:
    done = run.invoke(cli, [*arguments], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.stdout


def test_a_trail_is_made_listed_shown_and_published(run: CliRunner, tmp_path: Path) -> None:
    """keeps: A-32, A-31, K-10. Each command prints text or JSON."""
    assert "There is no memory of this directory yet" in printed(run, "trails", "list")
    printed(run, "mark", "one")
    assert "No trails yet" in printed(run, "trails", "list")
    made = printed(
        run, "trails", "create", "login", "src/auth.py:10-40", "src/session.py", "--description", "Signing in"
    )
    assert "1. src/auth.py:10-40" in made
    assert "2. src/session.py (full)" in made
    assert "tokens, never used\n" in made, "making it is not using it"
    assert "Saving: not measured" in made

    assert printed(run, "trails", "list").split()[-1] == "never"
    assert "Never used." in (tmp_path / ".claude/commands/nav/login.md").read_text()
    (listed,) = json.loads(printed(run, "trails", "list", "--json"))
    assert (listed["name"], listed["entry"], listed["saving"]) == ("nav:login", "src/auth.py", None)
    assert json.loads(printed(run, "trails", "show", "nav:login", "--json"))["key"] == listed["key"]

    (tmp_path / ".claude/commands/nav/login.md").unlink()
    assert "written   .claude/commands/nav/login.md" in printed(run, "trails", "publish", "--write")
    assert (tmp_path / ".claude/commands/nav/login.md").exists()
    assert printed(run, "trails", "rename", "login", "sign-in").startswith("nav:sign-in")
    fates = json.loads(printed(run, "trails", "publish", "--write", "--json"))
    assert {"path": ".claude/commands/nav/login.md", "fate": "removed", "reason": ""} in fates


def test_a_trail_whose_files_agents_no_longer_use_is_shown_as_out_of_date(capsys: pytest.CaptureFixture[str]) -> None:
    """keeps: A-31"""
    trail = Trail(
        key="k",
        exact="e",
        slug="login",
        shape="fix-login",
        description="Signing in",
        steps=(Step(path="a.py", operation="read", event=build(1).id, at=START_AT),),
        first_at=START_AT,
        last_at=START_AT,
        drifted=True,
    )

    _print_trail(Console(width=120), trail)
    _print_trail(Console(width=120), msgspec.structs.replace(trail, drifted=False))

    assert capsys.readouterr().out.count("Out of date: agents used other files since") == 1


def test_a_trail_is_explored_tracked_suspended_and_measured(run: CliRunner) -> None:
    """keeps: A-33, TA-12"""
    printed(run, "trails", "create", "login", "src/auth.py", "src/session.py")
    assert "2 of its files are there" in printed(run, "trails", "explore", "src")
    assert "No trail leads there" in printed(run, "trails", "explore", "nowhere/else")
    assert json.loads(printed(run, "trails", "explore", "src/auth.py", "--json"))[0]["match"] == "shape"
    assert printed(run, "trails", "track", "login", "--outcome", "failure") == "Recorded: login, failure.\n"
    assert "last used" in printed(run, "trails", "show", "login")
    assert "0 of 1 tasks succeeded, which is too few" in printed(run, "trails", "show", "login")
    assert "Suspended: moved" in printed(run, "trails", "suspend", "login", "--reason", "moved")
    assert json.loads(printed(run, "trails", "stats", "--json"))["trails"] == 1
    assert "1 trail (1 cooling) for 1 kind of task" in printed(run, "trails", "stats")


def test_learning_runs_on_request_and_is_switched_on_and_off(run: CliRunner) -> None:
    """keeps: A-32, A-47, A-17. The report of the day is printed too."""
    assert printed(run, "trails", "learn") == "0 trails; `mica trails list` shows them.\n"
    assert printed(run, "trails", "learn", "off") == "Learning is off.\n"
    assert printed(run, "trails", "learn", "status") == "Learning is off.\n"
    assert json.loads(printed(run, "trails", "learn", "on", "--json")) == {"learning": True, "trails": None}
    assert printed(run, "trails", "evolve") == "0 trails for 0 kinds of task: none\n"
    assert json.loads(printed(run, "trails", "evolve", "--json"))["crystallized"] == []


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["show", "nobody"], 1, "mica: no trail 'nobody'"),
        (["create", "login"], 2, "give either files or --from"),
        (["create", "Log In", "a.py"], 1, "mica: a trail cannot be called 'Log In'"),
        (["create", "login", "a.py:9-1"], 2, "has no lines from 9 to 1"),
        (["create", "login", "../a.py"], 1, "is not a path within the project"),
        (["create", "login", "src/nowhere.py"], 1, "'src/nowhere.py' cannot be a step: there is no such file"),
        (["create", "login", "src/auth.py:900-1000"], 1, "'src/auth.py' cannot be a step"),
        (["create", "login", "src/auth.py:1-9999"], 1, "'src/auth.py' has no lines 1-9999: it has 60 lines"),
        (["publish"], 2, "give either --write (this project) or --to"),
    ],
)
def test_wrong_usage_is_reported_in_one_line(run: CliRunner, arguments: list[str], code: int, message: str) -> None:
    """keeps: K-03"""
    done = run.invoke(cli, ["trails", *arguments])
    assert done.exit_code == code
    assert message in done.stderr


@pytest.mark.parametrize("name", ["help", "explore", "handoff"])
def test_a_trail_cannot_take_the_name_of_a_built_in_command(run: CliRunner, name: str) -> None:
    """keeps: K-10, A-23. A generated command never replaces an existing one."""
    result = run.invoke(cli, ["trails", "create", name, "src/auth.py"])
    assert result.exit_code == 1
    assert "is a command of mica" in result.output


def test_a_second_trail_of_the_same_files_is_refused(run: CliRunner) -> None:
    """The first one stays."""
    printed(run, "trails", "create", "login", "src/auth.py:10-40")
    result = run.invoke(cli, ["trails", "create", "signing-in", "src/auth.py:50-60"])
    assert result.exit_code == 1
    assert "already the trail nav:login" in result.output
    assert "nav:login" in printed(run, "trails", "show", "login")


def test_creating_a_trail_writes_its_command(run: CliRunner, tmp_path: Path) -> None:
    """keeps: A-14. It reports the file; an option leaves files alone."""
    made = printed(run, "trails", "create", "login", "src/auth.py:10-40")
    other = json.loads(printed(run, "trails", "create", "session", "src/session.py", "--no-publish", "--json"))

    assert "written   .claude/commands/nav/login.md" in made
    assert "src/auth.py:10-40" in (tmp_path / ".claude/commands/nav/login.md").read_text()
    assert other["published"] == []
    assert not (tmp_path / ".claude/commands/nav/session.md").exists()


def test_a_trail_becomes_a_command_of_the_installed_clients(run: CliRunner, tmp_path: Path) -> None:
    """keeps: A-14"""
    (tmp_path / "home" / ".claude").mkdir(parents=True)
    assert run.invoke(cli, ["install", "claude-code", "--yes"]).exit_code == 0

    made = json.loads(printed(run, "trails", "create", "login", "src/auth.py", "--json"))

    assert [Path(each["path"]).name for each in made["published"] if "login" in each["path"]] == ["login.md"]
    assert (tmp_path / ".claude/commands/nav/login.md").exists()
    assert not (tmp_path / ".agents").exists(), "no client that is installed reads it"


def test_a_command_that_cannot_be_written_is_reported_with_the_reason(run: CliRunner) -> None:
    printed(run, "up", "--sample", "--once")
    made = printed(run, "trails", "create", "sign-in", "--from", "nav:add-login-session", "--space", "sample")

    assert made.endswith("No command was written: the folder of the project sample is not on this machine.\n")


def test_a_command_that_is_switched_off_is_reported_with_the_reason(
    run: CliRunner, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    config = tmp_path / "config.toml"
    config.write_text("[trails]\npublish = false\n")
    monkeypatch.setenv("MICA_CONFIG", str(config))

    made = printed(run, "trails", "create", "login", "src/auth.py")

    assert "No command was written: the setting trails.publish is off" in made
    assert not list(tmp_path.rglob("login.md"))

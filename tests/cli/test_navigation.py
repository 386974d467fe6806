"""mica trails replay: the user's history, replayed with only what was known at each time."""

from __future__ import annotations

import asyncio
import shutil
import subprocess
from datetime import UTC, datetime, timedelta
from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner

import mica
from mica.cli import cli
from mica.testing import HandClock

FIXTURES = Path(__file__).parent.parent / "fixtures" / "claude-code"
BEGIN = datetime(2026, 3, 2, 9, tzinfo=UTC)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A repository of three files, and a log of twelve tasks that search for the same one."""
    root = tmp_path / "shop"
    root.mkdir()
    for name, text in {"cart.py": "def total(basket): ...", "mail.py": "def send(): ...", "auth.py": "x = 1"}.items():
        (root / name).write_text(text)
    stamp = (BEGIN - timedelta(days=1)).isoformat()
    for args in (["init", "-q"], ["add", "-A"], ["commit", "-qm", "begin", f"--date={stamp}"]):
        who = ["-c", "user.name=a", "-c", "user.email=a@example.com"]
        environment = {"GIT_COMMITTER_DATE": stamp, "PATH": "/usr/bin:/bin", "HOME": str(tmp_path)}
        subprocess.run(["git", *who, *args], cwd=root, check=True, env=environment)
    asyncio.run(_worked(tmp_path / "shop.db", root))
    return root


async def _worked(store: Path, root: Path) -> None:
    clock = HandClock(BEGIN)
    async with mica.open(store, clock=clock) as memory:
        memory.emit("session.started", {"cwd": str(root)})
        for number in range(12):
            clock.move(hours=1)
            with memory.context(session=f"s{number}"):
                asked = memory.mark("The basket shows a wrong total after checkout", tags=("prompt",))
                for name, tokens in (("search", 900), ("read", 40), ("edit", 5)):
                    clock.move(seconds=5)
                    step = {"path": "cart.py", "tokens": tokens, "call": f"{name}{number}"}
                    memory.emit(f"file.{name}", step, parent=asked)


def test_a_replay_reports_what_offers_save_and_cost(project: Path, tmp_path: Path) -> None:
    """keeps: A-18, TA-06. It uses the files of that time and the earlier tasks, and reports each task."""
    store = str(tmp_path / "shop.db")
    result = CliRunner().invoke(cli, ["trails", "replay", "--store", store, "--json"])
    assert result.exit_code == 0, result.output
    replayed = msgspec.json.decode(result.output)["replay"]
    assert replayed["missing"] == {}
    assert len(replayed["rows"]) == 12
    assert replayed["spoke"] > 0
    assert replayed["net_tokens"] == replayed["saved_tokens"] - replayed["cost_tokens"]
    assert replayed["rows"][-1]["offered"][0]["path"] == "cart.py"
    assert replayed["rows"][-1]["saved_tokens"] == 900


def test_a_replay_reports_what_mica_costs_each_session(project: Path, tmp_path: Path) -> None:
    """keeps: M-15. Tool definitions and the first brief cost tokens even without an offer."""
    result = CliRunner().invoke(cli, ["trails", "replay", "--store", str(tmp_path / "shop.db"), "--json"])
    replayed = msgspec.json.decode(result.output)
    overhead = replayed["standing"]

    sessions = len({row["session"] for row in replayed["replay"]["rows"]})
    assert overhead["sessions"] == sessions > 1
    assert overhead["schema_tokens"] > 500
    each = overhead["schema_tokens"] + overhead["brief_tokens"]
    assert overhead["net_tokens"] == replayed["replay"]["net_tokens"] - sessions * each


def test_charts_and_a_page_are_written_to_the_given_paths(project: Path, tmp_path: Path) -> None:
    """keeps: A-29"""
    page, folder = tmp_path / "replay.html", tmp_path / "charts"
    store = str(tmp_path / "shop.db")
    result = CliRunner().invoke(cli, ["trails", "replay", "--store", store, "--html", str(page), "--svg", str(folder)])
    assert result.exit_code == 0, result.output
    assert "The basket shows a wrong total" in page.read_text()
    assert sorted(path.name for path in folder.iterdir()) == ["baseline.svg", "calibration.svg", "net.svg"]


def test_transcripts_are_replayed_without_being_stored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """keeps: TA-01. A path replaces the space; an unreadable file is named."""
    monkeypatch.setenv("MICA_HOME", str(tmp_path / "home"))
    result = CliRunner().invoke(cli, ["trails", "replay", str(FIXTURES), "--json"])
    assert result.exit_code == 0, result.output
    replayed = msgspec.json.decode(result.output)["replay"]
    assert len(replayed["rows"]) >= 2
    assert "files" in replayed["missing"]
    assert not list((tmp_path / "home").rglob("*.db"))


def test_a_replay_of_a_folder_without_transcripts_is_refused(tmp_path: Path) -> None:
    (tmp_path / "notes.jsonl").write_text("{}\n")
    result = CliRunner().invoke(cli, ["trails", "replay", str(tmp_path)])
    assert result.exit_code == 1
    assert "no transcript" in result.output


def test_a_page_that_cannot_be_written_is_refused_before_the_replay(tmp_path: Path) -> None:
    result = CliRunner().invoke(cli, ["trails", "replay", "--html", str(tmp_path / "nowhere" / "x.html")])
    assert result.exit_code == 1
    assert "is not a folder" in result.output


def test_a_replay_of_a_space_without_sessions_says_so(tmp_path: Path) -> None:
    """The repository exists, but has no sessions."""
    store = str(tmp_path / "fresh.db")
    assert CliRunner().invoke(cli, ["mark", "one", "--store", store]).exit_code == 0

    result = CliRunner().invoke(cli, ["trails", "replay", "--store", store])

    assert result.exit_code == 0, result.output
    assert "this space has no session of a coding agent yet" in result.stderr
    assert "is not here" not in result.stderr


@pytest.mark.parametrize("is_removed", [True, False])
def test_navigate_says_that_the_known_files_are_not_on_this_disk(
    project: Path, tmp_path: Path, is_removed: bool
) -> None:
    """The project was removed, or its folder is empty."""
    shutil.rmtree(project)
    if not is_removed:
        project.mkdir()

    result = CliRunner().invoke(cli, ["navigate", "basket total", "--store", str(tmp_path / "shop.db")])

    assert result.exit_code == 0, result.output
    assert result.stdout.startswith("No file was found for this task: ")
    assert result.stdout.endswith("known files are not on this disk: 1.\n")
    assert "files" not in result.stderr


def test_a_replay_without_a_terminal_writes_nothing_else(project: Path, tmp_path: Path) -> None:
    """Neither a bar nor an empty line goes to standard error."""
    result = CliRunner().invoke(cli, ["trails", "replay", "--store", str(tmp_path / "shop.db")])

    assert result.stderr == ""

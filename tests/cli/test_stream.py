"""mica events follow, replay and import-log, mica export, mica crystals stream."""

from __future__ import annotations

import json
import os
import re
import signal
import sqlite3
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from click.testing import CliRunner
from tests.cli.terminal import VARIABLES, EventShell, StoreTerminal

from mica.cli import cli
from mica.events.segment_header import MAGIC


def test_a_stream_shows_crystals_of_other_processes_until_ctrl_c(store_terminal: StoreTerminal) -> None:
    """keeps: B-31, B-65"""
    first = store_terminal.crystal("s1")
    command = [sys.executable, "-m", "mica", "crystals", "stream", "--crystals", "--after", "0", "--json"]
    variables = {**os.environ, **store_terminal.variables}

    with subprocess.Popen(
        command, env=variables, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as streaming:
        assert streaming.stdout is not None
        lines = [streaming.stdout.readline()]
        second = store_terminal.crystal("s2")
        lines.append(streaming.stdout.readline())
        streaming.send_signal(signal.SIGINT)
        rest, errors = streaming.communicate(timeout=30)

    assert [json.loads(line)["id"] for line in lines] == [first.id, second.id]
    assert (rest, errors, streaming.returncode) == ("", "", 0)


def test_a_stream_shows_time_level_and_insight(store_terminal: StoreTerminal) -> None:
    """keeps: B-31"""
    crystal = store_terminal.crystal()

    only = store_terminal.run("crystals", "stream", "--crystals", "--after", "0", "-n", "1").stdout
    both = store_terminal.run("crystals", "stream", "--after", "0", "-n", "21").stdout.splitlines()

    assert re.fullmatch(rf"\[....-..-.. ..:..\] \[session\] The proxy drops cookies #{crystal.position}\n", only)
    assert [line.split("] ")[1] for line in both] == ["[mark"] * 20 + ["[session"]


@pytest.mark.parametrize("pace", [[], ["--speed", "1000"]])
def test_replay_prints_a_chain_from_a_point_on(shell: EventShell, pace: list[str]) -> None:
    """keeps: E-37"""
    result = shell.run("replay", "2", "--fields", "name", "--json", *pace)

    assert [json.loads(line)["name"] for line in result.stdout.splitlines()] == ["file.read", "tool.ran", "error_free"]
    assert "tool.ran" in shell.run("replay", "#3").stdout
    assert "no event '99'" in shell.run("replay", "99").stderr
    assert "cannot be replayed at 0.0 times" in shell.run("replay", "2", "--speed", "0").stderr


def test_follow_prints_other_processes_and_stops_at_ctrl_c(tmp_path: Path) -> None:
    """keeps: TE-19, E-29"""
    variables = {**os.environ, **VARIABLES, "HOME": str(tmp_path)}
    store = ["--store", str(tmp_path / "space.db")]
    marked = subprocess.run(
        [sys.executable, "-m", "mica", "mark", "zero", *store], env=variables, check=True, text=True
    )
    assert marked.returncode == 0
    command = [sys.executable, "-m", "mica", "events", "follow", "--name", "mark", "--after", "0", "--json", *store]
    with subprocess.Popen(
        command, env=variables, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as following:
        assert following.stdout is not None
        assert following.stderr is not None
        lines = [following.stdout.readline()]
        subprocess.run([sys.executable, "-m", "mica", "mark", "one", *store], env=variables, check=True)
        lines.append(following.stdout.readline())
        following.send_signal(signal.SIGINT)
        rest, errors = following.communicate(timeout=30)

    assert [json.loads(line)["data"]["text"] for line in lines] == ["zero", "one"]
    assert (rest, errors, following.returncode) == ("", "", 0)


@pytest.mark.parametrize("command", [["events", "follow"], ["crystals", "stream"]])
def test_following_from_beyond_the_end_starts_at_the_end_with_a_warning(tmp_path: Path, command: list[str]) -> None:
    """keeps: E-29. No later event is missed."""
    variables = {**os.environ, **VARIABLES, "HOME": str(tmp_path)}
    store = ["--store", str(tmp_path / "space.db")]
    program = [sys.executable, "-m", "mica"]
    subprocess.run([*program, "mark", "zero", *store], env=variables, check=True)
    with subprocess.Popen(
        [*program, *command, "--after", "999", "--limit", "1", *store],
        env=variables,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as following:
        assert following.stderr is not None
        errors = following.stderr.readline()
        subprocess.run([*program, "mark", "one", *store], env=variables, check=True)
        printed, _ = following.communicate(timeout=30)

    assert errors == "mica: --after 999 is beyond the end of the log, #1; waiting for new events\n"
    assert "one" in printed


def test_follow_ends_after_a_limit(shell: EventShell) -> None:
    """keeps: E-31"""
    result = shell.run("follow", "--after", "0", "--errors", "--limit", "2")
    assert (result.exit_code, result.stdout.count("tool.ran")) == (0, 2)
    assert shell.run("follow", "--limit", "0").exit_code == 2


def test_an_export_can_be_imported_elsewhere(shell: EventShell, tmp_path: Path) -> None:
    """keeps: E-39"""
    file = tmp_path / "out.jsonl"
    before = shell.json("query")
    assert shell.json("export", str(file)) == {"file": str(file), "events": 9}

    shell.store = tmp_path / "other.db"
    done = shell.json("import-log", str(file))

    assert done == {"format": "mica", "events": 9, "repeated": 0, "orphans": 0, "reused": 0, "undated": 0, "purged": 0}
    assert shell.json("query") == before
    assert "0 events from" in shell.run("import-log", str(file)).stdout
    assert "9 known already" in shell.run("import-log", str(file)).stdout


@pytest.mark.parametrize("text", ["", "\n \n"])
def test_an_import_of_an_empty_file_says_so(shell: EventShell, tmp_path: Path, text: str) -> None:
    """keeps: E-39. An empty export is not a failure, and its format is not guessed."""
    file = tmp_path / "empty.jsonl"
    file.write_text(text)

    result = shell.run("import-log", str(file))

    assert (result.exit_code, result.stdout) == (0, f"{file} has no events; nothing was imported\n")
    nothing = {"format": None, "events": 0, "repeated": 0, "orphans": 0, "reused": 0, "undated": 0, "purged": 0}
    assert shell.json("import-log", str(file)) == nothing
    assert shell.json("import-log", str(file), "--format", "ksi") == {**nothing, "format": "ksi"}
    assert shell.run("export", str(file), "--name", "nothing.*").exit_code == 0
    assert "nothing was imported" in shell.run("import-log", str(file)).stdout


def test_an_import_reads_standard_input(shell: EventShell, tmp_path: Path) -> None:
    """keeps: E-39"""
    exported = shell.run("export", "-")
    before = shell.json("query")

    shell.store = tmp_path / "other.db"
    done = shell.run("import-log", "-", stdin=exported.stdout_bytes)

    assert done.stdout.startswith("9 events from the open file (mica)")  # a shell gives standard input a name
    assert shell.json("query") == before
    broken = shell.run("import-log", "-", stdin=b"no JSON\n")
    assert broken.exit_code == 1
    assert "nothing of the open file was imported: line 1" in broken.stderr


def test_an_import_counts_purged_events_that_it_excludes(shell: EventShell) -> None:
    exported = shell.run("export", "-").stdout_bytes
    command = ["purge", "--session", "s1", "--yes", "--store", str(shell.store)]
    assert CliRunner().invoke(cli, command, env=shell.variables).exit_code == 0

    result = shell.run("import-log", "-", stdin=exported).stdout

    assert "3 known already, 6 purged here, which are not imported again" in result


def test_a_part_of_the_log_is_exported_with_its_ancestors(shell: EventShell, tmp_path: Path) -> None:
    """keeps: E-39, E-31. Otherwise importing the export of a session would leave orphans."""
    part, whole = tmp_path / "part.jsonl", tmp_path / "whole.jsonl"
    shell.run("export", str(part), "--errors")
    assert shell.json("export", str(whole), "--errors", "--with-ancestors") == {"file": str(whole), "events": 6}
    names = [json.loads(line)["name"] for line in whole.read_text().splitlines()]
    assert names == ["plan", "file.read", "tool.ran"] * 2

    shell.store = tmp_path / "other.db"
    refused = shell.run("import-log", str(part))
    imported = shell.json("import-log", str(whole))

    assert refused.exit_code == 1
    assert isinstance(imported, dict)
    assert (imported["events"], imported["orphans"]) == (6, 0)
    verified = CliRunner().invoke(cli, ["upkeep", "verify", "--store", str(shell.store)], env=shell.variables)
    assert verified.exit_code == 0, verified.output


def test_an_export_to_standard_output_is_lines_only(shell: EventShell) -> None:
    result = shell.run("export", "--name", "file.*", "--fields", "name,data.path")
    assert result.stdout == '{"name":"file.read","data":{"path":"a.py"}}\n' * 2
    assert result.stderr == ""
    assert shell.run("export", "-").stdout.count("\n") == 9


@pytest.mark.parametrize("command", [["events", "tail"], ["events", "tail", "--json"], ["export"]])
def test_a_full_disk_is_reported_in_one_line(shell: EventShell, command: list[str]) -> None:
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(
            [sys.executable, "-m", "mica", *command, "--store", str(shell.store)],
            stdout=full,
            stderr=subprocess.PIPE,
            env={**os.environ, **shell.variables},
            text=True,
            check=False,
        )
    assert done.stderr == "mica: the result cannot be written: No space left on device; redirect it to another place\n"
    assert done.returncode == 1


def test_an_export_replaces_its_file_completely_or_not_at_all(shell: EventShell, tmp_path: Path) -> None:
    """keeps: E-39. It uses an atomic rename."""
    file = tmp_path / "out.jsonl"
    file.write_text("old")

    refused = shell.run("export", str(file), "--text", "the")

    assert refused.exit_code == 1
    assert file.read_text() == "old"
    assert [path.name for path in tmp_path.glob("*out*")] == ["out.jsonl"]
    assert [path.name for path in tmp_path.glob(".out*")] == []
    assert shell.run("export", str(file), "--errors").exit_code == 0
    assert file.read_text().count("\n") == 2
    assert "cannot be written" in shell.run("export", str(tmp_path / "none" / "x.jsonl")).stderr
    assert shell.run("export", os.devnull).exit_code == 0
    assert not Path(os.devnull).is_file()


@pytest.mark.parametrize("victim", ["space.db", "space.db-wal", "space.db-shm", "other.sqlite", "link.db", "kept"])
def test_an_export_never_replaces_a_store(shell: EventShell, tmp_path: Path, victim: str) -> None:
    """keeps: E-39, U-04. A typing error destroys neither a space nor its pending events."""
    (tmp_path / "link.db").symlink_to(shell.store)
    sqlite3.connect(tmp_path / "other.sqlite").execute("CREATE TABLE a (b)").connection.close()
    (tmp_path / "kept").write_bytes(MAGIC + b"events that wait")
    file = tmp_path / victim
    before = file.read_bytes() if file.exists() else None

    refused = shell.run("export", str(file))

    assert refused.exit_code == 1
    assert refused.stderr == f"mica: {file} belongs to a database, which would be lost; choose another file\n"
    assert (file.read_bytes() if file.exists() else None) == before
    assert shell.json("query", "--name", "elsewhere")
    assert "Is a directory" in shell.run("export", str(tmp_path)).stderr


def test_an_import_names_the_bad_line_and_takes_orphans_only_on_request(shell: EventShell, tmp_path: Path) -> None:
    """keeps: E-39"""
    file = tmp_path / "ksi.jsonl"
    context = {"_event_id": "e1", "_event_timestamp": 1, "_parent_event_id": "e0"}
    file.write_text(json.dumps({"event": "x", "_ksi_context": context}) + "\n")

    refused = shell.run("import-log", str(file))
    imported = shell.run("import-log", str(file), "--format", "ksi", "--allow-orphans", "--source", "daemon")

    assert refused.exit_code == 1
    assert refused.stderr.startswith(f"mica: nothing of {file} was imported: line 1 names the parent 'e0'")
    assert "(ksi), 1 without their parent" in imported.stdout
    assert shell.run("import-log", str(tmp_path / "none.jsonl")).exit_code == 1


def test_follow_until_a_past_time_prints_stored_events_and_ends(shell: EventShell) -> None:
    stored = shell.run("follow", "--after", "0", "--until", "0s", "--name", "plan")

    assert stored.exit_code == 0
    assert stored.stdout.count("plan") == 2
    assert shell.run("follow", "--until", "1h").stdout == ""


def test_follow_ends_at_a_future_time(shell: EventShell) -> None:
    soon = datetime.now(UTC) + timedelta(seconds=1)

    ended = shell.run("follow", "--until", soon.isoformat())

    assert (ended.exit_code, ended.stdout) == (0, "")

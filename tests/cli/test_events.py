"""mica events: chosen fields, chains, following, export and import."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

import mica
from mica import Memory
from mica.cli import cli
from mica.events.segment import MAGIC

VARIABLES = {"XDG_DATA_HOME": "", "XDG_CONFIG_HOME": "", "MICA_HOME": "", "MICA_STORE": ""}


class Shell:
    """The `mica events` command on one store."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.store = folder / "space.db"
        self.variables = VARIABLES | {"HOME": str(folder)}

    def run(self, *arguments: str, given: bytes = b"") -> Result:
        command = ["events", *arguments, "--store", str(self.store)]
        return CliRunner().invoke(cli, command, env=self.variables, prog_name="mica", input=given)

    def json(self, *arguments: str) -> object:
        result = self.run(*arguments, "--json")
        assert result.exit_code == 0, result.output
        return json.loads(result.stdout)

    def fill(self) -> None:
        """A chain with a failure in it, then a second run that ends otherwise, then something else."""

        def emit(memory: Memory, *, answer: int) -> None:
            root = memory.emit("plan", {"n": 1})
            with memory.context(agent="scout", session="s1", parent=root):
                read = memory.emit("file.read", {"path": "a.py"})
                memory.emit("tool.ran", {"text": f"failed with {answer}"}, parent=read, error=True)
                memory.emit("error_free")

        async def filled() -> None:
            async with mica.open(self.store, settings=mica.load_settings({"HOME": str(self.folder)})) as memory:
                emit(memory, answer=1)
                emit(memory, answer=2)
                memory.emit("elsewhere")

        asyncio.run(filled())


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    made = Shell(tmp_path)
    made.fill()
    return made


# -- Fields ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "command",
    [["tail"], ["query", "--name", "file.read"], ["chain", "2"], ["follow", "--after", "0", "-n", "3"], ["export"]],
)
def test_lists_show_the_chosen_fields(shell: Shell, command: list[str]) -> None:
    """E-21, E-22"""
    result = shell.run(*command, "--bundle", "monitoring", "--fields", "data.path, data.none", "--json")
    assert result.exit_code == 0, result.output
    text = result.stdout
    rows = json.loads(text) if text.startswith("[") else [json.loads(line) for line in text.splitlines()]
    [row] = [row for row in rows if row["name"] == "file.read"][:1]
    assert row.keys() == {"id", "name", "correlation", "depth", "context", "data"}
    assert row["context"] == {"agent": "scout"}
    assert row["data"] == {"path": "a.py"}
    if command != ["export"]:
        shown = shell.run(*command, "--fields", "context.agent,data.path").stdout
        assert "context.agent=scout data.path=a.py" in shown


def test_an_unknown_field_is_one_line(shell: Shell) -> None:
    """E-21"""
    result = shell.run("tail", "--fields", "nmae")
    assert result.exit_code == 1
    assert result.stderr.startswith("mica: there is no field 'nmae'; there are id, name")
    assert shell.run("tail", "--bundle", "tiny").exit_code == 2


def test_show_resolves_several_and_names_what_is_missing(shell: Shell) -> None:
    """E-28"""
    assert shell.json("show", "1", "--fields", "name") == {"name": "plan"}

    result = shell.run("show", "#3", "99", "1", "--fields", "name", "--json")

    assert result.exit_code == 1
    assert json.loads(result.stdout) == {"found": [{"name": "tool.ran"}, {"name": "plan"}], "missing": ["99"]}
    assert result.stderr.startswith("mica: no event '99'")
    assert len(shell.run("show", *map(str, range(50, 70))).stderr.splitlines()) == 1
    assert "failed with 1" in shell.run("show", "3", "2").stdout
    assert "101 references" in shell.run("show", *["1"] * 101).stderr


def test_naming_no_field_is_not_naming_all(shell: Shell) -> None:
    """E-21"""
    assert "names no field" in shell.run("tail", "--fields", "").stderr
    assert "names no field" in shell.run("tail", "--fields", ",", "--bundle", "minimal").stderr


# -- Chains ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("pace", [[], ["--speed", "1000"]])
def test_replay_prints_a_chain_from_a_point_on(shell: Shell, pace: list[str]) -> None:
    """E-37"""
    result = shell.run("replay", "2", "--fields", "name", "--json", *pace)

    assert [json.loads(line)["name"] for line in result.stdout.splitlines()] == ["file.read", "tool.ran", "error_free"]
    assert "tool.ran" in shell.run("replay", "#3").stdout
    assert "no event '99'" in shell.run("replay", "99").stderr
    assert "cannot be replayed at 0.0 times" in shell.run("replay", "2", "--speed", "0").stderr


def test_impact_shows_both_parts(shell: Shell) -> None:
    """TE-17, E-31"""
    document = shell.json("impact", "2")
    assert isinstance(document, dict)
    assert [event["name"] for event in document["descendants"]] == ["tool.ran"]
    assert [event["name"] for event in document["correlated"]] == ["error_free"]
    text = shell.run("impact", "2").stdout
    assert "led to: 1 event\n" in text
    assert "came later in its chain: 1 event\n" in text


def test_a_deep_tree_is_drawn_whole_and_not_nested_beyond_reading(tmp_path: Path) -> None:
    """E-31: a chain of thousands, as an agent makes in a day."""
    shell = Shell(tmp_path)

    async def filled() -> None:
        async with mica.open(shell.store, settings=mica.load_settings({"HOME": str(tmp_path)})) as memory:
            parent = memory.emit("step")
            for number in range(1, 3_000):
                parent = memory.emit("step", {"n": number}, parent=parent)

    asyncio.run(filled())

    drawn = shell.run("tree", "1").stdout.splitlines()
    assert len(drawn) == 3_000
    assert drawn[-1].startswith("…2,999 ")
    assert drawn[-1].endswith('{"n":2999}')
    assert max(map(len, drawn)) < 200
    assert "2,999 steps deep" in shell.run("tree", "1", "--json").stderr
    assert "--depth" in shell.run("tree", "3000", "--ancestry", "--json").stderr
    depth, nested = 0, shell.json("tree", "1", "--depth", "400")
    while isinstance(nested, dict) and nested["children"]:
        depth, nested = depth + 1, nested["children"][0]
    assert depth == 400


def test_errors_show_how_each_came_about(shell: Shell) -> None:
    """E-30, TE-18"""
    rows = shell.json("errors", "--session", "s1")
    assert isinstance(rows, list)
    assert [row["event"]["position"] for row in rows] == [3, 7]
    assert [event["name"] for event in rows[0]["led"]] == ["plan", "file.read"]
    assert rows[0]["agents"] == ["scout"]
    text = shell.run("errors", "-n", "1").stdout
    assert "failed with 2" in text
    assert "after #5" in text
    assert "agents scout" in text
    assert "No failures fit" in shell.run("errors", "--agent", "nobody").stdout


def test_compare_says_where_two_runs_part(shell: Shell) -> None:
    """E-37"""
    document = shell.json("compare", "1", "8")
    assert isinstance(document, dict)
    assert (document["same"], document["equal"]) == (2, False)
    assert document["differences"] == [{"field": "data.text", "left": "failed with 1", "right": "failed with 2"}]
    text = shell.run("compare", "1", "5").stdout
    assert "2 steps the same, then:" in text
    assert 'data.text: "failed with 1" ≠ "failed with 2"' in text
    assert "same: 4 steps" in shell.run("compare", "1", "5", "--ignore", "data.text").stdout
    assert "ended" in shell.run("compare", "9", "1", "--ignore", "data.n", "--ignore", "name").stdout


def test_a_chain_is_not_compared_with_itself(shell: Shell) -> None:
    """E-37: two events of one run would be called the same run twice."""
    refused = shell.run("compare", "1", "2")

    assert refused.exit_code == 1
    assert refused.stderr == "mica: 1 and 2 are events of one chain, which begins with #1; give events of two runs\n"


def test_ignoring_a_field_that_is_nowhere_is_told(shell: Shell) -> None:
    """E-37: a mistyped field would pass for one that does not differ."""
    result = shell.run("compare", "1", "5", "--ignore", "nosuch", "--ignore", "data.text", "--json")
    assert json.loads(result.stdout)["equal"] is True
    assert result.stderr.startswith(
        "mica: no step of either run has a field 'nosuch' to ignore; there are context.agent"
    )
    assert result.stderr.count("\n") == 1


@pytest.mark.parametrize("command", [["tail"], ["query"], ["tree", "2"], ["chain", "3"], ["impact", "2"]])
def test_failures_are_marked_without_colour(shell: Shell, command: list[str]) -> None:
    """E-30: in a pipe, and for those who do not see red."""
    lines = shell.run(*command).stdout.splitlines()
    assert any("tool.ran" in line for line in lines)
    assert all(("✗ " in line) == ("tool.ran" in line) for line in lines)


def test_mermaid_prints_a_chart(shell: Shell) -> None:
    """E-30"""
    text = shell.run("mermaid", "3").stdout
    assert text.startswith("flowchart TD\n")
    assert '    n3["3 tool.ran scout"]:::failed\n    n2 --> n3\n' in text
    assert shell.json("mermaid", "3") == {"mermaid": text}


# -- Follow ---------------------------------------------------------------------------------------------------


def test_follow_prints_other_processes_and_stops_at_ctrl_c(tmp_path: Path) -> None:
    """TE-19, E-29"""
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
        rest, said = following.communicate(timeout=30)

    assert [json.loads(line)["data"]["text"] for line in lines] == ["zero", "one"]
    assert (rest, said, following.returncode) == ("", "", 0)


@pytest.mark.parametrize("command", [["events", "follow"], ["stream"]])
def test_who_follows_from_beyond_the_end_is_told_where_it_is(tmp_path: Path, command: list[str]) -> None:
    """E-29: and misses nothing of what comes next."""
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
        said = following.stderr.readline()
        subprocess.run([*program, "mark", "one", *store], env=variables, check=True)
        printed, _ = following.communicate(timeout=30)

    assert said == "mica: --after 999 is beyond the end of the log, #1; waiting for what comes next\n"
    assert "one" in printed


def test_follow_ends_after_so_many(shell: Shell) -> None:
    """E-31"""
    result = shell.run("follow", "--after", "0", "--errors", "--limit", "2")
    assert (result.exit_code, result.stdout.count("tool.ran")) == (0, 2)
    assert shell.run("follow", "--limit", "0").stdout == ""


# -- Export and import ----------------------------------------------------------------------------------------


def test_an_export_can_be_imported_elsewhere(shell: Shell, tmp_path: Path) -> None:
    """E-39"""
    file = tmp_path / "out.jsonl"
    before = shell.json("query")
    assert shell.json("export", str(file)) == {"file": str(file), "events": 9}

    shell.store = tmp_path / "other.db"
    done = shell.json("import", str(file))

    assert done == {"format": "mica", "events": 9, "repeated": 0, "orphans": 0, "reused": 0, "undated": 0, "purged": 0}
    assert shell.json("query") == before
    assert "0 events from" in shell.run("import", str(file)).stdout
    assert "9 known already" in shell.run("import", str(file)).stdout


@pytest.mark.parametrize("text", ["", "\n \n"])
def test_an_import_of_nothing_says_so(shell: Shell, tmp_path: Path, text: str) -> None:
    """E-39: an export of nothing is no failure, and its format is not guessed."""
    file = tmp_path / "empty.jsonl"
    file.write_text(text)

    told = shell.run("import", str(file))

    assert (told.exit_code, told.stdout) == (0, f"no event is in {file}; nothing was imported\n")
    nothing = {"format": None, "events": 0, "repeated": 0, "orphans": 0, "reused": 0, "undated": 0, "purged": 0}
    assert shell.json("import", str(file)) == nothing
    assert shell.json("import", str(file), "--format", "ksi") == {**nothing, "format": "ksi"}
    assert shell.run("export", str(file), "--name", "nothing.*").exit_code == 0
    assert "nothing was imported" in shell.run("import", str(file)).stdout


def test_an_import_reads_standard_input(shell: Shell, tmp_path: Path) -> None:
    """E-39: exports go through pipes without a file between them."""
    exported = shell.run("export", "-")
    before = shell.json("query")

    shell.store = tmp_path / "other.db"
    done = shell.run("import", "-", given=exported.stdout_bytes)

    assert done.stdout.startswith("9 events from what was given (mica)")  # a shell gives standard input a name
    assert shell.json("query") == before
    broken = shell.run("import", "-", given=b"no JSON\n")
    assert broken.exit_code == 1
    assert "nothing of what was given was imported: line 1" in broken.stderr


def test_an_import_says_what_a_purge_keeps_out(shell: Shell) -> None:
    exported = shell.run("export", "-").stdout_bytes
    command = ["purge", "--session", "s1", "--yes", "--store", str(shell.store)]
    assert CliRunner().invoke(cli, command, env=shell.variables).exit_code == 0

    told = shell.run("import", "-", given=exported).stdout

    assert "3 known already, 6 purged here, which do not come back" in told


def test_a_part_of_the_log_can_be_taken_along_with_what_led_to_it(shell: Shell, tmp_path: Path) -> None:
    """E-39, E-31: an export of a session alone would leave orphans wherever it is imported."""
    part, whole = tmp_path / "part.jsonl", tmp_path / "whole.jsonl"
    shell.run("export", str(part), "--errors")
    assert shell.json("export", str(whole), "--errors", "--with-ancestors") == {"file": str(whole), "events": 6}
    names = [json.loads(line)["name"] for line in whole.read_text().splitlines()]
    assert names == ["plan", "file.read", "tool.ran"] * 2

    shell.store = tmp_path / "other.db"
    refused = shell.run("import", str(part))
    taken = shell.json("import", str(whole))

    assert refused.exit_code == 1
    assert isinstance(taken, dict)
    assert (taken["events"], taken["orphans"]) == (6, 0)
    verified = CliRunner().invoke(cli, ["verify", "--store", str(shell.store)], env=shell.variables)
    assert verified.exit_code == 0, verified.output


def test_an_export_to_standard_output_is_lines_only(shell: Shell) -> None:
    result = shell.run("export", "--name", "file.*", "--fields", "name,data.path")
    assert result.stdout == '{"name":"file.read","data":{"path":"a.py"}}\n' * 2
    assert result.stderr == ""
    assert shell.run("export", "-").stdout.count("\n") == 9


@pytest.mark.parametrize("command", [["tail"], ["tail", "--json"], ["export"]])
def test_an_answer_that_finds_no_room_is_one_line(shell: Shell, command: list[str]) -> None:
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(
            [sys.executable, "-m", "mica", "events", *command, "--store", str(shell.store)],
            stdout=full,
            stderr=subprocess.PIPE,
            env={**os.environ, **shell.variables},
            text=True,
            check=False,
        )
    assert done.stderr == "mica: the answer cannot be written: No space left on device; send it elsewhere\n"
    assert done.returncode == 1


def test_an_export_replaces_its_file_as_a_whole_or_not_at_all(shell: Shell, tmp_path: Path) -> None:
    """E-39: atomic rename."""
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
def test_an_export_never_replaces_a_store(shell: Shell, tmp_path: Path, victim: str) -> None:
    """E-39, U-04: a slip of the fingers costs nobody a space, nor what waits for it."""
    (tmp_path / "link.db").symlink_to(shell.store)
    sqlite3.connect(tmp_path / "other.sqlite").execute("CREATE TABLE a (b)").connection.close()
    (tmp_path / "kept").write_bytes(MAGIC + b"events that wait")
    file = tmp_path / victim
    before = file.read_bytes() if file.exists() else None

    refused = shell.run("export", str(file))

    assert refused.exit_code == 1
    assert refused.stderr == f"mica: {file} is a database or a part of one, which would be lost; give another file\n"
    assert (file.read_bytes() if file.exists() else None) == before
    assert shell.json("query", "--name", "elsewhere")
    assert "Is a directory" in shell.run("export", str(tmp_path)).stderr


def test_import_names_the_line_and_takes_orphans_only_when_told(shell: Shell, tmp_path: Path) -> None:
    """E-39"""
    file = tmp_path / "ksi.jsonl"
    context = {"_event_id": "e1", "_event_timestamp": 1, "_parent_event_id": "e0"}
    file.write_text(json.dumps({"event": "x", "_ksi_context": context}) + "\n")

    refused = shell.run("import", str(file))
    taken = shell.run("import", str(file), "--format", "ksi", "--allow-orphans", "--source", "daemon")

    assert refused.exit_code == 1
    assert refused.stderr.startswith(f"mica: nothing of {file} was imported: line 1 names the parent 'e0'")
    assert "(ksi), 1 without their parent" in taken.stdout
    assert shell.run("import", str(tmp_path / "none.jsonl")).exit_code == 1


def test_nothing_turns_the_order_of_characters_around(tmp_path: Path) -> None:
    """U-10: an override makes a terminal show another text than is stored."""
    shell = Shell(tmp_path)
    turned = "\u202eabc\u2066def\u202c"
    file = tmp_path / "log.jsonl"
    record = {
        "event": f"x{turned}",
        "timestamp": 1,
        "_event_id": "e1",
        "_agent_id": turned,
        "_error": turned,
        "text": turned,
        turned: turned,
    }
    file.write_text(json.dumps(record) + "\n")
    assert shell.run("import", str(file)).exit_code == 0
    CliRunner().invoke(cli, ["mark", turned, "--store", str(shell.store)], env=shell.variables)
    for command in ("tail", "show 1", "show 1 2", "impact 1", "errors", "compare 1 2", "tail --bundle full", "tree 1"):
        result = shell.run(*command.split())
        assert result.exit_code == 0, result.output
        assert "abc" in result.stdout
        assert not re.search("[\u202a-\u202e\u2066-\u2069]", result.stdout), command
    for words in (["brief"], ["search", "abc"], ["overview"]):
        result = CliRunner().invoke(cli, [*words, "--store", str(shell.store)], env=shell.variables)
        assert not re.search("[\u202a-\u202e\u2066-\u2069]", result.stdout), words


def test_hostile_names_reach_no_terminal(tmp_path: Path) -> None:
    shell = Shell(tmp_path)
    file = tmp_path / "log.jsonl"
    record = {
        "event": "\x1b[31m[red]",
        "timestamp": 1,
        "_event_id": "\x1b]0;x",
        "_error": "[/]",
        "_agent_id": "[b]\x07",
    }
    other = record | {"event": "\x1b[32m[green]", "_event_id": "\x1b]0;y"}
    file.write_text(f"{json.dumps(record)}\n{json.dumps(other)}\n")
    assert shell.run("import", str(file)).exit_code == 0
    commands = ["tail", "show 1", "impact 1", "errors", "mermaid 1", "compare 1 2", "tail --bundle full", "tree 1"]
    for command in commands:
        result = shell.run(*command.split())
        assert result.exit_code == 0, result.output
        assert "\x1b" not in result.stdout
        assert "\x07" not in result.stdout

"""mica events: choose events and fields, and draw trees."""

from __future__ import annotations

import asyncio
import json
import re
from pathlib import Path

import pytest
from click.testing import CliRunner
from tests.cli.terminal import EventShell, Terminal

import mica
from mica.cli import cli


def test_events_are_filtered_by_every_option(terminal: Terminal) -> None:
    terminal.run("mark", "alpha beta", "--session", "s1", "--agent", "scout")
    terminal.run("mark", "beta gamma", "--session", "s2", BAGGAGE="mica.user=ann")

    def texts(*arguments: str) -> list[str]:
        rows = terminal.json("events", *arguments)
        assert isinstance(rows, list)
        return [row["data"]["text"] for row in rows]

    assert texts("tail", "-n", "1") == ["beta gamma"]
    assert texts("query", "--session", "s1") == ["alpha beta"]
    assert texts("query", "--agent", "scout") == ["alpha beta"]
    assert texts("query", "--user", "ann") == ["beta gamma"]
    assert texts("query", "--user", "bob") == []
    assert texts("query", "--text", "gamma") == ["beta gamma"]
    assert texts("query", "--name", "ma*", "--since", "1h") == ["alpha beta", "beta gamma"]
    assert texts("query", "--until", "2020-01-01") == []
    assert texts("query", "--errors") == []
    assert texts("chain", "2") == ["beta gamma"]


def test_the_tree_of_a_prompt_of_the_sample_has_several_lines(terminal: Terminal) -> None:
    terminal.run("up", "--sample", "--once")
    prompt = terminal.documents("events", "query", "--name", "mark", "--space", "sample")[0]

    tree = terminal.run("events", "tree", str(prompt["position"]), "--space", "sample")

    assert tree.stdout.count("\n") > 3


def test_a_tree_is_walked_to_a_depth_and_drawn_with_its_relations(terminal: Terminal) -> None:
    """keeps: B-25"""
    terminal.run("mark", "The cookie is lost")
    terminal.run("mark", "Moved it", "--parent", "1")
    terminal.run("mark", "Login works again", "--parent", "2", "--relation", "fulfills")

    near, whole = terminal.json("events", "tree", "1", "--depth", "1"), terminal.json("events", "tree", "1")
    drawn = terminal.run("events", "tree", "1").stdout

    assert isinstance(near, dict)
    assert isinstance(whole, dict)
    assert near["children"][0]["children"] == []
    [last] = whole["children"][0]["children"]
    assert (last["data"]["text"], last["data"]["relation"]) == ("Login works again", "fulfills")
    assert drawn.index("The cookie is lost") < drawn.index("Moved it") < drawn.index("FULFILLS")


@pytest.mark.parametrize(
    "command",
    [["tail"], ["query", "--name", "file.read"], ["chain", "2"], ["follow", "--after", "0", "-n", "3"], ["export"]],
)
def test_lists_show_the_chosen_fields(shell: EventShell, command: list[str]) -> None:
    """keeps: E-21, E-22"""
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


def test_an_unknown_field_is_one_line(shell: EventShell) -> None:
    """keeps: E-21"""
    result = shell.run("tail", "--fields", "nmae")
    assert result.exit_code == 1
    assert result.stderr.startswith("mica: there is no field 'nmae'; use id, name")
    assert shell.run("tail", "--bundle", "tiny").exit_code == 2


def test_show_resolves_several_references_and_names_missing_ones(shell: EventShell) -> None:
    """keeps: E-28"""
    assert shell.json("show", "1", "--fields", "name") == {"name": "plan"}

    result = shell.run("show", "#3", "99", "1", "--fields", "name", "--json")

    assert result.exit_code == 1
    assert json.loads(result.stdout) == {"found": [{"name": "tool.ran"}, {"name": "plan"}], "missing": ["99"]}
    assert result.stderr.startswith("mica: no event '99'")
    assert len(shell.run("show", *map(str, range(50, 70))).stderr.splitlines()) == 1
    assert "failed with 1" in shell.run("show", "3", "2").stdout
    assert "101 references" in shell.run("show", *["1"] * 101).stderr


def test_an_empty_list_of_fields_is_refused(shell: EventShell) -> None:
    """keeps: E-21"""
    assert "names no field" in shell.run("tail", "--fields", "").stderr
    assert "names no field" in shell.run("tail", "--fields", ",", "--bundle", "minimal").stderr


def test_a_deep_tree_is_drawn_completely_with_limited_indentation(tmp_path: Path) -> None:
    """keeps: E-31. A chain may have thousands of events, as an agent makes in a day."""
    shell = EventShell(tmp_path)

    async def filled() -> None:
        async with mica.open(shell.store, settings=mica.load_settings({"HOME": str(tmp_path)})) as memory:
            parent = memory.emit("step")
            for number in range(1, 3_000):
                parent = memory.emit("step", {"n": number}, parent=parent)

    asyncio.run(filled())

    drawn = shell.run("tree", "1").stdout.splitlines()
    assert len(drawn) == 3_000
    assert drawn[-1].startswith("…2,999 ")
    assert drawn[-1].endswith('{"n":2999} (CAUSES)')
    assert max(map(len, drawn)) < 200
    assert "2,999 levels deep" in shell.run("tree", "1", "--json").stderr
    assert "--depth" in shell.run("tree", "3000", "--ancestry", "--json").stderr
    depth, nested = 0, shell.json("tree", "1", "--depth", "400")
    while isinstance(nested, dict) and nested["children"]:
        depth, nested = depth + 1, nested["children"][0]
    assert depth == 400


@pytest.mark.parametrize("command", [["tail"], ["query"], ["tree", "2"], ["chain", "3"], ["impact", "2"]])
def test_failures_are_marked_without_colour(shell: EventShell, command: list[str]) -> None:
    """keeps: E-30. They are visible in a pipe and without seeing red."""
    lines = shell.run(*command).stdout.splitlines()
    assert any("tool.ran" in line for line in lines)
    assert all(("✗ " in line) == ("tool.ran" in line) for line in lines)


def test_characters_that_reverse_the_reading_direction_are_removed(tmp_path: Path) -> None:
    """keeps: U-10. An override makes a terminal show another text than the stored one."""
    shell = EventShell(tmp_path)
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
    assert shell.run("import-log", str(file)).exit_code == 0
    CliRunner().invoke(cli, ["mark", turned, "--store", str(shell.store)], env=shell.variables)
    for command in (
        "tail",
        "show 1",
        "show 1 2",
        "impact 1",
        "failures",
        "compare 1 2",
        "tail --bundle full",
        "tree 1",
    ):
        result = shell.run(*command.split())
        assert result.exit_code == 0, result.output
        assert "abc" in result.stdout
        assert not re.search("[\u202a-\u202e\u2066-\u2069]", result.stdout), command
    for words in (["brief"], ["search", "abc"], ["events", "overview"]):
        result = CliRunner().invoke(cli, [*words, "--store", str(shell.store)], env=shell.variables)
        assert not re.search("[\u202a-\u202e\u2066-\u2069]", result.stdout), words


def test_control_characters_in_names_reach_no_terminal(tmp_path: Path) -> None:
    shell = EventShell(tmp_path)
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
    assert shell.run("import-log", str(file)).exit_code == 0
    commands = ["tail", "show 1", "impact 1", "failures", "mermaid 1", "compare 1 2", "tail --bundle full", "tree 1"]
    for command in commands:
        result = shell.run(*command.split())
        assert result.exit_code == 0, result.output
        assert "\x1b" not in result.stdout
        assert "\x07" not in result.stdout


def test_a_tree_labels_each_event_with_its_relation(terminal: Terminal) -> None:
    """keeps: B-25, B-39. This includes the default relation of a mark."""
    terminal.run("mark", "The cookie is lost")
    terminal.run("mark", "Moved it", "--parent", "1")
    terminal.run("mark", "Login works again", "--parent", "2", "--relation", "fulfills")

    top, second, third = terminal.run("events", "tree", "1").stdout.splitlines()
    nested = terminal.documents("events", "tree", "1")[0]

    assert "(" not in top
    assert second.endswith("Moved it (CAUSES)")
    assert third.endswith("Login works again (FULFILLS)")
    assert nested["children"][0]["relation"] == "causes"
    assert nested["children"][0]["children"][0]["relation"] == "fulfills"


def test_an_event_is_recorded_from_the_shell(terminal: Terminal) -> None:
    """keeps: E-44"""
    first = terminal.documents("events", "emit", "deploy.started", "--session", "s1", "--agent", "scout")[0]
    words = ("--data", '{"version": "1.4"}', "--parent", str(first["position"]), "--error", "--task", "release")
    second = terminal.documents("events", "emit", "deploy.failed", *words)[0]

    assert first["context"] == {"session": "s1", "agent": "scout"}
    assert (first["origin"], second["origin"]) == ("agent", "user")
    assert (second["data"], second["error"], second["parent_id"]) == ({"version": "1.4"}, True, first["id"])
    piped = terminal.run("events", "emit", "deploy.noted", "--data", "-", stdin='{"from": "a pipe"}')
    assert "a pipe" in piped.stdout


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["deploy", "--data", "[1]"], 2, "--data is not a JSON object"),
        (["deploy", "--data", "{"], 2, "--data is not a JSON object"),
        (["deploy", "--data", ""], 2, "--data is empty; give a JSON object"),
        (["two words"], 1, "event name 'two words' is not valid"),
        (["mark", "--data", "{}"], 1, "this is not a mark"),
        (["deploy", "--parent", "99"], 1, "no event '99'"),
    ],
)
def test_an_invalid_event_is_not_recorded(terminal: Terminal, words: list[str], code: int, message: str) -> None:
    refused = terminal.run("events", "emit", *words)

    assert (refused.exit_code, refused.stdout) == (code, "")
    assert message in refused.stderr
    assert terminal.json("events", "tail") == []


def test_names_are_listed_with_their_counts(terminal: Terminal) -> None:
    """keeps: E-44"""
    for name in ("deploy.started", "deploy.started", "deploy.failed"):
        terminal.run("events", "emit", name, "--session", name)

    assert terminal.json("events", "names") == [
        {"name": "deploy.started", "count": 2},
        {"name": "deploy.failed", "count": 1},
    ]
    assert terminal.run("events", "names").stdout.split() == ["2", "deploy.started", "1", "deploy.failed"]
    assert terminal.json("events", "names", "--name", "*failed") == [{"name": "deploy.failed", "count": 1}]
    assert "No events match" in terminal.run("events", "names", "--session", "other").stdout


def test_an_empty_name_is_refused(terminal: Terminal) -> None:
    refused = terminal.run("events", "query", "--name", "")

    assert refused.exit_code == 2
    assert "--name is empty" in refused.stderr

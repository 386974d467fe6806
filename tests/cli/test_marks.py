"""mica mark and search."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from tests.cli.terminal import UNPRIVILEGED, StoreTerminal, Terminal

from mica.testing.postgres import LocalPostgres


def test_a_mark_can_be_found_shown_and_traced(terminal: Terminal) -> None:
    first = terminal.json("mark", "The cookie is set before the redirect", "--tag", "gotcha", "--session", "s1")
    assert isinstance(first, dict)
    terminal.run("mark", "Moved it", "--parent", str(first["position"]), "--agent", "scout", "--why", "it works")

    found = terminal.json("search", "cookies")
    shown = terminal.json("events", "show", str(first["id"]))
    tree = terminal.json("events", "tree", f"#{first['position']}")
    up = terminal.json("events", "tree", "2", "--ancestry")

    assert isinstance(found, dict)
    assert found["hits"][0]["mark"]["id"] == first["id"]
    assert isinstance(shown, dict)
    assert shown["data"] == {"text": "The cookie is set before the redirect", "tags": ["gotcha"]}
    assert shown["context"] == {"session": "s1"}
    assert shown["origin"] == "user"
    assert isinstance(tree, dict)
    assert [child["data"]["text"] for child in tree["children"]] == ["Moved it"]
    assert tree["children"][0]["origin"] == "agent"
    assert isinstance(up, dict)
    assert up["id"] == first["id"]
    assert "Moved it" in terminal.run("events", "tree", "1").stdout


def test_a_mark_is_read_from_standard_input(terminal: Terminal) -> None:
    assert terminal.run("mark", stdin="from a pipe\n").exit_code == 0
    assert "by a dash" in terminal.run("mark", "-", "--json", stdin="by a dash\n").stdout
    assert "from a pipe" in terminal.run("events", "tail").stdout


def test_a_mark_takes_times_in_every_notation(terminal: Terminal) -> None:
    """A time in the configured zone, one with its own zone, or a duration ago; all lines share it."""
    terminal.variables["MICA_TIME_ZONE"] = "Asia/Kathmandu"
    for at in ("2024-11-05T09:30", "2024-11-05T03:45:00Z", "90s", "last Tuesday"):
        assert terminal.run("mark", "It was the proxy", "--at", at).exit_code == 0
    terminal.run("mark", "--lines", "--at", "2024-11-05", stdin="one\ntwo\n")
    late = terminal.run("mark", "and this", "--parent", "1", "--at", "2024-11-04")

    marks = terminal.json("events", "query", "--name", "mark")
    assert isinstance(marks, list)
    dated = [each["at"] for each in sorted(marks, key=lambda each: int(each["position"]))]
    assert [dated[0], dated[1]] == ["2024-11-05T03:45:00Z"] * 2
    assert dated[4:] == ["2024-11-04T18:15:00Z"] * 2
    assert (late.exit_code, late.stdout) == (1, "")
    assert "a mark cannot be older than its parent" in late.stderr


@pytest.mark.parametrize(
    ("at", "code", "message"),
    [
        ("someday", 2, "'someday' is not a time"),
        ("0001-01-01T00:00:00Z", 1, "is before 1970; use the observation time"),
        ("2199-01-01", 2, "is in the future; give the time when it was observed"),
    ],
)
def test_a_mark_with_an_impossible_time_is_refused(terminal: Terminal, at: str, code: int, message: str) -> None:
    refused = terminal.run("mark", "It was the proxy", "--at", at)

    assert (refused.exit_code, refused.stdout) == (code, "")
    assert message in refused.stderr
    assert terminal.json("events", "tail") == []


def test_a_mark_without_text_is_refused(terminal: Terminal) -> None:
    result = terminal.run("mark", stdin="")
    assert (result.exit_code, result.stderr) == (1, "mica: a mark needs a text, not ''\n")


def test_search_is_narrowed_by_time_agent_and_tag_and_says_what_it_understood(terminal: Terminal) -> None:
    """keeps: B-65"""
    terminal.run("mark", "The parser failed", "--tag", "gotcha", "--agent", "scout")
    terminal.run("mark", "The parser failed again")

    def found(*options: str) -> list[str]:
        document = terminal.json("search", "parser", *options)
        assert isinstance(document, dict)
        return sorted(hit["mark"]["text"] for hit in document["hits"])

    assert len(found()) == 2
    assert found("--tag", "gotcha") == found("--agent", "scout") == ["The parser failed"]
    assert len(found("--since", "yesterday")) == 2
    assert found("--until", "yesterday") == []
    asked = terminal.json("search", "parser last Tuesday")
    assert isinstance(asked, dict)
    assert [period["words"] for period in asked["periods"]] == ["last Tuesday"]
    assert "mica: understood last Tuesday: 20" in terminal.run("search", "parser last Tuesday").stderr


def test_a_mark_that_cannot_be_stored_is_kept_and_reported(terminal: Terminal) -> None:
    """keeps: U-04. A mark reported as failed must not appear later, or a retry would double it."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o777)
        store = Path(folder) / "space.db"
        command = [sys.executable, "-c", UNPRIVILEGED, "mark", "two", "--json", "--store", str(store)]
        variables = os.environ | terminal.variables | {"HOME": folder}
        result = subprocess.run(command, env=variables, capture_output=True, text=True, check=False)
        store.chmod(0o644)

        assert result.returncode == 0, result.stderr
        assert f"cannot write {store}" in result.stderr
        document = json.loads(result.stdout[result.stdout.index("{") :])
        assert (document.keys(), document["position"]) == ({"id", "position", "text"}, None)
        rows = terminal.json("events", "tail", "--store", str(store))
        assert isinstance(rows, list)
        assert [row["data"]["text"] for row in rows] == ["one", "two"]


def test_a_mark_is_kept_while_the_server_is_away(terminal: Terminal, server: LocalPostgres) -> None:
    """keeps: U-04, TE-03, E-28.

    `mica doctor` reports the number of pending events even if the store does not answer.
    """
    store = ["--store", server.address()]
    assert terminal.run("mark", "one", *store).exit_code == 0
    server.kill()
    try:
        marked = terminal.run("mark", "two", *store)
        asked = terminal.run("doctor", *store)
        document = json.loads(terminal.run("doctor", "--json", *store).stdout)
    finally:
        server.restart()

    assert asked.exit_code == 1
    assert asked.stdout.startswith("1 problem  postgresql://")
    assert "does not answer" in asked.stdout
    assert "→ 1 event (" in asked.stdout
    assert document["backlog"]["events"] == 1
    assert not document["healthy"]
    assert marked.exit_code == 0, marked.output
    assert marked.stdout.startswith("saved here, stored when the store can be written again  ")
    assert "does not answer" in marked.stderr
    rows = terminal.json("events", "query", "--name", "mark", *store)
    assert isinstance(rows, list)
    assert [row["data"]["text"] for row in rows] == ["one", "two"]


def test_repeated_marks_are_shown_once_with_a_count(terminal: Terminal) -> None:
    """keeps: U-01. Case and punctuation do not matter."""
    for text in ("The cookie is set early", "the cookie is set EARLY!", "The cookie is set late"):
        terminal.run("mark", text)
    shown = terminal.run("search", "cookie", "set").stdout
    assert shown.count("\n") == 2
    assert "(2 times)" in shown
    hits = json.loads(terminal.run("search", "cookie", "set", "--json").stdout)["hits"]
    assert sorted(hit["times"] for hit in hits) == [1, 2]


def test_marking_needs_no_model_and_waiting_marks_are_counted(terminal: Terminal) -> None:
    """keeps: U-02. bench/witness.py measures the cost."""
    code = (
        "import asyncio, sys, mica\n"
        "async def main():\n"
        "    async with mica.open('space.db') as memory:\n"
        "        memory.mark('one'); await memory.durable(); print(await memory.upkeep.backlog())\n"
        "asyncio.run(main())\n"
        "print([name for name in sys.modules if name.startswith(('mica.llm.models', 'pydantic_ai', 'onnxruntime'))])"
    )
    variables = {**os.environ, **terminal.variables}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=variables, check=True)

    counted, loaded = map(ast.literal_eval, done.stdout.splitlines())
    assert counted[0] == 1
    assert counted[1] > 0
    assert loaded == []
    document = terminal.json("doctor")
    assert isinstance(document, dict)
    assert document["backlog"] == {"events": 0, "size_bytes": 0}


def test_lines_are_recorded_all_or_none(store_terminal: StoreTerminal) -> None:
    """An invalid line is named with its number, and running it again doubles nothing."""
    store_terminal.run("mark", "the login page is slow")
    store_terminal.run("purge", "--value", "login", "--yes")
    for stdin, message in (
        (b"one\n\xff\xfe\nthree\n", "standard input is not UTF-8: line 2 has the byte 0xff"),
        (b"one\n\nthe Login flow\nfour\n", "line 3 cannot be recorded, so no line was: "),
    ):
        for options in ((), ("--json",)):
            refused = store_terminal.piped(stdin, "mark", "--lines", *options)

            assert (refused.exit_code, refused.stdout) == (1, "")
            assert refused.stderr.startswith(f"mica: {message}")
    assert "standard input is not UTF-8: line 1 has the byte 0xff" in store_terminal.piped(b"\xff", "mark").stderr
    refused = store_terminal.piped(b"one\ntwo\n", "mark", "--lines", "--tag", "we ird")
    assert refused.stderr.startswith("mica: line 1 cannot be recorded, so no line was: ")
    assert store_terminal.listed("events", "query", "--name", "mark") == []

    assert store_terminal.piped(b"one\r\n\ntwo\n", "mark", "--lines").exit_code == 0
    assert [each["data"]["text"] for each in store_terminal.listed("events", "query", "--name", "mark")] == [
        "one",
        "two",
    ]


def test_a_pipe_gets_each_hit_on_one_line(terminal: Terminal) -> None:
    """Other programs read lines; only a terminal wraps them."""
    long = "The session cookie is set before the redirect, " + "so that " * 30 + "it is lost"
    terminal.run("mark", long)

    found, explained = terminal.run("search", "cookie").stdout, terminal.run("why", "1").stdout

    assert [long in line for line in found.splitlines()] == [True]
    assert any(long in line for line in explained.splitlines())

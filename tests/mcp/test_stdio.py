"""MCP over standard input and output: lines, signals, and the project of the server."""

from __future__ import annotations

import signal
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.mcp.conftest import META, Start

import mica
from mica.mcp.stdio import split


def test_every_request_is_answered_before_the_server_exits(start: Start) -> None:
    client = start()
    for number in range(20):
        client.send(
            {
                "jsonrpc": "2.0",
                "id": number,
                "method": "tools/call",
                "params": {"_meta": META, "name": "brief", "arguments": {}},
            }
        )

    out, _ = client.process.communicate(timeout=60)

    assert sorted(msgspec.json.decode(line)["id"] for line in out.splitlines()) == list(range(20))
    assert client.process.returncode == 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_the_server_cleanly(number: signal.Signals, start: Start) -> None:
    client = start()
    client.initialize()
    client.call("mark", text="The cookie is set before the redirect")

    client.process.send_signal(number)

    assert client.leave()[0] == 0


@given(st.binary(max_size=300), st.lists(st.integers(1, 50), min_size=1, max_size=20))
def test_lines_do_not_depend_on_chunk_sizes(content: bytes, sizes: list[int]) -> None:
    pieces = []
    rest, turn = content, 0
    while rest:
        size = sizes[turn % len(sizes)]
        pieces.append(rest[:size])
        rest, turn = rest[size:], turn + 1
    arriving = iter([*pieces, b""])

    expected = content.split(b"\n")
    assert list(split(lambda: next(arriving))) == (expected if expected[-1] else expected[:-1])


def test_a_line_without_an_end_is_cut() -> None:
    arriving = iter([b"x" * 100, b"y" * 100, b"\nnext\n", b""])

    assert list(split(lambda: next(arriving), line_bytes_max=120)) == [b"x" * 100 + b"y" * 20, b"next"]


def test_a_server_started_in_its_own_plugin_reports_it(start: Start, tmp_path: Path) -> None:
    """Copilot CLI and Codex start a plugin's server there, depending on how it is declared."""
    (tmp_path / ".claude-plugin").mkdir()
    (tmp_path / ".claude-plugin" / "plugin.json").touch()
    client = start(directory=tmp_path)
    client.initialize()

    result = client.call("mark", text="A test was here")

    assert result["isError"] is True
    assert "which is no project" in result["content"][0]["text"]


def test_only_a_write_creates_the_space(start: Start, environment: dict[str, str]) -> None:
    client = start()
    client.initialize()
    spaces = mica.load_settings(environment).home / "spaces"

    assert client.call("brief")["isError"] is False
    assert client.call("search", query="x")["isError"] is False
    assert not list(spaces.glob("*.db"))
    client.call("mark", text="The cookie is set before the redirect")

    assert len(list(spaces.glob("*.db"))) == 1
    assert len(client.call("search", query="cookie")["structuredContent"]["hits"]) == 1


def test_the_project_is_named_by_option_then_variable_then_root_then_directory(
    start: Start, project: Path, tmp_path: Path, environment: dict[str, str]
) -> None:
    """Each folder with a `.git` is a separate space of that name."""
    folders = {}
    for name in ("option", "variable", "root", "directory"):
        folders[name] = tmp_path / name
        (folders[name] / ".git").mkdir(parents=True)
    root = {"roots": [{"uri": "file:///no/such"}, {"uri": folders["root"].as_uri(), "name": "root"}]}
    named = {"CLAUDE_PROJECT_DIR": str(folders["variable"])}

    def mark_in(*words: str, variables: dict[str, str], offers_roots: bool = True) -> None:
        client = start(*words, directory=folders["directory"], **variables)
        client.initialize(**({"roots": {}} if offers_roots else {}))
        if offers_roots and not words and not variables:
            request = client.receive()
            assert request["method"] == "roots/list"
            client.send({"jsonrpc": "2.0", "id": request["id"], "result": root})
        client.call("mark", text="A test was here")
        client.leave()

    mark_in("--root", str(folders["option"]), variables=named)
    mark_in(variables=named)
    mark_in(variables={})
    mark_in(variables={}, offers_roots=False)

    made = (mica.load_settings(environment).home / "spaces").glob("*.db")
    assert sorted(path.name.rpartition("-")[0] for path in made) == ["directory", "option", "root", "variable"]

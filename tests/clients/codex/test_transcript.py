"""Reading Codex rollouts."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.clients.transcripts import (
    ROLLOUT,
    Json,
    asks,
    events_of,
    marks,
    named,
    navigation,
    returns,
    rollout,
    says,
)

from mica.clients.codex import transcript as codex


def test_a_rollout_has_the_reads_and_hits_of_its_commands() -> None:
    """keeps: A-12, TA-02. Unsupported calls touch nothing."""
    events = events_of(codex, ROLLOUT)

    assert navigation(events) == [
        ("read", "src/auth.py", 10, 40, None),
        ("search", "src/auth.py", 5, 5, None),
        ("search", "src/auth.py", 50, 51, None),
        ("search", "src/auth.py", 54, 60, None),
        ("read", "src/db.py", 1, 3, None),
    ]
    failed = [event.data["tool"] for event in named(events, "tool.failed")]
    assert failed == ["shell_command", "apply_patch", "mcp__probe__crystal_context"]
    assert [run.data["exit_code"] for run in named(events, "shell.run")] == [0, 0]


def test_a_patch_has_the_lines_of_the_rollouts_own_record(tmp_path: Path) -> None:
    diff = "@@ -1,3 +1,3 @@\n # db line 1\n-# db line 2\n+# db line TWO\n # db line 3\n"
    changes = {
        "/home/dev/shop/src/db.py": {"type": "update", "unified_diff": diff, "move_path": None},
        "/home/dev/shop/new.py": {"type": "add", "content": "a\nb\n"},
        "/etc/hosts": {"type": "delete", "content": "x\n"},
    }
    item = {"type": "FileChange", "id": "c1", "changes": changes, "status": "completed", "stdout": "Success."}
    path = rollout(
        tmp_path / "rollout-1.jsonl",
        ("response_item", {"type": "custom_tool_call", "name": "apply_patch", "call_id": "c1", "input": "*** Begin"}),
        ("event_msg", {"type": "item_completed", "turn_id": "t1", "item": item}),
        ("response_item", {"type": "custom_tool_call_output", "call_id": "c1", "output": "Exit code: 0\nOutput:\nOK"}),
    )

    assert navigation(events_of(codex, path)) == [
        ("edit", "src/db.py", 2, 2, None),
        ("create", "new.py", 1, 2, 2),
        ("edit", "/etc/hosts", None, None, None),
    ]


@pytest.mark.parametrize(
    ("name", "arguments", "output", "ok"),
    [
        (
            "shell",
            {"command": ["bash", "-lc", "sed -n '2,3p' a.py"]},
            '{"output":"x\\ny\\n","metadata":{"exit_code":0}}',
            1,
        ),
        (
            "shell_command",
            {"command": "sed -n '2,3p' a.py"},
            "Exit code: 0\nWall time: 0.1 seconds\nOutput:\nx\ny\n",
            1,
        ),
        ("exec_command", {"cmd": "sed -n '2,3p' a.py"}, "Process exited with code 0\nOutput:\nx\ny\n", 1),
        ("exec_command", {"cmd": "sed -n '2,3p' a.py"}, "Process exited with code 1\nOutput:\n", 0),
        ("exec_command", {"cmd": "sed -n '2,3p' a.py"}, "command rejected by user", None),
    ],
)
def test_commands_of_older_rollouts_are_read(
    tmp_path: Path, name: str, arguments: Json, output: str, ok: int | None
) -> None:
    """A command that failed without a word, and one that was refused, showed nothing."""
    events = events_of(codex, rollout(tmp_path / "r.jsonl", asks("c1", name, **arguments), returns("c1", output)))

    assert navigation(events) == ([("read", "a.py", 2, 3, None)] if ok else [])
    assert [bool(run.data["ok"]) for run in named(events, "shell.run")] == ([] if ok is None else [bool(ok)])


@pytest.mark.parametrize(
    ("workdir", "shown", "name"),
    [
        ("/home/dev/shop/sub", "a.py", "sub/a.py"),
        ("sub", "a.py", "sub/a.py"),
        ("/home/dev/shop", "../other/a.py", "/home/dev/other/a.py"),
        ("/home/dev/shop", "/etc/hosts", "/etc/hosts"),
    ],
)
def test_paths_are_relative_to_the_folder_of_their_command(tmp_path: Path, workdir: str, shown: str, name: str) -> None:
    """Outside the project they stay absolute."""
    call = asks("c1", "exec_command", cmd=f"cat {shown}", workdir=workdir)
    path = rollout(tmp_path / "r.jsonl", call, returns("c1", "Process exited with code 0\nOutput:\nx\n"))

    assert navigation(events_of(codex, path)) == [("read", name, 1, 1, None)]


def test_windows_paths_have_slashes(tmp_path: Path) -> None:
    call = {
        "type": "FileChange",
        "id": "c1",
        "changes": {r"C:\Users\ann\shop\src\a.py": {"type": "add", "content": ""}},
    }
    path = rollout(
        tmp_path / "r.jsonl", ("event_msg", {"type": "item_completed", "item": call}), cwd=r"C:\Users\ann\shop"
    )

    assert navigation(events_of(codex, path)) == [("create", "src/a.py", None, None, 0)]


@pytest.mark.parametrize(
    "spoken",
    [
        says("# AGENTS.md instructions for /home/dev/shop\n\n<INSTRUCTIONS>\nUse pytest.\n</INSTRUCTIONS>"),
        says("<environment_context>\n<cwd>/home/dev/shop</cwd>\n</environment_context>"),
        says('<memory from="mica" note="Recalled">\nauth is in src/auth.py\n</memory>'),
        says("Recalled text", role="developer"),
        says("   "),
    ],
)
def test_inserted_text_is_no_prompt(tmp_path: Path, spoken: tuple[str, Json]) -> None:
    """keeps: TC-11"""
    assert marks(events_of(codex, rollout(tmp_path / "r.jsonl", spoken)), "prompt") == []


def test_a_fork_repeats_the_events_of_its_origin(tmp_path: Path) -> None:
    done = [says("Fix it"), asks("c1", "exec_command", cmd="cat a.py"), returns("c1", "Exit code: 0\nOutput:\nx\n")]
    origin = events_of(codex, rollout(tmp_path / "a.jsonl", *done))
    fork = events_of(codex, rollout(tmp_path / "b.jsonl", *done, id="s2", session_id="s2"))

    assert {event.id for event in fork} - {event.id for event in origin} == {
        event.id for event in named(fork, "session.started")
    }


def test_a_subagents_rollout_has_no_typed_prompt(tmp_path: Path) -> None:
    path = rollout(tmp_path / "r.jsonl", says("Look around"), source={"subagent": {"thread_spawn": {}}})
    assert marks(events_of(codex, path), "prompt") == []


def test_a_second_prompt_in_a_turn_is_a_child_of_the_first(tmp_path: Path) -> None:
    events = events_of(codex, rollout(tmp_path / "r.jsonl", says("Fix it"), says("And test it")))
    first, second = named(events, "mark")
    assert (first.parent_id, second.parent_id) == (None, first.id)


def test_no_nul_reaches_an_event(tmp_path: Path) -> None:
    """PostgreSQL refuses it."""
    path = rollout(
        tmp_path / "r.jsonl",
        says("Fix\0it"),
        asks("c\0", "x\0"),
        returns("c\0", "ok"),
        asks("c2", "exec_command", cmd="cat a\0.py"),
        returns("c2", "Process exited with code 0\nOutput:\nx\0\n"),
        cwd="/home/dev\0/shop",
        cli_version="\0",
        git={"branch": "\0"},
    )
    events = events_of(codex, path)

    assert {event.name for event in events} >= {"session.started", "mark", "tool.run", "shell.run"}
    assert "\\u0000" not in json.dumps([[event.data, event.context.session] for event in events])

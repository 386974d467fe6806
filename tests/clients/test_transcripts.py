"""Transcripts of Codex, Gemini, Copilot and OpenCode: what the recordings hold, and what no file may break."""

from __future__ import annotations

import contextlib
import json
import sqlite3
from collections.abc import Callable, Iterable
from hashlib import sha256
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mica.clients.codex import transcript as codex
from mica.clients.copilot import transcript as copilot
from mica.clients.gemini import transcript as gemini
from mica.clients.opencode import transcript as opencode
from mica.clients.reader import Head, Reader
from mica.clients.records import Tally
from mica.clients.registry import CLIENTS, reader_named, reader_of
from mica.model.event import Event

FIXTURES = Path(__file__).parents[2] / "fixtures"
ROLLOUT = FIXTURES / "codex" / "rollout.jsonl"
GEMINI = FIXTURES / "gemini" / "session.jsonl"
COPILOT = FIXTURES / "copilot" / "events.jsonl"
FILES: list[tuple[Reader, Path]] = [(codex, ROLLOUT), (gemini, GEMINI), (copilot, COPILOT)]
OPENCODE_SESSION = "ses_e20fcff63ffeYSlgXduvIiEfNe"
SECRET = "ghp_" + "a1B2" * 9

Json = dict[str, object]


def events_of(
    reader: Reader,
    path: Path,
    *,
    start: int = 0,
    closed: bool = True,
    root: str | None = None,
    tally: Tally | None = None,
) -> list[Event]:
    pairs = reader.read(path, start=start, closed=closed, root=root, tally=tally or Tally())
    return [event for _, events in pairs for event in events]


def named(events: Iterable[Event], *names: str) -> list[Event]:
    return [event for event in events if event.name in names]


def marks(events: Iterable[Event], tag: str) -> list[str]:
    return [str(event.data["text"]) for event in named(events, "mark") if event.data["tags"] == [tag]]


def navigation(events: Iterable[Event]) -> list[tuple[object, ...]]:
    keys = ("path", "start_line", "end_line", "total_lines")
    found = [event for event in events if event.name.startswith("file.")]
    return [(event.name.removeprefix("file."), *(event.data[key] for key in keys)) for event in found]


def summed(events: Iterable[Event]) -> tuple[int, ...]:
    keys = ("input_tokens", "cache_read_tokens", "output_tokens", "reasoning_tokens")
    answers = named(events, "model.answer")
    sums = (sum(value for one in answers if isinstance(value := one.data.get(key), int)) for key in keys)
    return (len(answers), *sums)


def write(path: Path, *entries: Json) -> Path:
    path.write_text("".join(json.dumps(entry) + "\n" for entry in entries))
    return path


def session_of(database: Path) -> Path:
    return database / OPENCODE_SESSION


# -- What the recordings hold -----------------------------------------------------------------------------


def test_a_rollout_has_the_reads_and_hits_of_its_commands() -> None:
    """A-12, TA-02: what was unsupported touched nothing."""
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


def test_a_gemini_session_has_each_call_once_although_messages_are_written_twice() -> None:
    """A-12, TA-02: 7 answers in 13 records."""
    events = events_of(gemini, GEMINI)

    hits = [("search", "src/auth.py", line, line, 121) for line in (5, 50, 51, *range(54, 61))]
    assert navigation(events) == [
        ("read", "src/auth.py", 10, 40, 121),
        *hits,
        ("list", ".", None, None, None),
        ("read", "src/db.py", 1, 5, None),
        ("edit", "src/db.py", 3, 3, 60),
    ]


def test_a_copilot_session_has_the_changed_lines_from_its_diff() -> None:
    """A-12, TA-02"""
    assert navigation(events_of(copilot, COPILOT)) == [
        ("read", "src/auth.py", 10, 40, None),
        ("search", "src/auth.py", None, None, None),
        ("read", "src/db.py", 1, 5, None),
        ("edit", "src/db.py", 3, 3, None),
    ]


def test_an_opencode_session_has_what_completed_and_not_what_failed(opencode_db: Path) -> None:
    """A-12, TA-02"""
    events = events_of(opencode, session_of(opencode_db))

    assert navigation(events) == [
        ("read", "src/auth.py", 10, 39, 121),
        ("read", "src/db.py", 1, 5, None),
        ("edit", "src/auth.py", 12, 12, 121),
    ]
    assert [event.data["tool"] for event in named(events, "tool.failed")] == ["grep", "skill"]


def test_answers_are_counted_once_and_mean_the_same_for_all(opencode_db: Path) -> None:
    """Input is what was not cached; output is with what was thought."""
    assert summed(events_of(codex, ROLLOUT)) == (6, 6_021 - 4_800, 4_800, 300, 60)
    assert summed(events_of(gemini, GEMINI)) == (7, 7 * 200, 7 * 800, 7 * 60, 7 * 10)
    assert summed(events_of(copilot, COPILOT)) == (6, 6_000 - 4_800, 4_800, 300, 0)
    assert summed(events_of(opencode, session_of(opencode_db))) == (6, 6 * 200, 6 * 800, 6 * 50, 0)


def test_each_session_starts_once_is_asked_once_and_closes_once(opencode_db: Path) -> None:
    """TC-11: of all that was put before the model, only what was typed is a prompt."""
    for reader, path in [*FILES, (opencode, session_of(opencode_db))]:
        events = events_of(reader, path)
        [started] = named(events, "session.started")
        assert (started.data["cwd"], started.data["client"]) == ("/home/dev/shop", reader.CLIENT)
        [prompt] = marks(events, "prompt")
        assert prompt.strip('"') == "Explain how auth works"
        [closing] = marks(events, "closing")
        assert closing.startswith("All done")
        asked = next(event for event in named(events, "mark") if event.data["tags"] == ["prompt"])
        steps = [event for event in events if event.name.startswith(("file.", "shell.", "model.answer"))]
        assert {event.root_id for event in steps} == {asked.id}
        assert {event.context.session for event in events} == {reader.head(path).session}  # type: ignore[union-attr]


def test_nothing_that_hooks_or_hosts_said_becomes_an_event(opencode_db: Path) -> None:
    """TC-11: recalled text would confirm itself."""
    for reader, path in [*FILES, (opencode, session_of(opencode_db))]:
        said = json.dumps([event.data for event in events_of(reader, path)])
        for injected in ("CRYSTAL", "Use pytest", "environment_context", "session_context", "You are"):
            assert injected not in said, (reader.CLIENT, injected)


def test_the_beginning_says_whose_transcript_it_is(opencode_db: Path) -> None:
    assert reader_of(session_of(opencode_db)) is opencode
    for reader, path in FILES:
        assert reader_of(path) is reader
        assert [other.CLIENT for other in map(reader_named, CLIENTS) if other.head(path)] == [reader.CLIENT]
    claude = FIXTURES / "claude-code" / "transcript-a.jsonl"
    assert reader_of(claude).CLIENT == "claude-code"


# -- Pieces -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("reader", "path"), FILES, ids=lambda value: getattr(value, "CLIENT", ""))
def test_pieces_make_the_whole(reader: Reader, path: Path, tmp_path: Path) -> None:
    """A file that is read while it grows gives the events of the whole, each once."""
    whole = events_of(reader, path)
    piece = tmp_path / path.name
    lines = path.read_bytes().splitlines(keepends=True)

    found: list[Event] = []
    place = 0
    for count in range(1, len(lines) + 1):
        torn = lines[count][:40] if count < len(lines) else b""
        piece.write_bytes(b"".join(lines[:count]) + torn)
        pairs = list(reader.read(piece, start=place, closed=count == len(lines), tally=Tally()))
        found += [event for _, events in pairs for event in events]
        place = pairs[-1][0] if pairs else place

    assert place == path.stat().st_size
    assert sorted(event.id for event in found) == sorted(event.id for event in whole)


def test_messages_of_opencode_that_are_being_written_wait(opencode_db: Path) -> None:
    path = session_of(opencode_db)
    with contextlib.closing(sqlite3.connect(opencode_db)) as connection:
        [(last, data)] = connection.execute("SELECT id, data FROM message ORDER BY time_created DESC LIMIT 1")
        unfinished = json.loads(data)
        del unfinished["time"]["completed"]
        connection.execute("UPDATE message SET data = ? WHERE id = ?", (json.dumps(unfinished), last))
        connection.commit()
    tally = Tally()

    running = list(opencode.read(path, closed=False, tally=tally))
    rest = list(opencode.read(path, start=running[-1][0], tally=Tally()))

    assert (running[-1][0], tally.torn) == (6, 1)
    assert [event.name for _, events in rest for event in events] == ["model.answer", "mark"]
    assert opencode.extent(path).end == 7


# -- Codex ------------------------------------------------------------------------------------------------


def rollout(path: Path, *records: tuple[str, Json], cwd: str = "/home/dev/shop", **meta: object) -> Path:
    first: Json = {"session_id": "s1", "id": "s1", "cwd": cwd, "cli_version": "0.166.0"} | meta
    all_records = [("session_meta", first), ("turn_context", {"turn_id": "t1", "cwd": cwd, "model": "m"}), *records]
    return write(
        path,
        *[{"timestamp": "2026-11-15T11:00:00Z", "type": kind, "payload": payload} for kind, payload in all_records],
    )


def asks(call: str, name: str, **arguments: object) -> tuple[str, Json]:
    return "response_item", {
        "type": "function_call",
        "name": name,
        "arguments": json.dumps(arguments),
        "call_id": call,
    }


def returns(call: str, output: object) -> tuple[str, Json]:
    return "response_item", {"type": "function_call_output", "call_id": call, "output": output}


def says(text: str, role: str = "user") -> tuple[str, Json]:
    return "response_item", {"type": "message", "role": role, "content": [{"type": "input_text", "text": text}]}


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
def test_older_rollouts_tell_their_commands_too(
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
def test_paths_are_seen_from_the_folder_of_their_command(tmp_path: Path, workdir: str, shown: str, name: str) -> None:
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
def test_what_nobody_typed_is_no_prompt(tmp_path: Path, spoken: tuple[str, Json]) -> None:
    """TC-11"""
    assert marks(events_of(codex, rollout(tmp_path / "r.jsonl", spoken)), "prompt") == []


def test_a_fork_repeats_the_events_of_its_origin(tmp_path: Path) -> None:
    done = [says("Fix it"), asks("c1", "exec_command", cmd="cat a.py"), returns("c1", "Exit code: 0\nOutput:\nx\n")]
    origin = events_of(codex, rollout(tmp_path / "a.jsonl", *done))
    fork = events_of(codex, rollout(tmp_path / "b.jsonl", *done, id="s2", session_id="s2"))

    assert {event.id for event in fork} - {event.id for event in origin} == {
        event.id for event in named(fork, "session.started")
    }


def test_a_subagents_rollout_has_no_prompt_of_a_person(tmp_path: Path) -> None:
    path = rollout(tmp_path / "r.jsonl", says("Look around"), source={"subagent": {"thread_spawn": {}}})
    assert marks(events_of(codex, path), "prompt") == []


def test_more_words_in_a_turn_belong_to_it(tmp_path: Path) -> None:
    events = events_of(codex, rollout(tmp_path / "r.jsonl", says("Fix it"), says("And test it")))
    first, second = named(events, "mark")
    assert (first.parent_id, second.parent_id) == (None, first.id)


# -- Gemini -----------------------------------------------------------------------------------------------


def chat(path: Path, *messages: Json, project: str = "/home/dev/shop") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    header: Json = {"sessionId": "s1", "projectHash": sha256(project.encode()).hexdigest()}
    header |= {"startTime": "2026-11-15T11:00:00Z", "kind": "main"}
    return write(path, header, *[{"timestamp": "2026-11-15T11:00:00Z"} | message for message in messages])


def test_the_project_of_a_gemini_session_is_the_one_with_its_hash(tmp_path: Path) -> None:
    """A folder that only claims to be it would lead into a space of ours."""
    path = chat(tmp_path / "tmp" / "shop" / "chats" / "session-1.jsonl", {"id": "m1", "type": "user", "content": "Hi"})
    assert gemini.head(path) == Head(session="s1")
    marker = tmp_path / "tmp" / "shop" / ".project_root"
    marker.write_text("/home/dev/elsewhere\n")
    assert gemini.head(path) == Head(session="s1")
    marker.write_text("/home/dev/shop\n")
    assert gemini.head(path) == Head(session="s1", cwd="/home/dev/shop")
    marker.unlink()
    (tmp_path / "projects.json").write_text('{"projects": {"/home/dev/shop": "shop", "/x": "x"}}')
    assert gemini.head(path) == Head(session="s1", cwd="/home/dev/shop")


def test_gemini_commands_are_commands_and_hooks_are_not_typed(tmp_path: Path) -> None:
    path = chat(
        tmp_path / "session-1.jsonl",
        {"id": "m1", "type": "user", "content": "<hook_context>we said</hook_context>\n\n/nav:auth focus"},
        {"id": "m2", "type": "user", "content": [{"text": "/home/dev/shop/a.py is broken"}]},
        {"$set": {"messages": [{"id": "m2", "type": "user", "content": "/home/dev/shop/a.py is broken"}]}},
    )
    events = events_of(gemini, path)

    [command] = named(events, "command.run")
    assert (command.data["name"], command.data["args"]) == ("nav:auth", "focus")
    assert marks(events, "prompt") == ["/home/dev/shop/a.py is broken"]


def test_a_gemini_message_that_is_written_again_tells_its_calls_once(tmp_path: Path) -> None:
    """The same call in another message is another."""
    calls = [{"id": "1", "name": "read_file", "args": {"file_path": "a.py"}, "status": "success", "result": "x\n"}]
    first: Json = {"id": "m1", "type": "gemini", "toolCalls": calls}
    path = chat(tmp_path / "session-1.jsonl", first, first, first | {"id": "m2"}, {"$set": {"messages": [first]}})

    assert len(navigation(events_of(gemini, path))) == 2


def test_gemini_calls_that_failed_or_were_cancelled_touch_nothing(tmp_path: Path) -> None:
    calls = [
        {"id": "1", "name": "replace", "args": {"file_path": "a.py"}, "status": "cancelled"},
        {"id": "2", "name": "run_shell_command", "args": {"command": "cat a.py"}, "status": "cancelled"},
        {"id": "3", "name": "read_file", "args": {"file_path": "no.py"}, "status": "error", "resultDisplay": "gone"},
    ]
    events = events_of(gemini, chat(tmp_path / "session-1.jsonl", {"id": "m1", "type": "gemini", "toolCalls": calls}))

    assert [event.name for event in events if event.name != "session.started"] == [
        "tool.failed",
        "tool.failed",
        "file.read",
    ]
    assert named(events, "file.read")[0].error


@pytest.mark.parametrize(
    "text",
    [
        " " * 2_000_000 + "<hook_context>",
        "<hook_context>" * 150_000,
        "<hook_context></hook_context>" * 70_000,
        '<memory from="mica">' * 100_000,
        '\n\nTool "' * 200_000,
        "/" * 2_000_000,
    ],
    ids=["spaces", "opened", "closed", "recalled", "guidance", "slashes"],
)
def test_megabytes_of_strange_text_are_read_in_one_pass(tmp_path: Path, text: str) -> None:
    """Each would take hours where every beginning looks through all the rest."""
    call = {"id": "1", "name": "read_file", "args": {"file_path": "a"}, "status": "success", "result": text}
    path = chat(
        tmp_path / "session-1.jsonl",
        {"id": "m1", "type": "user", "content": f"Look {text}"},
        {"id": "m2", "type": "gemini", "content": text, "toolCalls": [call]},
    )
    started: Json = {
        "type": "session.start",
        "id": "1",
        "timestamp": "2026-11-15T11:00:00Z",
        "data": {"sessionId": "s"},
    }
    asked: Json = {"toolCallId": "c", "toolName": "bash", "arguments": {"command": "ls"}}
    done: Json = {"toolCallId": "c", "success": True, "result": {"content": text}}
    session = write(
        tmp_path / "events.jsonl",
        started,
        started | {"type": "tool.execution_start", "data": asked},
        started | {"type": "tool.execution_complete", "data": done},
    )
    command = asks("c", "exec_command", cmd="ls")

    assert marks(events_of(gemini, path), "prompt")
    assert named(events_of(copilot, session), "shell.run")
    assert named(events_of(codex, rollout(tmp_path / "r.jsonl", command, returns("c", text))), "shell.run")


# -- Copilot ----------------------------------------------------------------------------------------------


def test_copilot_calls_that_were_denied_touch_nothing(tmp_path: Path) -> None:
    def event(kind: str, **data: object) -> Json:
        return {"type": kind, "data": data, "id": kind, "timestamp": "2026-11-15T11:00:00Z"}

    path = write(
        tmp_path / "events.jsonl",
        event("session.start", sessionId="s1", context={"cwd": "/home/dev/shop"}),
        event("user.message", content="Injected by a skill", source="skill-x"),
        event("tool.execution_start", toolCallId="c1", toolName="bash", arguments={"command": "cat a.py"}),
        event("tool.execution_complete", toolCallId="c1", success=False, error={"code": "denied", "message": "no"}),
        event("tool.execution_start", toolCallId="c2", toolName="edit", arguments={"path": "/home/dev/shop/a.py"}),
        event("tool.execution_complete", toolCallId="c2", success=False, error={"message": "No match found"}),
    )
    events = events_of(copilot, path)

    assert [event.name for event in events] == ["session.started", "tool.failed", "tool.failed"]


# -- OpenCode ---------------------------------------------------------------------------------------------


def test_a_database_holds_many_sessions_and_each_is_found(opencode_db: Path) -> None:
    with contextlib.closing(sqlite3.connect(opencode_db)) as connection:
        connection.execute("INSERT INTO session VALUES ('ses_2', '', NULL, '/home/dev/other', NULL, 1, 9999999999999)")
        connection.execute("INSERT INTO session VALUES ('../out', '', NULL, '/home/dev/other', NULL, 1, 1)")
        connection.commit()

    assert opencode.find(opencode_db.parent) == [opencode_db / "ses_2", session_of(opencode_db)]
    assert opencode.head(opencode_db / "ses_2") == Head(session="ses_2", cwd="/home/dev/other")


@pytest.mark.parametrize("status", ["pending", "running"])
def test_a_tool_that_never_ran_touched_nothing(opencode_db: Path, status: str) -> None:
    with contextlib.closing(sqlite3.connect(opencode_db)) as connection:
        for name, data in connection.execute("SELECT id, data FROM part").fetchall():
            part = json.loads(data)
            if "state" in part:
                part["state"]["status"] = status
                connection.execute("UPDATE part SET data = ? WHERE id = ?", (json.dumps(part), name))
        connection.commit()

    assert not [event for event in events_of(opencode, session_of(opencode_db)) if "call" in event.data]


def test_what_is_no_database_is_named(tmp_path: Path) -> None:
    path = tmp_path / "opencode.db"
    path.write_bytes(b"this is not SQLite" * 100)
    unreadable: dict[str, str] = {}

    assert opencode.find(tmp_path, unreadable=unreadable) == []
    assert list(unreadable) == [str(path)]
    with pytest.raises(OSError, match="database"):
        opencode.find(tmp_path)


def test_a_database_of_another_layout_has_no_sessions(tmp_path: Path) -> None:
    with contextlib.closing(sqlite3.connect(tmp_path / "opencode.db")) as connection:
        connection.execute("CREATE TABLE session (key TEXT)")
        connection.commit()
    assert opencode.find(tmp_path) == []


def test_the_database_is_not_written_to(opencode_db: Path) -> None:
    before = opencode_db.read_bytes()
    opencode_db.chmod(0o400)
    opencode_db.parent.chmod(0o500)
    try:
        assert events_of(opencode, session_of(opencode_db))
        assert sorted(path.name for path in opencode_db.parent.iterdir()) == ["opencode.db"]
    finally:
        opencode_db.parent.chmod(0o700)
    assert opencode_db.read_bytes() == before


# -- Hostile input ----------------------------------------------------------------------------------------


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


def test_secrets_are_redacted(tmp_path: Path) -> None:
    command = asks("c1", "exec_command", cmd=f"curl -H 'Authorization: token {SECRET}' x")
    path = rollout(tmp_path / "r.jsonl", says(f"My token is {SECRET}"), command, returns("c1", "unsupported call: x"))
    chats = chat(tmp_path / "session-1.jsonl", {"id": "m", "type": "user", "content": f"My token is {SECRET}"})

    said = json.dumps([event.data for event in [*events_of(codex, path), *events_of(gemini, chats)]])

    assert SECRET not in said
    assert "My token is" in said


@pytest.mark.parametrize(("reader", "path"), FILES, ids=lambda value: getattr(value, "CLIENT", ""))
def test_unknown_types_and_keys_are_counted_and_cost_nothing_else(reader: Reader, path: Path, tmp_path: Path) -> None:
    records = [json.loads(line) | {"from_the_future": {"x": [1]}} for line in path.read_text().splitlines()]
    strange: Json = {"type": "from-the-future", "timestamp": "2026-11-15T11:00:00Z", "payload": {}, "data": {}}
    tally = Tally()

    events = events_of(reader, write(tmp_path / path.name, *records, strange), tally=tally)

    assert [event.id for event in events] == [event.id for event in events_of(reader, path)]
    assert tally.unknown == {"from-the-future": 1}


@pytest.mark.parametrize(("reader", "path"), FILES, ids=lambda value: getattr(value, "CLIENT", ""))
def test_a_torn_or_broken_line_is_counted_with_its_reason(reader: Reader, path: Path, tmp_path: Path) -> None:
    good = path.read_bytes()
    target = tmp_path / path.name
    target.write_bytes(good + b"\xff\xfe not json\n[1]\n\0\0\0\n" + good.splitlines()[-1][:30])
    tally = Tally()

    events = events_of(reader, target, tally=tally)

    assert [event.id for event in events] == [event.id for event in events_of(reader, path)]
    assert (tally.broken, tally.torn) == (3, 1)
    assert all(reason for _, reason in tally.complaints)


@pytest.mark.parametrize(("reader", "path"), FILES, ids=lambda value: getattr(value, "CLIENT", ""))
def test_a_line_of_a_hundred_megabytes_is_read(reader: Reader, path: Path, tmp_path: Path) -> None:
    target = tmp_path / path.name
    target.write_bytes(path.read_bytes() + b'{"type":"huge","text":"' + b"x" * 100_000_000 + b'"}\n')
    tally = Tally()

    events = events_of(reader, target, tally=tally)

    assert [event.id for event in events] == [event.id for event in events_of(reader, path)]
    assert tally.unknown == {"huge": 1}


_ODD = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(allow_nan=False),
    st.text(max_size=20),
    st.sampled_from(["\0", "\ud800", "-1", "C:\\x", "/home/dev/shop/src/auth.py", "*** Begin Patch\n*** Add File: \0"]),
    st.lists(st.integers(), max_size=2),
    st.dictionaries(st.text(max_size=3), st.integers(), max_size=2),
)


def _spoiled(value: object, draw: Callable[[st.SearchStrategy[object]], object]) -> object:
    """The same record with some keys removed, and some values of another kind."""
    if isinstance(value, dict):
        kept = {}
        for key, child in value.items():
            chance = draw(st.integers(0, 30))
            if chance == 0:
                continue
            kept[key] = draw(_ODD) if chance == 1 else _spoiled(child, draw)
        return kept
    return [_spoiled(child, draw) for child in value] if isinstance(value, list) else value


@pytest.mark.parametrize(("reader", "path"), FILES, ids=lambda value: getattr(value, "CLIENT", ""))
@settings(max_examples=40)
@given(data=st.data())
def test_spoiled_records_raise_nothing(reader: Reader, path: Path, tmp_path: Path, data: st.DataObject) -> None:
    """Keys removed, values of other types, NULs, lone surrogates: counted or passed over, never an exception."""
    lines = path.read_text().splitlines()
    chosen = data.draw(st.integers(0, len(lines) - 1))
    spoiled = [
        json.dumps(_spoiled(json.loads(line), data.draw)) if abs(number - chosen) < 3 else line
        for number, line in enumerate(lines)
    ]
    target = tmp_path / path.name
    target.write_text("\n".join(spoiled) + "\n")

    reader.head(target)
    events = events_of(reader, target)

    for event in events:
        assert "\\u0000" not in json.dumps(event.data)  # PostgreSQL refuses it


@settings(max_examples=40)
@given(data=st.data())
def test_spoiled_rows_raise_nothing(opencode_db: Path, data: st.DataObject) -> None:
    path = session_of(opencode_db)
    with contextlib.closing(sqlite3.connect(opencode_db)) as connection:
        table = data.draw(st.sampled_from(["message", "part"]))
        rows = connection.execute(f"SELECT id, data FROM {table} ORDER BY id").fetchall()
        name, text = rows[data.draw(st.integers(0, len(rows) - 1))]
        spoiled = data.draw(
            st.one_of(
                st.just(text).map(lambda value: json.dumps(_spoiled(json.loads(value), data.draw))),
                st.binary(max_size=20),
                st.text(st.characters(codec="utf-8"), max_size=20),
                st.integers(0, 5),
            )
        )
        connection.execute(f"UPDATE {table} SET data = ? WHERE id = ?", (spoiled, name))
        connection.commit()
        try:
            list(opencode.read(path, closed=data.draw(st.booleans()), tally=Tally()))
        finally:
            connection.execute(f"UPDATE {table} SET data = ? WHERE id = ?", (text, name))
            connection.commit()


@pytest.mark.parametrize("client", CLIENTS)
@settings(max_examples=40)
@given(content=st.binary(max_size=200))
def test_any_bytes_are_read_without_an_error(client: str, content: bytes, tmp_path: Path) -> None:
    target = tmp_path / "any.jsonl"
    target.write_bytes(content)
    reader = reader_named(client)
    assert reader.head(target) is None
    if client != "opencode":
        list(reader.read(target, tally=Tally()))

"""Reading Gemini CLI sessions."""

from __future__ import annotations

from pathlib import Path

from tests.clients.transcripts import (
    GEMINI,
    Json,
    chat,
    events_of,
    marks,
    named,
    navigation,
)

from mica.clients.gemini import transcript as gemini
from mica.clients.reader import TranscriptHead


def test_each_call_is_read_once_although_messages_are_written_twice() -> None:
    """keeps: A-12, TA-02. 7 answers in 13 records."""
    events = events_of(gemini, GEMINI)

    hits = [("search", "src/auth.py", line, line, 121) for line in (5, 50, 51, *range(54, 61))]
    assert navigation(events) == [
        ("read", "src/auth.py", 10, 40, 121),
        *hits,
        ("list", ".", None, None, None),
        ("read", "src/db.py", 1, 5, None),
        ("edit", "src/db.py", 3, 3, 60),
    ]


def test_the_project_of_a_session_has_the_hash_in_its_header(tmp_path: Path) -> None:
    """A folder that merely claims to be the project must not lead into its space."""
    path = chat(tmp_path / "tmp" / "shop" / "chats" / "session-1.jsonl", {"id": "m1", "type": "user", "content": "Hi"})
    assert gemini.head(path) == TranscriptHead(session="s1")
    marker = tmp_path / "tmp" / "shop" / ".project_root"
    marker.write_text("/home/dev/elsewhere\n")
    assert gemini.head(path) == TranscriptHead(session="s1")
    marker.write_text("/home/dev/shop\n")
    assert gemini.head(path) == TranscriptHead(session="s1", cwd="/home/dev/shop")
    marker.unlink()
    (tmp_path / "projects.json").write_text('{"projects": {"/home/dev/shop": "shop", "/x": "x"}}')
    assert gemini.head(path) == TranscriptHead(session="s1", cwd="/home/dev/shop")


def test_slash_commands_are_commands_and_hook_text_is_ignored(tmp_path: Path) -> None:
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


def test_calls_of_a_repeated_message_are_read_once(tmp_path: Path) -> None:
    """The same call in another message is another."""
    calls = [{"id": "1", "name": "read_file", "args": {"file_path": "a.py"}, "status": "success", "result": "x\n"}]
    first: Json = {"id": "m1", "type": "gemini", "toolCalls": calls}
    path = chat(tmp_path / "session-1.jsonl", first, first, first | {"id": "m2"}, {"$set": {"messages": [first]}})

    assert len(navigation(events_of(gemini, path))) == 2


def test_failed_and_cancelled_calls_touch_nothing(tmp_path: Path) -> None:
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

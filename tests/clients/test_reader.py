"""Promises that every transcript reader keeps, on recordings and on damaged files."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.clients.transcripts import (
    COPILOT,
    FILES,
    FIXTURES,
    GEMINI,
    ROLLOUT,
    SECRET,
    Json,
    asks,
    chat,
    events_of,
    marks,
    named,
    returns,
    rollout,
    says,
    session_of,
    spoil,
    summed,
    write,
)

from mica.clients.codex import transcript as codex
from mica.clients.copilot import transcript as copilot
from mica.clients.gemini import transcript as gemini
from mica.clients.opencode import transcript as opencode
from mica.clients.reader import Reader
from mica.clients.records import ImportTally
from mica.clients.registry import READERS, reader_named, reader_of
from mica.model.event import Event


def test_token_counts_mean_the_same_for_every_client(opencode_db: Path) -> None:
    """Input excludes cached tokens; output includes thinking."""
    assert summed(events_of(codex, ROLLOUT)) == (6, 6_021 - 4_800, 4_800, 300, 60)
    assert summed(events_of(gemini, GEMINI)) == (7, 7 * 200, 7 * 800, 7 * 60, 7 * 10)
    assert summed(events_of(copilot, COPILOT)) == (6, 6_000 - 4_800, 4_800, 300, 0)
    assert summed(events_of(opencode, session_of(opencode_db))) == (6, 6 * 200, 6 * 800, 6 * 50, 0)


def test_a_recording_has_one_start_one_prompt_and_one_closing(opencode_db: Path) -> None:
    """keeps: TC-11. Of all that was put before the model, only what was typed is a prompt."""
    for reader, path in [*FILES, (opencode, session_of(opencode_db))]:
        events = events_of(reader, path)
        [started] = named(events, "session.started")
        assert (started.data["cwd"], started.data["client"]) == ("/home/dev/shop", reader.NAME)
        [prompt] = marks(events, "prompt")
        assert prompt.strip('"') == "Explain how auth works"
        [closing] = marks(events, "closing")
        assert closing.startswith("All done")
        asked = next(event for event in named(events, "mark") if event.data["tags"] == ["prompt"])
        steps = [event for event in events if event.name.startswith(("file.", "shell.", "model.answer"))]
        assert {event.root_id for event in steps} == {asked.id}
        assert {event.context.session for event in events} == {reader.head(path).session}  # type: ignore[union-attr]


def test_text_from_hooks_and_hosts_becomes_no_event(opencode_db: Path) -> None:
    """keeps: TC-11. Recalled text would otherwise confirm itself."""
    for reader, path in [*FILES, (opencode, session_of(opencode_db))]:
        said = json.dumps([event.data for event in events_of(reader, path)])
        for injected in ("CRYSTAL", "Use pytest", "environment_context", "session_context", "You are"):
            assert injected not in said, (reader.NAME, injected)


def test_only_the_reader_of_its_client_accepts_a_transcript(opencode_db: Path) -> None:
    assert reader_of(session_of(opencode_db)) is opencode
    for reader, path in FILES:
        assert reader_of(path) is reader
        assert [other.NAME for other in READERS.values() if other.head(path)] == [reader.NAME]
    claude = FIXTURES / "claude-code" / "transcript-a.jsonl"
    assert reader_of(claude).NAME == "claude-code"


@pytest.mark.parametrize(("reader", "path"), FILES, ids=lambda value: getattr(value, "NAME", ""))
def test_a_file_read_while_it_grows_gives_the_events_of_the_whole(reader: Reader, path: Path, tmp_path: Path) -> None:
    """A file that is read while it grows gives the events of the whole, each once."""
    whole = events_of(reader, path)
    piece = tmp_path / path.name
    lines = path.read_bytes().splitlines(keepends=True)

    found: list[Event] = []
    place = 0
    for count in range(1, len(lines) + 1):
        torn = lines[count][:40] if count < len(lines) else b""
        piece.write_bytes(b"".join(lines[:count]) + torn)
        pairs = list(reader.read(piece, start=place, closed=count == len(lines), tally=ImportTally()))
        found += [event for _, events in pairs for event in events]
        place = pairs[-1][0] if pairs else place

    assert place == path.stat().st_size
    assert sorted(event.id for event in found) == sorted(event.id for event in whole)


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
def test_megabytes_of_unusual_text_are_read_in_one_pass(tmp_path: Path, text: str) -> None:
    """Each would take hours with a quadratic scan."""
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


def test_secrets_are_redacted(tmp_path: Path) -> None:
    command = asks("c1", "exec_command", cmd=f"curl -H 'Authorization: token {SECRET}' x")
    path = rollout(tmp_path / "r.jsonl", says(f"My token is {SECRET}"), command, returns("c1", "unsupported call: x"))
    chats = chat(tmp_path / "session-1.jsonl", {"id": "m", "type": "user", "content": f"My token is {SECRET}"})

    said = json.dumps([event.data for event in [*events_of(codex, path), *events_of(gemini, chats)]])

    assert SECRET not in said
    assert "My token is" in said


@pytest.mark.parametrize(("reader", "path"), FILES, ids=lambda value: getattr(value, "NAME", ""))
def test_unknown_types_and_keys_are_counted_and_change_nothing_else(reader: Reader, path: Path, tmp_path: Path) -> None:
    records = [json.loads(line) | {"from_the_future": {"x": [1]}} for line in path.read_text().splitlines()]
    strange: Json = {"type": "from-the-future", "timestamp": "2026-11-15T11:00:00Z", "payload": {}, "data": {}}
    tally = ImportTally()

    events = events_of(reader, write(tmp_path / path.name, *records, strange), tally=tally)

    assert [event.id for event in events] == [event.id for event in events_of(reader, path)]
    assert tally.unknown == {"from-the-future": 1}


@pytest.mark.parametrize(("reader", "path"), FILES, ids=lambda value: getattr(value, "NAME", ""))
def test_a_torn_or_broken_line_is_counted_with_its_reason(reader: Reader, path: Path, tmp_path: Path) -> None:
    good = path.read_bytes()
    target = tmp_path / path.name
    target.write_bytes(good + b"\xff\xfe not json\n[1]\n\0\0\0\n" + good.splitlines()[-1][:30])
    tally = ImportTally()

    events = events_of(reader, target, tally=tally)

    assert [event.id for event in events] == [event.id for event in events_of(reader, path)]
    assert (tally.broken, tally.torn) == (3, 1)
    assert all(reason for _, reason in tally.complaints)


@pytest.mark.parametrize(("reader", "path"), FILES, ids=lambda value: getattr(value, "NAME", ""))
def test_a_line_of_a_hundred_megabytes_is_read(reader: Reader, path: Path, tmp_path: Path) -> None:
    target = tmp_path / path.name
    target.write_bytes(path.read_bytes() + b'{"type":"huge","text":"' + b"x" * 100_000_000 + b'"}\n')
    tally = ImportTally()

    events = events_of(reader, target, tally=tally)

    assert [event.id for event in events] == [event.id for event in events_of(reader, path)]
    assert tally.unknown == {"huge": 1}


@pytest.mark.parametrize(("reader", "path"), FILES, ids=lambda value: getattr(value, "NAME", ""))
@settings(max_examples=40)
@given(data=st.data())
def test_damaged_records_raise_nothing(reader: Reader, path: Path, tmp_path: Path, data: st.DataObject) -> None:
    """Keys removed, values of other types, NULs, lone surrogates: counted or passed over, never an exception."""
    lines = path.read_text().splitlines()
    chosen = data.draw(st.integers(0, len(lines) - 1))
    spoiled = [
        json.dumps(spoil(json.loads(line), data.draw)) if abs(number - chosen) < 3 else line
        for number, line in enumerate(lines)
    ]
    target = tmp_path / path.name
    target.write_text("\n".join(spoiled) + "\n")

    reader.head(target)
    events = events_of(reader, target)

    for event in events:
        assert "\\u0000" not in json.dumps(event.data)  # PostgreSQL refuses it


@pytest.mark.parametrize("client", READERS)
@settings(max_examples=40)
@given(content=st.binary(max_size=200))
def test_any_bytes_are_read_without_an_error(client: str, content: bytes, tmp_path: Path) -> None:
    target = tmp_path / "any.jsonl"
    target.write_bytes(content)
    reader = reader_named(client)
    assert reader.head(target) is None
    if client != "opencode":
        list(reader.read(target, tally=ImportTally()))

"""Claude Code transcripts: what the recordings hold, and what no file may break."""

from __future__ import annotations

import errno
import functools
import json
import operator
import os
import tracemalloc
from collections.abc import Iterable
from hashlib import blake2b
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.clients.transcripts import SECRET, Json, marks, named, write

from mica.clients.claude_code import transcript as claude_code
from mica.clients.reader import TranscriptHead
from mica.clients.records import ImportTally
from mica.model.event import Event

RECORDINGS = Path(__file__).parents[2] / "fixtures" / "claude-code"
A = RECORDINGS / "transcript-a.jsonl"
B = RECORDINGS / "transcript-b-compact-resume.jsonl"
SUBAGENT = RECORDINGS / "subagent.jsonl"
SESSION = "89f4bcb0-c600-471f-8523-f8ca45a1d6d0"


def events_of(path: Path, *, start: int = 0, closed: bool = True, tally: ImportTally | None = None) -> list[Event]:
    pairs = claude_code.read(path, start=start, closed=closed, tally=tally or ImportTally())
    return [event for _, events in pairs for event in events]


def navigation(events: Iterable[Event]) -> list[tuple[object, ...]]:
    keys = ("path", "start_line", "end_line", "total_lines")
    found = [event for event in events if event.name.startswith("file.")]
    return [(event.name, *(event.data[key] for key in keys)) for event in found]


# -- Records, as Claude Code writes them ------------------------------------------------------------------


def record(kind: str, uuid: str, message: object = None, **more: object) -> Json:
    return {
        "parentUuid": None,
        "isSidechain": False,
        "type": kind,
        "uuid": uuid,
        "message": message,
        "sessionId": "s1",
        "timestamp": "2026-11-15T11:00:00.000Z",
        "cwd": "/home/dev/shop",
        "version": "2.1.325",
        "gitBranch": "main",
    } | more


def user(content: object, uuid: str = "u1", **more: object) -> Json:
    return record("user", uuid, {"role": "user", "content": content}, **({"promptId": "p1"} | more))


def answer(block: Json, uuid: str, *, stop: str | None = "end_turn", output: int = 5, **more: object) -> Json:
    usage = {"input_tokens": 1, "output_tokens": output}
    message = {"id": "msg1", "model": "m", "content": [block], "stop_reason": stop, "usage": usage}
    return record("assistant", uuid, message, **({"requestId": "r1"} | more))


def says(text: str, uuid: str = "a1", *, stop: str | None = "end_turn", output: int = 5, **more: object) -> Json:
    return answer({"type": "text", "text": text}, uuid, stop=stop, output=output, **more)


def asks(call: str, tool: str, **given: object) -> Json:
    block: Json = {"type": "tool_use", "id": call, "name": tool, "input": given}
    return answer(block, f"a-{call}", stop="tool_use", requestId=f"r-{call}")


def returns(call: str, text: object, result: object = None, *, error: bool | None = None, **more: object) -> Json:
    block: Json = {"type": "tool_result", "tool_use_id": call, "content": text}
    block |= {} if error is None else {"is_error": error}
    return user([block], f"u-{call}", **({} if result is None else {"toolUseResult": result}), **more)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "s1.jsonl"


# -- What the recordings hold -----------------------------------------------------------------------------


def test_steps_come_back_in_the_order_of_access() -> None:
    """keeps: TA-02, A-12. Path, lines, hash, tokens and operation of every access, not a set of paths."""
    found = named(events_of(A), "file.read")

    assert navigation(found) == [
        ("file.read", "src/db.py", 1, 60, 60),
        ("file.read", "src/auth.py", 10, 39, 120),
        ("file.read", "src/db.py", 1, 5, 60),
        ("file.read", "src/auth.py", 1, 3, 120),
        ("file.read", "src/missing.py", None, None, None),
    ]
    texts = [
        "".join(f"# db line {n}\n" for n in range(1, 61)),
        "\n".join(f"# auth line {n}" for n in range(10, 40)),
    ]
    texts += [
        "\n".join(f"# db line {n}" for n in range(1, 6)),
        "\n".join(f"# auth line {n}" for n in range(1, 4)),
    ]
    hashes = [blake2b(text.encode(), digest_size=8).hexdigest() for text in texts]
    assert [event.data["content_hash"] for event in found] == [*hashes, None]
    assert all(isinstance(event.data["tokens"], int) for event in found[:4])
    assert [event.data["via"] for event in found] == ["Read", "Read", "Bash", "Bash", "Read"]
    assert [event.at for event in found] == sorted(event.at for event in found)


def test_shell_reads_are_children_of_their_command() -> None:
    events = events_of(A)
    [run] = named(events, "shell.run")

    inner = [event for event in events if event.parent_id == run.id]
    assert navigation(inner) == [
        ("file.read", "src/db.py", 1, 5, 60),
        ("file.read", "src/auth.py", 1, 3, 120),
    ]
    assert run.data["command"] == "sed -n '1,5p' src/db.py && cat src/auth.py | head -3"
    assert (run.data["ok"], run.data["exit_code"], run.error) == (True, 0, False)
    assert {event.depth for event in inner} == {2}


def test_a_read_that_failed_is_a_read_with_an_error() -> None:
    [failed] = [event for event in named(events_of(A), "file.read") if event.error]

    assert failed.data["path"] == "src/missing.py"
    assert failed.data["text"] == "File does not exist. Note: your current working directory is /home/dev/shop."


def test_refused_or_missing_files_are_not_navigation() -> None:
    events = events_of(A)

    failed = named(events, "tool.failed")
    assert [event.data["tool"] for event in failed] == ["Grep", "Glob", "Edit", "mcp__probe__crystal_context"]
    assert all(event.error for event in failed)
    assert not named(events, "file.edit", "file.search", "file.list", "tool.run")


def test_edits_carry_the_changed_lines_and_new_files_all_of_them() -> None:
    found = navigation(events_of(B))

    assert found == [("file.edit", "src/auth.py", 52, 53, None), ("file.create", "src/new.py", 1, 1, 1)]


def test_a_subagents_read_is_a_child_of_the_turns_prompt() -> None:
    [prompt] = [event for event in named(events_of(B), "command.run") if event.data["name"] == "nav:auth"]

    events = events_of(SUBAGENT)

    [step] = [event for event in events if event.name.startswith("file.")]
    assert navigation([step]) == [("file.read", "src/auth.py", 50, 54, None)]
    assert step.context.agent == "ad482429cb28f5523"
    assert {event.parent_id for event in events} == {prompt.id}
    assert {event.root_id for event in events} == {prompt.root_id}
    assert not marks(events, "prompt")
    assert not named(events, "session.started")


def test_a_subagents_read_has_the_hash_of_the_same_read_by_its_parent() -> None:
    text = "\n".join(f"# auth line {number}" for number in range(50, 55))

    [step] = named(events_of(SUBAGENT), "file.read")

    assert step.data["content_hash"] == blake2b(text.encode(), digest_size=8).hexdigest()


@pytest.mark.parametrize(("recording", "answers"), [(A, 7), (B, 8), (SUBAGENT, 2)])
def test_an_answer_is_counted_once(recording: Path, answers: int) -> None:
    found = named(events_of(recording), "model.answer")

    keys = ("input_tokens", "cache_write_tokens", "cache_read_tokens", "output_tokens")
    assert len(found) == answers
    assert [sum(event.data[key] for event in found) for key in keys] == [  # type: ignore[misc]  # all are int
        answers * each for each in (11, 222, 3_333, 44)
    ]
    assert {event.data["model"] for event in found} == {"claude-sonnet-5"}


def test_turns_begin_with_a_prompt_or_a_command_and_end_with_closing_words() -> None:
    first, second = events_of(A), events_of(B)

    assert marks(first, "prompt") == ["Explain how auth works"]
    assert marks(first, "closing") == ["All done, the auth flow is in src/auth.py."]
    assert [event.data for event in named(second, "command.run")] == [
        {"name": "nav:auth", "args": "focus-me", "text": "/nav:auth focus-me"},
        {"name": "compact", "args": "keep the auth facts", "text": "/compact keep the auth facts"},
        {"name": "mcp__probe__nav_auth", "args": "tokens", "text": "/mcp__probe__nav_auth tokens"},
    ]
    assert marks(second, "closing") == ["Finished.", "ok resumed"]
    assert not marks(second, "prompt")
    roots = [event for event in [*first, *second] if event.parent_id is None]
    assert {event.name for event in roots} == {"session.started", "mark", "command.run"}
    assert {event.origin for event in roots if event.name != "session.started"} == {"user"}


def test_a_session_starts_once_and_names_its_directory() -> None:
    [started] = named(events_of(B), "session.started")

    assert started.data == {
        "cwd": "/home/dev/shop",
        "branch": "master",
        "version": "2.1.325",
        "client": "claude-code",
    }
    assert started.context.session == "11111111-2222-4333-8444-555555555555"
    assert started.context.agent == "claude-code"
    assert started.context.labels == (("branch", "master"), ("client", "claude-code"))


def test_compaction_and_tools_are_noted_without_their_output() -> None:
    events = events_of(B)

    [compacted] = named(events, "session.compacted")
    assert compacted.data == {"trigger": "manual", "before_tokens": 3610, "after_tokens": 3461}
    ran = [{key: value for key, value in event.data.items() if key != "call"} for event in named(events, "tool.run")]
    assert ran == [
        {"tool": "Skill", "skill": "nav-video"},
        {"tool": "ToolSearch"},
        {"tool": "mcp__probe__crystal_context"},
        {
            "tool": "Agent",
            "agent_type": "Explore",
            "description": "find auth",
            "agent": "ad482429cb28f5523",
        },
    ]


@pytest.mark.parametrize("recording", [A, B, SUBAGENT])
def test_injected_text_never_becomes_an_event(recording: Path) -> None:
    """keeps: TC-11. Hooks, skill bodies, MCP prompts, re-attached files: all in the recordings, none in the events."""
    texts = json.dumps([event.data for event in events_of(recording)])

    assert b"CRYSTAL" in recording.read_bytes()
    assert "CRYSTAL" not in texts
    assert "MCP-PROMPT" not in texts
    assert "system-reminder" not in texts


# -- Ids: twice, in pieces, in another order --------------------------------------------------------------


@pytest.mark.parametrize("recording", [A, B, SUBAGENT])
def test_reading_in_two_halves_gives_the_same_events(recording: Path, tmp_path: Path) -> None:
    whole = events_of(recording)
    content = recording.read_bytes()
    growing = tmp_path / recording.name
    ends = [index + 1 for index, byte in enumerate(content) if byte == ord("\n")]

    for cut in ends[:: max(1, len(ends) // 25)]:
        growing.write_bytes(content[: cut + 7])  # and a torn line
        first = list(claude_code.read(growing, tally=ImportTally()))
        growing.write_bytes(content)
        assert first[-1][0] == cut if first else True
        offset = first[-1][0] if first else 0
        second = events_of(growing, start=offset)
        assert [event for _, events in first for event in events] + second == whole


def test_offsets_are_those_of_the_lines() -> None:
    content = A.read_bytes()

    pairs = list(claude_code.read(A, tally=ImportTally()))

    offsets = [offset for offset, _ in pairs]
    assert all(content[offset - 1 : offset] == b"\n" for offset in offsets)
    assert offsets == sorted(set(offsets))
    assert offsets[-1] == len(content)
    assert list(claude_code.read(A, start=len(content), tally=ImportTally())) == []


def test_repeated_records_make_their_events_once(tmp_path: Path) -> None:
    """keeps: U-01. A resumed transcript may hold its records again."""
    again = tmp_path / A.name
    again.write_bytes(A.read_bytes() * 2)

    assert events_of(again) == events_of(A)


def test_a_fork_repeats_the_events_of_its_origin(tmp_path: Path) -> None:
    copied = [json.loads(line) for line in A.read_text().splitlines()]
    for entry in copied:
        entry |= {"sessionId": "fork", "forkedFrom": {"sessionId": SESSION, "messageUuid": entry.get("uuid")}}
    fork = write(tmp_path / "fork.jsonl", *copied, user("Another way", "u9", promptId="p9", sessionId="fork"))

    events = events_of(fork)

    assert events[: len(events_of(A))] == events_of(A)
    assert [event.context.session for event in events[-2:]] == ["fork", "fork"]


def test_paths_are_relative_to_the_root() -> None:
    outside = [
        event for _, events in claude_code.read(A, root="/home/dev/shop/src", tally=ImportTally()) for event in events
    ]
    elsewhere = [event for _, events in claude_code.read(A, root="/srv", tally=ImportTally()) for event in events]

    assert navigation(outside)[0][1] == "db.py"
    assert navigation(elsewhere)[0][1] == "/home/dev/shop/src/db.py"
    assert navigation(elsewhere)[2][1] == "/home/dev/shop/src/db.py"


def test_megabytes_of_injected_text_are_taken_out_in_one_pass(path: Path) -> None:
    """If each element copied the rest of the text, this would take minutes."""
    write(path, user("One" + "<system-reminder></system-reminder>" * 600_000 + " two <system-reminder>"))

    assert marks(events_of(path), "prompt") == ["One two <system-reminder>"]


# -- Prompts ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "spoken",
    [
        user("body of a skill", isMeta=True),
        user("", isCompactSummary=True),
        user("shown only", isVisibleInTranscriptOnly=True),
        user("<local-command-stdout>ok</local-command-stdout>"),
        user("<bash-input>git status</bash-input>"),
        user("<bash-stdout>clean</bash-stdout><bash-stderr></bash-stderr>"),
        user("<task-notification>done</task-notification>"),
        user("from a peer", origin={"kind": "peer"}),
        user("<system-reminder>\nUserPromptSubmit hook: read src/auth.py\n</system-reminder>"),
        user("<user-prompt-submit-hook>read src/auth.py</user-prompt-submit-hook>"),
        user([{"type": "text", "text": "[Request interrupted by user]"}]),
        user("Stop hook feedback:\n- run the tests"),
        user(""),
        user(None),
    ],
)
def test_text_that_was_not_typed_is_not_a_prompt(path: Path, spoken: Json) -> None:
    """keeps: TC-11"""
    events = events_of(write(path, spoken))

    assert [event.name for event in events] == ["session.started"]


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ("Fix it", "Fix it"),
        ("Fix it<system-reminder>recalled</system-reminder>", "Fix it"),
        ("<ide_opened_file>a.py</ide_opened_file>Fix it\n<system-reminder>x</system-reminder>", "Fix it"),
        ([{"type": "text", "text": "Fix"}, {"type": "text", "text": "it"}], "Fix\nit"),
        ([{"type": "image", "source": {}}], "[image]"),
        ("What is a <system-reminder> tag?", "What is a <system-reminder> tag?"),
        ("<user-memory-input>use pytest</user-memory-input>", "use pytest"),
        ("a\0b", "a�b"),
    ],
)
def test_prompts_are_the_typed_text(path: Path, content: object, text: str) -> None:
    events = events_of(write(path, user(content)))

    assert marks(events, "prompt") == [text]


def test_text_typed_during_a_turn_belongs_to_it(path: Path) -> None:
    queued = {
        "type": "queued_command",
        "prompt": "and the tests",
        "commandMode": "prompt",
        "origin": {"kind": "human"},
    }
    notice = {"type": "queued_command", "prompt": "<task-notification/>", "commandMode": "task-notification"}
    peer = {"type": "queued_command", "prompt": "hello", "commandMode": "prompt", "origin": {"kind": "peer"}}
    helper = record("attachment", "q9", attachment=queued, agentId="x1", isSidechain=True)
    attachments = [
        record("attachment", f"q{number}", attachment=it) for number, it in enumerate((queued, notice, peer))
    ]

    events = events_of(write(path, user("Fix it"), helper, *attachments))

    first, second = [event for event in named(events, "mark") if event.data["tags"] == ["prompt"]]
    assert [first.data["text"], second.data["text"]] == ["Fix it", "and the tests"]
    assert second.parent_id == first.id


def test_a_persons_words_in_a_refusal_are_a_prompt(path: Path) -> None:
    refusal = (
        "The user doesn't want to proceed with this tool use. The tool use was rejected. To tell you how to"
        " proceed, the user said:\nuse the builder instead"
    )
    refused = returns("c1", refusal, f"Error: {refusal}", error=True, toolDenialKind="user-rejected")

    events = events_of(write(path, user("Fix it"), asks("c1", "Edit", file_path="/home/dev/shop/a.py"), refused))

    assert marks(events, "prompt") == ["Fix it", "use the builder instead"]
    assert not navigation(events)


def test_words_added_before_the_answer_are_a_prompt_of_the_same_turn(path: Path) -> None:
    events = events_of(write(path, user("Fix it", "u1"), user("quickly", "u2"), user("Fix it", "u1")))

    first, second = named(events, "mark")
    assert (first.parent_id, second.parent_id) == (None, first.id)


def test_events_without_a_prompt_are_children_of_the_session(path: Path) -> None:
    notice = user("<task-notification>done</task-notification>", "u2", promptId="p2")

    events = events_of(write(path, user("Fix it"), notice, says("Noted.")))

    [started] = named(events, "session.started")
    assert [event.parent_id for event in events[-2:]] == [started.id, started.id]


# -- Closing words and answers ----------------------------------------------------------------------------


def test_closing_words_need_no_stop_reason(path: Path) -> None:
    """Old records do not mark the last answer; the next prompt or the end of the file does."""
    silent = [user("One"), says("Looking.", "a1", stop=None), says("Done.", "a2", stop=None, requestId="r2")]
    spoken = says("Done.", "a2", requestId="r2")

    ended = events_of(write(path, *silent))
    followed = events_of(write(path, *silent, user("Two", "u2", promptId="p2")))
    stated = events_of(write(path, user("One"), spoken))

    [expected] = [event for event in named(stated, "mark") if event.data["tags"] == ["closing"]]
    for events in (ended, followed):
        assert [event for event in named(events, "mark") if event.data["tags"] == ["closing"]] == [expected]


def test_a_file_still_written_to_has_no_closing_words_yet(path: Path) -> None:
    write(path, user("One"), says("Looking.", stop=None))

    assert not marks(events_of(path, closed=False), "closing")
    assert marks(events_of(path), "closing") == ["Looking."]


def test_words_before_a_tool_call_or_an_interruption_close_nothing(path: Path) -> None:
    called = [user("One"), says("Looking.", stop=None), asks("c1", "Read", file_path="a.py")]
    interrupted = [user("One"), says("Looking.", stop=None), user("[Request interrupted by user]", "u2")]

    assert not marks(events_of(write(path, *called)), "closing")
    assert not marks(events_of(write(path, *interrupted)), "closing")


def test_the_host_reports_the_end_of_a_turn(path: Path) -> None:
    over = record("system", "y1", subtype="turn_duration", durationMs=5)

    events = events_of(write(path, user("One"), says("Done.", stop=None), over), closed=False)

    assert marks(events, "closing") == ["Done."]
    assert len(named(events, "model.answer")) == 1


def test_text_of_the_host_is_not_attributed_to_the_model(path: Path) -> None:
    error = says("API Error: overloaded", isApiErrorMessage=True)
    placeholder = record("assistant", "a2", {"model": "<synthetic>", "content": "No response requested."})

    events = events_of(write(path, user("One"), error, placeholder))

    assert not named(events, "model.answer")
    assert not marks(events, "closing")


def test_the_last_record_of_an_answer_knows_its_tokens(path: Path) -> None:
    """Without a stop reason the first records carry what was known when the answer began."""
    parts = [says("Think", "a1", stop=None, output=1), says("Done.", "a2", stop=None, output=90)]

    before = named(events_of(write(path, user("One"), *parts), closed=False), "model.answer")
    after = named(events_of(write(path, user("One"), *parts, user("Two", "u2", promptId="p2"))), "model.answer")

    assert before == []
    assert [event.data["output_tokens"] for event in after] == [90]


# -- Tools ------------------------------------------------------------------------------------------------


def test_each_hunk_of_an_edit_is_a_range(path: Path) -> None:
    hunks = [
        {"oldStart": 1, "oldLines": 3, "newStart": 1, "newLines": 2, "lines": [" a", "-b", " c"]},
        {"oldStart": 40, "oldLines": 2, "newStart": 39, "newLines": 4, "lines": [" x", "+y", "+z", " w"]},
    ]
    edited = returns("c1", "updated", {"filePath": "/home/dev/shop/a.py", "structuredPatch": hunks})

    events = events_of(write(path, user("One"), asks("c1", "MultiEdit", file_path="/home/dev/shop/a.py"), edited))

    assert navigation(events) == [("file.edit", "a.py", 2, 2, None), ("file.edit", "a.py", 40, 41, None)]


def test_lengths_follow_reads_and_edits(path: Path) -> None:
    shown = {
        "filePath": "/home/dev/shop/a.py",
        "content": "1\n2\n3\n",
        "numLines": 4,
        "startLine": 1,
        "totalLines": 4,
    }
    hunk = {"oldStart": 3, "oldLines": 1, "newStart": 3, "newLines": 2, "lines": [" 3", "+4"]}
    calls = [
        asks("c1", "Read", file_path="/home/dev/shop/a.py"),
        returns("c1", "1\t1\n2\t2\n3\t3\n4\t", {"type": "text", "file": shown}),
        asks("c2", "Edit", file_path="/home/dev/shop/a.py"),
        returns("c2", "updated", {"filePath": "/home/dev/shop/a.py", "structuredPatch": [hunk]}),
        asks("c3", "Bash", command="tail -n 2 a.py"),
        returns("c3", "3\n4", {"stdout": "3\n4", "stderr": ""}),
    ]

    events = events_of(write(path, user("One"), *calls))

    assert navigation(events) == [
        ("file.read", "a.py", 1, 3, 3),
        ("file.edit", "a.py", 4, 4, 4),
        ("file.read", "a.py", 3, 4, 4),
    ]


def test_search_hits_and_listings(path: Path) -> None:
    names = {
        "mode": "files_with_matches",
        "filenames": ["/home/dev/shop/src/auth.py", "src/db.py"],
        "numFiles": 2,
    }
    hits = {"mode": "content", "filenames": [], "content": "src/auth.py:5:x\nsrc/auth.py:6:y\nsrc/db.py:9:z"}
    calls = [
        asks("c1", "Grep", pattern="login"),
        returns("c1", "Found 2 files\n/home/dev/shop/src/auth.py\nsrc/db.py", names),
        asks("c2", "Grep", pattern="login", path="/home/dev/shop/src", output_mode="content"),
        returns("c2", hits["content"], hits),
        asks("c3", "Glob", pattern="**/*.py"),
        returns("c3", "src/auth.py", {"filenames": ["src/auth.py"], "numFiles": 1}),
        asks("c4", "Grep", pattern="nowhere"),
        returns("c4", "No files found", {"mode": "files_with_matches", "filenames": [], "numFiles": 0}),
    ]

    events = events_of(write(path, user("One"), *calls))

    assert navigation(events) == [
        ("file.search", "src/auth.py", None, None, None),
        ("file.search", "src/db.py", None, None, None),
        ("file.search", "src/auth.py", 5, 6, None),
        ("file.search", "src/db.py", 9, 9, None),
        ("file.list", ".", None, None, None),
    ]
    assert [event.data["tool"] for event in named(events, "tool.run")] == ["Grep"]
    assert named(events, "file.list")[0].data["pattern"] == "**/*.py"


def test_a_failed_command_tells_its_exit_code(path: Path) -> None:
    text = "Exit code 2\nmake: *** No rule to make target 'x'."
    calls = [asks("c1", "Bash", command="make x"), returns("c1", text, f"Error: {text}", error=True)]

    [run] = named(events_of(write(path, user("One"), *calls)), "shell.run")

    assert (run.error, run.data["ok"], run.data["exit_code"]) == (True, False, 2)


def test_output_that_mentions_refusals_is_not_a_refusal(path: Path) -> None:
    text = "Exit code 1\nInputValidationError: Permission to use x. The user doesn't want to proceed"
    calls = [asks("c1", "Bash", command="make x"), returns("c1", text, f"Error: {text}", error=True)]

    events = events_of(write(path, user("One"), *calls))

    assert [event.name for event in events if event.error] == ["shell.run"]


def test_long_errors_are_cut_after_redaction(path: Path) -> None:
    text = f"{'x ' * 990}{SECRET} {'y ' * 5_000}"
    calls = [asks("c1", "WebFetch", url="x"), returns("c1", text, error=True)]

    [failed] = named(events_of(write(path, user("One"), *calls)), "tool.failed")

    said = str(failed.data["text"])
    assert SECRET[:12] not in said
    assert len(said) < 2_100
    assert said.endswith("characters left out)")


def test_a_commit_is_a_mark_under_its_command(path: Path) -> None:
    message = "Fix the login\n\nThe cookie came too early.\n\nCo-Authored-By: X"
    command = f"git add -A && git commit -m \"$(cat <<'EOF'\n{message}\nEOF\n)\""
    output = "[main 1a2b3c4] Fix the login\n 1 file changed"
    calls = [asks("c1", "Bash", command=command), returns("c1", output, {"stdout": output, "stderr": ""})]

    events = events_of(write(path, user("One"), *calls))

    [commit] = [event for event in named(events, "mark") if event.data["tags"] == ["commit"]]
    assert commit.data["text"] == "Fix the login\n\nThe cookie came too early."
    assert commit.data["sha"] == "1a2b3c4"
    assert commit.parent_id == named(events, "shell.run")[0].id


def test_subagents_create_and_edit_without_a_structured_result(path: Path) -> None:
    side: Json = {"isSidechain": True, "agentId": "x1"}
    calls = [
        user("Look around") | side,
        asks("c1", "Write", file_path="/home/dev/shop/a.py", content="1\n2\n") | side,
        returns("c1", "File created successfully at: /home/dev/shop/a.py") | side,
        asks("c2", "Write", file_path="/home/dev/shop/a.py", content="1\n") | side,
        returns("c2", "The file /home/dev/shop/a.py has been updated successfully.") | side,
        asks("c3", "NotebookEdit", notebook_path="/home/dev/shop/b.ipynb") | side,
        returns("c3", "Updated cell 1") | side,
        asks("c4", "Read", file_path="/home/dev/shop/c.py", offset=5, limit=3) | side,
        returns("c4", "Wasted call: file unchanged") | side,
    ]

    events = events_of(write(path, *calls))

    assert navigation(events) == [
        ("file.create", "a.py", 1, 2, 2),
        ("file.edit", "a.py", None, None, None),
        ("file.edit", "b.ipynb", None, None, None),
        ("file.read", "c.py", 5, 7, None),
    ]
    assert {event.context.agent for event in events} == {"x1"}


def test_old_subagents_wrote_into_the_file_of_their_session(path: Path) -> None:
    side: Json = {"isSidechain": True, "promptId": None}
    calls = [user("Look around", "u2") | side, says("Found it.", "a2") | side]

    events = events_of(write(path, user("One"), *calls))

    [prompt] = [event for event in named(events, "mark") if event.data["tags"] == ["prompt"]]
    assert prompt.data["text"] == "One"
    assert events[-1].context.agent == "subagent"
    assert events[-1].parent_id == prompt.id


def test_a_search_without_bounds_is_cut_and_says_so(path: Path) -> None:
    output = "\n".join(f"src/m{number}.py:1:x" for number in range(500))
    calls = [asks("c1", "Bash", command="grep -rn x src"), returns("c1", output, {"stdout": output})]

    events = events_of(write(path, user("One"), *calls))

    assert len(navigation(events)) == 200
    assert named(events, "shell.run")[0].data["steps_left_out"] == 300


def test_a_command_in_the_background_shows_nothing_yet(path: Path) -> None:
    result = {"stdout": "", "stderr": "", "backgroundTaskId": "b1"}
    calls = [asks("c1", "Bash", command="cat a.py"), returns("c1", "Command running in background", result)]

    events = events_of(write(path, user("One"), *calls))

    assert named(events, "shell.run")[0].data["exit_code"] is None
    assert [step[:2] for step in navigation(events)] == [("file.read", "a.py")]


def test_a_result_whose_call_was_lost_still_names_the_file(path: Path) -> None:
    shown = {
        "filePath": "/home/dev/shop/a.py",
        "content": "x",
        "numLines": 1,
        "startLine": 3,
        "totalLines": 9,
    }

    events = events_of(write(path, user("One"), returns("c1", "3\tx", {"type": "text", "file": shown})))

    assert navigation(events) == [("file.read", "a.py", 3, 3, 8)]


def test_pictures_are_read_without_lines(path: Path) -> None:
    image = [{"type": "image", "source": {"type": "base64", "data": "AAAA"}}]
    result = {"type": "image", "file": {"base64": "AAAA", "type": "image/png"}}
    calls = [asks("c1", "Read", file_path="/home/dev/shop/a.png"), returns("c1", image, result)]

    [step] = named(events_of(write(path, user("One"), *calls)), "file.read")

    assert (step.data["path"], step.data["start_line"], step.data["tokens"]) == ("a.png", None, None)


def test_secrets_are_redacted_everywhere(path: Path) -> None:
    message = f"git commit -qm 'use {SECRET}' && curl -H 'Authorization: Bearer {SECRET}' x"
    calls = [
        user(f"Use {SECRET}"),
        asks("c1", "Bash", command=message),
        returns("c1", "", {"stdout": ""}),
        asks("c2", "Read", file_path="/x"),
        returns("c2", f"cannot read {SECRET}", error=True),
        asks("c3", "WebFetch", url="x"),
        returns("c3", f"refused {SECRET}", error=True),
        says(f"I used {SECRET}"),
    ]

    events = events_of(write(path, *calls))

    assert {event.name for event in events} >= {"mark", "shell.run", "file.read", "tool.failed"}
    assert len(marks(events, "commit")) == 1
    assert SECRET not in json.dumps([event.data for event in events])


# -- Bad input --------------------------------------------------------------------------------------------


def lines_of(*entries: Json) -> list[bytes]:
    return [json.dumps(entry).encode() + b"\n" for entry in entries]


def test_a_torn_line_is_left_for_the_next_time(path: Path) -> None:
    first, second = lines_of(user("One"), user("Two", "u2", promptId="p2"))
    path.write_bytes(first + second[:-20])
    tally = ImportTally()

    pairs = list(claude_code.read(path, tally=tally))

    assert [offset for offset, _ in pairs] == [len(first)]
    assert (tally.torn, tally.broken, tally.lines) == (1, 0, 2)
    path.write_bytes(first + second)
    assert marks(events_of(path, start=len(first)), "prompt") == ["Two"]


def test_an_unterminated_last_line_is_read_once_it_is_complete(path: Path) -> None:
    path.write_bytes(lines_of(user("One"))[0].rstrip())

    assert marks(events_of(path), "prompt") == ["One"]


def test_a_record_written_after_a_torn_one_is_read(path: Path) -> None:
    first, second = lines_of(user("One"), user("Two", "u2", promptId="p2"))
    path.write_bytes(first[:-30] + second)
    tally = ImportTally()

    assert marks(events_of(path, tally=tally), "prompt") == ["Two"]
    assert tally.broken == 1


@pytest.mark.parametrize(
    ("spoiled", "text"),
    [
        (b"bad \xff byte", "bad � byte"),
        (rb"half \ud83d pair", "half � pair"),
        (rb"whole \ud83d\ude00 pair", "whole 😀 pair"),
        (b"raw \x00 NUL", "raw � NUL"),
        (rb"escaped \u0000 NUL", "escaped � NUL"),
        (b"raw \x01 control", "raw \x01 control"),
    ],
)
def test_spoiled_text_does_not_lose_its_record(path: Path, spoiled: bytes, text: str) -> None:
    path.write_bytes(lines_of(user("PLACE"))[0].replace(b"PLACE", spoiled))

    assert marks(events_of(path), "prompt") == [text]


def test_spoiled_tool_output_does_not_lose_its_call(path: Path) -> None:
    shown = {
        "filePath": "/home/dev/shop/a.py",
        "content": "PLACE",
        "numLines": 1,
        "startLine": 1,
        "totalLines": 1,
    }
    calls = lines_of(
        user("One"),
        asks("c1", "Read", file_path="/home/dev/shop/a.py"),
        returns("c1", "1\tPLACE", {"type": "text", "file": shown}),
    )
    path.write_bytes(b"".join(calls).replace(b"PLACE", b"\xff"))

    assert navigation(events_of(path)) == [("file.read", "a.py", 1, 1, 1)]


def test_a_line_that_is_too_long_is_counted_and_skipped(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mica.events.json_lines.LINE_BYTES_MAX", 1_000)
    long = user("x" * 5_000)
    write(path, user("One"), long, user("Two", "u2", promptId="p2"), long)
    path.write_bytes(path.read_bytes()[:-1])  # the last is still being written
    tally = ImportTally()

    assert marks(events_of(path, tally=tally), "prompt") == ["One", "Two"]
    assert tally.complaints == [(2, "longer than a record can be")]
    assert tally.torn == 1


def test_an_invalid_record_is_counted_with_its_reason(path: Path) -> None:
    junk = [b"[1]\n", b"null\n", b'"text"\n', b"{\n", b"not json\n", b"\0\0\0\n", b"[" * 100_000 + b"\n"]
    path.write_bytes(b"".join([*junk, b"\n", *lines_of(user("One"))]))
    tally = ImportTally()

    assert marks(events_of(path, tally=tally), "prompt") == ["One"]
    assert tally.broken == len(junk)
    assert [number for number, _ in tally.complaints] == list(range(1, len(junk) + 1))
    assert all(reason for _, reason in tally.complaints)
    assert tally.lines == len(junk) + 2


def test_complaints_are_bounded(path: Path) -> None:
    path.write_bytes(b"x\n" * 5_000 + b'{"type":"new-kind"}\n' * 3)
    tally = ImportTally()

    assert events_of(path, tally=tally) == []
    assert (tally.broken, len(tally.complaints)) == (5_000, 100)
    assert tally.unknown == {"new-kind": 3}


def test_fields_of_other_types_are_left_out_and_counted(path: Path) -> None:
    spoiled = user("One", cwd=["x"], gitBranch=7, version={}, isMeta="no", toolUseResult=[1], origin="me")
    usage = {"input_tokens": "many", "output_tokens": -1, "cache_read_input_tokens": 10**30}
    message = {"id": 7, "model": None, "content": [1, {"type": "text", "text": "Done."}], "usage": usage}
    tally = ImportTally()

    events = events_of(write(path, spoiled, record("assistant", "a1", message)), tally=tally)

    assert marks(events, "prompt") == ["One"]
    assert marks(events, "closing") == ["Done."]
    assert tally.misfits >= 10
    assert tally.broken == 0


def test_records_without_a_time_take_the_one_before(path: Path) -> None:
    untimed = [
        user("One"),
        user("Two", "u2", promptId="p2", timestamp=None),
        user("Three", "u3", timestamp="soon"),
    ]
    tally = ImportTally()

    events = events_of(write(path, user("Zero", "u0", timestamp=None), *untimed), tally=tally)

    assert marks(events, "prompt") == ["One", "Two", "Three"]
    assert len({event.at for event in events}) == 1
    assert tally.complaints == [(1, "no time, and none before it")]


@pytest.mark.parametrize("moment", ["0001-01-01T00:00:00+23:00", "9999-12-31T23:59:59-23:00", "2026-11-15T11:00:00"])
def test_odd_times_raise_nothing(path: Path, moment: str) -> None:
    events = events_of(write(path, user("One"), user("Two", "u2", promptId="p2", timestamp=moment)))

    assert marks(events, "prompt") == ["One", "Two"]


def test_a_line_of_sixty_megabytes_works(path: Path) -> None:
    big = "x" * 30_000_000
    shown = {
        "filePath": "/home/dev/shop/a.py",
        "content": big,
        "numLines": 1,
        "startLine": 1,
        "totalLines": 1,
    }
    calls = [
        asks("c1", "Read", file_path="/home/dev/shop/a.py"),
        returns("c1", big, {"type": "text", "file": shown}),
    ]

    events = events_of(write(path, user("One"), *calls))

    assert navigation(events) == [("file.read", "a.py", 1, 1, 1)]


def test_memory_does_not_grow_with_the_file(path: Path) -> None:
    body = "x = 1\n" * 3_000
    with path.open("w") as file:
        file.write(json.dumps(user("One")) + "\n")
        for number in range(400):
            call = f"c{number}"
            file.write(json.dumps(asks(call, "Write", file_path=f"/home/dev/shop/{number}.py", content=body)) + "\n")
            file.write(json.dumps(returns(call, "File created", {"type": "create", "content": body})) + "\n")
    size = path.stat().st_size

    tracemalloc.start()
    count = sum(len(events) for _, events in claude_code.read(path, tally=ImportTally()))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()

    assert count == 2 + 2 * 400
    assert peak < size / 4


def test_an_unreadable_file_raises(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        list(claude_code.read(tmp_path / "none.jsonl", tally=ImportTally()))
    with pytest.raises(FileNotFoundError):
        claude_code.find(tmp_path / "none")


# -- Finding transcripts ----------------------------------------------------------------------------------


def test_transcripts_are_found_newest_first(tmp_path: Path) -> None:
    paths = [
        tmp_path / "-home-dev-shop" / "old.jsonl",
        tmp_path / "-home-dev-shop" / "old" / "subagents" / "agent-x.jsonl",
        tmp_path / "new.jsonl",
    ]
    for age, each in enumerate(paths):
        each.parent.mkdir(parents=True, exist_ok=True)
        each.write_text("")
        os.utime(each, (1_000 + age, 1_000 + age))
    (tmp_path / "agent-x.meta.json").write_text("{}")

    assert claude_code.find(tmp_path) == paths[::-1]
    assert claude_code.find(paths[0]) == [paths[0]]


def test_only_regular_files_are_transcripts(tmp_path: Path) -> None:
    """Reading a pipe would never end, and a link to itself cannot be read."""
    pipe, loop, gone = (tmp_path / f"{name}.jsonl" for name in ("pipe", "loop", "gone"))
    os.mkfifo(pipe)
    loop.symlink_to(loop)
    gone.symlink_to(tmp_path / "nowhere")
    good = write(tmp_path / "good.jsonl", user("One"))
    unreadable: dict[str, str] = {}

    assert claude_code.find(tmp_path, unreadable=unreadable) == [good]
    assert unreadable == {
        str(pipe): "not a regular file",
        str(loop): os.strerror(errno.ELOOP),
        str(gone): os.strerror(errno.ENOENT),
    }
    with pytest.raises(OSError, match="jsonl"):
        claude_code.find(tmp_path)


def test_the_first_lines_identify_the_client_of_a_transcript(tmp_path: Path) -> None:
    assert claude_code.head(A) == TranscriptHead(
        session=SESSION, cwd="/home/dev/shop", version="2.1.325", branch="master"
    )
    assert claude_code.head(SUBAGENT) == TranscriptHead(
        session="11111111-2222-4333-8444-555555555555",
        agent="ad482429cb28f5523",
        cwd="/home/dev/shop",
        version="2.1.325",
        branch="master",
    )
    for foreign in (
        b"",
        b"x\n",
        b'{"id":1}\n',
        b'{"sessionId":"s","projectHash":"p"}\n{"type":"user","id":"1"}\n',
    ):
        (tmp_path / "foreign.jsonl").write_bytes(foreign)
        assert claude_code.head(tmp_path / "foreign.jsonl") is None


# -- Laws -------------------------------------------------------------------------------------------------

RECORDED = {recording: recording.read_bytes().splitlines(keepends=True) for recording in (A, B, SUBAGENT)}
JUNK: st.SearchStrategy[object] = st.sampled_from(
    [None, True, -1, 10**30, 1.5, "", "x", "\0", [], [None], {}, {"type": {}}]
)


def ids_by_line(recording: Path) -> dict[int, set[str]]:
    """What each line of a recording brings about, by its index."""
    ends = [0]
    for line in RECORDED[recording]:
        ends.append(ends[-1] + len(line))
    pairs = claude_code.read(recording, tally=ImportTally())
    return {ends.index(offset) - 1: {event.id for event in events} for offset, events in pairs}


def calls_by_result(recording: Path) -> dict[int, set[int]]:
    """The lines with the calls that each line answers; for closing words, those with the prompts of their turn."""
    asked: dict[str, int] = {}
    answered: dict[int, set[int]] = {}
    prompts: set[int] = set()
    for index, line in enumerate(RECORDED[recording]):
        content = (json.loads(line).get("message") or {}).get("content")
        if b'"promptId"' in line:
            prompts.add(index)
        if b'"stop_reason":"end_turn"' in line.replace(b'": ', b'":'):
            answered.setdefault(index, set()).update(prompts)
        for block in content if isinstance(content, list) else []:
            if block["type"] == "tool_use":
                asked[block["id"]] = index
            elif block["type"] == "tool_result":
                answered.setdefault(index, set()).add(asked[block["tool_use_id"]])
    return answered


IDS = {recording: ids_by_line(recording) for recording in RECORDED}
CALLS = {recording: calls_by_result(recording) for recording in RECORDED}


def places(value: object, path: tuple[str | int, ...] = ()) -> list[tuple[str | int, ...]]:
    """The way to every value inside a value."""
    children: Iterable[tuple[str | int, object]] = ()
    if isinstance(value, dict):
        children = value.items()
    elif isinstance(value, list):
        children = enumerate(value)
    return [way for key, child in children for way in [(*path, key), *places(child, (*path, key))]]


@st.composite
def mutated(draw: st.DrawFn, line: bytes) -> bytes:
    kind = draw(st.sampled_from(["drop", "change", "truncate", "merge", "inject"]))
    if kind in ("drop", "change"):
        value = json.loads(line)
        *way, key = draw(st.sampled_from(places(value)))
        container = functools.reduce(operator.getitem, way, value)
        if kind == "drop":
            del container[key]
        else:
            container[key] = draw(JUNK)
        return json.dumps(value).encode() + b"\n"
    position = draw(st.integers(0, len(line) - 1))
    if kind == "truncate":
        return line[:position] + b"\n"
    if kind == "merge":
        return line[:position]
    return line[:position] + draw(st.binary(min_size=1, max_size=8)) + line[position:]


@settings(deadline=None, max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data(), recording=st.sampled_from([A, B, SUBAGENT]))
def test_damaged_lines_affect_no_others(data: st.DataObject, recording: Path, tmp_path: Path) -> None:
    lines = list(RECORDED[recording])
    telling = st.sampled_from(sorted(IDS[recording]))  # half of the spoiled lines are ones that matter
    chosen = data.draw(st.sets(telling | st.integers(0, len(lines) - 1), min_size=1, max_size=5))
    for index in chosen:
        lines[index] = data.draw(mutated(lines[index]))
    spoiled = tmp_path / recording.name
    spoiled.write_bytes(b"".join(lines))

    found = {event.id for event in events_of(spoiled)}

    for index, ids in IDS[recording].items():
        if index not in chosen and not (CALLS[recording].get(index, set()) & chosen):
            assert ids <= found


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    content=st.binary(max_size=400)
    | st.lists(st.dictionaries(st.text(max_size=5), JUNK)).map(lambda rows: json.dumps(rows).encode())
)
def test_any_bytes_are_read_without_an_error(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "any.jsonl"
    path.write_bytes(content)

    events_of(path)
    claude_code.head(path)

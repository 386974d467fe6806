"""What hooks told, as events: the recordings of five clients, and whatever else may come."""

from __future__ import annotations

import contextlib
import copy
import json
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mica.clients.hook_events import HookReader
from mica.clients.opencode import transcript as opencode
from mica.clients.records import ImportTally
from mica.clients.registry import reader_named
from mica.clients.spool import SessionState, SpoolLine
from mica.hook import ANSWERED, session_of
from mica.model.event import BRIEFED, Event
from mica.model.walk import Offer, walks_of

FIXTURES = Path(__file__).parents[1] / "fixtures"
RECORDED = sorted((FIXTURES / "hooks").glob("*.jsonl"))
BEGIN = 1_794_742_952_000_000

# What the recordings hold, by line: operation, path, lines. Every other line leads nowhere.
NAVIGATION: dict[str, dict[int, list[str]]] = {
    "claude-code": {
        7: ["read src/db.py:1-60/60"],
        8: ["read src/auth.py:10-39/120"],
        12: ["read src/db.py:1-5/60", "read src/auth.py:1-3/120"],
        18: ["✗ read src/missing.py"],
        42: ["read src/auth.py:50-54/120 by ad482429cb28f5523"],
        48: ["edit src/auth.py:52-53/121"],
        51: ["create src/new.py:1-1/1"],
    },
    "codex": {
        4: ["read src/auth.py:10-40"],
        6: [*(f"search src/auth.py:{lines}" for lines in ("5-5", "50-51", "54-60")), "read src/db.py:1-3"],
    },
    "gemini": {
        5: ["read src/auth.py:10-40/121"],
        9: [f"search src/auth.py:{line}-{line}/121" for line in (5, 50, 51, *range(54, 61))],
        10: ["list ."],
        13: ["read src/db.py:1-5"],
        16: ["edit src/db.py:3-3/60"],
    },
    "copilot-native": {
        4: ["read src/auth.py:10-40"],
        7: ["search src/auth.py"],
        9: ["read src/db.py:1-5"],
        12: ["edit src/db.py"],
    },
    "copilot-plugin": {
        3: ["read src/auth.py:10-40"],
        4: ["search src/auth.py"],
        5: ["read src/db.py:1-5"],
    },
    "opencode": {
        13: ["read src/auth.py:10-39/121"],
        19: ["read src/db.py:1-5"],
        26: ["edit src/auth.py:12-12/121"],
    },
}


def recorded(path: Path) -> Iterator[tuple[int, SpoolLine]]:
    client = path.stem.partition("-")[0]
    for number, text in enumerate(path.read_text().splitlines(), start=1):
        payload = json.loads(text)
        event = payload.get("hook_event_name") or payload.pop("_event", None) or payload["k"]
        at = BEGIN + number * 1_000_000
        yield number, SpoolLine(at=at, client=client, event=event, directory="/home/dev/shop", payload=payload)


def heard(lines: list[SpoolLine], tally: ImportTally | None = None) -> list[Event]:
    """Each session by a hearing of its own, as spools are."""
    hearings: dict[str, HookReader] = {}
    found: list[Event] = []
    for line in lines:
        hearing = hearings.setdefault(session_of(line.payload), HookReader())
        found += hearing.read(line, tally=tally or ImportTally())
    return found


def shown(event: Event) -> str:
    data = event.data
    lines = f":{data['start_line']}-{data['end_line']}" if data.get("start_line") else ""
    total = f"/{data['total_lines']}" if lines and data.get("total_lines") else ""
    agent = event.context.agent if event.context.agent not in ("claude-code", *(CLIENTS)) else None
    by = f" by {agent}" if agent else ""
    return f"{'✗ ' if event.error else ''}{event.name.removeprefix('file.')} {data['path']}{lines}{total}{by}"


CLIENTS = ("codex", "gemini", "copilot", "opencode", "cursor")


@pytest.mark.parametrize("path", RECORDED, ids=lambda path: path.stem)
def test_every_recorded_line_gives_its_navigation_or_nothing(path: Path) -> None:
    """keeps: A-12, TA-02.

    Files, lines and operations in the order of access; nothing is unknown, nothing is an exception.
    """
    hearings: dict[str, HookReader] = {}
    tally = ImportTally()
    found: dict[int, list[str]] = {}
    for number, line in recorded(path):
        hearing = hearings.setdefault(session_of(line.payload), HookReader())
        events = hearing.read(line, tally=tally)
        if steps := [shown(event) for event in events if event.name.startswith("file.")]:
            found[number] = steps

    assert found == NAVIGATION[path.stem]
    assert (tally.unknown, tally.broken) == ({}, 0)


@pytest.mark.parametrize("path", RECORDED, ids=lambda path: path.stem)
def test_steps_are_children_of_the_prompt_before_them(path: Path) -> None:
    """keeps: A-12. Hook events of every client form a walk."""
    walks = walks_of(heard([line for _, line in recorded(path)]))

    assert any(walk.steps for walk in walks)
    prompts = {walk.prompt for walk in walks if walk.steps}
    assert prompts <= {"Explain how auth works", '"Explain how auth works"', "/nav:auth focus-me"}
    steps = sum(len(lines) for lines in NAVIGATION[path.stem].values())
    assert sum(len(walk.steps) for walk in walks) == steps


def test_memory_inside_a_prompt_does_not_count_as_typed() -> None:
    """keeps: TC-11. Gemini gives a session's context back inside the prompt, OpenCode a command's text as a message."""
    texts = [
        str(event.data.get("text"))
        for path in RECORDED
        for event in heard([line for _, line in recorded(path)])
        if event.origin == "user"
    ]

    assert texts
    assert not [text for text in texts if "CRYSTAL" in text]


@pytest.mark.parametrize("path", RECORDED, ids=lambda path: path.stem)
def test_reading_in_pieces_gives_the_same_events(path: Path) -> None:
    """A crash in between doubles nothing: what is remembered between two ingests is enough."""
    lines = [line for _, line in recorded(path)]
    kept: dict[str, SessionState] = {}
    pieces: list[Event] = []
    for line in lines:
        session = session_of(line.payload)
        hearing = HookReader(kept.get(session))
        pieces += hearing.read(line, tally=ImportTally())
        kept[session] = copy.deepcopy(hearing.state())

    once = {event.id: event for event in heard(lines)}
    assert {event.id: event for event in reversed(pieces)} == once, "what came first stands"


@pytest.fixture
def opencode_db(tmp_path: Path) -> Path:
    """The recorded rows as a database of OpenCode."""
    file = tmp_path / "opencode.db"
    with contextlib.closing(sqlite3.connect(file)) as connection:
        connection.execute("CREATE TABLE session (id, directory, version)")
        connection.execute("CREATE TABLE message (id, session_id, data)")
        connection.execute("CREATE TABLE part (id, message_id, data)")
        for text in (FIXTURES / "opencode" / "db-rows.jsonl").read_text().splitlines():
            row = json.loads(text)
            belongs = row["message_id" if row["table"] == "part" else "session_id"]
            values = row["id"], belongs, json.dumps(row["data"])
            connection.execute(f"INSERT INTO {row['table']} VALUES (?, ?, ?)", values)
        connection.execute("INSERT INTO session SELECT DISTINCT session_id, '/home/dev/shop', '1.18.33' FROM message")
        connection.commit()
    return next(iter(opencode.find(file)))


@pytest.mark.parametrize("client", ["codex", "copilot", "gemini", "opencode"])
def test_a_hook_and_a_transcript_make_one_event(client: str, request: pytest.FixtureRequest) -> None:
    """keeps: A-12. Prompts, calls and closing words have the ids that the transcript of the same session gives them."""
    name = {"codex": "rollout", "copilot": "events", "gemini": "session"}.get(client, "")
    path = FIXTURES / client / f"{name}.jsonl" if name else request.getfixturevalue("opencode_db")
    reader = reader_named(client)
    written = [event for _, found in reader.read(path, root="/home/dev/shop", tally=ImportTally()) for event in found]
    (session,) = {event.context.session for event in written}
    hooks = FIXTURES / "hooks" / ("copilot-native.jsonl" if client == "copilot" else f"{client}.jsonl")
    told = heard([line for _, line in recorded(hooks)])

    def of(events: list[Event], *prefixes: str) -> dict[str, tuple[str, object]]:
        mine = [event for event in events if event.context.session == session and event.name.startswith(prefixes)]
        return {event.id: (event.name, event.data.get("path")) for event in mine}

    steps = of(told, "file.", "shell.")
    assert steps
    assert steps == of(written, "file.", "shell.")
    assert of(told, "mark", "session.started").keys() <= of(written, "mark", "session.started").keys()
    assert any(event.origin == "user" for event in told)


JUNK = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=5,
)


@st.composite
def mutated(draw: st.DrawFn) -> SpoolLine:
    """A recorded line with unknown keys added, keys removed, and values of other types."""
    _, line = draw(st.sampled_from([pair for path in RECORDED for pair in recorded(path)]))
    payload = copy.deepcopy(line.payload)

    def spoil(value: object, depth: int) -> object:
        if isinstance(value, dict):
            for key in list(value):
                fate = draw(st.integers(0, 9))
                if fate == 0:
                    del value[key]
                elif fate == 1:
                    value[key] = draw(JUNK)
                elif depth:
                    value[key] = spoil(value[key], depth - 1)
            if draw(st.integers(0, 4)) == 0:
                value[draw(st.text(max_size=8))] = draw(JUNK)
        return value

    spoil(payload, 3)
    client = draw(st.sampled_from([line.client, *CLIENTS, "somebody"]))
    event = draw(st.sampled_from([line.event, line.event, "PostToolUse", "Stop", "SomethingNew"]))
    return SpoolLine(at=line.at, client=client, event=event, directory=line.directory, payload=payload)


@settings(max_examples=400)
@given(lines=st.lists(mutated(), max_size=4))
def test_no_payload_raises(lines: list[SpoolLine]) -> None:
    """keeps: A-39. Unknown or missing keys, other types and newer clients are read as far as possible, or skipped."""
    hearing = HookReader()
    for line in lines:
        for event in hearing.read(line, tally=ImportTally()):
            assert event.data is not None


def test_an_unknown_event_is_counted_and_ignored() -> None:
    tally = ImportTally()
    line = SpoolLine(at=BEGIN, client="claude", event="Daydream", payload={"session_id": "s"})

    assert HookReader().read(line, tally=tally) == []
    assert tally.unknown == {"claude:Daydream": 1}


def tool(client: str, event: str, number: int, **payload: object) -> SpoolLine:
    return SpoolLine(
        at=BEGIN + number, client=client, event=event, directory="/p", payload={"session_id": "s", **payload}
    )


def test_a_call_reported_by_two_kinds_of_hooks_is_one_event() -> None:
    """Cursor runs Claude's hooks too; Copilot its own and a plugin's. Neither makes a second event."""
    shell = {
        "tool_name": "Shell",
        "tool_input": {"command": "cat a.py"},
        "tool_output": '{"output": "x", "exitCode": 0}',
    }
    cursor = [tool("cursor", event, 1, tool_use_id="c1", **shell) for event in ("postToolUse", "PostToolUse")]
    given = {"path": "/p/a.py", "view_range": [1, 2]}
    own = {"toolName": "view", "toolArgs": given, "toolResult": {"resultType": "success", "textResultForLlm": "1\n2"}}
    plugin = {
        "hook_event_name": "PostToolUse",
        "tool_name": "Read",
        "tool_input": given,
        "tool_result": {"result_type": "success", "text_result_for_llm": "1\n2"},
    }
    twice = [tool("copilot", "postToolUse", 1, **own), tool("copilot", "PostToolUse", 2, **plugin)] * 2

    assert [event.name for event in heard(cursor) if event.name != "session.started"] == ["shell.run", "file.read"]
    assert [event.name for event in heard(twice)] == ["session.started", "file.read", "file.read"], "it was read twice"


def test_excluded_tools_and_unwanted_prompts_are_left_out() -> None:
    """keeps: A-39. A setting leaves tools out; without prompts a turn has no text, and its steps stay."""
    hearing = HookReader(keeps_prompts=False, excluded=("WebFetch",))
    lines = [
        tool("claude", "UserPromptSubmit", 1, prompt="my plan", prompt_id="p1"),
        tool("claude", "PostToolUse", 2, tool_name="WebFetch", tool_use_id="t1", prompt_id="p1"),
        tool(
            "claude",
            "PostToolUse",
            3,
            tool_name="Read",
            tool_use_id="t2",
            tool_input={"file_path": "/p/a"},
            prompt_id="p1",
        ),
        tool("claude", "Stop", 4, last_assistant_message="my closing words", prompt_id="p1"),
    ]

    events = [event for line in lines for event in hearing.read(line, tally=ImportTally())]

    assert [event.name for event in events] == ["session.started", "turn.started", "file.read"]
    assert not [event for event in events if b"my " in event.body]
    (walk,) = walks_of(events)
    assert walk.touched == ("a",)


def test_secrets_are_redacted() -> None:
    """keeps: U-01. Prompts are stored redacted."""
    secret = "sk-ant-api03-" + "aB3dE6gH9jK2mN5pQ8sT1vW4"
    lines = [
        tool("codex", "UserPromptSubmit", 1, prompt=f"use {secret}", turn_id="t1"),
        tool("codex", "Stop", 2, last_assistant_message=f"used {secret}", turn_id="t1"),
    ]

    events = heard(lines)

    assert len([event for event in events if event.name == "mark"]) == 2
    assert not [event for event in events if secret.encode() in event.body]


@pytest.mark.parametrize("held", [{}, {"held_out": True}])
def test_a_brief_shown_or_held_out_is_recorded_as_recalled(held: dict[str, object]) -> None:
    """keeps: A-18, C-54. An offer is recorded, and is never evidence; so is one that was held out."""
    line = SpoolLine(
        at=BEGIN,
        client="claude",
        event="SessionStart",
        directory="/p",
        payload={"session_id": "s"},
        offered={"kind": "session", "receipt": "r1", **held},
    )

    (shown,) = [event for event in HookReader().read(line, tally=ImportTally()) if event.name == BRIEFED]

    assert (shown.origin, shown.data) == ("recalled", {"receipt": "r1", **held})


@pytest.mark.parametrize("held_out", [False, True])
def test_the_files_offered_for_a_prompt_belong_to_its_walk(held_out: bool) -> None:
    """keeps: A-18, TA-06. Both arms are recorded, so that they can be compared."""
    offered: dict[str, object] = {"kind": "prompt", "paths": ["a.py"], "characters": 44, "held_out": held_out}
    asked = tool("claude", "UserPromptSubmit", 1, prompt="go", prompt_id="p1")

    (walk,) = walks_of(HookReader().read(msgspec.structs.replace(asked, offered=offered), tally=ImportTally()))

    assert walk.offer == Offer(paths=("a.py",), tokens=11, held_out=held_out)


@pytest.mark.parametrize("names", [{"prompt_id": "p1"}, {}], ids=["a named prompt", "a prompt without a name"])
def test_what_a_prompt_was_answered_belongs_to_that_prompt(names: dict[str, object]) -> None:
    """keeps: A-18. Hooks record it in a line of its own, because they record the prompt before they answer it."""
    offered: dict[str, object] = {"kind": "prompt", "paths": ["a.py"], "characters": 44}
    asked = tool("claude", "UserPromptSubmit", 1, prompt="go", **names)
    answered = msgspec.structs.replace(tool("claude", ANSWERED, 2, **names), offered=offered)
    reader, tally = HookReader(), ImportTally()

    events = [event for line in (asked, answered) for event in reader.read(line, tally=tally)]

    (walk,) = walks_of(events)
    assert walk.offer == Offer(paths=("a.py",), tokens=11)
    assert not tally.unknown


def test_steps_of_a_turn_that_began_before_the_hooks_share_a_parent() -> None:
    read = {"tool_name": "Read", "tool_input": {"file_path": "/p/a"}, "prompt_id": "p7"}
    lines = [tool("claude", "PostToolUse", number, tool_use_id=f"t{number}", **read) for number in (1, 2)]

    (walk,) = walks_of(heard(lines))

    assert len(walk.steps) == 2

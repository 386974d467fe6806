"""What hooks' payloads of each client touched: the same as its transcripts say, and never an exception."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mica.clients import tool_effects as touching
from mica.clients.claude_code import tools as claude_tools
from mica.clients.codex import tools as codex_tools
from mica.clients.codex import transcript as codex
from mica.clients.copilot import tools as copilot_tools
from mica.clients.cursor import tools as cursor_tools
from mica.clients.gemini import tools as gemini_tools
from mica.clients.gemini import transcript as gemini
from mica.clients.opencode import tools as opencode_tools
from mica.clients.reader import Reader
from mica.clients.records import Tally
from mica.clients.tool_effects import Call, Draft, Files

FIXTURES = Path(__file__).parents[2] / "fixtures"
HOOKS = FIXTURES / "hooks"
ROOT = "/home/dev/shop"

Json = dict[str, object]
Drafts = Callable[[Call, Files, Tally], list[Draft]]


def payloads(name: str) -> list[tuple[int, Json]]:
    return [(n, json.loads(line)) for n, line in enumerate((HOOKS / name).read_text().splitlines(), start=1)]


def claude_calls() -> dict[int, Call]:
    return {
        number: Call(
            id=str(payload["tool_use_id"]),
            tool=str(payload["tool_name"]),
            given=payload["tool_input"],
            result=payload.get("tool_response", payload.get("error")),
            failed=payload["hook_event_name"] == "PostToolUseFailure",
            cwd=ROOT,
        )
        for number, payload in payloads("claude-code.jsonl")
        if payload["hook_event_name"] in ("PostToolUse", "PostToolUseFailure")
    }


def calls(
    name: str, event: str, *, tool: str, given: str, result: str, key: str = "hook_event_name"
) -> dict[int, Call]:
    return {
        number: Call(id=str(number), tool=str(one[tool]), given=one[given], result=one[result], cwd=ROOT)
        for number, one in payloads(name)
        if one.get(key) == event
    }


def opencode_calls() -> dict[int, Call]:
    found = {}
    for number, one in payloads("opencode.jsonl"):
        given, output = one["input"], one.get("output")
        if one["k"] == "tool.execute.after" and isinstance(given, dict):
            found[number] = Call(id=given["callID"], tool=given["tool"], given=given["args"], result=output, cwd=ROOT)
    return found


RECORDED: dict[str, tuple[Drafts, dict[int, Call]]] = {
    "claude-code": (claude_tools.drafts, claude_calls()),
    "codex": (
        codex_tools.drafts,
        calls("codex.jsonl", "PostToolUse", tool="tool_name", given="tool_input", result="tool_response"),
    ),
    "gemini": (
        gemini_tools.drafts,
        calls("gemini.jsonl", "AfterTool", tool="tool_name", given="tool_input", result="tool_response"),
    ),
    "opencode": (opencode_tools.drafts, opencode_calls()),
    "copilot-native": (
        copilot_tools.drafts,
        calls(
            "copilot-native.jsonl", "postToolUse", tool="toolName", given="toolArgs", result="toolResult", key="_event"
        ),
    ),
    "copilot-plugin": (
        copilot_tools.drafts,
        calls("copilot-plugin.jsonl", "PostToolUse", tool="tool_name", given="tool_input", result="tool_result"),
    ),
}
EXPECTED: dict[str, dict[int, list[tuple[object, ...]]]] = {
    "claude-code": {
        7: [("read", "src/db.py", 1, 60, 60)],
        8: [("read", "src/auth.py", 10, 39, 120)],
        12: [("read", "src/db.py", 1, 5, 60), ("read", "src/auth.py", 1, 3, 120)],
        18: [("read", "src/missing.py", None, None, None)],
        42: [("read", "src/auth.py", 50, 54, 120)],
        48: [("edit", "src/auth.py", 52, 53, 121)],
        51: [("create", "src/new.py", 1, 1, 1)],
    },
    "codex": {
        4: [("read", "src/auth.py", 10, 40, None)],
        6: [
            ("search", "src/auth.py", 5, 5, None),
            ("search", "src/auth.py", 50, 51, None),
            ("search", "src/auth.py", 54, 60, None),
            ("read", "src/db.py", 1, 3, None),
        ],
    },
    "gemini": {
        5: [("read", "src/auth.py", 10, 40, 121)],
        9: [("search", "src/auth.py", line, line, 121) for line in (5, 50, 51, *range(54, 61))],
        10: [("list", ".", None, None, None)],
        13: [("read", "src/db.py", 1, 5, None)],
        16: [("edit", "src/db.py", 3, 3, 60)],
    },
    "opencode": {
        13: [("read", "src/auth.py", 10, 39, 121)],
        19: [("read", "src/db.py", 1, 5, None)],
        26: [("edit", "src/auth.py", 12, 12, 121)],
    },
    "copilot-native": {
        4: [("read", "src/auth.py", 10, 40, None)],
        7: [("search", "src/auth.py", None, None, None)],
        9: [("read", "src/db.py", 1, 5, None)],
        12: [("edit", "src/db.py", None, None, None)],
    },
    "copilot-plugin": {
        3: [("read", "src/auth.py", 10, 40, None)],
        4: [("search", "src/auth.py", None, None, None)],
        5: [("read", "src/db.py", 1, 5, None)],
    },
}


def navigation(drafts: list[Draft]) -> list[tuple[object, ...]]:
    keys = ("path", "start_line", "end_line", "total_lines")
    found = [draft for draft in drafts if draft.name.startswith("file.")]
    return [(draft.name.removeprefix("file."), *(draft.fields[key] for key in keys)) for draft in found]


@pytest.mark.parametrize("client", RECORDED)
def test_each_recorded_payload_touches_what_it_touched(client: str) -> None:
    """A-12: every other payload of the recording touches nothing."""
    drafts, made = RECORDED[client]
    files, tally = Files(ROOT), Tally()

    found = {number: navigation(drafts(call, files, tally)) for number, call in made.items()}

    assert {number: places for number, places in found.items() if places} == EXPECTED[client]
    assert tally == Tally()


@pytest.mark.parametrize(
    ("client", "reader", "path"),
    [("codex", codex, "codex/rollout.jsonl"), ("gemini", gemini, "gemini/session.jsonl")],
)
def test_a_hook_and_the_transcript_tell_the_same(client: str, reader: Reader, path: str) -> None:
    """Fields and order agree, so that what both tell can be stored once."""
    drafts, made = RECORDED[client]
    files = Files(ROOT)
    hooks = [draft for call in made.values() for draft in drafts(call, files, Tally())]
    events = [event for _, some in reader.read(FIXTURES / path, root=ROOT, tally=Tally()) for event in some]

    def told(name: str, fields: Json) -> tuple[object, ...]:
        return name, {key: value for key, value in fields.items() if key != "call"}

    wanted = ("file.", "shell.")
    assert [told(draft.name, draft.fields) for draft in hooks if draft.name.startswith(wanted)] == [
        told(event.name, event.data) for event in events if event.name.startswith(wanted)
    ]


def test_cursor_reads_and_commands_as_its_documentation_says() -> None:
    """Not verified: no recording of Cursor exists."""
    files, tally = Files(ROOT), Tally()

    def found(tool: str, given: Json, output: object, *, failed: bool = False) -> list[tuple[object, ...]]:
        call = Call(id="c", tool=tool, given=given, result=output, cwd=ROOT, failed=failed)
        return navigation(cursor_tools.drafts(call, files, tally))

    shell = '{"output":"# db line 1\\n# db line 2\\n","exitCode":0}'
    assert found("Shell", {"command": "sed -n '1,5p' src/db.py", "cwd": ROOT}, shell) == [
        ("read", "src/db.py", 1, 2, None)
    ]
    assert found("Read", {"file_path": f"{ROOT}/a.py"}, '{"content":"a\\nb\\n"}') == [("read", "a.py", 1, 2, 2)]
    assert found("Write", {"file_path": f"{ROOT}/a.py"}, "") == [("edit", "a.py", None, None, None)]
    assert found("Write", {"file_path": f"{ROOT}/a.py"}, "", failed=True) == []


def test_a_hunk_ends_where_its_counts_say() -> None:
    """Lines that look like headers may stand in a file."""
    diff = (
        "--- a\n+++ b\n@@ -1,2 +1,3 @@\n a\n+@@ -9,9 +9,9 @@\n b\n@@ -10,1 +11,0 @@\n-x\n\\ No newline at end of file\n"
    )

    assert touching.hunks(diff) == [touching.Hunk(1, (2, 2)), touching.Hunk(-1, (10, 10))]
    assert touching.hunks("no diff") == []


@pytest.mark.parametrize("client", [*RECORDED, "cursor"])
@settings(max_examples=40)
@given(data=st.data())
def test_no_payload_raises(client: str, data: st.DataObject) -> None:
    """Keys removed, unknown ones added, arguments and results of other types."""
    drafts, made = RECORDED.get(client, (cursor_tools.drafts, RECORDED["claude-code"][1]))
    call = made[data.draw(st.sampled_from(sorted(made)))]
    odd = st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=10) | st.just("\ud800\0"),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
        max_leaves=5,
    )

    def spoil(value: object) -> object:
        chance = data.draw(st.integers(0, 6))
        if chance == 0:
            return data.draw(odd)
        if isinstance(value, dict):
            kept = {key: spoil(child) for key, child in value.items() if data.draw(st.integers(0, 6))}
            return kept | ({"from_the_future": 1} if chance == 1 else {})
        return value

    spoiled = Call(
        id="c",
        tool=data.draw(st.sampled_from([call.tool, "", "view", "Shell", "apply_patch"])),
        given=spoil(call.given),
        result=spoil(call.result),
        failed=data.draw(st.booleans()),
        denied=data.draw(st.booleans()),
        cwd=data.draw(st.sampled_from([None, ROOT, "C:\\shop"])),
    )

    found = drafts(spoiled, Files(data.draw(st.sampled_from([None, ROOT]))), Tally())

    assert found
    if spoiled.denied:
        assert not navigation(found)

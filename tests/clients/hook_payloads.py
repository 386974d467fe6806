"""Recorded hook payloads of each client as tool calls, and functions that compare their effects."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

from mica.clients.claude_code import tools as claude_tools
from mica.clients.codex import tools as codex_tools
from mica.clients.copilot import tools as copilot_tools
from mica.clients.gemini import tools as gemini_tools
from mica.clients.opencode import tools as opencode_tools
from mica.clients.reader import Reader
from mica.clients.records import ImportTally
from mica.clients.tool_effects import ClientCall, EventDraft, FileNames

FIXTURES = Path(__file__).parents[1] / "fixtures"


HOOKS = FIXTURES / "hooks"


ROOT = "/home/dev/shop"


Json = dict[str, object]


Drafts = Callable[[ClientCall, FileNames, ImportTally], list[EventDraft]]


def payloads(name: str) -> list[tuple[int, Json]]:
    return [(n, json.loads(line)) for n, line in enumerate((HOOKS / name).read_text().splitlines(), start=1)]


def claude_calls() -> dict[int, ClientCall]:
    return {
        number: ClientCall(
            id=str(payload["tool_use_id"]),
            tool=str(payload["tool_name"]),
            arguments=payload["tool_input"],
            result=payload.get("tool_response", payload.get("error")),
            failed=payload["hook_event_name"] == "PostToolUseFailure",
            cwd=ROOT,
        )
        for number, payload in payloads("claude-code.jsonl")
        if payload["hook_event_name"] in ("PostToolUse", "PostToolUseFailure")
    }


def calls(
    name: str, event: str, *, tool: str, given: str, result: str, key: str = "hook_event_name"
) -> dict[int, ClientCall]:
    return {
        number: ClientCall(id=str(number), tool=str(one[tool]), arguments=one[given], result=one[result], cwd=ROOT)
        for number, one in payloads(name)
        if one.get(key) == event
    }


def opencode_calls() -> dict[int, ClientCall]:
    found = {}
    for number, one in payloads("opencode.jsonl"):
        given, output = one["input"], one.get("output")
        if one["k"] == "tool.execute.after" and isinstance(given, dict):
            found[number] = ClientCall(
                id=given["callID"], tool=given["tool"], arguments=given["args"], result=output, cwd=ROOT
            )
    return found


RECORDED: dict[str, tuple[Drafts, dict[int, ClientCall]]] = {
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


def navigation(drafts: list[EventDraft]) -> list[tuple[object, ...]]:
    keys = ("path", "start_line", "end_line", "total_lines")
    found = [draft for draft in drafts if draft.name.startswith("file.")]
    return [(draft.name.removeprefix("file."), *(draft.fields[key] for key in keys)) for draft in found]


def touched_files(client: str) -> dict[int, list[tuple[object, ...]]]:
    """The files that each recorded payload touched, by line of the recording; payloads without any are left out."""
    drafts, recorded = RECORDED[client]
    files, tally = FileNames(ROOT), ImportTally()
    found = {number: navigation(drafts(call, files, tally)) for number, call in recorded.items()}
    assert tally == ImportTally()
    return {number: places for number, places in found.items() if places}


def assert_hooks_match_transcript(client: str, reader: Reader, path: Path) -> None:
    """Fields and order agree, so that an event from both is stored once."""
    drafts, recorded = RECORDED[client]
    files = FileNames(ROOT)
    from_hooks = [draft for call in recorded.values() for draft in drafts(call, files, ImportTally())]
    events = [event for _, some in reader.read(path, root=ROOT, tally=ImportTally()) for event in some]

    def comparable(name: str, fields: Json) -> tuple[object, ...]:
        return name, {key: value for key, value in fields.items() if key != "call"}

    wanted = ("file.", "shell.")
    assert [comparable(draft.name, draft.fields) for draft in from_hooks if draft.name.startswith(wanted)] == [
        comparable(event.name, event.data) for event in events if event.name.startswith(wanted)
    ]

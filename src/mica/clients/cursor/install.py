"""Cursor: hooks and an MCP entry in its own files, written from its documentation; it was never run with them."""

from __future__ import annotations

from mica.clients.installation import Client, Entry, Machine

TIMEOUTS_S = {"sessionStart": 5, "beforeSubmitPrompt": 5, "postToolUse": 10, "preCompact": 5, "stop": 10}
TOOLS = "Shell|Read|Write|Grep"


def client(machine: Machine) -> Client:
    folder = machine.user_home / ".cursor"
    hooks = folder / "hooks.json"
    entries = [Entry(path=hooks, keys=("version",), value=1, is_frame=True)]
    for event, timeout_s in TIMEOUTS_S.items():
        matcher = {"matcher": TOOLS} if event == "postToolUse" else {}
        command = {"command": machine.hook_command("cursor", event), **matcher, "timeout": timeout_s}
        entries.append(Entry(path=hooks, keys=("hooks", event), value=command, is_item=True))
    return Client(
        name="cursor",
        title="Cursor",
        folder=folder,
        programs=("cursor", "cursor-agent"),
        entries=(*entries, Entry(path=folder / "mcp.json", keys=("mcpServers", "mica"), value=machine.server)),
        notes=("Cursor was never run with these files: they follow its documentation. Tell us what you see.",),
        is_verified=False,
    )

"""The `Client` entry of Cursor. mica is installed as settings entries for hooks and MCP. Not yet tested in Cursor."""

from __future__ import annotations

from mica.clients.client import Client
from mica.clients.cursor import tools
from mica.clients.installation import ConfigEntry, Installation, Machine
from mica.clients.prompts import PromptFilter

TIMEOUTS_S = {"sessionStart": 5, "beforeSubmitPrompt": 5, "postToolUse": 10, "preCompact": 5, "stop": 10}
TOOLS = "Shell|Read|Write|Grep"
PROMPTS = PromptFilter(injected=("system_reminder", "additional_context"))


def _install(machine: Machine) -> Installation:
    folder = machine.user.path / ".cursor"
    hooks = folder / "hooks.json"
    entries = [ConfigEntry(path=hooks, keys=("version",), value=1, is_frame=True)]
    for event, timeout_s in TIMEOUTS_S.items():
        matcher = {"matcher": TOOLS} if event == "postToolUse" else {}
        command = {"command": machine.hook_command(CLIENT.hook, event), **matcher, "timeout": timeout_s}
        entries.append(ConfigEntry(path=hooks, keys=("hooks", event), value=command, is_item=True))
    return Installation(
        name=CLIENT.name,
        title=CLIENT.title,
        folder=folder,
        programs=("cursor", "cursor-agent"),
        entries=(*entries, ConfigEntry(path=folder / "mcp.json", keys=("mcpServers", "mica"), value=machine.server)),
        notes=("Cursor was never run with these files: they follow its documentation. Tell us what you see.",),
        is_verified=False,
    )


CLIENT = Client(
    name="cursor",
    title="Cursor",
    install=_install,
    drafts=tools.drafts,
    typed=PROMPTS.typed,
)

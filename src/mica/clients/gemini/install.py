"""Gemini CLI: an extension in its own folder; no file of the user is changed."""

from __future__ import annotations

import json

from mica.clients.installation import Client, File, Machine, document
from mica.clients.plugin import ABOUT, NAME, SKILLS

TIMEOUTS_MS = {
    "SessionStart": 5_000,
    "BeforeAgent": 5_000,
    "AfterTool": 10_000,
    "AfterAgent": 10_000,
    "SessionEnd": 5_000,
}


def client(machine: Machine) -> Client:
    folder = machine.folder("GEMINI_CLI_HOME") / ".gemini"
    extension = folder / "extensions" / NAME
    told = {"name": NAME, "version": machine.version, "description": ABOUT, "mcpServers": {"mica": machine.server}}
    hooks = {event: [{"hooks": [_hook(machine, event, timeout_ms)]}] for event, timeout_ms in TIMEOUTS_MS.items()}
    commands = tuple(
        File(path=extension / "commands" / NAME / f"{name}.toml", content=_command(description, text))
        for name, (description, text) in SKILLS.items()
    )
    return Client(
        name="gemini",
        title="Gemini CLI",
        folder=folder,
        programs=("gemini",),
        files=(
            File(path=extension / "gemini-extension.json", content=document(told)),
            File(path=extension / "hooks" / "hooks.json", content=document({"hooks": hooks})),
            *commands,
        ),
        notes=("Gemini CLI loads it in the next session.",),
    )


def _hook(machine: Machine, event: str, timeout_ms: int) -> dict[str, object]:
    return {"type": "command", "name": "mica", "command": machine.hook_command("gemini", event), "timeout": timeout_ms}


def _command(description: str, text: str) -> str:
    said = text.replace("$ARGUMENTS", "{{args}}")
    return f'description = {json.dumps(description)}\nprompt = """\n{said}\n"""\n'

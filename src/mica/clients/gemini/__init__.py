"""The `Client` entry of Gemini CLI. mica is installed as an extension, which changes no file of the user."""

from __future__ import annotations

import json
from pathlib import Path

from mica.clients import plugin
from mica.clients.client import Client
from mica.clients.gemini import tools, transcript
from mica.clients.installation import Installation, Machine, OwnedFile, UserHome, document

TIMEOUTS_MS = {
    "SessionStart": 5_000,
    "BeforeAgent": 5_000,
    "AfterTool": 10_000,
    "AfterAgent": 10_000,
    "SessionEnd": 5_000,
}


def _folder(user: UserHome) -> Path:
    return user.folder("GEMINI_CLI_HOME") / ".gemini"


def _install(machine: Machine) -> Installation:
    folder = _folder(machine.user)
    extension = folder / "extensions" / plugin.NAME
    manifest = {
        "name": plugin.NAME,
        "version": machine.version,
        "description": plugin.ABOUT,
        "mcpServers": {"mica": machine.server},
    }
    hooks = {event: [{"hooks": [_hook(machine, event, timeout_ms)]}] for event, timeout_ms in TIMEOUTS_MS.items()}
    commands = tuple(
        OwnedFile(path=extension / "commands" / plugin.NAME / f"{name}.toml", content=_command(description, text))
        for name, (description, text) in plugin.SKILLS.items()
    )
    return Installation(
        name=CLIENT.name,
        title=CLIENT.title,
        folder=folder,
        programs=("gemini",),
        files=(
            OwnedFile(path=extension / "gemini-extension.json", content=document(manifest)),
            OwnedFile(path=extension / "hooks" / "hooks.json", content=document({"hooks": hooks})),
            *commands,
        ),
        notes=("Gemini CLI loads it in the next session.",),
    )


def _hook(machine: Machine, event: str, timeout_ms: int) -> dict[str, object]:
    command = machine.hook_command(CLIENT.hook, event)
    return {"type": "command", "name": "mica", "command": command, "timeout": timeout_ms}


def _command(description: str, text: str) -> str:
    prompt = text.replace("$ARGUMENTS", "{{args}}")
    return f'description = {json.dumps(description)}\nprompt = """\n{prompt}\n"""\n'


CLIENT = Client(
    name=transcript.NAME,
    title="Gemini CLI",
    install=_install,
    reader=transcript,
    transcripts=lambda user: _folder(user) / "tmp",
    sign=b'"projectHash"',
    drafts=tools.drafts,
    typed=transcript.PROMPTS.typed,
)

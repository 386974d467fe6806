"""The `Client` entry of Copilot CLI. mica is installed with the plugin and settings entries used for Claude Code."""

from __future__ import annotations

from pathlib import Path

from mica.clients import plugin
from mica.clients.client import Client
from mica.clients.copilot import tools, transcript
from mica.clients.installation import Installation, Machine, UserHome


def _folder(user: UserHome) -> Path:
    return user.folder("COPILOT_HOME", ".copilot")


def _install(machine: Machine) -> Installation:
    folder = _folder(machine.user)
    return Installation(
        name=CLIENT.name,
        title=CLIENT.title,
        folder=folder,
        programs=("copilot",),
        files=plugin.marketplace(machine),
        entries=plugin.declare(machine, folder / "settings.json"),
        notes=("Copilot CLI loads it in the next session.",),
    )


CLIENT = Client(
    name=transcript.NAME,
    title="Copilot CLI",
    install=_install,
    reader=transcript,
    transcripts=lambda user: _folder(user) / "session-state",
    sign=b'"session.start"',
    drafts=tools.drafts,
    typed=transcript.PROMPTS.typed,
)

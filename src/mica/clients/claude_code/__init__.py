"""The `Client` entry of Claude Code. mica is installed as a plugin, which two settings entries declare."""

from __future__ import annotations

from pathlib import Path

from mica.clients import plugin
from mica.clients.claude_code import records, tools, transcript
from mica.clients.client import Client
from mica.clients.installation import ConfigEntry, Installation, Machine, UserHome


def _folder(user: UserHome) -> Path:
    return user.folder("CLAUDE_CONFIG_DIR", ".claude")


def _install(machine: Machine) -> Installation:
    folder = _folder(machine.user)
    plugins = folder / "plugins"
    return Installation(
        name=CLIENT.name,
        title=CLIENT.title,
        folder=folder,
        programs=("claude",),
        files=plugin.marketplace(machine),
        entries=plugin.declare(machine, folder / "settings.json"),
        leftovers=(
            ConfigEntry(path=plugins / "known_marketplaces.json", keys=(plugin.MARKETPLACE,), value=None),
            ConfigEntry(path=plugins / "installed_plugins.json", keys=("plugins", plugin.ID), value=None),
        ),
        notes=("Claude Code loads it in the next session; interactively, in folders that you trust.",),
    )


CLIENT = Client(
    name=transcript.NAME,
    title="Claude Code",
    install=_install,
    reader=transcript,
    transcripts=lambda user: _folder(user) / "projects",
    drafts=tools.drafts,
    typed=records.typed_in_hook,
    hook_name="claude",
    has_unique_names=True,
    names_closings_by_text=True,
)

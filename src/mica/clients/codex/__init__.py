"""The `Client` entry of Codex CLI. mica is installed as two settings tables and a copy of mica's plugin."""

from __future__ import annotations

from pathlib import Path

from mica.clients import plugin
from mica.clients.client import Client
from mica.clients.codex import tools, transcript
from mica.clients.installation import ConfigEntry, Installation, Machine, UserHome

TRUST = (
    "Codex skips new hooks in silence until you trust them: start `codex`, type /hooks, and trust those of "
    f"{plugin.ID}; once more after `mica install` has changed them."
)


def _folder(user: UserHome) -> Path:
    return user.folder("CODEX_HOME", ".codex")


def _install(machine: Machine) -> Installation:
    folder = _folder(machine.user)
    settings = folder / "config.toml"
    copy = folder / "plugins" / "cache" / plugin.MARKETPLACE / plugin.NAME / machine.version
    source = {"source_type": "local", "source": str(machine.plugin)}
    return Installation(
        name=CLIENT.name,
        title=CLIENT.title,
        folder=folder,
        programs=("codex",),
        # The copy sets no `cwd`: Codex would take it from the plugin's folder, and without it starts in the project.
        files=(*plugin.marketplace(machine), *plugin.plugin_files(machine, copy, server=machine.server)),
        entries=(
            ConfigEntry(path=settings, keys=("marketplaces", plugin.MARKETPLACE), value=source, format="toml"),
            ConfigEntry(path=settings, keys=("plugins", plugin.ID), value={"enabled": True}, format="toml"),
        ),
        notes=(TRUST,),
    )


CLIENT = Client(
    name=transcript.NAME,
    title="Codex CLI",
    install=_install,
    reader=transcript,
    transcripts=_folder,
    sign=b'"session_meta"',
    drafts=tools.drafts,
    typed=transcript.PROMPTS.typed,
    has_unique_names=True,
    names_calls_in_turns=True,
)

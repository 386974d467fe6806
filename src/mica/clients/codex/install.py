"""Codex CLI: two tables of its settings, and a copy of the plugin where it keeps those that are installed."""

from __future__ import annotations

from mica.clients.installation import Client, Entry, Machine
from mica.clients.plugin import ID, MARKETPLACE, NAME, marketplace, plugin

TRUST = (
    "Codex skips new hooks in silence until you trust them: start `codex`, type /hooks, and trust those of "
    f"{ID}; once more after `mica install` has changed them."
)


def client(machine: Machine) -> Client:
    folder = machine.folder("CODEX_HOME", ".codex")
    settings = folder / "config.toml"
    copy = folder / "plugins" / "cache" / MARKETPLACE / NAME / machine.version
    source = {"source_type": "local", "source": str(machine.plugin)}
    return Client(
        name="codex",
        title="Codex CLI",
        folder=folder,
        programs=("codex",),
        # Its copy names no `cwd`: Codex counts it from the plugin's folder, and starts in the project without it.
        files=(*marketplace(machine), *plugin(machine, copy, server=machine.server)),
        entries=(
            Entry(path=settings, keys=("marketplaces", MARKETPLACE), value=source, format="toml"),
            Entry(path=settings, keys=("plugins", ID), value={"enabled": True}, format="toml"),
        ),
        notes=(TRUST,),
    )

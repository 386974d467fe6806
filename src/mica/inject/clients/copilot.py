"""Copilot CLI: the same two lines as Claude Code, in its own settings; it reads the plugin where it stands."""

from __future__ import annotations

from mica.inject.clients.pieces import Client, Entry, Machine
from mica.inject.clients.plugin import ID, MARKETPLACE, marketplace


def client(machine: Machine) -> Client:
    folder = machine.folder("COPILOT_HOME", ".copilot")
    settings = folder / "settings.json"
    source = {"source": {"source": "directory", "path": str(machine.plugin)}}
    return Client(
        name="copilot",
        title="Copilot CLI",
        folder=folder,
        programs=("copilot",),
        files=marketplace(machine),
        entries=(
            Entry(path=settings, keys=("extraKnownMarketplaces", MARKETPLACE), value=source),
            Entry(path=settings, keys=("enabledPlugins", ID), value=True),
        ),
        notes=("Copilot CLI loads it in the next session.",),
    )

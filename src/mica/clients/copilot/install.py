"""Copilot CLI: the same two lines as Claude Code, in its own settings; it reads the plugin where it stands."""

from __future__ import annotations

from mica.clients.installation import Client, Machine
from mica.clients.plugin import declared, marketplace


def client(machine: Machine) -> Client:
    folder = machine.folder("COPILOT_HOME", ".copilot")
    return Client(
        name="copilot",
        title="Copilot CLI",
        folder=folder,
        programs=("copilot",),
        files=marketplace(machine),
        entries=declared(machine, folder / "settings.json"),
        notes=("Copilot CLI loads it in the next session.",),
    )

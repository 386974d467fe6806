"""Claude Code: two lines of its settings declare the plugin, which it reads where it stands."""

from __future__ import annotations

from mica.clients.installation import Client, Entry, Machine
from mica.clients.plugin import ID, MARKETPLACE, declared, marketplace


def client(machine: Machine) -> Client:
    folder = machine.folder("CLAUDE_CONFIG_DIR", ".claude")
    plugins = folder / "plugins"
    return Client(
        name="claude-code",
        title="Claude Code",
        folder=folder,
        programs=("claude",),
        files=marketplace(machine),
        entries=declared(machine, folder / "settings.json"),
        leftovers=(
            Entry(path=plugins / "known_marketplaces.json", keys=(MARKETPLACE,), value=None),
            Entry(path=plugins / "installed_plugins.json", keys=("plugins", ID), value=None),
        ),
        notes=("Claude Code loads it in the next session; interactively, in folders that you trust.",),
    )

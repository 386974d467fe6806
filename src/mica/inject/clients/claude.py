"""Claude Code: two lines of its settings declare the plugin, which it reads where it stands."""

from __future__ import annotations

from mica.inject.clients.pieces import Client, Entry, Machine
from mica.inject.clients.plugin import ID, MARKETPLACE, marketplace


def client(machine: Machine) -> Client:
    folder = machine.folder("CLAUDE_CONFIG_DIR", ".claude")
    settings, plugins = folder / "settings.json", folder / "plugins"
    source = {"source": {"source": "directory", "path": str(machine.plugin)}}
    return Client(
        name="claude-code",
        title="Claude Code",
        folder=folder,
        programs=("claude",),
        files=marketplace(machine),
        entries=(
            Entry(path=settings, keys=("extraKnownMarketplaces", MARKETPLACE), value=source),
            Entry(path=settings, keys=("enabledPlugins", ID), value=True),
        ),
        leftovers=(
            Entry(path=plugins / "known_marketplaces.json", keys=(MARKETPLACE,), value=None),
            Entry(path=plugins / "installed_plugins.json", keys=("plugins", ID), value=None),
        ),
        notes=("Claude Code loads it in the next session; interactively, in folders that you trust.",),
    )

"""Installing into Copilot CLI."""

from __future__ import annotations

import json
from pathlib import Path

from tests.clients.machines import (
    change,
)

from mica.clients.installation import Machine


def test_entries_are_those_of_copilot_plugin_install(machine: Machine, user_home: Path) -> None:
    change(machine, "copilot")

    settings = json.loads((user_home / ".copilot/settings.json").read_text())
    source = {"source": {"source": "directory", "path": str(machine.plugin)}}
    assert settings == {
        "theme": "dark",
        "extraKnownMarketplaces": {"mica": source},
        "enabledPlugins": {"nav@mica": True},
    }

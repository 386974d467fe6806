"""Installing into Claude Code."""

from __future__ import annotations

import json
from pathlib import Path

from tests.clients.machines import (
    change,
)

from mica.clients.installation import Machine


def test_the_entries_that_claude_code_itself_wrote_about_mica_are_removed(machine: Machine, user_home: Path) -> None:
    change(machine, "claude-code")
    plugins = user_home / ".claude/plugins"
    plugins.mkdir()
    (plugins / "known_marketplaces.json").write_text('{\n  "mica": {"source": {}},\n  "acme": {}\n}')
    (plugins / "installed_plugins.json").write_text('{"version": 2, "plugins": {"nav@mica": [{"scope": "user"}]}}')

    change(machine, "claude-code", remove=True)

    assert json.loads((plugins / "known_marketplaces.json").read_text()) == {"acme": {}}
    assert json.loads((plugins / "installed_plugins.json").read_text()) == {"version": 2, "plugins": {}}


def test_entries_that_the_user_wrote_before_stay(machine: Machine, user_home: Path) -> None:
    settings = user_home / ".claude/settings.json"
    declared = {"source": {"source": "directory", "path": str(machine.plugin)}}
    own = json.dumps({"enabledPlugins": {"nav@mica": True}, "extraKnownMarketplaces": {"mica": declared}})
    settings.write_text(own)

    change(machine, "claude-code")
    change(machine, "claude-code", remove=True)

    assert settings.read_text() == own


def test_entries_are_those_of_claude_plugin_install(machine: Machine, user_home: Path) -> None:
    change(machine, "claude-code")

    settings = json.loads((user_home / ".claude/settings.json").read_text())
    source = {"source": {"source": "directory", "path": str(machine.plugin)}}
    assert settings["extraKnownMarketplaces"] == {"mica": source}
    assert settings["enabledPlugins"] == {"formatter@acme-tools": True, "nav@mica": True}

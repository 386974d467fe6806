"""Installing into Codex CLI."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path

from tests.clients.machines import (
    change,
)

from mica.clients.installation import Machine


def test_tables_are_those_of_codex_plugin_add(machine: Machine, user_home: Path) -> None:
    change(machine, "codex")

    config = tomllib.loads((user_home / ".codex/config.toml").read_text())
    assert config["marketplaces"] == {"mica": {"source_type": "local", "source": str(machine.plugin)}}
    assert config["plugins"] == {"nav@mica": {"enabled": True}}


def test_the_copy_of_the_plugin_starts_its_server_in_the_project(machine: Machine, user_home: Path) -> None:
    """Codex takes `cwd` from the plugin's folder, so its copy sets none."""
    change(machine, "codex")

    copy = user_home / ".codex/plugins/cache/mica/nav" / machine.version
    assert "cwd" not in json.loads((copy / ".mcp.json").read_text())["mcpServers"]["mica"]
    assert (copy / "hooks/hooks.json").read_text() == (machine.plugin / "nav/hooks/hooks.json").read_text()

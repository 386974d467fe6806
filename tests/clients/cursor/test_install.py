"""Installing into Cursor."""

from __future__ import annotations

import json
from pathlib import Path

from tests.clients.machines import (
    change,
)

from mica.clients.installation import Machine
from mica.clients.registry import CLIENTS


def test_hooks_are_added_beside_those_of_the_user_and_name_their_client(machine: Machine, user_home: Path) -> None:
    change(machine, "cursor")

    hooks = json.loads((user_home / ".cursor/hooks.json").read_text())["hooks"]
    assert hooks["stop"][0] == {"command": "./audit.sh"}
    assert " cursor stop " in hooks["stop"][1]["command"]
    assert json.loads((user_home / ".cursor/mcp.json").read_text())["mcpServers"] == {"mica": machine.server}


def test_an_unverified_installation_is_marked(machine: Machine) -> None:
    assert not CLIENTS["cursor"].install(machine).is_verified

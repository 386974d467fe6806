"""Installing into Gemini CLI."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path

from tests.clients.machines import (
    change,
    contents,
)

from mica.clients.installation import Machine


def test_an_extension_is_added_and_no_file_of_the_user_changes(machine: Machine, user_home: Path) -> None:
    before = contents(user_home)

    change(machine, "gemini")

    after = contents(user_home)
    assert {path: after[path] for path in before} == before
    extension = user_home / ".gemini/extensions/nav"
    assert json.loads((extension / "gemini-extension.json").read_text())["mcpServers"] == {"mica": machine.server}
    hooks = json.loads((extension / "hooks/hooks.json").read_text())["hooks"]
    assert "gemini SessionStart" in hooks["SessionStart"][0]["hooks"][0]["command"]


def test_commands_pass_on_the_arguments_of_the_user(machine: Machine, user_home: Path) -> None:
    change(machine, "gemini")

    command = tomllib.loads((user_home / ".gemini/extensions/nav/commands/nav/explore.toml").read_text())
    assert "{{args}}" in command["prompt"]

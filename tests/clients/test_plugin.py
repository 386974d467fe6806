"""The plugin that Claude Code, Codex and Copilot CLI load."""

from __future__ import annotations

from pathlib import Path

from tests.clients.machines import (
    all_installations,
    machine_of,
)

from mica.clients.installation import Machine
from mica.clients.plugin import SKILLS, hooks, marketplace


def test_hooks_are_plain_commands(machine: Machine) -> None:
    """Codex ignores `args`, and no client delivers everything in order where a hook is `async`."""
    for client in all_installations(machine):
        for file in client.files:
            if file.path.name == "hooks.json":
                assert '"async"' not in file.content
                assert '"args"' not in file.content


def test_reads_are_gated_only_if_the_setting_is_on(user_home: Path) -> None:
    """Without the setting no hook runs before a read."""
    assert "PreToolUse" not in hooks(machine_of(user_home))
    gates = hooks(machine_of(user_home, read_gate=True))["PreToolUse"]
    assert isinstance(gates, list)
    assert [gate["matcher"] for gate in gates] == ["Read"]


def test_the_plugin_has_a_manifest_hooks_a_server_and_its_skills(machine: Machine) -> None:
    names = {str(file.path.relative_to(machine.plugin)) for file in marketplace(machine)}

    skills = {f"nav/skills/{name}/SKILL.md" for name in SKILLS}
    assert names == skills | {
        ".claude-plugin/marketplace.json",
        "nav/.claude-plugin/plugin.json",
        "nav/hooks/hooks.json",
        "nav/.mcp.json",
        "nav/README.md",
    }

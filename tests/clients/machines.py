"""Home folders in which every client was used, and functions that install into them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from mica.clients import installer
from mica.clients.installation import Installation, Machine, UserHome
from mica.clients.installer import apply, install, read_record, uninstall
from mica.clients.registry import CLIENTS

CLAUDE = """{
  "permissions": {
    "allow": ["Bash(npm run lint)", "Read(~/.zshrc)"],
    "deny": []
  },
  "hooks": {
    "Stop": [{"hooks": [{"type": "command", "command": "say done"}]}]
  },
  "enabledPlugins": {
    "formatter@acme-tools": true
  },
  "model": "opus"
}
"""


CODEX = """# codex
model = "gpt-5.5"
approval_policy = "on-request"

[mcp_servers.docs]
command = "docs-mcp"  # mine
args = ["--stdio"]

[projects."/srv/shop"]
trust_level = "trusted"
"""


OPENCODE = """{
  "$schema": "https://opencode.ai/config.json",
  // servers
  "mcp": {
    "docs": {"type": "local", "command": ["docs"], "enabled": true}, // mine
  },
}
"""


CURSOR = """{
  "version": 1,
  "hooks": {
    "stop": [
      {"command": "./audit.sh"}
    ]
  }
}
"""


COPILOT = '{"theme":"dark"}'


FILES = {
    ".claude/settings.json": CLAUDE,
    ".codex/config.toml": CODEX,
    ".copilot/settings.json": COPILOT,
    ".config/opencode/opencode.jsonc": OPENCODE,
    ".cursor/hooks.json": CURSOR,
    ".gemini/settings.json": "{}\n",
}


def machine_of(user_home: Path, environment: Mapping[str, str] | None = None, **changes: object) -> Machine:
    hook = user_home / "venv" / "mica" / "hook.py"
    hook.parent.mkdir(parents=True, exist_ok=True)
    hook.touch()
    known: dict[str, object] = {
        "user": UserHome(path=user_home, environment=environment or {}),
        "data": user_home / ".local/share/mica",
        "python": "/usr/bin/python3",
        "hook": hook,
        "version": "0.1.0",
    }
    return Machine(**known | changes)  # type: ignore[arg-type]  # one table for all kinds


def all_installations(machine: Machine) -> list[Installation]:
    return [client.install(machine) for client in CLIENTS.values()]


def change(machine: Machine, *names: str, remove: bool = False) -> installer.InstallPlan:
    """Install into these clients, or remove from them; without names, all."""
    chosen = [CLIENTS[name].install(machine) for name in names] or all_installations(machine)
    plan = (uninstall if remove else install)(chosen, read_record(machine.data), data=machine.data)
    apply(plan, data=machine.data)
    return plan


def contents(user_home: Path) -> dict[str, bytes]:
    """Every file and folder outside mica's own."""
    kept = user_home / ".local"
    inside = [path for path in user_home.rglob("*") if path != kept and not path.is_relative_to(kept)]
    return {str(path): path.read_bytes() if path.is_file() else b"" for path in inside}


def commands_of(value: object) -> list[str]:
    """Every hook command in a document, however deep."""
    if isinstance(value, dict):
        own = [value["command"]] if isinstance(value.get("command"), str) and "mica-hook" in value["command"] else []
        return own + [each for inner in value.values() for each in commands_of(inner)]
    return [each for inner in value for each in commands_of(inner)] if isinstance(value, list) else []

"""What an installation is made of, as plain values."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

import msgspec

Format = Literal["json", "toml"]


class Machine(msgspec.Struct, frozen=True, kw_only=True):
    """Where mica and its user live."""

    user_home: Path
    data: Path  # mica's own folder
    environment: Mapping[str, str]
    python: str  # the interpreter that mica runs in
    hook: Path  # mica's hook.py: while it is there, mica is
    version: str
    read_gate: bool = False  # whether hooks may refuse a Read that shows nothing new

    def folder(self, variable: str, *default: str) -> Path:
        """The folder that a variable names, else this one in the user's home."""
        named = self.environment.get(variable)
        return Path(named) if named else self.user_home.joinpath(*default)

    @property
    def launcher(self) -> Path:
        """What hooks run; made by `mica.clients.launcher`."""
        return self.data / "bin" / "mica-hook"

    @property
    def plugin(self) -> Path:
        """The folder that Claude Code and Copilot CLI read the plugin from."""
        return self.data / "plugin"

    def hook_command(self, *words: str) -> str:
        """The shell command of a hook. Every shell takes it, and it exits 0 also when mica or Python is gone."""
        python, hook, launcher = (shlex.quote(str(each)) for each in (self.python, self.hook, self.launcher))
        is_there = f"[ -x {python} ] && [ -f {hook} ] && [ -f {launcher} ]"
        moved = f"MICA_HOME={shlex.quote(str(self.data))} " if self.environment.get("MICA_HOME") else ""
        return f"{is_there} && {moved}{python} -I -S {launcher} {' '.join(words)} || true"

    @property
    def server_words(self) -> tuple[str, ...]:
        """The words that start the MCP server; `-P` keeps a project's own modules out of it."""
        return self.python, "-P", "-m", "mica.mcp"

    @property
    def server(self) -> dict[str, object]:
        """The MCP server, as most clients are told of it."""
        command, *words = self.server_words
        told: dict[str, object] = {"command": command, "args": words}
        return told | {"env": {"MICA_HOME": str(self.data)}} if self.environment.get("MICA_HOME") else told


class File(msgspec.Struct, frozen=True, kw_only=True):
    """A file of ours."""

    path: Path
    content: str


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """An entry in a file of the user: the value under some keys, or an item of the list under them."""

    path: Path
    keys: tuple[str, ...]
    value: object
    format: Format = "json"
    is_item: bool = False
    is_frame: bool = False  # goes only when nothing else is left in the file

    @property
    def name(self) -> str:
        return ".".join(self.keys)


class Client(msgspec.Struct, frozen=True, kw_only=True):
    """A coding agent, and what it is given."""

    name: str
    title: str
    folder: Path  # where it keeps its settings; it is there when the agent was ever used
    programs: tuple[str, ...]
    files: tuple[File, ...] = ()
    entries: tuple[Entry, ...] = ()
    leftovers: tuple[Entry, ...] = ()  # what the client itself remembers of us: taken out when mica is uninstalled
    notes: tuple[str, ...] = ()  # what its user must know
    is_verified: bool = True  # whether it was ever run with what is written here


def document(value: object) -> str:
    """A JSON file of ours."""
    return json.dumps(value, indent=2, ensure_ascii=False) + "\n"

"""Describes the files and settings entries that `mica install` writes for a coding agent on a given machine."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

import msgspec

Format = Literal["json", "toml"]


class UserHome(msgspec.Struct, frozen=True, kw_only=True):
    """A user's home folder and environment, which decide where programs keep their files."""

    path: Path
    environment: Mapping[str, str]

    def folder(self, variable: str, *default: str) -> Path:
        """Return the folder in an environment variable; if it is not set, `default` inside the home folder."""
        value = self.environment.get(variable)
        return Path(value) if value else self.path.joinpath(*default)


class Machine(msgspec.Struct, frozen=True, kw_only=True):
    """What an installation depends on: the user's home, where mica is installed, and its version."""

    user: UserHome
    data: Path  # mica's own folder
    python: str  # the interpreter that mica runs in
    hook: Path  # mica's hook.py; mica is installed as long as it exists
    version: str
    read_gate: bool = False  # hooks may refuse a Read whose lines the agent has all seen

    @property
    def launcher(self) -> Path:
        """The program that hooks run. `mica.clients.installer.write_launcher` creates it."""
        return self.data / "bin" / "mica-hook"

    @property
    def plugin(self) -> Path:
        """The folder from which Claude Code and Copilot CLI load mica's plugin."""
        return self.data / "plugin"

    def hook_command(self, *words: str) -> str:
        """Return the shell command that runs `mica-hook` with these arguments.

        It works in every shell, and exits with 0 if mica or Python is gone.
        """
        python, hook, launcher = (shlex.quote(str(each)) for each in (self.python, self.hook, self.launcher))
        exists = f"[ -x {python} ] && [ -f {hook} ] && [ -f {launcher} ]"
        variable = f"MICA_HOME={shlex.quote(str(self.data))} " if self.user.environment.get("MICA_HOME") else ""
        return f"{exists} && {variable}{python} -I -S {launcher} {' '.join(words)} || true"

    @property
    def server_words(self) -> tuple[str, ...]:
        """The command that starts the MCP server; `-P` prevents it from importing a project's own modules."""
        return self.python, "-P", "-m", "mica.mcp"

    @property
    def server(self) -> dict[str, object]:
        """The command that starts mica's MCP server, in the JSON form that most clients use in their settings."""
        command, *words = self.server_words
        server: dict[str, object] = {"command": command, "args": words}
        return server | {"env": {"MICA_HOME": str(self.data)}} if self.user.environment.get("MICA_HOME") else server


class OwnedFile(msgspec.Struct, frozen=True, kw_only=True):
    """A file that mica creates and updates, and removes when it is uninstalled."""

    path: Path
    content: str


class ConfigEntry(msgspec.Struct, frozen=True, kw_only=True):
    """An entry that mica adds to a settings file of the user.

    `keys` are nested keys. The entry is the value under them, or an item of the list under them.
    """

    path: Path
    keys: tuple[str, ...]
    value: object
    format: Format = "json"
    is_item: bool = False  # the value is an item of the list under the keys
    is_frame: bool = False  # removed only when nothing else is left in the file

    @property
    def name(self) -> str:
        """The keys joined with dots: `hooks.Stop`."""
        return ".".join(self.keys)


class Installation(msgspec.Struct, frozen=True, kw_only=True):
    """The files and settings entries that connect one coding agent to mica."""

    name: str
    title: str
    folder: Path  # the agent's settings folder, which exists once the agent was used
    programs: tuple[str, ...]  # names of the agent's executables
    files: tuple[OwnedFile, ...] = ()
    entries: tuple[ConfigEntry, ...] = ()
    leftovers: tuple[ConfigEntry, ...] = ()  # entries that the agent itself writes about mica; uninstall removes them
    notes: tuple[str, ...] = ()  # for the user, after installing
    is_verified: bool = True  # False: written from the agent's documentation and never run


def document(value: object) -> str:
    """Format a value as the text of a JSON file."""
    return json.dumps(value, indent=2, ensure_ascii=False) + "\n"

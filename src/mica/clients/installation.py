"""The values that an installation is made of: files, settings entries, and the machine they are for."""

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
        """The folder that an environment variable names, else the default inside the home folder."""
        value = self.environment.get(variable)
        return Path(value) if value else self.path.joinpath(*default)


class Machine(msgspec.Struct, frozen=True, kw_only=True):
    """The user and the mica that is installed for them."""

    user: UserHome
    data: Path  # mica's own folder
    python: str  # the interpreter that mica runs in
    hook: Path  # mica's hook.py; mica is installed as long as it exists
    version: str
    read_gate: bool = False  # hooks may refuse a Read that shows no new line

    @property
    def launcher(self) -> Path:
        """The program that hooks run, written by `mica.clients.installer.write_launcher`."""
        return self.data / "bin" / "mica-hook"

    @property
    def plugin(self) -> Path:
        """The folder that Claude Code and Copilot CLI load the plugin from."""
        return self.data / "plugin"

    def hook_command(self, *words: str) -> str:
        """The shell command of a hook. It works in every shell and exits 0 even if mica or Python was removed."""
        python, hook, launcher = (shlex.quote(str(each)) for each in (self.python, self.hook, self.launcher))
        exists = f"[ -x {python} ] && [ -f {hook} ] && [ -f {launcher} ]"
        variable = f"MICA_HOME={shlex.quote(str(self.data))} " if self.user.environment.get("MICA_HOME") else ""
        return f"{exists} && {variable}{python} -I -S {launcher} {' '.join(words)} || true"

    @property
    def server_words(self) -> tuple[str, ...]:
        """The command that starts the MCP server; `-P` keeps a project's own modules out of it."""
        return self.python, "-P", "-m", "mica.mcp"

    @property
    def server(self) -> dict[str, object]:
        """The MCP server in the form that most clients have in their settings."""
        command, *words = self.server_words
        server: dict[str, object] = {"command": command, "args": words}
        return server | {"env": {"MICA_HOME": str(self.data)}} if self.user.environment.get("MICA_HOME") else server


class OwnedFile(msgspec.Struct, frozen=True, kw_only=True):
    """A file that mica writes, keeps current and removes."""

    path: Path
    content: str


class ConfigEntry(msgspec.Struct, frozen=True, kw_only=True):
    """An entry in a settings file of the user: the value under some keys, or an item of the list there."""

    path: Path
    keys: tuple[str, ...]
    value: object
    format: Format = "json"
    is_item: bool = False
    is_frame: bool = False  # removed only when nothing else is left in the file

    @property
    def name(self) -> str:
        """The keys as people write them: `hooks.Stop`."""
        return ".".join(self.keys)


class Installation(msgspec.Struct, frozen=True, kw_only=True):
    """The files and entries that one coding agent gets."""

    name: str
    title: str
    folder: Path  # with the agent's settings; it exists once the agent was used
    programs: tuple[str, ...]
    files: tuple[OwnedFile, ...] = ()
    entries: tuple[ConfigEntry, ...] = ()
    leftovers: tuple[ConfigEntry, ...] = ()  # entries that the agent itself writes about mica; uninstall removes them
    notes: tuple[str, ...] = ()  # for the user, after installing
    is_verified: bool = True  # False: written from the agent's documentation and never run


def document(value: object) -> str:
    """The text of a JSON file that mica writes."""
    return json.dumps(value, indent=2, ensure_ascii=False) + "\n"

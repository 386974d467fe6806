"""Shells of made-up users, for the tests of commands."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

from click.testing import CliRunner, Result
from tests.crystals.test_teachings import crystal_of_session

import mica
from mica import Memory
from mica.cli import cli
from mica.model.crystal import Crystal

FIXTURES = Path(__file__).parents[1] / "fixtures" / "claude-code"
UNPRIVILEGED = """
import os, sys
from mica.cli import cli
cli(["mark", "one", "--store", sys.argv[-1]], prog_name="mica", standalone_mode=False)
os.chmod(sys.argv[-1], 0o444)
os.chmod(sys.argv[-1] + "-segments", 0o777)
if os.geteuid() == 0:
    os.setuid(65534)  # root may write anywhere
cli(sys.argv[1:], prog_name="mica")
"""
VARIABLES = {"XDG_DATA_HOME": "", "XDG_CONFIG_HOME": "", "MICA_HOME": "", "MICA_STORE": ""}


class Terminal:
    """A user's shell: a home folder, a project, and the `mica` command."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.variables = {
            "HOME": str(home),
            "XDG_DATA_HOME": "",
            "XDG_CONFIG_HOME": "",
            "MICA_HOME": "",
            "MICA_STORE": "",
            "MICA_SEMANTIC": "off",
        }

    def run(self, *arguments: str, stdin: str | None = None, **variables: str) -> Result:
        return CliRunner().invoke(cli, arguments, input=stdin, env=self.variables | variables, prog_name="mica")

    def json(self, *arguments: str, **variables: str) -> object:
        result = self.run(*arguments, "--json", **variables)
        assert result.exit_code == 0, result.output
        return json.loads(result.stdout)

    def documents(self, *arguments: str) -> list[dict[str, Any]]:
        """The documents of a result: a list, or the only one."""
        found = self.json(*arguments)
        return found if isinstance(found, list) else [found]  # type: ignore[list-item]  # JSON, as the tests expect it


class StoreTerminal:
    """A user's shell with its own store."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.store = str(folder / "space.db")
        self.variables = {"HOME": str(folder), "MICA_STORE": self.store, "XDG_DATA_HOME": "", "XDG_CONFIG_HOME": ""}

    def run(self, *arguments: str) -> Result:
        return CliRunner().invoke(cli, arguments, env=self.variables, prog_name="mica")

    def piped(self, stdin: bytes, *arguments: str) -> Result:
        return CliRunner().invoke(cli, arguments, input=stdin, env=self.variables, prog_name="mica")

    def document(self, *arguments: str) -> dict[str, Any]:
        result = self.run(*arguments, "--json")
        assert result.exit_code == 0, result.output
        found: dict[str, Any] = json.loads(result.stdout)
        return found

    def listed(self, *arguments: str) -> list[dict[str, Any]]:
        result = self.run(*arguments, "--json")
        assert result.exit_code == 0, result.output
        found: list[dict[str, Any]] = json.loads(result.stdout)
        return found

    def crystal(self, session: str = "s1", *, confidence: float = 0.9) -> Crystal:
        """A crystal that passes the gate of teachings."""

        async def made() -> Crystal:
            settings = mica.load_settings(self.variables)
            async with mica.open(self.store, settings=settings) as memory:
                return await crystal_of_session(memory, session, confidence=confidence)

        return asyncio.run(made())


class EventShell:
    """`mica events` and `mica export` on one store."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.store = folder / "space.db"
        self.variables = VARIABLES | {"HOME": str(folder)}

    def run(self, *arguments: str, stdin: bytes = b"") -> Result:
        command = [*([] if arguments[0] == "export" else ["events"]), *arguments, "--store", str(self.store)]
        return CliRunner().invoke(cli, command, env=self.variables, prog_name="mica", input=stdin)

    def json(self, *arguments: str) -> object:
        result = self.run(*arguments, "--json")
        assert result.exit_code == 0, result.output
        return json.loads(result.stdout)

    def fill(self) -> None:
        """Record a chain with a failure, a second run that ends differently, and an unrelated event."""

        def emit(memory: Memory, *, answer: int) -> None:
            root = memory.emit("plan", {"n": 1})
            with memory.context(agent="scout", session="s1", parent=root):
                read = memory.emit("file.read", {"path": "a.py"})
                memory.emit("tool.ran", {"text": f"failed with {answer}"}, parent=read, error=True)
                memory.emit("error_free")

        async def filled() -> None:
            async with mica.open(self.store, settings=mica.load_settings({"HOME": str(self.folder)})) as memory:
                emit(memory, answer=1)
                emit(memory, answer=2)
                memory.emit("elsewhere")

        asyncio.run(filled())

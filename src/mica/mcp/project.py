"""Which project a server speaks for, and its memory, opened when somebody first needs it."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from urllib.parse import unquote, urlsplit

from mica.errors import InvalidInput, UnknownSpace
from mica.memory import Memory
from mica.memory import open as open_memory
from mica.settings import Settings

ROOTS_S = 2.0  # that a client may take to say where it works; it is asked before anything else
DIRECTORIES = ("CLAUDE_PROJECT_DIR", "COPILOT_PROJECT_DIR")  # by which a client names its project
SESSIONS = ("CLAUDE_CODE_SESSION_ID", "COPILOT_AGENT_SESSION_ID")  # by which it names what it is doing

Place = Callable[[Path], tuple[Path | str, Settings]]  # where the space of a directory is; raises InvalidSettings


class Project:
    """One project. Its space is made by the first who writes; until then, reading finds nothing."""

    def __init__(self, place: Place, *, root: Path | None, environment: Mapping[str, str]) -> None:
        named = next((value for name in DIRECTORIES if (value := environment.get(name))), None)
        self.session = next((value for name in SESSIONS if (value := environment.get(name))), None)
        self._place = place
        self._directory = root or (Path(named) if named and Path(named).is_dir() else None)
        self._roots: asyncio.Future[object] | None = None
        self._opening = asyncio.Lock()
        self._memory: Memory | None = None
        self._nothing: Memory | None = None  # read while there is no space

    @property
    def is_known(self) -> bool:
        return self._directory is not None

    @property
    def has_space(self) -> bool:
        """Whether there is something to read, as far as anybody has looked."""
        return self._memory is not None

    def expect_roots(self) -> asyncio.Future[object]:
        """Where the answer of a client that was asked for its roots goes."""
        self._roots = asyncio.get_running_loop().create_future()
        return self._roots

    async def memory(self, *, makes: bool) -> Memory:
        """The memory of the project. Raises what opening it raises; the next call tries again."""
        async with self._opening:
            if self._memory is not None:
                return self._memory
            place, settings = self._place(await self._settled())
            try:
                self._memory = await open_memory(place, settings=settings, must_exist=not makes)
            except UnknownSpace:
                if self._nothing is None:
                    self._nothing = await open_memory(":memory:", settings=settings)
                return self._nothing
            return self._memory

    async def close(self) -> None:
        for memory in (self._memory, self._nothing):
            if memory is not None:
                await memory.close()

    async def _settled(self) -> Path:
        if self._directory is None and self._roots is not None:
            with suppress(TimeoutError):
                self._directory = first_directory(await asyncio.wait_for(asyncio.shield(self._roots), ROOTS_S))
        self._directory = self._directory or here()
        os.chdir(self._directory)  # the whole process speaks for it
        return self._directory


def here() -> Path:
    """The directory we were started in. Raises InvalidInput when that is the folder of our own plugin."""
    directory = Path.cwd()
    if (directory / ".claude-plugin" / "plugin.json").is_file():
        raise InvalidInput(
            f"the client started the server in {directory}, which is no project; `mica install` writes it anew, "
            "and `mica mcp --root` names a project"
        )
    return directory


def first_directory(answer: object) -> Path | None:
    """The first root that is a directory of this machine; None when there is none."""
    roots = answer.get("roots") if isinstance(answer, dict) else None
    for root in roots if isinstance(roots, list) else ():
        uri = root.get("uri") if isinstance(root, dict) else None
        if isinstance(uri, str) and uri.startswith("file://"):
            path = Path(unquote(urlsplit(uri).path))
            with suppress(OSError, ValueError):
                if path.is_dir():
                    return path
    return None

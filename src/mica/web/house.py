"""The memories that one server keeps open: one for each space, opened when it is first asked for."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit
from weakref import WeakValueDictionary

from mica.errors import InvalidInput, UnknownSpace
from mica.memory import Memory, Opening
from mica.memory import open as open_memory
from mica.settings import Settings
from mica.store.space import SUFFIX, file_of, is_address, space_of, spaces

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,79}")
OPEN_MAX = 200  # spaces at once: each has a thread and a few files, and a process may have about a thousand


class House:
    """Opens and keeps the memories of spaces; whoever made it closes it.

    A space is asked for by its name: of `mica spaces` where spaces are files, of the database where they are rows. The
    one that the server was started for needs no name.
    """

    def __init__(
        self,
        target: Path | str,
        *,
        settings: Settings,
        opening: Callable[..., Opening] = open_memory,
        open_max: int = OPEN_MAX,
    ) -> None:
        self.settings = settings
        self._target = target
        self._opening = opening
        self._open_max = open_max
        self._open: dict[str, Memory] = {}
        # Only while somebody waits: names of spaces that are not there may be asked for without end.
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self.is_closed = False

    @property
    def default(self) -> str:
        """The name of the space that is meant when none is named."""
        if is_address(self._target):
            named = dict(parse_qsl(urlsplit(str(self._target)).query)).get("space")
            return named or space_of(Path.cwd(), home=self.settings.home).name
        return Path(self._target).name.removesuffix(SUFFIX)

    @property
    def opened(self) -> dict[str, Memory]:
        """The memories that are open now, by the names of their spaces."""
        return dict(self._open)

    def spaces(self) -> list[str]:
        """The names of the spaces that can be asked for, the server's own first. Of a database: those that are open."""
        found = [self.default, *self._open]
        if not is_address(self._target):
            found += [file.name.removesuffix(SUFFIX) for file in spaces(self.settings.home)]
        return list(dict.fromkeys(found))

    async def memory(self, space: str | None = None, *, make: bool = False) -> Memory:
        """The memory of a space, the server's own unless one is named.

        Raises UnknownSpace when there is none, unless it is to be made.
        """
        name = self.default if space is None else space
        async with self._locks.setdefault(name, asyncio.Lock()):
            if self.is_closed:
                raise InvalidInput("this server is stopping; ask again when it is back")
            if name not in self._open:
                if len(self._open) >= self._open_max:
                    raise InvalidInput(f"{self._open_max} spaces are open already; start another server for {name!r}")
                opened = await self._opening(
                    self._place(name, make=make), settings=self.settings, must_exist=not make and name != self.default
                )
                opened.is_ours = partial(self._is_tree, name)
                self._open[name] = opened
            return self._open[name]

    async def close(self) -> None:
        """Close every memory. What a store cannot take now stays on disk for the next who opens the space."""
        self.is_closed = True
        async with AsyncExitStack() as stack:
            for memory in self._open.values():
                stack.push_async_callback(memory.close)
            self._open.clear()

    def _is_tree(self, name: str, directory: Path) -> bool:
        """Whether a directory is the working tree of a space: by its name, or the one that the server was started in.

        Sessions say where they work, and whoever may write to a space can say so: files elsewhere are not theirs.
        """
        tree = space_of(directory, home=self.settings.home)
        started = space_of(Path.cwd(), home=self.settings.home)
        return tree.name == name or (name == self.default and tree.name == started.name)

    def _place(self, name: str, *, make: bool) -> Path | str:
        """Where a space is kept. A name is never taken as a path: one of those that are there, or a plain word."""
        if name == self.default:
            return self._target
        if not is_address(self._target):
            if make and not _NAME.fullmatch(name):
                raise InvalidInput(f"a space cannot be called {name[:100]!r}; use letters, digits, - and _, at most 80")
            if not make and name not in self.spaces():
                raise UnknownSpace(name)
            return file_of(name, home=self.settings.home)
        parts = urlsplit(str(self._target))
        rest = [pair for pair in parse_qsl(parts.query) if pair[0] != "space"]
        return urlunsplit(parts._replace(query=urlencode([*rest, ("space", name)])))

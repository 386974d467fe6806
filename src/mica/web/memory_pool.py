"""The memories that one server keeps open: one for each space, opened when it is asked for, closed when others need
its place."""

from __future__ import annotations

import asyncio
import logging
import re
from collections import Counter, OrderedDict
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit
from weakref import WeakValueDictionary

from mica.errors import InvalidInput, MicaError, UnknownSpace
from mica.memory import Memory, Opening
from mica.memory import open as open_memory
from mica.settings import Settings
from mica.store.space import SUFFIX, file_of, is_address, space_of, spaces
from mica.store.target import neighbours

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,79}")
OPEN_MAX = (
    64  # spaces at once: each has a thread and some files or connections, and a process may have about a thousand
)
STOPPING = "this server is stopping; ask again when it is back"
LOG = logging.getLogger("mica.web")


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
        self._open: OrderedDict[str, Memory] = OrderedDict()  # the one that was asked for last comes last
        self._used: Counter[str] = Counter()  # by how many each is used just now
        self._closing: dict[str, asyncio.Task[None]] = {}
        self._neighbours: list[str] = []  # the spaces of a database, when somebody asked last
        # Only while somebody waits: names of spaces that are not there may be asked for without end.
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self.leaving: list[Callable[[Memory], Awaitable[None]]] = []  # done with a memory before it is closed
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

    async def spaces(self) -> list[str]:
        """The names of the spaces that can be asked for, the server's own first."""
        if is_address(self._target):
            async with self.using() as memory:
                self._neighbours = await neighbours(memory.store)
        return self.known

    @property
    def known(self) -> list[str]:
        """The same without waiting: of a database, those that were there when somebody asked last."""
        found = [self.default, *self._open, *self._neighbours]
        if not is_address(self._target):
            found += [file.name.removesuffix(SUFFIX) for file in spaces(self.settings.home)]
        return list(dict.fromkeys(found))

    @asynccontextmanager
    async def using(self, space: str | None = None, *, make: bool = False) -> AsyncIterator[Memory]:
        """The memory of a space, which stays open meanwhile. Raises UnknownSpace."""
        name = self.default if space is None else space
        memory = await self.memory(name, make=make)
        self._used[name] += 1
        try:
            yield memory
        finally:
            self._used[name] -= 1

    async def memory(self, space: str | None = None, *, make: bool = False) -> Memory:
        """The memory of a space, the server's own unless one is named; open until others need its place.

        Raises UnknownSpace when there is none, unless it is to be made.
        """
        name = self.default if space is None else space
        async with self._locks.setdefault(name, asyncio.Lock()):
            if name in self._closing:
                await asyncio.wait([self._closing[name]])
            if self.is_closed:
                raise InvalidInput(STOPPING)
            if name not in self._open:
                await self._make_room(name)
                opened = await self._opening(
                    self._place(name, make=make), settings=self.settings, must_exist=not make and name != self.default
                )
                if self.is_closed:  # meanwhile: nobody else would close this one
                    await opened.close()
                    raise InvalidInput(STOPPING)
                opened.is_ours = partial(self._is_tree, name)
                self._open[name] = opened
            self._open.move_to_end(name)
            return self._open[name]

    async def _make_room(self, name: str) -> None:
        """Close the spaces that nobody uses and that were asked for longest ago, until there is a place."""
        while len(self._open) >= self._open_max:
            idle = next((each for each in self._open if not self._used[each] and each != self.default), None)
            if idle is None:
                raise InvalidInput(f"{self._open_max} spaces are in use already; start another server for {name!r}")
            self._closing[idle] = asyncio.create_task(self._leave(idle, self._open.pop(idle)), name="mica-leaving")
            await asyncio.wait([self._closing[idle]])

    async def _leave(self, name: str, memory: Memory) -> None:
        try:
            for leave in self.leaving:
                await leave(memory)
            await memory.close()
        except MicaError as error:
            LOG.warning("closing %s: %s", memory.location, error)
        finally:
            del self._closing[name]

    async def close(self) -> None:
        """Close every memory. What a store cannot take now stays on disk for the next who opens the space."""
        self.is_closed = True
        if self._closing:
            await asyncio.wait(self._closing.values())
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
            if not make and name not in self.known:
                raise UnknownSpace(name)
            return file_of(name, home=self.settings.home)
        parts = urlsplit(str(self._target))
        rest = [pair for pair in parse_qsl(parts.query) if pair[0] != "space"]
        return urlunsplit(parts._replace(query=urlencode([*rest, ("space", name)])))

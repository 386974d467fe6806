"""The `Memory` objects that a server has open, one for each space, and the choice of one for a request."""

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

from starlette.requests import HTTPConnection
from starlette.types import ASGIApp, Receive, Scope, Send

from mica.clients.spool import is_spooled
from mica.errors import AccessDenied, InvalidInput, MicaError, UnknownSpace
from mica.memory import Memory, open_on
from mica.settings import Settings
from mica.store.protocol import Store
from mica.store.space import SUFFIX, file_of, is_address, space_of, spaces
from mica.store.target import neighbours, open_store
from mica.web.access import TOKEN
from mica.web.tokens import AccessToken

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,79}")
OPEN_MAX = 64  # spaces: each has a thread and some files or connections, and a process may have about a thousand
STOPPING = "this server is stopping; try again when it is back"
LOG = logging.getLogger("mica.web")

_OPEN_STORE = partial(open_store, is_waiting=is_spooled)


class MemoryPool:
    """Opens memories at their first use. When too many are open, the least recently used one is closed.

    A space is identified by the name that `mica upkeep spaces` shows, or by its name in the database. The default is
    the server's own space.
    """

    def __init__(
        self,
        target: Path | str,
        *,
        settings: Settings,
        open_store: Callable[..., Awaitable[Store]] = _OPEN_STORE,
        open_memory: Callable[..., Awaitable[Memory]] = open_on,
        open_max: int = OPEN_MAX,
    ) -> None:
        self.settings = settings
        self._target = target
        self._open_store = open_store
        self._open_memory = open_memory
        self._stores: dict[str, Store] = {}  # of the memories that are open
        self._open_max = open_max
        self._open: OrderedDict[str, Memory] = OrderedDict()  # the most recently used one is last
        self._used: Counter[str] = Counter()  # the number of current users of each
        self._closing: dict[str, asyncio.Task[None]] = {}
        self._neighbours: list[str] = []  # the spaces of the database at the last listing
        # Weak, because requests may name any number of unknown spaces.
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self.leaving: list[Callable[[Memory], Awaitable[None]]] = []  # called before a memory is closed
        self.is_closed = False

    @property
    def default(self) -> str:
        """The name of the server's own space."""
        if is_address(self._target):
            named = dict(parse_qsl(urlsplit(str(self._target)).query)).get("space")
            return named or space_of(Path.cwd(), home=self.settings.home).name
        return Path(self._target).name.removesuffix(SUFFIX)

    @property
    def opened(self) -> dict[str, Memory]:
        """The memories that are open now, by the names of their spaces."""
        return dict(self._open)

    async def spaces(self) -> list[str]:
        """List the names of all spaces, the server's own first. For a database this runs a query."""
        if is_address(self._target):
            async with self.using():
                self._neighbours = await neighbours(self.store())
        return self.known

    @property
    def known(self) -> list[str]:
        """The names of all spaces. A database is not queried: its names are those of the last call of `spaces`."""
        names = [self.default, *self._open, *self._neighbours]
        if not is_address(self._target):
            names += [file.name.removesuffix(SUFFIX) for file in spaces(self.settings.home)]
        return list(dict.fromkeys(names))

    @asynccontextmanager
    async def using(self, space: str | None = None, *, make: bool = False) -> AsyncIterator[Memory]:
        """Yield the memory of a space, and keep it open during the block. Raises the errors of `memory`."""
        name = self.default if space is None else space
        memory = await self.memory(name, make=make)
        self._used[name] += 1
        try:
            yield memory
        finally:
            self._used[name] -= 1

    async def memory(self, space: str | None = None, *, make: bool = False) -> Memory:
        """Return the memory of a space, by default the server's own. It may be closed later, to make room for others.

        A space that does not exist is created if `make` is True or if it is the server's own. Otherwise UnknownSpace is
        raised. Raises InvalidInput if the pool is closed or full.
        """
        name = self.default if space is None else space
        async with self._locks.setdefault(name, asyncio.Lock()):
            if name in self._closing:
                await asyncio.wait([self._closing[name]])
            if self.is_closed:
                raise InvalidInput(STOPPING)
            if name not in self._open:
                await self._make_room(name)
                place, must_exist = self._place(name, make=make), not make and name != self.default
                store = await self._open_store(place, settings=self.settings, must_exist=must_exist)
                opened = await self._open_memory(
                    store, place, settings=self.settings, is_ours=partial(self._is_tree, name)
                )
                if self.is_closed:  # while it opened: close() has not seen this one
                    await opened.close()
                    raise InvalidInput(STOPPING)
                self._open[name], self._stores[name] = opened, store
            self._open.move_to_end(name)
            return self._open[name]

    def store(self, space: str | None = None) -> Store:
        """Return the store of a space, for other processes that use it over HTTP. The space must be open."""
        return self._stores[self.default if space is None else space]

    async def _make_room(self, name: str) -> None:
        """Close memories that are not in use, least recently used first, until `name` can be opened."""
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
            del self._closing[name], self._stores[name]

    async def close(self) -> None:
        """Close every memory. Events that a store cannot take now stay on disk until the space is opened again."""
        self.is_closed = True
        if self._closing:
            await asyncio.wait(self._closing.values())
        async with AsyncExitStack() as stack:
            for memory in self._open.values():
                stack.push_async_callback(memory.close)
            self._open.clear()

    def _is_tree(self, name: str, directory: Path) -> bool:
        """True if the server may read the files of `directory` for the space `name`.

        The directory must belong to the space or, for the server's own space, to the working tree in which the server
        was started. A client can report any directory as that of its session, so the report alone is not enough.
        """
        tree = space_of(directory, home=self.settings.home)
        started = space_of(Path.cwd(), home=self.settings.home)
        return tree.name == name or (name == self.default and tree.name == started.name)

    def _place(self, name: str, *, make: bool) -> Path | str:
        """Return the file or address of a space. A name is never used as a path.

        For a database, the name is not checked. For files, an unknown name raises UnknownSpace. With `make`, only a
        name that contains characters other than letters, digits, - and _ raises an error: InvalidInput.
        """
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


# -- The memory of a request --------------------------------------------------------------------------------------

USING = "mica.using"  # the key in a request's scope for the stack of spaces it uses


class RequestSpaces:
    """Middleware that keeps the spaces that a request uses open until the response is sent."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async with AsyncExitStack() as stack:
            scope[USING] = stack
            await self._app(scope, receive, send)


def pool_of(request: HTTPConnection) -> MemoryPool:
    pool = request.app.state.pool
    assert isinstance(pool, MemoryPool)
    return pool


def requested_space(request: HTTPConnection) -> str:
    """Return the space of a request: `?space=`, else the only one that its token opens, else the server's own.

    Raises AccessDenied if the token does not open that space, and InvalidInput if `?space=` occurs twice or is empty.
    """
    token = request.scope.get(TOKEN)
    assert isinstance(token, AccessToken)  # the guard lets nothing else reach a space
    pool = pool_of(request)
    named = request.query_params.getlist("space")
    if len(named) > 1 or "" in named:
        raise InvalidInput("name one space by ?space=, or none; /api/server/spaces lists them")
    space = named[0] if named else token.spaces[0] if len(token.spaces) == 1 else pool.default
    if not token.opens(space):
        raise AccessDenied(
            f"this token does not open the space {space!r}; `mica server token make --space` makes one that does"
        )
    return space


async def memory_of(request: HTTPConnection, *, make: bool = False) -> Memory:
    """Return the memory of a request's space. It stays open until the response is sent.

    Raises UnknownSpace and AccessDenied.
    """
    using: AsyncExitStack = request.scope[USING]
    return await using.enter_async_context(pool_of(request).using(requested_space(request), make=make))


def store_of(request: HTTPConnection) -> Store:
    """Return the store of a request's space. Call `memory_of` first, which opens it."""
    return pool_of(request).store(requested_space(request))


async def memory_at(scope: Scope) -> Memory:
    """Return the memory of a request's space, given the ASGI scope instead of a Request."""
    return await memory_of(HTTPConnection(scope))

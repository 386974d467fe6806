"""A real server on loopback, in a thread of this process, with any number of spaces."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path

import mica
from mica.settings import Settings
from mica.store.protocol import Store
from mica.store.reference.store import EphemeralStore
from mica.web.access import Access, Limits
from mica.web.app import application
from mica.web.memory_pool import MemoryPool
from mica.web.process import HttpServer, listen
from mica.web.tokens import TokenFile

STARTED_S = 30
PATIENT = Limits(requests_per_s=1e6, burst=1_000_000, refusals_per_s=1e6, refusals_burst=1_000_000, recheck_s=0.05)


class WebServer:
    """A running server; its token opens all spaces."""

    def __init__(self, base: str, token: str, *, stop: Callable[[], object]) -> None:
        self.base = base
        self.token = token
        self.stop = stop
        self._names = iter(range(1, 1_000_000))

    def address(self, space: str | None = None) -> str:
        """The address of a space with the token; a new space by default."""
        space = space or f"space-{next(self._names)}"
        return f"{self.base.replace('://', f'://:{self.token}@')}/?space={space}"


async def _in_memory(_: Path | str, *, settings: Settings, must_exist: bool) -> Store:
    return EphemeralStore()


@contextmanager
def port_held() -> Iterator[int]:
    """A port reserved for servers that start and stop. While none runs, it refuses connections."""
    with socket.socket() as holder:
        holder.setsockopt(
            socket.SOL_SOCKET, socket.SO_REUSEADDR, 1
        )  # as our servers do, so that they can share the port
        holder.bind(("127.0.0.1", 0))
        yield holder.getsockname()[1]


@contextmanager
def web_server_at(
    folder: Path,
    *,
    port: int = 0,
    token: str | None = None,
    open_store: Callable[..., Awaitable[Store]] = _in_memory,
    limits: Limits = PATIENT,
    open_max: int = 1_000_000,
) -> Iterator[WebServer]:
    """Run a server within the block; its spaces are in memory by default.

    `port` and `token` restart an earlier server.
    """
    settings = mica.load_settings({"HOME": str(folder), "MICA_SEMANTIC": "off"})
    listening = listen("127.0.0.1", port, home=settings.home)
    port = listening.getsockname()[1]
    tokens = TokenFile(settings.home)
    token = token or tokens.make("tests")[0]
    stop: list[Callable[[], object]] = []
    is_up = threading.Event()

    async def serve() -> None:
        pool = MemoryPool(folder / "shop.db", settings=settings, open_store=open_store, open_max=open_max)
        server = HttpServer(application(pool, access=Access(tokens, port=port, limits=limits)))
        # May be called twice, unlike `server.stop`, which then forces an exit.
        stop.append(partial(asyncio.get_running_loop().call_soon_threadsafe, setattr, server, "should_exit", True))
        is_up.set()
        await server.serve([listening])

    thread = threading.Thread(target=asyncio.run, args=(serve(),), name="served-for-tests", daemon=True)
    thread.start()
    assert is_up.wait(STARTED_S)
    try:
        yield WebServer(f"http://127.0.0.1:{port}", token, stop=stop[0])
    finally:
        with suppress(RuntimeError):  # already stopped
            stop[0]()
        thread.join(STARTED_S)
        listening.close()

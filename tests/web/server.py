"""A real server on loopback, in a thread of this process, with as many spaces as are asked for."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path

import mica
from mica.memory import Opening
from mica.settings import Settings
from mica.web.access import Access, Limits
from mica.web.app import application
from mica.web.memory_pool import House
from mica.web.process import Serving, bound
from mica.web.tokens import Tokens

STARTED_S = 30
PATIENT = Limits(requests_per_s=1e6, burst=1_000_000, refusals_per_s=1e6, refusals_burst=1_000_000, known_s=0.05)


class WebServer:
    """Where it is. `address` names a space of it with a token that opens all."""

    def __init__(self, base: str, token: str, *, stop: Callable[[], object]) -> None:
        self.base = base
        self.token = token
        self.stop = stop
        self._names = iter(range(1, 1_000_000))

    def address(self, space: str | None = None) -> str:
        """The address of a space, a new one unless it is named."""
        space = space or f"space-{next(self._names)}"
        return f"{self.base.replace('://', f'://:{self.token}@')}/?space={space}"


def _in_memory(_: Path | str, *, settings: Settings, must_exist: bool) -> Opening:
    return mica.open(":memory:", settings=settings)


@contextmanager
def port_held() -> Iterator[int]:
    """A port for servers that come and go: no other process is given it meanwhile, and without one it refuses."""
    with socket.socket() as holder:
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as our servers do, so that they may share it
        holder.bind(("127.0.0.1", 0))
        yield holder.getsockname()[1]


@contextmanager
def web_server_at(
    folder: Path,
    *,
    port: int = 0,
    token: str | None = None,
    opening: Callable[..., Opening] = _in_memory,
    limits: Limits = PATIENT,
    open_max: int = 1_000_000,
) -> Iterator[WebServer]:
    """Start a server, whose spaces are in memory unless `opening` says otherwise, and stop it.

    At a port and with a token that it had before, if they are given.
    """
    settings = mica.load_settings({"HOME": str(folder), "MICA_SEMANTIC": "off"})
    listening = bound("127.0.0.1", port, home=settings.home)
    port = listening.getsockname()[1]
    tokens = Tokens(settings.home)
    token = token or tokens.make("tests")[0]
    stop: list[Callable[[], object]] = []
    is_up = threading.Event()

    async def serve() -> None:
        house = House(folder / "shop.db", settings=settings, opening=opening, open_max=open_max)
        server = Serving(application(house, access=Access(tokens, port=port, limits=limits)))
        # Asked twice it is still an ordinary stop, unlike `server.stop`.
        stop.append(partial(asyncio.get_running_loop().call_soon_threadsafe, setattr, server, "should_exit", True))
        is_up.set()
        await server.serve([listening])

    thread = threading.Thread(target=asyncio.run, args=(serve(),), name="served-for-tests", daemon=True)
    thread.start()
    assert is_up.wait(STARTED_S)
    try:
        yield WebServer(f"http://127.0.0.1:{port}", token, stop=stop[0])
    finally:
        with suppress(RuntimeError):  # stopped already
            stop[0]()
        thread.join(STARTED_S)
        listening.close()

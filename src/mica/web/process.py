"""The process around the application: one socket, one note that says where it is, and an end that leaves nothing."""

from __future__ import annotations

import asyncio
import errno
import fcntl
import os
import signal
import socket
from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import TextIO

import uvicorn
from starlette.applications import Starlette

from mica.errors import InvalidInput, MicaError
from mica.store.remote.servers import notes
from mica.store.space import is_address
from mica.web.memory_pool import House
from mica.web.slow_clients import PatientProtocol
from mica.web.tail import Tails

GRACE_S = 3  # what requests may take to end when the server stops
CONNECTIONS_MAX = 4_000  # at once: each has a file and some 50 kB
HEADERS_BYTES_MAX = 2**19  # of one request: a query of ten thousand characters, each written as %XX three times
KEEP_ALIVE_S = 30  # that an idle connection is kept
MESSAGE_BYTES_MAX = 2**20  # of a WebSocket: what is asked there is small
TICK_S = 60.0  # how often the server's clock looks for what is due


def bound(host: str, port: int, *, home: Path) -> socket.socket:
    """A socket of this address. Raises InvalidInput with the next step when it cannot be had."""
    try:
        family, kind, protocol, _, where = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    except (OSError, OverflowError) as error:
        raise InvalidInput(f"cannot serve at {host!r}: {error}; give an address of this machine") from error
    opened = socket.socket(family, kind, protocol)
    opened.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        opened.bind(where)
        opened.listen(2_048)
    except OSError as error:
        opened.close()
        if error.errno == errno.EADDRNOTAVAIL:
            raise InvalidInput(
                f"cannot serve at {host!r}: it is not an address of this machine; give another --host"
            ) from error
        if error.errno != errno.EADDRINUSE:
            raise InvalidInput(f"cannot serve at {host}:{port}: {error.strerror}; try another --port") from error
        ours = next((note for note in notes(home) if note.address.endswith(f":{port}")), None)
        if ours is not None:
            raise InvalidInput(f"mica serves at {ours.address} already; `mica open` shows it") from error
        other = port + 1 if port < 65_535 else 0
        raise InvalidInput(
            f"port {port} is taken by another program; `mica up --port {other}` takes another"
        ) from error
    return opened


@contextmanager
def alone(target: Path | str, *, address: str) -> Iterator[None]:
    """Be the only server of a file meanwhile. Raises InvalidInput naming the other. Databases are shared by claims."""
    if is_address(target) or str(target) == ":memory:":
        yield
        return
    path = Path(target).with_suffix(".serving")
    path.parent.mkdir(parents=True, exist_ok=True)
    with _locked(path, target) as lock:
        lock.truncate(0)
        lock.write(address)
        lock.flush()
        try:
            yield
        finally:
            path.unlink(missing_ok=True)  # while it is locked: who waits for it finds out, and makes another


def _locked(path: Path, target: Path | str) -> TextIO:
    """The file at this path, locked by us. Raises InvalidInput naming who has locked it."""
    while True:
        lock = path.open("a+", encoding="utf-8")
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            with suppress(FileNotFoundError):
                if path.stat().st_ino == os.fstat(lock.fileno()).st_ino:
                    return lock
            lock.close()  # who had it has ended meanwhile, and taken it away: it locks nothing any more
        except BlockingIOError as error:
            lock.seek(0)
            told = lock.read() or "another address"
            lock.close()
            raise InvalidInput(f"{target} is served already, at {told}; `mica open` shows it") from error


class Stopping:
    """SIGINT and SIGTERM, from entering on: whoever serves is told of them, also of those that came before it began."""

    def __init__(self) -> None:
        self._asked = 0
        self._stop: Callable[[], None] | None = None
        self._stack = ExitStack()

    def __enter__(self) -> Stopping:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self._ask)
            self._stack.callback(loop.remove_signal_handler, number)
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def _ask(self) -> None:
        self._asked += 1
        if self._stop is not None:
            self._stop()

    def tell(self, stop: Callable[[], None]) -> None:
        """Call `stop` for every signal."""
        self._stop = stop
        for _ in range(self._asked):
            stop()


async def run(
    app: Starlette,
    listening: socket.socket,
    *,
    stopping: Stopping,
    during: Callable[[], Awaitable[None]],
    leaving: Callable[[], Awaitable[None]] | None = None,
) -> None:
    """Serve until a signal comes, and do `during` meanwhile. What it raises ends the server, and is raised.

    `leaving` is done when it stops, before anybody is waited for: it ends what would go on for ever.
    """

    async def leave() -> None:
        work.cancel()
        await asyncio.wait([work])  # before the spaces are closed: nobody waits for a store that is gone
        if leaving is not None:
            await leaving()

    server = Serving(app, leaving=leave)
    stopping.tell(server.stop)
    async with asyncio.TaskGroup() as group:
        work = group.create_task(_meanwhile(during, server), name="mica-during")
        serving = group.create_task(server.serve([listening]), name="mica-server")
        await asyncio.wait([serving])
        work.cancel()


async def tend(house: House) -> None:
    """Do what is due in every open space, by the server's clock. Who shares a database claims it first."""
    while True:
        for name in house.opened:
            if name not in house.opened:
                continue  # others have taken its place meanwhile
            with suppress(MicaError):  # the store is away: at its next time
                async with house.using(name) as memory:
                    await memory.tick()
        await asyncio.sleep(TICK_S)


async def _meanwhile(during: Callable[[], Awaitable[None]], server: Serving) -> None:
    try:
        await during()
    except asyncio.CancelledError:
        raise  # the server has stopped
    except BaseException:
        server.stop()
        raise


class Serving(uvicorn.Server):
    """uvicorn with our limits, and one that leaves signals to us: a stop is an ordinary end."""

    def __init__(self, app: Starlette, *, leaving: Callable[[], Awaitable[None]] | None = None) -> None:
        self._leaving = leaving
        self._is_asked = False  # to stop
        self._tails: Tails = app.state.tails
        super().__init__(
            uvicorn.Config(
                app,
                http=PatientProtocol,
                log_config=None,
                access_log=False,  # it would write queries, and with them the keys of links
                server_header=False,
                proxy_headers=False,  # anybody can write them: a caller is who is connected
                h11_max_incomplete_event_size=HEADERS_BYTES_MAX,
                limit_concurrency=CONNECTIONS_MAX,
                timeout_keep_alive=KEEP_ALIVE_S,
                timeout_graceful_shutdown=GRACE_S,
                ws="websockets-sansio",
                ws_max_size=MESSAGE_BYTES_MAX,
            )
        )

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        await self._tails.close()  # who follows events would be waited for until the grace is over
        if self._leaving is not None:
            await self._leaving()
        await super().shutdown(sockets)

    async def main_loop(self) -> None:
        self.should_exit = self.should_exit or self._is_asked
        await super().main_loop()

    def stop(self) -> None:
        self.force_exit = self._is_asked  # asked twice, it does not wait for anybody
        self._is_asked = True
        if self.started:  # else it would leave without ending what has begun
            self.should_exit = True

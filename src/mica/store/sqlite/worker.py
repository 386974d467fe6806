"""The worker thread of an open SQLite file. All calls of a store except compression run on it, one after another."""

from __future__ import annotations

import asyncio
import logging
import random
import struct
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, TypeVar

import msgspec

from mica.errors import MicaError, StoreBusy, StoreDamaged, StoreUnavailable
from mica.store.sqlite.core import PATIENCE_S, SqliteCore

P = ParamSpec("P")
R = TypeVar("R")

LOG = logging.getLogger("mica")

BUSY_MS = 20  # how long the worker thread blocks for a lock; reads of this process wait behind it
RETRY_S = 0.005, 0.03  # random delay between tries, so that writers do not retry in step
WARN_S = 3  # a longer wait is logged, because most writers take only milliseconds


class SqliteWorker:
    """A thread that owns the connection to a file. Open it with `await SqliteWorker.open(path)`."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.core: SqliteCore | None = None  # None when the store is closed
        self.space = ""
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="mica-sqlite")
        self._background = ThreadPoolExecutor(max_workers=1, thread_name_prefix="mica-ageing")  # starts when needed

    @classmethod
    async def open(cls, path: Path) -> SqliteWorker:
        worker = cls(path)
        try:
            worker.core = await worker._run_with_retries(partial(SqliteCore, path, busy_ms=BUSY_MS))
            worker.space = await worker._run_with_retries(lambda: worker.core.space if worker.core else "")
        except BaseException:
            worker._thread.shutdown(wait=False)
            raise
        return worker

    async def run(self, function: Callable[Concatenate[SqliteCore, P], R], *args: P.args, **kwargs: P.kwargs) -> R:
        """Call a function with the open file on the worker thread; returns its result."""
        return await self._run_with_retries(partial(function, self.open_core(), *args, **kwargs))

    async def run_in_background(self, function: Callable[[SqliteCore], R]) -> R:
        """Call a function on a second thread with its own connection, so that readers do not wait for it.

        Returns the result of the function.
        """
        self.open_core()
        return await self._run_with_retries(partial(_with_own_core, self.path, function), self._background)

    def open_core(self) -> SqliteCore:
        """Return the open file. Raises StoreUnavailable after the store was closed."""
        if self.core is None:
            raise StoreUnavailable(f"the store {self.path} is closed; open it again")
        return self.core

    async def close(self) -> None:
        core, self.core = self.core, None
        if core is not None:
            # Queued calls end first. Shielded: a cancelled close must not leave the file open or the thread alive.
            await asyncio.shield(asyncio.get_running_loop().run_in_executor(None, self._end, core))

    def _end(self, core: SqliteCore) -> None:
        self._background.shutdown()
        self._thread.submit(core.close).result()
        self._thread.shutdown()

    async def _run_with_retries(self, call: Callable[[], R], thread: ThreadPoolExecutor | None = None) -> R:
        """Make a call on a thread and return its result; while another process writes, retry for up to PATIENCE_S."""
        loop = asyncio.get_running_loop()
        began, is_logged = loop.time(), False
        while True:
            try:
                return await loop.run_in_executor(thread or self._thread, self._translate, call)
            except StoreBusy as error:
                if not is_logged and loop.time() - began >= WARN_S:
                    is_logged = True
                    LOG.warning("%s is locked by another process; waiting for up to %s s", self.path, PATIENCE_S)
                if loop.time() - began > PATIENCE_S:
                    raise StoreBusy(f"{self.path} was busy for {PATIENCE_S} s; which process holds it?") from error
                await asyncio.sleep(random.uniform(*RETRY_S))

    def _translate(self, call: Callable[[], R]) -> R:
        """Make a call; errors that damaged rows cause while they are decoded become StoreDamaged."""
        try:
            return call()
        except MicaError:
            raise
        except StopIteration as error:  # a future cannot hold it: its caller would wait for ever
            raise StoreDamaged(str(self.path), "a row is missing") from error
        except (ValueError, LookupError, OverflowError, TypeError, struct.error, msgspec.MsgspecError) as error:
            if isinstance(error, OverflowError) and "int too" in str(error):
                raise  # an argument that SQLite cannot hold
            reason = f"a row cannot be decoded ({type(error).__name__}: {error})"
            raise StoreDamaged(str(self.path), reason) from error


class SqliteRole:
    """Base class of the roles of a SQLite store. Their methods run on the worker thread."""

    def __init__(self, worker: SqliteWorker) -> None:
        self._worker = worker


def threaded(
    function: Callable[Concatenate[SqliteCore, P], R],
) -> Callable[Concatenate[SqliteRole, P], Coroutine[Any, Any, R]]:
    """Turn a function of a `SqliteCore` into an async method of a role, which calls it on the worker thread."""

    async def run(role: SqliteRole, /, *args: P.args, **kwargs: P.kwargs) -> R:
        return await role._worker.run(function, *args, **kwargs)

    run.__doc__ = function.__doc__
    return run


def _with_own_core(path: Path, function: Callable[[SqliteCore], R]) -> R:
    core = SqliteCore(path, busy_ms=BUSY_MS)
    try:
        return function(core)
    finally:
        core.close()

"""A thread pool for blocking calls. Each source has only a few threads, so a hung source delays no other source.

The threads are daemons, so a thread that hangs in a driver does not keep the process from ending. If all threads of a
source are busy, its next call waits for one of them. But if the callers of all these threads have stopped waiting,
because their calls took too long, the next call fails at once, until one of the threads is free.
"""

from __future__ import annotations

import asyncio
import sys
import threading
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from contextvars import copy_context
from importlib import import_module
from queue import SimpleQueue
from typing import TypeVar

from mica.errors import SourceFailed

R = TypeVar("R")

IDLE_MAX = 8  # idle threads that wait for the next call; other threads end after their call
PER_SOURCE_MAX = 4  # concurrent calls to one source; they wait for disks and sockets, not for a core
Work = Callable[[], None]


class Pool:
    """A pool of threads for one event loop. Threads are started on demand, up to a limit for each source."""

    def __init__(self, *, idle_max: int = IDLE_MAX, per_source_max: int = PER_SOURCE_MAX) -> None:
        self._idle_max = idle_max
        self._per_source_max = per_source_max
        self._queue: SimpleQueue[Work | None] = SimpleQueue()
        self._threads = 0
        self._calls = 0  # calls that have a thread or need one
        self._turns: dict[str, asyncio.Semaphore] = {}
        self._abandoned: Counter[str] = Counter()  # for each source: running calls whose caller stopped waiting
        self._is_closed = False

    def hanging(self, source: str) -> int:
        """Return how many calls to a source are still running although their callers have stopped waiting."""
        return self._abandoned[source]

    async def run(self, source: str, work: Callable[[], R]) -> R:
        """Run `work` in a thread and return its result, or raise its error. `source` is the name of the source.

        If the caller is cancelled, it stops waiting at once, but `work` continues in its thread. Raises SourceFailed if
        too many such abandoned calls to this source are still running, or if the pool is closed.
        """
        if self._abandoned[source] >= self._per_source_max:
            raise SourceFailed(
                source, f"{self._abandoned[source]} calls have not returned; no other is made until one does"
            )
        turn = self._turns.setdefault(source, asyncio.Semaphore(self._per_source_max))
        await turn.acquire()
        if self._is_closed:
            turn.release()
            raise SourceFailed(source, "it is closed; open the memory again")
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[R] = loop.create_future()
        here = copy_context()
        is_abandoned = is_back = False

        def settle(result: R | None, error: BaseException | None) -> None:
            nonlocal is_back
            is_back = True
            self._calls -= 1
            self._abandoned[source] -= is_abandoned
            turn.release()
            self._fit()
            if answer.done():
                return
            if error is None:
                answer.set_result(result)  # type: ignore[arg-type]  # without an error, `result` is set
            else:  # a future does not accept a StopIteration
                answer.set_exception(RuntimeError("StopIteration") if isinstance(error, StopIteration) else error)

        def call() -> None:
            result: R | None = None
            failure: BaseException | None = None
            try:
                if not answer.cancelled():
                    result = here.run(work)
            except BaseException as error:  # noqa: BLE001 - handed to the caller
                failure = error
            with suppress(RuntimeError):  # the loop is closed, so no caller is waiting
                loop.call_soon_threadsafe(settle, result, failure)

        self._calls += 1
        self._queue.put(call)
        self._fit()
        try:
            return await answer
        except asyncio.CancelledError:
            if not is_back:
                is_abandoned = True
                self._abandoned[source] += 1
            raise

    def _fit(self) -> None:
        while self._threads < self._calls and not self._is_closed:
            self._threads += 1
            threading.Thread(target=self._work, name="mica-source", daemon=True).start()
        while self._threads > max(self._calls, self._idle_max):
            self._threads -= 1
            self._queue.put(None)

    def _work(self) -> None:
        while (work := self._queue.get()) is not None:
            work()
            del work  # free its references now, not with the next call

    def close(self) -> None:
        """End all idle threads. A hanging thread is left running."""
        self._is_closed = True
        while self._threads:
            self._threads -= 1
            self._queue.put(None)


async def imported(pool: Pool, source: str, module: str, *, extra: str) -> None:
    """Import, in a thread, a module that a source needs. Raises SourceFailed if the module is not installed.

    `source` is the name of the source, and `extra` is the optional dependency (`mica[extra]`) that installs the module.
    """
    if module in sys.modules:
        return
    try:
        await pool.run(source, lambda: import_module(module))
    except ModuleNotFoundError as error:
        raise SourceFailed(source, f"it needs {error.name}; install mica[{extra}]") from error

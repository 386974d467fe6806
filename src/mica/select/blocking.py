"""Threads for sources that block: few, and a hung one costs nothing but itself.

The threads are daemons: one that hangs in a driver for ever does not keep the process from ending. A source may hold
a few of them at once; one whose calls do not come back is told so instead of being given the threads of others.
"""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from contextvars import copy_context
from queue import SimpleQueue
from typing import TypeVar

from mica.errors import SourceFailed

R = TypeVar("R")

THREADS_MAX = 8  # of one pool; sources wait for disks and sockets, not for a core
PER_SOURCE_MAX = 4  # of those, so that one hung source leaves room for the others
Work = Callable[[], None]


class Pool:
    """A bounded number of threads, started when they are needed."""

    def __init__(self, threads_max: int = THREADS_MAX, *, per_source_max: int = PER_SOURCE_MAX) -> None:
        self._threads_max = threads_max
        self._per_source_max = per_source_max
        self._queue: SimpleQueue[Work | None] = SimpleQueue()
        self._threads: list[threading.Thread] = []
        self._running: Counter[str] = Counter()  # calls of each source, those that nobody waits for among them
        self._lock = threading.Lock()
        self._is_closed = False

    async def run(self, source: str, work: Callable[[], R]) -> R:
        """What `work` returns, done in a thread; raises what it raises.

        Whoever is cancelled stops waiting at once; the call ends on its own. Raises SourceFailed when too many calls
        of this source have not come back.
        """
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[R] = loop.create_future()
        here = copy_context()

        def settle(result: R | None, error: BaseException | None) -> None:
            if not answer.done():
                if error is None:
                    answer.set_result(result)  # type: ignore[arg-type]  # None only beside an error
                else:
                    answer.set_exception(error)

        def call() -> None:
            result: R | None = None
            failure: BaseException | None = None
            try:
                if not answer.cancelled():
                    result = here.run(work)
            except BaseException as error:  # noqa: BLE001 - handed to whoever waits
                failure = error
            with self._lock:
                self._running[source] -= 1
            with suppress(RuntimeError):  # the loop is closed: nobody waits any more
                loop.call_soon_threadsafe(settle, result, failure)

        with self._lock:
            if self._is_closed:
                raise SourceFailed(source, "it is closed")
            if self._running[source] >= self._per_source_max:
                raise SourceFailed(source, f"{self._running[source]} calls have not come back; it is not asked again")
            self._running[source] += 1
            if len(self._threads) < min(self._threads_max, self._running.total()):
                self._start()
        self._queue.put(call)
        return await answer

    def _start(self) -> None:
        thread = threading.Thread(target=self._work, name="mica-source", daemon=True)
        self._threads.append(thread)
        thread.start()

    def _work(self) -> None:
        while (work := self._queue.get()) is not None:
            work()

    def close(self) -> None:
        """Let the threads end; one that hangs is left behind."""
        with self._lock:
            self._is_closed = True
            for _ in self._threads:
                self._queue.put(None)

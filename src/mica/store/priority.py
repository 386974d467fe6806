"""Give queries priority over background work.

A store does one thing at a time, and Python runs one thread at a time. Background work is therefore cut into small
steps, and waits between two steps while a query runs. A coroutine waits with `give_way`, a thread with `pause`.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import TypeAlias, TypeVar

T = TypeVar("T")

Pause: TypeAlias = Callable[[], None]  # called every few microseconds; returns when the work may continue

WAIT_S = 0.5  # the longest wait before one step: constant queries slow background work down but never stop it
PIECE_S = 0.02  # how long a thread works after such a wait before it waits again


class Priority:
    """Counts the queries that are running in this process, so that background work can wait for them."""

    def __init__(self, clock_s: Callable[[], float] = time.monotonic) -> None:
        self._clock_s = clock_s
        self._queries = 0
        self._idle = asyncio.Event()
        self._idle.set()
        self._idle_for_threads = threading.Event()
        self._idle_for_threads.set()
        self._works_until_s = 0.0  # threads that waited WAIT_S do not wait again before this time

    @property
    def is_busy(self) -> bool:
        """True while a query runs."""
        return self._queries > 0

    @contextmanager
    def query(self) -> Iterator[None]:
        """Make background work wait while the `with` block runs."""
        self._queries += 1
        self._idle.clear()
        self._idle_for_threads.clear()
        try:
            yield
        finally:
            self._queries -= 1
            if not self._queries:
                self._idle.set()
                self._idle_for_threads.set()

    def pause(self) -> None:
        """Block a background thread while queries run, for at most WAIT_S seconds. Returns at once if no query runs.

        After a wait of WAIT_S, all calls return at once for PIECE_S seconds, so that the work never stops.
        """
        if not self._queries or self._clock_s() < self._works_until_s:
            return
        if not self._idle_for_threads.wait(WAIT_S):
            self._works_until_s = self._clock_s() + PIECE_S

    async def give_way(self, *, wait_s: float = WAIT_S) -> None:
        """Yield to the event loop, then wait while queries run, for at most `wait_s` seconds."""
        await asyncio.sleep(0)
        with suppress(TimeoutError):
            async with asyncio.timeout(wait_s):
                await self._idle.wait()


async def never_give_way() -> None:
    """Return at once. Replaces `Priority.give_way` in a process without queries."""


def never_pause() -> None:
    """Return at once. Replaces `Priority.pause` in work that need not wait."""


def with_pauses(values: Iterable[T], pause: Pause) -> Iterator[T]:
    """Yield the same values, and call `pause` before each of them."""
    for value in values:
        pause()
        yield value


def observe_failure(task: asyncio.Future[T]) -> None:
    """Read the exception of a finished background task, so that asyncio does not log it as never retrieved."""
    if not task.cancelled():
        task.exception()

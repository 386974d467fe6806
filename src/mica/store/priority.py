"""Who goes first: whoever asks, before work that nobody waits for.

A store does one thing after the other, and Python runs one thread at a time. Work in the background is cut into small
pieces and gives way between two of them, as long as somebody asks; in a thread of its own, it pauses.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

WAIT_S = 0.5  # at most, before one piece of work: whoever asks without an end slows it down, and never stops it
PIECE_S = 0.02  # what a thread that has waited so long does before it waits again


class Turns:
    """Counts who asks just now in this process."""

    def __init__(self, clock_s: Callable[[], float] = time.monotonic) -> None:
        self._clock_s = clock_s
        self._asking = 0
        self._quiet = asyncio.Event()
        self._quiet.set()
        self._quiet_for_threads = threading.Event()
        self._quiet_for_threads.set()
        self._goes_on_until_s = 0.0  # threads that have waited long enough

    @property
    def is_asked(self) -> bool:
        """Whether somebody waits for an answer."""
        return self._asking > 0

    @contextmanager
    def asking(self) -> Iterator[None]:
        """Somebody waits for what is done here."""
        self._asking += 1
        self._quiet.clear()
        self._quiet_for_threads.clear()
        try:
            yield
        finally:
            self._asking -= 1
            if not self._asking:
                self._quiet.set()
                self._quiet_for_threads.set()

    def pause(self) -> None:
        """In a thread of work: return when nobody asks, or after some time. Costs nothing while nobody does."""
        if not self._asking or self._clock_s() < self._goes_on_until_s:
            return
        if not self._quiet_for_threads.wait(WAIT_S):
            self._goes_on_until_s = self._clock_s() + PIECE_S

    async def give_way(self, *, wait_s: float = WAIT_S) -> None:
        """Let others go on, and return when nobody asks any more, or after this time."""
        await asyncio.sleep(0)
        with suppress(TimeoutError):
            async with asyncio.timeout(wait_s):
                await self._quiet.wait()


async def nobody_asks() -> None:
    """For work in a process where nothing else is done: it gives way to nobody."""

"""Ageing, which compresses old events: on request, or while a long-running process is idle."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from datetime import timedelta

from mica.errors import StoreError
from mica.model.event import Clock
from mica.store.protocol import BLOCK_EVENTS, StoreFiles

HOT = timedelta(hours=24)  # younger events stay uncompressed: they are read most, and their parents may still arrive
PAUSE_S = 0.05  # between two steps, so that a waiting writer gets its turn
QUIET_S = 30.0  # without an append before ageing begins; a command is over by then
EVERY_S = 3_600.0  # between two runs in one process: a day's events are not urgent


async def age(
    files: StoreFiles,
    *,
    now: Clock,
    older_than: timedelta = HOT,
    at_least: int = 1,
    on_progress: Callable[[int], None] = lambda count: None,
) -> int:
    """Compress events older than `older_than`, in small steps with pauses; returns how many were compressed.

    It stops as soon as fewer than `at_least` of them are left.
    """
    before, total = now() - older_than, 0
    while count := await files.age(before, at_least=at_least):
        total += count
        on_progress(total)
        await asyncio.sleep(PAUSE_S)
    return total


class Ageing:
    """A background task that compresses old events when nothing was stored for a while and enough events are old."""

    def __init__(
        self, files: StoreFiles, *, now: Clock, sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    ) -> None:
        self._files = files
        self._now = now
        self._sleep = sleep
        self._is_quiet = True
        self._task = asyncio.get_running_loop().create_task(self._keep_ageing(), name="mica-ageing")

    def disturb(self) -> None:
        """Note that something was stored, so that the wait for a quiet period begins again."""
        self._is_quiet = False

    async def close(self) -> None:
        """Stop the background task. A step in progress is one transaction: it is completed or has no effect."""
        self._task.cancel()
        await asyncio.wait([self._task])

    async def _keep_ageing(self) -> None:
        while True:
            self._is_quiet = True
            await self._sleep(QUIET_S)
            if not self._is_quiet:
                continue
            with suppress(StoreError):  # nothing is lost: the next hour tries again
                await age(self._files, now=self._now, at_least=BLOCK_EVENTS)
            await self._sleep(EVERY_S)

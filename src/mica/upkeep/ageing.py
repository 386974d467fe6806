"""When events age: on demand, and by itself in a process that stays, while nothing else happens."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from datetime import timedelta

from mica.errors import StoreError
from mica.model.event import Clock
from mica.store.protocol import Store
from mica.store.sqlite.block_format import BLOCK_EVENTS

HOT = timedelta(hours=24)  # younger events stay as they are: they are asked for most, and their parents may still come
BREATH_S = 0.05  # between two steps: whoever waits to write tries at least once meanwhile
QUIET_S = 30.0  # how long nothing is stored before ageing begins; a command is over by then
EVERY_S = 3_600.0  # at most so often in one process: a day's events need no hurry


async def age(
    store: Store,
    *,
    now: Clock,
    older_than: timedelta = HOT,
    at_least: int = 1,
    on_progress: Callable[[int], None] = lambda count: None,
) -> int:
    """Age everything that is due, step by step, and let others work in between; how many events it was."""
    before, total = now() - older_than, 0
    while count := await store.age(before, at_least=at_least):
        total += count
        on_progress(total)
        await asyncio.sleep(BREATH_S)
    return total


class Ageing:
    """Ages what is due in the background, when there is enough for a block and nothing was stored for a while."""

    def __init__(self, store: Store, *, now: Clock, sleep: Callable[[float], Awaitable[None]] = asyncio.sleep) -> None:
        self._store = store
        self._now = now
        self._sleep = sleep
        self._is_quiet = True
        self._task = asyncio.get_running_loop().create_task(self._keep_ageing(), name="mica-ageing")

    def disturb(self) -> None:
        """Something was stored: wait for a quiet while again."""
        self._is_quiet = False

    async def close(self) -> None:
        """End. A step that has begun is one transaction: it is whole or was never there."""
        self._task.cancel()
        await asyncio.wait([self._task])

    async def _keep_ageing(self) -> None:
        while True:
            self._is_quiet = True
            await self._sleep(QUIET_S)
            if not self._is_quiet:
                continue
            with suppress(StoreError):  # nothing is lost and nobody waits for it: the next hour tries again
                await age(self._store, now=self._now, at_least=BLOCK_EVENTS)
            await self._sleep(EVERY_S)

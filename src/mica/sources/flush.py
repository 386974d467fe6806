"""Storing waiting events before a source of the log reads them."""

from __future__ import annotations

import asyncio

from mica.events.hot import Hot
from mica.events.log import Log
from mica.model.event import EventQuery

COLLECT_S = 0.1  # between two runs of the listeners before a read, which list the folder of spools
STATED = ("mark", "mark.*", "crystal.*", "judgment.*", "teaching.*", "trail.*")  # events that a source may state


class SourceFlush:
    """Stores waiting events if a source may state one of them; records of gathers wait for the background."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self._collected_s = float("-inf")

    async def __call__(self) -> None:
        now_s = asyncio.get_running_loop().time()
        if now_s - self._collected_s >= COLLECT_S:
            self._collected_s = now_s
            await self._log.collect()
        if Hot(self._log.unfolded).events(EventQuery(names=STATED, limit=1)):
            await self._log.flush()

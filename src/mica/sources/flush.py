"""Stores buffered events before a source reads them from the log."""

from __future__ import annotations

import asyncio

from mica.events.hot import Hot
from mica.events.log import Log
from mica.model.event import EventQuery

COLLECT_S = 0.1  # at least this long between two calls of `collect`, which lists the spool folder
STATED = ("mark", "mark.*", "crystal.*", "judgment.*", "teaching.*", "trail.*")  # events that sources read


class SourceFlush:
    """A function to await before one of mica's own sources reads the log.

    If a buffered event is of a kind that sources read, such as a mark, all buffered events are stored. Events of other
    kinds can wait for the background writer.
    """

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

"""The way from the journal into the store: in the background, and at once for whoever reads."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from pathlib import Path

from mica.errors import DuplicateEvent, InvalidEvent, StoreError
from mica.model import REFUSED, Appended, Event, make_event
from mica.observe.journal import Journal, has_others, leftovers

BATCH_MAX = 1_000  # one transaction: a full sync is cheap beside it, and readers wait for milliseconds
GATHER_S = 0.02  # the background lets events gather for so long: one transaction for all of them
RETRY_S = 1.0  # how long the background waits before it tries a store again that could not be reached


def _kept(event: Event, reason: str) -> Event:
    """What is stored in place of an event that cannot be: its name, its data, and why. Nothing is lost."""
    told: dict[str, object] = {"name": event.name, "text": reason, "data": event.data}
    return make_event(event.id, REFUSED, told, at=event.at, context=event.context, error=True)


class Folding:
    """Brings what waits in a journal, and what dead writers left beside it, into one append.

    An event leaves the journal only after the append that holds it has returned; a cancelled or failed append is
    repeated, which the store counts as repeated, never as new.
    """

    def __init__(self, append: Callable[[Sequence[Event]], Awaitable[Appended]], folder: Path | None) -> None:
        self._append = append
        self._folder = folder
        self._journal: Journal | None = None
        self._refused: list[Exception] = []
        self._folding = asyncio.Lock()
        self._wanted = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._task = self._loop.create_task(self._keep_folding(), name="mica-folding")
        self.damaged: list[str] = []  # what could not be read of dead writers' segments

    def begin(self, journal: Journal) -> None:
        self._journal = journal
        self._wanted.set()  # there may be leftovers

    def wake(self) -> None:
        """Something waits that did not before. Any thread may call."""
        self._loop.call_soon_threadsafe(self._wanted.set)

    async def flush(self) -> None:
        """Store everything that was emitted before. Raises what the store raised, or the reason of a refused event."""
        async with self._folding:
            await self._adopt()
            if self._journal is not None:
                await self._fold(self._journal.batches(BATCH_MAX))
        if self._refused:
            raise self._refused.pop(0)

    async def clear(self) -> None:
        """Store everything that was emitted before, and leave no copy of it in the segments of this process."""
        if self._journal is not None:
            self._journal.leave()
        await self.flush()

    async def close(self) -> None:
        """End. What the store does not take now stays on disk for the next who opens the space."""
        self._task.cancel()
        await asyncio.wait([self._task])

    async def _adopt(self) -> None:
        """Fold what writers have left that are gone. Looking costs one listing of a folder, so every flush looks."""
        own = self._journal.writer if self._journal is not None else ""
        if self._folder is None or not has_others(self._folder, own=own):
            return
        found = leftovers(self._folder)
        while (leftover := await asyncio.to_thread(next, found, None)) is not None:  # reads whole segments
            try:
                await self._fold(leftover.batches(BATCH_MAX))
            finally:
                self.damaged += [problem for problem in leftover.damaged if problem not in self.damaged]
                leftover.close()

    async def _fold(self, batches: Iterable[list[Event]]) -> None:
        for batch in batches:
            try:
                await self._append(batch)
            except (DuplicateEvent, InvalidEvent):
                for event in batch:
                    await self._append_one(event)

    async def _append_one(self, event: Event) -> None:
        try:
            await self._append([event])
        except InvalidEvent as error:
            self._refused.append(error)  # told by the next flush; the events behind it must not wait for it
            await self._append([_kept(event, str(error))])
        except DuplicateEvent as error:
            self._refused.append(error)

    async def _keep_folding(self) -> None:
        while True:
            await self._wanted.wait()
            self._wanted.clear()
            await asyncio.sleep(GATHER_S)
            try:
                await self.flush()
            except StoreError:
                await asyncio.sleep(RETRY_S)
                self._wanted.set()
            except Exception as error:  # noqa: BLE001 - nobody awaited this flush: kept for one who does
                self._refused.insert(0, error)

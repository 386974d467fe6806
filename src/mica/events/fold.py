"""The way from the journal into the store: in the background, and at once for whoever reads."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from mica.errors import DuplicateEvent, InvalidEvent, StoreError
from mica.events.journal import Journal
from mica.events.leftovers import Leftover, has_others, leftovers
from mica.events.segment import Stretch
from mica.model.event import REFUSED, Appended, Event, make_event

LOG = logging.getLogger("mica")

BATCH_MAX = 1_000  # one transaction: a full sync is cheap beside it, and readers wait for milliseconds
GATHER_S = 0.02  # the background lets events gather for so long: one transaction for all of them
RETRY_S = 1.0  # how long the background waits before it tries a store again that could not be reached
REST_S = 2.0  # who has just opened a space reads it first; then what dead writers left is stored
BURST_EVENTS = 200  # in GATHER_S, 10,000 a second: storing them would take a sixth of a core from who emits them
LULL_S = 0.5  # how long the background waits for the end of a burst; who reads from another process sees it then
BUSY_SHARE = 0.03  # of the time, for the background, while events come faster than it stores them
HURRY_BYTES = 2**30  # what may wait meanwhile; beyond that the background takes all the time it needs
HELD_MAX = 64  # segments of dead writers at once, two open files each: a process may have 256 on some systems
CLOSE_S = 1.0  # how long closing goes on with what dead writers have left; the next who opens the space does the rest


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
        self._left: list[Leftover] = []  # claimed, not all of it stored
        self._refused: list[Exception] = []
        self._claiming: asyncio.Task[bool] | None = None
        self._steps: set[asyncio.Task[bool]] = set()
        self._folding = asyncio.Lock()
        self._is_refused = False  # the store did not take the last batch
        self._wanted = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._task = self._loop.create_task(self._keep_folding(), name="mica-folding")
        self.damaged: list[str] = []  # what could not be read of dead writers' segments

    @property
    def is_here(self) -> bool:
        """Whether the loop that runs is the one that this folds in."""
        return asyncio.get_running_loop() is self._loop

    @property
    def has_ended(self) -> bool:
        """Whether that loop is closed: nobody folds any more."""
        return self._loop.is_closed()

    def begin(self, journal: Journal) -> None:
        self._journal = journal
        self._wanted.set()  # there may be leftovers

    def wake(self) -> None:
        """Something waits that did not before. Any thread may call."""
        with suppress(RuntimeError):  # the loop is closed: the next who opens the space stores it
            self._loop.call_soon_threadsafe(self._wanted.set)

    async def flush(self) -> None:
        """Store everything that was emitted before. Raises what the store raised, or the reason of a refused event."""
        await self._claim()
        for leftover in list(self._left):
            await self._fold(leftover)
        await self._fold(self._journal)
        if self._refused:
            raise self._refused.pop(0)

    async def clear(self) -> None:
        """Store everything that was emitted before, and leave no copy of it in the segments of this process."""
        if self._journal is not None:
            self._journal.leave()
        await self.flush()
        if self._journal is not None:
            await asyncio.to_thread(self._journal.sweep)

    @asynccontextmanager
    async def paused(self) -> AsyncIterator[list[Stretch]]:
        """What is not in the store yet, while nothing of it is being stored."""
        await self._claim()  # which may have to store some of it
        async with self._folding:
            yield self.unfolded

    async def waiting(self) -> list[Stretch]:
        """What is not in the store yet, of this process and of those that are gone."""
        await self._claim()
        return self.unfolded

    @property
    def unfolded(self) -> list[Stretch]:
        """The same, as far as it is known by now."""
        own = self._journal.unfolded() if self._journal is not None else []
        return [stretch for leftover in self._left for stretch in leftover.unfolded()] + own

    async def close(self) -> None:
        """End. What the store does not take now stays on disk for the next who opens the space."""
        self._task.cancel()
        await asyncio.wait([self._task, *([self._claiming] if self._claiming is not None else [])])
        try:
            # A store that has just had all the patience there is gets no second helping of it.
            async with asyncio.timeout(CLOSE_S if self._is_refused else None):
                await self._fold(self._journal)
            async with asyncio.timeout(CLOSE_S):
                await self.flush()
        except (StoreError, TimeoutError):
            pass  # nothing is lost: the segments stay
        finally:
            for step in list(self._steps):
                step.cancel()
                await asyncio.wait([step])
            if self._claiming is not None:  # the last flush may have begun another
                await asyncio.wait([self._claiming])
            for leftover in list(self._left):
                self._release(leftover)

    async def _claim(self) -> None:
        """Take what writers have left that are gone. Looking costs one listing of a folder, so every flush looks.

        Whoever is cancelled meanwhile does not end it: what is claimed must be known, or nobody could read it. Where
        there is more than may be held open, what is held is stored first.
        """
        met: set[str] = set()  # a folder that cannot be emptied is not met again and again
        while True:
            if self._claiming is None or self._claiming.done():
                own = self._journal.writer if self._journal is not None else ""
                known = {own, *met, *(each.writer for each in self._left)}
                if self._folder is None or not has_others(self._folder, known=known):
                    return
                claiming = self._claim_some(self._folder, known)
                self._claiming = self._loop.create_task(claiming, name="mica-claiming")
            if not await asyncio.shield(self._claiming):
                return
            met.update(each.writer for each in self._left)
            for leftover in self._left[:1]:
                await self._fold(leftover)

    async def _claim_some(self, folder: Path, known: Collection[str]) -> bool:
        """Claim what there is beside the known; True when there may be more than can be held."""
        found = leftovers(folder, known=known)
        while sum(leftover.held for leftover in self._left) < HELD_MAX:
            if (leftover := await asyncio.to_thread(next, found, None)) is None:
                return False
            self._left.append(leftover)
            self._tell_damage(leftover)
        return True

    def _tell_damage(self, leftover: Leftover) -> None:
        """Say what of a dead writer's events nobody can read, once: an answer without them looks whole."""
        for problem in leftover.damaged:
            if problem not in self.damaged:
                self.damaged.append(problem)
                LOG.warning("%s", problem)

    def _release(self, leftover: Leftover) -> None:
        self._tell_damage(leftover)
        if leftover in self._left:
            self._left.remove(leftover)
            leftover.close()

    async def _fold(self, waiting: Journal | Leftover | None) -> None:
        while waiting is not None and await self._fold_some(waiting):
            pass

    async def _fold_some(self, waiting: Journal | Leftover) -> bool:
        """Store the next batch; False when there is none. A step that has begun is ended, whoever is cancelled."""
        step = self._loop.create_task(self._step(waiting), name="mica-fold")
        self._steps.add(step)
        step.add_done_callback(self._ended)
        return await asyncio.shield(step)

    def _ended(self, step: asyncio.Task[bool]) -> None:
        self._steps.discard(step)
        if not step.cancelled():
            step.exception()  # told to whoever waits; when nobody does, the batch is tried again by the next

    async def _step(self, waiting: Journal | Leftover) -> bool:
        async with self._folding:
            batch = waiting.batch(BATCH_MAX)
            if batch is None:
                if isinstance(waiting, Leftover):
                    self._release(waiting)
                return False
            try:
                if batch.events:
                    await self._append(batch.events)
            except (DuplicateEvent, InvalidEvent):
                for event in batch.events:
                    await self._append_one(event)
            except StoreError:
                self._is_refused = True
                raise
            self._is_refused = False
            waiting.stored(batch)
            return True

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
                await self._flush_calmly()
            except StoreError:
                await asyncio.sleep(RETRY_S)
                self._wanted.set()
            except Exception as error:  # noqa: BLE001 - nobody awaited this flush: kept for one who does
                self._refused.insert(0, error)

    async def _flush_calmly(self) -> None:
        """Flush, but leave most of the time to those who emit or read meanwhile."""
        await self._claim()
        if self._left:
            await asyncio.sleep(REST_S)
        while self._left:
            began = self._loop.time()
            await self._fold_some(self._left[0])
            await asyncio.sleep(self._loop.time() - began)
        await self._lull()
        while (journal := self._journal) is not None and journal.waiting > BATCH_MAX:
            began, before = self._loop.time(), journal.waiting
            await self._fold_some(journal)
            if journal.waiting > before and journal.size_bytes < HURRY_BYTES:
                await asyncio.sleep((self._loop.time() - began) / BUSY_SHARE)
        # One batch: what comes meanwhile gathers again, or a sync for every few events would stand in `durable`'s way.
        # After each there is another look: only one that finds nothing lets the next event wake the fold.
        if journal is not None and await self._fold_some(journal):
            self._wanted.set()

    async def _lull(self) -> None:
        """Wait until events no longer come in a burst. Most end soon, and then there is time to store them."""
        until = self._loop.time() + LULL_S
        while (journal := self._journal) is not None and (before := journal.waiting) > BATCH_MAX:
            if journal.size_bytes > HURRY_BYTES or self._loop.time() > until:
                break
            await asyncio.sleep(GATHER_S)
            if journal.waiting < before + BURST_EVENTS:
                break

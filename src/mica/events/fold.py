"""The fold: a background task that moves events from the journal (files) into the store.

A read may also move them, without waiting for the task.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import msgspec

from mica.errors import DuplicateEvent, InvalidEvent, StoreError
from mica.events.journal import Journal
from mica.events.leftovers import Leftover, has_others, leftovers
from mica.events.segment import Stretch
from mica.model.event import REFUSED, Appended, Event, EventId, event_id, make_event, sequence_named, writer_named

LOG = logging.getLogger("mica")

BATCH_MAX = 1_000  # events per transaction: large enough to amortize a sync; readers wait for milliseconds
GATHER_S = 0.02  # how long the background collects events for one transaction
RETRY_S = 1.0  # before the background retries a store that could not be reached
REST_S = 2.0  # a process that opens a space reads first; leftovers of dead writers are stored after that
BURST_EVENTS = 200  # within GATHER_S are a burst (10,000 a second); storing them at once would slow `emit` noticeably
LULL_S = 0.5  # how long the background waits for the end of a burst; other processes see the events after it
BUSY_SHARE = 0.03  # share of time for the background while events arrive faster than it stores them
HURRY_BYTES = 2**30  # bytes that may wait in the journal; beyond that the background runs at full speed
CLAIMED_MAX = 64  # claimed segments of dead writers, each with an open lock file; some systems allow 256 files
CLOSE_S = 1.0  # time for events of dead writers on close; the next process that opens the space stores the rest


def _refusal(event: Event, reason: str) -> Event:
    data: dict[str, object] = {"name": event.name, "text": reason, "data": event.data}
    return make_event(event.id, REFUSED, data, at=event.at, context=event.context, error=True)


def _moved_id(identifier: EventId) -> EventId:
    """Return the new id for an event whose id another event already has. The new id is the same at every attempt."""
    return event_id(writer_named("moved"), sequence_named(identifier))


def _moved(event: Event, ids: Mapping[EventId, EventId]) -> Event:
    """Return a copy of an event in which the ids of itself, its parent and its root are replaced as `ids` says."""
    parent = None if event.parent_id is None else ids.get(event.parent_id, event.parent_id)
    root = ids.get(event.root_id, event.root_id)
    return msgspec.structs.replace(event, id=ids.get(event.id, event.id), parent_id=parent, root_id=root)


def _notice(event: Event, moved: EventId) -> Event:
    """Return the event that reports that `event` was stored with another id."""
    text = f"its id {event.id} belongs to another event, so it was stored as {moved}; was a changed log imported?"
    data: dict[str, object] = {"name": event.name, "text": text, "id": event.id, "stored_as": moved}
    identifier = event_id(writer_named("moved"), sequence_named(f"notice {event.id}"))
    return make_event(identifier, REFUSED, data, at=event.at, context=event.context, error=True)


class JournalFold:
    """Stores the events of a journal, and of segments (files of events) that writers left when they died.

    An event leaves the journal only after its append has returned. A cancelled or failed append is tried again; the
    store recognizes events that it already has.
    """

    def __init__(
        self,
        append: Callable[[Sequence[Event]], Awaitable[Appended]],
        find: Callable[[Sequence[EventId]], Awaitable[list[Event]]],
        folder: Path | None,
    ) -> None:
        self._append = append
        self._find = find
        self._folder = folder
        self._journal: Journal | None = None
        self._leftovers: list[Leftover] = []  # claimed, not completely stored
        self._errors: list[Exception] = []
        self._claiming: asyncio.Task[bool] | None = None
        self._steps: set[asyncio.Task[bool]] = set()
        self._folding = asyncio.Lock()
        self._moved: dict[EventId, EventId] = {}  # ids that other events had, and the new ids of our events
        self._is_refused = False  # the store refused the last batch
        self._wakeup = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._task = self._loop.create_task(self._keep_folding(), name="mica-folding")
        self.damaged: list[str] = []  # descriptions of damaged segments

    @property
    def is_here(self) -> bool:
        """True if the caller runs in the event loop of this fold."""
        return asyncio.get_running_loop() is self._loop

    @property
    def has_ended(self) -> bool:
        """True if the event loop of this fold is closed."""
        return self._loop.is_closed()

    def begin(self, journal: Journal) -> None:
        self._journal = journal
        self._wakeup.set()  # there may be leftovers

    def wake(self) -> None:
        """Make the background task move events into the store soon. Thread-safe."""
        with suppress(RuntimeError):  # the loop is closed: events are stored when the space is opened again
            self._loop.call_soon_threadsafe(self._wakeup.set)

    async def flush(self) -> None:
        """Store every event emitted before. Raises the store's error, or an earlier error of the background task."""
        await self._claim()
        for leftover in list(self._leftovers):
            await self._fold(leftover)
        await self._fold(self._journal)
        if self._errors:
            raise self._errors.pop(0)

    async def clear(self) -> None:
        """Store every event emitted before, and remove these events from the segments of this process."""
        if self._journal is not None:
            self._journal.leave()
        await self.flush()
        if self._journal is not None:
            await asyncio.to_thread(self._journal.sweep)

    @asynccontextmanager
    async def paused(self) -> AsyncIterator[list[Stretch]]:
        """Pause storing inside the block. Yields the ranges of frames (records in segments) that are not yet stored."""
        await self._claim()  # may store some events
        async with self._folding:
            yield self.unfolded

    async def waiting(self) -> list[Stretch]:
        """Claim the segments of dead writers, and return all ranges of frames that are not stored yet."""
        await self._claim()
        return self.unfolded

    @property
    def unfolded(self) -> list[Stretch]:
        """The ranges of frames (records in a segment) that are not stored yet.

        These are the frames of this process, and of those dead writers whose segments it has claimed so far.
        """
        own = self._journal.unfolded() if self._journal is not None else []
        return [stretch for leftover in self._leftovers for stretch in leftover.unfolded()] + own

    async def close(self) -> None:
        """Make a last attempt to store everything, then stop. Unstored events stay on disk for the next process."""
        self._task.cancel()
        await asyncio.wait([self._task, *([self._claiming] if self._claiming is not None else [])])
        try:
            # A store that has just refused a batch gets only a short second chance.
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
            if self._claiming is not None:  # the last flush may have started another
                await asyncio.wait([self._claiming])
            for leftover in list(self._leftovers):
                self._release(leftover)

    async def _claim(self) -> None:
        """Claim the segments of dead writers, so that this process stores their events.

        The work continues if the caller is cancelled, because a claimed segment that is not registered cannot be read.
        At most CLAIMED_MAX segments are claimed at a time; these are stored before others are claimed.
        """
        stuck: set[str] = set()  # writers whose folders cannot be emptied, to skip them
        while True:
            if self._claiming is None or self._claiming.done():
                own = self._journal.writer if self._journal is not None else ""
                known = {own, *stuck, *(each.writer for each in self._leftovers)}
                if self._folder is None or not has_others(self._folder, known=known):
                    break
                claiming = self._claim_some(self._folder, known)
                self._claiming = self._loop.create_task(claiming, name="mica-claiming")
            if not await asyncio.shield(self._claiming):
                break
            stuck.update(each.writer for each in self._leftovers)
            for leftover in self._leftovers[:1]:
                await self._fold(leftover)
        for leftover in list(self._leftovers):
            await self._confirm(leftover)

    async def _confirm(self, leftover: Leftover) -> None:
        """Ask the store whether the segments that a dead writer marked as stored are really stored.

        It is enough to ask for the last event of each segment. If the event was purged or refused, the store has
        another event with its id.
        """
        if asked := leftover.unconfirmed:
            leftover.confirm(asked, stored={event.id for event in await self._find(asked)})
            self._log_damage(leftover)

    async def _claim_some(self, folder: Path, known: Collection[str]) -> bool:
        """Claim segments until CLAIMED_MAX are claimed. Returns True if there may be more segments to claim."""
        unclaimed = leftovers(folder, known=known)
        while sum(leftover.open_segments for leftover in self._leftovers) < CLAIMED_MAX:
            if (leftover := await asyncio.to_thread(next, unclaimed, None)) is None:
                return False
            self._leftovers.append(leftover)
            self._log_damage(leftover)
        return True

    def _log_damage(self, waiting: Journal | Leftover) -> None:
        """Log each damaged segment once, because queries cannot return its events."""
        for problem in waiting.damaged:
            if problem not in self.damaged:
                self.damaged.append(problem)
                LOG.warning("%s", problem)

    def _release(self, leftover: Leftover) -> None:
        self._log_damage(leftover)
        if leftover in self._leftovers:
            self._leftovers.remove(leftover)
            leftover.close()

    async def _fold(self, waiting: Journal | Leftover | None) -> None:
        while waiting is not None and await self._fold_some(waiting):
            pass

    async def _fold_some(self, waiting: Journal | Leftover) -> bool:
        """Store the next batch of `waiting`, even if the caller is cancelled. Returns False if there is no batch."""
        step = self._loop.create_task(self._step(waiting), name="mica-fold")
        self._steps.add(step)
        step.add_done_callback(self._on_step_done)
        return await asyncio.shield(step)

    def _on_step_done(self, step: asyncio.Task[bool]) -> None:
        self._steps.discard(step)
        if not step.cancelled():
            step.exception()  # raised to a waiting caller; otherwise the next flush tries again

    async def _step(self, waiting: Journal | Leftover) -> bool:
        async with self._folding:
            if isinstance(waiting, Leftover):
                await self._confirm(waiting)
            batch = waiting.batch(BATCH_MAX)
            self._log_damage(waiting)
            if batch is None:
                if isinstance(waiting, Leftover):
                    self._release(waiting)
                return False
            events = [_moved(event, self._moved) for event in batch.events] if self._moved else batch.events
            try:
                if events:
                    await self._append(events)
            except (DuplicateEvent, InvalidEvent):
                for event in events:
                    await self._append_one(event)
            except StoreError:
                self._is_refused = True
                raise
            self._is_refused = False
            waiting.stored(batch)
            return True

    async def _append_one(self, event: Event) -> None:
        event = _moved(event, self._moved)  # an event before it may have moved now
        try:
            await self._append([event])
        except InvalidEvent as error:
            self._errors.append(error)  # the next flush raises it; later events do not wait for it
            await self._append([_refusal(event, str(error))])
        except DuplicateEvent as error:
            if event.id in self._moved.values():  # even the new id belongs to another event
                self._errors.append(error)
                return
            moved = self._moved[event.id] = _moved_id(event.id)
            LOG.warning("%s; stored as %s", error, moved)
            await self._append([_moved(event, self._moved), _notice(event, moved)])

    async def _keep_folding(self) -> None:
        while True:
            await self._wakeup.wait()
            self._wakeup.clear()
            await asyncio.sleep(GATHER_S)
            try:
                await self._flush_calmly()
            except StoreError:
                await asyncio.sleep(RETRY_S)
                self._wakeup.set()
            except Exception as error:  # noqa: BLE001 - the next flush raises it
                self._errors.insert(0, error)

    async def _flush_calmly(self) -> None:
        """Store the events in small steps with pauses, so that other work gets most of the time."""
        await self._claim()
        if self._leftovers:
            await asyncio.sleep(REST_S)
        while self._leftovers:
            began = self._loop.time()
            await self._fold_some(self._leftovers[0])
            await asyncio.sleep(self._loop.time() - began)
        await self._wait_for_lull()
        while (journal := self._journal) is not None and journal.waiting > BATCH_MAX:
            began, before = self._loop.time(), journal.waiting
            await self._fold_some(journal)
            if journal.waiting > before and journal.size_bytes < HURRY_BYTES:
                await asyncio.sleep((self._loop.time() - began) / BUSY_SHARE)
        # One batch at a time: otherwise `durable` would wait for a sync of every few events. After each batch the
        # journal is checked again: only if it is empty does the next event wake the fold.
        if journal is not None and await self._fold_some(journal):
            self._wakeup.set()

    async def _wait_for_lull(self) -> None:
        """Wait until a burst of events is over, but not longer than LULL_S."""
        until = self._loop.time() + LULL_S
        while (journal := self._journal) is not None and (before := journal.waiting) > BATCH_MAX:
            if journal.size_bytes > HURRY_BYTES or self._loop.time() > until:
                break
            await asyncio.sleep(GATHER_S)
            if journal.waiting < before + BURST_EVENTS:
                break

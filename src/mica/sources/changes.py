"""Watches the log for events that may make cached replies of sources old.

Events of this process are reported before they are stored. Events of other processes are reported after they were
stored, when the next question is asked. A question may miss events that other processes stored in the last half second.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Collection, Iterable
from typing import NamedTuple

from mica.errors import MicaError
from mica.events.segment import SCOPE_SHIFT, UNREADABLE, Stretch
from mica.model.event import Event, EventId
from mica.store.codec import remember
from mica.store.priority import observe_failure
from mica.store.protocol import EventLog

POLL_S = 0.1  # between two reads of the log for events of other processes
WAIT_S = 0.5  # if the last read is longer ago, a question waits for the next read
BATCH_EVENTS = 1_000  # events that are read at a time
BEHIND_MAX = 5_000  # unread events; if there are more, emptying the cache is quicker than reading them


class LogChange(NamedTuple):
    """A reported event, with its tick. Ticks count the changes that this process has noticed.

    If a call to a source began at an earlier tick, the answer to the call may not include this event.
    """

    event: Event
    tick: int
    position: int  # of the event in the log; if it is not stored yet, one more than the last position that was read
    is_own: bool  # whether this process emitted the event


class Changes:
    """Reports each wanted event once, whether this process or another one emitted it.

    An event is wanted if `is_wanted` returns True for its name. To report an event, `tell` is called. `lost` is called
    if events were missed: a segment could not be read, or too many events were stored since the last read. `unfolded`
    returns the ranges of frames (records in a segment) that are not stored yet.
    """

    def __init__(
        self,
        log: EventLog,
        *,
        unfolded: Callable[[], Iterable[Stretch]],
        is_wanted: Callable[[str], bool],
        of_others: Collection[str] = (),
        tell: Callable[[LogChange], None],
        lost: Callable[[], None],
    ) -> None:
        self._log = log
        self._unfolded = unfolded
        self._is_wanted = is_wanted
        self._of_others = frozenset(of_others)  # events with these names are reported only if others emitted them
        self._tell = tell
        self._lost = lost
        self._seen: dict[tuple[str, int], int] = {}  # frames read of each segment, by its writer and first sequence
        self._heard: dict[EventId, int] = {}  # the tick of each reported event
        self._looked_s = float("-inf")
        self._looking: asyncio.Task[None] | None = None
        self.tick = 0
        self.position = 0  # the position in the log up to which everything was read
        self.first = -1  # the position in the log at which reading began; -1 before the first read

    def hear_own(self) -> None:
        """Report the wanted events of this process that are not stored yet, except those that were reported already."""
        for segment, first, last in self._unfolded():
            key = segment.writer, segment.base
            start = max(first, self._seen.get(key, 0))
            if start >= last:
                continue
            remember(self._seen, key, last)
            try:
                words, frames = segment.spine[start:last].tolist(), segment.frames(start, last)
            except UNREADABLE:
                self._lost()
                continue
            for index, (word, frame) in enumerate(zip(words, frames, strict=True), start):
                if word >> SCOPE_SHIFT and self._is_wanted_here(str(frame.name)):
                    self._note(segment.event(index, frame), is_own=True)

    def hear(self, events: Iterable[Event]) -> None:
        """Report the wanted events in `events`, except those that were reported already.

        This process is about to store these events.
        """
        for event in events:
            if self._is_wanted_here(event.name):
                self._note(event, is_own=True)

    def _is_wanted_here(self, name: str) -> bool:
        return name not in self._of_others and self._is_wanted(name)

    async def look(self, within_s: float) -> str | None:
        """Report the events that other processes have stored since the last read.

        If the last read ended less than `POLL_S` ago, nothing is read. If it ended less than `WAIT_S` ago, a read is
        started in the background. If it is longer ago, this method waits for the read, for at most `within_s`. Return
        why the read failed or did not end in time; None otherwise.
        """
        age_s = time.monotonic() - self._looked_s
        if age_s < POLL_S:
            return None
        if self._looking is None or self._looking.done():
            self._looking = asyncio.ensure_future(self._read_others())
            self._looking.add_done_callback(observe_failure)
        if age_s < WAIT_S:
            return None
        looking = self._looking  # another read may begin meanwhile
        done, _ = await asyncio.wait([looking], timeout=within_s)
        if not done:
            return f"the log did not answer within {within_s * 1000:.0f} ms; changes of other processes are not known"
        if looking.cancelled():
            return "the log was not read; changes of other processes are not known"
        error = looking.exception()
        if error is None:
            return None
        return str(error) if isinstance(error, MicaError) else f"{type(error).__name__}: {error}"

    async def reach(self, position: int) -> bool:
        """Report the events after `position` that were stored before this process began to read the log.

        Return True if all events after `position` have been reported. Return False, and report none, if there are more
        than BEHIND_MAX of them, or if this process has not begun to read.
        """
        if self.first < 0 or position >= self.first:
            return self.first >= 0
        if self.first - position > BEHIND_MAX:
            return False
        first = self.first
        while position < first:
            batch = await self._log.read(position, limit=min(BATCH_EVENTS, first - position))
            if not batch:
                break
            for event in batch:
                if self._is_wanted(event.name) and event.id not in self._heard:
                    self._note(event, is_own=False)
            position = batch[-1].position or first
        self.first = min(self.first, position)
        return True

    async def close(self) -> None:
        if self._looking is not None:
            self._looking.cancel()
            await asyncio.wait([self._looking])

    async def _read_others(self) -> None:
        last = await self._log.last_position()
        if self.first < 0:
            self.first = self.position = last
        if last - self.position > BEHIND_MAX:
            self.first = self.position = last
            self._lost()
        while self.position < last:
            batch = await self._log.read(self.position, limit=BATCH_EVENTS)
            if not batch:
                break
            for event in batch:
                if self._is_wanted(event.name):
                    self._note(event, is_own=False)
            self.position = batch[-1].position or last
        self._looked_s = time.monotonic()

    def _note(self, event: Event, *, is_own: bool) -> None:
        if event.id in self._heard:
            return
        self.tick += 1
        remember(self._heard, event.id, self.tick)
        self._tell(LogChange(event, self.tick, event.position or self.position + 1, is_own))

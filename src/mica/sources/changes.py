"""Watches the log for events that may make cached replies of sources old.

Events of this process are reported before they are stored. Events of other processes are reported after they were
stored, when the next question is asked; a question may miss those of the last half second.
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
WAIT_S = 0.5  # when the last read is older than this, a question waits for the next read
BATCH_EVENTS = 1_000  # read at a time
BEHIND_MAX = 5_000  # unread events; with more, emptying the cache is quicker than reading them


class LogChange(NamedTuple):
    """A reported event, with its tick: the number of events reported before it, plus one.

    If a call to a source began at an earlier tick, the answer to the call may not include this event.
    """

    event: Event
    tick: int  # its number among the changes that this process has seen
    position: int  # in the log; one above the last known position while it is not stored
    is_own: bool  # whether this process emitted it


class Changes:
    """Reports each wanted event once, whether this process or another one emitted it.

    An event is wanted if `is_wanted` returns True for its name. To report it, `tell` is called.
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
        self._of_others = frozenset(of_others)  # names that are reported for other processes only
        self._tell = tell
        self._lost = lost  # called when events were missed
        self._seen: dict[tuple[str, int], int] = {}  # frames of each segment, by its writer and first sequence
        self._heard: dict[EventId, int] = {}  # with its tick
        self._looked_s = float("-inf")
        self._looking: asyncio.Task[None] | None = None
        self.tick = 0
        self.position = 0  # of the log, up to which everything was read
        self.first = -1  # the position at which reading began; -1: not begun

    def hear_own(self) -> None:
        """Report the events that this process has emitted since the last call, stored or not."""
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
        """Report events that this process is about to store."""
        for event in events:
            if self._is_wanted_here(event.name):
                self._note(event, is_own=True)

    def _is_wanted_here(self, name: str) -> bool:
        return name not in self._of_others and self._is_wanted(name)

    async def look(self, within_s: float) -> str | None:
        """Read the events that other processes have stored since the last read. Return None, or why the read failed.

        Within `POLL_S` after the last read, nothing is read. Between `POLL_S` and `WAIT_S` after it, a read is started
        in the background. Later than that, this method waits for the read to end, for at most `within_s`.
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
        """Report the events from `position` up to where this process began to read. Return True if that was done.

        Return False, without reporting any, if there are too many of them or if this process has not begun to read.
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

"""What happened since: the events after which a reply that was kept is old, whoever recorded them.

Events of this process are heard before they are stored, those of others within half a second of being stored.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Collection, Iterable
from typing import NamedTuple

from mica.brief.question import heed
from mica.errors import MicaError
from mica.events.segment import SCOPE_SHIFT, UNREADABLE, Stretch
from mica.model.event import Event, EventId
from mica.store.codec import remember
from mica.store.protocol import Store

POLL_S = 0.1  # between two looks at the log for events of other processes
WAIT_S = 0.5  # since the last look, from which on a question waits for the next one
BATCH_EVENTS = 1_000  # read at a time
BEHIND_MAX = 5_000  # events; whoever is further behind forgets what it kept, which is quicker than reading them


class Change(NamedTuple):
    """Something that happened. Whatever was asked before this tick or position may not know of it."""

    event: Event
    tick: int
    position: int  # in the log; one above the last that is known, when it is not stored yet
    is_own: bool  # of this process


class Changes:
    """Hears of events whose names are wanted, each once."""

    def __init__(
        self,
        store: Store,
        *,
        unfolded: Callable[[], Iterable[Stretch]],
        is_wanted: Callable[[str], bool],
        of_others: Collection[str] = (),
        tell: Callable[[Change], None],
        lost: Callable[[], None],
    ) -> None:
        self._store = store
        self._unfolded = unfolded
        self._is_wanted = is_wanted
        self._of_others = frozenset(of_others)  # names that are heard of other processes only
        self._tell = tell
        self._lost = lost  # called when some were missed
        self._seen: dict[tuple[str, int], int] = {}  # frames of each segment, by its writer and first sequence
        self._heard: dict[EventId, int] = {}  # with its tick
        self._looked_s = float("-inf")
        self._looking: asyncio.Task[None] | None = None
        self.tick = 0
        self.position = 0  # of the log, up to which everything is heard
        self.first = -1  # from which on; -1: not begun

    def hear_own(self) -> None:
        """Hear what this process emitted, stored or not."""
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
        """Hear events that this process is storing."""
        for event in events:
            if self._is_wanted_here(event.name):
                self._note(event, is_own=True)

    def _is_wanted_here(self, name: str) -> bool:
        return name not in self._of_others and self._is_wanted(name)

    async def look(self, within_s: float) -> str | None:
        """Hear what others have stored, unless somebody looked just now; why that could not be done in time.

        While the last look is not long ago, the next goes on in the background: nobody waits for it.
        """
        age_s = time.monotonic() - self._looked_s
        if age_s < POLL_S:
            return None
        if self._looking is None or self._looking.done():
            self._looking = asyncio.ensure_future(self._look())
            self._looking.add_done_callback(heed)
        if age_s < WAIT_S:
            return None
        looking = self._looking  # another may begin to look meanwhile
        done, _ = await asyncio.wait([looking], timeout=within_s)
        if not done:
            return f"the log did not answer within {within_s * 1000:.0f} ms; what others changed is not known"
        if looking.cancelled():
            return "nobody looked at the log; what others changed is not known"
        error = looking.exception()
        if error is None:
            return None
        return str(error) if isinstance(error, MicaError) else f"{type(error).__name__}: {error}"

    async def reach(self, position: int) -> bool:
        """Hear what was stored after a position that was passed before this process began; False when it is too far."""
        if self.first < 0 or position >= self.first:
            return self.first >= 0
        if self.first - position > BEHIND_MAX:
            return False
        first = self.first
        while position < first:
            batch = await self._store.log(position, limit=min(BATCH_EVENTS, first - position))
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

    async def _look(self) -> None:
        last = await self._store.last_position()
        if self.first < 0:
            self.first = self.position = last
        if last - self.position > BEHIND_MAX:
            self.first = self.position = last
            self._lost()
        while self.position < last:
            batch = await self._store.log(self.position, limit=BATCH_EVENTS)
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
        self._tell(Change(event, self.tick, event.position or self.position + 1, is_own))

"""What hooks spooled, brought into the space through the append that everything goes through."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Sequence
from pathlib import Path

import msgspec

from mica.clients.hook_events import Hearing
from mica.clients.importer import parted
from mica.clients.records import Tally
from mica.clients.spool import Cursor, Portion, Spools
from mica.errors import DuplicateEvent, InvalidEvent
from mica.model.event import SESSION_ENDED, Appended, Event
from mica.store.protocol import Store
from mica.store.space import root_of


class Ingested(msgspec.Struct, kw_only=True):
    """What an ingest did. Nothing is skipped without being counted."""

    sessions: int = 0
    lines: int = 0
    events: int = 0
    repeated: int = 0  # they were there already, told by a transcript or by another hook
    is_busy: bool = False  # another process ingests this space just now
    tally: Tally = msgspec.field(default_factory=Tally)


class Ingesting:
    """Reads the spools of one space. One process at a time; whoever comes meanwhile leaves it to that one."""

    def __init__(
        self,
        store: Store,
        spools: Spools,
        *,
        append: Callable[[Sequence[Event]], Awaitable[Appended]],
        keeps_prompts: bool,
        excluded: Collection[str],
    ) -> None:
        self._store = store
        self._spools = spools
        self._append = append
        self._keeps_prompts = keeps_prompts
        self._excluded = excluded

    async def ingest(self) -> Ingested:
        """Store what hooks spooled: each line once, in the order of its session. Raises what the store raises."""
        done = Ingested()
        if not await asyncio.to_thread(self._spools.has_news):
            return done
        with self._spools.locked() as is_ours:
            if not is_ours:
                done.is_busy = True
                return done
            for session, files in self._spools.waiting().items():
                await self._ingest_session(session, files, done)
            await asyncio.to_thread(self._spools.forget_old)
        return done

    async def _ingest_session(self, session: str, files: Sequence[Path], done: Ingested) -> None:
        cursor = self._spools.cursor(session)
        hearing = Hearing(
            cursor.remembered, root_of=root_of, keeps_prompts=self._keeps_prompts, excluded=self._excluded
        )
        is_over = False
        before = done.lines
        for file in files:
            portions = self._spools.portions(cursor, file)
            while (portion := await asyncio.to_thread(next, portions, None)) is not None:
                events = await asyncio.to_thread(_heard, hearing, portion, done.tally, file.name)
                await self._keep(events, done)
                is_over = any(event.name == SESSION_ENDED for event in events)
                cursor = Cursor(files=cursor.files, remembered=hearing.remembered())
                self._spools.reached(session, cursor, file, portion.end)
                done.lines += len(portion.lines) + len(portion.broken)
        done.sessions += done.lines > before
        await asyncio.to_thread(self._spools.tidy, session, cursor, is_over=is_over)

    async def _keep(self, events: list[Event], done: Ingested) -> None:
        """What a transcript has told already stands as it is; what the store refuses is a complaint."""
        if not events:
            return
        try:
            appended = await self._append(events)
        except (DuplicateEvent, InvalidEvent):
            fresh, refused = await parted(self._store, events)
            stored = await self._append(fresh) if fresh else Appended()
            appended = Appended(stored=stored.stored, repeated=len(events) - len(fresh) - len(refused))
            for reason in refused.values():
                done.tally.complain(0, reason)
        done.events += appended.stored
        done.repeated += appended.repeated


def _heard(hearing: Hearing, portion: Portion, tally: Tally, name: str) -> list[Event]:
    for reason in portion.broken:
        tally.complain(0, f"{name}: {reason}")
    events: list[Event] = []
    for number, line in enumerate(portion.lines, start=1):
        tally.lines += 1
        events += hearing.take(line, tally=tally, number=number)
    return events

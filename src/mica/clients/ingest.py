"""Turns the lines that hooks wrote to the spool files of a space into stored events."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Sequence
from pathlib import Path

import msgspec

from mica.clients.hook_events import HookReader
from mica.clients.importer import split_storable
from mica.clients.records import ImportTally
from mica.clients.spool import Cursor, Portion, Spools
from mica.errors import DuplicateEvent, InvalidEvent
from mica.model.event import SESSION_ENDED, Appended, Event
from mica.store.protocol import EventLog
from mica.store.space import root_of


class Ingested(msgspec.Struct, kw_only=True):
    """The result of an ingest: how much was stored, and everything that was skipped."""

    sessions: int = 0
    lines: int = 0
    events: int = 0
    repeated: int = 0  # stored before, from a transcript or another hook
    is_busy: bool = False  # another process is ingesting this space
    tally: ImportTally = msgspec.field(default_factory=ImportTally)


class Ingester:
    """Turns the lines in the spool files of one space into stored events."""

    def __init__(
        self,
        log: EventLog,
        spools: Spools,
        *,
        append: Callable[[Sequence[Event]], Awaitable[Appended]],
        keeps_prompts: bool,
        excluded: Collection[str],
    ) -> None:
        self._log = log
        self._spools = spools
        self._append = append
        self._keeps_prompts = keeps_prompts
        self._excluded = excluded

    async def ingest(self) -> Ingested:
        """Store the spooled lines as events, each once and in the order of their session.

        If another process is already storing them, returns at once with `is_busy`. Errors of the store are raised.
        """
        done = Ingested()
        if not await asyncio.to_thread(self._spools.has_news):
            return done
        with self._spools.lock() as is_ours:
            if not is_ours:
                done.is_busy = True
                return done
            for session, files in self._spools.waiting().items():
                await self._ingest_session(session, files, done)
            await asyncio.to_thread(self._spools.forget_old)
        return done

    async def _ingest_session(self, session: str, files: Sequence[Path], done: Ingested) -> None:
        cursor = self._spools.cursor(session)
        reader = HookReader(
            cursor.remembered, root_of=root_of, keeps_prompts=self._keeps_prompts, excluded=self._excluded
        )
        is_over = False
        before = done.lines
        for file in files:
            portions = self._spools.portions(cursor, file)
            while (portion := await asyncio.to_thread(next, portions, None)) is not None:
                events = await asyncio.to_thread(_read, reader, portion, done.tally, file.name)
                await self._store_events(events, done)
                is_over = any(event.name == SESSION_ENDED for event in events)
                cursor = Cursor(files=cursor.files, remembered=reader.state())
                self._spools.save_cursor(session, cursor, file, portion.end)
                done.lines += len(portion.lines) + len(portion.broken)
        done.sessions += done.lines > before
        await asyncio.to_thread(self._spools.remove_finished, session, cursor, is_over=is_over)

    async def _store_events(self, events: list[Event], done: Ingested) -> None:
        if not events:
            return
        try:
            appended = await self._append(events)
        except (DuplicateEvent, InvalidEvent):
            fresh, refused = await split_storable(self._log, events)
            stored = await self._append(fresh) if fresh else Appended()
            appended = Appended(stored=stored.stored, repeated=len(events) - len(fresh) - len(refused))
            for reason in refused.values():
                done.tally.complain(0, reason)
        done.events += appended.stored
        done.repeated += appended.repeated


def _read(reader: HookReader, portion: Portion, tally: ImportTally, name: str) -> list[Event]:
    for reason in portion.broken:
        tally.complain(0, f"{name}: {reason}")
    events: list[Event] = []
    for number, line in enumerate(portion.lines, start=1):
        tally.lines += 1
        events += reader.read(line, tally=tally, number=number)
    return events

"""The public class behind `memory.clients`: stores what coding agents recorded in transcripts and through hooks."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path

import msgspec

from mica.clients.hook_events import HookReader
from mica.clients.importer import Imported, Importer, Progress, split_storable
from mica.clients.records import ImportTally
from mica.clients.spool import Cursor, Portion, Spools
from mica.errors import DuplicateEvent, InvalidEvent, InvalidInput
from mica.events.activity import IDLE
from mica.events.log import Log
from mica.model.event import SESSION_ENDED, Appended, Clock, Event
from mica.settings import Settings
from mica.store.protocol import EventLog
from mica.store.space import root_of

LOG = logging.getLogger("mica")
BUSY_S = 10.0  # that an ingest waits for another process that stores the same lines; a large spool takes seconds
BUSY_PAUSE_S = 0.05


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
        Files that were read stay until `Spools.remove_rendered`.
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
        before = done.lines
        for file in files:
            portions = self._spools.portions(cursor, file)
            while (portion := await asyncio.to_thread(next, portions, None)) is not None:
                events = await asyncio.to_thread(_read, reader, portion, done.tally, file.name)
                await self._store_events(events, done)
                if portion.broken:
                    LOG.warning("%s of %s could not be read: %s", len(portion.broken), file, portion.broken[0])
                    self._spools.put_aside(portion.unread)
                is_over = any(event.name == SESSION_ENDED for event in events)
                cursor = Cursor(files=cursor.files, remembered=reader.state(), is_over=is_over)
                self._spools.save_cursor(session, cursor, file, portion.end)
                done.lines += len(portion.lines) + len(portion.broken)
        done.sessions += done.lines > before

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


class Clients:
    """Stores what coding agents did in a space: `await memory.clients.import_transcripts(paths)`.

    `spools` is the folder that hooks write to; None if the space has no hooks. `render_answers` writes the texts that
    hooks show to agents next.
    """

    def __init__(
        self,
        events: EventLog,
        log: Log,
        *,
        location: str,
        clock: Clock,
        settings: Settings,
        spools: Spools | None,
        render_answers: Callable[[Spools], Awaitable[None]],
    ) -> None:
        self.spools = spools
        self._log = log
        self._location = location
        self._render_answers = render_answers
        self._importer = Importer(events, append=log.append, ids=log.ids, clock=clock, idle=IDLE)
        self._ingester: Ingester | None = None
        if spools is not None:
            self._ingester = Ingester(
                events,
                spools,
                append=log.append,
                keeps_prompts=settings.observe.prompts and spools.keeps_prompts,
                excluded=settings.observe.excluded_tools,
            )

    async def import_transcripts(
        self,
        paths: Iterable[Path],
        *,
        root: Path | Mapping[Path, Path | None] | None = None,
        on_progress: Callable[[Progress], None] = lambda progress: None,
    ) -> Imported:
        """Store the new records of these transcripts as events of this space, one transcript after another.

        `root` is the folder that stored file paths are relative to: one folder for all transcripts, or a mapping from
        transcript to folder. None means the first folder that the session worked in. A transcript that cannot be
        read is listed in the result, and the others are imported. The last turn of a session that may still be running
        is imported completely only when the transcript has not changed for half an hour.
        """
        await self._log.stored()
        return await self._importer.transcripts(paths, root=root, on_progress=on_progress)

    async def unread(self, paths: Iterable[Path]) -> list[Path]:
        """Return the transcripts in `paths` that have something new to import. Missing files are left out."""
        return await self._importer.unread(paths)

    async def append_new(self, events: Sequence[Event]) -> Appended:
        """Store the events whose ids are not stored yet. Events that are stored already stay unchanged.

        Raises InvalidEvent if an event cannot be stored; then none is stored.
        """
        return await self._importer.append_new(events)

    async def ingest(self) -> Ingested:
        """Turn the lines that hooks have written into stored events, and write the texts that hooks show next.

        If another process stores such lines right now, this one waits for it at most BUSY_S seconds, and then returns
        with `is_busy`. Every read of the space also stores such lines, but does not write the texts. Raises
        InvalidInput if the space has no hooks.
        """
        if self._ingester is None or self.spools is None:
            raise InvalidInput(f"no hooks write for {self._location}; they write beside the file of a space")
        done = await self._ingester.ingest()
        until = asyncio.get_running_loop().time() + BUSY_S
        while done.is_busy and asyncio.get_running_loop().time() < until:
            await asyncio.sleep(BUSY_PAUSE_S)
            done = await self._ingester.ingest()
        if not done.is_busy:
            await self.render()
        return done

    async def render(self) -> None:
        """Write the texts that hooks show next, and remove the spooled lines that they contain.

        Does nothing for a space without hooks, such as one on a server or in memory.
        """
        if self.spools is not None:
            await self._render_answers(self.spools)
            await asyncio.to_thread(self.spools.remove_rendered)

    async def collect(self) -> None:
        """Turn the lines that hooks have written into stored events, without writing the texts that hooks show next."""
        if self._ingester is not None and self.spools is not None:
            done = await self._ingester.ingest()
            if done.lines:
                await asyncio.to_thread(self.spools.remove_rendered)

"""The public class behind `memory.clients`: stores what coding agents recorded in transcripts and through hooks."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from pathlib import Path

from mica.clients.importer import Imported, Importer, Progress
from mica.clients.ingest import Ingested, Ingester
from mica.clients.spool import Spools
from mica.errors import InvalidInput
from mica.events.activity import IDLE
from mica.events.log import Log
from mica.model.event import Appended, Clock, Event
from mica.settings import Settings
from mica.store.protocol import EventLog


class Clients:
    """Stores what coding agents did in a space: `await memory.clients.import_transcripts(paths)`.

    `spools` is the folder that hooks write to; None if the space has no hooks. `render_answers` is called after each
    `ingest`, to write the texts that hooks show to agents next.
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

        Every read of the space also stores such lines, but does not write the texts. Raises InvalidInput if the space
        has no hooks.
        """
        if self._ingester is None or self.spools is None:
            raise InvalidInput(f"no hooks write for {self._location}; they write beside the file of a space")
        done = await self._ingester.ingest()
        if not done.is_busy:
            await self._render_answers(self.spools)
        return done

    async def collect(self) -> None:
        """Turn the lines that hooks have written into stored events, without writing the texts that hooks show next."""
        if self._ingester is not None:
            await self._ingester.ingest()

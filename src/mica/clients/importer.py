"""Imports transcripts into a space. Each import continues where the previous one stopped."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Annotated

import msgspec

from mica.clients.reader import Extent, Reader
from mica.clients.records import ImportTally
from mica.clients.registry import reader_of
from mica.errors import DuplicateEvent, InvalidEvent
from mica.model.event import TRANSCRIPT_READ, Appended, Clock, Event, EventId, EventQuery, make_event
from mica.store.checks import check_event
from mica.store.protocol import EventLog
from mica.tokens import ESTIMATOR

CHUNK_EVENTS = 2_000  # stored in one step, together with the offset reached
TORN_BYTES_MAX = 2**20  # a new part of a file that is shorter may be one unfinished line; a longer one is imported


class Progress(msgspec.Struct, frozen=True, kw_only=True):
    """How far an import has come: files, bytes and events."""

    files: int
    bytes: int
    files_done: int = 0
    bytes_done: int = 0
    events: int = 0


class Imported(msgspec.Struct, kw_only=True):
    """The result of an import: how much was stored, and everything that was skipped."""

    files: int = 0
    unchanged: int = 0  # files with nothing new
    events: int = 0
    repeated: int = 0  # events that were stored before, from a copied or resumed transcript
    tally: ImportTally = msgspec.field(default_factory=ImportTally)
    failed: dict[str, str] = msgspec.field(default_factory=dict)  # by file: why it could not be read


class Importer:
    """Imports transcripts into one event log.

    Each import records as an event how far it has read each file; `ids` provides the ids of these events. A session
    whose transcript has not changed for the time `idle` counts as ended.
    """

    def __init__(
        self,
        log: EventLog,
        *,
        append: Callable[[Sequence[Event]], Awaitable[Appended]],
        ids: Iterator[EventId],
        clock: Clock,
        idle: timedelta,
    ) -> None:
        self._log = log
        self._append = append
        self._ids = ids
        self._clock = clock
        self._idle = idle

    async def transcripts(
        self,
        paths: Iterable[Path],
        *,
        root: Path | Mapping[Path, Path | None] | None,
        on_progress: Callable[[Progress], None],
    ) -> Imported:
        """Import these transcripts in order. Files that cannot be read are listed in the result.

        `root` works as in `Clients.import_transcripts`.
        """
        done = Imported()
        places = await self._offsets()
        files = [(path.absolute(), folder, _size(path)) for path, folder in _rooted(paths, root)]
        progress = Progress(files=len(files), bytes=sum(expected for _, _, expected in files))
        for path, folder, expected in files:
            before = progress.bytes_done
            try:
                state = await asyncio.to_thread(self._state, path, places)
                if state.is_read:
                    done.unchanged += 1
                else:
                    tally = ImportTally()
                    chunks = _chunks(path, state, root=folder, tally=tally)
                    while (chunk := await asyncio.to_thread(next, chunks, None)) is not None:
                        appended = await self._append_chunk(chunk, path=path, state=state, tally=tally)
                        done.events += appended.stored
                        done.repeated += appended.repeated
                        progress = msgspec.structs.replace(
                            progress, bytes_done=before + state.share(chunk.place, expected), events=done.events
                        )
                        on_progress(progress)
                    done.files += 1
                    done.tally.add(tally, name=path.name)
            except OSError as error:
                done.failed[str(path)] = error.strerror or str(error)
            progress = msgspec.structs.replace(
                progress, files_done=progress.files_done + 1, bytes_done=before + expected, events=done.events
            )
            on_progress(progress)
        return done

    async def append_new(self, events: Sequence[Event]) -> Appended:
        """Store the events whose ids are not stored yet. Events that are stored already stay unchanged.

        Raises InvalidEvent if an event cannot be stored; then none is stored.
        """
        fresh, refused = await split_storable(self._log, events)
        if refused:
            raise InvalidEvent(next(iter(refused.values())))
        appended = await self._append(fresh) if fresh else Appended()
        return Appended(stored=appended.stored, repeated=len(events) - appended.stored)

    async def unread(self, paths: Iterable[Path]) -> list[Path]:
        """Return the transcripts in `paths` that have something new to import. Missing files are left out."""
        places = await self._offsets()
        unread = []
        for path in paths:
            with contextlib.suppress(FileNotFoundError):
                state = self._state(path.absolute(), places)
                if not state.is_read and not await asyncio.to_thread(_is_torn, path, state):
                    unread.append(path)
        return unread

    def _state(self, path: Path, places: Mapping[TranscriptFile, TranscriptOffset]) -> ImportState:
        """Return how far a transcript is imported. Raises OSError if the file cannot be read."""
        reader = reader_of(path)
        extent = reader.extent(path)
        known = places.get(TranscriptFile(str(path), extent.fingerprint))
        start = known.bytes if known is not None and known.bytes <= extent.end else 0
        is_idle = self._clock().timestamp() - extent.changed_at >= self._idle.total_seconds()
        is_settled = known is None or known.settled
        is_due = is_idle and not is_settled
        is_read = start == extent.end and not is_due
        return ImportState(reader=reader, extent=extent, start=start, is_idle=is_idle, is_due=is_due, is_read=is_read)

    async def _append_chunk(
        self, chunk: TranscriptChunk, *, path: Path, state: ImportState, tally: ImportTally
    ) -> Appended:
        """Store the events of a chunk together with a record of how far the transcript was read: both or neither.

        If the store refuses some of the events, they are counted in the tally, and the others are stored.
        """
        fingerprint = state.extent.fingerprint
        place = TranscriptOffset(
            transcript=str(path), bytes=chunk.place, fingerprint=fingerprint, settled=chunk.settled
        )
        reached = make_event(
            next(self._ids),
            TRANSCRIPT_READ,
            {**msgspec.structs.asdict(place), "estimator": ESTIMATOR},
            at=self._clock(),
            origin="imported",
        )
        try:
            appended = await self._append([*chunk.events, reached])
        except (DuplicateEvent, InvalidEvent):
            fresh, refused = await split_storable(self._log, chunk.events)
            appended = await self._append([*fresh, reached])
            repeated = len(chunk.events) - len(fresh) - len(refused)
            appended = Appended(stored=appended.stored, repeated=repeated)
            for number, reason in await asyncio.to_thread(_complaints, path, chunk, refused, state.reader):
                tally.complain(number, reason)
        return Appended(stored=appended.stored - 1, repeated=appended.repeated)

    async def _offsets(self) -> dict[TranscriptFile, TranscriptOffset]:
        places: dict[TranscriptFile, TranscriptOffset] = {}
        for event in await self._log.query(EventQuery(names=(TRANSCRIPT_READ,), limit=None)):
            with contextlib.suppress(msgspec.ValidationError):  # another program emitted an event of this name
                place = msgspec.json.decode(event.body, type=TranscriptOffset)
                places[TranscriptFile(place.transcript, place.fingerprint)] = place
        return places


async def split_storable(log: EventLog, events: Iterable[Event]) -> tuple[list[Event], dict[EventId, str]]:
    """Split events into those to store and those that cannot be stored, with the reasons by id.

    Events whose id is stored already are in neither group. The stored event may have other content, because a hook or
    an older version of mica made it.
    """
    fresh: dict[EventId, Event] = {}
    refused: dict[EventId, str] = {}
    for event in events:
        if await log.get(event.id) is not None:
            continue
        if event.parent_id in refused:
            refused[event.id] = f"event {event.id!r} belongs to {event.parent_id!r}, which was refused"
            continue
        parent = event.parent_id and (fresh.get(event.parent_id) or await log.get(event.parent_id))
        try:
            check_event(event, parent.ref if parent else None)
        except InvalidEvent as error:
            refused[event.id] = str(error)
        else:
            fresh[event.id] = event
    return list(fresh.values()), refused


class TranscriptFile(msgspec.Struct, frozen=True):
    """The identity of a transcript: its path and a hash of its first bytes."""

    path: str
    fingerprint: str  # a replaced file is another transcript


class TranscriptOffset(msgspec.Struct, frozen=True, kw_only=True):
    """How far a transcript was imported, recorded in the log. `bytes` is a place in the sense of `Reader`."""

    transcript: str
    bytes: Annotated[int, msgspec.Meta(ge=0)]
    fingerprint: str
    settled: bool = True  # False: the last turn may continue; records of older versions, without this field, say True


class ImportState(msgspec.Struct, frozen=True, kw_only=True):
    """How far a transcript is imported: up to the place `start`, as `Reader` defines places."""

    reader: Reader
    extent: Extent
    start: int
    is_idle: bool
    is_due: bool  # its last turn has ended since, which is not recorded yet
    is_read: bool  # nothing is new

    def share(self, place: int, size_bytes: int) -> int:
        """Return how many of a transcript's `size_bytes` are done when the import has reached `place`."""
        return min(size_bytes, size_bytes * place // self.extent.end) if self.extent.end else size_bytes


class TranscriptChunk(msgspec.Struct, frozen=True, kw_only=True):
    """Up to a few thousand events of a transcript, and the place up to which the transcript was read for them."""

    place: int
    events: list[Event]
    ends: list[int]  # for each event, the place after its record
    settled: bool = False


def _rooted(
    paths: Iterable[Path], root: Path | Mapping[Path, Path | None] | None
) -> Iterator[tuple[Path, Path | None]]:
    for path in paths:
        yield path, root.get(path) if isinstance(root, Mapping) else root


def _is_torn(path: Path, state: ImportState) -> bool:
    """Return True if the only new part of the file is an unfinished line, which an import would not read."""
    if path.suffix != ".jsonl" or state.start >= state.extent.end or state.is_due:
        return False
    with path.open("rb") as file:
        file.seek(state.start)
        rest = file.read(TORN_BYTES_MAX)
    if b"\n" in rest or len(rest) == TORN_BYTES_MAX:
        return False
    try:
        msgspec.json.decode(rest)
    except ValueError:
        return True
    return False


def _size(path: Path) -> int:
    """Return the size of a transcript in bytes, to report progress; 0 if it cannot be read."""
    try:
        return reader_of(path).extent(path).size_bytes
    except OSError:
        return 0


def _chunks(path: Path, state: ImportState, *, root: Path | None, tally: ImportTally) -> Iterator[TranscriptChunk]:
    """Yield the new events of a transcript in chunks. The last chunk is `settled` if the last turn has ended."""
    events: list[Event] = []
    ends: list[int] = []
    place = state.start
    folder = None if root is None else str(root)
    for place, found in state.reader.read(path, start=state.start, root=folder, closed=state.is_idle, tally=tally):
        events += found
        ends += [place] * len(found)
        if len(events) >= CHUNK_EVENTS:
            yield TranscriptChunk(place=place, events=events, ends=ends)
            events, ends = [], []
    yield TranscriptChunk(place=place, events=events, ends=ends, settled=not tally.unsettled)


def _complaints(
    path: Path, chunk: TranscriptChunk, refused: Mapping[EventId, str], reader: Reader
) -> list[tuple[int, str]]:
    if not refused:
        return []
    ends = dict(zip((event.id for event in chunk.events), chunk.ends, strict=True))
    numbers = reader.numbers(path, {ends[identifier] for identifier in refused})
    return [(numbers.get(ends[identifier], 0), reason) for identifier, reason in refused.items()]

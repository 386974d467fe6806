"""What comes into a space from files: transcripts, read on where an earlier import stopped, and logs."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import IO, Annotated

import msgspec

from mica.clients.reader import Extent, Reader
from mica.clients.records import Tally
from mica.clients.registry import reader_of
from mica.errors import DuplicateEvent, InvalidEvent, InvalidInput
from mica.events import log_import as logs
from mica.model.event import PURGED, Appended, Clock, Event, EventId, EventQuery, is_tombstone, make_event
from mica.store.protocol import Store, check_event
from mica.tokens import ESTIMATOR

CHUNK_EVENTS = 2_000  # events of a transcript stored in one step, together with the place reached
TORN_BYTES_MAX = 2**20  # of a line that is being written; a longer one is read to see
TRANSCRIPT_READ = "transcript.read"


class Progress(msgspec.Struct, frozen=True, kw_only=True):
    """How far an import has come."""

    files: int
    bytes: int
    files_done: int = 0
    bytes_done: int = 0
    events: int = 0


class Imported(msgspec.Struct, kw_only=True):
    """What an import did. Nothing is skipped without being counted."""

    files: int = 0
    unchanged: int = 0  # files with nothing new
    events: int = 0
    repeated: int = 0  # events that were there already, from a copied or resumed transcript
    tally: Tally = msgspec.field(default_factory=Tally)
    failed: dict[str, str] = msgspec.field(default_factory=dict)  # files that could not be read, and why


class LogImported(msgspec.Struct, frozen=True, kw_only=True):
    """What the import of a log did."""

    format: logs.Format | None  # None: it holds nothing to know it by
    events: int
    repeated: int  # they were there already
    orphans: int  # their parent is nowhere; only taken where that is allowed
    reused: int  # they have the id of another event of the log, and got their own here
    undated: int  # their log does not say when they happened: they have the time of the event before them, or of now
    purged: int  # a purge took them, before they came or after they had come: tombstones stand for them


class Importing:
    """Reads files into one store, through the append that everything goes through.

    The places reached are events with the next of `ids`. A session that was idle for so long is taken as ended.
    """

    def __init__(
        self,
        store: Store,
        *,
        append: Callable[[Sequence[Event]], Awaitable[Appended]],
        ids: Iterator[EventId],
        clock: Clock,
        idle: timedelta,
    ) -> None:
        self._store = store
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
        """Read transcripts, in the order given; a file that cannot be read is named, and the others go on."""
        done = Imported()
        places = await self._places_read()
        files = [(path.absolute(), folder, _size(path)) for path, folder in _rooted(paths, root)]
        progress = Progress(files=len(files), bytes=sum(expected for _, _, expected in files))
        for path, folder, expected in files:
            before = progress.bytes_done
            try:
                state = await asyncio.to_thread(self._state, path, places)
                if state.is_read:
                    done.unchanged += 1
                else:
                    tally = Tally()
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

    async def log(
        self, file: Path | IO[bytes], *, format: logs.Format | None, source: str, allow_orphans: bool
    ) -> LogImported:
        """Store the events of a JSONL file, all or nothing. Raises InvalidInput."""
        path = logs.name_of(file)
        try:
            log = await asyncio.to_thread(logs.read_log, file, format=format, source=source)
        except OSError as error:
            raise InvalidInput(f"{path} cannot be read: {error.strerror or error}") from error
        undated = {identifier for identifier, entry in zip(log.ids, log.entries, strict=True) if entry.is_undated}
        times = {each: event.at for each in undated if (event := await self._store.event(each))}
        log = logs.dated(log, known=times, now=self._clock())
        known = {parent: event.ref for parent in log.outside() if (event := await self._store.event(parent))}
        read = await asyncio.to_thread(logs.verified, log, known=known, allow_orphans=allow_orphans)
        try:
            before = {event.id for event in read.events} & await self._tombstones()
            appended = await self._append(read.events)
        except DuplicateEvent as error:
            other = "if it is from another log that uses the same ids, import it with a --source of its own"
            ours = "the file or that event was changed; import it into a store of its own (--store) to compare them"
            raise InvalidInput(
                f"nothing of {path} was imported: {log.called(EventId(error.event_id))} is in this space with other "
                f"content; {ours if log.format == 'mica' else other}"
            ) from error
        except InvalidEvent as error:
            refused = (entry.line for entry, event in zip(log.entries, read.events, strict=True) if _is_refused(event))
            where = f"line {line} cannot be stored: " if (line := next(refused, None)) else ""
            raise InvalidInput(f"nothing of {path} was imported: {where}{error}") from error
        taken = {event.id for event in read.events if not is_tombstone(event)} & await self._tombstones()
        return LogImported(
            format=log.format if log.entries else format,
            events=appended.stored,
            repeated=appended.repeated - len(before),
            orphans=read.orphans,
            reused=log.reused,
            undated=len(undated),
            purged=len(before | taken),
        )

    async def _tombstones(self) -> set[EventId]:
        """The events that were purged here, as the store says."""
        return {stone.id for stone in await self._store.events(EventQuery(names=(PURGED,), limit=None))}

    async def told(self, events: Sequence[Event]) -> Appended:
        """Store events that name themselves; what is there already stands as it is. Raises InvalidEvent."""
        fresh, refused = await parted(self._store, events)
        if refused:
            raise InvalidEvent(next(iter(refused.values())))
        appended = await self._append(fresh) if fresh else Appended()
        return Appended(stored=appended.stored, repeated=len(events) - appended.stored)

    async def unread(self, paths: Iterable[Path]) -> list[Path]:
        """Which of these transcripts have something to read now. One that is gone has nothing."""
        places = await self._places_read()
        unread = []
        for path in paths:
            with contextlib.suppress(FileNotFoundError):
                state = self._state(path.absolute(), places)
                if not state.is_read and not await asyncio.to_thread(_is_torn, path, state):
                    unread.append(path)
        return unread

    def _state(self, path: Path, places: Mapping[_Transcript, _Place]) -> _State:
        """What there is to read in a transcript now. Raises OSError."""
        reader = reader_of(path)
        extent = reader.extent(path)
        known = places.get(_Transcript(str(path), extent.fingerprint))
        start = known.bytes if known is not None and known.bytes <= extent.end else 0
        is_idle = self._clock().timestamp() - extent.changed_at >= self._idle.total_seconds()
        is_settled = known is None or known.settled
        is_due = is_idle and not is_settled
        is_read = start == extent.end and not is_due
        return _State(reader=reader, extent=extent, start=start, is_idle=is_idle, is_due=is_due, is_read=is_read)

    async def _append_chunk(self, chunk: _Chunk, *, path: Path, state: _State, tally: Tally) -> Appended:
        """Store a chunk together with the place it reaches to: both or neither.

        An event that the store refuses is a complaint in the tally; the others are stored.
        """
        fingerprint = state.extent.fingerprint
        place = _Place(transcript=str(path), bytes=chunk.place, fingerprint=fingerprint, settled=chunk.settled)
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
            fresh, refused = await parted(self._store, chunk.events)
            appended = await self._append([*fresh, reached])
            repeated = len(chunk.events) - len(fresh) - len(refused)
            appended = Appended(stored=appended.stored, repeated=repeated)
            for number, reason in await asyncio.to_thread(_complaints, path, chunk, refused, state.reader):
                tally.complain(number, reason)
        return Appended(stored=appended.stored - 1, repeated=appended.repeated)

    async def _places_read(self) -> dict[_Transcript, _Place]:
        """How far each transcript was read."""
        places: dict[_Transcript, _Place] = {}
        for event in await self._store.events(EventQuery(names=(TRANSCRIPT_READ,), limit=None)):
            with contextlib.suppress(msgspec.ValidationError):  # whoever emitted that, it is no record of ours
                place = msgspec.json.decode(event.body, type=_Place)
                places[_Transcript(place.transcript, place.fingerprint)] = place
        return places


async def parted(store: Store, events: Iterable[Event]) -> tuple[list[Event], dict[EventId, str]]:
    """What of these can be stored, and why the others cannot. What is there already is neither.

    An earlier version of mica, or a hook, may have read the same in its way: what was stored first stands.
    """
    fresh: dict[EventId, Event] = {}
    refused: dict[EventId, str] = {}
    for event in events:
        if await store.event(event.id) is not None:
            continue
        if event.parent_id in refused:
            refused[event.id] = f"event {event.id!r} belongs to {event.parent_id!r}, which was refused"
            continue
        parent = event.parent_id and (fresh.get(event.parent_id) or await store.event(event.parent_id))
        try:
            check_event(event, parent.ref if parent else None)
        except InvalidEvent as error:
            refused[event.id] = str(error)
        else:
            fresh[event.id] = event
    return list(fresh.values()), refused


def _is_refused(event: Event) -> bool:
    try:
        check_event(event, None)
    except InvalidEvent:
        return True
    return False


class _Transcript(msgspec.Struct, frozen=True):
    path: str
    fingerprint: str  # a file that was replaced by another is another transcript


class _Place(msgspec.Struct, frozen=True, kw_only=True):
    transcript: str
    bytes: Annotated[int, msgspec.Meta(ge=0)]
    fingerprint: str
    settled: bool = True  # False: the last turn might have gone on; an earlier mica took every turn as ended


class _State(msgspec.Struct, frozen=True, kw_only=True):
    """Where reading a transcript goes on."""

    reader: Reader
    extent: Extent
    start: int
    is_idle: bool
    is_due: bool  # its last turn has ended by now, and nobody was told
    is_read: bool  # there is nothing to read now

    def share(self, place: int, size_bytes: int) -> int:
        """How much of so many bytes is read at a place."""
        return min(size_bytes, size_bytes * place // self.extent.end) if self.extent.end else size_bytes


class _Chunk(msgspec.Struct, frozen=True, kw_only=True):
    """Some thousand events of a transcript, and the place reached with them."""

    place: int
    events: list[Event]
    ends: list[int]  # for each event, where the line ends that brought it about
    settled: bool = False


def _rooted(
    paths: Iterable[Path], root: Path | Mapping[Path, Path | None] | None
) -> Iterator[tuple[Path, Path | None]]:
    """Each transcript with the folder that its paths are relative to."""
    for path in paths:
        yield path, root.get(path) if isinstance(root, Mapping) else root


def _is_torn(path: Path, state: _State) -> bool:
    """Whether nothing is new in a file of lines but the beginning of one; importing it would read nothing."""
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
    """The bytes that a file will take to read, for the progress; 0 when it cannot be read."""
    try:
        return reader_of(path).extent(path).size_bytes
    except OSError:
        return 0


def _chunks(path: Path, state: _State, *, root: Path | None, tally: Tally) -> Iterator[_Chunk]:
    """A transcript's events from where it was left. Only the last chunk can say that nothing is left to be told."""
    events: list[Event] = []
    ends: list[int] = []
    place = state.start
    folder = None if root is None else str(root)
    for place, found in state.reader.read(path, start=state.start, root=folder, closed=state.is_idle, tally=tally):
        events += found
        ends += [place] * len(found)
        if len(events) >= CHUNK_EVENTS:
            yield _Chunk(place=place, events=events, ends=ends)
            events, ends = [], []
    yield _Chunk(place=place, events=events, ends=ends, settled=not tally.unsettled)


def _complaints(path: Path, chunk: _Chunk, refused: Mapping[EventId, str], reader: Reader) -> list[tuple[int, str]]:
    """Why events of a chunk were refused, each with the number of its record."""
    if not refused:
        return []
    ends = dict(zip((event.id for event in chunk.events), chunk.ends, strict=True))
    numbers = reader.numbers(path, {ends[identifier] for identifier in refused})
    return [(numbers.get(ends[identifier], 0), reason) for identifier, reason in refused.items()]

"""Write files of exported events, each completely or not at all, and rewrite a file when its events are purged."""

from __future__ import annotations

import os
import platform
import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import IO, TypeAlias

import msgspec

from mica.disk import sync
from mica.errors import InvalidEvent, InvalidInput
from mica.events.log import Log
from mica.events.log_import import ExportedContext
from mica.events.segment import SUFFIX
from mica.events.segment_header import MAGIC
from mica.format.documents import CHECKSUM, exported_line
from mica.model.event import PURGED, Context, Event, EventId, split_id
from mica.store.purges import EXPORTED

BESIDE = ("-wal", "-shm", "-journal")  # suffixes of the files that SQLite keeps beside a database
DATABASE = b"SQLite format 3\0"


class LogExportResult(msgspec.Struct, frozen=True, kw_only=True):
    """The result of an export: the number of events, and whether the file was recorded for later purges."""

    events: int
    unrecorded: str | None = None  # the error, if a file could not be recorded, so that purges will not find it


def record_export(log: Log, path: Path, *, events: int) -> None:
    """Record in the log that a file holds exported events, so that a later purge can remove them from it.

    Nothing is recorded for a device or a pipe.
    """
    if path.is_file():  # not a pipe
        data: dict[str, object] = {"path": str(path.absolute()), "events": events, "host": platform.node()}
        log.emit(EXPORTED, data, origin="user")


@contextmanager
def atomic_writer(path: Path) -> Iterator[IO[bytes]]:
    """Yield a temporary file that replaces `path` when the block succeeds, and is removed when it fails.

    A device or pipe is written directly. Raises InvalidInput if the file cannot be written, or if `path` belongs to a
    store.
    """
    try:
        if _belongs_to_store(path):
            raise InvalidInput(f"{path} belongs to a database, which would be lost; choose another file")
        if path.exists() and not path.is_file():  # a device or a pipe
            with path.open("wb") as stream:
                yield stream
            return
        unnamed = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
        with os.fdopen(os.open(unnamed, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), "wb") as stream:
            try:
                yield stream
                stream.flush()
                sync(stream.fileno())
                if path.exists():
                    unnamed.chmod(path.stat().st_mode & 0o777)
                unnamed.replace(path)
            except BaseException:
                unnamed.unlink(missing_ok=True)
                raise
    except OSError as error:
        raise InvalidInput(f"{path} cannot be written: {error.strerror or error}") from error


def _belongs_to_store(path: Path) -> bool:
    if _starts_with(path, DATABASE) or _starts_with(path, MAGIC) or path.suffix == SUFFIX:
        return True
    beside = next((ending for ending in BESIDE if path.name.endswith(ending)), "")
    # A SQLite log may hold transactions that its database does not have yet; SQLite deletes an unknown log file.
    return bool(beside) and _starts_with(path.with_name(path.name.removesuffix(beside)), DATABASE)


def _starts_with(path: Path, magic: bytes) -> bool:
    if not path.is_file():
        return False
    with path.open("rb") as stream:
        return stream.read(len(magic)) == magic


class ExportLine(msgspec.Struct):
    """One line of an export, decoded; fields that were not exported are None or empty."""

    id: EventId
    name: str | None = None
    at: datetime | None = None
    context: ExportedContext | None = None
    data: msgspec.Raw = msgspec.Raw()

    def event(self) -> Event | None:
        """Return an event with the fields that a purge compares; None if one of these fields was not exported."""
        if self.name is None or self.at is None or self.context is None or not bytes(self.data):
            return None
        fields = {name: getattr(self.context, name) for name in ("session", "agent", "user", "task", "correlation")}
        context = Context(**fields, labels=tuple(sorted(self.context.labels.items())))
        return Event(id=self.id, name=self.name, at=self.at, body=bytes(self.data), context=context, root_id=self.id)


_TombstoneLookup: TypeAlias = Callable[[EventId, Event | None], Event | None]
_line_decoder = msgspec.json.Decoder(ExportLine)
_fields_decoder = msgspec.json.Decoder(dict[str, msgspec.Raw])


def rewrite(path: Path, find_tombstone: _TombstoneLookup) -> int:
    """Replace the lines of purged events in an export with tombstones. All other lines stay byte for byte.

    `find_tombstone` receives the id of each event, and the event if its line is complete; it returns the tombstone, or
    None if the event was not purged. Returns the number of replaced lines; a file without purged events is not written.
    Raises InvalidInput if the file is not an export with ids, and OSError.
    """
    path = path.resolve()  # replace the file itself, not a link to it
    if not (count := sum(line is not replacement for line, replacement in _lines(path, find_tombstone))):
        return 0
    with atomic_writer(path) as stream:
        for _, replacement in _lines(path, find_tombstone):
            stream.write(replacement)
    return count


def _lines(path: Path, find_tombstone: _TombstoneLookup) -> Iterator[tuple[bytes, bytes]]:
    """Yield each line with its replacement: a tombstone if the event was purged, otherwise the same object."""
    with path.open("rb") as stream:
        for number, line in enumerate(stream, start=1):
            try:
                read = _line_decoder.decode(line)
                split_id(read.id)
            except (msgspec.DecodeError, InvalidEvent) as error:
                raise InvalidInput(f"{path} is not an export of events with ids, see line {number}") from error
            tombstone = None if read.name == PURGED else find_tombstone(read.id, read.event())
            if tombstone is None:
                yield line, line
            else:
                fields = tuple(field for field in _fields_decoder.decode(line) if field != CHECKSUM)
                yield line, exported_line(tombstone, fields) + b"\n"

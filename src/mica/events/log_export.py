"""Files of exported events: written whole or not at all, and rewritten when a purge takes events that are in them."""

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

from mica.errors import InvalidEvent, InvalidInput
from mica.events import segment
from mica.events.log import Log
from mica.events.log_import import ExportedContext
from mica.format.documents import event_document
from mica.model.event import PURGED, Context, Event, EventId, split_id
from mica.store.purges import EXPORTED

BESIDE = ("-wal", "-shm", "-journal")  # what SQLite keeps beside its file
DATABASE = b"SQLite format 3\0"


class LogExported(msgspec.Struct, frozen=True, kw_only=True):
    """The result of an export."""

    events: int
    unrecorded: str | None = None  # why the file was not recorded, so that no purge will find it


def record_export(log: Log, path: Path, *, events: int) -> None:
    """Record that a file holds events, so that a later purge can remove them from it."""
    if path.is_file():  # not a pipe
        data: dict[str, object] = {"path": str(path.absolute()), "events": events, "host": platform.node()}
        log.emit(EXPORTED, data, origin="user")


@contextmanager
def atomic_writer(path: Path) -> Iterator[IO[bytes]]:
    """A block that writes a new file, which replaces the old one at the end.

    Raises InvalidInput when that cannot be done, or when the old one is a store or a part of one.
    """
    try:
        if _is_of_a_store(path):
            raise InvalidInput(f"{path} is a database or a part of one, which would be lost; give another file")
        if path.exists() and not path.is_file():  # a device or a pipe
            with path.open("wb") as stream:
                yield stream
            return
        unnamed = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
        with os.fdopen(os.open(unnamed, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), "wb") as stream:
            try:
                yield stream
                stream.flush()
                os.fsync(stream.fileno())
                if path.exists():
                    unnamed.chmod(path.stat().st_mode & 0o777)
                unnamed.replace(path)
            except BaseException:
                unnamed.unlink(missing_ok=True)
                raise
    except OSError as error:
        raise InvalidInput(f"{path} cannot be written: {error.strerror or error}") from error


def _is_of_a_store(path: Path) -> bool:
    if _begins(path, DATABASE) or _begins(path, segment.MAGIC) or path.suffix == segment.SUFFIX:
        return True
    beside = next((ending for ending in BESIDE if path.name.endswith(ending)), "")
    # A log may hold what its database does not have yet, and one of another kind than SQLite's would be deleted.
    return bool(beside) and _begins(path.with_name(path.name.removesuffix(beside)), DATABASE)


def _begins(path: Path, magic: bytes) -> bool:
    if not path.is_file():
        return False
    with path.open("rb") as stream:
        return stream.read(len(magic)) == magic


class ExportLine(msgspec.Struct):
    """The fields of an exported line; missing ones are None or empty."""

    id: EventId
    name: str | None = None
    at: datetime | None = None
    context: ExportedContext | None = None
    data: msgspec.Raw = msgspec.Raw()

    def event(self) -> Event | None:
        """The event as far as a selection needs it; None if the line lacks a field."""
        if self.name is None or self.at is None or self.context is None or not bytes(self.data):
            return None
        fields = {name: getattr(self.context, name) for name in ("session", "agent", "user", "task", "correlation")}
        context = Context(**fields, labels=tuple(sorted(self.context.labels.items())))
        return Event(id=self.id, name=self.name, at=self.at, body=bytes(self.data), context=context, root_id=self.id)


_Stone: TypeAlias = Callable[[EventId, Event | None], Event | None]
_lines_of = msgspec.json.Decoder(ExportLine)
_fields_of = msgspec.json.Decoder(dict[str, msgspec.Raw])


def rewrite(path: Path, stone_of: _Stone) -> int:
    """Replace the lines of purged events by tombstones; all other lines stay byte for byte.

    `stone_of` is given an id, and the event where the line holds all of it, and returns the tombstone or None. Returns
    how many lines were replaced; a file without any is not touched. Raises InvalidInput when it is no export of ours or
    has no ids by which to know its events, and OSError.
    """
    path = path.resolve()  # replacing a link would leave the file behind it as it was
    if not (count := sum(line is not kept for line, kept in _lines(path, stone_of))):
        return 0
    with atomic_writer(path) as stream:
        for _, kept in _lines(path, stone_of):
            stream.write(kept)
    return count


def _lines(path: Path, stone_of: _Stone) -> Iterator[tuple[bytes, bytes]]:
    """Each line and its replacement, which is the line itself unless its event was purged."""
    with path.open("rb") as stream:
        for number, line in enumerate(stream, start=1):
            try:
                read = _lines_of.decode(line)
                split_id(read.id)
            except (msgspec.DecodeError, InvalidEvent) as error:
                raise InvalidInput(f"{path} is no export of events with ids, see line {number}") from error
            stone = None if read.name == PURGED else stone_of(read.id, read.event())
            if stone is None:
                yield line, line
            else:
                document = event_document(stone, tuple(_fields_of.decode(line)))
                yield line, msgspec.json.encode(document) + b"\n"

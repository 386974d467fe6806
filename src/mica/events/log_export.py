"""Files of exported events: written whole or not at all, and rewritten when a purge takes events that are in them."""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import IO, TypeAlias

import msgspec

from mica.errors import InvalidEvent, InvalidInput
from mica.events import segment
from mica.events.log_import import ExportedContext
from mica.format.documents import event_document
from mica.model.event import PURGED, Context, Event, EventId, split_id

BESIDE = ("-wal", "-shm", "-journal")  # what SQLite keeps beside its file
DATABASE = b"SQLite format 3\0"


@contextmanager
def written(path: Path) -> Iterator[IO[bytes]]:
    """Where to write a file that takes the place of the old one when all is written.

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


class _Line(msgspec.Struct):
    """What a line says of an event; what it leaves out is None or empty."""

    id: EventId
    name: str | None = None
    at: datetime | None = None
    context: ExportedContext | None = None
    data: msgspec.Raw = msgspec.Raw()

    def event(self) -> Event | None:
        """The event, as far as a selection looks at it; None when the line does not hold all of that."""
        if self.name is None or self.at is None or self.context is None or not bytes(self.data):
            return None
        fields = {name: getattr(self.context, name) for name in ("session", "agent", "user", "task", "correlation")}
        context = Context(**fields, labels=tuple(sorted(self.context.labels.items())))
        return Event(id=self.id, name=self.name, at=self.at, body=bytes(self.data), context=context, root_id=self.id)


_Stone: TypeAlias = Callable[[EventId, Event | None], Event | None]
_lines_of = msgspec.json.Decoder(_Line)
_fields_of = msgspec.json.Decoder(dict[str, msgspec.Raw])


def rewrite(path: Path, stone_of: _Stone) -> int:
    """Replace the lines of purged events by their tombstones; every other line stays as it is, to the letter.

    `stone_of` is given an id, and the event where the line holds all of it, and returns the tombstone or None. Returns
    how many lines were replaced; a file without any is not touched. Raises InvalidInput when it is no export of ours or
    has no ids by which to know its events, and OSError.
    """
    path = path.resolve()  # replacing a link would leave the file behind it as it was
    if not (count := sum(line is not kept for line, kept in _lines(path, stone_of))):
        return 0
    with written(path) as stream:
        for _, kept in _lines(path, stone_of):
            stream.write(kept)
    return count


def _lines(path: Path, stone_of: _Stone) -> Iterator[tuple[bytes, bytes]]:
    """Each line, and what stands in its place: itself unless its event was purged."""
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

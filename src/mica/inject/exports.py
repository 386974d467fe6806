"""Files of exported events: written whole or not at all, and rewritten when a purge takes events that are in them."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import IO

import msgspec

from mica.errors import InvalidEvent, InvalidInput
from mica.inject.documents import event_document
from mica.model import PURGED, Event, EventId, split_id

_LINES = msgspec.json.Decoder(dict[str, msgspec.Raw])
_PURGED = msgspec.Raw(msgspec.json.encode(PURGED))


@contextmanager
def written(path: Path) -> Iterator[IO[bytes]]:
    """Where to write a file that takes the place of the old one when all is written. Raises InvalidInput."""
    try:
        if path.exists() and not path.is_file():  # a device or a pipe
            with path.open("wb") as stream:
                yield stream
            return
        with NamedTemporaryFile(dir=path.parent, prefix=f".{path.name}.", delete=False) as stream:
            try:
                yield stream
                stream.flush()
                os.fsync(stream.fileno())
                if path.exists():
                    shutil.copymode(path, stream.name)
                Path(stream.name).replace(path)
            except BaseException:
                Path(stream.name).unlink(missing_ok=True)
                raise
    except OSError as error:
        raise InvalidInput(f"{path} cannot be written: {error.strerror or error}") from error


def rewrite(path: Path, tombstones: Mapping[EventId, Event]) -> int:
    """Replace the lines of purged events by their tombstones; every other line stays as it is, to the letter.

    Returns how many were replaced; a file without any is not touched. Raises InvalidInput when it is no export of ours
    or has no ids by which to know its events, and OSError.
    """
    if not (count := sum(line is not kept for line, kept in _lines(path, tombstones))):
        return 0
    with written(path) as stream:
        for _, kept in _lines(path, tombstones):
            stream.write(kept)
    return count


def _lines(path: Path, tombstones: Mapping[EventId, Event]) -> Iterator[tuple[bytes, bytes]]:
    """Each line, and what stands in its place: itself unless its event was purged."""
    with path.open("rb") as stream:
        for number, line in enumerate(stream, start=1):
            try:
                fields = _LINES.decode(line)
                identifier = EventId(msgspec.json.decode(fields.get("id", b"null"), type=str))
                split_id(identifier)
            except (msgspec.DecodeError, InvalidEvent) as error:
                raise InvalidInput(f"{path} is no export of events with ids, see line {number}") from error
            stone = tombstones.get(identifier)
            if stone is None or fields.get("name") == _PURGED:
                yield line, line
            else:
                document = event_document(stone, tuple(fields))
                yield line, msgspec.json.encode(document) + b"\n"

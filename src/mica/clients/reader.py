"""`Reader`, the interface of each client's transcript module, and functions for transcripts that are files of lines."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Callable, Collection, Iterator
from hashlib import blake2b
from pathlib import Path
from typing import Protocol, TypeVar

import msgspec

from mica.clients.records import ImportTally, Shape
from mica.events.json_lines import read_lines
from mica.model.event import Event

R_contra = TypeVar("R_contra", contravariant=True)
R = TypeVar("R")

HEAD_LINES_MAX = 5  # the first line identifies a transcript; a torn one may precede it
FINGERPRINT_BYTES = 1_024  # the first record of a transcript, with its session and time


class TranscriptHead(msgspec.Struct, frozen=True, kw_only=True):
    """The session that a transcript belongs to, as stated in its first records."""

    session: str
    agent: str | None = None
    cwd: str | None = None
    version: str | None = None
    branch: str | None = None


class Extent(msgspec.Struct, frozen=True, kw_only=True):
    """The current size and identity of a transcript, from which an import sees whether it has new records."""

    end: int  # the place after its last record, see `Reader`
    size_bytes: int
    changed_at: float  # seconds since 1970
    fingerprint: str  # if it changes, the file at this path is another transcript


class Reader(Protocol):
    """Reads the transcripts of one client.

    A "place" is how far a transcript was read: a number of bytes in a file, or a number of records in a database.
    """

    @property
    def NAME(self) -> str: ...  # noqa: N802 - a module's constant

    def find(self, root: Path, *, unreadable: dict[str, str] | None = None) -> list[Path]:
        """Return the transcripts in a folder, newest first. If `root` is a file, return only this file.

        Files that cannot be read are added to `unreadable` with the reason. If `unreadable` is None, the first such
        file raises OSError.
        """

    def head(self, path: Path) -> TranscriptHead | None:
        """Return the session of a transcript; None if it is not a transcript of this client. Raises OSError."""

    def extent(self, path: Path) -> Extent:
        """Return the current size and fingerprint of a transcript. Raises OSError."""

    def numbers(self, path: Path, places: Collection[int]) -> dict[int, int]:
        """Return, for each place, the number of the record that ends there, to show in messages. Raises OSError."""

    def read(
        self, path: Path, *, start: int = 0, root: str | None = None, closed: bool = True, tally: ImportTally
    ) -> Iterator[tuple[int, list[Event]]]:
        """Yield the new events of a transcript: pairs of a place and the events of the record that ends there.

        Records before `start` are read too, because later records refer to them, but their events are not returned. The
        last pair has the place that was reached, even if it has no events. A record that is only partly written is left
        for the next call. File paths are relative to `root`, by default the first folder that the session worked in.
        `closed` says that the session has ended, so its last turn is complete even if no record says so. If `closed` is
        False, such a turn is counted as unsettled; a later call from the last place can complete it. Raises OSError.
        """


class RecordReader(Protocol[R_contra]):
    """Turns the records of one transcript into events. Records are passed in order.

    `take` returns the events of a record. `settle` returns the events that are still held back after the last record.
    """

    def take(self, record: R_contra, *, number: int, tally: ImportTally) -> list[Event]: ...

    def settle(self) -> list[Event]: ...

    @property
    def is_settled(self) -> bool: ...


# -- Transcripts that are files of lines ----------------------------------------------------------------


def find_files(root: Path, *, is_one: Callable[[str], bool], unreadable: dict[str, str] | None = None) -> list[Path]:
    """Return the files below a folder whose names satisfy `is_one`, newest first.

    If `root` is a file, return only this file. Files that cannot be read are added to `unreadable` with the reason. If
    `unreadable` is None, the first such file raises OSError.
    """
    if root.is_file():
        return [root]
    found: list[tuple[int, Path]] = []

    def complain(error: OSError) -> None:
        if unreadable is None:
            raise error
        unreadable[str(error.filename)] = error.strerror or str(error)

    for folder, _, names in os.walk(root, onerror=complain):
        for path in [Path(folder, name) for name in names if is_one(name)]:
            try:
                found.append((-status(path).st_mtime_ns, path))
            except FileNotFoundError as error:
                if path.is_symlink():  # otherwise it was removed since the listing
                    complain(error)
            except OSError as error:
                complain(error)
    return [path for _, path in sorted(found)]


def status(path: Path) -> os.stat_result:
    """Return the status of a regular file. Raises OSError for other kinds: reading from a pipe might never end."""
    found = path.stat()
    if not stat.S_ISREG(found.st_mode):
        raise OSError(errno.EINVAL, "not a regular file", str(path))
    return found


def file_extent(path: Path) -> Extent:
    """Return the extent of a file. Its fingerprint is a hash of its first bytes. Raises OSError."""
    found = status(path)
    with path.open("rb") as file:
        fingerprint = blake2b(file.read(FINGERPRINT_BYTES), digest_size=8).hexdigest()
    return Extent(end=found.st_size, size_bytes=found.st_size, changed_at=found.st_mtime, fingerprint=fingerprint)


def line_numbers(path: Path, places: Collection[int]) -> dict[int, int]:
    """Return, for each byte offset in `places`, the number of the line that ends there. Raises OSError."""
    return {line.end: line.number for line in read_lines(path) if line.end in places}


def first_lines(path: Path, *, limit: int) -> Iterator[bytes]:
    """Yield each of the first `limit` lines of a file, except lines that are too long to be read. Raises OSError."""
    status(path)
    for line in read_lines(path):
        if not line.cut:
            yield line.text
        if line.number >= limit:
            return


def is_broken(path: Path) -> bool:
    """Return True if the first line of a `.jsonl` file is complete but not JSON. Other files are never broken."""
    if path.suffix != ".jsonl":
        return False
    for line in read_lines(path):
        try:
            msgspec.json.decode(line.text)
        except ValueError:
            return line.whole and not line.text.isspace()
        return False
    return False


def first_records(path: Path, shape: Shape[R], *, limit: int) -> Iterator[R]:
    """Yield the records in the first `limit` lines of a file, except those that cannot be decoded. Raises OSError."""
    for text in first_lines(path, limit=limit):
        with contextlib.suppress(ValueError):
            yield shape.read(text, ImportTally())


def read_records(
    path: Path,
    shape: Shape[R],
    records: RecordReader[R],
    *,
    start: int,
    closed: bool,
    tally: ImportTally,
    skip: Callable[[bytes], bool] = bytes.isspace,
    rescue: Callable[[bytes, ImportTally], R | None] = lambda text, tally: None,
) -> Iterator[tuple[int, list[Event]]]:
    """Implement `Reader.read` for a file with one record per line.

    `shape` decodes each line, and `records` makes the events. `skip` returns True for a line whose record results in no
    events. `rescue` may return a record from a line that cannot be decoded.
    """
    done = end = 0
    for line in read_lines(path):
        counts = tally if line.end > start else ImportTally()
        counts.lines += 1
        if line.whole and (skip(line.text) or line.text.isspace()):
            end = line.end
            continue
        record: R | None
        try:
            record = shape.read(b"" if line.cut else line.text, counts)
        except ValueError as error:
            if not line.whole:
                counts.torn += 1
                break
            counts.complain(line.number, "longer than a record can be" if line.cut else str(error))
            record = rescue(line.text, counts)
        end = line.end
        events = records.take(record, number=line.number, tally=counts) if record is not None else []
        if events and end > start:
            done = end
            yield end, events
    events = records.settle() if closed else []
    tally.unsettled += not records.is_settled
    if events or end > max(start, done):
        yield end, events

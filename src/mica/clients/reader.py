"""What every client's reader keeps: finding transcripts, saying whose they are, and reading them on from a place.

A reader is a module with the functions of `Reader`; import code knows no more of a client than this.
"""

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

from mica.clients.records import Shape, Tally, lines
from mica.model.event import Event

R_contra = TypeVar("R_contra", contravariant=True)
R = TypeVar("R")

HEAD_LINES_MAX = 5  # the first line says whose a transcript is; a torn one may stand before it
FINGERPRINT_BYTES = 1_024  # the first record of a transcript, with its session and time


class Head(msgspec.Struct, frozen=True, kw_only=True):
    """What the beginning of a transcript says."""

    session: str
    agent: str | None = None
    cwd: str | None = None
    version: str | None = None
    branch: str | None = None


class Extent(msgspec.Struct, frozen=True, kw_only=True):
    """How much there is of a transcript now."""

    end: int  # the place where all of it is read
    size_bytes: int
    changed_at: float  # seconds since 1970
    fingerprint: str  # another one at the same path is another transcript


class Reader(Protocol):
    """One client's transcripts. A place is an offset in a file, or what counts as one where there is none."""

    @property
    def CLIENT(self) -> str: ...  # noqa: N802 - a module's constant

    def find(self, root: Path, *, unreadable: dict[str, str] | None = None) -> list[Path]:
        """The transcripts in a folder, or the one file; the newest first.

        What cannot be read is named in `unreadable`; without it, the first such raises OSError.
        """

    def head(self, path: Path) -> Head | None:
        """Whose transcript this is; None when it is none of this client's. Raises OSError."""

    def extent(self, path: Path) -> Extent:
        """How much there is of it. Raises OSError."""

    def numbers(self, path: Path, places: Collection[int]) -> dict[int, int]:
        """The number of the record that ends at each of these places, for people. Raises OSError."""

    def read(
        self, path: Path, *, start: int = 0, root: str | None = None, closed: bool = True, tally: Tally
    ) -> Iterator[tuple[int, list[Event]]]:
        """The events of each record that ends after `start`, with the place after it. Raises OSError.

        Records before `start` are read too, for what later ones refer to. The last pair stands at the end of the last
        record that was read, even without events; a torn one is left for the next time. `root` is the folder that
        paths are relative to; without it, the first folder the session worked in. `closed` says that nobody writes the
        transcript any more: then its end ends the turn, where records do not say so themselves. Else such a turn is
        counted as unsettled; to settle it later, read again from the place reached.
        """


class Story(Protocol[R_contra]):
    """Turns records into events, one after the other."""

    def take(self, record: R_contra, *, number: int, tally: Tally) -> list[Event]: ...

    def settle(self) -> list[Event]: ...

    @property
    def is_settled(self) -> bool: ...


# -- Transcripts that are files of lines ----------------------------------------------------------------


def find_files(root: Path, *, is_one: Callable[[str], bool], unreadable: dict[str, str] | None = None) -> list[Path]:
    """The files below a folder whose names say that they are transcripts, or the one file; the newest first."""
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
            except FileNotFoundError:
                pass  # it was there a moment ago
            except OSError as error:
                complain(error)
    return [path for _, path in sorted(found)]


def status(path: Path) -> os.stat_result:
    """The size and times of a regular file. Raises OSError for any other: reading a pipe would never end."""
    found = path.stat()
    if not stat.S_ISREG(found.st_mode):
        raise OSError(errno.EINVAL, "not a regular file", str(path))
    return found


def file_extent(path: Path) -> Extent:
    """A file's, with a hash of its beginning. Raises OSError."""
    found = status(path)
    with path.open("rb") as file:
        fingerprint = blake2b(file.read(FINGERPRINT_BYTES), digest_size=8).hexdigest()
    return Extent(end=found.st_size, size_bytes=found.st_size, changed_at=found.st_mtime, fingerprint=fingerprint)


def line_numbers(path: Path, places: Collection[int]) -> dict[int, int]:
    return {line.end: line.number for line in lines(path) if line.end in places}


def first_lines(path: Path, *, limit: int) -> Iterator[bytes]:
    """The first lines that are no longer than allowed. Raises OSError."""
    status(path)
    for line in lines(path):
        if not line.cut:
            yield line.text
        if line.number >= limit:
            return


def first_records(path: Path, shape: Shape[R], *, limit: int) -> Iterator[R]:
    """The readable records among the first lines. Raises OSError."""
    for text in first_lines(path, limit=limit):
        with contextlib.suppress(ValueError):
            yield shape.read(text, Tally())


def read_lines(
    path: Path,
    shape: Shape[R],
    story: Story[R],
    *,
    start: int,
    closed: bool,
    tally: Tally,
    skip: Callable[[bytes], bool] = bytes.isspace,
    rescue: Callable[[bytes, Tally], R | None] = lambda text, tally: None,
) -> Iterator[tuple[int, list[Event]]]:
    """`Reader.read` for a file with one record a line.

    `skip` tells whole lines without events by their first bytes; `rescue` finds a record in a line that is none.
    """
    done = end = 0
    for line in lines(path):
        heard = tally if line.end > start else Tally()
        heard.lines += 1
        if line.whole and (skip(line.text) or line.text.isspace()):
            end = line.end
            continue
        record: R | None
        try:
            record = shape.read(b"" if line.cut else line.text, heard)
        except ValueError as error:
            if not line.whole:
                heard.torn += 1
                break
            heard.complain(line.number, "longer than a record can be" if line.cut else str(error))
            record = rescue(line.text, heard)
        end = line.end
        events = story.take(record, number=line.number, tally=heard) if record is not None else []
        if events and end > start:
            done = end
            yield end, events
    events = story.settle() if closed else []
    tally.unsettled += not story.is_settled
    if events or end > max(start, done):
        yield end, events

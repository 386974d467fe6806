"""Folders of segments. A writer locks its folder while it is alive; after that, another process empties the folder.

A purge searches the segments that this process cannot store: damaged ones, and those of other processes.
"""

from __future__ import annotations

import errno
import fcntl
import mmap
import os
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO

import msgspec

from mica.disk import has_reserved_space, sync_folder
from mica.errors import StoreUnavailable
from mica.events.segment import DAMAGED, SUFFIX, UNNAMED, UNREADABLE, Batch, Segment, Stretch, load_segment
from mica.model.event import REFUSED, EventId
from mica.private_files import make_folder, open_private

LOCK = "lock"
EXHAUSTED = (errno.EMFILE, errno.ENFILE, errno.ENOMEM)  # this process or machine has no free files or memory now


class WriterFolder:
    """A folder of segments that this process has locked: the folder of its own writer or of a dead writer."""

    def __init__(self, path: Path, lock: IO[bytes]) -> None:
        self.path = path
        self._lock = lock  # an object, so that garbage collection releases it after an interrupted attempt
        self._unsynced: list[Path] = []  # folders that got a new entry with this one, and are not synced yet

    @classmethod
    def make(cls, path: Path) -> WriterFolder:
        """Create and lock the folder of a new writer, or claim the folder if it exists.

        A new folder gets its final name only after it is locked, so that it never looks like a dead writer's folder.
        Raises StoreUnavailable if the folder cannot be written or another process uses it.
        """
        unnamed = path.with_name(f".{path.name}")
        try:
            if not path.exists():
                changed = _folders_to_change(path)
                make_folder(path.parent)
                unnamed.mkdir(mode=0o700, exist_ok=True)  # it may be there from an interrupted attempt
                lock = os.fdopen(open_private(unnamed / LOCK, os.O_RDWR | os.O_CREAT | os.O_APPEND), "ab")
                try:
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    unnamed.rename(path)
                except BaseException:
                    lock.close()
                    raise
                made = cls(path, lock)
                made._unsynced = changed
                return made
        except OSError as error:
            reason = f"cannot write in {path}: {error.strerror}; choose another directory with MICA_HOME"
            raise StoreUnavailable(reason) from error
        home = cls.claim(path)
        if home is None:
            raise StoreUnavailable(f"another process is writing in {path}; two writers cannot share a folder")
        return home

    @classmethod
    def claim(cls, path: Path) -> WriterFolder | None:
        """Lock a dead writer's folder; None if the writer is alive or another process claimed it. Raises OSError."""
        try:
            lock = (path / LOCK).open("rb+")
        except (FileNotFoundError, IsADirectoryError, NotADirectoryError, PermissionError):
            return None  # removed meanwhile, or owned by another user: `closed_in` reports the latter
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            lock.close()
            return None
        return cls(path, lock)

    @property
    def has_reserved_space(self) -> bool:
        """True if segments in this folder may be written through a mapping."""
        return has_reserved_space(self._lock.fileno())

    def sync(self) -> None:
        """Sync the folders that lead to a new folder, once, so that it survives power loss. Raises OSError."""
        while self._unsynced:
            sync_folder(self._unsynced[-1])
            self._unsynced.pop()

    def release(self) -> None:
        """Release the lock, and remove the folder if it has no segments."""
        with suppress(OSError):
            if not [file for file in self.path.iterdir() if file.name != LOCK]:
                (self.path / LOCK).unlink()
                self.path.rmdir()
        self._lock.close()

    def forget(self) -> None:
        """Close the lock file and leave the folder unchanged. In a forked child, the parent still holds the lock."""
        self._lock.close()


def _folders_to_change(path: Path) -> list[Path]:
    """The folders to sync when `path` is created: its parent, and each missing ancestor with its own parent."""
    changed = [path.parent]
    while not changed[-1].exists():
        changed.append(changed[-1].parent)
    return changed


class Leftover:
    """The segments of a dead writer, claimed by this process so that it can store their events and remove them."""

    def __init__(self, home: WriterFolder) -> None:
        self._home = home
        self.damaged: list[str] = []  # descriptions of the segments that cannot be read completely
        self._segments: list[Segment] = []
        self._unconfirmed: dict[EventId, Segment] = {}  # by the last event that, by its own count, is stored
        self._salvaging: set[Segment] = set()  # segments with an unreadable frame, read frame by frame
        for path in home.path.glob(f"*{UNNAMED}"):
            path.unlink(missing_ok=True)  # its writer was killed before anything could be in it
        for path in sorted(home.path.glob(f"*{SUFFIX}")):
            self._load(path)

    def _load(self, path: Path) -> None:
        try:
            segment = load_segment(path)
        except StoreUnavailable as error:  # written by a newer version of mica, which can read it later
            self.damaged.append(str(error))
            return
        except OSError as error:  # the content may be intact
            if error.errno in EXHAUSTED:
                raise
            self.damaged.append(f"{path} cannot be read: {error.strerror or error}; it may hold unstored events")
            return
        except ValueError as error:
            self.damaged.append(f"{path} cannot be read: {error}")
            path.rename(path.with_suffix(SUFFIX + DAMAGED))
            return
        if segment is None:
            path.unlink(missing_ok=True)
            return
        segment.recover()
        if segment.problem is not None:
            self._report(segment, segment.problem)
        if (last := segment.last_stored()) is not None:
            self._unconfirmed[last] = segment
        self._segments.append(segment)

    @property
    def open_segments(self) -> int:
        """The number of open files: the mapped segments, but at least 1 for the lock file."""
        return max(1, len(self._segments))

    @property
    def writer(self) -> str:
        return self._home.path.name

    def unfolded(self) -> list[Stretch]:
        """The ranges of frames (encoded events and contexts) that are not in the store yet."""
        return [Stretch(each, each.folded, each.count) for each in self._segments if each.folded < each.count]

    def batch(self, limit: int) -> Batch | None:
        """The next unstored events, read from at most `limit` frames (records in a segment); None if all are stored."""
        for segment in self._segments:
            try:
                if segment.folded < segment.count and segment not in self._salvaging:
                    return segment.batch(limit, segment.count)
            except UNREADABLE:
                self._salvaging.add(segment)
                self._report(segment, segment.cut())
            if segment.folded < segment.count:
                return segment.salvage(limit, segment.count)
        return None

    def stored(self, batch: Batch) -> None:
        """Mark the events of a batch as stored."""
        batch.segment.mark_folded(batch.reached)

    @property
    def unconfirmed(self) -> list[EventId]:
        """The ids to look up in the store, one for each segment that counts as stored at least in part.

        It is the id of the last event that should be stored.
        """
        return list(self._unconfirmed)

    def confirm(self, asked: Collection[EventId], *, stored: Collection[EventId]) -> None:
        """Compare the segments with the store: of the events in `asked`, only those in `stored` are in the store.

        If the event of a segment is missing there, the segment counts as not stored, so that all of it is stored again.
        """
        for identifier in asked:
            segment = self._unconfirmed.pop(identifier, None)  # another caller may have asked, too
            if segment is not None and identifier not in stored:
                claimed, segment.folded = segment.folded, 0
                self._report(
                    segment,
                    f"it says that {claimed:,} frames are stored, but {identifier} is not; all are stored again",
                )

    def _report(self, segment: Segment, problem: str) -> None:
        segment.problem = problem
        self.damaged.append(f"{segment.path}: {problem}")

    def close(self) -> None:
        """Remove the stored segments, rename the damaged ones, and release the folder. Unstored segments stay."""
        unconfirmed = list(self._unconfirmed.values())
        for segment in self._segments:
            if segment.folded >= segment.count and segment not in unconfirmed:
                segment.remove()
        self._home.release()


def leftovers(folder: Path | None, *, known: Collection[str] = ()) -> Iterator[Leftover]:
    """Claim and yield the segments of each dead writer in a folder; the writers in `known` are skipped.

    Raises StoreUnavailable if a segment cannot be opened.
    """
    for path in sorted(folder.iterdir()) if folder is not None and folder.is_dir() else ():
        if path.name.startswith(".") or path.name in known:
            continue
        try:
            leftover = _open_leftover(path)
        except OSError as error:
            raise StoreUnavailable(f"cannot open {path}: {error.strerror}; it holds events, try again") from error
        if leftover is not None:
            yield leftover


def _open_leftover(path: Path) -> Leftover | None:
    home = WriterFolder.claim(path)
    if home is None:
        return None
    try:
        return Leftover(home)
    except OSError:
        home.forget()
        raise


def has_others(folder: Path, *, known: Collection[str]) -> bool:
    """True if `folder` contains the folder of a writer that is not in `known`. That writer may be alive."""
    try:
        return any(name not in known and not name.startswith(".") for name in os.listdir(folder))  # noqa: PTH208 - every read
    except FileNotFoundError:
        return False
    except OSError as error:
        raise StoreUnavailable(f"cannot list {folder}: {error.strerror}; unstored events may be there") from error


def damaged_in(folder: Path | None) -> list[str]:
    """Return one message for each damaged segment in a folder. Damaged segments were renamed to `*.damaged`."""
    paths = sorted(folder.rglob(f"*{SUFFIX}{DAMAGED}")) if folder is not None and folder.is_dir() else []
    return [
        f"{path} was damaged; the events that could be read are stored, and an event named {REFUSED} replaces each"
        " unreadable one that others follow; check it and remove it"
        for path in paths
    ]


def closed_in(folder: Path | None) -> list[str]:
    """Return a message for each writer's folder that cannot be opened. The events in such a folder stay unstored."""
    problems = []
    for path in sorted(folder.iterdir()) if folder is not None and folder.is_dir() else ():
        if path.name.startswith("."):
            continue
        try:
            (path / LOCK).open("rb+").close()
        except FileNotFoundError:
            continue
        except OSError as error:
            reason = error.strerror or type(error).__name__
            problems.append(f"{path} cannot be opened ({reason}): its events may not be stored yet; check who owns it")
    return problems


def backlog(folder: Path | None) -> tuple[int, int]:
    """Return the number of unstored events of all writers in a folder, and the size of their segments in bytes.

    Segments that are stored completely do not count. A segment that cannot be read adds only its size.
    """
    waiting = size = 0
    for path in sorted(folder.rglob(f"*{SUFFIX}")) if folder is not None else ():
        try:
            segment = load_segment(path)
        except (OSError, ValueError, StoreUnavailable):
            segment = None  # folded meanwhile, or of another version: its bytes count
        count = None
        if segment is not None:
            count = segment.events_in(segment.folded, segment.count_committed())
            segment.close()
        waiting += count or 0
        size += path.stat().st_size if count != 0 and path.exists() else 0
    return waiting, size


class Traces(msgspec.Struct, frozen=True, kw_only=True):
    """The segments with purged text that were removed, and those that a person must check."""

    removed: tuple[str, ...] = ()  # damaged segments that held the texts
    unresolved: tuple[str, ...] = ()  # one sentence for each file that a person must check


def purge_traces(
    folder: Path | None, texts: Sequence[str], *, holds_value: Callable[[bytes], bool] | None = None
) -> Traces:
    """Search the segments in `folder` for the texts of a purged event, and remove damaged segments that contain them.

    `texts` are names that a segment must contain, such as a session. `holds_value` tells whether the bytes of a segment
    contain the purged value; None if the purge has none. A damaged segment can be removed because its readable events
    are in the store already. A segment of a running process is only reported. Without texts and value, every segment is
    reported and none is removed.
    """
    has_conditions = bool(texts) or holds_value is not None
    removed: list[str] = []
    unresolved: list[str] = []
    for path in sorted(folder.rglob(f"*{SUFFIX}*")) if folder is not None and folder.is_dir() else ():
        try:
            if has_conditions and not _contains_all(path, texts, holds_value):
                continue
            if not path.name.endswith(DAMAGED):
                unresolved.append(
                    f"{path} belongs to a running process, which removes its events there when it ends or emits again"
                )
            elif has_conditions:
                path.unlink()
                removed.append(str(path))
            else:
                unresolved.append(f"{path} is damaged and may hold purged events; check it and remove it")
        except FileNotFoundError:
            continue  # folded meanwhile
        except OSError as error:
            unresolved.append(f"{path} cannot be searched: {error.strerror or error}; check it and remove it")
    return Traces(removed=tuple(removed), unresolved=tuple(unresolved))


def _contains_all(path: Path, texts: Sequence[str], holds_value: Callable[[bytes], bool] | None) -> bool:
    """Return True if a file contains the value and all of `texts`, each as it is or escaped as in JSON."""
    if not path.stat().st_size:
        return False
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as area:
        return all(
            any(area.find(form) >= 0 for form in (text.encode("utf-8", "surrogatepass"), _json_escaped(text)))
            for text in texts
        ) and (holds_value is None or holds_value(area[:]))


def _json_escaped(text: str) -> bytes:
    return msgspec.json.encode(text)[1:-1]

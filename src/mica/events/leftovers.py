"""Folders of writers: locked while a writer is alive, then emptied by the next process that opens the space."""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Collection, Iterator
from contextlib import suppress
from pathlib import Path
from typing import IO

from mica.errors import StoreUnavailable
from mica.events.segment import SUFFIX, UNNAMED, UNREADABLE, Batch, Segment, Stretch, load_segment
from mica.model.event import REFUSED

LOCK = "lock"
DAMAGED = ".damaged"
EXHAUSTED = (errno.EMFILE, errno.ENFILE, errno.ENOMEM)  # this process or machine has no free files or memory now


class WriterFolder:
    """The folder of a writer, locked while the writer lives."""

    def __init__(self, path: Path, lock: IO[bytes]) -> None:
        self.path = path
        self._lock = lock  # an object, so that garbage collection releases it after an interrupted attempt

    @classmethod
    def make(cls, path: Path) -> WriterFolder:
        """A new folder. It is renamed after it is locked, so that it never looks like a dead writer's."""
        unnamed = path.with_name(f".{path.name}")
        try:
            if not path.exists():
                unnamed.mkdir(mode=0o700, parents=True, exist_ok=True)  # it may be there from an interrupted attempt
                lock = (unnamed / LOCK).open("ab")
                try:
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    unnamed.rename(path)
                except BaseException:
                    lock.close()
                    raise
                return cls(path, lock)
        except OSError as error:
            reason = f"cannot write in {path}: {error.strerror}; choose another directory with MICA_HOME"
            raise StoreUnavailable(reason) from error
        home = cls.claim(path)
        if home is None:
            raise StoreUnavailable(f"another process is writing in {path}; two writers cannot share a folder")
        return home

    @classmethod
    def claim(cls, path: Path) -> WriterFolder | None:
        """The folder of a dead writer; None if it is alive or another process has claimed it. Raises OSError."""
        try:
            lock = (path / LOCK).open("rb+")
        except (FileNotFoundError, IsADirectoryError, NotADirectoryError, PermissionError):
            return None  # gone, or not ours: `closed_in` reports it
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            lock.close()
            return None
        return cls(path, lock)

    def release(self) -> None:
        """Release the lock; an empty folder is removed."""
        with suppress(OSError):
            if not [file for file in self.path.iterdir() if file.name != LOCK]:
                (self.path / LOCK).unlink()
                self.path.rmdir()
        self._lock.close()

    def forget(self) -> None:
        """Close the lock in a forked child; the parent keeps it."""
        self._lock.close()


class Leftover:
    """The segments of a dead writer, to be read, folded and removed."""

    def __init__(self, home: WriterFolder) -> None:
        self._home = home
        self.damaged: list[str] = []
        self._segments: list[Segment] = []
        self._spoiled: set[Path] = set()  # renamed after everything readable is stored
        self._salvaging: set[Segment] = set()  # with an unreadable frame
        for path in home.path.glob(f"*{UNNAMED}"):
            path.unlink(missing_ok=True)  # its writer was killed before anything could be in it
        for path in sorted(home.path.glob(f"*{SUFFIX}")):
            self._load(path)

    def _load(self, path: Path) -> None:
        try:
            segment = load_segment(path)
            problem = segment.recover() if segment is not None else None
        except StoreUnavailable as error:  # of a newer version: it stays for a newer mica
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
        if problem is not None:
            self._spoil(segment, problem)
        segment.close()  # there may be many; the mapped memory stays readable
        self._segments.append(segment)

    @property
    def open_segments(self) -> int:
        """The number of open segments."""
        return max(1, len(self._segments))

    @property
    def writer(self) -> str:
        return self._home.path.name

    def unfolded(self) -> list[Stretch]:
        """The frames that are not in the store yet."""
        return [Stretch(each, each.folded, each.count) for each in self._segments if each.folded < each.count]

    def batch(self, limit: int) -> Batch | None:
        """The next batch of events for the store; None if all are stored."""
        for segment in self._segments:
            try:
                if segment.folded < segment.count and segment not in self._salvaging:
                    return segment.batch(limit, segment.count)
            except UNREADABLE:
                self._salvaging.add(segment)
                self._spoil(segment, segment.cut())
            if segment.folded < segment.count:
                return segment.salvage(limit, segment.count)
        return None

    def stored(self, batch: Batch) -> None:
        """Note that the events of a batch are stored."""
        batch.segment.mark_folded(batch.reached)

    def _spoil(self, segment: Segment, problem: str) -> None:
        if segment.path is not None:
            self.damaged.append(f"{segment.path}: {problem}")
            self._spoiled.add(segment.path)

    def close(self) -> None:
        """Remove folded segments; rename damaged ones."""
        for segment in self._segments:
            path = segment.path
            if segment.folded < segment.count:
                segment.close()
            elif path is not None and path in self._spoiled:
                segment.close()
                path.rename(path.with_suffix(SUFFIX + DAMAGED))
            else:
                segment.remove()
        self._home.release()


def leftovers(folder: Path | None, *, known: Collection[str] = ()) -> Iterator[Leftover]:
    """The segments of dead writers in a folder, except those already claimed; living writers are skipped."""
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
    """The segments in a dead writer's folder; None while the writer is alive. Raises OSError."""
    home = WriterFolder.claim(path)
    if home is None:
        return None
    try:
        return Leftover(home)
    except OSError:
        home.forget()
        raise


def has_others(folder: Path, *, known: Collection[str]) -> bool:
    """True if there is a folder of a writer that is not in `known`, alive or not."""
    try:
        return any(name not in known and not name.startswith(".") for name in os.listdir(folder))  # noqa: PTH208 - every read
    except FileNotFoundError:
        return False
    except OSError as error:
        raise StoreUnavailable(f"cannot list {folder}: {error.strerror}; unstored events may be there") from error


def damaged_in(folder: Path | None) -> list[str]:
    """The renamed segments in a folder that could not be read completely."""
    paths = sorted(folder.rglob(f"*{SUFFIX}{DAMAGED}")) if folder is not None and folder.is_dir() else []
    return [
        f"{path} was damaged; its readable events are stored, and an event named {REFUSED} replaces each"
        " unreadable one that others follow; check it and remove it"
        for path in paths
    ]


def closed_in(folder: Path | None) -> list[str]:
    """The folders of writers that cannot be opened, with the reason; their events stay there."""
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
    """The number of waiting events of all writers in a folder, and the bytes of their segments.

    A segment without waiting events is not counted.
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

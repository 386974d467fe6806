"""Find the working tree of a space on this machine, if its files may be read."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

from mica.model.event import Event
from mica.model.walk import latest_directory
from mica.store.space import Space, space_of


class WorkingTrees:
    """Finds the working trees of spaces and sessions on this machine.

    `is_ours` returns True if the files of a directory may be read. If `is_ours` is None, every directory may be read. A
    server passes a function, because its clients must not read the server's own files.
    """

    def __init__(self, home: Path, *, is_ours: Callable[[Path], bool] | None = None) -> None:
        self._home = home
        self._is_ours = is_ours

    def current(self) -> Space:
        """The space of the current directory."""
        return space_of(Path.cwd(), home=self._home)

    def around(self, directory: Path | None) -> Path:
        """The root of the working tree around a directory, or around the current directory if `directory` is None."""
        return space_of(Path.cwd() if directory is None else directory, home=self._home).root

    def is_readable(self, directory: Path) -> bool:
        """True if files of this directory may be read."""
        return self._is_ours is None or self._is_ours(directory)

    def latest_directory(self, events: Iterable[Event]) -> Path | None:
        """The directory of the latest session in these events.

        Returns None if there is no session, or if the directory does not exist or may not be read.
        """
        directory = latest_directory(events)
        return directory if directory is not None and self.is_readable(directory) and directory.is_dir() else None

    def latest(self, events: Iterable[Event]) -> Path | None:
        """The root of the working tree around `latest_directory`; None if there is no such directory."""
        directory = self.latest_directory(events)
        return None if directory is None else self.around(directory)

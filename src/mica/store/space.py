"""Find the space of a directory or an address, and the working trees of spaces on this machine.

The data of a space is stored in the user's data folder, never in a repository.
"""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Callable, Iterable
from contextlib import suppress
from hashlib import blake2b
from pathlib import Path

import msgspec

from mica.model.event import Event
from mica.model.walk import latest_directory
from mica.private_files import replace_private

SUFFIX = ".db"
DIRECTORY = "-directory"  # the end of the name of the file beside a space that records the space's directory


class Space(msgspec.Struct, frozen=True, kw_only=True):
    """A space on this machine: its name, the directory that relative paths start from, and its database file."""

    name: str
    root: Path
    file: Path


def space_of(directory: Path, *, home: Path) -> Space:
    """Return the space of a directory. All worktrees of a git repository share one space.

    Outside of git, each directory has its own space. The directory need not exist, because the directory of an old
    transcript may have been deleted.
    """
    return _space_around(directory.expanduser().absolute(), home=home)


def space_of_transcript_directory(directory: str, *, home: Path) -> Space | None:
    """Return the space of a directory that a transcript mentions, or None if this machine cannot have the directory.

    Relative paths and `~` give None: in a transcript of another machine they would select an unrelated space here.
    """
    if not directory.startswith("/"):
        return None
    try:
        Path(directory).stat()
    except ValueError:
        return None
    except OSError as error:
        if error.errno == errno.ENAMETOOLONG:
            return None
    return _space_around(Path(directory), home=home)


def spaces(home: Path) -> list[Path]:
    """Return the database files of all spaces, most recently used first."""
    found = list((home / "spaces").glob(f"*{SUFFIX}"))
    return sorted(found, key=lambda file: file.stat().st_mtime, reverse=True)


def file_of(name: str, *, home: Path) -> Path:
    """Return the database file of the space with this name."""
    return home / "spaces" / f"{name}{SUFFIX}"


def _space_around(directory: Path, *, home: Path) -> Space:
    for folder in (directory, *directory.parents):
        if (common := _git_common_directory(folder / ".git")) is not None:
            root = common.parent if common.name == ".git" else common
            return _space(root, root=folder, home=home)
    return _space(directory, root=directory, home=home)


def root_of(directory: Path) -> Path:
    """Return the directory that relative file paths start from: the git checkout, or the directory itself."""
    return _space_around(directory, home=Path()).root


def remember_directory(file: Path, directory: Path) -> None:
    """Record beside the file of a space that it belongs to `directory`; the name of the space has only a hash of it.

    Does nothing if a directory is recorded already, or if the space of `directory` is another one. Errors while writing
    the record are ignored.
    """
    record = _directory_file(file)
    if record.exists() or (space := space_of(directory, home=file.parent.parent)).file != file:
        return
    with suppress(OSError):
        replace_private(record, os.fsencode(space.root))


def recall_directory(file: Path) -> str | None:
    """Return the directory that `remember_directory` recorded for the space in `file`; None if there is no record."""
    try:
        return _directory_file(file).read_bytes().decode(errors="replace")
    except OSError:
        return None


def _directory_file(file: Path) -> Path:
    return file.with_name(file.name + DIRECTORY)


def is_address(target: Path | str) -> bool:
    """Return True if a target is the address of a server, False if it is a file."""
    return "://" in str(target)


def without_password(target: Path | str) -> str:
    """Return a target for display, without the passwords that an address may contain."""
    return re.sub(r"([?&](?:ssl)?password=)[^&]*", r"\1***", re.sub(r"(://[^:/@]*):.*@", r"\1@", str(target)))


def _space(identity: Path, *, root: Path, home: Path) -> Space:
    slug = re.sub(r"[^a-z0-9]+", "-", identity.name.lower()).strip("-")[:40] or "root"  # for people
    name = f"{slug}-{blake2b(str(identity).encode('utf-8', 'surrogateescape'), digest_size=4).hexdigest()}"
    return Space(name=name, root=root, file=file_of(name, home=home))


def _git_common_directory(git: Path) -> Path | None:
    """Return the git directory that all worktrees share; None if `git` is not a `.git` folder or file."""
    try:
        if git.is_dir():
            return git.resolve()
        if not git.is_file():
            return None
        pointer = git.read_text(encoding="utf-8").removeprefix("gitdir:").strip()
        folder = (git.parent / pointer).resolve()
        common = folder / "commondir"
        return (folder / common.read_text(encoding="utf-8").strip()).resolve() if common.is_file() else folder
    except (OSError, UnicodeDecodeError):
        return None  # an unreadable .git is ignored; the search continues above it


# -- Spaces at addresses ----------------------------------------------------------------------------------------


class KnownSpace(msgspec.Struct, frozen=True, kw_only=True):
    """The content of a file that records the id of the space at an address. It holds no password."""

    address: str
    space: str


def recall_space(home: Path, address: object) -> str | None:
    """Return the id that `remember_space` recorded for this address; None if there is no such record."""
    try:
        known = msgspec.json.decode(_address_file(home, address).read_bytes(), type=KnownSpace)
    except (OSError, msgspec.DecodeError):
        return None
    return known.space if known.address == str(address) else None


def remember_space(home: Path, address: object, space: str) -> None:
    """Record the id of the space at an address, so that the space can be opened while the server is down.

    Errors while writing the record are ignored.
    """
    if recall_space(home, address) == space:
        return
    file = _address_file(home, address)
    with suppress(OSError):
        replace_private(file, msgspec.json.encode(KnownSpace(address=str(address), space=space)))


def _address_file(home: Path, address: object) -> Path:
    return home / "addresses" / f"{blake2b(str(address).encode(), digest_size=16).hexdigest()}.json"


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

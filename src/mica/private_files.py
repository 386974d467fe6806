"""Folders and files that only their owner can read, regardless of the umask: mica's data folder and what is in it.

The rights of a file are given when it is created, so that it is never readable by others, not even for a moment.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from stat import S_ISLNK

from mica import hook
from mica.errors import StoreUnavailable

FOLDER_MODE, FILE_MODE = 0o700, 0o600
ENGINE = "engine"  # in the data folder: code that hooks run
TRUSTED = {name.decode() for name in (hook.COMMAND, hook.SESSION_ANSWER, hook.PROMPT_ANSWER)}  # what hooks run or print


def make_folder(folder: Path) -> None:
    """Create a folder, and its missing parents, so that only its owner may enter them. An existing one is unchanged."""
    missing = [each for each in (folder, *folder.parents) if not each.exists()]
    for each in reversed(missing):
        each.mkdir(mode=FOLDER_MODE, exist_ok=True)
    folder.mkdir(mode=FOLDER_MODE, exist_ok=True)  # raises if it is a file


def make_private_folder(folder: Path) -> None:
    """Create a folder like `make_folder`, or make an existing one private.

    Raises StoreUnavailable if the folder belongs to another user, and OSError if it cannot be created.
    """
    make_folder(folder)
    _check_owner(folder, status := folder.stat())
    if status.st_mode & 0o077:
        _restrict(folder, FOLDER_MODE)


def open_private(path: Path, flags: int) -> int:
    """Open a file as `os.open` does; a new one is private. A symbolic link is not followed."""
    return os.open(path, flags | os.O_CLOEXEC | os.O_NOFOLLOW, FILE_MODE)


def replace_private(path: Path, content: bytes) -> None:
    """Replace a file atomically by a private one, in a folder that is created if necessary. Raises OSError."""
    make_private_folder(path.parent)
    draft = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        with os.fdopen(open_private(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL), "wb") as stream:
            stream.write(content)
        draft.rename(path)
    except BaseException:
        draft.unlink(missing_ok=True)
        raise


def is_protected(path: Path) -> bool:
    """Return True if a file or folder, with all its content, belongs to this user or root and others cannot write it.

    Hooks run and print only such files.
    """
    try:
        statuses = [each.lstat() for each in (path, *(_content(path) if path.is_dir() else ()))]
    except OSError:
        return False
    return all(
        status.st_uid in (0, os.geteuid()) and (S_ISLNK(status.st_mode) or not status.st_mode & 0o022)
        for status in statuses
    )


def secure_home(home: Path) -> None:
    """Make the data folder and what this user has in it private, if mica or a hook created it with other rights.

    A file that others could write and that hooks run or print stays as it is, so that hooks refuse it until mica has
    written it again. Raises StoreUnavailable, and changes nothing, if the folder belongs to another user.
    """
    try:
        status = home.stat()
        _check_owner(home, status)
        first = [status, *(each.lstat() for each in home.iterdir())]
    except OSError:  # missing, or the code that opens a file in it reports why
        return
    if not any(each.st_mode & 0o077 and not S_ISLNK(each.st_mode) for each in first):
        return
    _restrict(home, FOLDER_MODE)
    for path in _content(home):
        with suppress(FileNotFoundError):
            _restrict_found(path, home)


def _restrict_found(path: Path, home: Path) -> None:
    status = path.lstat()
    if S_ISLNK(status.st_mode) or status.st_uid != os.geteuid() or not status.st_mode & 0o077:
        return
    is_trusted = path.name in TRUSTED or path.relative_to(home).parts[0] == ENGINE
    if path.is_dir() or not (is_trusted and status.st_mode & 0o022):
        _restrict(path, status.st_mode & 0o700)


def _content(folder: Path) -> Iterator[Path]:
    for place, folders, files in os.walk(folder):
        yield from (Path(place, name) for name in (*folders, *files))


def _restrict(path: Path, mode: int) -> None:
    with suppress(PermissionError):  # a file system without rights
        path.chmod(mode)


def _check_owner(folder: Path, status: os.stat_result) -> None:
    if status.st_uid != os.geteuid():
        raise StoreUnavailable(
            f"{folder} belongs to another user (id {status.st_uid}); run mica as that user, choose another folder with "
            f"MICA_HOME, or, if it is yours, run `sudo chown -R {os.geteuid()} {folder}`"
        )

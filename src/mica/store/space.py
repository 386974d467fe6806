"""Which space a directory belongs to, and where its data lives: in the user's data folder, never in the repository."""

from __future__ import annotations

import errno
import re
from hashlib import blake2b
from pathlib import Path

import msgspec

SUFFIX = ".db"


class Space(msgspec.Struct, frozen=True, kw_only=True):
    """One wall: a name for people, the root that relative paths start from, and the file."""

    name: str
    root: Path
    file: Path


def space_of(directory: Path, *, home: Path) -> Space:
    """The space of a directory: its git common directory, which worktrees share, else the directory itself.

    The directory need not exist: transcripts outlive the folders they speak of.
    """
    return _space_around(directory.expanduser().absolute(), home=home)


def space_spoken_of(directory: str, *, home: Path) -> Space | None:
    """The space of a directory that a transcript names; None when it can be no directory of this machine.

    It is taken as written. Completed by where we are or who we are, a foreign path would lead into a space of ours.
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
    """The files of all spaces, last used first."""
    found = list((home / "spaces").glob(f"*{SUFFIX}"))
    return sorted(found, key=lambda file: file.stat().st_mtime, reverse=True)


def file_of(name: str, *, home: Path) -> Path:
    """The file of the space with this name."""
    return home / "spaces" / f"{name}{SUFFIX}"


def _space_around(directory: Path, *, home: Path) -> Space:
    for folder in (directory, *directory.parents):
        if (common := _git_common_directory(folder / ".git")) is not None:
            root = common.parent if common.name == ".git" else common
            return _space(root, root=folder, home=home)
    return _space(directory, root=directory, home=home)


def root_of(directory: Path) -> Path:
    """The folder that paths of files are relative to, for who works in this directory: its checkout, else itself."""
    return _space_around(directory, home=Path()).root


def is_address(target: Path | str) -> bool:
    """Whether a target names a server and not a file."""
    return "://" in str(target)


def shown(target: Path | str) -> str:
    """A target as people may see it: without the passwords that an address may contain."""
    return re.sub(r"([?&](?:ssl)?password=)[^&]*", r"\1***", re.sub(r"(://[^:/@]*):.*@", r"\1@", str(target)))


def _space(identity: Path, *, root: Path, home: Path) -> Space:
    slug = re.sub(r"[^a-z0-9]+", "-", identity.name.lower()).strip("-")[:40] or "root"
    name = f"{slug}-{blake2b(str(identity).encode('utf-8', 'surrogateescape'), digest_size=4).hexdigest()}"
    return Space(name=name, root=root, file=file_of(name, home=home))


def _git_common_directory(git: Path) -> Path | None:
    """The directory that all worktrees of a repository share, from its `.git` folder or file."""
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
        return None  # an unreadable .git does not name a repository; the search goes on above it

"""Find the space of a directory or an address. Its data is in the user's data folder, never in the repository."""

from __future__ import annotations

import errno
import re
from contextlib import suppress
from hashlib import blake2b
from pathlib import Path

import msgspec

from mica.model.event import new_writer

SUFFIX = ".db"


class Space(msgspec.Struct, frozen=True, kw_only=True):
    """A space on this machine: its name, the root of relative paths, and the file."""

    name: str
    root: Path
    file: Path


def space_of(directory: Path, *, home: Path) -> Space:
    """The space of a directory: its git common directory, which worktrees share, else the directory itself.

    The directory need not exist: transcripts outlive the folders that they name.
    """
    return _space_around(directory.expanduser().absolute(), home=home)


def space_of_transcript_directory(directory: str, *, home: Path) -> Space | None:
    """The space of a directory that a transcript names; None when it cannot be a directory of this machine.

    A relative path or `~` is not completed: a path of another machine would lead into one of our spaces.
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
    """The root of relative file paths in this directory: its git checkout, or the directory itself."""
    return _space_around(directory, home=Path()).root


def is_address(target: Path | str) -> bool:
    """True if a target names a server and not a file."""
    return "://" in str(target)


def without_password(target: Path | str) -> str:
    """A target for display: without the passwords that an address may contain."""
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
        return None  # an unreadable .git names no repository; the search continues above it


# -- Spaces at addresses ----------------------------------------------------------------------------------------


class KnownSpace(msgspec.Struct, frozen=True, kw_only=True):
    """The file that remembers which space an address names. It holds no password."""

    address: str
    space: str


def recall_space(home: Path, address: object) -> str | None:
    """The id of the space at this address, if it was opened from this machine before; None otherwise."""
    try:
        known = msgspec.json.decode(_address_file(home, address).read_bytes(), type=KnownSpace)
    except (OSError, msgspec.DecodeError):
        return None
    return known.space if known.address == str(address) else None


def remember_space(home: Path, address: object, space: str) -> None:
    """Write down the id for `recall_space`. Without it, opening the space needs the server."""
    if recall_space(home, address) == space:
        return
    file = _address_file(home, address)
    draft = file.with_name(f"{file.name}.{new_writer()}")
    with suppress(OSError):
        file.parent.mkdir(parents=True, exist_ok=True)
        draft.write_bytes(msgspec.json.encode(KnownSpace(address=str(address), space=space)))
        draft.replace(file)


def _address_file(home: Path, address: object) -> Path:
    return home / "addresses" / f"{blake2b(str(address).encode(), digest_size=16).hexdigest()}.json"

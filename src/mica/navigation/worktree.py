"""The files of a working tree: which there are, and what stands in them. Nothing outside of it is read."""

from __future__ import annotations

import os
import stat
import subprocess
from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec

from mica.navigation.repository import git

FILES_MAX = 50_000  # beyond that a tree is a monorepo or a home folder; the rest is left out, and said so
PATH_BYTES_MAX = 1_000
IGNORED_FOLDERS = frozenset(
    ".git .hg .svn node_modules __pycache__ .venv venv env .tox .nox .mypy_cache .ruff_cache .pytest_cache dist build"
    " target .next .nuxt .cache .idea .vscode vendor coverage .gradle Pods".split()
)


class Found(msgspec.Struct, frozen=True):
    """A file as the file system has it: enough to tell whether it has changed."""

    path: str  # relative to the root, with slashes
    size_bytes: int
    changed_ns: int


class Listing(msgspec.Struct, frozen=True, kw_only=True):
    """The files of a tree, and what is missing from the list, in sentences."""

    files: tuple[Found, ...] = ()
    missing: dict[str, str] = {}


def files_of(root: Path) -> Listing:
    """Every file that git knows or does not ignore; without git, a walk that leaves out what tools make.

    Links, submodules and what is not a file are left out. Sorted by path, so that the same tree gives the same list.
    """
    missing: dict[str, str] = {}
    try:
        names: Iterable[str] = _git_files(root)
    except (OSError, subprocess.SubprocessError) as error:
        missing["git"] = f"{root} was walked without git: {_reason(error)}"
        names = _walked(root)
    found = []
    for name in sorted(set(names)):
        if (file := _found(root, name)) is not None:
            found.append(file)
            if len(found) == FILES_MAX:
                missing["files"] = f"{root} has more than {FILES_MAX:,} files; the others are not looked at"
                break
    return Listing(files=tuple(found), missing=missing)


def _git_files(root: Path) -> list[str]:
    listed = git(root, "ls-files", "-z", "--cached", "--others", "--exclude-standard")
    return [name for name in listed.decode("utf-8", "surrogateescape").split("\0") if name]


def _walked(root: Path) -> Iterator[str]:
    count = 0
    for folder, folders, files in os.walk(root):
        folders[:] = sorted(name for name in folders if name not in IGNORED_FOLDERS)
        for name in sorted(files):
            yield (Path(folder) / name).relative_to(root).as_posix()
            count += 1
            if count > FILES_MAX:
                return


def _found(root: Path, name: str) -> Found | None:
    if len(name) > PATH_BYTES_MAX or not name.isprintable():
        return None
    try:
        status = os.lstat(root / name)
    except (OSError, ValueError):
        return None  # git still lists what was deleted and not committed
    return Found(name, status.st_size, status.st_mtime_ns) if stat.S_ISREG(status.st_mode) else None


def _reason(error: OSError | subprocess.SubprocessError) -> str:
    if isinstance(error, subprocess.CalledProcessError):
        said = bytes(error.stderr or b"").decode("utf-8", "replace").strip().partition("\n")[0]
        return said or "git failed"
    return "git does not answer" if isinstance(error, subprocess.TimeoutExpired) else "there is no git"

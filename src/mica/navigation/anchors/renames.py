"""Find out from git whether a missing file was renamed or deleted. Nothing is written, and no hook or filter runs."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

import msgspec

from mica.errors import InvalidInput
from mica.navigation.repository import git

COMMITS_MAX = 20_000  # commits that are searched for renames; GIT_S_MAX may end the search earlier
GIT_S_MAX = 10.0

_REVISION = re.compile(r"[0-9A-Za-z][0-9A-Za-z_./@{}^~-]*")


class Renamed(msgspec.Struct, frozen=True, kw_only=True):
    """A renamed file: its current path and the commit that renamed it. For a staged rename, the commit is None."""

    path: str
    commit: str | None


class Deleted(msgspec.Struct, frozen=True, kw_only=True):
    """A deleted file, with the commit that deleted it. For a staged deletion, the commit is None."""

    commit: str | None


class UnknownFate(msgspec.Struct, frozen=True, kw_only=True):
    """The result if git does not know whether the file was renamed or deleted. `reason` says why."""

    reason: str


def find_rename(repo: Path, path: str, since: str | datetime | None = None) -> Renamed | Deleted | UnknownFate:
    """Find out whether the file that was at `path` was renamed, perhaps several times, or deleted.

    `path` is relative to the folder `repo`. The search covers the commits after `since` (a commit or a time), or the
    last 20,000 commits if `since` is None. A file in a submodule is searched in the history of the submodule. Without
    git or outside a repository, the result is `UnknownFate`. Raises InvalidInput if `since` is not a valid commit name.
    """
    folder, inside = _repository(repo, path)
    try:
        committed = _committed(folder, since)
        moves = [*_staged(folder), *committed]  # newest first
    except _GitFailed as error:
        return UnknownFate(reason=str(error))
    name, latest = inside, None
    start = next((index for index, move in enumerate(moves) if move[1] == name), None)
    if start is None:
        return UnknownFate(reason="git knows no rename or deletion of it")
    for commit, before, after in reversed(moves[: start + 1]):
        if before == name:
            if after is None:
                return Deleted(commit=commit)
            name, latest = after, commit
    prefix = path.removesuffix(inside)
    return Renamed(path=prefix + name, commit=latest)


class _GitFailed(Exception):
    """Raised if git is missing, fails, or takes too long."""


_Move = tuple[str | None, str, str | None]  # commit, path before, path after


def _repository(repo: Path, path: str) -> tuple[Path, str]:
    """Return the folder of the innermost repository that contains a path, and the path within that repository.

    `path` is relative to `repo`. If it is in a submodule, the folder is that of the submodule, which has its own
    history.
    """
    parts = path.split("/")
    for count in range(len(parts) - 1, 0, -1):
        folder = repo.joinpath(*parts[:count])
        if (folder / ".git").exists() and folder.resolve().is_relative_to(repo.resolve()):
            return folder, "/".join(parts[count:])
    return repo, path


def _committed(folder: Path, since: str | datetime | None) -> list[_Move]:
    command = ["log", f"--max-count={COMMITS_MAX}", "--format=%x01%H"]
    match since:
        case datetime():
            command.append(f"--since={since.isoformat()}")
        case str():
            if not _REVISION.fullmatch(since):
                raise InvalidInput(f"{since!r} is not a commit; give a commit hash, or a name such as HEAD~3")
            command.append(f"{since}..HEAD")
        case None:
            pass
    moves: list[_Move] = []
    for part in _git(folder, *command, *_MOVES).split("\x01")[1:]:
        commit, _, rest = part.partition("\0")
        moves += [(commit.strip(), before, after) for before, after in _moves(rest.lstrip("\n"))]
    return moves


def _staged(folder: Path) -> list[_Move]:
    return [(None, before, after) for before, after in _moves(_git(folder, "diff", "--cached", *_MOVES))]


_MOVES = ("--name-status", "-z", "--find-renames", "--diff-filter=RD", "--relative", "--no-ext-diff", "--no-textconv")


def _moves(listed: str) -> Iterator[tuple[str, str | None]]:
    fields = iter(listed.split("\0"))
    for status in fields:
        match status.strip("\n")[:1]:
            case "R":
                yield next(fields, ""), next(fields, "")
            case "D":
                yield next(fields, ""), None


def _git(folder: Path, *words: str) -> str:
    try:
        return git(folder, *words, timeout_s=GIT_S_MAX).decode("utf-8", "surrogateescape")
    except FileNotFoundError as error:
        raise _GitFailed("git is not installed, or the folder is gone") from error
    except subprocess.TimeoutExpired as error:
        raise _GitFailed(f"git did not answer within {GIT_S_MAX:.0f} s") from error
    except subprocess.CalledProcessError as error:
        message = bytes(error.stderr or b"").decode("utf-8", "replace").strip().split("\n")[0]
        raise _GitFailed(
            "this is not a git repository" if "not a git repository" in message else message or "git failed"
        ) from error

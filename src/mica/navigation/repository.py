"""Run git with a timeout and without prompts, list the files of a working tree, and read its commits."""

from __future__ import annotations

import os
import stat
import subprocess
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from mica.errors import InvalidInput
from mica.model.event import EMPTY, Event, event_id, make_event, sequence_named, writer_named
from mica.redact import redact

TIMEOUT_S = 20.0

FILES_MAX = 50_000  # a larger tree is a monorepo or a home folder; the other files are left out, which is reported
PATH_BYTES_MAX = 1_000
IGNORED_FOLDERS = frozenset(
    ".git .hg .svn node_modules __pycache__ .venv venv env .tox .nox .mypy_cache .ruff_cache .pytest_cache dist build"
    " target .next .nuxt .cache .idea .vscode vendor coverage .gradle Pods".split()
)

COMMIT = "git.commit"  # {"sha", "subject", "files", "renamed": [[old, new], …]}
COMMIT_FILES_MAX = 100  # a commit with more files does not show which belong together; it is stored without files
COMMITS_MAX = 5_000  # the latest commits of a repository; older ones have little to do with the current files
HISTORY_TIMEOUT_S = 120.0  # for git to list these commits
WRITER = writer_named("git")
_LOG_COMMAND = ("log", "--no-merges", "--date-order", "-M", "--name-status", "-z", "--format=%x01%H%x00%ct%x00%s")


def git(root: Path, *words: str, timeout_s: float = TIMEOUT_S) -> bytes:
    """Run a git command in the folder `root` and return its output.

    Raises OSError if git is not installed, and SubprocessError if the command fails or takes longer than `timeout_s`.
    """
    command = ["git", "-C", str(root), "--no-optional-locks", "-c", "core.fsmonitor=false", *words]
    return subprocess.run(command, capture_output=True, check=True, timeout=timeout_s, stdin=subprocess.DEVNULL).stdout


class FileStat(msgspec.Struct, frozen=True):
    """The path, size and modification time of a file. If size or time differ later, the file has changed."""

    path: str  # relative to the root, with slashes
    size_bytes: int
    changed_ns: int


class Listing(msgspec.Struct, frozen=True, kw_only=True):
    """The files of a working tree. `missing` explains why the list may be incomplete."""

    files: tuple[FileStat, ...] = ()
    missing: dict[str, str] = {}


def list_files(root: Path) -> Listing:
    """Return the files below `root` that git tracks or does not ignore, sorted by path, at most FILES_MAX files.

    Without git, return all files except those in folders that tools create, such as `node_modules`. Links, submodules
    and special files are left out.
    """
    missing: dict[str, str] = {}
    try:
        names: Iterable[str] = _git_files(root)
    except (OSError, subprocess.SubprocessError) as error:
        missing["git"] = f"{root} was listed without git: {_reason(error)}"
        names = _walk_folders(root)
    files = []
    for name in sorted(set(names)):
        if (file := _stat(root, name)) is not None:
            files.append(file)
            if len(files) == FILES_MAX:
                missing["files"] = f"{root} has more than {FILES_MAX:,} files; the others are ignored"
                break
    return Listing(files=tuple(files), missing=missing)


def _git_files(root: Path) -> list[str]:
    listed = git(root, "ls-files", "-z", "--cached", "--others", "--exclude-standard")
    return [name for name in listed.decode("utf-8", "surrogateescape").split("\0") if name]


def _walk_folders(root: Path) -> Iterator[str]:
    count = 0
    for folder, folders, files in os.walk(root):
        folders[:] = sorted(name for name in folders if name not in IGNORED_FOLDERS)
        for name in sorted(files):
            yield (Path(folder) / name).relative_to(root).as_posix()
            count += 1
            if count > FILES_MAX:
                return


def _stat(root: Path, name: str) -> FileStat | None:
    if len(name) > PATH_BYTES_MAX or not name.isprintable():
        return None
    try:
        status = os.lstat(root / name)
    except (OSError, ValueError):
        return None  # git still lists files whose deletion is not committed
    return FileStat(name, status.st_size, status.st_mtime_ns) if stat.S_ISREG(status.st_mode) else None


def _reason(error: OSError | subprocess.SubprocessError) -> str:
    if isinstance(error, subprocess.CalledProcessError):
        message = bytes(error.stderr or b"").decode("utf-8", "replace").strip().partition("\n")[0]
        return message or "git failed"
    return "git does not answer" if isinstance(error, subprocess.TimeoutExpired) else "git is not installed"


class GitCommit(msgspec.Struct, frozen=True, kw_only=True):
    """A commit read from git or from a `git.commit` event."""

    sha: str
    at: datetime
    subject: str
    files: tuple[str, ...]  # added or changed, by their new names
    renamed: tuple[tuple[str, str], ...] = ()


def read_commits(root: Path, *, limit: int) -> list[GitCommit]:
    """Read the latest commits of the current branch, at most `limit`, oldest first. Merges are left out.

    Raises InvalidInput if there is no git or no history.
    """
    try:
        output = git(root, *_LOG_COMMAND, f"--max-count={limit}", timeout_s=HISTORY_TIMEOUT_S)
    except (OSError, subprocess.SubprocessError) as error:
        message = bytes(getattr(error, "stderr", None) or b"").decode("utf-8", "replace").strip().partition("\n")[0]
        raise InvalidInput(f"{root} has no git history to learn from: {message or type(error).__name__}") from error
    records = output.decode("utf-8", "replace").split("\x01")[1:]
    return [_parse_commit(record) for record in reversed(records)]


def commit_events(changes: list[GitCommit]) -> Iterator[Event]:
    """Yield one event for each commit in `changes`. The same commit always gives the same event.

    Secrets in the subjects of the commits are redacted.
    """
    for change in changes:
        data = {
            "sha": change.sha,
            "subject": redact(change.subject),
            "files": list(change.files),
            "renamed": [list(pair) for pair in change.renamed],
        }
        identifier = event_id(WRITER, sequence_named(change.sha))
        yield make_event(identifier, COMMIT, data, at=change.at, context=EMPTY, origin="imported")


def commit_of(event: Event) -> GitCommit | None:
    """Return the commit that an event records; None if the data of the event is not that of a commit."""
    try:
        data = msgspec.convert(event.data, CommitData)
    except msgspec.ValidationError:
        return None
    return GitCommit(sha=data.sha, at=event.at, subject=data.subject, files=data.files, renamed=data.renamed)


class CommitData(msgspec.Struct):
    """The data of a `git.commit` event."""

    sha: str
    subject: str
    files: tuple[str, ...] = ()
    renamed: tuple[tuple[str, str], ...] = ()


def _parse_commit(record: str) -> GitCommit:
    sha, at, subject, *fields = record.split("\0")
    files: list[str] = []
    renamed: list[tuple[str, str]] = []
    parts = iter(field.strip("\n") for field in fields if field.strip("\n"))
    for status in parts:
        path = next(parts, "")
        if status[0] in "RC":
            new = next(parts, "")
            if status[0] == "R":
                renamed.append((path, new))
            files.append(new)
        elif status[0] != "D":
            files.append(path)
    named = [path for path in files if path and path.isprintable()]
    return GitCommit(
        sha=sha,
        at=datetime.fromtimestamp(int(at), UTC),
        subject=subject,
        files=tuple(named) if len(named) <= COMMIT_FILES_MAX else (),
        renamed=tuple(renamed[:COMMIT_FILES_MAX]),
    )

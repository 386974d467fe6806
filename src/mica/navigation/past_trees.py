"""The files of a repository as they were: what a replay may look at, and nothing later.

A tree of the past is the newest commit of the current branch's own line before that moment. What was not committed
then is not known.
"""

from __future__ import annotations

import subprocess
from bisect import bisect_right
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from types import TracebackType

import msgspec

from mica.navigation.engine.file_text import READ_BYTES_MAX, SIZE_BYTES_MAX, is_secret
from mica.navigation.repository import git
from mica.navigation.worktree import FILES_MAX

REGULAR = ("100644", "100755")  # neither links nor submodules
HISTORY_TIMEOUT_S = 120.0


class Past(msgspec.Struct, frozen=True):
    """A file that came or changed. Without text it is no text, too large or secret."""

    path: str
    size_bytes: int
    text: str | None


class Moved(msgspec.Struct, frozen=True):
    """What lies between two moments."""

    put: list[Past]
    removed: list[str]


class PastTrees:
    """Walks forward through the history of one repository. Close it, or use it as a block."""

    def __init__(self, root: Path) -> None:
        """Raises OSError or SubprocessError where there is no git or no history."""
        self._root = root
        listed = git(root, "log", "--first-parent", "--format=%H %ct", timeout_s=HISTORY_TIMEOUT_S)
        line = [row.split() for row in listed.decode().splitlines()][::-1]
        self._commits = [commit for commit, _ in line]
        self._times: list[int] = []
        for _, at in line:  # clocks jump: a commit is never older than its parent
            self._times.append(max(int(at), self._times[-1] if self._times else 0))
        self._here: str | None = None
        self._names: dict[str, str] = {}  # of the contents of each file
        self._objects: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> PastTrees:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        if self._objects is not None:
            self._objects.kill()
            self._objects.communicate()
            self._objects = None

    def move(self, at: datetime) -> Moved:
        """What changed between the last moment asked for and this one, which must not be earlier."""
        index = bisect_right(self._times, int(at.timestamp()))
        commit = self._commits[index - 1] if index else None
        if commit is None or commit == self._here:
            return Moved([], [])
        changed, removed = self._changed(commit)
        self._here = commit
        self._names.update(changed)
        for path in removed:
            self._names.pop(path, None)
        return Moved([self._past(path, name) for path, name in changed], removed)

    def text(self, path: str) -> str | None:
        """What stood in a file at the last moment that was asked for; None where it is no text, or was not there."""
        name = self._names.get(path)
        return None if name is None else self._past(path, name).text

    def _changed(self, commit: str) -> tuple[list[tuple[str, str]], list[str]]:
        """Paths with the name of their contents, and paths that are gone."""
        if self._here is None:
            listed = git(self._root, "ls-tree", "-r", "-z", "--full-tree", commit).split(b"\0")
            rows = [row.decode("utf-8", "replace").partition("\t") for row in listed if row]
            found = [(path, head.split()[2]) for head, _, path in rows if head.split()[0] in REGULAR]
            return found[:FILES_MAX], []
        changed: list[tuple[str, str]] = []
        removed: list[str] = []
        told = git(self._root, "diff-tree", "-r", "-z", "--raw", "--no-renames", self._here, commit).split(b"\0")
        for head, path in zip(*[iter(part.decode("utf-8", "replace") for part in told[:-1])] * 2, strict=False):
            _, mode, _, name, _ = head.split()
            if mode in REGULAR:
                changed.append((path, name))
            else:
                removed.append(path)
        return changed, removed

    def _past(self, path: str, name: str) -> Past:
        if is_secret(path):
            return Past(path, 0, None)
        content, size_bytes = self._content(name)
        is_text = content is not None and b"\0" not in content[:8_000]
        return Past(path, size_bytes, content.decode("utf-8", "replace") if content is not None and is_text else None)

    def _content(self, name: str) -> tuple[bytes | None, int]:
        """The beginning of a blob and its size, through one process that stays. Raises OSError when git is gone."""
        if self._objects is None:
            self._objects = subprocess.Popen(
                ["git", "-C", str(self._root), "cat-file", "--batch"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
            )
        asked, told = self._objects.stdin, self._objects.stdout
        if asked is None or told is None:
            raise OSError("git gave no pipes")
        asked.write(name.encode() + b"\n")
        asked.flush()
        head = told.readline().split()
        if len(head) != 3:
            if not head:
                raise OSError("git stopped answering")
            return None, 0  # a shallow or partial clone has not every blob
        size_bytes = int(head[2])
        read = b""
        for part in _parts(size_bytes + 1):
            content = told.read(part)
            read += content[: max(0, READ_BYTES_MAX - len(read))]
        return (None if size_bytes > SIZE_BYTES_MAX else read[: min(size_bytes, READ_BYTES_MAX)]), size_bytes


def _parts(size_bytes: int, step: int = 2**20) -> Iterator[int]:
    while size_bytes > 0:
        yield min(step, size_bytes)
        size_bytes -= step

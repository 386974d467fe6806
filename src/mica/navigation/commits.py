"""The history of a repository as events: each commit once, by its hash, with its subject and its files."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from mica.errors import InvalidInput
from mica.model.event import EMPTY, Event, event_id, make_event, sequence_named, writer_named
from mica.navigation.repository import git
from mica.redact import redact

COMMIT = "git.commit"  # {"sha", "subject", "files", "renamed": [[old, new], …]}
FILES_MAX = 100  # of one commit; one that changes more says nothing of what belongs together, and is kept without them
TIMEOUT_S = 120.0
WRITER = writer_named("git")
_ASK = ("log", "--no-merges", "--date-order", "-M", "--name-status", "-z", "--format=%x01%H%x00%ct%x00%s")


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """A commit, as git tells it."""

    sha: str
    at: datetime
    subject: str
    files: tuple[str, ...]  # that it leaves behind, by their new names
    renamed: tuple[tuple[str, str], ...] = ()


def changes_of(root: Path, *, limit: int) -> list[Change]:
    """The latest commits of the current branch, oldest first. Raises InvalidInput where there is no history."""
    try:
        told = git(root, *_ASK, f"--max-count={limit}", timeout_s=TIMEOUT_S)
    except (OSError, subprocess.SubprocessError) as error:
        said = bytes(getattr(error, "stderr", None) or b"").decode("utf-8", "replace").strip().partition("\n")[0]
        raise InvalidInput(f"{root} has no git history to learn from: {said or type(error).__name__}") from error
    records = told.decode("utf-8", "replace").split("\x01")[1:]
    return [_change(record) for record in reversed(records)]


def events_of(changes: list[Change]) -> Iterator[Event]:
    """One event for each commit; the same commit gives the same event everywhere. Subjects are redacted."""
    for change in changes:
        data = {
            "sha": change.sha,
            "subject": redact(change.subject),
            "files": list(change.files),
            "renamed": [list(pair) for pair in change.renamed],
        }
        identifier = event_id(WRITER, sequence_named(change.sha))
        yield make_event(identifier, COMMIT, data, at=change.at, context=EMPTY, origin="imported")


def change_of(event: Event) -> Change | None:
    """The commit that an event tells of; None where it tells of none."""
    try:
        told = msgspec.convert(event.data, _Told)
    except msgspec.ValidationError:
        return None
    return Change(sha=told.sha, at=event.at, subject=told.subject, files=told.files, renamed=told.renamed)


class _Told(msgspec.Struct):
    sha: str
    subject: str
    files: tuple[str, ...] = ()
    renamed: tuple[tuple[str, str], ...] = ()


def _change(record: str) -> Change:
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
    return Change(
        sha=sha,
        at=datetime.fromtimestamp(int(at), UTC),
        subject=subject,
        files=tuple(named) if len(named) <= FILES_MAX else (),
        renamed=tuple(renamed[:FILES_MAX]),
    )

"""The running mica servers of this user: one file per server, readable only by the user."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import msgspec

from mica.private_files import make_private_folder, open_private


class RunningServer(msgspec.Struct, frozen=True, kw_only=True):
    """The address of a running server and a token for it, for other commands of the same user."""

    address: str
    pid: int
    token: str
    space: str


def running_servers(home: Path) -> list[RunningServer]:
    """Return the running servers of this user, the most recently started first."""
    found: list[tuple[float, RunningServer]] = []
    for file in (home / "servers").glob("*.json"):
        with suppress(OSError, msgspec.DecodeError):
            note = msgspec.json.decode(file.read_bytes(), type=RunningServer)
            os.kill(note.pid, 0)
            found.append((file.stat().st_mtime, note))
    return [note for _, note in sorted(found, key=lambda one: -one[0])]


@contextmanager
def announce(note: RunningServer, *, home: Path) -> Iterator[None]:
    """Publish this server to other commands of the same user, in a file that exists during the `with` block."""
    folder = home / "servers"
    make_private_folder(folder)
    file = folder / f"{note.address.rpartition(':')[2]}.json"
    file.unlink(missing_ok=True)
    with os.fdopen(open_private(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL), "wb") as stream:
        stream.write(msgspec.json.encode(note))
    try:
        yield
    finally:
        file.unlink(missing_ok=True)

"""Bytes reach the disk on every platform, by one function."""

from __future__ import annotations

import ast
import errno
import fcntl
import os
from collections.abc import Callable
from pathlib import Path

import pytest

import mica
from mica import disk
from mica.settings import Settings

FULL_SYNC = 51  # F_FULLFSYNC of macOS
SOURCE = Path(mica.__file__).parent


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the system's calls that sync, in order."""
    made: list[str] = []

    def watched(name: str) -> Callable[[int], None]:
        return lambda descriptor: made.append(name)

    for name in ("fsync", "fdatasync"):
        monkeypatch.setattr(os, name, watched(name))
    return made


def full_sync(calls: list[str], *, failing: int = 0) -> Callable[[int, int], int]:
    """macOS's `fcntl`, which fails with an error number on some file systems."""

    def call(descriptor: int, command: int) -> int:
        assert command == FULL_SYNC
        calls.append("full")
        if failing:
            raise OSError(failing, os.strerror(failing))
        return 0

    return call


def test_a_sync_works_without_fdatasync(tmp_path: Path, calls: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """macOS has none."""
    monkeypatch.delattr(os, "fdatasync")
    with (tmp_path / "file").open("wb") as file:
        disk.sync(file.fileno())
    assert calls == ["fsync"]


def test_a_sync_empties_the_cache_of_the_drive_where_the_system_can(
    tmp_path: Path, calls: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(disk, "_FULL_SYNC", FULL_SYNC)
    monkeypatch.setattr(fcntl, "fcntl", full_sync(calls))
    with (tmp_path / "file").open("wb") as file:
        disk.sync(file.fileno())
    disk.sync_folder(tmp_path)
    assert calls == ["full", "full"]


def test_a_file_system_without_a_full_sync_gets_a_plain_one(
    tmp_path: Path, calls: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(disk, "_FULL_SYNC", FULL_SYNC)
    monkeypatch.setattr(fcntl, "fcntl", full_sync(calls, failing=errno.ENOTSUP))
    monkeypatch.delattr(os, "fdatasync")
    with (tmp_path / "file").open("wb") as file:
        disk.sync(file.fileno())
    disk.sync_folder(tmp_path)
    assert calls == ["full", "fsync", "full", "fsync"]


def test_a_failed_full_sync_is_an_error(tmp_path: Path, calls: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(disk, "_FULL_SYNC", FULL_SYNC)
    monkeypatch.setattr(fcntl, "fcntl", full_sync(calls, failing=errno.EIO))
    with (tmp_path / "file").open("wb") as file, pytest.raises(OSError, match="Input/output error"):
        disk.sync(file.fileno())
    assert calls == ["full"]


def test_every_sync_is_made_by_one_function() -> None:
    """Another module that called `fsync` would not be safe on macOS."""
    callers = {
        path.relative_to(SOURCE).as_posix()
        for path in SOURCE.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Attribute) and node.attr in ("fsync", "fdatasync")
    }
    assert callers == {"disk.py"}


def test_a_short_write_is_completed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A nearly full disk takes a part."""
    write = os.pwrite
    monkeypatch.setattr(os, "pwrite", lambda descriptor, content, at: write(descriptor, content[:3], at))
    with (tmp_path / "file").open("wb") as file:
        disk.write_at(file.fileno(), b"whole frame", 2)
    assert (tmp_path / "file").read_bytes() == b"\0\0whole frame"


def test_an_unknown_file_system_is_not_written_through_a_mapping(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with (tmp_path / "file").open("wb") as file:
        monkeypatch.setattr(disk, "_IN_PLACE", ())
        assert not disk.has_reserved_space(file.fileno())
        monkeypatch.undo()
        monkeypatch.delattr(os, "posix_fallocate")
        assert not disk.has_reserved_space(file.fileno())


async def test_events_are_recorded_synced_and_read_without_the_calls_of_linux(
    tmp_path: Path, home: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """keeps: K-41. macOS has neither `fdatasync` nor `posix_fallocate`, and no mapping is written there."""
    monkeypatch.delattr(os, "fdatasync")
    monkeypatch.delattr(os, "posix_fallocate")
    async with mica.open(tmp_path / "space.db", settings=home) as memory:
        for number in range(10_000):  # more than a segment
            memory.emit("step", {"n": number})
        await memory.durable()
        events = await memory.events.query(mica.EventQuery(limit=None))
        assert [event.data["n"] for event in events] == list(range(10_000))
        assert memory.upkeep.damaged == []

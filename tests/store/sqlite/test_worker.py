"""The worker thread of a file: it blocks no event loop, ends with the store, and survives cancelled calls."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import apsw
import pytest

from mica.errors import StoreBusy
from mica.model.event import Appended
from mica.store.sqlite import worker
from mica.store.sqlite.store import SqliteStore
from mica.testing import build


async def test_no_thread_is_left_behind(tmp_path: Path) -> None:
    before = {thread.name for thread in threading.enumerate()}
    store = await SqliteStore.open(tmp_path / "space.db")
    await store.log.append([build(1)])
    await store.close()
    left = {thread.name for thread in threading.enumerate()} - before
    assert not any("mica" in name for name in left)


async def test_the_event_loop_runs_while_events_are_written(tmp_path: Path) -> None:
    """keeps: TE-11. Writing happens on the store's own thread."""
    store = await SqliteStore.open(tmp_path / "space.db")
    writing = asyncio.create_task(store.log.append([build(n, "mark", {"text": f"mark {n}"}) for n in range(3_000)]))
    turns = 0
    while not writing.done():
        await asyncio.sleep(0)
        turns += 1
    assert turns > 10
    assert await writing == Appended(stored=3_000)
    await store.close()


async def test_a_cancelled_append_is_whole_or_absent_and_can_be_repeated(tmp_path: Path) -> None:
    store = await SqliteStore.open(tmp_path / "space.db")
    events = [build(n) for n in range(500)]
    for _ in range(5):
        task = asyncio.create_task(store.log.append(events))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert (await store.files.sizes()).events in {0, 500}
    appended = await store.log.append(events)
    assert appended.stored + appended.repeated == 500
    assert (await store.files.sizes()).events == 500
    await store.close()


async def test_reads_continue_while_another_process_writes(tmp_path: Path) -> None:
    """keeps: U-03, U-05. A locked file delays only writes, and only until it is free."""
    path = tmp_path / "space.db"
    store = await SqliteStore.open(path)
    await store.log.append([build(1)])
    other = apsw.Connection(str(path))
    other.execute("BEGIN IMMEDIATE")

    waiting = asyncio.create_task(store.log.append([build(2)]))
    for _ in range(5):
        assert (await store.files.sizes()).events == 1
    assert not waiting.done()
    other.execute("COMMIT")
    other.close()

    assert await waiting == Appended(stored=1)
    await store.close()


async def test_waiting_for_a_locked_file_is_logged_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Without the message a waiting command seems to hang."""
    monkeypatch.setattr(worker, "WARN_S", 0)
    store = await SqliteStore.open(tmp_path / "space.db")
    other = apsw.Connection(str(tmp_path / "space.db"))
    other.execute("BEGIN IMMEDIATE")

    writing = asyncio.create_task(store.log.append([build(1)]))
    while not caplog.messages and not writing.done():
        await asyncio.sleep(0)
    other.execute("ROLLBACK")

    assert await writing == Appended(stored=1)
    assert caplog.messages == [f"{tmp_path / 'space.db'} is locked by another process; waiting for up to 60 s"]
    other.close()
    await store.close()


async def test_patience_ends_with_a_clear_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker, "PATIENCE_S", 0)
    path = tmp_path / "space.db"
    store = await SqliteStore.open(path)
    other = apsw.Connection(str(path))
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(StoreBusy, match="was busy"):
        await store.log.append([build(1)])
    other.close()
    assert await store.log.append([build(1)]) == Appended(stored=1)
    await store.close()

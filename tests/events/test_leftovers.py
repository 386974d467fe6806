"""Folders and segments of dead writers: claimed, read, folded and removed once."""

from __future__ import annotations

import asyncio
import contextlib
import os
import resource
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from tests.events.journals import change_version, drained, flip, leftover_events, open_journal, tokens_of, written

import mica
from mica import EventQuery
from mica.errors import StoreUnavailable
from mica.events import emitter as emitter_module
from mica.events import journal as journal_module
from mica.events.leftovers import leftovers
from mica.events.segment import SUFFIX, UNNAMED
from mica.settings import Settings


def test_unfolded_events_stay_and_are_read_once(tmp_path: Path) -> None:
    journal = open_journal(tmp_path)
    refs = [journal.emit("step", {"n": number}) for number in range(3_000)]
    first = journal.batch(1_000)
    assert first is not None
    journal.stored(first)
    journal.batch(1_000)  # not stored yet
    journal.close()

    events = leftover_events(tmp_path)

    assert [event.id for event in events] == [ref.id for ref in refs[len(refs) - len(events) :]]
    assert 1_000 <= len(events) <= 2_001  # plus the frame of the context
    assert leftover_events(tmp_path) == []
    assert list(tmp_path.iterdir()) == []


def test_a_live_writer_is_left_alone(tmp_path: Path) -> None:
    journal = open_journal(tmp_path)
    journal.emit("mine")
    assert leftover_events(tmp_path) == []
    assert [event.name for event in drained(journal)] == ["mine"]
    journal.close()


def test_two_writers_cannot_share_a_folder(tmp_path: Path) -> None:
    one, two = open_journal(tmp_path), open_journal(tmp_path)
    one.emit("first")
    two.writer = one.writer
    with pytest.raises(StoreUnavailable, match="two writers cannot share"):
        two.emit("second")
    one.close()
    two.close()


async def test_a_cancelled_read_hides_no_events_of_dead_writers(tmp_path: Path, home: Settings) -> None:
    """A brief looks for leftover segments only briefly; those claimed meanwhile stay known."""
    path = tmp_path / "space.db"
    async with mica.open(path, settings=home) as memory:
        folder = memory._store.segments
        assert folder is not None
        writer = open_journal(folder)
        for number in range(20_000):
            writer.emit("step", {"n": number})
        writer.close()
        for _ in range(3):
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(memory._log.flush(), 0.001)
        assert (await memory.upkeep.sizes()).events == 20_000
        assert await memory.events.position() == 20_000


def test_an_unused_segment_file_is_removed(tmp_path: Path) -> None:
    path = written(tmp_path)
    (path.parent / f"ffff{SUFFIX}").write_bytes(b"\0" * 100_000)
    (path.parent / f"fffe{UNNAMED}").write_bytes(b"")
    assert len(leftover_events(tmp_path)) == 50
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("content", [b"", b"Mica-seg", b"x" * 100_000])
def test_a_file_that_is_no_longer_a_segment_is_reported_and_not_deleted(tmp_path: Path, content: bytes) -> None:
    """No acknowledged event is deleted unread."""
    path = written(tmp_path)
    path.write_bytes(content)
    [leftover] = leftovers(tmp_path)
    leftover.close()
    [damaged] = tmp_path.rglob("*.damaged")
    assert damaged.read_bytes() == content
    assert str(path) in leftover.damaged[0]


def test_a_damaged_frame_of_a_dead_writer_hides_no_other(tmp_path: Path) -> None:
    """keeps: TB-11. Its place and bytes are reported, and everything after it is stored."""
    path = written(tmp_path)
    body = bytearray(path.read_bytes())
    at = body.index(b"step", body.index(b"step") + 300)
    body[at - 3 : at + 4] = b"\xc1" * 7  # not valid in MessagePack
    path.write_bytes(body)

    [leftover] = leftovers(tmp_path)
    events = drained(leftover)
    leftover.close()

    [refused] = [number for number, event in enumerate(events) if event.name == "event.refused"]
    assert [event.data["n"] for event in events if event.name == "step"] == [n for n in range(50) if n != refused]
    assert "\\xc1" * 7 in str(events[refused].data["frame"])
    assert events[refused].at == events[refused - 1].at  # not the current time: reading it again gives the same
    assert any(f"frame {refused + 1} is damaged" in problem for problem in leftover.damaged)
    assert len(list(tmp_path.rglob("*.damaged"))) == 1


async def test_a_segment_of_an_unknown_version_is_reported_to_readers(
    tmp_path: Path, home: Settings, caplog: pytest.LogCaptureFixture
) -> None:
    """A partial answer names what is missing; otherwise these events would silently disappear."""
    path = written(tmp_path / "space.db-segments")
    change_version(path, 99)

    async with mica.open(tmp_path / "space.db", settings=home) as memory:
        assert await memory.events.query() == []
        assert await memory.events.query() == []

    [message] = [record.getMessage() for record in caplog.records]
    assert "has version 99, this mica knows 3 and 2; upgrade mica" in message


async def test_deleting_the_folder_of_a_live_writer_loses_nothing(tmp_path: Path, home: Settings) -> None:
    """keeps: K-41. Emitted events are mapped in memory and get stored; the next segment recreates the folder."""
    async with mica.open(tmp_path / "space.db", settings=home) as memory:
        first = memory.emit("first")
        shutil.rmtree(tmp_path / "space.db-segments")
        with pytest.raises(StoreUnavailable, match=r"cannot be synced to disk in .* \(No such file or directory\)"):
            await memory.durable()
        await memory.events.position()
        await memory.durable()
        for _ in range(2 * journal_module.EVENTS_FIRST):
            memory.emit("more")
        with pytest.raises(StoreUnavailable):  # the first ones are in the removed file
            await memory.durable()
        await memory.events.position()
        await memory.durable()
        assert (await memory.upkeep.sizes()).events == 1 + 2 * journal_module.EVENTS_FIRST
        assert (await memory.events.get(first)).name == "first"


FEW_FILES = """
import asyncio, resource, sys
import mica

async def main():
    resource.setrlimit(resource.RLIMIT_NOFILE, (200, 200))
    async with mica.open(sys.argv[1]) as memory:
        stored = await memory.events.query(mica.EventQuery(limit=None))
        print(len(stored), memory.upkeep.damaged, await memory.upkeep.backlog())

asyncio.run(main())
"""


def test_leftovers_may_outnumber_the_files_a_process_can_open(tmp_path: Path) -> None:
    """keeps: TE-09. Each killed command leaves a separate folder."""
    folder = tmp_path / "space.db-segments"
    writers = [open_journal(folder) for _ in range(150)]
    for writer in writers:
        writer.emit("left")
        writer.close()

    result = subprocess.run(
        [sys.executable, "-c", FEW_FILES, tmp_path / "space.db"],
        env={**os.environ, "HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )

    assert (result.stdout, result.stderr) == ("150 [] (0, 0)\n", "")


def test_a_segment_that_cannot_be_opened_now_is_not_called_damaged(tmp_path: Path) -> None:
    """A process out of file handles must not hide waiting events from all others."""
    path = written(tmp_path)
    most = resource.getrlimit(resource.RLIMIT_NOFILE)
    highest = max(int(each.name) for each in Path("/proc/self/fd").iterdir())
    resource.setrlimit(resource.RLIMIT_NOFILE, (highest + 4, most[1]))
    descriptors = []
    try:
        with contextlib.suppress(OSError):
            while True:
                descriptors.append(os.open(os.devnull, os.O_RDONLY))
        for _ in range(2):  # enough for the folder, then for the file, but not for its mapping
            os.close(descriptors.pop())
            with pytest.raises(StoreUnavailable, match="Too many open files; it holds events"):
                list(leftovers(tmp_path))
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, most)
        for each in descriptors:
            os.close(each)

    assert path.exists()
    assert leftover_events(tmp_path)


def test_a_lock_without_an_owner_is_freed(monkeypatch: pytest.MonkeyPatch) -> None:
    """An interrupt between taking the lock and using it must not block the process forever."""
    monkeypatch.setattr(emitter_module, "LOCK_PATIENCE_S", 0.01)
    journal = open_journal(None)
    journal.emit("before")
    take = tokens_of(journal).pop
    take()
    journal.emit("after")
    assert [event.name for event in drained(journal)] == ["before", "after"]


OPENERS = """
import asyncio, sys
import mica

async def main():
    for number in range(15):
        async with mica.open(sys.argv[1]) as memory:
            memory.emit("step", {"n": number})
            await memory.events.query()

asyncio.run(main())
"""


async def test_short_lived_processes_do_not_take_each_others_folders(tmp_path: Path, home: Settings) -> None:
    path = tmp_path / "space.db"
    command = [sys.executable, "-c", OPENERS, str(path)]
    children = [
        await asyncio.create_subprocess_exec(
            *command, env={**os.environ, "HOME": str(tmp_path)}, stderr=subprocess.PIPE
        )
        for _ in range(5)
    ]
    complaints = [(await child.communicate())[1] for child in children]
    assert complaints == [b""] * 5
    async with mica.open(path, settings=home) as memory:
        assert len(await memory.events.query(EventQuery(names=("step",), limit=None))) == 75
        assert await memory.upkeep.verify() == []


async def test_a_backlog_is_counted_while_its_writer_is_alive(tmp_path: Path, home: Settings) -> None:
    journal = open_journal(tmp_path / "space.db-segments")
    async with mica.open(tmp_path / "space.db", settings=home) as memory:
        assert (await memory.upkeep.backlog())[0] == 0
        for number in range(10):
            journal.emit("step", {"n": number})
        waiting, size = await memory.upkeep.backlog()
        assert (waiting, size > 0) == (10, True)  # the frame of their context is not an event
        drained(journal)
        assert await memory.upkeep.backlog() == (0, 0)  # an empty segment does not count
    journal.close()


# -- The count of stored events -------------------------------------------------------------------------------


@pytest.mark.parametrize("at", [768, 769, 770, 772, 780, 1_024, 1_025, 1_026, 1_028, 1_036])
async def test_a_flipped_bit_in_the_count_of_stored_events_deletes_none(
    tmp_path: Path, home: Settings, at: int
) -> None:
    """keeps: TB-11, U-04. With 512 more than it counts, the segment would look stored and be removed."""
    for bit in (1, 2, 16, 128):
        path = tmp_path / f"{bit}.db"
        segment = written(path.with_name(f"{path.name}-segments"), 400)
        flip(segment, at, bit)
        async with mica.open(path, settings=home) as memory:
            events = await memory.events.query(EventQuery(limit=None))
            assert [event.data["n"] for event in events] == list(range(400))


async def test_a_wrong_count_of_stored_events_is_found_by_asking_the_store(
    tmp_path: Path, home: Settings, caplog: pytest.LogCaptureFixture
) -> None:
    """keeps: U-04. For example the store was replaced by an old backup. The segment is stored again, and kept aside."""
    folder = tmp_path / "space.db-segments"
    journal = open_journal(folder)
    for number in range(400):
        journal.emit("step", {"n": number})
    writer = journal.writer
    drained(journal)
    keep = tmp_path / "keep"
    shutil.copytree(folder, keep)  # the count is right, and has its checksum
    journal.close()
    shutil.copytree(keep, folder, dirs_exist_ok=True)

    async with mica.open(tmp_path / "space.db", settings=home) as memory:
        events = await memory.events.query(EventQuery(limit=None))
        assert [event.data["n"] for event in events] == list(range(400))
        assert any(
            "401 frames are stored" in problem and "stored again" in problem for problem in memory.upkeep.damaged
        )
    assert len(list(folder.rglob("*.damaged"))) == 1
    assert any(writer in record.getMessage() for record in caplog.records)


async def test_a_segment_stays_while_the_store_cannot_be_asked(tmp_path: Path) -> None:
    """keeps: TE-07"""
    folder = tmp_path / "segments"
    written(folder)
    [leftover] = leftovers(folder)
    drained(leftover)
    leftover._home.forget()  # as if killed before the segment was removed
    [path] = folder.rglob(f"*{SUFFIX}")

    [leftover] = leftovers(folder)
    assert leftover.unconfirmed
    leftover.close()
    assert path.exists()

    [leftover] = leftovers(folder)
    leftover.confirm(leftover.unconfirmed, stored=leftover.unconfirmed)
    leftover.close()
    assert not path.exists()


@pytest.mark.parametrize("is_purged", [False, True])
async def test_purged_and_refused_events_count_as_stored(tmp_path: Path, home: Settings, is_purged: bool) -> None:
    """A tombstone is in the place of a purged event, and a report in that of a refused one."""
    folder, keep = tmp_path / "space.db-segments", tmp_path / "keep"
    journal = open_journal(folder)
    journal.emit("step", {"text": "first"})
    if is_purged:
        journal.emit("step", {"text": "it is swordfish-42"})
    else:
        journal.emit("strange", {"deep": {(1, 2): 3}})
    journal.close()
    shutil.copytree(folder, keep)
    async with mica.open(tmp_path / "space.db", settings=home) as memory:
        assert len(await memory.events.query()) == 2
        if is_purged:
            await memory.purge(value="swordfish-42")
    shutil.copytree(keep, folder, dirs_exist_ok=True)
    [leftover] = leftovers(folder)
    drained(leftover)
    leftover._home.forget()  # killed before the segment was removed

    async with mica.open(tmp_path / "space.db", settings=home) as memory:
        before = len(await memory.events.query(EventQuery(limit=None)))
        assert memory.upkeep.damaged == []
        assert len(await memory.events.query(EventQuery(limit=None))) == before
    assert not list(folder.rglob("*.damaged"))
    assert not list(folder.rglob(f"*{SUFFIX}"))

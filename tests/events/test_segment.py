"""Segments: syncing to disk, preparing pages, and recovering from damage."""

from __future__ import annotations

import asyncio
import gzip
import mmap
import os
import resource
import threading
from pathlib import Path

import pytest
from tests.events.journals import change_version, drained, flip, open_journal, written

import mica
from mica import Context
from mica.events import journal as journal_module
from mica.events import segment as segment_module
from mica.events.journal import Journal
from mica.events.leftovers import WriterFolder, leftovers
from mica.events.segment import SUFFIX
from mica.events.segment_header import HEADER_BYTES
from mica.settings import Settings

FIXTURES = Path(__file__).parents[1] / "fixtures"


async def test_durable_returns_after_a_sync_that_began_after_the_event(
    tmp_path: Path, home: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """keeps: K-41. The event is then on disk and survives power loss."""
    happened: list[str] = []
    sync = os.fdatasync

    def watched(descriptor: int) -> None:
        happened.append("sync")
        sync(descriptor)

    monkeypatch.setattr(os, "fdatasync", watched)
    async with mica.open(tmp_path / "space.db", settings=home) as memory:
        for _ in range(3):
            memory.emit("step")
            happened.append("emitted")
            await memory.durable()
            happened.append("durable")

    for place in [place for place, what in enumerate(happened) if what == "durable"]:
        assert happened[place - 1] == "sync"


async def test_a_sync_that_began_before_the_event_does_not_count(
    tmp_path: Path, home: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """keeps: K-41. Callers may share a sync, but only one that can include their event."""
    begun, may_go_on = asyncio.Event(), threading.Event()
    loop = asyncio.get_running_loop()
    syncs = 0
    sync = os.fdatasync

    def slow(descriptor: int) -> None:
        nonlocal syncs
        syncs += 1
        loop.call_soon_threadsafe(begun.set)
        may_go_on.wait()
        sync(descriptor)

    async with mica.open(tmp_path / "space.db", settings=home) as memory:
        monkeypatch.setattr(os, "fdatasync", slow)
        memory.emit("first")
        first = asyncio.create_task(memory.durable())
        async with asyncio.timeout(20):  # a test that would hang fails after this
            await begun.wait()
        memory.emit("second")
        before = syncs
        second = asyncio.create_task(memory.durable())
        await asyncio.sleep(0)
        may_go_on.set()
        await second
        assert syncs > before
        await first


def can_populate() -> bool:
    """True if this kernel can allocate pages before they are touched."""
    with mmap.mmap(-1, mmap.PAGESIZE) as page:
        try:
            page.madvise(segment_module.POPULATE_WRITE)
        except OSError:
            return False
    return True


class WatchedLock:
    """A lock that sets an event when a thread has to wait for it."""

    def __init__(self, waited_for: threading.Event) -> None:
        self._lock = threading.Lock()
        self._waited_for = waited_for

    def __enter__(self) -> None:
        if not self._lock.acquire(blocking=False):
            self._waited_for.set()
            self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()


def test_preparing_pages_does_not_disturb_concurrent_writers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A sync fills pages ahead with zeros while others emit; no event is written to a page before that."""
    monkeypatch.setattr(segment_module, "PACE_S", -1)
    monkeypatch.setattr(WriterFolder, "has_reserved_space", True)  # also if the tests run on btrfs
    journal = open_journal(tmp_path)
    payloads = [{"n": number, "text": "x" * 300} for number in range(1_000)]
    begun, done = threading.Event(), threading.Event()
    fill = os.pwrite

    def fill_late(descriptor: int, zeros: bytes, at: int) -> int:
        if threading.current_thread() is syncing and not begun.is_set():
            begun.set()
            assert done.wait(60)  # until the emitting thread waits for this, or has finished
        return fill(descriptor, zeros, at)

    monkeypatch.setattr(os, "pwrite", fill_late)
    syncing = threading.Thread(target=journal.sync)
    for data in payloads[:180]:
        journal.emit("step", data)
    monkeypatch.setattr(journal.written, "_preparing", WatchedLock(done))
    syncing.start()
    assert begun.wait(60)
    for data in payloads[180:]:
        journal.emit("step", data)
    done.set()
    syncing.join()

    assert [event.data for event in drained(journal)] == payloads
    journal.close()


def test_a_sync_prepares_the_pages_of_the_next_events(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first write to a synced page faults; this must not happen inside `emit`."""

    def faults_per_round(journal: Journal) -> int:
        """Page faults of 100 emits after a sync: the fewest of five rounds, because others share the machine."""
        faults = []
        for _ in range(6):
            before = resource.getrusage(resource.RUSAGE_THREAD).ru_minflt
            for number in range(100):
                journal.emit("step", {"n": number, "text": "x" * 300})
            faults.append(resource.getrusage(resource.RUSAGE_THREAD).ru_minflt - before)
            journal.sync()
        journal.close()
        return min(faults[1:])

    monkeypatch.setattr(segment_module, "PACE_S", float("inf"))  # never prepares
    unprepared = faults_per_round(open_journal(tmp_path / "unprepared"))
    monkeypatch.setattr(segment_module, "PACE_S", -1)  # always prepares
    prepared = faults_per_round(open_journal(tmp_path / "prepared"))

    # Each round writes eight pages. The interpreter may cause a fault too, so zero cannot be required.
    assert prepared * 4 <= unprepared or not can_populate()


def test_a_truncated_segment_returns_its_intact_frames_and_reports_the_damage(tmp_path: Path) -> None:
    """keeps: TB-11"""
    path = written(tmp_path)
    whole = path.read_bytes()
    cut = whole.index(b"step", whole.index(b"step") + 300)
    path.write_bytes(whole[:cut] + b"\0" * (len(whole) - cut))

    [leftover] = leftovers(tmp_path)
    events = drained(leftover)
    leftover.close()

    assert [event.data["n"] for event in events] == list(range(len(events)))
    assert 0 < len(events) < 50
    assert any("is damaged" in problem for problem in leftover.damaged)
    assert [file.suffix for file in tmp_path.rglob("*.damaged")] == [".damaged"]


def test_a_flipped_bit_in_synced_data_is_reported(tmp_path: Path) -> None:
    path = written(tmp_path)
    body = bytearray(path.read_bytes())
    at = body.index(b"step", body.index(b"step") + 100)
    body[at] ^= 1
    path.write_bytes(body)
    [leftover] = leftovers(tmp_path)
    assert "checksum" in leftover.damaged[0]
    assert len(drained(leftover)) == 50
    leftover.close()


def test_a_segment_with_damaged_first_bytes_is_still_read(tmp_path: Path) -> None:
    path = written(tmp_path)
    body = path.read_bytes()
    path.write_bytes(b"M" + body[1:])
    [leftover] = leftovers(tmp_path)
    assert len(drained(leftover)) == 50
    assert "header is damaged" in leftover.damaged[0]
    leftover.close()
    assert len(list(tmp_path.rglob("*.damaged"))) == 1


def test_a_segment_of_another_version_is_refused_and_not_deleted(tmp_path: Path) -> None:
    path = written(tmp_path)
    change_version(path, 99)
    [leftover] = leftovers(tmp_path)
    assert "version 99" in leftover.damaged[0]
    assert "upgrade" in leftover.damaged[0]
    leftover.close()
    assert path.exists()


@pytest.mark.parametrize("at", [9, 13, 20, 30])
def test_a_damaged_header_is_reported_and_the_other_segments_are_read(tmp_path: Path, at: int) -> None:
    written(tmp_path / "one")
    path = written(tmp_path / "two")
    body = bytearray(path.read_bytes())
    body[at] = 0xFF
    path.write_bytes(body)
    path.parent.rename(tmp_path / "one" / path.parent.name)
    found = list(leftovers(tmp_path / "one"))
    assert len(found) == 2
    assert sum(len(drained(leftover)) for leftover in found) >= 50
    assert any(leftover.damaged for leftover in found)
    for leftover in found:
        leftover.close()


def test_a_damaged_context_hides_no_other_events(tmp_path: Path) -> None:
    journal = open_journal(tmp_path)
    for session in ("aaaa", "bbbb"):
        for number in range(10):
            journal.emit("step", {"n": number}, context=Context(session=session))
    folded = journal.batch(15)
    assert folded is not None
    journal.stored(folded)
    journal.close()
    [path] = tmp_path.rglob(f"*{SUFFIX}")
    body = bytearray(path.read_bytes())
    body[body.index(b"aaaa") - 1] = 0xC1
    path.write_bytes(body)

    [leftover] = leftovers(tmp_path)
    events = drained(leftover)
    leftover.close()

    assert [event.context.session for event in folded.events + events] == ["aaaa"] * 10 + ["bbbb"] * 10


# -- Checksums ------------------------------------------------------------------------------------------------


def problems_in(folder: Path) -> list[str]:
    """What is reported about the segments of dead writers in a folder."""
    problems = []
    for leftover in leftovers(folder):
        drained(leftover)
        problems += leftover.damaged
        leftover.close()
    return problems


def test_a_flipped_bit_between_two_syncs_is_reported(tmp_path: Path) -> None:
    """keeps: U-04. The checksum of the first sync still matches; that of the second does not."""
    journal = open_journal(tmp_path)
    for text in ("first", "second"):
        journal.emit("step", {"text": text})
        journal.sync()
    journal.close()
    [path] = tmp_path.rglob(f"*{SUFFIX}")
    flip(path, path.read_bytes().index(b"second"))

    [problem] = problems_in(tmp_path)

    assert f"{path}: frames 2 to 2 do not match their checksum" in problem
    assert "compare the events" in problem
    assert len(list(tmp_path.rglob("*.damaged"))) == 1


def test_a_flipped_bit_in_the_number_of_a_context_is_reported(tmp_path: Path) -> None:
    """keeps: U-04. The event would be in the session of another agent."""
    journal = open_journal(tmp_path)
    for session in ("aaaa", "bbbb"):
        journal.emit("step", context=Context(session=session))
    journal.sync()
    journal.close()
    [path] = tmp_path.rglob(f"*{SUFFIX}")
    flip(path, HEADER_BYTES + 3 * 8 + 4, 3)  # the last word: context 2 becomes 1

    assert "do not match their checksum" in problems_in(tmp_path)[0]


def test_a_flipped_bit_in_events_that_were_never_synced_is_reported_once_their_segment_is_closed(
    tmp_path: Path,
) -> None:
    path = written(tmp_path, synced=False)
    flip(path, path.read_bytes().index(b"step") + 1)

    assert "do not match their checksum" in problems_in(tmp_path)[0]


def test_frames_are_covered_when_they_are_folded(tmp_path: Path) -> None:
    """A process that is killed afterwards leaves them with a checksum."""
    journal = open_journal(tmp_path / "killed")
    for number in range(50):
        journal.emit("step", {"n": number})
    assert journal.batch(20) is not None
    [path] = tmp_path.rglob(f"*{SUFFIX}")
    left = tmp_path / "left" / path.parent.name / path.name
    left.parent.mkdir(parents=True)
    left.write_bytes(path.read_bytes())
    (left.parent / "lock").touch()
    journal.close()
    flip(left, left.read_bytes().index(b"step") + 1)

    assert "frames 0 to 19 do not match their checksum" in problems_in(tmp_path / "left")[0]


def test_closed_segments_are_covered_while_they_wait(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal_module, "EVENTS_FIRST", 8)
    monkeypatch.setattr(journal_module, "EVENTS_MAX", 8)
    journal = open_journal(tmp_path)
    for number in range(30):
        journal.emit("step", {"n": number})
    for _ in range(4):
        journal.batch(1)
    assert [segment.covered for segment in journal._segments[:-1]] == [8] * (len(journal._segments) - 1)
    journal.close()


def test_a_frame_that_changes_before_it_is_folded_is_reported_and_its_segment_kept(tmp_path: Path) -> None:
    """keeps: U-04. A long-lived process reads synced frames back from the disk, too."""
    journal = open_journal(tmp_path)
    for text in ("first", "second"):
        journal.emit("step", {"text": text})
    journal.sync()
    [path] = tmp_path.rglob(f"*{SUFFIX}")
    flip(path, path.read_bytes().index(b"second"))

    assert len(drained(journal)) == 2
    journal.close()

    [problem] = journal.damaged
    assert f"{path}: frames 0 to 2 do not match their checksum" in problem
    assert len(list(tmp_path.rglob("*.damaged"))) == 1


def test_words_after_a_gap_in_the_spine_are_reported(tmp_path: Path) -> None:
    path = written(tmp_path, synced=False)
    with path.open("r+b") as file:
        file.seek(HEADER_BYTES + 8 * 10)
        file.write(bytes(8))
    assert "frame 10 is damaged" in problems_in(tmp_path)[0]
    assert len(list(tmp_path.rglob("*.damaged"))) == 1


@pytest.mark.parametrize("at", [0, 9, 13, 20, 30, 51, 53])
def test_a_header_with_one_damaged_copy_loses_nothing(tmp_path: Path, at: int) -> None:
    path = written(tmp_path)
    for copy in (at, at + 128):
        left = tmp_path / f"{copy}" / path.parent.name / path.name
        left.parent.mkdir(parents=True)
        left.write_bytes(path.read_bytes())
        (left.parent / "lock").touch()
        flip(left, copy, 0x81)
        [leftover] = leftovers(tmp_path / f"{copy}")
        assert [event.data["n"] for event in drained(leftover)] == list(range(50))
        assert "its header is damaged" in leftover.damaged[0]
        leftover.close()
        assert len(list(left.parent.glob("*.damaged"))) == 1


def test_a_segment_whose_header_is_damaged_twice_is_reported_and_not_deleted(tmp_path: Path) -> None:
    path = written(tmp_path)
    flip(path, 20)
    flip(path, 128 + 20)
    [leftover] = leftovers(tmp_path)
    leftover.close()
    assert f"{path} cannot be read: both copies of its header are damaged" in leftover.damaged[0]
    assert len(list(tmp_path.rglob("*.damaged"))) == 1


def test_a_segment_of_the_version_before_is_read(tmp_path: Path) -> None:
    """keeps: TB-11. `segment-2.gz` was written by that version: 50 events, of which it had stored the first 10."""
    path = tmp_path / "writer" / f"0000000000000001{SUFFIX}"
    path.parent.mkdir()
    (path.parent / "lock").touch()
    path.write_bytes(gzip.decompress((FIXTURES / "segment-2.gz").read_bytes()))
    [leftover] = leftovers(tmp_path)
    leftover.confirm(leftover.unconfirmed, stored=leftover.unconfirmed)
    events = drained(leftover)
    leftover.close()

    assert leftover.damaged == []
    assert [event.data["n"] for event in events] == list(range(10, 50))
    assert {event.context.session for event in events} == {"s1", "s2"}
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("at", [0, 9, 30, 4_100, 4_096 + 8 * 4_096 + 700])
def test_damage_in_a_segment_of_the_version_before_is_reported(tmp_path: Path, at: int) -> None:
    path = tmp_path / "writer" / f"0000000000000001{SUFFIX}"
    path.parent.mkdir()
    (path.parent / "lock").touch()
    path.write_bytes(gzip.decompress((FIXTURES / "segment-2.gz").read_bytes()))
    flip(path, at, 0x80)
    [leftover] = leftovers(tmp_path)
    leftover.confirm(leftover.unconfirmed, stored=leftover.unconfirmed)
    drained(leftover)
    leftover.close()
    assert leftover.damaged
    assert path.exists() or list(tmp_path.rglob("*.damaged"))

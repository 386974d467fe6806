"""The journal: acknowledged events survive `kill -9`, none is lost, doubled or merged, and no file is left behind."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import mmap
import os
import random
import signal
import subprocess
import sys
import threading
import tracemalloc
from collections.abc import Callable, Coroutine
from datetime import UTC, datetime, timedelta, tzinfo
from pathlib import Path
from types import CodeType, FrameType

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.events.journals import drained, leftover_events, open_journal, tokens_of, written

import mica
from mica import Context, EventQuery, Memory
from mica.errors import Backlogged, InvalidContext, InvalidEvent, StoreFull, StoreUnavailable
from mica.events import emitter as emitter_module
from mica.events import journal as journal_module
from mica.events.journal import Journal
from mica.events.leftovers import WriterFolder, leftovers
from mica.events.segment import SUFFIX
from mica.model.event import NESTING_MAX, Descent, Event, Ref, WriterId, encode_data, new_writer
from mica.settings import Settings


@given(
    names=st.lists(st.sampled_from(["a", "file.read", "mark"]), max_size=60),
    capacity=st.integers(2, 8),
    room=st.integers(64, 400),
    folds=st.sets(st.integers(0, 60)),
)
def test_events_come_back_in_order_across_segments(names: list[str], capacity: int, room: int, folds: set[int]) -> None:
    """keeps: TE-05. This holds for any interleaving of emitting, rolling and folding; sequence numbers only grow."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(journal_module, "EVENTS_FIRST", capacity)
        patch.setattr(journal_module, "EVENTS_MAX", capacity)
        patch.setattr(journal_module, "HEAP_BYTES_FIRST", room)
        patch.setattr(journal_module, "HEAP_BYTES_MAX", room)
        journal = open_journal(None)
        emitted: list[tuple[Ref, str, object]] = []
        read: list[Event] = []
        for number, name in enumerate(names):
            context = Context(session=f"s{number % 3}")
            data = {"n": number, "text": "x" * (number * 7 % 90)}
            parent = emitted[-1][0] if emitted and number % 4 == 0 else None
            emitted.append((journal.emit(name, data, context=context, parent=parent), name, data))
            if number in folds:
                read += drained(journal)
        read += drained(journal)
        assert [(event.ref, event.name, event.data) for event in read] == emitted
        assert [event.context.session for event in read] == [f"s{number % 3}" for number in range(len(names))]
        assert journal.waiting == 0
        journal.close()


def test_a_frame_larger_than_a_segment_gets_its_own_segment(tmp_path: Path) -> None:
    journal = open_journal(tmp_path)
    journal.emit("small")
    journal.emit("large", {"text": "x" * 5_000_000})
    journal.emit("small")
    assert [len(event.body) for event in drained(journal)] == [2, 5_000_011, 2]
    journal.close()
    assert list(tmp_path.rglob("*")) == []


def test_large_data_is_encoded_as_json_when_emitted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Decoding 50 MB in the fold would block the event loop; the emitting code pays instead."""
    monkeypatch.setattr(emitter_module, "LARGE_BYTES", 1_000)
    journal = open_journal(None)
    payloads: list[dict[str, object]] = [{"n": 1}, {"rows": [{"n": n, "text": "ü\n"} for n in range(200)]}, {"n": 2}]
    for data in payloads:
        journal.emit("step", data)
    with pytest.raises(InvalidEvent, match="number that JSON cannot hold"):
        journal.emit("step", {"text": "x" * 2_000, "n": float("nan")})
    with pytest.raises(InvalidEvent, match="keys must be strings"):
        journal.emit("step", {1: "x" * 2_000})  # type: ignore[dict-item]  # what a caller may do
    [segment] = journal._segments
    frames = segment.frames(0, segment.count_committed())
    assert [msgspec.msgpack.decode(frame.data) for frame in frames[1:]] == [
        payloads[0],
        encode_data("", payloads[1]),
        payloads[2],
    ]
    assert [event.data for event in drained(journal)] == payloads
    journal.close()


@given(
    data=st.lists(
        st.dictionaries(
            st.text(max_size=3),
            st.none() | st.integers(-(2**70), 2**70) | st.floats(allow_nan=False) | st.text() | st.binary(),
            max_size=3,
        ),
        max_size=12,
    ),
    large=st.integers(1, 60),
)
def test_a_batch_reads_the_same_as_single_frames(data: list[dict[str, object]], large: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(emitter_module, "LARGE_BYTES", large)
        journal = open_journal(None)
        parent = None
        for number, each in enumerate(data):
            try:
                parent = journal.emit(f"step.{number}", each, parent=parent, error=number % 3 == 0)
            except InvalidEvent:
                continue
        if segments := journal._segments:
            [segment] = segments
            count = segment.count_committed()
            alone = [segment.event(index, frame) for index, frame in enumerate(segment.frames(0, count)) if index]
            assert segment._read_together(0, count) == alone
        journal.close()


def test_a_folded_journal_leaves_no_file(tmp_path: Path) -> None:
    journal = open_journal(tmp_path)
    for number in range(5_000):
        journal.emit("step", {"n": number})
    assert len(list(tmp_path.rglob(f"*{SUFFIX}"))) > 1
    assert len(drained(journal)) == 5_000
    assert len(list(tmp_path.rglob(f"*{SUFFIX}"))) == 1
    journal.close()
    assert list(tmp_path.rglob("*")) == []


def test_concurrent_threads_lose_and_merge_no_events() -> None:
    journal = open_journal(None)

    def work(number: int) -> None:
        for step in range(2_000):
            journal.emit("step", {"n": number * 2_000 + step}, context=Context(agent=f"a{number}"))

    threads = [threading.Thread(target=work, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    seen: list[Event] = []
    while any(thread.is_alive() for thread in threads):
        seen += drained(journal)
    for thread in threads:
        thread.join()
    seen += drained(journal)
    assert sorted(int(str(event.data["n"])) for event in seen) == list(range(12_000))
    assert all(event.context.agent == f"a{int(str(event.data['n'])) // 2_000}" for event in seen)
    assert len({event.id for event in seen}) == 12_000


def test_concurrent_sync_and_fold_see_the_same_events(tmp_path: Path) -> None:
    journal = open_journal(tmp_path)
    stop = threading.Event()
    problems: list[BaseException] = []

    def keep_syncing() -> None:
        try:
            while not stop.is_set():
                journal.sync()
        except BaseException as error:  # noqa: BLE001 - asserted below
            problems.append(error)

    threads = [threading.Thread(target=keep_syncing) for _ in range(2)]
    for thread in threads:
        thread.start()
    seen = 0
    for number in range(40_000):
        journal.emit("step", {"n": number})
        if number % 3_000 == 0:
            seen += len(drained(journal))
    stop.set()
    for thread in threads:
        thread.join()
    seen += len(drained(journal))
    journal.close()
    assert problems == []
    assert seen == 40_000


def test_a_signal_handler_may_emit_at_any_moment() -> None:
    """The interrupted emit and the one inside it are both complete."""
    journal = open_journal(None)
    numbers = itertools.count()
    handled = 0

    def on_signal(*_: object) -> None:
        nonlocal handled
        handled = max(handled, (number := next(numbers)) + 1)
        journal.emit("handled", {"n": number})

    before = signal.signal(signal.SIGALRM, on_signal)
    signal.setitimer(signal.ITIMER_REAL, 0.002, 0.002)
    try:
        count = 0
        while handled < 100:
            journal.emit("step", {"n": count})
            count += 1
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    events = drained(journal)
    assert sorted(int(str(e.data["n"])) for e in events if e.name == "step") == list(range(count))
    assert sorted(int(str(e.data["n"])) for e in events if e.name == "handled") == list(range(handled))
    assert len({event.id for event in events}) == len(events)


@pytest.mark.parametrize("moment", [function.__code__ for function in (Journal.within, Journal.__init__, new_writer)])
def test_an_emit_that_interrupts_the_setup_of_a_nested_journal_is_recorded(moment: CodeType) -> None:
    """Two emits run inside a third, one while the other creates the nested journal; both are recorded."""
    journal = open_journal(None)
    refs = interrupted(journal, lambda code: code is moment)

    assert sorted(event.name for event in drained(journal)) == ["inner", "innermost", "outer"]
    assert len({ref.id for ref in refs}) == 3


def test_an_emit_that_interrupts_a_waiting_emit_does_not_deadlock() -> None:
    """A third emit interrupts a nested one while it detects that it is nested."""
    journal = open_journal(None)
    outer, *inner = interrupted(journal, lambda code: code.co_name == "token")

    assert len(inner) == 2
    assert all(ref.writer != outer.writer for ref in inner)
    assert len(drained(journal)) == 3


def interrupted(journal: Journal, is_moment: Callable[[CodeType], bool]) -> list[Ref]:
    """The ids of an emit, one nested in it, and one that interrupts the nested one; outermost first."""
    inner: list[Ref] = []

    class Zone(tzinfo):
        def utcoffset(self, _: datetime | None) -> timedelta:
            if not inner:
                inner.append(journal.emit("inner"))
            return timedelta(0)

        def dst(self, _: datetime | None) -> None:
            return None

        def tzname(self, _: datetime | None) -> None:
            return None

    def interrupt(frame: FrameType, event: str, _: object) -> None:
        if event == "call" and is_moment(frame.f_code):
            sys.setprofile(None)
            inner.append(journal.emit("innermost"))

    sys.setprofile(interrupt)
    try:
        outer = journal.emit("outer", at=datetime(2026, 11, 1, tzinfo=Zone()))
    finally:
        sys.setprofile(None)
    return [outer, *inner]


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # only a callback is interrupted
@pytest.mark.parametrize("place", ["memory", "mapped", "file"])
def test_an_interrupt_at_any_moment_leaves_no_gap_and_merges_no_events(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    """An exception raised inside emit, even while a folder, segment or context is made, loses at most that event;

    later emits work.
    """
    for name, value in (
        ("EVENTS_FIRST", 64),
        ("EVENTS_MAX", 64),
        ("HEAP_BYTES_FIRST", 2**14),
        ("HEAP_BYTES_MAX", 2**14),
    ):
        monkeypatch.setattr(journal_module, name, value)
    monkeypatch.setattr(WriterFolder, "has_reserved_space", place == "mapped")
    journal = open_journal(None if place == "memory" else tmp_path)

    class Stop(Exception):
        pass

    def on_signal(*_: object) -> None:
        raise Stop

    before = signal.signal(signal.SIGALRM, on_signal)
    returned: list[int] = []
    number = interrupts = 0
    try:
        while interrupts < 150:
            try:
                signal.setitimer(signal.ITIMER_REAL, random.uniform(0.00001, 0.0005))
                for _ in range(1_000):
                    number += 1
                    journal.emit("step", {"n": number}, context=Context(session=f"s{number // 8}"))
                    returned.append(number)
            except Stop:
                interrupts += 1
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    journal.emit("last", {"n": number + 1}, context=Context(session=f"s{(number + 1) // 8}"))
    events = drained(journal)
    seen = [int(str(event.data["n"])) for event in events]
    assert seen == sorted(set(seen))
    assert {*returned, number + 1} <= set(seen)
    assert all(event.context.session == f"s{int(str(event.data['n'])) // 8}" for event in events)
    journal.close()


@pytest.mark.parametrize("problem", [KeyboardInterrupt, ValueError])
def test_an_exception_while_a_ref_is_made_leaves_no_gap_and_merges_no_events(
    monkeypatch: pytest.MonkeyPatch, problem: type[BaseException]
) -> None:
    """A signal handler may raise any exception there, even one that `emit` treats as unsuitable data."""
    journal = open_journal(None)
    refs = [journal.emit("before")]
    raised = [problem]

    def made(writer: WriterId, sequence: int, descent: Descent) -> Ref:
        if raised:
            raise raised.pop()
        return Ref(writer, sequence, descent)

    monkeypatch.setattr(emitter_module, "Ref", made)
    with contextlib.suppress(problem):
        refs.append(journal.emit("struck"))
    refs.append(journal.emit("after"))
    events = [(event.id, event.name) for event in drained(journal)]
    assert [name for _, name in events] in (["before", "after"], ["before", "struck", "after"])
    assert {ref.id for ref in refs} <= {identifier for identifier, _ in events}


@pytest.mark.parametrize("step", ["move", "write_slowly", "roll", "scope_of", "write"])
def test_an_interrupt_at_the_start_of_a_step_releases_the_lock(step: str) -> None:
    """Otherwise the next emit would wait a second before it notices that the lock has no owner."""
    journal = open_journal(None)

    def interrupt(frame: FrameType, event: str, _: object) -> None:
        code = frame.f_code
        if event == "call" and (code.co_filename, code.co_name) == (emitter_module.__file__, step):
            raise KeyboardInterrupt

    sys.setprofile(interrupt)
    try:
        with pytest.raises(KeyboardInterrupt):
            journal.emit("struck", {"large": 2**70}, context=Context(session="s1"))
    finally:
        sys.setprofile(None)
    assert len(tokens_of(journal)) == 1
    journal.emit("after")
    assert [event.name for event in drained(journal)] == ["after"]


@pytest.mark.parametrize("step", ["roll", "size_bytes"])
def test_an_interrupt_during_a_segment_change_loses_nothing(tmp_path: Path, step: str) -> None:
    """A small event may still fit into the earlier segment and must not be lost when that one is stored."""
    journal = open_journal(tmp_path)
    large = {"text": "x" * (journal_module.HEAP_BYTES_FIRST - 4_096)}
    journal.emit("before", large, context=Context(session="s1"))

    def interrupt(frame: FrameType, event: str, _: object) -> None:
        by = frame.f_back.f_code if frame.f_back is not None else None
        is_turning = by is not None and (by.co_filename, by.co_name) == (emitter_module.__file__, "roll")
        if event == "return" and is_turning and frame.f_code.co_name == step:
            raise KeyboardInterrupt

    sys.setprofile(interrupt)
    try:
        with pytest.raises(KeyboardInterrupt):
            journal.emit("struck", large)
    finally:
        sys.setprofile(None)
    assert [event.name for event in drained(journal)] == ["before"]
    journal.emit("small", context=Context(session="s2"))
    journal.emit("small", context=Context(session="s1"))
    waiting = [event for segment, first, last in journal.unfolded() for event in segment.read(first, last)]
    names = [(event.name, event.context.session) for event in waiting]
    assert names == [("small", "s2"), ("small", "s1")]
    journal.emit("large", large)
    assert [event.name for event in drained(journal)] == ["small", "small", "large"]
    journal.close()
    assert leftover_events(tmp_path) == []


def test_an_interrupted_creation_of_a_folder_or_segment_is_retried(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(WriterFolder, "has_reserved_space", True)  # also if the tests run on btrfs
    journal = open_journal(tmp_path)

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    for module, name in ((Path, "rename"), (os, "posix_fallocate"), (mmap, "mmap")):
        monkeypatch.setattr(module, name, interrupted)
        with pytest.raises(KeyboardInterrupt):
            journal.emit("refused")
        monkeypatch.undo()
        monkeypatch.setattr(WriterFolder, "has_reserved_space", True)
    journal.emit("taken")
    assert [event.name for event in drained(journal)] == ["taken"]
    journal.close()


def test_a_lost_token_is_recovered_once_by_several_waiters(monkeypatch: pytest.MonkeyPatch) -> None:
    """With two tokens, two threads would write at once."""
    monkeypatch.setattr(emitter_module, "LOCK_PATIENCE_S", 0.02)
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        for _ in range(20):
            journal = open_journal(None)
            journal.emit("before")
            take = tokens_of(journal).pop
            take()
            threads = [threading.Thread(target=journal.emit, args=(f"t{number}",), daemon=True) for number in range(24)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join(60)
            names = {event.name for event in drained(journal)}
            assert names == {"before", *(f"t{number}" for number in range(24))}
            assert len(tokens_of(journal)) == 1
    finally:
        sys.setswitchinterval(interval)


def nested(levels: int) -> dict[str, object]:
    inner: object = []
    for _ in range(levels - 2):
        inner = [inner]
    return {"deep": inner}


def test_data_nested_too_deeply_is_refused_before_anything_is_written() -> None:
    """Accepted data can always be read, at any stack depth of the reader."""
    journal = open_journal(None)
    journal.emit("deep", nested(NESTING_MAX))
    with pytest.raises(InvalidEvent, match="nested over 400 levels deep"):
        journal.emit("deeper", nested(NESTING_MAX + 1))
    with pytest.raises(InvalidEvent, match="nested over 400 levels deep"):
        encode_data("deeper", nested(NESTING_MAX + 1))
    [event] = drained(journal)
    assert event.data == nested(NESTING_MAX)


def test_an_unreadable_frame_is_reported_and_blocks_no_other() -> None:
    journal = open_journal(None)
    journal.emit("before")
    journal.emit("odd", {"raw": msgspec.Raw(b"\xc1")})  # copied unchanged
    journal.emit("after")
    events = drained(journal)
    assert [event.name for event in events] == ["before", "event.refused", "after"]
    assert "cannot be read" in str(events[1].data["text"])
    assert "c1" in str(events[1].data["frame"])


async def test_emit_works_after_its_loop_has_closed(tmp_path: Path, home: Settings) -> None:
    """A committed event is not reported as failed."""
    path = tmp_path / "space.db"

    async def opened() -> mica.Memory:
        memory = await mica.open(path, settings=home)
        memory.emit("first")
        await memory.events.position()
        return memory

    memory = await asyncio.to_thread(asyncio.run, opened())
    assert memory.emit("second").sequence
    memory._journal.close()
    async with mica.open(path, settings=home) as again:
        assert [event.name for event in await again.events.query()] == ["first", "second"]


async def test_use_from_another_event_loop_gets_a_clear_error(tmp_path: Path, home: Settings) -> None:
    """keeps: E-33. Python's own message, `got Future attached to a different loop`, does not help the caller."""
    async with mica.open(tmp_path / "space.db", settings=home) as memory:
        calls: list[Coroutine[object, object, object]] = [
            memory.events.query(),
            memory.events.position(),
            memory.close(),
        ]
        for each in calls:
            with pytest.raises(StoreUnavailable, match="opened in another event loop"):
                await asyncio.to_thread(asyncio.run, each)
        memory.emit("still.here")
        assert [event.name for event in await memory.events.query()] == ["still.here"]


def test_a_memory_can_be_closed_after_its_loop(tmp_path: Path, home: Settings) -> None:
    async def opened() -> Memory:
        memory = await mica.open(tmp_path / "space.db", settings=home)
        memory.emit("kept")
        return memory

    memory = asyncio.run(opened())
    with pytest.raises(StoreUnavailable, match="opened in another event loop"):
        asyncio.run(memory.events.query())
    asyncio.run(memory.close())

    async def names() -> list[str]:
        async with mica.open(tmp_path / "space.db", settings=home) as again:
            return [event.name for event in await again.events.query()]

    assert asyncio.run(names()) == ["kept"]


def test_a_forked_child_is_a_separate_writer(tmp_path: Path) -> None:
    journal = open_journal(tmp_path)
    journal.emit("before")
    child = os.fork()
    if child == 0:
        try:
            for number in range(100):
                journal.emit("in.child", {"n": number})
        finally:
            os._exit(0)
    for number in range(100):
        journal.emit("in.parent", {"n": number})
    os.waitpid(child, 0)
    own = drained(journal)
    journal.close()
    assert [event.name for event in own] == ["before"] + ["in.parent"] * 100
    assert [event.data["n"] for event in leftover_events(tmp_path)] == list(range(100))


def test_a_full_disk_is_an_error_before_anything_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(WriterFolder, "has_reserved_space", True)  # also if the tests run on btrfs
    journal = open_journal(tmp_path)
    journal.emit("kept")

    def refuse(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", refuse)
    with pytest.raises(StoreFull, match="No space left"):
        journal.emit("large", {"text": "x" * 2_000_000})
    monkeypatch.undo()
    journal.emit("after")
    assert [event.name for event in drained(journal)] == ["kept", "after"]
    journal.close()


def test_the_journal_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal_module, "JOURNAL_BYTES_MAX", 1_000_000)
    journal = open_journal(tmp_path)
    emitted = 0
    while True:
        try:
            journal.emit("step", {"n": emitted})
        except Backlogged as error:
            assert "mica doctor" in str(error)  # noqa: PT017 - it ends the loop
            break
        emitted += 1
    assert len(drained(journal)) == emitted
    journal.emit("again")
    journal.close()


def test_memory_use_stays_flat() -> None:
    """keeps: TE-12. No memory is held per event."""
    journal = open_journal(None)

    def work() -> None:
        for number in range(30_000):
            journal.emit("step", {"n": number}, context=Context(session=f"s{number // 8}"))
        drained(journal)

    work()
    tracemalloc.start()
    before, _ = tracemalloc.get_traced_memory()
    for _ in range(3):
        work()
    after, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert after - before < 8_000_000
    journal.close()


# -- Damage ---------------------------------------------------------------------------------------------------


def test_a_synced_journal_is_complete(tmp_path: Path) -> None:
    written(tmp_path)
    [leftover] = leftovers(tmp_path)
    assert leftover.damaged == []
    assert [last - first for _, first, last in leftover.unfolded()] == [51]  # including the frame of the context
    leftover.close()
    assert len(leftover_events(tmp_path)) == 50


async def test_the_text_of_a_damaged_frame_can_be_purged(tmp_path: Path, home: Settings) -> None:
    """Its bytes are stored as text, which a purge finds."""
    folder = tmp_path / "space.db-segments"
    journal = open_journal(folder)
    for text in ("one", "it is swordfish-42", "three"):
        journal.emit("step", {"text": text})
    journal.close()
    [path] = folder.rglob(f"*{SUFFIX}")
    body = bytearray(path.read_bytes())
    at = body.rindex(b"step", 0, body.index(b"swordfish"))
    body[at - 3 : at + 4] = b"\xc1" * 7
    path.write_bytes(body)

    async with mica.open(tmp_path / "space.db", settings=home) as memory:
        assert [event.name for event in await memory.events.query()] == ["step", "event.refused", "step"]
        await memory.purge(value="swordfish-42")
        assert "swordfish" not in b"".join(event.body for event in await memory.events.query()).decode()


async def test_events_after_a_refused_one_survive_a_kill(tmp_path: Path, home: Settings) -> None:
    journal = open_journal(tmp_path / "space.db-segments")
    journal.emit("one")
    journal.emit("strange", {"deep": {(1, 2): 3}})
    for number in range(10):
        journal.emit("good", {"n": number})
    journal.close()
    async with mica.open(tmp_path / "space.db", settings=home) as memory:
        names = [event.name for event in await memory.events.query()]
        assert names == ["one", "event.refused"] + ["good"] * 10
        assert memory.upkeep.damaged == []


@pytest.mark.parametrize(
    ("context", "message"),
    [
        (Context(session=5), "session=5"),  # type: ignore[arg-type]  # the point
        (Context(agent=""), "agent has 0 characters"),
        (Context(task="x" * 5_000), "task has 5,000 characters"),
        (Context(user="\ud800"), "not valid Unicode"),
        (Context(labels=(("tags", ["a"]),)), "tags="),  # type: ignore[arg-type]  # the point
        (Context(labels=(("shard", None),)), "shard=None"),  # type: ignore[arg-type]  # the point
    ],
)
def test_a_context_of_wrong_types_is_refused_before_anything_is_written(context: Context, message: str) -> None:
    journal = open_journal(None)
    for _ in range(2):  # the second time like the first
        with pytest.raises(InvalidContext, match=message):
            journal.emit("x", context=context)
    journal.emit("after")
    assert [event.name for event in drained(journal)] == ["after"]


@pytest.mark.parametrize("context", ["s1", {"session": "s1"}, 5])
def test_an_invalid_context_or_time_is_refused_before_anything_is_written(context: object) -> None:
    journal = open_journal(None)
    journal.emit("x")
    with pytest.raises(InvalidContext, match=r"is not a context; pass mica\.Context"):
        journal.emit("x", context=context)  # type: ignore[arg-type]  # it is what must be refused
    with pytest.raises(InvalidEvent, match="is dated '2020', which is not a time"):
        journal.emit("x", at="2020")  # type: ignore[arg-type]  # it is what must be refused
    journal.emit("x")
    assert [event.name for event in drained(journal)] == ["x", "x"]


def test_times_in_the_far_past_or_future_are_recorded() -> None:
    journal = open_journal(None)
    for year in (1, 1600, 2600, 9999):
        journal.emit("x", at=datetime(year, 1, 1, tzinfo=UTC))
    assert [event.at.year for event in drained(journal)] == [1, 1600, 2600, 9999]


async def test_a_parent_reads_the_events_of_its_forked_child(tmp_path: Path, home: Settings) -> None:
    async with mica.open(tmp_path / "space.db", settings=home) as memory:
        memory.emit("before")
        await memory.events.query()
        child = os.fork()
        if child == 0:
            try:
                memory.emit("in.child")
            finally:
                os._exit(0)
        os.waitpid(child, 0)
        assert [event.name for event in await memory.events.query()] == ["before", "in.child"]


def test_a_forked_child_may_close_its_parents_memory(tmp_path: Path) -> None:
    """keeps: E-33. The parent's loop and threads do not exist in the child; using them would hang or raise."""
    script = """if True:
        import asyncio, os, sys
        import mica

        async def main():
            async with mica.open(sys.argv[1]) as memory:
                memory.emit("before")
                await memory.events.query()
                if (child := os.fork()) == 0:
                    memory.emit("in.child")
                    await memory.durable()
                    try:
                        await memory.events.query()
                    except mica.StoreUnavailable as error:
                        print(error, flush=True)
                    await memory.close()
                    os._exit(0)
                print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
                print([event.name for event in await memory.events.query()])

        asyncio.run(main())
    """
    command = [sys.executable, "-c", script, str(tmp_path / "space.db")]

    result = subprocess.run(
        command, env={**os.environ, "HOME": str(tmp_path)}, capture_output=True, text=True, check=False, timeout=60
    )

    assert result.stderr == ""
    refused, status, names = result.stdout.splitlines()
    assert refused.endswith("open the space again in this process")
    assert (status, names) == ("0", "['before', 'in.child']")


# -- End to end -----------------------------------------------------------------------------------------------

KILLED = """
import asyncio, sys
import mica

async def main():
    memory = await mica.open(sys.argv[1])
    number = 0
    while True:
        for _ in range(25):
            memory.emit("step", {"n": number})
            number += 1
        print(number, flush=True)
        if number % 200 == 0:
            await memory.durable()
        await asyncio.sleep(0)

asyncio.run(main())
"""


@pytest.mark.parametrize("lines", [1, 3, 20, 90, 400])
async def test_every_event_that_emit_returned_survives_kill_9(tmp_path: Path, home: Settings, lines: int) -> None:
    """keeps: TB-11, E-04, E-13, TE-07, K-41.

    A process that acknowledges by pipe is killed while emitting, rolling and folding; no event is lost.
    """
    path = tmp_path / "space.db"
    child = await asyncio.create_subprocess_exec(
        sys.executable, "-c", KILLED, path, stdout=subprocess.PIPE, env={"HOME": str(tmp_path)}
    )
    assert child.stdout is not None
    for _ in range(lines):
        await child.stdout.readline()
    child.kill()
    rest = await child.stdout.read()
    await child.wait()
    acknowledged = max([lines * 25, *(int(line) for line in rest.split()[:-1])])

    async with mica.open(path, settings=home) as memory:
        events = await memory.events.query(EventQuery(names=("step",), limit=None))
        numbers = [event.data["n"] for event in sorted(events, key=lambda event: event.id)]
        assert numbers == list(range(len(numbers)))
        assert len(numbers) >= acknowledged
        assert await memory.upkeep.verify() == []
    assert not (tmp_path / "space.db-segments").exists() or not list((tmp_path / "space.db-segments").iterdir())


async def test_events_that_are_not_written_through_a_mapping_survive_kill_9(tmp_path: Path, home: Settings) -> None:
    """keeps: K-41. The writing process has no `posix_fallocate`, as on macOS."""
    script = f"import os\ndel os.posix_fallocate\n{KILLED}"
    path = tmp_path / "space.db"
    child = await asyncio.create_subprocess_exec(
        sys.executable, "-c", script, path, stdout=subprocess.PIPE, env={"HOME": str(tmp_path)}
    )
    assert child.stdout is not None
    for _ in range(100):
        await child.stdout.readline()
    child.kill()
    rest = await child.stdout.read()
    await child.wait()
    acknowledged = max([100 * 25, *(int(line) for line in rest.split()[:-1])])

    async with mica.open(path, settings=home) as memory:
        events = await memory.events.query(EventQuery(names=("step",), limit=None))
        numbers = [event.data["n"] for event in sorted(events, key=lambda event: event.id)]
        assert numbers == list(range(len(numbers)))
        assert len(numbers) >= acknowledged
        assert memory.upkeep.damaged == []


async def test_events_survive_an_unavailable_store_until_the_next_open(
    tmp_path: Path, home: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """keeps: E-04, U-04"""
    path = tmp_path / "space.db"
    memory = await mica.open(path, settings=home)

    async def fail(_: object) -> None:
        raise StoreUnavailable("gone")

    monkeypatch.setattr(memory._log._folding, "_append", fail)
    for number in range(3_000):
        memory.emit("step", {"n": number})
    await memory.durable()
    await memory.close()
    assert list((tmp_path / "space.db-segments").rglob(f"*{SUFFIX}"))

    async with mica.open(path, settings=home) as again:
        events = await again.events.query(EventQuery(limit=None))
    assert [event.data["n"] for event in events] == list(range(3_000))


async def test_many_waiters_share_syncs(memory: Memory) -> None:
    async def one(number: int) -> None:
        memory.emit("step", {"n": number})
        await memory.durable()

    await asyncio.gather(*(one(number) for number in range(200)))
    assert len(await memory.events.query(EventQuery(limit=None))) == 200


# -- Failing disks --------------------------------------------------------------------------------------------


async def test_a_failed_sync_fails_every_later_one_until_its_events_are_stored(
    tmp_path: Path, home: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """keeps: K-41, U-04. After an error the system may drop what it could not write, and call the next sync done."""
    fails = True
    sync, append = os.fdatasync, None

    def failing(descriptor: int) -> None:
        if fails:
            raise OSError(5, "Input/output error")
        sync(descriptor)

    async def away(_: object) -> None:
        raise StoreUnavailable("gone")

    monkeypatch.setattr(os, "fdatasync", failing)
    async with mica.open(tmp_path / "space.db", settings=home) as memory:
        append = memory._log._folding._append
        monkeypatch.setattr(memory._log._folding, "_append", away)
        memory.emit("dropped")
        with pytest.raises(StoreUnavailable, match="Input/output error"):
            await memory.durable()
        fails = False
        memory.emit("later")
        for _ in range(2):
            with pytest.raises(StoreUnavailable, match="an earlier sync failed: Input/output error"):
                await memory.durable()
        assert len(list(tmp_path.rglob(f"*{SUFFIX}"))) == 2  # the later event is in a new segment

        monkeypatch.setattr(memory._log._folding, "_append", append)
        assert await memory.events.position() == 2
        memory.emit("safe")
        await memory.durable()
        assert [event.name for event in await memory.events.query()] == ["dropped", "later", "safe"]


def test_events_are_durable_in_a_new_segment_after_a_failed_sync(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal = open_journal(tmp_path)
    journal.emit("dropped")
    with monkeypatch.context() as patch:
        patch.setattr(os, "fdatasync", _fail)
        with pytest.raises(StoreUnavailable):
            journal.sync()
    drained(journal)
    journal.emit("after")
    journal.sync()
    [leftover_path] = tmp_path.rglob(f"*{SUFFIX}")
    assert b"after" in leftover_path.read_bytes()
    journal.close()


def _fail(_: int) -> None:
    raise OSError(5, "Input/output error")


def test_the_folders_that_lead_to_a_new_segment_are_synced_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """keeps: K-41. Without this, power loss may remove the name of a folder whose files were synced."""
    synced: list[int] = []
    sync = os.fsync

    def watched(descriptor: int) -> None:
        synced.append(os.fstat(descriptor).st_ino)
        sync(descriptor)

    monkeypatch.setattr(os, "fsync", watched)
    folder = tmp_path / "new" / "segments"
    journal = open_journal(folder)
    for _ in range(3):
        journal.emit("step")
        journal.sync()
    assert sorted(synced) == sorted(
        path.stat().st_ino for path in (tmp_path, folder.parent, folder, folder / journal.writer)
    )
    journal.close()


def test_a_folder_that_cannot_be_synced_is_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    journal = open_journal(tmp_path / "segments")
    journal.emit("step")
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", _fail)
        with pytest.raises(StoreUnavailable, match="Input/output error"):
            journal.sync()
    journal.sync()
    journal.close()

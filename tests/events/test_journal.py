"""The journal: what emit returned survives kill -9, nothing is lost, doubled or glued, and nothing is left behind."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import mmap
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import threading
import tracemalloc
from collections.abc import Callable, Coroutine
from datetime import UTC, datetime, timedelta, tzinfo
from pathlib import Path
from types import CodeType, FrameType, FunctionType
from typing import cast

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

import mica
from mica import Context, EventQuery, Memory
from mica.errors import Backlogged, InvalidContext, InvalidEvent, StoreFull, StoreUnavailable
from mica.events import emitter as emitter_module
from mica.events import journal as journal_module
from mica.events import segment as segment_module
from mica.events.context import Here
from mica.events.journal import Journal
from mica.events.leftovers import Leftover, leftovers
from mica.events.segment import SUFFIX, UNNAMED
from mica.model.event import NESTING_MAX, Descent, Event, Ref, WriterId, encode_data, new_writer
from mica.settings import Settings


def open_journal(folder: Path | None) -> Journal:
    return Journal(folder, space="test", base=Here(), clock=None, wake=lambda: None)


def drained(waiting: Journal | Leftover) -> list[Event]:
    """Everything that waits, as a store that takes it would be given it."""
    found: list[Event] = []
    while (batch := waiting.batch(100)) is not None:
        found += batch.events
        waiting.stored(batch)
    return found


def left(folder: Path) -> list[Event]:
    """What dead writers left in a folder; folding it removes it."""
    found: list[Event] = []
    for leftover in leftovers(folder):
        found += drained(leftover)
        leftover.close()
    return found


@given(
    names=st.lists(st.sampled_from(["a", "file.read", "mark"]), max_size=60),
    capacity=st.integers(2, 8),
    room=st.integers(64, 400),
    folds=st.sets(st.integers(0, 60)),
)
def test_everything_comes_back_in_order_across_segments(
    names: list[str], capacity: int, room: int, folds: set[int]
) -> None:
    """TE-05: any interleaving of emitting, rolling and folding; sequences of events only grow."""
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


def test_a_frame_larger_than_a_segment_gets_one_of_its_own(tmp_path: Path) -> None:
    journal = open_journal(tmp_path)
    journal.emit("small")
    journal.emit("large", {"text": "x" * 5_000_000})
    journal.emit("small")
    assert [len(event.body) for event in drained(journal)] == [2, 5_000_011, 2]
    journal.close()
    assert list(tmp_path.rglob("*")) == []


def test_large_data_is_json_already_when_the_fold_reads_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Decoding 50 MB would hold the event loop of everybody: who emits them pays for it."""
    monkeypatch.setattr(emitter_module, "LARGE_BYTES", 1_000)
    journal = open_journal(None)
    given: list[dict[str, object]] = [{"n": 1}, {"rows": [{"n": n, "text": "ü\n"} for n in range(200)]}, {"n": 2}]
    for data in given:
        journal.emit("step", data)
    with pytest.raises(InvalidEvent, match="number that JSON cannot hold"):
        journal.emit("step", {"text": "x" * 2_000, "n": float("nan")})
    with pytest.raises(InvalidEvent, match="keys are texts"):
        journal.emit("step", {1: "x" * 2_000})  # type: ignore[dict-item]  # what a caller may do
    [segment] = journal._segments
    frames = segment.frames(0, segment.refreshed())
    assert [msgspec.msgpack.decode(frame.data) for frame in frames[1:]] == [
        given[0],
        encode_data("", given[1]),
        given[2],
    ]
    assert [event.data for event in drained(journal)] == given
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
def test_what_is_read_together_is_what_is_read_alone(data: list[dict[str, object]], large: int) -> None:
    """Whatever a batch holds, reading it at once says the same as frame by frame."""
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
            count = segment.refreshed()
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


def test_what_is_not_folded_stays_and_is_read_once(tmp_path: Path) -> None:
    journal = open_journal(tmp_path)
    refs = [journal.emit("step", {"n": number}) for number in range(3_000)]
    first = journal.batch(1_000)
    assert first is not None
    journal.stored(first)
    journal.batch(1_000)  # which nobody has stored
    journal.close()

    events = left(tmp_path)

    assert [event.id for event in events] == [ref.id for ref in refs[len(refs) - len(events) :]]
    assert 1_000 <= len(events) <= 2_001  # the context is a frame of its own
    assert left(tmp_path) == []
    assert list(tmp_path.iterdir()) == []


def test_a_living_writer_is_left_alone(tmp_path: Path) -> None:
    journal = open_journal(tmp_path)
    journal.emit("mine")
    assert left(tmp_path) == []
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


def test_threads_lose_and_glue_nothing() -> None:
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


def test_syncing_and_folding_at_once_agree_on_what_is_there(tmp_path: Path) -> None:
    journal = open_journal(tmp_path)
    stop = threading.Event()
    problems: list[BaseException] = []

    def keep_syncing() -> None:
        try:
            while not stop.is_set():
                journal.sync()
        except BaseException as error:  # noqa: BLE001 - told below
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
    """An interrupted emit and the one inside of it are both whole."""
    journal = open_journal(None)
    numbers = itertools.count()
    heard = 0

    def on_signal(*_: object) -> None:
        nonlocal heard
        heard = max(heard, (number := next(numbers)) + 1)
        journal.emit("heard", {"n": number})

    before = signal.signal(signal.SIGALRM, on_signal)
    signal.setitimer(signal.ITIMER_REAL, 0.002, 0.002)
    try:
        count = 0
        while heard < 100:
            journal.emit("step", {"n": count})
            count += 1
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    events = drained(journal)
    assert sorted(int(str(e.data["n"])) for e in events if e.name == "step") == list(range(count))
    assert sorted(int(str(e.data["n"])) for e in events if e.name == "heard") == list(range(heard))
    assert len({event.id for event in events}) == len(events)


@pytest.mark.parametrize("moment", [function.__code__ for function in (Journal.within, Journal.__init__, new_writer)])
def test_what_interrupts_the_making_of_an_inner_journal_is_kept(moment: CodeType) -> None:
    """Two emits inside of an emit, one while the other makes room for such: both are there."""
    journal = open_journal(None)
    kept = interrupted(journal, lambda code: code is moment)

    assert sorted(event.name for event in drained(journal)) == ["inner", "innermost", "outer"]
    assert len({ref.id for ref in kept}) == 3


def test_what_interrupts_an_emit_that_looks_for_its_turn_does_not_wait_for_it() -> None:
    """An emit inside of an emit, interrupted by a third one while it finds out that it is inside."""
    journal = open_journal(None)
    outer, *inner = interrupted(journal, lambda code: code.co_name == "token")

    assert len(inner) == 2
    assert all(ref.writer != outer.writer for ref in inner)
    assert len(drained(journal)) == 3


def interrupted(journal: Journal, is_moment: Callable[[CodeType], bool]) -> list[Ref]:
    """An emit, one inside of it, and one that interrupts that one at some moment; the outermost first."""
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


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # where only a callback is interrupted
@pytest.mark.parametrize("is_on_disk", [False, True])
def test_an_interrupt_at_any_moment_leaves_neither_hole_nor_glue(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_on_disk: bool
) -> None:
    """An exception thrown into emit, while a folder, a segment or a context is made, too: the event is there or not,
    all others are, each with its own context, and emitting goes on.
    """
    for name, value in (
        ("EVENTS_FIRST", 64),
        ("EVENTS_MAX", 64),
        ("HEAP_BYTES_FIRST", 2**14),
        ("HEAP_BYTES_MAX", 2**14),
    ):
        monkeypatch.setattr(journal_module, name, value)
    journal = open_journal(tmp_path if is_on_disk else None)

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
def test_what_is_raised_while_a_ref_is_made_leaves_neither_hole_nor_glue(
    monkeypatch: pytest.MonkeyPatch, problem: type[BaseException]
) -> None:
    """Signal handlers raise what they like there, also what `emit` takes for data that is not simple."""
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
def test_an_interrupt_at_the_beginning_of_a_step_gives_the_turn_back(step: str) -> None:
    """Or the next emit would wait for a second until it is found that nobody has it."""
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
def test_an_interrupt_while_one_segment_follows_another_loses_nothing(tmp_path: Path, step: str) -> None:
    """A small event may still find room in the one before: it must be there when that one was stored whole."""
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
    told = [(event.name, event.context.session) for event in waiting]
    assert told == [("small", "s2"), ("small", "s1")]
    journal.emit("large", large)
    assert [event.name for event in drained(journal)] == ["small", "small", "large"]
    journal.close()
    assert left(tmp_path) == []


def test_an_interrupted_attempt_to_make_a_folder_or_segment_is_taken_up_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal = open_journal(tmp_path)

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    for module, name in ((Path, "rename"), (os, "posix_fallocate"), (mmap, "mmap")):
        monkeypatch.setattr(module, name, interrupted)
        with pytest.raises(KeyboardInterrupt):
            journal.emit("refused")
        monkeypatch.undo()
    journal.emit("taken")
    assert [event.name for event in drained(journal)] == ["taken"]
    journal.close()


def tokens_of(journal: Journal) -> list[bool]:
    """The list that is the lock of `emit`: nothing else of it tells what an interrupt can do to it."""
    emit = cast(FunctionType, journal.emit)
    named = dict(zip(emit.__code__.co_freevars, emit.__closure__ or (), strict=True))
    return cast(list[bool], named["tokens"].cell_contents)


def test_a_lost_token_is_found_by_several_who_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    """And there is one again, not one for each of them: with two, two threads would write at once."""
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
    """What is accepted can be read, however deep the reader's own stack is."""
    journal = open_journal(None)
    journal.emit("deep", nested(NESTING_MAX))
    with pytest.raises(InvalidEvent, match="nested more than 400 deep"):
        journal.emit("deeper", nested(NESTING_MAX + 1))
    with pytest.raises(InvalidEvent, match="nested more than 400 deep"):
        encode_data("deeper", nested(NESTING_MAX + 1))
    [event] = drained(journal)
    assert event.data == nested(NESTING_MAX)


def test_a_frame_that_cannot_be_read_is_told_and_stops_no_other() -> None:
    journal = open_journal(None)
    journal.emit("before")
    journal.emit("odd", {"raw": msgspec.Raw(b"\xc1")})  # which is copied as it is
    journal.emit("after")
    events = drained(journal)
    assert [event.name for event in events] == ["before", "event.refused", "after"]
    assert "cannot be read" in str(events[1].data["text"])
    assert "c1" in str(events[1].data["frame"])


async def test_emit_goes_on_when_its_loop_is_gone(tmp_path: Path, home: Settings) -> None:
    """What is committed is not reported as failed."""
    path = tmp_path / "space.db"

    async def opened() -> mica.Memory:
        memory = await mica.open(path, settings=home)
        memory.emit("first")
        await memory.position()
        return memory

    memory = await asyncio.to_thread(asyncio.run, opened())
    assert memory.emit("second").sequence
    memory._journal.close()
    async with mica.open(path, settings=home) as again:
        assert [event.name for event in await again.events()] == ["first", "second"]


async def test_another_loop_is_told_that_the_memory_is_not_its_own(tmp_path: Path, home: Settings) -> None:
    """E-33: Python's own words, `got Future attached to a different loop`, help nobody."""
    async with mica.open(tmp_path / "space.db", settings=home) as memory:
        asked: list[Coroutine[object, object, object]] = [memory.events(), memory.position(), memory.close()]
        for each in asked:
            with pytest.raises(StoreUnavailable, match="opened in another event loop"):
                await asyncio.to_thread(asyncio.run, each)
        memory.emit("still.here")
        assert [event.name for event in await memory.events()] == ["still.here"]


def test_a_memory_can_be_closed_when_its_loop_is(tmp_path: Path, home: Settings) -> None:
    async def opened() -> Memory:
        memory = await mica.open(tmp_path / "space.db", settings=home)
        memory.emit("kept")
        return memory

    memory = asyncio.run(opened())
    with pytest.raises(StoreUnavailable, match="opened in another event loop"):
        asyncio.run(memory.events())
    asyncio.run(memory.close())

    async def names() -> list[str]:
        async with mica.open(tmp_path / "space.db", settings=home) as again:
            return [event.name for event in await again.events()]

    assert asyncio.run(names()) == ["kept"]


async def test_a_cancelled_read_hides_nothing_that_dead_writers_left(tmp_path: Path, home: Settings) -> None:
    """A brief asks for what was left only for a moment; what was claimed meanwhile stays known."""
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
                await asyncio.wait_for(memory._folding.flush(), 0.001)
        assert (await memory.sizes()).events == 20_000
        assert await memory.position() == 20_000


def test_a_forked_child_is_another_writer(tmp_path: Path) -> None:
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
    assert [event.data["n"] for event in left(tmp_path)] == list(range(100))


def test_a_full_disk_is_an_error_before_anything_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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
    taken = 0
    while True:
        try:
            journal.emit("step", {"n": taken})
        except Backlogged as error:
            assert "mica doctor" in str(error)  # noqa: PT017 - it ends the loop
            break
        taken += 1
    assert len(drained(journal)) == taken
    journal.emit("again")
    journal.close()


def test_memory_stays_flat() -> None:
    """TE-12: nothing is kept for an event."""
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


def written(folder: Path, count: int = 50, *, synced: bool = True) -> Path:
    """A segment that a dead writer left."""
    journal = open_journal(folder)
    for number in range(count):
        journal.emit("step", {"n": number})
    if synced:
        journal.sync()
    journal.close()
    [path] = folder.rglob(f"*{SUFFIX}")
    return path


def can_populate() -> bool:
    """Whether this kernel can make pages ready before they are touched."""
    with mmap.mmap(-1, mmap.PAGESIZE) as page:
        try:
            page.madvise(segment_module.POPULATE_WRITE)
        except OSError:
            return False
    return True


class ToldLock:
    """A lock that says when somebody has to wait for it."""

    def __init__(self, waited_for: threading.Event) -> None:
        self._lock = threading.Lock()
        self._waited_for = waited_for

    def __enter__(self) -> None:
        if not self._lock.acquire(blocking=False):
            self._waited_for.set()
            self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()


def test_pages_that_are_made_ready_take_nothing_from_who_writes_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A sync fills pages ahead with zeros while others emit: nobody writes to them before they are filled."""
    monkeypatch.setattr(segment_module, "PACE_S", -1)
    journal = open_journal(tmp_path)
    given = [{"n": number, "text": "x" * 300} for number in range(1_000)]
    begun, done = threading.Event(), threading.Event()
    fill = os.pwrite

    def fill_late(descriptor: int, zeros: bytes, at: int) -> int:
        if threading.current_thread() is syncing and not begun.is_set():
            begun.set()
            assert done.wait(60)  # until who emits waits for this, or needs not wait
        return fill(descriptor, zeros, at)

    monkeypatch.setattr(os, "pwrite", fill_late)
    syncing = threading.Thread(target=journal.sync)
    for data in given[:180]:
        journal.emit("step", data)
    monkeypatch.setattr(journal.written, "_preparing", ToldLock(done))
    syncing.start()
    assert begun.wait(60)
    for data in given[180:]:
        journal.emit("step", data)
    done.set()
    syncing.join()

    assert [event.data for event in drained(journal)] == given
    journal.close()


def test_after_a_sync_the_next_events_find_their_pages_ready(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a sync has written out asks the file system before it is written to again: not inside of `emit`."""
    monkeypatch.setattr(segment_module, "PACE_S", -1)
    journal = open_journal(tmp_path)

    def faults() -> int:
        return resource.getrusage(resource.RUSAGE_THREAD).ru_minflt

    def emit_some() -> int:
        before = faults()
        for number in range(100):
            journal.emit("step", {"n": number, "text": "x" * 300})
        return faults() - before

    emit_some()
    taken = []
    for _ in range(5):
        journal.sync()
        taken.append(emit_some())

    assert min(taken) == 0 or not can_populate()  # eight pages each
    journal.close()


def test_a_synced_journal_is_whole(tmp_path: Path) -> None:
    written(tmp_path)
    [leftover] = leftovers(tmp_path)
    assert leftover.damaged == []
    assert [last - first for _, first, last in leftover.unfolded()] == [51]  # with the frame of the context
    leftover.close()
    assert len(left(tmp_path)) == 50


def test_a_truncated_segment_gives_what_is_whole_and_says_so(tmp_path: Path) -> None:
    """TB-11"""
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


def test_a_flipped_bit_in_synced_data_is_told(tmp_path: Path) -> None:
    path = written(tmp_path)
    body = bytearray(path.read_bytes())
    at = body.index(b"step", body.index(b"step") + 100)
    body[at] ^= 1
    path.write_bytes(body)
    [leftover] = leftovers(tmp_path)
    assert "checksum" in leftover.damaged[0]
    assert len(drained(leftover)) == 50
    leftover.close()


def test_a_file_that_was_never_used_is_removed(tmp_path: Path) -> None:
    path = written(tmp_path)
    (path.parent / f"ffff{SUFFIX}").write_bytes(b"\0" * 100_000)
    (path.parent / f"fffe{UNNAMED}").write_bytes(b"")
    assert len(left(tmp_path)) == 50
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("given", [b"", b"Mica-seg", b"x" * 100_000])
def test_a_file_that_has_become_no_segment_is_told_and_kept(tmp_path: Path, given: bytes) -> None:
    """Nothing that was acknowledged is removed unread."""
    path = written(tmp_path)
    path.write_bytes(given)
    [leftover] = leftovers(tmp_path)
    leftover.close()
    [kept] = tmp_path.rglob("*.damaged")
    assert kept.read_bytes() == given
    assert str(path) in leftover.damaged[0]


def test_a_segment_whose_first_bytes_are_damaged_is_read_all_the_same(tmp_path: Path) -> None:
    path = written(tmp_path)
    body = path.read_bytes()
    path.write_bytes(b"M" + body[1:])
    [leftover] = leftovers(tmp_path)
    assert len(drained(leftover)) == 50
    assert "header is damaged" in leftover.damaged[0]
    leftover.close()
    assert len(list(tmp_path.rglob("*.damaged"))) == 1


def test_a_damaged_frame_of_a_dead_writer_hides_no_other(tmp_path: Path) -> None:
    """TB-11: its place is told, with its bytes, and everything behind it is stored."""
    path = written(tmp_path)
    body = bytearray(path.read_bytes())
    at = body.index(b"step", body.index(b"step") + 300)
    body[at - 3 : at + 4] = b"\xc1" * 7  # no MessagePack begins so
    path.write_bytes(body)

    [leftover] = leftovers(tmp_path)
    events = drained(leftover)
    leftover.close()

    [refused] = [number for number, event in enumerate(events) if event.name == "event.refused"]
    assert [event.data["n"] for event in events if event.name == "step"] == [n for n in range(50) if n != refused]
    assert "\\xc1" * 7 in str(events[refused].data["frame"])
    assert events[refused].at == events[refused - 1].at  # not of this moment: whoever reads it again says the same
    assert any(f"frame {refused + 1} is damaged" in problem for problem in leftover.damaged)
    assert len(list(tmp_path.rglob("*.damaged"))) == 1


def test_a_segment_of_another_version_is_refused_and_kept(tmp_path: Path) -> None:
    path = written(tmp_path)
    body = bytearray(path.read_bytes())
    body[8] = 99
    path.write_bytes(body)
    [leftover] = leftovers(tmp_path)
    assert "version 99" in leftover.damaged[0]
    assert "upgrade" in leftover.damaged[0]
    leftover.close()
    assert path.exists()


async def test_who_reads_is_told_of_a_segment_that_this_mica_does_not_know(
    tmp_path: Path, home: Settings, caplog: pytest.LogCaptureFixture
) -> None:
    """A partial answer names what is missing: without a word these events would seem never to have been."""
    path = written(tmp_path / "space.db-segments")
    body = bytearray(path.read_bytes())
    body[8] = 99
    path.write_bytes(body)

    async with mica.open(tmp_path / "space.db", settings=home) as memory:
        assert await memory.events() == []
        assert await memory.events() == []

    [told] = [record.getMessage() for record in caplog.records]
    assert "has version 99, this mica knows 2; upgrade mica" in told


async def test_whoever_removes_the_folder_of_a_living_writer_takes_nothing(tmp_path: Path, home: Settings) -> None:
    """K-41: what was emitted is mapped and is stored; the next segment makes the folder anew."""
    async with mica.open(tmp_path / "space.db", settings=home) as memory:
        first = memory.emit("first")
        shutil.rmtree(tmp_path / "space.db-segments")
        with pytest.raises(
            StoreUnavailable, match=r"cannot be brought to the disk in .* \(No such file or directory\)"
        ):
            await memory.durable()
        await memory.position()
        await memory.durable()
        for _ in range(2 * journal_module.EVENTS_FIRST):
            memory.emit("more")
        with pytest.raises(StoreUnavailable):  # the first of them are in the file that was removed
            await memory.durable()
        await memory.position()
        await memory.durable()
        assert (await memory.sizes()).events == 1 + 2 * journal_module.EVENTS_FIRST
        assert (await memory.event(first)).name == "first"


FEW_FILES = """
import asyncio, resource, sys
import mica

async def main():
    resource.setrlimit(resource.RLIMIT_NOFILE, (200, 200))
    async with mica.open(sys.argv[1]) as memory:
        print(len(await memory.events(mica.EventQuery(limit=None))), memory.damaged, await memory.backlog())

asyncio.run(main())
"""


def test_more_writers_may_have_died_than_a_process_may_open_files(tmp_path: Path) -> None:
    """TE-07, TE-09: each command that a dead server, or a kill, leaves something of has a folder of its own."""
    folder = tmp_path / "space.db-segments"
    writers = [open_journal(folder) for _ in range(150)]
    for writer in writers:
        writer.emit("left")
        writer.close()

    told = subprocess.run(
        [sys.executable, "-c", FEW_FILES, tmp_path / "space.db"],
        env={**os.environ, "HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )

    assert (told.stdout, told.stderr) == ("150 [] (0, 0)\n", "")


def test_a_segment_that_cannot_be_opened_now_is_not_called_damaged(tmp_path: Path) -> None:
    """TE-07: a process that has no more files to open must not hide what waits from all others."""
    path = written(tmp_path)
    most = resource.getrlimit(resource.RLIMIT_NOFILE)
    highest = max(int(each.name) for each in Path("/proc/self/fd").iterdir())
    resource.setrlimit(resource.RLIMIT_NOFILE, (highest + 4, most[1]))
    taken = []
    try:
        with contextlib.suppress(OSError):
            while True:
                taken.append(os.open(os.devnull, os.O_RDONLY))
        for _ in range(2):  # enough for the folder, and then for the file, but not for its mapping
            os.close(taken.pop())
            with pytest.raises(StoreUnavailable, match="Too many open files; events wait there"):
                list(leftovers(tmp_path))
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, most)
        for each in taken:
            os.close(each)

    assert path.exists()
    assert left(tmp_path)


@pytest.mark.parametrize("at", [9, 13, 20, 30])
def test_a_spoiled_header_is_told_and_the_others_are_read(tmp_path: Path, at: int) -> None:
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


def test_a_damaged_context_hides_no_events_of_others(tmp_path: Path) -> None:
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


async def test_what_a_damaged_frame_says_can_be_purged(tmp_path: Path, home: Settings) -> None:
    """Its bytes are kept as text, which a purge finds."""
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
        assert [event.name for event in await memory.events()] == ["step", "event.refused", "step"]
        await memory.purge(value="swordfish-42")
        assert "swordfish" not in b"".join(event.body for event in await memory.events()).decode()


async def test_what_is_behind_a_refused_event_survives_a_kill(tmp_path: Path, home: Settings) -> None:
    journal = open_journal(tmp_path / "space.db-segments")
    journal.emit("one")
    journal.emit("strange", {"deep": {(1, 2): 3}})
    for number in range(10):
        journal.emit("good", {"n": number})
    journal.close()
    async with mica.open(tmp_path / "space.db", settings=home) as memory:
        names = [event.name for event in await memory.events()]
        assert names == ["one", "event.refused"] + ["good"] * 10
        assert memory.damaged == []


@pytest.mark.parametrize(
    ("context", "told"),
    [
        (Context(session=5), "session=5"),  # type: ignore[arg-type]  # the point
        (Context(agent=""), "agent has 0 characters"),
        (Context(task="x" * 5_000), "task has 5,000 characters"),
        (Context(user="\ud800"), "not valid Unicode"),
        (Context(labels=(("tags", ["a"]),)), "tags="),  # type: ignore[arg-type]  # the point
        (Context(labels=(("shard", None),)), "shard=None"),  # type: ignore[arg-type]  # the point
    ],
)
def test_a_context_of_wrong_kinds_is_refused_before_anything_is_written(context: Context, told: str) -> None:
    journal = open_journal(None)
    for _ in range(2):  # the second time as the first
        with pytest.raises(InvalidContext, match=told):
            journal.emit("x", context=context)
    journal.emit("after")
    assert [event.name for event in drained(journal)] == ["after"]


@pytest.mark.parametrize("context", ["s1", {"session": "s1"}, 5])
def test_what_is_no_context_or_no_time_is_refused_before_anything_is_written(context: object) -> None:
    journal = open_journal(None)
    journal.emit("x")
    with pytest.raises(InvalidContext, match=r"is no context; give mica\.Context"):
        journal.emit("x", context=context)  # type: ignore[arg-type]  # it is what must be refused
    with pytest.raises(InvalidEvent, match="is dated '2020', which is no time"):
        journal.emit("x", at="2020")  # type: ignore[arg-type]  # it is what must be refused
    journal.emit("x")
    assert [event.name for event in drained(journal)] == ["x", "x"]


def test_times_far_away_are_kept() -> None:
    journal = open_journal(None)
    for year in (1, 1600, 2600, 9999):
        journal.emit("x", at=datetime(year, 1, 1, tzinfo=UTC))
    assert [event.at.year for event in drained(journal)] == [1, 1600, 2600, 9999]


def test_a_lock_that_nobody_holds_is_freed(monkeypatch: pytest.MonkeyPatch) -> None:
    """An interrupt between taking the lock and using it must not stop the process for ever."""
    monkeypatch.setattr(emitter_module, "LOCK_PATIENCE_S", 0.01)
    journal = open_journal(None)
    journal.emit("before")
    take = tokens_of(journal).pop
    take()
    journal.emit("after")
    assert [event.name for event in drained(journal)] == ["before", "after"]


async def test_what_a_forked_child_emitted_is_read_by_its_parent(tmp_path: Path, home: Settings) -> None:
    async with mica.open(tmp_path / "space.db", settings=home) as memory:
        memory.emit("before")
        await memory.events()
        child = os.fork()
        if child == 0:
            try:
                memory.emit("in.child")
            finally:
                os._exit(0)
        os.waitpid(child, 0)
        assert [event.name for event in await memory.events()] == ["before", "in.child"]


def test_a_forked_child_may_close_what_its_parent_opened(tmp_path: Path) -> None:
    """E-33: loop and threads of the parent are not there; who uses them waits for ever, or ends with a traceback."""
    script = """if True:
        import asyncio, os, sys
        import mica

        async def main():
            async with mica.open(sys.argv[1]) as memory:
                memory.emit("before")
                await memory.events()
                if (child := os.fork()) == 0:
                    memory.emit("in.child")
                    await memory.durable()
                    try:
                        await memory.events()
                    except mica.StoreUnavailable as error:
                        print(error, flush=True)
                    await memory.close()
                    os._exit(0)
                print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
                print([event.name for event in await memory.events()])

        asyncio.run(main())
    """
    command = [sys.executable, "-c", script, str(tmp_path / "space.db")]

    told = subprocess.run(
        command, env={**os.environ, "HOME": str(tmp_path)}, capture_output=True, text=True, check=False, timeout=60
    )

    assert told.stderr == ""
    refused, status, names = told.stdout.splitlines()
    assert refused.endswith("to read it must open the space again")
    assert (status, names) == ("0", "['before', 'in.child']")


OPENERS = """
import asyncio, sys
import mica

async def main():
    for number in range(15):
        async with mica.open(sys.argv[1]) as memory:
            memory.emit("step", {"n": number})
            await memory.events()

asyncio.run(main())
"""


async def test_processes_that_come_and_go_do_not_take_each_others_folders(tmp_path: Path, home: Settings) -> None:
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
        assert len(await memory.events(EventQuery(names=("step",), limit=None))) == 75
        assert await memory.verify() == []


# -- The whole way --------------------------------------------------------------------------------------------

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
async def test_what_emit_returned_survives_kill_9(tmp_path: Path, home: Settings, lines: int) -> None:
    """TB-11, E-04, E-13, TE-07, K-41: acknowledged by pipe, killed while emitting, rolling, folding; none lost."""
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
        events = await memory.events(EventQuery(names=("step",), limit=None))
        numbers = [event.data["n"] for event in sorted(events, key=lambda event: event.id)]
        assert numbers == list(range(len(numbers)))
        assert len(numbers) >= acknowledged
        assert await memory.verify() == []
    assert not (tmp_path / "space.db-segments").exists() or not list((tmp_path / "space.db-segments").iterdir())


async def test_events_survive_a_store_that_is_gone_until_the_next_open(
    tmp_path: Path, home: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """E-04, U-04: an outage loses nothing."""
    path = tmp_path / "space.db"
    memory = await mica.open(path, settings=home)

    async def gone(_: object) -> None:
        raise StoreUnavailable("gone")

    monkeypatch.setattr(memory._folding, "_append", gone)
    for number in range(3_000):
        memory.emit("step", {"n": number})
    await memory.durable()
    await memory.close()
    assert list((tmp_path / "space.db-segments").rglob(f"*{SUFFIX}"))

    async with mica.open(path, settings=home) as again:
        events = await again.events(EventQuery(limit=None))
    assert [event.data["n"] for event in events] == list(range(3_000))


async def test_a_backlog_is_counted_while_its_writer_lives(tmp_path: Path, home: Settings) -> None:
    journal = open_journal(tmp_path / "space.db-segments")
    async with mica.open(tmp_path / "space.db", settings=home) as memory:
        assert (await memory.backlog())[0] == 0
        for number in range(10):
            journal.emit("step", {"n": number})
        waiting, size = await memory.backlog()
        assert (waiting, size > 0) == (10, True)  # the frame of their context is no event
        drained(journal)
        assert await memory.backlog() == (0, 0)  # a segment that is kept ready is none
    journal.close()


async def test_many_waiters_share_syncs(memory: Memory) -> None:
    async def one(number: int) -> None:
        memory.emit("step", {"n": number})
        await memory.durable()

    await asyncio.gather(*(one(number) for number in range(200)))
    assert len(await memory.events(EventQuery(limit=None))) == 200

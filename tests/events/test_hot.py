"""Events that wait for the store are read like stored ones."""

from __future__ import annotations

import asyncio
import os
import random
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import msgspec
import pytest

import mica
from mica import Event, EventQuery, Memory, Ref
from mica.errors import UnknownEvent
from mica.events import hot
from mica.events.context import Here
from mica.events.journal import Journal
from mica.events.segment import SUFFIX, Segment, SegmentFrame
from mica.model.event import Context, EventId, Tombstone, event_id, make_event, new_writer
from mica.settings import Settings
from mica.store.purges import Selection
from mica.testing import build

FAR = datetime(2600, 1, 1, tzinfo=UTC)
AWAY = [FAR, FAR, datetime(1975, 6, 1, tzinfo=UTC), datetime(1600, 1, 1, tzinfo=UTC)]
NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
QUERIES = [
    EventQuery(limit=None),
    EventQuery(limit=0),
    EventQuery(limit=7),
    EventQuery(session="s1", limit=5),
    EventQuery(agent="a2", user="u1", limit=None),
    EventQuery(session="nobody", limit=None),
    EventQuery(names=("step.*", "mark"), limit=9),
    EventQuery(errors=True, limit=None),
    EventQuery(text="cookie", limit=None),
    EventQuery(text="cookie", session="s0", limit=2),
    EventQuery(since=NOW + timedelta(seconds=40), until=NOW + timedelta(seconds=90), limit=None),
    EventQuery(since=FAR, limit=3),
    EventQuery(until=datetime(1976, 1, 1, tzinfo=UTC), limit=None),
]


def emit_some(memory: Memory, chance: random.Random, known: list[Ref], count: int) -> None:
    """Emit events of several sessions, chains, kinds and times; a few times are extreme, a few parents unknown."""
    strange = make_event(event_id(new_writer(), 1), "elsewhere", {}, at=NOW)
    for _ in range(count):
        parent = chance.choice([None, None, strange, *known[-20:]])
        with memory.context(
            session=chance.choice(["s0", "s1", "s2", None]),
            agent=chance.choice(["a1", "a2"]),
            user=chance.choice(["u1", None]),
            correlation=chance.choice(["chain-1", "chain-2", None, None]),
        ):
            data = {"text": chance.choice(["the cookie is set", "redirect", "cookies and a redirect"])}
            name = chance.choice(["step.one", "step.two", "mark", "other"])
            at = chance.choice(AWAY) if chance.random() < 0.03 else NOW + timedelta(seconds=chance.randint(0, 120))
            known.append(memory.emit(name, data, parent=parent, error=chance.random() < 0.1, at=at))


async def everything(memory: Memory, known: list[Ref]) -> list[object]:
    """The results of all reads that need no position."""
    results: list[object] = [await memory.events.query(query) for query in QUERIES]
    for ref in known[::29]:
        event = await memory.events.get(ref.id)
        results += [
            event,
            await memory.events.chain(event),
            await memory.events.ancestors(event),
            await memory.events.descendants(event),
        ]
        results += [await memory.events.descendants(event, depth=1), await memory.events.impact(event)]
    results.append((await memory.upkeep.sizes()).events)
    return results


async def stop_folding(memory: Memory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Stop storing in the background; a running batch is finished first."""
    monkeypatch.setattr(memory._log._folding, "wake", lambda: None)
    memory._log._folding._task.cancel()
    await asyncio.wait([memory._log._folding._task])
    await memory._log._folding.flush()


def unplaced(value: object) -> object:
    """A result without positions; lists of events are sorted independently of positions."""
    if isinstance(value, Event):
        return msgspec.structs.replace(value, position=None)
    if isinstance(value, list | tuple):
        return [unplaced(each) for each in sorted(value, key=lambda each: (each.at, each.id))]
    if isinstance(value, msgspec.Struct):
        return [unplaced(getattr(value, name)) for name in value.__struct_fields__]
    return value


@pytest.mark.parametrize("seed", range(4))
async def test_pending_events_are_read_like_stored_ones(
    memory: Memory, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    """keeps: E-25, K-41. Readers see one log, however much of it is in the store."""
    chance = random.Random(seed)
    known: list[Ref] = []
    emit_some(memory, chance, known, 150)
    await memory.events.position()  # these are all stored
    monkeypatch.setattr(hot, "STORED_FIRST", -1)
    await stop_folding(memory, monkeypatch)
    emit_some(memory, chance, known, 150)
    before = await everything(memory, known)
    assert memory._journal.waiting > 0

    await memory.events.position()
    assert memory._journal.waiting == 0
    after = await everything(memory, known)
    assert [unplaced(each) for each in before] == [unplaced(each) for each in after]


async def test_an_event_stored_during_a_read_appears_once(memory: Memory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each event appears exactly once, at any moment of the fold."""
    monkeypatch.setattr(hot, "STORED_FIRST", -1)
    for number in range(3_000):
        memory.emit("step", {"n": number})

    async def read() -> None:
        for _ in range(12):
            events = await memory.events.query(EventQuery(limit=None))
            assert sorted(int(str(event.data["n"])) for event in events) == list(range(3_000))
            assert (await memory.upkeep.sizes()).events == 3_000
            await asyncio.sleep(0)

    await asyncio.gather(read(), read(), memory.events.position())


async def test_data_outside_json_is_reported_while_still_pending(
    tmp_path: Path, home: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hot, "STORED_FIRST", -1)
    async with mica.open(tmp_path / "space.db", settings=home) as memory:
        memory.emit("odd")
        memory.emit("odd", {1: "a key that is no text"})  # type: ignore[dict-item]  # what a caller may do
        _, event = await memory.events.query()
        assert (event.name, event.data["name"]) == ("event.refused", "odd")


@pytest.fixture
def unread(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The number of frames that each read decodes completely."""
    decoded: list[int] = []
    frames = Segment.frames

    def counted(segment: Segment, first: int, last: int) -> list[SegmentFrame]:
        decoded.append(last - first)
        return frames(segment, first, last)

    monkeypatch.setattr(Segment, "frames", counted)
    return decoded


def leave(folder: Path, events: int) -> list[Ref]:
    """Leave events of a dead writer beside a store, each with a different time."""
    journal = Journal(folder / "space.db-segments", space="test", base=Here(), clock=None, wake=lambda: None)
    times = (NOW + timedelta(milliseconds=number) for number in range(events))
    refs = [journal.emit("step", {"n": number}, at=at) for number, at in enumerate(times)]
    journal.close()
    return refs


async def test_only_frames_that_may_match_are_decoded(tmp_path: Path, home: Settings, unread: list[int]) -> None:
    """keeps: E-40. Reading the last events of a backlog does not decode all of it."""
    leave(tmp_path, 20_000)
    async with mica.open(tmp_path / "space.db", settings=home) as memory:
        memory._log._folding._task.cancel()
        latest = await memory.events.query(EventQuery(limit=100))
        first = (await memory.events.query(EventQuery(until=latest[0].at, limit=1)))[0]
        assert [event.data["n"] for event in latest] == list(range(19_900, 20_000))
        assert first.data["n"] == 19_899
        assert sum(unread) < 6_000


@pytest.mark.parametrize("at", ["time", "name", "array"])
async def test_a_damaged_frame_hides_no_other_and_is_reported_when_stored(
    tmp_path: Path, home: Settings, at: str
) -> None:
    """keeps: TB-11. A frame torn by power loss is skipped in place; the read returns the intact ones."""
    refs = leave(tmp_path, 8_000)
    path = max(tmp_path.rglob(f"*{SUFFIX}"))
    body = bytearray(path.read_bytes())
    name = body.index(b"step", body.index(b"step") + 3_000)  # in the middle of some frame
    body[{"time": name - 10, "name": name - 1, "array": name - 11}[at]] = 0xC1  # never valid in MessagePack
    path.write_bytes(body)
    async with mica.open(tmp_path / "space.db", settings=home) as memory:
        latest = await memory.events.query(EventQuery(limit=None))
        numbers = [int(str(event.data["n"])) for event in latest]
        [missing] = set(range(8_000)) - set(numbers)
        with pytest.raises(UnknownEvent):
            await memory.events.get(refs[missing].id)
        assert await memory.events.get(refs[missing + 1].id) in latest
        await memory.events.position()
        assert any("is damaged" in problem for problem in memory.upkeep.damaged)


MANY = """
import asyncio, sys, mica

async def main():
    memory = await mica.open(sys.argv[1])
    for number in range(20_000):
        with memory.context(session=f"s{number % 5}"):
            memory.emit("step", {"n": number})
    print("ready", flush=True)
    sys.stdin.read()  # the loop does not run: nothing is stored

asyncio.run(main())
"""


async def test_the_events_of_a_killed_process_are_readable_at_once(
    tmp_path: Path, home: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """keeps: E-40. They are readable before any of them is stored, and storing doubles none."""
    path = tmp_path / "space.db"
    child = await asyncio.create_subprocess_exec(
        sys.executable, "-c", MANY, path, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env={"HOME": str(tmp_path)}
    )
    assert child.stdout is not None
    await child.stdout.readline()
    child.kill()
    await child.wait()

    appended: list[object] = []
    async with mica.open(path, settings=home) as memory:
        monkeypatch.setattr(memory._log._folding, "_append", appended.append)
        assert (await memory.upkeep.sizes()).events == 20_000
        latest = await memory.events.query(EventQuery(session="s3", limit=10))
        assert [event.data["n"] for event in latest] == list(range(19_953, 20_000, 5))
        assert await memory.events.get(latest[0].id) == latest[0]
        assert appended == []
        monkeypatch.undo()
        assert await memory.events.position() == 20_000
        assert (await memory.upkeep.sizes()).events == 20_000
        stored = await memory.events.get(EventId(latest[0].id))
        assert stored.position is not None
        assert stored.context == Context(session="s3")


STOPPED = """
import apsw, os, signal, sys

connection = apsw.Connection(sys.argv[1])
connection.execute("BEGIN IMMEDIATE")
os.kill(os.getpid(), signal.SIGSTOP)
"""


async def test_reads_continue_while_a_stopped_process_holds_the_store(tmp_path: Path, home: Settings) -> None:
    """keeps: U-03. An event of the reader's own waits meanwhile, and queries find it."""
    path = tmp_path / "space.db"
    async with mica.open(path, settings=home) as memory:
        stored = memory.mark("The cookie is set before the redirect")
        assert await memory.events.position() == 1
        writer = await asyncio.create_subprocess_exec(sys.executable, "-c", STOPPED, path)
        os.waitid(os.P_PID, writer.pid, os.WSTOPPED | os.WNOWAIT)
        try:
            own = memory.emit("own", {"text": "waits"})
            async with asyncio.timeout(30):  # half of the time after which an append gives up
                for _ in range(3):
                    assert [event.id for event in await memory.events.query()] == [stored.id, own.id]
                    assert (await memory.events.get(own.id)).name == "own"
                    assert [hit.id for hit in await memory.search("cookie redirect")] == [stored.id]
                    assert (await memory.upkeep.sizes()).events == 2
                    assert await memory.upkeep.verify() == []
                    assert "1 event waits" in (await memory.brief("cookie", is_preview=True)).missing["latest"]
        finally:
            writer.kill()
            await writer.wait()
        assert await memory.events.position() == 2


async def test_a_read_by_position_stores_pending_events_first(memory: Memory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hot, "STORED_FIRST", -1)
    first, second = memory.emit("first"), memory.emit("second")
    assert (await memory.events.get(2)).id == second.id
    assert [event.id for event in (await memory.events.resolve(["1", first.id])).events] == [first.id, first.id]


async def test_pending_events_purged_by_another_process_are_not_read(
    memory: Memory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """keeps: U-08, E-25. They appear as they will be stored: as tombstones that no content query matches."""
    monkeypatch.setattr(hot, "STORED_FIRST", -1)
    await stop_folding(memory, monkeypatch)
    with memory.context(session="s1", correlation="c1"):
        purged = memory.emit("tool.ran", {"text": "hunter2"})
        memory.emit("tool.ran", {"text": "below"}, parent=purged)
    known = [memory.emit("tool.ran", {"text": "open"}), purged]
    tombstone = Tombstone(purge=build(1_000).id, reason="leaked")
    purge = Selection(session="s1", value="hunter2").to_purge(
        at=(await memory.events.get(purged)).at, tombstone=tombstone
    )
    assert purge is not None

    await memory._store.purges.add(purge)

    assert (await memory.events.get(purged)).name == "event.purged"
    for query, names in (
        (EventQuery(), ["event.purged", "tool.ran", "tool.ran"]),
        (EventQuery(session="s1"), ["tool.ran"]),
        (EventQuery(names=("event.*",)), ["event.purged"]),
        (EventQuery(text="hunter2"), []),
        (EventQuery(session="s1", limit=1), ["tool.ran"]),
    ):
        assert [event.name for event in await memory.events.query(query)] == names
    before = await everything(memory, known)
    assert memory._journal.waiting > 0
    await memory.events.position()
    assert [unplaced(each) for each in before] == [unplaced(each) for each in await everything(memory, known)]

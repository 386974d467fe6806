"""What waits for the store is read as if it were there."""

from __future__ import annotations

import asyncio
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
from mica.events.segment import SUFFIX, Frame, Segment
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
    """Events of some sessions, chains, kinds and times; a few far away, a few below parents that nobody knows."""
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
    """What the reads say that need no position."""
    found: list[object] = [await memory.events(query) for query in QUERIES]
    for ref in known[::29]:
        event = await memory.event(ref.id)
        found += [event, await memory.chain(event), await memory.ancestors(event), await memory.descendants(event)]
        found += [await memory.descendants(event, depth=1), await memory.impact(event)]
    found.append((await memory.sizes()).events)
    return found


def unplaced(value: object) -> object:
    """The same without positions, lists of events in an order that positions have no part in."""
    if isinstance(value, Event):
        return msgspec.structs.replace(value, position=None)
    if isinstance(value, list | tuple):
        return [unplaced(each) for each in sorted(value, key=lambda each: (each.at, each.id))]
    if isinstance(value, msgspec.Struct):
        return [unplaced(getattr(value, name)) for name in value.__struct_fields__]
    return value


@pytest.mark.parametrize("seed", range(4))
async def test_what_waits_is_read_as_if_it_were_stored(
    memory: Memory, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    """E-25, K-41: one log for readers, whatever of it is in the store."""
    chance = random.Random(seed)
    known: list[Ref] = []
    emit_some(memory, chance, known, 150)
    await memory.position()  # all of that is stored
    monkeypatch.setattr(hot, "STORED_FIRST", -1)
    monkeypatch.setattr(memory._folding, "wake", lambda: None)
    memory._folding._task.cancel()
    emit_some(memory, chance, known, 150)
    before = await everything(memory, known)
    assert memory._journal.waiting > 0

    await memory.position()
    assert memory._journal.waiting == 0
    after = await everything(memory, known)
    assert [unplaced(each) for each in before] == [unplaced(each) for each in after]


async def test_an_event_that_is_stored_meanwhile_comes_once(memory: Memory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Reading while what waits is being stored: each event exactly once, at any moment."""
    monkeypatch.setattr(hot, "STORED_FIRST", -1)
    for number in range(3_000):
        memory.emit("step", {"n": number})

    async def read() -> None:
        for _ in range(12):
            events = await memory.events(EventQuery(limit=None))
            assert sorted(int(str(event.data["n"])) for event in events) == list(range(3_000))
            assert (await memory.sizes()).events == 3_000
            await asyncio.sleep(0)

    await asyncio.gather(read(), read(), memory.position())


async def test_data_that_json_cannot_hold_is_told_where_it_waits(
    tmp_path: Path, home: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hot, "STORED_FIRST", -1)
    async with mica.open(tmp_path / "space.db", settings=home) as memory:
        memory.emit("odd")
        memory.emit("odd", {1: "a key that is no text"})  # type: ignore[dict-item]  # what a caller may do
        _, event = await memory.events()
        assert (event.name, event.data["name"]) == ("event.refused", "odd")


@pytest.fixture
def unread(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many frames each read decodes whole."""
    decoded: list[int] = []
    frames = Segment.frames

    def counted(segment: Segment, first: int, last: int) -> list[Frame]:
        decoded.append(last - first)
        return frames(segment, first, last)

    monkeypatch.setattr(Segment, "frames", counted)
    return decoded


def leave(folder: Path, events: int) -> list[Ref]:
    """What a writer that is gone left beside a store, no two at the same time."""
    journal = Journal(folder / "space.db-segments", space="test", base=Here(), clock=None, wake=lambda: None)
    times = (NOW + timedelta(milliseconds=number) for number in range(events))
    refs = [journal.emit("step", {"n": number}, at=at) for number, at in enumerate(times)]
    journal.close()
    return refs


async def test_only_frames_that_may_be_wanted_are_decoded(tmp_path: Path, home: Settings, unread: list[int]) -> None:
    """E-40: of a backlog the last events are read without decoding all of it."""
    leave(tmp_path, 20_000)
    async with mica.open(tmp_path / "space.db", settings=home) as memory:
        memory._folding._task.cancel()
        latest = await memory.events(EventQuery(limit=100))
        first = (await memory.events(EventQuery(until=latest[0].at, limit=1)))[0]
        assert [event.data["n"] for event in latest] == list(range(19_900, 20_000))
        assert first.data["n"] == 19_899
        assert sum(unread) < 6_000


@pytest.mark.parametrize("at", ["time", "name", "array"])
async def test_a_damaged_frame_hides_no_other_and_is_told_when_it_is_stored(
    tmp_path: Path, home: Settings, at: str
) -> None:
    """TB-11: what power loss tore, read where it lies; the read answers with what is whole."""
    refs = leave(tmp_path, 8_000)
    path = max(tmp_path.rglob(f"*{SUFFIX}"))
    body = bytearray(path.read_bytes())
    name = body.index(b"step", body.index(b"step") + 3_000)  # in the middle of some frame
    body[{"time": name - 10, "name": name - 1, "array": name - 11}[at]] = 0xC1  # which no MessagePack has
    path.write_bytes(body)
    async with mica.open(tmp_path / "space.db", settings=home) as memory:
        latest = await memory.events(EventQuery(limit=None))
        numbers = [int(str(event.data["n"])) for event in latest]
        [missing] = set(range(8_000)) - set(numbers)
        with pytest.raises(UnknownEvent):
            await memory.event(refs[missing].id)
        assert await memory.event(refs[missing + 1].id) in latest
        await memory.position()
        assert any("is damaged" in problem for problem in memory.damaged)


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


async def test_a_killed_process_leaves_a_log_that_is_read_at_once(
    tmp_path: Path, home: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """E-40: everything is there before any of it is stored, and once it is, nothing is doubled."""
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
        monkeypatch.setattr(memory._folding, "_append", appended.append)
        assert (await memory.sizes()).events == 20_000
        latest = await memory.events(EventQuery(session="s3", limit=10))
        assert [event.data["n"] for event in latest] == list(range(19_953, 20_000, 5))
        assert await memory.event(latest[0].id) == latest[0]
        assert appended == []
        monkeypatch.undo()
        assert await memory.position() == 20_000
        assert (await memory.sizes()).events == 20_000
        stored = await memory.event(EventId(latest[0].id))
        assert stored.position is not None
        assert stored.context == Context(session="s3")


async def test_what_is_asked_for_by_position_is_stored_first(memory: Memory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hot, "STORED_FIRST", -1)
    first, second = memory.emit("first"), memory.emit("second")
    assert (await memory.event(2)).id == second.id
    assert [event.id for event in (await memory.resolve(["1", first.id])).found] == [first.id, first.id]


async def test_what_another_process_purged_is_not_read_where_it_waits(
    memory: Memory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """U-08, E-25: what waits is answered as it will be stored, as tombstones that no question about content finds."""
    monkeypatch.setattr(hot, "STORED_FIRST", -1)
    monkeypatch.setattr(memory._folding, "wake", lambda: None)
    memory._folding._task.cancel()
    with memory.context(session="s1", correlation="c1"):
        gone = memory.emit("tool.ran", {"text": "hunter2"})
        memory.emit("tool.ran", {"text": "below"}, parent=gone)
    known = [memory.emit("tool.ran", {"text": "open"}), gone]
    told = Tombstone(purge=build(1_000).id, reason="leaked")
    kept = Selection(session="s1", value="hunter2").kept(at=(await memory.event(gone)).at, told=told)
    assert kept is not None

    await memory._store.keep_purge(kept)

    assert (await memory.event(gone)).name == "event.purged"
    for query, names in (
        (EventQuery(), ["event.purged", "tool.ran", "tool.ran"]),
        (EventQuery(session="s1"), ["tool.ran"]),
        (EventQuery(names=("event.*",)), ["event.purged"]),
        (EventQuery(text="hunter2"), []),
        (EventQuery(session="s1", limit=1), ["tool.ran"]),
    ):
        assert [event.name for event in await memory.events(query)] == names
    before = await everything(memory, known)
    assert memory._journal.waiting > 0
    await memory.position()
    assert [unplaced(each) for each in before] == [unplaced(each) for each in await everything(memory, known)]

"""Following the log: every event exactly once, and no resources left behind."""

from __future__ import annotations

import asyncio
import gc
import os
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager
from itertools import count
from pathlib import Path

import asyncpg
import pytest

import mica
from mica import EventQuery, Memory
from mica.errors import InvalidInput, NotAStore, StoreUnavailable
from mica.events import follower as follow
from mica.model.event import Event
from mica.settings import Settings
from mica.store import listener as listening
from mica.store.postgres.notices import PostgresListener
from mica.store.reference.log import ReferenceLog
from mica.store.reference.state import ReferenceState
from mica.store.reference.store import EphemeralStore
from mica.testing import build
from mica.testing.postgres import APP, LocalPostgres, pooled

SOON_S = 20  # a test that waits longer has failed


async def take(following: follow.Follower, number: int) -> list[Event]:
    async with asyncio.timeout(SOON_S):
        return [await anext(following) for _ in range(number)]


class RestartingLog(ReferenceLog):
    """A log whose reads sometimes fail."""

    def __init__(self, state: ReferenceState, *, outages: Collection[int], error: Exception) -> None:
        super().__init__(state)
        self.outages = set(outages)  # numbers of the reads that fail
        self.error = error
        self.reads = count()

    async def read(self, after: int, *, limit: int) -> list[Event]:
        if next(self.reads) in self.outages:
            raise self.error
        return await super().read(after, limit=min(limit, 3))


def restarting(*, outages: Collection[int], error: Exception) -> EphemeralStore:
    store = EphemeralStore()
    store.log = RestartingLog(store.state, outages=outages, error=error)
    return store


async def test_a_burst_of_10_000_arrives_complete_and_in_order(memory: Memory) -> None:
    """keeps: TE-19, E-29. A follower slower than the burst still gets every matching event once."""
    following = memory.events.follow(EventQuery(names=("step",)), after=await memory.events.position())
    first = asyncio.create_task(take(following, 1))
    await asyncio.sleep(0)

    for number in range(10_000):
        memory.emit("step", {"n": number})
        memory.emit("noise")
    found = [*await first, *await take(following, 9_999)]

    assert [event.data["n"] for event in found] == list(range(10_000))
    positions = [event.position or 0 for event in found]
    assert positions == sorted(set(positions))


async def test_follow_starts_after_a_position_or_now(memory: Memory) -> None:
    memory.emit("first")
    memory.emit("second")
    after = (await memory.events.get(1)).position

    assert [event.name for event in await take(memory.events.follow(after=after), 1)] == ["second"]
    assert [event.name for event in await take(memory.events.follow(after=0), 2)] == ["first", "second"]

    now = memory.events.follow()
    waiting = asyncio.create_task(take(now, 1))
    while now._after is None:
        await asyncio.sleep(0)
    memory.emit("third")
    assert [event.name for event in await waiting] == ["third"]


@pytest.mark.parametrize("after", [-1, "5", 1.5, True, float("nan"), 2**70])
async def test_an_invalid_position_is_refused_by_every_store(memory: Memory, after: object) -> None:
    """keeps: TE-19"""
    with pytest.raises(InvalidInput, match=r"after is .*; use a whole number, 0 or more"):
        memory.events.follow(after=after)  # type: ignore[arg-type]  # it is what must be refused
    with pytest.raises(InvalidInput, match="after is"):
        await anext(memory.events.log(after=after))  # type: ignore[arg-type]  # it is what must be refused


async def test_a_reader_ahead_of_the_log_resumes_at_its_end(memory: Memory) -> None:
    """keeps: E-29. A position from another log, or from before a restore, makes it skip no event."""
    memory.emit("first")
    following = memory.events.follow(after=99)
    waiting = asyncio.create_task(take(following, 1))
    while following._after is None:
        await asyncio.sleep(0)

    memory.emit("second")

    assert [event.name for event in await waiting] == ["second"]


async def test_events_of_this_process_wake_a_follower_at_once(memory: Memory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(follow, "POLL_S", 10 * SOON_S)
    following = memory.events.follow(after=0)
    waiting = asyncio.create_task(take(following, 1))
    while following._after is None:
        await asyncio.sleep(0)

    memory.emit("now")

    assert [event.name for event in await waiting] == ["now"]


async def test_follow_sees_events_of_other_processes(tmp_path: Path, home: Settings) -> None:
    """keeps: E-29. No server is needed between them."""
    script = (
        "import asyncio, sys, mica\n"
        "async def main():\n"
        "    async with mica.open(sys.argv[1]) as memory:\n"
        "        for number in range(500): memory.emit('step', {'n': number})\n"
        "asyncio.run(main())"
    )
    path = tmp_path / "space.db"
    async with mica.open(path, settings=home) as memory:
        following = memory.events.follow(after=0)
        child = await asyncio.create_subprocess_exec(
            sys.executable, "-c", script, path, env={**os.environ, "HOME": str(tmp_path)}, stderr=subprocess.PIPE
        )
        found = await take(following, 500)
        assert await child.wait() == 0

    assert [event.data["n"] for event in found] == list(range(500))


async def test_an_outage_delays_events_and_loses_none(home: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    """keeps: TE-19, U-04. After a reconnect the follower continues at its last position."""
    monkeypatch.setattr(follow, "RETRY_FIRST_S", 0.0)
    store = restarting(outages=range(0, 60, 2), error=StoreUnavailable("restarting"))
    memory = Memory(store, settings=home)
    for number in range(50):
        memory.emit("step", {"n": number})

    found = await take(memory.events.follow(after=0), 50)
    await memory.close()

    assert [event.data["n"] for event in found] == list(range(50))


async def test_a_permanent_store_failure_is_reported(home: Settings) -> None:
    memory = Memory(restarting(outages=[0], error=NotAStore("something else")), settings=home)
    with pytest.raises(NotAStore):
        await take(memory.events.follow(after=0), 1)
    await memory.close()


async def test_retries_slow_down_to_a_limit(home: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    waits: list[float] = []
    sleep, here = asyncio.sleep, threading.current_thread()

    async def instead(seconds: float) -> None:
        if threading.current_thread() is not here:  # the server of other tests
            await sleep(seconds)
        else:
            waits.append(seconds)

    store = restarting(outages=range(10), error=StoreUnavailable("gone"))
    await store.log.append([build(1)])
    memory = Memory(store, settings=home)
    following = memory.events.follow(after=0)
    monkeypatch.setattr(asyncio, "sleep", instead)
    await anext(following)
    monkeypatch.undo()
    await memory.close()

    assert waits == [0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 5.0, 5.0, 5.0, 5.0]


async def test_a_cancelled_step_can_be_taken_again(memory: Memory) -> None:
    following = memory.events.follow(after=0)
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(anext(following), 0.001)

    memory.emit("late")

    assert [event.name for event in await take(following, 1)] == ["late"]


async def test_leaving_the_loop_frees_every_resource(memory: Memory) -> None:
    before = asyncio.all_tasks()
    memory.emit("one")

    async for event in memory.events.follow(after=0):
        assert event.name == "one"
        break
    task = asyncio.create_task(take(memory.events.follow(), 1))
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait([task])

    assert asyncio.all_tasks() <= before


async def test_a_follower_of_a_closed_memory_raises(home: Settings) -> None:
    memory = await mica.open(":memory:", settings=home)
    waiting = asyncio.create_task(take(memory.events.follow(after=0), 1))
    await asyncio.sleep(0)
    await memory.close()
    with pytest.raises(StoreUnavailable, match="closed"):
        await waiting


async def test_a_query_without_words_is_refused_at_once(memory: Memory) -> None:
    with pytest.raises(InvalidInput, match="nothing to search for"):
        memory.events.follow(EventQuery(text="the"))


async def test_the_log_is_walked_in_commit_order(memory: Memory) -> None:
    for number in range(2_500):
        memory.emit("even" if number % 2 == 0 else "odd", {"n": number})

    found = [event.data["n"] async for event in memory.events.log(EventQuery(names=("odd",)), after=1_000)]

    assert found == list(range(1_001, 2_500, 2))


async def test_the_position_of_an_empty_memory_is_0(memory: Memory) -> None:
    assert await memory.events.position() == 0
    memory.emit("x")
    assert await memory.events.position() == 1


# -- Notifications --------------------------------------------------------------------------------------------


@asynccontextmanager
async def connected(dsn: str) -> AsyncIterator[asyncpg.Connection]:
    connection = await asyncpg.connect(dsn, statement_cache_size=0)
    try:
        yield connection
    finally:
        await connection.close()


async def begun(memory: Memory, following: follow.Follower) -> asyncio.Task[list[Event]]:
    """A pending step of a follower that found no event and now listens for appends."""
    waiting = asyncio.create_task(take(following, 1))
    async with asyncio.timeout(SOON_S):
        while not (listener := getattr(memory._store.notices, "_listener", None)) or not listener.is_listening:
            await asyncio.sleep(0.01)
    return waiting


async def listeners(connection: asyncpg.Connection) -> list[int]:
    """The server processes that listen for the role of these tests."""
    rows = await connection.fetch(f"SELECT pid FROM pg_stat_activity WHERE usename = '{APP}' AND query LIKE 'LISTEN%'")
    return [row[0] for row in rows]


async def test_a_notification_wakes_a_follower_of_another_store(
    server: LocalPostgres, home: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """keeps: E-29. The test would time out if the follower had to poll."""
    monkeypatch.setattr(follow, "POLL_S", 10 * SOON_S)
    address = server.address()
    async with mica.open(address, settings=home) as reader, mica.open(address, settings=home) as writer:
        following = reader.events.follow(after=0)
        for number in range(3):
            waiting = await begun(reader, following)
            writer.emit("step", {"n": number})
            assert [event.data["n"] for event in await waiting] == [number]


async def test_followers_share_one_listening_connection(server: LocalPostgres, home: Settings) -> None:
    """It is closed after the last one; no task and no connection remains, even if a loop was abandoned."""
    before = asyncio.all_tasks()
    async with connected(server.dsn()) as connection:
        async with mica.open(server.address(), settings=home) as memory:
            own = asyncio.all_tasks()
            assert await listeners(connection) == []
            one, two = memory.events.follow(after=0), memory.events.follow(after=0)
            tasks = [await begun(memory, one), await begun(memory, two)]
            assert len(await listeners(connection)) == 1
            async with asyncio.timeout(SOON_S):  # a read in progress is a task of the driver
                while len(asyncio.all_tasks() - own - set(tasks)) != 1:
                    await asyncio.sleep(0.01)

            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)
            del task, tasks, one, two
            async with asyncio.timeout(SOON_S):
                while asyncio.all_tasks() != own or await listeners(connection):
                    gc.collect()
                    await asyncio.sleep(0)

            waiting = await begun(memory, memory.events.follow(after=0))
        with pytest.raises(StoreUnavailable, match="closed"):
            await waiting
        async with asyncio.timeout(SOON_S):
            while await listeners(connection):
                await asyncio.sleep(0)
        assert asyncio.all_tasks() == before


@pytest.mark.parametrize("breakage", ["the connection is ended", "nobody notifies", "listening is refused"])
async def test_without_notifications_a_follower_misses_nothing(
    server: LocalPostgres, home: Settings, monkeypatch: pytest.MonkeyPatch, breakage: str
) -> None:
    """keeps: TE-19. A notification is a hint; the position is what counts."""
    address = server.address()
    monkeypatch.setattr(listening, "RETRY_FIRST_S", 0.01)
    if breakage == "listening is refused":
        monkeypatch.setattr(PostgresListener, "_listen", _refused)
    async with (
        mica.open(address, settings=home) as reader,
        mica.open(address, settings=home) as writer,
        connected(server.dsn()) as connection,
    ):
        following = reader.events.follow(after=0)
        found = []
        for number in range(20):
            waiting = asyncio.create_task(take(following, 5))
            for part in range(5):
                writer.emit("step", {"n": 5 * number + part})
            if breakage == "the connection is ended":
                for process in await listeners(connection):
                    await connection.execute(f"SELECT pg_terminate_backend({process})")
            elif breakage == "nobody notifies" and reader._store.notices._listener:  # type: ignore[attr-defined]
                reader._store.notices._listener._rings.clear()  # type: ignore[attr-defined]
            found += await waiting

    assert [event.data["n"] for event in found] == list(range(100))
    assert [event.position for event in found] == list(range(1, 101))


async def _refused(_: PostgresListener) -> bool:
    raise OSError("no way to the server")


async def test_a_listener_reconnects_after_losing_its_connection(
    server: LocalPostgres, home: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listening, "RETRY_FIRST_S", 0.01)
    monkeypatch.setattr(follow, "POLL_S", 10 * SOON_S)
    async with mica.open(server.address(), settings=home) as memory, connected(server.dsn()) as connection:
        following = memory.events.follow(after=0)
        waiting = await begun(memory, following)
        (process,) = await listeners(connection)
        await connection.execute(f"SELECT pg_terminate_backend({process})")
        async with asyncio.timeout(SOON_S):
            while await listeners(connection) in ([], [process]):
                await asyncio.sleep(0.01)
        async with mica.open(memory.location, settings=home) as writer:
            writer.emit("now")
            assert [event.name for event in await waiting] == ["now"]


async def test_behind_a_pooler_a_follower_polls(server: LocalPostgres, home: Settings) -> None:
    """A pooler in transaction mode cannot deliver notifications; this is not a failure."""
    async with (
        pooled(server.address()) as (_, address),
        mica.open(address, settings=home) as reader,
        mica.open(address, settings=home) as writer,
    ):
        following = reader.events.follow(after=0)
        found = []
        for number in range(10):
            writer.emit("step", {"n": number})
            found += await take(following, 1)

    assert [event.data["n"] for event in found] == list(range(10))

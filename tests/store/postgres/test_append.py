"""An append to PostgreSQL is atomic: with other writers, under cancellation, and when the server is lost."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from itertools import count

import msgspec
import pytest

import mica
from mica.errors import (
    MicaError,
    StoreBusy,
    StoreUnavailable,
)
from mica.model.event import Appended, Context, Event, EventId, EventQuery, new_writer, writer_named
from mica.settings import Settings
from mica.store.postgres import space as postgres_space
from mica.store.postgres.append import CHUNK_EVENTS
from mica.store.postgres.store import PostgresStore
from mica.testing import HandClock, build
from mica.testing.postgres import APP, HANGS_S, LocalPostgres, connected, opened, pooled


async def test_an_append_of_many_chunks_is_one_step(server: LocalPostgres) -> None:
    """Repeated events, parents and errors in different chunks are handled as in a single chunk."""
    size = CHUNK_EVENTS + 10
    root = build(1)
    events = [root, *(build(n, "mark", {"text": f"mark {n % 7}"}, parent=root) for n in range(2, size)), root]
    async with opened(server.address()) as store:
        broken = [*events, msgspec.structs.replace(build(size, parent=root), depth=5)]
        with pytest.raises(MicaError, match="depth"):
            await store.log.append(broken)
        assert (await store.files.sizes()).events == 0

        assert await store.log.append(events) == Appended(stored=size - 1, repeated=1)
        assert await store.log.append([*events, build(size)]) == Appended(stored=1, repeated=size)
        assert [event.position for event in await store.log.read(size - 2, limit=9)] == [size - 1, size]
        assert await store.files.verify() == []


async def test_an_append_is_on_disk_even_if_synchronous_commit_is_off(server: LocalPostgres) -> None:
    """keeps: K-48, TE-03. Acknowledged events are safe, even if an administrator turned synchronous commits off."""
    async with connected(server.dsn()) as connection:
        await connection.execute(f"ALTER ROLE {APP} SET synchronous_commit = off")
        async with opened(server.address()) as store, store._space.transaction(postgres_space.WRITE) as transaction:
            assert await transaction.fetchval("SHOW synchronous_commit") == "on"
        await connection.execute(f"ALTER ROLE {APP} RESET synchronous_commit")


async def test_the_event_loop_runs_while_events_are_written_and_read(server: LocalPostgres) -> None:
    """keeps: TE-11"""
    async with opened(server.address()) as store:
        writing = asyncio.create_task(store.log.append([build(n, "mark", {"text": f"mark {n}"}) for n in range(3_000)]))
        turns = 0
        while not writing.done():
            await asyncio.sleep(0)
            turns += 1
        assert turns > 10
        assert await writing == Appended(stored=3_000)
        assert len(await store.log.query(EventQuery(limit=None))) == 3_000


async def test_a_cancelled_append_is_whole_or_absent_and_can_be_repeated(server: LocalPostgres) -> None:
    async with opened(server.address()) as store:
        events = [build(n) for n in range(500)]
        for turns in (0, 1, 5, 10, 20, 40):
            task = asyncio.create_task(store.log.append(events))
            for _ in range(turns):
                await asyncio.sleep(0)
            task.cancel()
            await asyncio.wait([task])
            assert (await store.files.sizes()).events in {0, 500}
        appended = await store.log.append(events)
        assert appended.stored + appended.repeated == 500
        assert await store.files.verify() == []


async def test_a_follower_misses_nothing_while_many_append(server: LocalPostgres) -> None:
    """keeps: TE-19, K-38. Positions become visible in order and without gaps, across connections."""
    address = server.address()
    async with opened(address) as one, opened(address) as two, opened(address) as reader:

        async def write(store: PostgresStore, name: str) -> None:
            writer = writer_named(name)
            for start in range(0, 100, 5):
                await store.log.append([build(start + n, writer=writer) for n in range(5)])

        seen: list[int | None] = []
        writers = asyncio.gather(write(one, "a"), write(two, "b"), write(two, "c"))
        while not writers.done() or len(seen) < 300:
            seen += [event.position for event in await reader.log.read(len(seen), limit=50)]
        await writers
        assert seen == list(range(1, 301))


async def test_reads_continue_while_another_connection_appends(server: LocalPostgres) -> None:
    """keeps: U-03, U-05"""
    async with opened(server.address()) as store, connected(server.dsn()) as other:
        await store.log.append([build(1)])
        await other.execute(f"BEGIN; SELECT FROM mica.spaces WHERE id = '{store.space}' FOR UPDATE")

        waiting = asyncio.create_task(store.log.append([build(2)]))
        for _ in range(5):
            assert (await store.files.sizes()).events == 1
        assert not waiting.done()
        await other.execute("COMMIT")

        assert await waiting == Appended(stored=1)


async def test_waiting_too_long_for_a_locked_space_raises_an_error(
    server: LocalPostgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    """keeps: U-05. The append can be retried."""
    async with opened(server.address()) as store, connected(server.dsn()) as other:
        await other.execute(f"BEGIN; SELECT FROM mica.spaces WHERE id = '{store.space}' FOR UPDATE")
        with monkeypatch.context() as hurried:
            hurried.setattr(postgres_space, "PATIENCE_S", 1)
            with pytest.raises(StoreBusy, match="busy"):
                await store.log.append([build(1)])
        await other.execute("COMMIT")

        assert await store.log.append([build(1)]) == Appended(stored=1)


async def test_the_victim_of_a_deadlock_tries_again(server: LocalPostgres) -> None:
    async with opened(server.address()) as store, connected(server.dsn()) as other:
        await other.execute("SET deadlock_timeout = '1min'; BEGIN; LOCK TABLE mica.keys IN SHARE MODE")
        appending = asyncio.create_task(store.log.append([build(1)]))
        async with asyncio.timeout(HANGS_S):
            while not await other.fetchval(
                "SELECT count(*) FROM pg_locks WHERE NOT granted AND relation = 'mica.keys'::regclass"
            ):
                pass
        await other.execute(f"UPDATE mica.spaces SET created_at = 0 WHERE id = '{store.space}'")
        await other.execute("COMMIT")

        assert await appending == Appended(stored=1)
        assert await store.files.verify() == []


async def test_clocks_that_differ_change_no_order_and_lose_nothing(server: LocalPostgres, home: Settings) -> None:
    """keeps: TE-19, K-38. The server assigns positions; a wrong clock affects only the times of events."""
    address = server.address()
    ahead, behind = HandClock(datetime(2031, 1, 1, tzinfo=UTC)), HandClock(datetime(1999, 1, 1, tzinfo=UTC))
    async with (
        mica.open(address, settings=home, clock=ahead) as one,
        mica.open(address, settings=home, clock=behind) as other,
    ):
        following = other.events.follow(after=0)
        parent = None
        for number in range(6):
            memory = one if number % 2 else other
            parent = memory.emit("step", {"n": number}, parent=parent)
            assert await memory.events.position() == number + 1
        async with asyncio.timeout(HANGS_S):
            followed = [await anext(following) for _ in range(6)]

        assert [event.data["n"] for event in followed] == list(range(6))
        assert [event.data["n"] for event in await one.events.chain(followed[0])] == [
            0,
            2,
            4,
            1,
            3,
            5,
        ]  # by their dates
        assert [event.data["n"] for event in await one.events.ancestors(followed[5])] == [4, 3, 2, 1, 0]  # by cause
        assert await one.upkeep.verify() == []


async def test_a_pooler_in_transaction_mode_changes_nothing(server: LocalPostgres) -> None:
    """No setting and no prepared statement outlives a transaction: spaces stay apart on shared connections."""
    async with pooled(server.address()) as (pooler, address):
        async with opened(address) as mine, opened(f"{address} too") as theirs:
            for n in range(1, 20):
                await mine.log.append([build(n, "mark", {"text": f"cookie {n}"}, context=Context(session="s1"))])
                await theirs.log.append([build(n, "mark", {"text": "other"})])
                assert len(await mine.log.query(EventQuery(text="cookie"))) == n
                assert await theirs.log.query(EventQuery(text="cookie")) == []
            assert await mine.files.rebuild() == 19
            assert await mine.files.verify() == await theirs.files.verify() == []
        assert len(pooler.used) == 3


async def test_an_append_whose_answer_is_lost_is_found_and_counted_once(server: LocalPostgres) -> None:
    """keeps: TE-03. The server has committed, but the client does not know; it checks before it writes again."""
    async with pooled(server.address()) as (pooler, address), opened(address) as store:
        await store.log.append([build(1), build(2)])
        pooler.loses_commit = True

        assert await store.log.append([build(2), build(3), build(4)]) == Appended(stored=2, repeated=1)

        assert not pooler.loses_commit
        assert [event.position for event in await store.log.read(0, limit=9)] == [1, 2, 3, 4]
        assert await store.log.append([build(4)]) == Appended(repeated=1)
        assert await store.files.verify() == []


async def test_a_killed_server_loses_and_doubles_nothing_that_was_acknowledged(server: LocalPostgres) -> None:
    """keeps: TE-03, U-03. The server is killed twice during appends; writers continue when it is back."""
    address = server.address()
    acknowledged: set[EventId] = set()
    is_over = asyncio.Event()
    kills = 0

    async def run_with_retries(store: PostgresStore, events: list[Event]) -> Appended:
        while True:
            try:
                return await store.log.append(events)
            except StoreUnavailable:
                await asyncio.sleep(0.01)

    async def write(store: PostgresStore) -> None:
        writer = new_writer()
        for start in count(0, 20):
            events = [build(start + n, "mark", {"text": f"mark {n}"}, writer=writer) for n in range(20)]
            appended = await run_with_retries(store, events)
            assert appended.stored + appended.repeated == 20
            acknowledged.update(event.id for event in events)
            if is_over.is_set():
                return

    async with opened(address) as one, opened(address) as two:
        writers = asyncio.gather(write(one), write(two))
        for _ in range(2):
            grown = len(acknowledged) + 200
            while len(acknowledged) < grown and not writers.done():
                await asyncio.sleep(0.01)
            server.kill()
            kills += 1
            await asyncio.to_thread(server.restart)
        is_over.set()
        await writers
        stored = [event.id for event in await one.log.read(0, limit=1_000_000)]
        assert kills == 2
        assert len(stored) == len(set(stored))
        assert acknowledged == set(stored)
        assert await one.files.verify() == []

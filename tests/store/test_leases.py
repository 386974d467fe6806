"""Shared work is held by one process at a time and never lost, despite crashes, delays and wrong clocks."""

from __future__ import annotations

import asyncio
import multiprocessing
import tempfile
from collections import Counter
from contextlib import nullcontext, suppress
from datetime import UTC, datetime, timedelta
from multiprocessing.synchronize import Event as Signal
from pathlib import Path
from typing import NamedTuple, TypeAlias

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mica.errors import ClaimLost
from mica.store.leases import Claim
from mica.store.postgres.store import PostgresStore
from mica.store.protocol import Store
from mica.store.reference.store import EphemeralStore
from mica.store.sqlite.store import SqliteStore
from mica.testing.builders import START_AT
from mica.testing.postgres import LocalPostgres, pooled

HOUR, NO_TIME = timedelta(hours=1), timedelta(0)  # a lease longer than a test, and one that ends at once
Key: TypeAlias = tuple[str, str]


# -- Random interleavings -------------------------------------------------------------------------------------


class Plan(NamedTuple):
    key: Key
    minute: int


class Take(NamedTuple):
    kinds: tuple[str, ...]
    owner: str
    minute: int  # by its clock
    lease: timedelta


class Renew(NamedTuple):
    number: int  # of the claims so far
    lease: timedelta


class Finish(NamedTuple):
    number: int
    again: int | None


Step: TypeAlias = Plan | Take | Renew | Finish

minutes = st.integers(0, 9)
leases = st.sampled_from([HOUR, NO_TIME])
keys = st.tuples(st.sampled_from(["age", "crystallize"]), st.sampled_from(["", "s1"]))
steps = st.lists(
    st.one_of(
        st.builds(Plan, keys, minutes),
        st.builds(
            Take, st.sampled_from([("age",), ("age", "crystallize")]), st.sampled_from(["a", "b", "c"]), minutes, leases
        ),
        st.builds(Renew, st.integers(0, 9), leases),
        st.builds(Finish, st.integers(0, 9), st.none() | minutes),
    ),
    max_size=30,
)


def at(minute: int) -> datetime:
    return START_AT + timedelta(minutes=minute)


async def outcomes(store: Store, plan: list[Step]) -> list[object]:
    """The result of each step. Checks that no work is held twice at once or lost."""
    claims: list[Claim] = []
    held: dict[Key, str] = {}  # the claim that holds each piece of work, with an active lease
    open_: Counter[Key] = Counter()  # how often to do it: once more if it was planned while held
    latest: dict[Key, str] = {}  # the last claim of each piece of work that is not finished
    results: list[object] = []
    for step in plan:
        match step:
            case Plan(key, minute):
                await store.work.plan(key[0], about=key[1], due_at=at(minute))
                open_[key] = max(open_[key], 2 if key in latest else 1)
            case Take(kinds, owner, minute, lease):
                claim = await store.work.claim(kinds, owner=owner, due_by=at(minute), lease=lease)
                results.append(claim and (claim.kind, claim.about, claim.due_at, claim.owner))
                if claim is not None:
                    key = (claim.kind, claim.about)
                    assert key not in held
                    assert open_[key]
                    claims.append(claim)
                    latest[key] = claim.id
                    if lease:
                        held[key] = claim.id
            case Renew(number, lease) if number < len(claims):
                key, name = (claims[number].kind, claims[number].about), claims[number].id
                is_ours = latest.get(key) == name
                with pytest.raises(ClaimLost) if not is_ours else nullcontext():
                    await store.work.renew(claims[number], lease=lease)
                if is_ours:
                    held.pop(key, None)
                    if lease:
                        held[key] = name
            case Finish(number, again) if number < len(claims):
                key, name = (claims[number].kind, claims[number].about), claims[number].id
                is_ours = latest.get(key) == name
                with pytest.raises(ClaimLost) if not is_ours else nullcontext():
                    await store.work.finish(claims[number], again_at=None if again is None else at(again))
                if is_ours:
                    held.pop(key, None)
                    del latest[key]
                    open_[key] = 1 if again is not None or open_[key] == 2 else 0
        works = await store.work.all()
        assert {(work.kind, work.about) for work in works} == {key for key, often in open_.items() if often}
        assert {(work.kind, work.about) for work in works if work.owner} == latest.keys()
        results.append([(work.kind, work.about, work.due_at, work.owner) for work in works])
    return results


@given(steps)
async def test_work_is_never_held_twice_nor_lost(plan: list[Step]) -> None:
    """keeps: K-56, U-03. Any owners, in any order, with any clocks; SQLite answers as the reference does."""
    with tempfile.TemporaryDirectory() as folder:
        store = await SqliteStore.open(Path(folder) / "space.db")
        assert await outcomes(store, plan) == await outcomes(EphemeralStore(), plan)
        await store.close()


@settings(max_examples=25)  # each step is two round trips to the server
@given(steps)
async def test_work_is_never_held_twice_nor_lost_on_a_server(server: LocalPostgres, plan: list[Step]) -> None:
    """keeps: K-56, U-03"""
    store = await PostgresStore.open(server.address())
    assert await outcomes(store, plan) == await outcomes(EphemeralStore(), plan)
    await store.close()


# -- Concurrency --------------------------------------------------------------------------------------------

PIECES = 60


async def work_off(store: Store, owner: str) -> list[str]:
    """Claim and finish work until none is left; sometimes let the lease end, or plan the work again."""
    done = []
    for number in range(10 * PIECES):
        lease = NO_TIME if number % 7 == 3 else HOUR
        claim = await store.work.claim(["crystallize"], owner=owner, due_by=START_AT, lease=lease)
        if claim is None:
            break
        with suppress(ClaimLost):
            await asyncio.sleep(0)
            await store.work.finish(claim)
            done.append(claim.about)
    return done


async def test_eight_connections_share_work_and_finish_each_piece_once(server: LocalPostgres) -> None:
    """keeps: K-56. FOR UPDATE SKIP LOCKED: no connection waits for another or gets its work."""
    address = server.address()
    stores = [await PostgresStore.open(address) for _ in range(8)]
    await asyncio.gather(*(stores[0].work.plan("crystallize", about=f"s{n}", due_at=START_AT) for n in range(PIECES)))

    done = await asyncio.gather(*(work_off(store, f"server {n}") for n, store in enumerate(stores)))

    assert sorted(about for part in done for about in part) == sorted(f"s{n}" for n in range(PIECES))
    assert sum(bool(part) for part in done) > 1
    assert await stores[0].work.all() == []
    for store in stores:
        await store.close()


async def _process_works(target: str, owner: str) -> list[str]:
    store: Store
    if target.startswith("postgresql:"):
        store = await PostgresStore.open(target)
    else:
        store = await SqliteStore.open(Path(target))
    try:
        return await work_off(store, owner)
    finally:
        await store.close()


def _in_process(target: str, owner: str, done: multiprocessing.Queue[list[str]]) -> None:
    done.put(asyncio.run(_process_works(target, owner)))


async def test_processes_share_the_work_of_a_file(tmp_path: Path) -> None:
    """keeps: K-56. The write lock of SQLite prevents conflicts."""
    path = tmp_path / "space.db"
    store = await SqliteStore.open(path)
    for n in range(PIECES):
        await store.work.plan("crystallize", about=f"s{n}", due_at=START_AT)
    spawn = multiprocessing.get_context("spawn")
    queue = spawn.Queue()
    processes = [spawn.Process(target=_in_process, args=(str(path), f"process {n}", queue)) for n in range(3)]
    for process in processes:
        process.start()

    done = [await asyncio.to_thread(queue.get, timeout=60) for _ in processes]
    for process in processes:
        await asyncio.to_thread(process.join)

    assert sorted(about for part in done for about in part) == sorted(f"s{n}" for n in range(PIECES))
    assert await store.work.all() == []
    await store.close()


# -- Crashed holders, spaces, clocks --------------------------------------------------------------------------


async def _hold(target: str, holding: Signal, lease: timedelta) -> None:
    store = await (PostgresStore.open(target) if target.startswith("postgresql:") else SqliteStore.open(Path(target)))
    claim = await store.work.claim(["age"], owner="dying", due_by=START_AT, lease=lease)
    assert claim is not None
    holding.set()
    await asyncio.sleep(600)


def _hold_until_killed(target: str, holding: Signal, lease: timedelta) -> None:
    asyncio.run(_hold(target, holding, lease))


@pytest.mark.parametrize("engine", ["sqlite", "postgres"])
async def test_the_work_of_a_killed_holder_is_done_by_another(
    request: pytest.FixtureRequest, tmp_path: Path, engine: str
) -> None:
    """keeps: K-56. The holder is killed; another process gets the work after the lease ends, not before."""
    store: Store
    if engine == "postgres":
        target = str(request.getfixturevalue("server").address())
        store = await PostgresStore.open(target)
    else:
        target = str(tmp_path / "space.db")
        store = await SqliteStore.open(Path(target))
    await store.work.plan("age", due_at=START_AT)
    spawn = multiprocessing.get_context("spawn")
    holding, lease = spawn.Event(), timedelta(seconds=2)
    process = spawn.Process(target=_hold_until_killed, args=(target, holding, lease))
    process.start()
    assert await asyncio.to_thread(holding.wait, 60)
    process.kill()
    await asyncio.to_thread(process.join)
    (held,) = await store.work.all()
    assert held.owner == "dying"
    assert held.held_until is not None

    async with asyncio.timeout(60):
        while (claim := await store.work.claim(["age"], owner="heir", due_by=START_AT, lease=HOUR)) is None:
            await asyncio.sleep(0.05)

    assert datetime.now(UTC) >= held.held_until
    assert claim.due_at == START_AT
    await store.work.finish(claim)
    assert await store.work.all() == []
    await store.close()


async def test_work_of_another_space_is_out_of_sight(server: LocalPostgres) -> None:
    """keeps: U-09. Row-level security applies to claims."""
    mine, theirs = [await PostgresStore.open(server.address()) for _ in range(2)]
    await theirs.work.plan("age", due_at=START_AT)

    assert await mine.work.all() == []
    assert await mine.work.claim(["age"], owner="a", due_by=START_AT, lease=HOUR) is None

    claim = await theirs.work.claim(["age"], owner="b", due_by=START_AT, lease=HOUR)
    assert claim is not None
    with pytest.raises(ClaimLost):
        await mine.work.finish(claim)
    assert [work.owner for work in await theirs.work.all()] == ["b"]
    await mine.close()
    await theirs.close()


async def test_machines_whose_clocks_differ_do_not_take_each_others_work(server: LocalPostgres) -> None:
    """keeps: K-56. Leases use the server's clock; for a machine that is days ahead no lease ends earlier."""
    address, ahead = server.address(), datetime.now(UTC) + timedelta(days=3)
    one, other = await PostgresStore.open(address), await PostgresStore.open(address, clock=lambda: ahead)
    await one.work.plan("age", due_at=START_AT)
    claim = await one.work.claim(["age"], owner="behind", due_by=START_AT, lease=HOUR)
    assert claim is not None

    assert await other.work.claim(["age"], owner="ahead", due_by=ahead, lease=HOUR) is None

    async def server_time() -> datetime:
        async with other._space.transaction("READ COMMITTED READ WRITE") as connection:
            return datetime.fromisoformat(str(await connection.fetchval("SELECT now()")))

    assert claim.held_until - await server_time() <= HOUR
    await one.work.finish(claim)
    await one.close()
    await other.close()


async def test_a_claim_whose_answer_is_lost_is_found_again(server: LocalPostgres) -> None:
    """keeps: K-56. The server has committed, but the client does not know: the work is neither stuck nor done twice."""
    async with pooled(server.address()) as (pooler, address):
        store = await PostgresStore.open(address)
        await store.work.plan("age", due_at=START_AT)

        pooler.loses_commit = True
        claim = await store.work.claim(["age"], owner="a", due_by=START_AT, lease=HOUR)
        assert not pooler.loses_commit
        assert claim is not None
        pooler.loses_commit = True
        await store.work.finish(claim, again_at=START_AT + HOUR)
        assert not pooler.loses_commit

        assert [(work.due_at, work.owner) for work in await store.work.all()] == [(START_AT + HOUR, None)]
        await store.close()

"""The scheduler: jobs that are due run once, by one of the processes that share a store."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import time, timedelta
from zoneinfo import ZoneInfo

import pytest

from mica.errors import StoreUnavailable
from mica.store.protocol import Store
from mica.store.reference.store import EphemeralStore
from mica.testing import HandClock
from mica.testing.builders import START_AT
from mica.upkeep.schedule import Job, JobRun, Scheduler

HOUR = timedelta(hours=1)


def counting(count: list[str], name: str = "count") -> Job:
    async def run() -> int:
        count.append(name)
        return len(count)

    return Job(kind=name, every=HOUR, run=run)


def failing(error: BaseException) -> Job:
    async def run() -> int:
        raise error

    return Job(kind="fail", every=HOUR, run=run)


async def test_a_job_runs_when_it_is_due_and_not_before() -> None:
    ran: list[str] = []
    clock = HandClock()
    scheduler = Scheduler(EphemeralStore().work, [counting(ran)], clock=clock)

    first = await scheduler.tick()
    assert first == [JobRun(kind="count", done=1, next_at=clock() + HOUR)]
    clock.move(minutes=59)
    assert await scheduler.tick() == []
    clock.move(minutes=1)
    assert [each.done for each in await scheduler.tick()] == [2]


async def test_a_tick_may_be_limited_to_some_kinds() -> None:
    ran: list[str] = []
    scheduler = Scheduler(EphemeralStore().work, [counting(ran, "one"), counting(ran, "two")], clock=HandClock())

    await scheduler.tick(["two"])
    assert ran == ["two"]
    await scheduler.tick()
    assert ran == ["two", "one"]


async def test_two_processes_run_a_job_once(store: Store) -> None:
    ran: list[str] = []
    clock = HandClock()
    one, other = (Scheduler(store.work, [counting(ran)], clock=clock) for _ in range(2))

    await asyncio.gather(one.tick(), other.tick())

    assert ran == ["count"]


@pytest.mark.parametrize(
    ("error", "reason"), [(StoreUnavailable("gone"), "gone"), (ValueError("odd"), "ValueError: odd")]
)
async def test_a_failed_job_is_reported_and_retried_at_its_next_time(error: Exception, reason: str) -> None:
    reported: list[JobRun] = []
    clock = HandClock()
    scheduler = Scheduler(EphemeralStore().work, [failing(error)], clock=clock, on_failure=reported.append)

    assert [each.error for each in await scheduler.tick()] == [reason]
    assert [each.error for each in reported] == [reason]
    assert await scheduler.tick() == []
    clock.move(hours=1)
    assert len(await scheduler.tick()) == 1


async def test_a_cancelled_job_is_due_again_at_once() -> None:
    ran: list[str] = []
    clock, store = HandClock(), EphemeralStore()
    with pytest.raises(asyncio.CancelledError):
        await Scheduler(store.work, [failing(asyncio.CancelledError())], clock=clock).tick()

    again = Scheduler(store.work, [counting(ran, "fail")], clock=clock)

    assert [each.kind for each in await again.tick()] == ["fail"]


async def test_a_daily_job_is_due_at_its_time_of_the_day() -> None:
    async def run() -> int:
        return 0

    zone = ZoneInfo("Europe/Berlin")
    job = Job(kind="evolve", every=timedelta(days=1), at=time(3), zone=zone, run=run)

    due_at = job.after(START_AT)

    assert due_at.astimezone(zone).time() == time(3)
    assert START_AT < due_at <= START_AT + timedelta(days=1)
    assert job.after(due_at) == due_at + timedelta(days=1)


async def test_background_work_lets_queries_go_first() -> None:
    waited: list[str] = []
    ran: list[str] = []

    async def give_way() -> None:
        waited.append("gave way")
        assert ran == []

    await Scheduler(EphemeralStore().work, [counting(ran)], clock=HandClock(), give_way=give_way).tick()

    assert (waited, ran) == (["gave way"], ["count"])


async def test_an_active_process_checks_for_due_jobs_regularly(monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[str] = []
    done = asyncio.Event()

    async def run() -> int:
        ran.append("ran")
        done.set()
        return 1

    scheduler = Scheduler(EphemeralStore().work, [Job(kind="one", every=HOUR, run=run)], clock=HandClock())
    scheduler.poll()  # a new process runs no jobs
    await asyncio.sleep(0)
    assert ran == []
    now_s = asyncio.get_running_loop().time
    later: Callable[[], float] = lambda: now_s() + 61  # noqa: E731
    monkeypatch.setattr(asyncio.get_running_loop(), "time", later)

    scheduler.poll()
    await done.wait()

    assert ran == ["ran"]
    await scheduler.close()

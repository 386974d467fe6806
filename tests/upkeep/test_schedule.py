"""The scheduler: jobs that are due run once, by one of the processes that share a store."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import datetime, time, timedelta
from zoneinfo import ZoneInfo

import pytest

from mica.errors import StoreUnavailable
from mica.store.protocol import BLOCK_EVENTS, Store
from mica.store.reference.files import ReferenceFiles
from mica.store.reference.state import ReferenceState
from mica.store.reference.store import EphemeralStore
from mica.testing import HandClock
from mica.testing.builders import START_AT
from mica.upkeep import schedule
from mica.upkeep.schedule import Ageing, Job, JobRun, Scheduler

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


class CountingFiles(ReferenceFiles):
    """The files of a store that counts how often it is asked to age."""

    def __init__(self, due: int) -> None:
        super().__init__(ReferenceState())
        self.due = due
        self.asked = 0
        self.before: datetime | None = None

    async def age(self, before: datetime, *, limit: int = 8_192, at_least: int = 1) -> int:
        self.asked += 1
        self.before = before
        done, self.due = min(self.due, limit), max(0, self.due - limit)
        return done if done >= at_least else 0


async def test_an_idle_process_ages_events_by_itself() -> None:
    """keeps: E-03. Events stay hot for a day; ageing runs once an hour, never while events are being stored."""
    files, clock = CountingFiles(due=20_000), HandClock()
    slept: list[float] = []
    asleep, awake = asyncio.Event(), asyncio.Event()

    async def sleep(seconds: float) -> None:
        slept.append(seconds)
        asleep.set()
        await awake.wait()
        awake.clear()

    async def turn() -> None:
        asleep.clear()
        awake.set()
        await asleep.wait()

    background = Ageing(files, now=clock, sleep=sleep)
    await asleep.wait()
    background.disturb()
    await turn()
    assert files.asked == 0
    await turn()
    assert (files.asked, files.due) == (4, 0)
    assert files.before == clock() - timedelta(hours=24)
    assert slept == [schedule.QUIET_S, schedule.QUIET_S, schedule.EVERY_S]
    await background.close()


def test_events_stay_hot_for_a_day() -> None:
    """keeps: E-03"""
    assert timedelta(hours=24) == schedule.HOT
    assert BLOCK_EVENTS <= 8_192

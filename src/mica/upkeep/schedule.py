"""Runs recurring jobs without a daemon, and compresses old events while a process is idle.

The store holds a list of jobs with the times when they are due. A process that records events, a server, or the command
`mica upkeep tick` claims each due job there, so only one of several processes runs it. Repeating a job does no harm.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Collection, Sequence
from contextlib import suppress
from datetime import UTC, datetime, time, timedelta, tzinfo

import msgspec

from mica.errors import ClaimLost, MicaError, StoreError
from mica.model.event import Clock
from mica.store.priority import never_give_way
from mica.store.protocol import BLOCK_EVENTS, StoreFiles, WorkQueue

LEASE = timedelta(minutes=5)  # of a claimed job; never renewed: a job ends long before, or its process is dead
POLL_S = 60.0  # how often an active process looks for due jobs


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """A recurring job: the function that it runs, and how often."""

    kind: str
    every: timedelta  # the time between two runs
    at: time | None = None  # the time of day of a daily job
    zone: tzinfo | None = None  # the time zone of `at`; None for the zone of this machine
    run: Callable[[], Awaitable[int]]  # returns how much was done, for example the number of new crystals

    def after(self, now: datetime) -> datetime:
        """Return when the job is due again after a run at the time `now`."""
        if self.at is None:
            return now + self.every
        local = now.astimezone(self.zone)
        next_at = local.replace(hour=self.at.hour, minute=self.at.minute, second=0, microsecond=0)
        while next_at <= local:
            next_at += self.every
        return next_at.astimezone(UTC)


class JobRun(msgspec.Struct, frozen=True, kw_only=True):
    """The result of one run of a job: how much it did, or why it failed."""

    kind: str
    done: int = 0
    error: str | None = None
    next_at: datetime


class Scheduler:
    """Runs the recurring jobs of one space when they are due."""

    def __init__(
        self,
        work: WorkQueue,
        jobs: Sequence[Job],
        *,
        clock: Clock,
        on_failure: Callable[[JobRun], None] = lambda run: None,
        give_way: Callable[[], Awaitable[None]] = never_give_way,
    ) -> None:
        self._on_failure = on_failure  # called with every job that failed
        self._give_way = give_way
        self._work = work
        self._jobs = {job.kind: job for job in jobs}
        self._clock = clock
        self._owner = f"{os.uname().nodename}:{os.getpid()}"
        self._polled_s = asyncio.get_running_loop().time()  # so that a short-lived process runs no jobs
        self._task: asyncio.Task[list[JobRun]] | None = None

    async def tick(self, kinds: Collection[str] | None = None) -> list[JobRun]:
        """Run the jobs that are due; returns one result for each. Jobs that another process is running are skipped.

        `kinds` are the kinds of jobs to run; None means all. A failed job is retried at its next scheduled time.
        """
        await self._plan()
        ran: list[JobRun] = []
        chosen = [kind for kind in self._jobs if kinds is None or kind in kinds]
        while (
            claim := await self._work.claim(chosen, owner=self._owner, due_by=self._clock(), lease=LEASE)
        ) is not None:
            job = self._jobs[claim.kind]
            await self._give_way()
            next_at = job.after(self._clock())
            try:
                result = JobRun(kind=job.kind, done=await job.run(), next_at=next_at)
            except Exception as error:  # noqa: BLE001 - reported, and tried again at its next time
                reason = str(error) if isinstance(error, MicaError) else f"{type(error).__name__}: {error}"
                result = JobRun(kind=job.kind, error=reason, next_at=next_at)
                self._on_failure(result)
            except BaseException:
                await asyncio.shield(
                    self._work.finish(claim, again_at=self._clock())
                )  # another process may run it at once
                raise
            with suppress(ClaimLost):  # its lease expired and another process took over; jobs are idempotent
                await self._work.finish(claim, again_at=next_at)
            ran.append(result)
        return ran

    def poll(self) -> None:
        """Start to run due jobs in the background, unless this was done within the last POLL_S seconds.

        In the first POLL_S seconds of a process, no jobs are run.
        """
        loop = asyncio.get_running_loop()
        if self._jobs and loop.time() - self._polled_s > POLL_S and (self._task is None or self._task.done()):
            self._polled_s = loop.time()
            self._task = loop.create_task(self._tick_quietly(), name="mica-scheduler")

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    async def _tick_quietly(self) -> list[JobRun]:
        try:
            return await self.tick()
        except MicaError:
            return []  # the store is unavailable: the next active process retries

    async def _plan(self) -> None:
        known = {work.kind for work in await self._work.all()}
        for kind in self._jobs.keys() - known:
            # `only_new`: another process may have planned and run it meanwhile, so it must not become due again.
            await self._work.plan(kind, due_at=self._clock(), only_new=True)


HOT = timedelta(hours=24)  # younger events stay uncompressed: they are read most, and their parents may still arrive
PAUSE_S = 0.05  # between two steps, so that a waiting writer gets its turn
QUIET_S = 30.0  # how long nothing must be stored before ageing begins; a command ends earlier
EVERY_S = 3_600.0  # between two runs in one process: compressing a day's events is not urgent


async def age(
    files: StoreFiles,
    *,
    now: Clock,
    older_than: timedelta = HOT,
    at_least: int = 1,
    on_progress: Callable[[int], None] = lambda count: None,
) -> int:
    """Compress the events that are older than `older_than`, in small steps with pauses; returns how many.

    If fewer than `at_least` such events are left, only large ones are compressed. `on_progress` is called with the
    number of events compressed so far.
    """
    before, total = now() - older_than, 0
    while count := await files.age(before, at_least=at_least):
        total += count
        on_progress(total)
        await asyncio.sleep(PAUSE_S)
    return total


class Ageing:
    """A background task that compresses old events when nothing was stored for a while and enough events are old."""

    def __init__(
        self, files: StoreFiles, *, now: Clock, sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    ) -> None:
        self._files = files
        self._now = now
        self._sleep = sleep
        self._is_quiet = True
        self._task = asyncio.get_running_loop().create_task(self._keep_ageing(), name="mica-ageing")

    def disturb(self) -> None:
        """Note that something was stored. The wait for a time without new events then begins again."""
        self._is_quiet = False

    async def close(self) -> None:
        """Stop the background task. A step in progress is one transaction: it is completed or has no effect."""
        self._task.cancel()
        await asyncio.wait([self._task])

    async def _keep_ageing(self) -> None:
        while True:
            self._is_quiet = True
            await self._sleep(QUIET_S)
            if not self._is_quiet:
                continue
            with suppress(StoreError):  # nothing is lost: the next hour tries again
                await age(self._files, now=self._now, at_least=BLOCK_EVENTS)
            await self._sleep(EVERY_S)

"""Work that is due now and then: one scheduler, no daemon.

Jobs are planned in the store, so that of several processes that share it one does each of them. Whoever is active runs
what is due: a process that observes, `mica tick`, or a server by its clock. Every job may be repeated.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Collection, Sequence
from contextlib import suppress
from datetime import UTC, datetime, time, timedelta, tzinfo

import msgspec

from mica.errors import ClaimLost, MicaError
from mica.model.event import Clock
from mica.store.priority import nobody_asks
from mica.store.protocol import Store

LEASE = timedelta(minutes=5)  # renewed by nobody: a job ends long before, or its process is dead
STIR_S = 60.0  # how often an active process looks for what is due


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """Something that is done again and again."""

    kind: str
    every: timedelta
    at: time | None = None  # of the day, for what is done daily; in this zone, or this machine's
    zone: tzinfo | None = None
    run: Callable[[], Awaitable[int]]  # returns how much was done

    def after(self, now: datetime) -> datetime:
        """When it is due again."""
        if self.at is None:
            return now + self.every
        local = now.astimezone(self.zone)
        next_at = local.replace(hour=self.at.hour, minute=self.at.minute, second=0, microsecond=0)
        while next_at <= local:
            next_at += self.every
        return next_at.astimezone(UTC)


class Ran(msgspec.Struct, frozen=True, kw_only=True):
    """A job that was run: how much it did, or why it failed."""

    kind: str
    done: int = 0
    error: str | None = None
    next_at: datetime


class Scheduler:
    """Runs the jobs of one space that are due."""

    def __init__(
        self,
        store: Store,
        jobs: Sequence[Job],
        *,
        clock: Clock,
        tell: Callable[[Ran], None] = lambda ran: None,
        give_way: Callable[[], Awaitable[None]] = nobody_asks,
    ) -> None:
        self._tell = tell  # called with every job that failed
        self._give_way = give_way
        self._store = store
        self._jobs = {job.kind: job for job in jobs}
        self._clock = clock
        self._owner = f"{os.uname().nodename}:{os.getpid()}"
        self._stirred_s = asyncio.get_running_loop().time()  # a short process leaves it to others
        self._task: asyncio.Task[list[Ran]] | None = None

    async def tick(self, kinds: Collection[str] | None = None) -> list[Ran]:
        """Run what is due and nobody else runs, of these kinds or of all; returns what was run.

        A job that failed is tried at its next time.
        """
        await self._plan()
        ran: list[Ran] = []
        chosen = [kind for kind in self._jobs if kinds is None or kind in kinds]
        while (
            claim := await self._store.claim(chosen, owner=self._owner, due_by=self._clock(), lease=LEASE)
        ) is not None:
            job = self._jobs[claim.kind]
            await self._give_way()
            next_at = job.after(self._clock())
            try:
                found = Ran(kind=job.kind, done=await job.run(), next_at=next_at)
            except Exception as error:  # noqa: BLE001 - told, and tried again at its next time
                reason = str(error) if isinstance(error, MicaError) else f"{type(error).__name__}: {error}"
                found = Ran(kind=job.kind, error=reason, next_at=next_at)
                self._tell(found)
            except BaseException:
                await asyncio.shield(self._store.finish(claim, again_at=self._clock()))  # another may do it at once
                raise
            with suppress(ClaimLost):  # it took longer than its lease: another has begun, and nothing is made twice
                await self._store.finish(claim, again_at=next_at)
            ran.append(found)
        return ran

    def stir(self) -> None:
        """Something happened: look in the background for what is due, now and then."""
        loop = asyncio.get_running_loop()
        if self._jobs and loop.time() - self._stirred_s > STIR_S and (self._task is None or self._task.done()):
            self._stirred_s = loop.time()
            self._task = loop.create_task(self._quietly(), name="mica-scheduler")

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    async def _quietly(self) -> list[Ran]:
        try:
            return await self.tick()
        except MicaError:
            return []  # the store is away: the next who is active looks again

    async def _plan(self) -> None:
        known = {work.kind for work in await self._store.work()}
        for kind in self._jobs.keys() - known:
            # Another process may have planned it since, and done it: then it is not due at once again.
            await self._store.plan(kind, due_at=self._clock(), only_new=True)

"""The embedded store: the synchronous core on one worker thread of its own."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, TypeVar

from mica.errors import StoreBusy, StoreFull, StoreUnavailable
from mica.model.event import EventId, Tombstone
from mica.store.leases import nothing_to_hear
from mica.store.sqlite.blocks import STEP_EVENTS
from mica.store.sqlite.core import PATIENCE_S, SqliteCore

P = ParamSpec("P")
R = TypeVar("R")

LOG = logging.getLogger("mica")

BUSY_MS = 20  # how long the worker thread itself may wait: readers of this process stand behind it
RETRY_S = 0.005, 0.03  # between two tries, at random, so that writers do not keep step
SAY_S = 3  # after which whoever waits is told for what: most writers take some milliseconds
READERS_S = 10  # how long a purge waits for those who read in the log: an answer takes less, a forgotten reader longer


def threaded(
    method: Callable[Concatenate[SqliteCore, P], R],
) -> Callable[Concatenate[SqliteStore, P], Coroutine[Any, Any, R]]:
    """The core's method, run on the store's worker thread."""

    async def run(store: SqliteStore, /, *args: P.args, **kwargs: P.kwargs) -> R:
        return await store.run(method, *args, **kwargs)

    run.__doc__ = method.__doc__
    return run


class SqliteStore:
    """A space in a file. Open it with `await SqliteStore.open(path)`."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="mica-sqlite")
        self._ager = ThreadPoolExecutor(max_workers=1, thread_name_prefix="mica-ageing")  # starts when it is needed
        self._core: SqliteCore | None = None
        self._space = ""

    @classmethod
    async def open(cls, path: Path) -> SqliteStore:
        store = cls(path)
        try:
            store._core = await store._patiently(partial(SqliteCore, path, busy_ms=BUSY_MS))
            store._space = await store._patiently(lambda: store._core.space if store._core else "")
        except BaseException:
            store._thread.shutdown(wait=False)
            raise
        return store

    @property
    def space(self) -> str:
        return self._space

    @property
    def location(self) -> str:
        return str(self._path)

    @property
    def segments(self) -> Path:
        return self._path.with_name(self._path.name + "-segments")

    async def run(self, method: Callable[Concatenate[SqliteCore, P], R], *args: P.args, **kwargs: P.kwargs) -> R:
        if self._core is None:
            raise StoreUnavailable(f"the store {self._path} is closed; open it again")
        return await self._patiently(partial(method, self._core, *args, **kwargs))

    async def _patiently(self, call: Callable[[], R], thread: ThreadPoolExecutor | None = None) -> R:
        """Run on the worker thread or another; while another process writes, give the thread away and try again."""
        loop = asyncio.get_running_loop()
        began, is_said = loop.time(), False
        while True:
            try:
                return await loop.run_in_executor(thread or self._thread, call)
            except StoreBusy as error:
                if not is_said and loop.time() - began >= SAY_S:
                    is_said = True
                    LOG.warning(
                        "%s is locked by another process; waiting for it, %s s at the most", self._path, PATIENCE_S
                    )
                if loop.time() - began > PATIENCE_S:
                    raise StoreBusy(f"{self._path} was busy for {PATIENCE_S} s; which process holds it?") from error
                await asyncio.sleep(random.uniform(*RETRY_S))

    append = threaded(SqliteCore.append)
    event = threaded(SqliteCore.event)
    events_of = threaded(SqliteCore.events_of)
    event_at = threaded(SqliteCore.event_at)
    events = threaded(SqliteCore.events)
    log = threaded(SqliteCore.log)
    last_position = threaded(SqliteCore.last_position)
    hears = False
    listen = staticmethod(nothing_to_hear)
    chain = threaded(SqliteCore.chain)
    ancestors = threaded(SqliteCore.ancestors)
    descendants = threaded(SqliteCore.descendants)
    postings = threaded(SqliteCore.postings)
    postings_at = threaded(SqliteCore.postings_at)
    texts = threaded(SqliteCore.texts)
    crystals = threaded(SqliteCore.crystals)
    unsealed = threaded(SqliteCore.unsealed)
    citing = threaded(SqliteCore.citing)
    crystal_postings = threaded(SqliteCore.crystal_postings)
    above = threaded(SqliteCore.above)
    save_vectors = threaded(SqliteCore.save_vectors)
    vectors = threaded(SqliteCore.vectors)
    without_vector = threaded(SqliteCore.without_vector)
    save_trails = threaded(SqliteCore.save_trails)
    lesson = threaded(SqliteCore.lesson)
    trails = threaded(SqliteCore.trails)
    save_replies = threaded(SqliteCore.save_replies)
    replies = threaded(SqliteCore.replies)
    replied = threaded(SqliteCore.replied)
    agents = threaded(SqliteCore.agents)
    plan = threaded(SqliteCore.plan)
    claim = threaded(SqliteCore.claim)
    renew = threaded(SqliteCore.renew)
    finish = threaded(SqliteCore.finish)
    work = threaded(SqliteCore.work)
    sizes = threaded(SqliteCore.sizes)
    verify = threaded(SqliteCore.verify)
    rebuild = threaded(SqliteCore.rebuild)
    keep_purge = threaded(SqliteCore.keep_purge)
    purges = threaded(SqliteCore.purges)

    async def bury(self, identifiers: Sequence[EventId], told: Tombstone) -> int:
        portions = await self.run(SqliteCore.burials, identifiers)
        return sum([await self.run(SqliteCore.bury, some, told) for some in portions])

    @property
    def generation(self) -> int:
        return -1 if self._core is None else self._core.generation

    async def scrub(self) -> list[str]:
        left = []
        try:
            await self.run(SqliteCore.compact)
        except (StoreFull, StoreBusy) as error:
            left.append(f"{self._path} could not be written anew and may hold copies on its free pages: {error}")
        until = asyncio.get_running_loop().time() + READERS_S
        while not await self.run(SqliteCore.truncate_log):
            if asyncio.get_running_loop().time() > until:
                left.append(f"{self._path}-wal is read by another process and may hold copies; end it and purge again")
                break
            await asyncio.sleep(random.uniform(*RETRY_S))
        return left

    async def age(self, before: datetime, *, limit: int = STEP_EVENTS, at_least: int = 1) -> int:
        # On a thread and a connection of its own: whoever reads in this process does not stand behind it.
        if self._core is None:
            raise StoreUnavailable(f"the store {self._path} is closed; open it again")
        return await self._patiently(partial(_age, self._path, before, limit, at_least), self._ager)

    async def close(self) -> None:
        core, self._core = self._core, None
        if core is not None:
            # Queued work ends first. Shielded: a cancelled close must not leave the file open or the thread alive.
            await asyncio.shield(asyncio.get_running_loop().run_in_executor(None, self._end, core))

    def _end(self, core: SqliteCore) -> None:
        self._ager.shutdown()
        self._thread.submit(core.close).result()
        self._thread.shutdown()


def _age(path: Path, before: datetime, limit: int, at_least: int) -> int:
    core = SqliteCore(path, busy_ms=BUSY_MS)
    try:
        return core.age(before, limit=limit, at_least=at_least)
    finally:
        core.close()

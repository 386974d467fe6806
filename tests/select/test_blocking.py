"""Threads for sources that block: bounded, and a hung one costs only itself."""

from __future__ import annotations

import asyncio
import threading
from contextvars import ContextVar

import pytest

from mica.errors import SourceFailed
from mica.select.blocking import Pool

WHERE: ContextVar[str] = ContextVar("where", default="nowhere")


async def test_work_is_done_in_another_thread_in_the_callers_context() -> None:
    """K-27: blocking drivers run in a bounded pool."""
    pool = Pool()
    WHERE.set("here")

    name, where = await pool.run("app", lambda: (threading.current_thread().name, WHERE.get()))

    assert (name, where) == ("mica-source", "here")
    pool.close()


async def test_what_the_work_raises_reaches_the_caller() -> None:
    pool = Pool()

    with pytest.raises(ZeroDivisionError):
        await pool.run("app", lambda: 1 // 0)

    pool.close()


async def test_a_hung_source_is_given_no_more_threads_and_others_go_on() -> None:
    """K-27: a hung source costs nothing but itself."""
    pool = Pool(threads_max=3, per_source_max=2)
    release = threading.Event()
    hung = [asyncio.ensure_future(pool.run("hung", release.wait)) for _ in range(2)]
    await asyncio.sleep(0)

    with pytest.raises(SourceFailed, match="2 calls have not come back"):
        await pool.run("hung", lambda: True)
    assert await pool.run("app", lambda: 42) == 42

    release.set()
    assert await asyncio.gather(*hung) == [True, True]
    assert await pool.run("hung", lambda: 7) == 7
    pool.close()


async def test_who_is_cancelled_leaves_at_once_and_the_pool_stays_bounded() -> None:
    pool = Pool(threads_max=2, per_source_max=2)
    release = threading.Event()
    waiting = asyncio.ensure_future(pool.run("hung", release.wait))
    await asyncio.sleep(0)

    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting

    before = threading.active_count()
    for _ in range(20):
        assert await pool.run("app", lambda: True)
    assert threading.active_count() <= before + 1
    release.set()
    pool.close()
    with pytest.raises(SourceFailed, match="closed"):
        await pool.run("app", lambda: True)

"""Threads for sources that block: bounded, and a hung one costs only itself."""

from __future__ import annotations

import asyncio
import threading
from contextvars import ContextVar

import pytest

from mica.errors import SourceFailed
from mica.sources.threads import Pool

WHERE: ContextVar[str] = ContextVar("where", default="nowhere")


async def test_work_runs_in_another_thread_in_the_callers_context() -> None:
    """keeps: K-27. Blocking drivers run in a bounded pool."""
    pool = Pool()
    WHERE.set("here")

    name, where = await pool.run("app", lambda: (threading.current_thread().name, WHERE.get()))

    assert (name, where) == ("mica-source", "here")
    pool.close()


async def test_an_exception_in_the_thread_reaches_the_caller() -> None:
    pool = Pool()

    with pytest.raises(ZeroDivisionError):
        await pool.run("app", lambda: 1 // 0)

    pool.close()


async def test_a_hung_source_gets_no_more_threads_and_others_continue() -> None:
    """keeps: K-27. It affects only itself, even if it holds every thread of the pool."""
    pool = Pool(idle_max=2, per_source_max=2)
    release = threading.Event()
    hung = [asyncio.ensure_future(pool.run("hung", release.wait)) for _ in range(2)]
    await asyncio.sleep(0)
    for each in hung:
        each.cancel()
    await asyncio.wait(hung)

    with pytest.raises(SourceFailed, match="2 calls have not returned"):
        await pool.run("hung", lambda: True)
    assert await pool.run("app", lambda: 42) == 42

    release.set()
    while pool.hanging("hung"):
        await pool.run("app", lambda: True)
    assert await pool.run("hung", lambda: 7) == 7
    pool.close()


async def test_no_source_waits_for_others_however_many_hang() -> None:
    """keeps: K-27. This holds while callers still wait for those; afterwards only a few threads stay."""
    pool = Pool(idle_max=2, per_source_max=2)
    release = threading.Event()
    before = threading.active_count()
    hung = [asyncio.ensure_future(pool.run(f"hung{number}", release.wait)) for number in range(40) for _ in range(2)]
    await asyncio.sleep(0)

    assert await pool.run("app", lambda: 42) == 42

    release.set()
    assert all(await asyncio.gather(*hung))
    while threading.active_count() > before + 2:
        await pool.run("app", lambda: True)
    pool.close()


async def test_calls_of_a_busy_source_wait_for_their_turn() -> None:
    """keeps: K-27. Twenty concurrent calls use no more than two threads."""
    pool = Pool(per_source_max=2)
    together, most = 0, 0
    lock = threading.Lock()
    meet = threading.Barrier(2)

    def work() -> None:
        nonlocal together, most
        with lock:
            together += 1
            most = max(most, together)
        meet.wait()
        with lock:
            together -= 1

    await asyncio.gather(*(pool.run("app", work) for _ in range(20)))

    assert most == 2
    pool.close()


async def test_a_call_that_raises_stop_iteration_is_an_error() -> None:
    pool = Pool()

    with pytest.raises(RuntimeError, match="StopIteration"):
        await pool.run("app", lambda: next(iter(())))

    pool.close()


async def test_a_cancelled_caller_returns_at_once_and_the_pool_stays_bounded() -> None:
    pool = Pool(idle_max=2, per_source_max=2)
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

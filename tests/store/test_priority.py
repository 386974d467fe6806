"""Queries come before background work, and never stop it."""

from __future__ import annotations

import asyncio
import threading

from mica import Memory
from mica.model.crystal import Crystal
from mica.store.priority import PIECE_S, WAIT_S, Priority, observe_failure


async def steps(count: int = 10) -> None:
    """Let every ready task run."""
    for _ in range(count):
        await asyncio.sleep(0)


async def test_background_work_waits_until_the_last_query_has_its_answer() -> None:
    priority = Priority()
    await priority.give_way()  # no query runs
    with priority.query():
        with priority.query():
            work = asyncio.create_task(priority.give_way(wait_s=3_600))
            await steps()
        await steps()
        assert not work.done()
    await work


async def test_endless_queries_never_stop_background_work() -> None:
    priority = Priority()
    with priority.query():
        await priority.give_way(wait_s=0)


async def test_a_thread_pauses_while_a_query_runs_but_not_forever() -> None:
    now_s = 0.0
    priority = Priority(clock_s=lambda: now_s)
    waited: list[float] = []

    def wait(timeout_s: float) -> bool:
        waited.append(timeout_s)
        return False  # the query still runs

    priority._idle_for_threads.wait = wait  # type: ignore[method-assign,assignment]  # a spy
    priority.pause()
    assert waited == []
    with priority.query():
        priority.pause()
        priority.pause()  # it has waited long enough and works now
        assert waited == [WAIT_S]
        now_s += PIECE_S
        priority.pause()
        assert waited == [WAIT_S, WAIT_S]
    priority.pause()
    assert waited == [WAIT_S, WAIT_S]


async def test_a_paused_thread_continues_after_the_query() -> None:
    priority = Priority()
    with priority.query():
        thread = threading.Thread(target=priority.pause)
        thread.start()
    await asyncio.to_thread(thread.join)


async def test_a_digest_pauses_at_every_sentence(memory: Memory) -> None:
    """A digest is computed in a thread."""
    paused = 0

    def pause() -> None:
        nonlocal paused
        paused += 1

    memory._priority.pause = pause  # type: ignore[method-assign]  # a spy
    with memory.context(session="s1"):
        for number in range(12):
            memory.mark(f"The cache of worker {number} was stale because nobody cleared it.")
    (made,) = await memory.crystals.make()

    assert made.marks == 12
    assert paused > 4 * 12


async def test_a_failed_query_no_longer_counts_as_running() -> None:
    priority = Priority()
    try:
        with priority.query():
            raise ValueError
    except ValueError:
        await priority.give_way(wait_s=3_600)


async def test_briefs_and_searches_come_before_crystals(memory: Memory) -> None:
    """A brief and a search count as queries while they read; every crystal is made after giving way."""
    with memory.context(session="s1"):
        for number in range(12):
            memory.mark(f"The cache of worker {number} was stale because nobody cleared it.")
    await memory.events.position()
    was_busy: list[bool] = []
    postings = memory._store.texts.postings

    async def spy(*args: object, **kwargs: object) -> object:
        was_busy.append(memory._priority.is_busy)
        return await postings(*args, **kwargs)  # type: ignore[arg-type]  # as it was called

    memory._store.texts.postings = spy  # type: ignore[method-assign,assignment]  # a spy
    await memory.search("cache")
    await memory.brief("cache")
    assert was_busy
    assert all(was_busy)
    assert not memory._priority.is_busy

    gave_way = 0
    crystallizer = memory.crystals._crystallizer

    async def count() -> None:
        nonlocal gave_way
        gave_way += 1

    crystallizer._give_way = count
    made: list[Crystal] = await memory.crystals.make()
    assert gave_way > len(made) > 0


async def test_the_failure_of_a_background_task_is_retrieved() -> None:
    async def fail() -> None:
        raise ValueError

    task = asyncio.create_task(fail())
    task.add_done_callback(observe_failure)
    await asyncio.wait([task])
    await steps()

    assert not task._log_traceback  # set while asyncio would still log it

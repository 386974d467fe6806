"""Whoever asks goes first; work that nobody waits for goes on all the same."""

from __future__ import annotations

import asyncio
import threading

from mica import Memory
from mica.model.crystal import Crystal
from mica.store.priority import PIECE_S, WAIT_S, Turns


async def steps(count: int = 10) -> None:
    """Let everything that can go on go on."""
    for _ in range(count):
        await asyncio.sleep(0)


async def test_work_waits_until_the_last_who_asks_has_an_answer() -> None:
    turns = Turns()
    await turns.give_way()  # nobody asks
    with turns.asking():
        with turns.asking():
            work = asyncio.create_task(turns.give_way(wait_s=3_600))
            await steps()
        await steps()
        assert not work.done()
    await work


async def test_who_asks_without_an_end_never_stops_the_work() -> None:
    turns = Turns()
    with turns.asking():
        await turns.give_way(wait_s=0)


async def test_a_thread_pauses_while_somebody_asks_and_never_for_ever() -> None:
    now_s = 0.0
    turns = Turns(clock_s=lambda: now_s)
    waited: list[float] = []

    def wait(timeout_s: float) -> bool:
        waited.append(timeout_s)
        return False  # whoever asks goes on asking

    turns._quiet_for_threads.wait = wait  # type: ignore[method-assign,assignment]  # looked over the shoulder
    turns.pause()
    assert waited == []
    with turns.asking():
        turns.pause()
        turns.pause()  # it has waited long enough: now it does something
        assert waited == [WAIT_S]
        now_s += PIECE_S
        turns.pause()
        assert waited == [WAIT_S, WAIT_S]
    turns.pause()
    assert waited == [WAIT_S, WAIT_S]


async def test_a_paused_thread_goes_on_with_the_answer() -> None:
    turns = Turns()
    with turns.asking():
        thread = threading.Thread(target=turns.pause)
        thread.start()
    await asyncio.to_thread(thread.join)


async def test_crystals_pause_for_whoever_asks(memory: Memory) -> None:
    """A digest is made in a thread: it looks up at every sentence."""
    paused = 0

    def pause() -> None:
        nonlocal paused
        paused += 1

    memory._turns.pause = pause  # type: ignore[method-assign]  # looked over the shoulder
    with memory.context(session="s1"):
        for number in range(12):
            memory.mark(f"The cache of worker {number} was stale because nobody cleared it.")
    (made,) = await memory.crystallize()

    assert made.marks == 12
    assert paused > 4 * 12


async def test_a_failed_question_is_asked_no_more() -> None:
    turns = Turns()
    try:
        with turns.asking():
            raise ValueError
    except ValueError:
        await turns.give_way(wait_s=3_600)


async def test_a_brief_and_a_search_go_before_crystals(memory: Memory) -> None:
    """Whatever reads for an answer counts as asking, until it has it; each crystal is made after giving way."""
    with memory.context(session="s1"):
        for number in range(12):
            memory.mark(f"The cache of worker {number} was stale because nobody cleared it.")
    await memory.position()
    asked: list[bool] = []
    postings = memory.store.postings

    async def seen(*args: object, **kwargs: object) -> object:
        asked.append(memory._turns.is_asked)
        return await postings(*args, **kwargs)  # type: ignore[arg-type]  # as it was called

    memory.store.postings = seen  # type: ignore[method-assign,assignment]  # looked over the shoulder
    await memory.search("cache")
    await memory.brief("cache")
    assert asked
    assert all(asked)
    assert not memory._turns.is_asked

    gave_way = 0
    crystallizer = memory._crystallizer

    async def count() -> None:
        nonlocal gave_way
        gave_way += 1

    crystallizer._give_way = count
    made: list[Crystal] = await memory.crystallize()
    assert gave_way > len(made) > 0

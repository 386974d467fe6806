"""The tail of a log: batches for idle, slow and late listeners."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import cast

import pytest

import mica
from mica.web.tail import LogTail


async def test_an_idle_listener_gets_empty_batches() -> None:
    """keeps: B-67. The heartbeat has the position reached, so a listener can resume after a dead connection."""
    async with mica.open(":memory:") as memory:
        memory.mark("one")
        tail = LogTail(memory, quiet_s=0.001)
        batches = tail.batches(mica.EventQuery(), after=0)
        first, quiet = await anext(batches), await anext(batches)
        await batches.aclose()
        await tail.close()

    assert ([event.position for event in first[1]], quiet) == ([1], (1, []))
    assert tail.listeners == 0


class SlowMemory:
    """A memory whose first read of the log returns only after `released` is set."""

    def __init__(self, memory: mica.Memory) -> None:
        self._events = memory.events
        self.is_read, self.released = asyncio.Event(), asyncio.Event()

    @property
    def events(self) -> SlowMemory:
        return self

    def __getattr__(self, name: str) -> object:
        return getattr(self._events, name)

    async def log(self, *, after: int) -> AsyncIterator[mica.Event]:
        events = [event async for event in self._events.log(after=after)]
        if not self.is_read.is_set():
            self.is_read.set()
            await self.released.wait()
        for event in events:
            yield event


async def test_events_purged_during_a_read_are_not_sent() -> None:
    """Neither to the current reader nor to the next one with the same query."""
    async with mica.open(":memory:") as memory:
        secret = memory.mark("We called it swordfish")
        await memory.events.position()
        slow = SlowMemory(memory)
        tail = LogTail(cast(mica.Memory, slow))

        async def first_of(after: int) -> bytes:
            async with aclosing(
                tail.lines(mica.EventQuery(), after=after, fields=(), wrap=lambda event, line: event.body)
            ) as lines:
                return (await anext(lines))[1]

        reading = asyncio.create_task(first_of(0))
        await slow.is_read.wait()
        news = asyncio.create_task(first_of(await memory.events.position()))
        await memory.purge(ids=[secret.id])
        await news  # the tail has received the purge
        slow.released.set()

        assert b"swordfish" not in await reading
        assert b"swordfish" not in await first_of(0)
        await tail.close()


async def test_a_listener_that_begins_during_shutdown_leaves_no_task() -> None:
    async with mica.open(":memory:") as memory:
        tail = LogTail(memory)
        listener = asyncio.create_task(anext(tail.batches(mica.EventQuery(), after=0)))
        await asyncio.sleep(0)  # it is reading the position of the log

        await tail.close()

        with pytest.raises(mica.StoreUnavailable, match="stopping"):
            await listener
        assert "mica-tail" not in {task.get_name() for task in asyncio.all_tasks()}

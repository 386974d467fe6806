"""The watcher: one follower of the log notifies all listeners."""

from __future__ import annotations

import asyncio

from mica.mcp.http import SpaceOwner
from mica.mcp.resources import BRIEFING, ResourceChange
from mica.memory import Memory


async def test_every_listener_gets_a_change_until_it_unsubscribes(memory: Memory) -> None:
    watch = SpaceOwner(memory).watch
    one: asyncio.Queue[ResourceChange | None] = asyncio.Queue()
    two: asyncio.Queue[ResourceChange | None] = asyncio.Queue()
    await watch.listen(one.put_nowait)
    unsubscribe = await watch.listen(two.put_nowait)

    memory.mark("The cookie is set before the redirect")
    changes = [await one.get(), await two.get()]
    unsubscribe()
    memory.mark("It is set after the redirect now")
    later = await one.get()
    await watch.close()

    assert [change is not None and change.touches(BRIEFING) for change in (*changes, later)] == [True] * 3
    assert two.empty()


async def test_closing_sends_the_end_to_listeners(memory: Memory) -> None:
    watch = SpaceOwner(memory).watch
    received: list[ResourceChange | None] = []
    await watch.listen(received.append)

    await watch.close()

    assert received == [None]


async def test_events_before_the_subscription_are_not_notified(memory: Memory) -> None:
    memory.mark("An earlier mark")
    await memory.events.position()
    watch = SpaceOwner(memory).watch
    changes: asyncio.Queue[ResourceChange | None] = asyncio.Queue()

    await watch.listen(changes.put_nowait)
    memory.emit("file.read", {"path": "a.py"})  # changes no resource
    await memory.events.position()
    await watch.close()

    assert changes.get_nowait() is None

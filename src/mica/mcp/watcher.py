"""Notifies listeners of changes in a space. One task reads new events for all listeners."""

from __future__ import annotations

import asyncio
import traceback
from collections.abc import Callable
from typing import Protocol

from mica.errors import StoreUnavailable
from mica.mcp.resources import CHANGING, ResourceChange, change_of
from mica.memory import Memory
from mica.model.event import EventQuery

MERGE_S = 0.2  # changes within it are merged: an import of thousands of marks is one change
POLL_S = 1.0  # between polls for events of other processes; an idle client costs next to nothing
NEW_SPACE_POLL_S = 2.0  # between checks whether the space exists yet


class MemoryOwner(Protocol):
    """Provides the memory that an MCP server uses.

    `is_known` is true if the server need not ask the client for its project directories (roots) to find the space.
    `has_space` is true once the space is open. `memory` creates a missing space only if `makes` is true.
    """

    session: str | None  # of the client, if known

    @property
    def is_known(self) -> bool: ...
    @property
    def has_space(self) -> bool: ...
    def expect_roots(self) -> asyncio.Future[object]: ...
    async def memory(self, *, makes: bool) -> Memory: ...


Listener = Callable[[ResourceChange | None], None]  # None: no further change will follow


class Watch:
    """Reads new events of a space while there are listeners, and calls every listener for each change."""

    def __init__(self, home: MemoryOwner) -> None:
        self._home = home
        self._listeners: set[Listener] = set()
        self._following: asyncio.Task[None] | None = None
        self._begun = asyncio.Event()
        self._pending = ResourceChange()

    async def listen(self, listener: Listener) -> Callable[[], None]:
        """Call `listener` for every change from now on. Returns a function that removes the listener again."""
        self._listeners.add(listener)
        if self._following is None or self._following.done():
            self._begun = asyncio.Event()
            self._following = asyncio.create_task(self._follow(self._begun))
        try:
            await self._begun.wait()
        except asyncio.CancelledError:
            self._unsubscribe(listener)
            raise
        return lambda: self._unsubscribe(listener)

    def _unsubscribe(self, listener: Listener) -> None:
        self._listeners.discard(listener)
        if not self._listeners and self._following is not None:
            self._following.cancel()
            self._following = None

    async def close(self) -> None:
        """Stop reading events, and call every listener with None, which says that no more changes follow."""
        following, self._following = self._following, None
        if following is not None:
            following.cancel()
            await asyncio.wait([following])
        self._call(None)

    async def _follow(self, begun: asyncio.Event) -> None:
        try:
            memory = await self._home.memory(makes=False)
            after = await memory.events.position() if self._home.has_space else 0  # all events of a new space are new
            begun.set()
            while not self._home.has_space:
                await asyncio.sleep(NEW_SPACE_POLL_S)
                memory = await self._home.memory(makes=False)
            async for event in memory.events.follow(EventQuery(names=CHANGING), after=after, poll_s=POLL_S):
                if self._pending == ResourceChange():
                    asyncio.get_running_loop().call_later(MERGE_S, self._flush)
                self._pending |= change_of(event)
        except StoreUnavailable:  # the memory was closed
            self._call(None)
        except Exception:  # noqa: BLE001 - the outermost edge: no caller awaits this task, and listeners must be notified
            traceback.print_exc()
            self._call(None)
        finally:
            begun.set()

    def _flush(self) -> None:
        pending, self._pending = self._pending, ResourceChange()
        self._call(pending)

    def _call(self, change: ResourceChange | None) -> None:
        for listener in tuple(self._listeners):
            listener(change)

"""What changes in a space, told to whoever listens: one follower of its log, however many they are."""

from __future__ import annotations

import asyncio
import traceback
from collections.abc import Callable
from typing import Protocol

from mica.errors import StoreUnavailable
from mica.mcp.resources import CHANGING, Change, change_of
from mica.memory import Memory
from mica.model.event import EventQuery

CALM_S = 0.2  # in which changes are gathered: an import of thousands of marks is one change
LOOK_S = 1.0  # for what other processes store: a client that only listens costs the machine next to nothing
LOOK_AGAIN_S = 2.0  # for a space that nobody has made yet


class Home(Protocol):
    """Whom a server speaks for."""

    session: str | None  # of the client, where it is known

    @property
    def is_known(self) -> bool: ...
    @property
    def has_space(self) -> bool: ...
    def expect_roots(self) -> asyncio.Future[object]: ...
    async def memory(self, *, makes: bool) -> Memory: ...


Heard = Callable[[Change | None], None]  # None: nothing more will be told


class Watch:
    """Follows the log of a space while somebody listens, and not a moment longer."""

    def __init__(self, home: Home) -> None:
        self._home = home
        self._listeners: set[Heard] = set()
        self._following: asyncio.Task[None] | None = None
        self._begun = asyncio.Event()
        self._gathered = Change()

    async def listen(self, heard: Heard) -> Callable[[], None]:
        """Tell `heard` of every change after this returns; what it returns ends that."""
        self._listeners.add(heard)
        if self._following is None or self._following.done():
            self._begun = asyncio.Event()
            self._following = asyncio.create_task(self._follow(self._begun))
        try:
            await self._begun.wait()
        except asyncio.CancelledError:
            self._leave(heard)
            raise
        return lambda: self._leave(heard)

    def _leave(self, heard: Heard) -> None:
        self._listeners.discard(heard)
        if not self._listeners and self._following is not None:
            self._following.cancel()
            self._following = None

    async def close(self) -> None:
        """Tell all who listen that it is over."""
        following, self._following = self._following, None
        if following is not None:
            following.cancel()
            await asyncio.wait([following])
        self._tell(None)

    async def _follow(self, begun: asyncio.Event) -> None:
        try:
            memory = await self._home.memory(makes=False)
            after = await memory.position() if self._home.has_space else 0  # whatever a new space begins with is news
            begun.set()
            while not self._home.has_space:
                await asyncio.sleep(LOOK_AGAIN_S)
                memory = await self._home.memory(makes=False)
            async for event in memory.follow(EventQuery(names=CHANGING), after=after, poll_s=LOOK_S):
                if self._gathered == Change():
                    asyncio.get_running_loop().call_later(CALM_S, self._tell_gathered)
                self._gathered |= change_of(event)
        except StoreUnavailable:  # the memory was closed
            self._tell(None)
        except Exception:  # noqa: BLE001 - the outermost edge: nobody waits for this task, and listeners must know
            traceback.print_exc()
            self._tell(None)
        finally:
            begun.set()

    def _tell_gathered(self) -> None:
        gathered, self._gathered = self._gathered, Change()
        self._tell(gathered)

    def _tell(self, change: Change | None) -> None:
        for heard in tuple(self._listeners):
            heard(change)

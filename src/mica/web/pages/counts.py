"""Caches for the slow figures of the dashboard, shared by all requests."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, TypeVar

from starlette.requests import Request

from mica.memory import Memory
from mica.model.crystal import Waiting
from mica.model.event import EventId, EventQuery, utc_now
from mica.navigation.report import Period
from mica.store.purges import PURGE
from mica.web.memory_pool import memory_of, pool_of
from mica.web.views.briefs import BriefEffectView, brief_effect
from mica.web.views.crystals import CrystalNode, preview
from mica.web.views.file_map import Map, file_map
from mica.web.views.health import uncovered
from mica.web.views.trails import Patterns, patterns
from mica.web.views.worth import WorthView, worth

T = TypeVar("T")

FRESH_S = 15.0  # figures over weeks do not change in this time
LASTING_S = 60.0  # recompute after this even if the log is unchanged: sessions end by the clock
ENTRIES_MAX = 64  # pairs of space and figure; the oldest is dropped


async def last_purge(memory: Memory) -> EventId | None:
    """Return the id of the latest purge of a space by any process. Cached figures from before it must be dropped."""
    purged = await memory.events.query(EventQuery(names=(PURGE,), limit=1))
    return purged[0].id if purged else None


class CountCache(Generic[T]):
    """Caches one value per space and name, computed by one task at a time.

    A value is used for `fresh_s` seconds, and for LASTING_S if no event was stored meanwhile. After a purge by any
    process, a value is computed again, so that purged content is never shown.
    """

    def __init__(self, *, fresh_s: float = FRESH_S, clock: Callable[[], float] = time.monotonic) -> None:
        self._fresh_s = fresh_s
        self._clock = clock
        self._entries: dict[object, tuple[float, tuple[int, object], T]] = {}
        self._locks: dict[object, asyncio.Lock] = {}

    async def get(self, memory: Memory, about: str, count: Callable[[], Awaitable[T]]) -> T:
        """Return the cached value named `about`. If there is none or it is too old, compute it with `count`."""
        key = (memory.space, about)
        async with self._locks.setdefault(key, asyncio.Lock()):
            state = (await memory.events.position(), await last_purge(memory))
            entry = self._entries.get(key)
            if entry is not None and self._is_current(entry[0], entry[1], state):
                return entry[2]
            value = await count()
            self._entries.pop(key, None)
            self._entries[key] = (self._clock(), state, value)
            while len(self._entries) > ENTRIES_MAX:
                self._entries.pop(next(iter(self._entries)))
            return value

    def _is_current(self, counted_s: float, then: tuple[int, object], now: tuple[int, object]) -> bool:
        age_s = self._clock() - counted_s
        return (then == now and age_s < LASTING_S) or (then[1] == now[1] and age_s < self._fresh_s)

    def clear(self) -> None:
        """Drop all values, because a page changed the data they were computed from."""
        self._entries.clear()


WEEKS_S = 60.0  # figures over weeks hardly change in a minute, and take a second for a million events


class FigureCaches:
    """The caches of one server: one for each kind of figure, with a value for each space."""

    def __init__(self) -> None:
        self.worth: CountCache[WorthView] = CountCache(fresh_s=WEEKS_S)
        self.maps: CountCache[Map] = CountCache()
        self.brief_effect: CountCache[BriefEffectView] = CountCache(fresh_s=WEEKS_S)
        self.patterns: CountCache[Patterns] = CountCache(fresh_s=3.0)
        self.uncovered: CountCache[list[Waiting]] = CountCache(fresh_s=0)
        self.preview: CountCache[Sequence[CrystalNode]] = CountCache(fresh_s=0)


def caches_of(request: Request) -> FigureCaches:
    """Return the caches of the server that handles a request. They are created at the first request."""
    state = request.app.state
    if not hasattr(state, "figure_caches"):
        state.figure_caches = FigureCaches()
    caches = state.figure_caches
    assert isinstance(caches, FigureCaches)
    return caches


async def worth_of(request: Request, period: Period) -> WorthView:
    memory, now = await memory_of(request), utc_now()
    return await caches_of(request).worth.get(memory, period, lambda: worth(memory, period, now=now))


async def brief_effect_of(request: Request) -> BriefEffectView:
    memory, now = await memory_of(request), utc_now()
    return await caches_of(request).brief_effect.get(memory, "", lambda: brief_effect(memory, now=now))


async def uncovered_of(request: Request) -> list[Waiting]:
    memory = await memory_of(request)
    return await caches_of(request).uncovered.get(memory, "", lambda: uncovered(memory))


async def preview_of(request: Request) -> Sequence[CrystalNode]:
    memory = await memory_of(request)
    return await caches_of(request).preview.get(memory, "", lambda: preview(memory))


async def patterns_of(request: Request) -> Patterns:
    memory, now = await memory_of(request), utc_now()
    gates = pool_of(request).settings.trails
    return await caches_of(request).patterns.get(memory, "", lambda: patterns(memory, gates=gates, now=now))


async def map_of(request: Request) -> Map:
    memory = await memory_of(request)
    return await caches_of(request).maps.get(memory, "", lambda: file_map(memory))

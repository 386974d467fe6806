"""Caches for the slow figures of the dashboard, shared by all requests."""

from __future__ import annotations

from collections.abc import Sequence

from starlette.requests import Request

from mica.model.crystal import Waiting
from mica.model.event import utc_now
from mica.navigation.report import Period
from mica.web.memory_pool import memory_of, pool_of
from mica.web.views.briefs import BriefEffectView, brief_effect
from mica.web.views.cache import CountCache
from mica.web.views.crystals import CrystalNode, preview
from mica.web.views.file_map import Map, file_map
from mica.web.views.health import uncovered
from mica.web.views.trails import Patterns, patterns
from mica.web.views.worth import WorthView, worth

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

"""What takes long to count, kept by one server for everybody who looks."""

from __future__ import annotations

from collections.abc import Sequence

from starlette.requests import Request

from mica.model.crystal import Waiting
from mica.model.event import utc_now
from mica.navigation.report import Period
from mica.web.request_memory import house_of, memory_of
from mica.web.views.briefs import Helped, helped
from mica.web.views.cache import Kept
from mica.web.views.crystals import Node, preview
from mica.web.views.file_map import Map, drawn
from mica.web.views.health import uncovered
from mica.web.views.trails import Patterns, patterns
from mica.web.views.worth import Worth, worth

WEEKS_S = 60.0  # figures over weeks are the same a minute later, and take a second of a million events


class Counting:
    """The counted figures of every space that this server shows."""

    def __init__(self) -> None:
        self.worth: Kept[Worth] = Kept(fresh_s=WEEKS_S)
        self.maps: Kept[Map] = Kept()
        self.helped: Kept[Helped] = Kept(fresh_s=WEEKS_S)
        self.patterns: Kept[Patterns] = Kept(fresh_s=3.0)
        self.uncovered: Kept[list[Waiting]] = Kept(fresh_s=0)
        self.preview: Kept[Sequence[Node]] = Kept(fresh_s=0)


def counting_of(request: Request) -> Counting:
    """The figures of the server that a request came to."""
    state = request.app.state
    if not hasattr(state, "counting"):
        state.counting = Counting()
    counting = state.counting
    assert isinstance(counting, Counting)
    return counting


async def worth_of(request: Request, period: Period) -> Worth:
    memory, now = await memory_of(request), utc_now()
    return await counting_of(request).worth.get(memory, period, lambda: worth(memory, period, now=now))


async def helped_of(request: Request) -> Helped:
    memory, now = await memory_of(request), utc_now()
    return await counting_of(request).helped.get(memory, "", lambda: helped(memory, now=now))


async def uncovered_of(request: Request) -> list[Waiting]:
    memory = await memory_of(request)
    return await counting_of(request).uncovered.get(memory, "", lambda: uncovered(memory))


async def preview_of(request: Request) -> Sequence[Node]:
    memory = await memory_of(request)
    return await counting_of(request).preview.get(memory, "", lambda: preview(memory))


async def patterns_of(request: Request) -> Patterns:
    memory, now = await memory_of(request), utc_now()
    gates = house_of(request).settings.trails
    return await counting_of(request).patterns.get(memory, "", lambda: patterns(memory, gates=gates, now=now))


async def map_of(request: Request) -> Map:
    memory = await memory_of(request)
    return await counting_of(request).maps.get(memory, "", lambda: drawn(memory))

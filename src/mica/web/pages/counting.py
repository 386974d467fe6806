"""What takes long to count, kept by one server for everybody who looks."""

from __future__ import annotations

from starlette.requests import Request

from mica.model import utc_now
from mica.select.reporting import Period
from mica.web.asking import house_of, memory_of
from mica.web.views.briefs import Helped, helped
from mica.web.views.files import Map, drawn
from mica.web.views.kept import Kept
from mica.web.views.trails import Patterns, patterns
from mica.web.views.worth import Worth, worth


class Counting:
    """The counted figures of every space that this server shows."""

    def __init__(self) -> None:
        self.worth: Kept[Worth] = Kept()
        self.maps: Kept[Map] = Kept()
        self.helped: Kept[Helped] = Kept()
        self.patterns: Kept[Patterns] = Kept(fresh_s=3.0)


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


async def patterns_of(request: Request) -> Patterns:
    memory, now = await memory_of(request), utc_now()
    gates = house_of(request).settings.trails
    return await counting_of(request).patterns.get(memory, "", lambda: patterns(memory, gates=gates, now=now))


async def map_of(request: Request) -> Map:
    memory = await memory_of(request)
    return await counting_of(request).maps.get(memory, "", lambda: drawn(memory))

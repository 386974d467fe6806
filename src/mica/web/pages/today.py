"""The Today page: the work of the day, open tasks, the brief of the next agent, and tokens saved and wasted."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute

from mica.model.event import utc_now
from mica.navigation.report import Period
from mica.web.memory_pool import memory_of
from mica.web.pages.counts import patterns_of, worth_of
from mica.web.pages.templates import page, render
from mica.web.scopes import route
from mica.web.views import today as view


def routes() -> list[BaseRoute]:
    return [
        route("/", today, needs="read"),
        route("/today/happened", latest_day, needs="read"),
        route("/today/open", open_work, needs="read"),
        route("/today/next", next_brief, needs="read"),
        route("/today/worth", saved_and_wasted, needs="read"),
        route("/today/figures", figures, needs="read"),
        route("/today/warnings", warnings, needs="read"),
    ]


@page
async def today(request: Request) -> Response:
    memory = await memory_of(request)
    return render(request, "today.html", is_empty=await view.is_empty(memory), hooks=memory.clients.spools is not None)


@page
async def latest_day(request: Request) -> Response:
    memory = await memory_of(request)
    day = await view.latest_day(memory, now=utc_now())
    return render(request, "parts/happened.html", day=day, crystals=await view.latest_crystals(memory))


@page
async def open_work(request: Request) -> Response:
    return render(request, "parts/open.html", open=await view.open_work(await memory_of(request)))


@page
async def next_brief(request: Request) -> Response:
    return render(request, "parts/next.html", brief=await view.next_brief(await memory_of(request), now=utc_now()))


@page
async def figures(request: Request) -> Response:
    return render(request, "parts/figures.html", worth=await worth_of(request, "week"))


@page
async def saved_and_wasted(request: Request) -> Response:
    period: Period = "day" if request.query_params.get("period") == "day" else "week"
    return render(request, "parts/worth.html", worth=await worth_of(request, period), period=period)


@page
async def warnings(request: Request) -> Response:
    return render(request, "parts/warnings.html", warnings=(await patterns_of(request)).warnings)

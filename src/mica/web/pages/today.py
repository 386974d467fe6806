"""Today: what happened, what is open, what the next agent will be told, what it was worth."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from mica.model.event import utc_now
from mica.navigation.report import Period
from mica.web.memory_pool import memory_of
from mica.web.pages.counts import patterns_of, worth_of
from mica.web.pages.templates import page, render
from mica.web.views import today as view


def routes() -> list[BaseRoute]:
    return [
        Route("/", today),
        Route("/today/happened", happened),
        Route("/today/open", still_open),
        Route("/today/next", told_next),
        Route("/today/worth", saved_and_wasted),
        Route("/today/figures", figures),
        Route("/today/warnings", warned),
    ]


@page
async def today(request: Request) -> Response:
    memory = await memory_of(request)
    return render(request, "today.html", is_empty=await view.is_empty(memory), hooks=memory.clients.spools is not None)


@page
async def happened(request: Request) -> Response:
    memory = await memory_of(request)
    day = await view.happened(memory, now=utc_now())
    return render(request, "parts/happened.html", day=day, crystals=await view.latest_crystals(memory))


@page
async def still_open(request: Request) -> Response:
    return render(request, "parts/open.html", open=await view.still_open(await memory_of(request)))


@page
async def told_next(request: Request) -> Response:
    return render(request, "parts/next.html", brief=await view.told_next(await memory_of(request), now=utc_now()))


@page
async def figures(request: Request) -> Response:
    return render(request, "parts/figures.html", worth=await worth_of(request, "week"))


@page
async def saved_and_wasted(request: Request) -> Response:
    period: Period = "day" if request.query_params.get("period") == "day" else "week"
    return render(request, "parts/worth.html", worth=await worth_of(request, period), period=period)


@page
async def warned(request: Request) -> Response:
    return render(request, "parts/warnings.html", warnings=(await patterns_of(request)).warnings)

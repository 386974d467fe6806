"""Briefs: receipts of what agents were told, each line to its source, and offers beside those that were held out."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from mica.errors import UnknownEvent
from mica.web.asking import memory_of
from mica.web.pages.counting import worth_of
from mica.web.pages.rendering import page, render
from mica.web.views import briefs as view


def routes() -> list[BaseRoute]:
    return [
        Route("/briefs", briefs),
        Route("/briefs/list", listed),
        Route("/briefs/arms", arms),
        Route("/briefs/{reference}", brief),
    ]


@page
async def briefs(request: Request) -> Response:
    return render(request, "briefs.html")


@page
async def listed(request: Request) -> Response:
    return render(request, "parts/receipts.html", receipts=await view.receipts(await memory_of(request)))


@page
async def arms(request: Request) -> Response:
    found = await worth_of(request, "week")
    return render(request, "parts/arms.html", arms=found.report.arms)


@page
async def brief(request: Request) -> Response:
    reference = request.path_params["reference"]
    found = await view.explained(await memory_of(request), reference)
    if found is None:
        raise UnknownEvent(reference)
    return render(request, "brief.html", found=found)

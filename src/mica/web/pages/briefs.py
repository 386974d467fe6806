"""Briefs: receipts of what agents were told, each line to its source, and offers beside those that were held out."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from mica.errors import UnknownEvent
from mica.web.memory_pool import memory_of
from mica.web.pages.counts import counting_of, helped_of, worth_of
from mica.web.pages.templates import form, notice_headers, page, render
from mica.web.views import briefs as view


def routes() -> list[BaseRoute]:
    return [
        Route("/briefs", briefs),
        Route("/briefs/list", listed),
        Route("/briefs/arms", arms),
        Route("/briefs/helped", helped),
        Route("/briefs/switch", switch, methods=["POST"]),
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
async def helped(request: Request) -> Response:
    return render(request, "parts/helped.html", found=await helped_of(request))


@page
async def switch(request: Request) -> Response:
    """Tell briefs in this space, or none until it is switched on again."""
    on = (await form(request)).get("on") == "1"
    await (await memory_of(request)).briefs.switch(on=on)
    counting_of(request).helped.forget()
    text = "Agents are told briefs again" if on else "No agent is told a brief in this space any more"
    return render(request, "parts/done.html", headers=notice_headers(text, "mica:brief"))


@page
async def brief(request: Request) -> Response:
    reference = request.path_params["reference"]
    found = await view.explained(await memory_of(request), reference)
    if found is None:
        raise UnknownEvent(reference)
    return render(request, "brief.html", found=found)

"""The Briefs page: recorded briefs with the source of each line, and how tasks with and without briefs compare."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute

from mica.errors import UnknownEvent
from mica.web.memory_pool import memory_of
from mica.web.pages.counts import brief_effect_of, caches_of, worth_of
from mica.web.pages.templates import form, notice_headers, page, render
from mica.web.scopes import route
from mica.web.views import briefs as view


def routes() -> list[BaseRoute]:
    return [
        route("/briefs", briefs, needs="read"),
        route("/briefs/list", receipts, needs="read"),
        route("/briefs/arms", arms, needs="read"),
        route("/briefs/helped", effect, needs="read"),
        route("/briefs/switch", switch, needs="write", methods=["POST"]),
        route("/briefs/{reference}", brief, needs="read"),
    ]


@page
async def briefs(request: Request) -> Response:
    return render(request, "briefs.html")


@page
async def receipts(request: Request) -> Response:
    return render(request, "parts/receipts.html", receipts=await view.receipts(await memory_of(request)))


@page
async def arms(request: Request) -> Response:
    worth = await worth_of(request, "week")
    return render(request, "parts/arms.html", arms=worth.report.arms)


@page
async def effect(request: Request) -> Response:
    return render(request, "parts/helped.html", effect=await brief_effect_of(request))


@page
async def switch(request: Request) -> Response:
    """Switch briefs on or off for this space."""
    on = (await form(request)).get("on") == "1"
    await (await memory_of(request)).briefs.switch(on=on)
    caches_of(request).brief_effect.clear()
    text = "Agents receive briefs again" if on else "Agents no longer receive briefs in this space"
    return render(request, "parts/done.html", headers=notice_headers(text, "mica:brief"))


@page
async def brief(request: Request) -> Response:
    reference = request.path_params["reference"]
    explained = await view.explain(await memory_of(request), reference)
    if explained is None:
        raise UnknownEvent(reference)
    return render(request, "brief.html", explained=explained)

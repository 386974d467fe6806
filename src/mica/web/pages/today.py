"""The Today page: what mica found, what the next agent will receive, what happened lately, and if all is well."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute

from mica.model.event import utc_now
from mica.web.memory_pool import memory_of
from mica.web.pages.templates import page, render
from mica.web.scopes import route
from mica.web.views import health
from mica.web.views import today as view


def routes() -> list[BaseRoute]:
    return [
        route("/", today, needs="read"),
        route("/today/happened", latest_day, needs="read"),
        route("/today/open", open_work, needs="read"),
        route("/today/next", next_brief, needs="read"),
        route("/today/found", found, needs="read"),
        route("/today/well", well, needs="read"),
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
async def found(request: Request) -> Response:
    return render(request, "parts/found.html", found=await view.found(await memory_of(request)))


@page
async def next_brief(request: Request) -> Response:
    memory = await memory_of(request)
    brief = await view.next_brief(memory, now=utc_now())
    return render(request, "parts/next.html", brief=brief, lines=await view.brief_lines(memory, brief))


@page
async def well(request: Request) -> Response:
    memory, now = await memory_of(request), utc_now()
    checked = await health.health(memory, now=now)
    return render(request, "parts/well.html", health=checked, errors=await health.errors(memory, now=now))

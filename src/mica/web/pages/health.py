"""The Health page: events that wait to be stored, size, checks of the stored data, jobs and errors."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute

from mica.format.lines import plural
from mica.model.event import utc_now
from mica.web.memory_pool import memory_of
from mica.web.pages.counts import uncovered_of
from mica.web.pages.templates import notice_headers, page, render
from mica.web.scopes import route
from mica.web.views import health as view


def routes() -> list[BaseRoute]:
    return [
        route("/status", status, needs="read"),
        route("/status/space", space, needs="read"),
        route("/status/errors", errors, needs="read"),
        route("/status/uncovered", uncovered, needs="read"),
        route("/status/laws", laws, needs="read", methods=["POST"]),
        route("/status/tick", tick, needs="write", methods=["POST"]),
    ]


@page
async def status(request: Request) -> Response:
    return render(request, "health.html")


@page
async def space(request: Request) -> Response:
    return render(request, "parts/health.html", health=await view.health(await memory_of(request), now=utc_now()))


@page
async def errors(request: Request) -> Response:
    return render(request, "parts/errors.html", errors=await view.errors(await memory_of(request), now=utc_now()))


@page
async def uncovered(request: Request) -> Response:
    return render(request, "parts/uncovered.html", waiting=await uncovered_of(request))


@page
async def laws(request: Request) -> Response:
    """Check the integrity of the stored data. This reads all of it, so it runs only when a person requests it."""
    memory = await memory_of(request)
    broken = await view.laws(memory)
    return render(request, "parts/laws.html", broken=broken, events=(await memory.upkeep.sizes()).events)


@page
async def tick(request: Request) -> Response:
    ran = await (await memory_of(request)).upkeep.tick()
    text = "; ".join(f"{each.kind}: {each.error or plural(each.done, 'change')}" for each in ran) or "Nothing was due"
    return render(request, "parts/done.html", headers=notice_headers(text, "mica:ticked", "mica:crystal"))

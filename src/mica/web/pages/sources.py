"""The Sources page: what each source contributed and how fast, and a form to ask all sources about a concept."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute

from mica.model.event import utc_now
from mica.web.memory_pool import memory_of
from mica.web.pages.templates import page, render
from mica.web.scopes import route
from mica.web.views import sources as view


def routes() -> list[BaseRoute]:
    return [
        route("/sources", sources, needs="read"),
        route("/sources/answered", contributions, needs="read"),
        route("/sources/declared", statuses, needs="read"),
        route("/sources/gathered", gather, needs="admin"),
    ]


@page
async def sources(request: Request) -> Response:
    return render(request, "sources.html", concept=request.query_params.get("concept", ""))


@page
async def contributions(request: Request) -> Response:
    return render(request, "parts/answered.html", sources=await view.sources(await memory_of(request), now=utc_now()))


@page
async def statuses(request: Request) -> Response:
    """Check every declared source, and render its status."""
    return render(request, "parts/declared.html", statuses=await view.statuses(await memory_of(request)))


@page
async def gather(request: Request) -> Response:
    """Ask all sources about the concept in the query, and render their merged answer with its conflicts."""
    concept = request.query_params.get("concept", "").strip()
    account = await view.gather(await memory_of(request), concept) if concept else None
    return render(request, "parts/gathered.html", account=account)

"""Sources: what each one states, how long it takes, where they disagree, what is answered from the cache."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from mica.model.event import utc_now
from mica.web.memory_pool import memory_of
from mica.web.pages.templates import page, render
from mica.web.views import sources as view


def routes() -> list[BaseRoute]:
    return [
        Route("/sources", sources),
        Route("/sources/answered", answered),
        Route("/sources/declared", declared),
        Route("/sources/gathered", gathered),
    ]


@page
async def sources(request: Request) -> Response:
    return render(request, "sources.html", concept=request.query_params.get("concept", ""))


@page
async def answered(request: Request) -> Response:
    return render(request, "parts/answered.html", sources=await view.sources(await memory_of(request), now=utc_now()))


@page
async def declared(request: Request) -> Response:
    """Asks every declared source whether it is there."""
    return render(request, "parts/declared.html", declared=await view.declared(await memory_of(request)))


@page
async def gathered(request: Request) -> Response:
    """One account of a concept, with its conflicts, from all sources that answer."""
    concept = request.query_params.get("concept", "").strip()
    found = await view.gathered(await memory_of(request), concept) if concept else None
    return render(request, "parts/gathered.html", found=found)

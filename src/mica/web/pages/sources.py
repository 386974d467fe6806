"""Sources: what each declared source states, how long it takes, where sources disagree, what is cached."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from mica.web.asking import memory_of
from mica.web.pages.rendering import page, render
from mica.web.views import sources as view


def routes() -> list[BaseRoute]:
    return [Route("/sources", sources), Route("/sources/list", listed)]


@page
async def sources(request: Request) -> Response:
    return render(request, "sources.html")


@page
async def listed(request: Request) -> Response:
    return render(request, "parts/sources-list.html", sources=await view.sources(await memory_of(request)))

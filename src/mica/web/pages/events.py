"""Events: a live tail with filters and bundles; an event with its data, its causal tree and its chain's timeline."""

from __future__ import annotations

from contextlib import suppress

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from mica.inject.documents import BUNDLES, chosen, event_document
from mica.web.asking import memory_of
from mica.web.pages.rendering import page, render
from mica.web.views import events as view


def routes() -> list[BaseRoute]:
    return [
        Route("/events", events),
        Route("/events/rows", rows),
        Route("/events/{reference}", event),
        Route("/events/{reference}/chain", chain),
    ]


@page
async def events(request: Request) -> Response:
    asked = view.Asked.of(request.query_params)
    return render(request, "events.html", asked=asked, bundles=tuple(BUNDLES))


@page
async def rows(request: Request) -> Response:
    """The latest rows, or those after a position; the answer's header says where the next begin."""
    memory = await memory_of(request)
    asked = view.Asked.of(request.query_params)
    after = -1
    with suppress(ValueError):
        after = int(request.query_params.get("after") or -1)
    tail = await (view.latest(memory, asked) if after < 0 else view.later(memory, asked, after=after))
    headers = {"mica-position": str(tail.position)}
    return render(request, "parts/rows.html", headers=headers, tail=tail, asked=asked, is_first=after < 0)


@page
async def event(request: Request) -> Response:
    memory = await memory_of(request)
    found = await memory.event(request.path_params["reference"])
    bundle = request.query_params.get("bundle", "")
    fields = chosen(bundle=bundle if bundle in BUNDLES else None)
    return render(
        request,
        "event.html",
        event=found,
        said=view.said_by(found),
        document=event_document(found, fields),
        bundle=bundle if bundle in BUNDLES else "full",
        bundles=tuple(BUNDLES),
    )


@page
async def chain(request: Request) -> Response:
    memory = await memory_of(request)
    found = await memory.event(request.path_params["reference"])
    return render(request, "parts/chain.html", chain=await view.chain_of(memory, found))

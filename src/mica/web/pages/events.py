"""Events: a live tail with filters and bundles; an event with its data, its causal tree and its chain's timeline."""

from __future__ import annotations

from markupsafe import Markup
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from mica.format.documents import BUNDLES, event_document, select_fields
from mica.model.event import EventId
from mica.web.memory_pool import memory_of
from mica.web.pages.templates import page, render
from mica.web.views import events as view

DIGITS_MAX = 15  # of a position: a log has no more events


def routes() -> list[BaseRoute]:
    return [
        Route("/events", events),
        Route("/events/rows", rows),
        Route("/events/{reference}", event),
        Route("/events/{reference}/chain", chain),
    ]


@page
async def events(request: Request) -> Response:
    asked = view.EventFilter.of(request.query_params)
    return render(request, "events.html", asked=asked, bundles=tuple(BUNDLES))


@page
async def rows(request: Request) -> Response:
    """The latest rows, those after a position or those before an event; a header says where the next begin."""
    memory = await memory_of(request)
    asked = view.EventFilter.of(request.query_params)
    before, after = request.query_params.get("before"), request.query_params.get("after", "")
    if before:
        tail = await view.older(memory, asked, before=EventId(before))
        return render(request, "parts/rows.html", tail=tail, asked=asked, is_new=False)
    is_new = after.isascii() and after.isdecimal() and len(after) <= DIGITS_MAX
    tail = await (view.later(memory, asked, after=int(after)) if is_new else view.latest(memory, asked))
    headers = {"mica-position": str(tail.position)}
    return render(request, "parts/rows.html", headers=headers, tail=tail, asked=asked, is_new=is_new)


@page
async def event(request: Request) -> Response:
    memory = await memory_of(request)
    found = await memory.events.get(request.path_params["reference"])
    bundle = request.query_params.get("bundle", "")
    fields = select_fields(bundle=bundle if bundle in BUNDLES else None)
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
    found = await memory.events.get(request.path_params["reference"])
    shown = await view.chain_of(memory, found)
    chart = Markup(view.chain_chart(shown))
    return render(request, "parts/chain.html", chain=shown, chart=chart)

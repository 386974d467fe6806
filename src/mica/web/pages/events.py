"""The Events page: a table of events with filters, updated live, and a page for each event with its chain of causes."""

from __future__ import annotations

from markupsafe import Markup
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute

from mica.format.documents import BUNDLES, event_document, select_fields
from mica.model.event import EventId
from mica.web.memory_pool import memory_of
from mica.web.pages.templates import page, render
from mica.web.scopes import route
from mica.web.views import events as view

DIGITS_MAX = 15  # of a position; no log is longer


def routes() -> list[BaseRoute]:
    return [
        route("/events", events, needs="read"),
        route("/events/rows", rows, needs="read"),
        route("/events/{reference}", event, needs="read"),
        route("/events/{reference}/chain", chain, needs="read"),
    ]


@page
async def events(request: Request) -> Response:
    filters = view.EventFilter.of(request.query_params)
    return render(request, "events.html", filters=filters, bundles=tuple(BUNDLES))


@page
async def rows(request: Request) -> Response:
    """Render rows of the event table: the latest, those `after` a position, or those `before` an event.

    With the latest rows and with `after`, the response header `mica-position` has the next value for `after`.
    """
    memory = await memory_of(request)
    filters = view.EventFilter.of(request.query_params)
    before, after = request.query_params.get("before"), request.query_params.get("after", "")
    if before:
        tail = await view.older(memory, filters, before=EventId(before))
        return render(request, "parts/rows.html", tail=tail, filters=filters, is_new=False)
    is_new = after.isascii() and after.isdecimal() and len(after) <= DIGITS_MAX
    tail = await (view.later(memory, filters, after=int(after)) if is_new else view.latest(memory, filters))
    headers = {"mica-position": str(tail.position)}
    return render(request, "parts/rows.html", headers=headers, tail=tail, filters=filters, is_new=is_new)


@page
async def event(request: Request) -> Response:
    memory = await memory_of(request)
    requested = await memory.events.get(request.path_params["reference"])
    bundle = request.query_params.get("bundle", "")
    fields = select_fields(bundle=bundle if bundle in BUNDLES else None)
    return render(
        request,
        "event.html",
        event=requested,
        description=view.describe_event(requested),
        document=event_document(requested, fields),
        bundle=bundle if bundle in BUNDLES else "full",
        bundles=tuple(BUNDLES),
    )


@page
async def chain(request: Request) -> Response:
    memory = await memory_of(request)
    shown = await view.chain_of(memory, await memory.events.get(request.path_params["reference"]))
    chart = Markup(view.chain_chart(shown))
    return render(request, "parts/chain.html", chain=shown, chart=chart)

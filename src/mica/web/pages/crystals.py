"""The Crystals page: the hierarchy from epochs down to marks, and forms to search, crystallize, retract and purge."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute

from mica.format.lines import plural
from mica.web.memory_pool import memory_of
from mica.web.pages.counts import preview_of
from mica.web.pages.templates import form, notice_headers, page, render
from mica.web.scopes import route
from mica.web.views import crystals as view


def routes() -> list[BaseRoute]:
    return [
        route("/crystals", crystals, needs="read"),
        route("/crystals/forest", forest, needs="read"),
        route("/crystals/crystallize", preview, needs="read"),
        route("/crystals/crystallize", crystallize, needs="write", methods=["POST"]),
        route("/crystals/{reference}", crystal, needs="read"),
        route("/crystals/{reference}/sources", sources, needs="read"),
        route("/retract/{reference}", confirm_retract, needs="write"),
        route("/retract/{reference}", retract, needs="write", methods=["POST"]),
        route("/purge/{reference}", confirm_purge, needs="admin"),
        route("/purge/{reference}", purge, needs="admin", methods=["POST"]),
    ]


@page
async def crystals(request: Request) -> Response:
    level = view.level_of(request.query_params.get("level"))
    return render(request, "crystals.html", level=level, query=request.query_params.get("q", ""))


@page
async def forest(request: Request) -> Response:
    """Render the hierarchy of crystals or, with a query, the results of a search."""
    memory = await memory_of(request)
    level = view.level_of(request.query_params.get("level"))
    query = request.query_params.get("q", "").strip()
    if query:
        nodes = await view.answers(memory, query, level=level) if any(map(str.isalnum, query)) else []
        return render(request, "parts/answers.html", nodes=nodes, query=query)
    return render(request, "parts/forest.html", shelf=await view.shelf(memory, level=level), level=level)


@page
async def crystal(request: Request) -> Response:
    detail = await view.detail(await memory_of(request), request.path_params["reference"])
    return render(request, "crystal.html", detail=detail)


@page
async def sources(request: Request) -> Response:
    nodes = await view.children(await memory_of(request), request.path_params["reference"])
    return render(request, "parts/sources.html", nodes=nodes)


@page
async def preview(request: Request) -> Response:
    return render(request, "parts/crystallize.html", nodes=await preview_of(request))


@page
async def crystallize(request: Request) -> Response:
    """Make crystals of all sessions, even active ones, then of the days, weeks and epochs that are over."""
    memory = await memory_of(request)
    made = await memory.crystals.make(level="session")
    made += await memory.crystals.make_due()
    headers = notice_headers(
        f"{plural(len(made), 'crystal')} made" if made else "Nothing to crystallize", "mica:crystal"
    )
    return render(request, "parts/done.html", headers=headers)


@page
async def confirm_retract(request: Request) -> Response:
    event = await (await memory_of(request)).events.get(request.path_params["reference"])
    return render(request, "parts/retract.html", event=event)


@page
async def retract(request: Request) -> Response:
    memory = await memory_of(request)
    fields = await form(request)
    await memory.retract(request.path_params["reference"], reason=fields.get("reason", ""))
    return render(
        request,
        "parts/done.html",
        headers=notice_headers("Retracted; search, briefs and crystals no longer use it", "mica:crystal"),
    )


@page
async def confirm_purge(request: Request) -> Response:
    memory = await memory_of(request)
    event = await memory.events.get(request.path_params["reference"])
    would = await memory.purge(ids=[event.id], dry_run=True)
    return render(request, "parts/purge.html", event=event, would=would)


@page
async def purge(request: Request) -> Response:
    """Purge an event if the form repeats its number; otherwise show the form again."""
    memory = await memory_of(request)
    fields = await form(request)
    event = await memory.events.get(request.path_params["reference"])
    if fields.get("number", "").strip().lstrip("#") != str(event.position):
        would = await memory.purge(ids=[event.id], dry_run=True)
        error = f"Type {event.position} to purge event {event.number}; nothing was removed."
        return render(request, "parts/purge.html", status=422, event=event, would=would, error=error)
    done = await memory.purge(ids=[event.id], reason=fields.get("reason", "").strip() or "purged by hand")
    outcome = [f"{plural(done.events, 'event')} purged"]
    outcome += [f"{plural(len(done.remade), 'crystal')} made again from the remaining marks"] if done.remade else []
    outcome += [f"{each.period} has no crystal any more ({each.reason})" for each in done.ended]
    outcome += [f"not reached yet: {' '.join(done.unreached)}"] if done.unreached else []
    return render(request, "parts/done.html", headers=notice_headers("; ".join(outcome), "mica:crystal", "mica:event"))

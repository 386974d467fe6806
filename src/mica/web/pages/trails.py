"""The Trails page: the most valuable trails, what they saved, which agents use them, and a map of the files."""

from __future__ import annotations

from pathlib import Path

from markupsafe import Markup
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute

from mica.format.charts import treemap
from mica.format.lines import to_user_zone
from mica.model.event import utc_now
from mica.navigation.report import Period
from mica.web.memory_pool import memory_of, pool_of
from mica.web.pages.counts import caches_of, map_of, patterns_of, worth_of
from mica.web.pages.templates import form, link, notice_headers, page, render
from mica.web.scopes import route
from mica.web.views import trails as view

PATH = "/admin/patterns"


def routes() -> list[BaseRoute]:
    return [
        route("/admin/patterns", patterns, needs="read"),
        route("/admin/patterns/hot", hot, needs="read"),
        route("/admin/patterns/evolution", evolution, needs="read"),
        route("/admin/patterns/map", file_map, needs="read"),
        route("/admin/patterns/worth", saved_and_wasted, needs="read"),
        route("/admin/patterns/figures", figures, needs="read"),
        route("/admin/patterns/{key}", trail, needs="read"),
        route("/admin/patterns/{key}/drift", drift, needs="read"),
        route("/admin/patterns/{key}/crystallize", crystallize, needs="write", methods=["POST"]),
        route("/admin/patterns/{key}/suspend", suspend, needs="write", methods=["POST"]),
        route("/admin/patterns/{key}/resume", resume, needs="write", methods=["POST"]),
    ]


@page
async def patterns(request: Request) -> Response:
    return render(request, "trails.html", folder=request.query_params.get("folder", ""))


@page
async def figures(request: Request) -> Response:
    return render(request, "parts/figures.html", worth=await worth_of(request, "week"))


@page
async def saved_and_wasted(request: Request) -> Response:
    period: Period = "day" if request.query_params.get("period") == "day" else "week"
    return render(request, "parts/worth.html", worth=await worth_of(request, period), period=period)


@page
async def hot(request: Request) -> Response:
    return render(request, "parts/hot.html", patterns=await patterns_of(request))


@page
async def evolution(request: Request) -> Response:
    weeks = await view.evolution(await memory_of(request), now=utc_now())
    chart = Markup(view.evolution_chart(weeks, lambda at: f"{to_user_zone(at):%-d %b}"))
    return render(request, "parts/evolution.html", weeks=weeks, chart=chart)


@page
async def file_map(request: Request) -> Response:
    """Render the treemap of files. The query may contain a folder to show, and a trail to highlight."""
    files = await map_of(request)
    folder, trail = request.query_params.get("folder", ""), request.query_params.get("trail", "")
    space = request.query_params.get("space")
    tiles = files.tiles(folder=folder, trail=trail, link=lambda path: f"{link(PATH, space=space, folder=path)}#p-map")
    chart = Markup(treemap("Files by how often they were opened", tiles))
    return render(request, "parts/map.html", map=files, chart=chart, folder=folder, trail=trail)


@page
async def trail(request: Request) -> Response:
    memory = await memory_of(request)
    shown = await memory.trails.show(request.path_params["key"])
    gates = pool_of(request).settings.trails
    return render(request, "trail.html", trail=shown, readiness=view.readiness(shown, gates))


@page
async def drift(request: Request) -> Response:
    """Render where each line range of a trail is now in the working tree."""
    memory = await memory_of(request)
    shown = await memory.trails.show(request.path_params["key"])
    root = await memory.events.directory()
    locations = await view.locate_steps(shown, root=root if root is None else Path(root))
    return render(request, "parts/drift.html", trail=shown, locations=locations, root=root)


@page
async def crystallize(request: Request) -> Response:
    memory = await memory_of(request)
    slug = (await form(request)).get("slug", "").strip()
    made = await memory.trails.crystallize(request.path_params["key"], slug=slug or None)
    return _done(request, f"{made.name} is a command now; run `mica trails publish` to write it for your agents")


@page
async def suspend(request: Request) -> Response:
    memory = await memory_of(request)
    reason = (await form(request)).get("reason", "").strip() or "suspended on the dashboard"
    changed = await memory.trails.suspend(request.path_params["key"], reason=reason)
    return _done(request, f"{changed.name} is no longer offered")


@page
async def resume(request: Request) -> Response:
    memory = await memory_of(request)
    changed = await memory.trails.resume(request.path_params["key"])
    return _done(request, f"{changed.name} is offered again")


def _done(request: Request, text: str) -> Response:
    caches_of(request).patterns.clear()
    return render(request, "parts/done.html", headers=notice_headers(text, "mica:trail"))

"""The dashboard: pages rendered here, parts of them asked for by htmx, nothing built and nothing fetched elsewhere."""

from __future__ import annotations

from starlette.routing import BaseRoute, Mount

from mica.web.pages import briefs, crystals, events, health, sources, today, trails
from mica.web.pages.templates import FOLDER, Static

MODULES = (today, crystals, trails, events, sources, briefs, health)


def routes() -> list[BaseRoute]:
    """Every page, and the files that pages use."""
    static = Mount("/static", Static(directory=FOLDER / "static"), name="static")
    return [static, *(route for module in MODULES for route in module.routes())]

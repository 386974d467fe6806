"""The dashboard: pages rendered by the server, with parts that htmx loads. Nothing is loaded from other servers."""

from __future__ import annotations

from starlette.routing import BaseRoute, Mount

from mica.web.pages import beliefs, briefs, crystals, events, health, sources, today, trails
from mica.web.pages.templates import FOLDER, Static

MODULES = (today, beliefs, crystals, trails, events, sources, briefs, health)


def routes() -> list[BaseRoute]:
    """Return the routes of all pages and of static files."""
    static = Mount("/static", Static(directory=FOLDER / "static"), name="static")
    return [static, *(route for module in MODULES for route in module.routes())]

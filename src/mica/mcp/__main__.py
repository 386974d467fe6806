"""`python -m mica.mcp`: the same server as `mica mcp`. It starts faster, because no other command is loaded."""

from __future__ import annotations

import os
from pathlib import Path

from mica.mcp.stdio import Project, serve
from mica.settings import Settings, load_settings
from mica.store.space import space_of


def place(directory: Path) -> tuple[Path | str, Settings]:
    settings = load_settings()
    return settings.store or space_of(directory, home=settings.home).file, settings


serve(lambda: Project(place, root=None, environment=os.environ))

"""mcp: serve a coding agent."""

from __future__ import annotations

import os
from pathlib import Path

import click

from mica.cli.output import store_options, target
from mica.settings import Settings, load_settings


@click.command()
@click.option(
    "--root",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="The project; without it, what the client says, else the current directory.",
)
@store_options
def mcp(root: Path | None, store: str | None, space: str | None) -> None:
    """Serve a coding agent over MCP on standard input and output, until it leaves.

    `mica install` writes this into the settings of the clients it finds. The project is told by CLAUDE_PROJECT_DIR or
    COPILOT_PROJECT_DIR, by the client's roots, or by the directory it was started in.

    Example: mica mcp --root ~/shop
    """
    from mica.mcp.project import Project
    from mica.mcp.stdio import serve

    def place(directory: Path) -> tuple[Path | str, Settings]:
        settings = load_settings()
        return target(settings, store, space, directory=directory), settings

    serve(lambda: Project(place, root=root, environment=os.environ))

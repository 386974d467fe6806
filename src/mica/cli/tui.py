"""tui: the terminal dashboard."""

from __future__ import annotations

import sys

import click

from mica.cli.output import Output, showing_command
from mica.errors import InvalidInput
from mica.memory import Memory


@click.command()
@showing_command
async def tui(memory: Memory, output: Output) -> None:
    """The dashboard: the hierarchy of crystals, what is new, and where each statement comes from. It shows things live.

    Keys: C crystallize, T tree of a mark, E expand a crystal, Q query, j k move, Enter opens, 0 to 3 one level, a all,
    r refresh, q quit. Needs `pip install "mica[tui]"`.

    Example: mica tui
    """
    memory.reads_ahead = True  # it stays
    try:
        from mica.tui.app import Dashboard  # an extra
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "textual":
            raise
        raise InvalidInput('the dashboard needs Textual; `pip install "mica[tui]"` installs it') from error
    if not sys.stdout.isatty():
        raise InvalidInput("the dashboard needs a terminal; `mica crystals` prints to anything else")
    await Dashboard(memory).run_async()

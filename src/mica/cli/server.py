"""The group server (dashboards, tokens, preparing a database), and the command mcp."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import urllib.request
import webbrowser
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from urllib.error import URLError

import click
from rich.console import Console
from rich.markup import escape

from mica.cli.groups import CommandGroup
from mica.cli.output import Output, json_option, showing_command, store_options, target
from mica.errors import InvalidInput
from mica.format.lines import format_time
from mica.memory import Memory
from mica.settings import Settings, load_settings
from mica.store.remote.servers import RunningServer, running_servers
from mica.store.space import SUFFIX, is_address
from mica.store.space import spaces as space_files
from mica.store.target import prepare as prepare_server
from mica.web.tokens import EVERYDAY_SCOPES, SCOPES, TokenFile, TokenScope


@click.group(cls=CommandGroup)
def server() -> None:
    """The dashboard in a browser or a terminal, tokens, PostgreSQL."""


def browse(link: str) -> bool:
    """Open a link in a browser. Returns False if that fails, or if there is no terminal or no display."""
    has_display = sys.platform == "darwin" or bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))
    return sys.stdout.isatty() and has_display and webbrowser.open(link)


@click.command("open")
@click.option("--port", type=click.IntRange(1, 65_535), help="The port of the server.  [default: the one started last]")
@click.option("--admin", "is_admin", is_flag=True, help="Let the browser also purge, and ask sources.")
@json_option
def open_(*, port: int | None, is_admin: bool, as_json: bool) -> None:
    """Open the dashboard of the running server.

    It prints a link that works once, and opens it in a browser if there is a display. The browser may read and write.

    Example: mica server open
    """
    running = [
        note for note in running_servers(load_settings().home) if port is None or note.address.endswith(f":{port}")
    ]
    if not running:
        raise InvalidInput("no server is running" + (f" at port {port}" if port else "") + "; `mica up` starts one")
    note = running[0]
    link = note.address + _new_link(note, is_admin=is_admin)

    def for_people(console: Console) -> None:
        console.print(link, markup=False, soft_wrap=True)
        browse(link)

    document = {"address": note.address, "link": link, "space": note.space, "pid": note.pid}
    Output(as_json=as_json).show(document, for_people)


def _new_link(note: RunningServer, *, is_admin: bool) -> str:
    request = urllib.request.Request(
        f"{note.address}/api/server/link{'?admin=1' if is_admin else ''}",
        method="POST",
        headers={"authorization": f"Bearer {note.token}"},
    )
    try:
        with urllib.request.urlopen(request, timeout=10) as answer:
            return str(json.load(answer)["path"])
    except (URLError, OSError, ValueError) as error:
        raise InvalidInput(
            f"the server at {note.address} does not answer: {error}; `mica up` starts another"
        ) from error


@click.group(cls=CommandGroup)
def token() -> None:
    """Tokens that let other machines and programs use the server."""


@token.command()
@click.argument("name", default="")
@click.option(
    "--scope",
    "scopes",
    type=click.Choice(SCOPES),
    multiple=True,
    help="What it may do; repeatable. admin includes read and write.  [default: read and write]",
)
@click.option("--space", "spaces", multiple=True, metavar="NAME", help="Only for this space; repeatable.")
@click.option(
    "--days",
    type=click.FloatRange(min=0, min_open=True, max=36_500),
    help="Valid for this many days.  [default: until revoked]",
)
@json_option
def make(name: str, *, scopes: Sequence[TokenScope], spaces: Sequence[str], days: float | None, as_json: bool) -> None:
    """Make a token and print it.

    With the scope read it may query, with write it may record, with admin it may also purge, make links and ask other
    systems. Only its digest is stored, so it cannot be shown again.

    Example: mica server token make laptop --scope read --space shop-1a2b3c4d
    """
    settings = load_settings()
    for each in _unknown_names(spaces, settings):
        click.echo(f"mica: no space is called {each!r} yet; `mica upkeep spaces` lists the spaces", err=True)
    lifetime = None if days is None else timedelta(days=days)
    secret, made = TokenFile(settings.home).make(
        name, scopes=scopes or EVERYDAY_SCOPES, spaces=spaces, lifetime=lifetime
    )
    document = {
        "id": made.id,
        "token": secret,
        "name": name,
        "scopes": made.scopes,
        "spaces": made.spaces,
        "until": made.until,
    }
    Output(as_json=as_json).show(document, lambda _: click.echo(secret))


def _unknown_names(names: Sequence[str], settings: Settings) -> list[str]:
    """Return the names in `names` that are no space on this machine. Names in a database are not checked."""
    if settings.store is not None and is_address(settings.store):
        return []
    known = {file.name.removesuffix(SUFFIX) for file in space_files(settings.home)}
    known |= {note.space for note in running_servers(settings.home)}
    return [name for name in names if name not in known]


@token.command("list")
@json_option
def list_(*, as_json: bool) -> None:
    """List valid tokens, their scopes and spaces.

    Example: mica server token list
    """
    tokens = TokenFile(load_settings().home).all()

    def for_people(console: Console) -> None:
        if not tokens:
            console.print("No tokens. `mica server token make` makes one.")
        for each in tokens:
            opens = f"{', '.join(each.scopes)} in {', '.join(each.spaces) or 'all spaces'}"
            until = f", until {format_time(each.until)}" if each.until else ""
            console.print(f"[green]{each.id}[/] [bold]{escape(each.name)}[/]  {escape(opens)}{until}", soft_wrap=True)

    document = [
        {
            "id": each.id,
            "name": each.name,
            "scopes": each.scopes,
            "spaces": each.spaces,
            "made_at": each.made_at,
            "until": each.until,
        }
        for each in tokens
    ]
    Output(as_json=as_json).show(document, for_people)


@token.command()
@click.argument("reference", metavar="ID|NAME")
@json_option
def revoke(reference: str, *, as_json: bool) -> None:
    """Revoke a token, also in a running server.

    Example: mica server token revoke laptop
    """
    revoked = TokenFile(load_settings().home).revoke(reference)
    document = {"id": revoked.id, "name": revoked.name}
    Output(as_json=as_json).show(document, lambda _: click.echo(f"{revoked.id} is revoked"))


@click.command()
@showing_command
async def tui(memory: Memory, output: Output) -> None:
    """Show the dashboard in a terminal, live.

    It shows the hierarchy of crystals, the latest ones, and the source of each statement. Keys: C crystallize, T tree
    of a mark, E expand a crystal, Q query, j and k move, Enter opens, 0 to 3 one level, a all levels, r refresh, q
    quit. Needs `pip install "mica[tui]"`.

    Example: mica server tui
    """
    try:
        from mica.tui.app import Dashboard  # an extra
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "textual":
            raise
        raise InvalidInput('the dashboard needs Textual; `pip install "mica[tui]"` installs it') from error
    if not sys.stdout.isatty():
        raise InvalidInput("the dashboard needs a terminal; `mica crystals list` works without one")
    await Dashboard(memory).run_async()


@click.command(hidden=True)
@click.option(
    "--root",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="The project.  [default: the one that the client names, else the current directory]",
)
@store_options
def mcp(root: Path | None, store: str | None, space: str | None) -> None:
    """Serve a coding agent over MCP on standard input and output.

    `mica install` writes this command into the settings of clients. The project is named by CLAUDE_PROJECT_DIR or
    COPILOT_PROJECT_DIR, by the client's roots, or by the directory it was started in.

    Example: mica mcp --root ~/shop
    """
    from mica.mcp.stdio import Project, serve

    def place(directory: Path) -> tuple[Path | str, Settings]:
        settings = load_settings()
        return target(settings, store, space, directory=directory), settings

    serve(lambda: Project(place, root=root, environment=os.environ))


@click.command()
@click.argument("address")
@click.option("--admit", "roles", multiple=True, metavar="ROLE", help="Let this role use it; repeatable.")
@json_option
def prepare(*, address: str, roles: tuple[str, ...], as_json: bool) -> None:
    """Prepare a PostgreSQL database for spaces, or upgrade it.

    Run it as the owner of the tables.

    Example: mica server prepare postgresql://owner@db.example.org/mica --admit app
    """
    asyncio.run(prepare_server(address, admitted=roles))

    def for_people(console: Console) -> None:
        admitted = f"; admitted: {', '.join(roles)}" if roles else ""
        console.print(f"[green]✓[/] ready{escape(admitted)}", soft_wrap=True)

    Output(as_json=as_json).show({"ready": True, "admitted": roles}, for_people)

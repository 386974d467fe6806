"""open, token: the server that runs, and who may come in."""

from __future__ import annotations

import json
import os
import sys
import urllib.request
import webbrowser
from collections.abc import Sequence
from datetime import timedelta
from urllib.error import URLError

import click
from rich.console import Console
from rich.markup import escape

from mica.cli.output import Output, json_option
from mica.errors import InvalidInput
from mica.format.lines import local
from mica.settings import Settings, load_settings
from mica.store.remote.servers import Note, notes
from mica.store.space import SUFFIX, is_address
from mica.store.space import spaces as space_files
from mica.web.tokens import Tokens


def browse(link: str) -> bool:
    """Open a link in the browser, where somebody could see one."""
    has_display = sys.platform == "darwin" or bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))
    return sys.stdout.isatty() and has_display and webbrowser.open(link)


@click.command("open")
@click.option("--port", type=click.IntRange(1, 65_535), help="The server at this port; else the one started last.")
@json_option
def open_(*, port: int | None, as_json: bool) -> None:
    """Open the dashboard of the server that runs, and print a link that lets a browser in once.

    Example: mica open
    """
    running = [note for note in notes(load_settings().home) if port is None or note.address.endswith(f":{port}")]
    if not running:
        raise InvalidInput("no server runs" + (f" at port {port}" if port else "") + "; `mica up` starts one")
    note = running[0]
    link = note.address + _new_link(note)

    def for_people(console: Console) -> None:
        console.print(link, markup=False, soft_wrap=True)
        browse(link)

    document = {"address": note.address, "link": link, "space": note.space, "pid": note.pid}
    Output(as_json=as_json).show(document, for_people)


def _new_link(note: Note) -> str:
    asked = urllib.request.Request(
        f"{note.address}/api/links", method="POST", headers={"authorization": f"Bearer {note.token}"}
    )
    try:
        with urllib.request.urlopen(asked, timeout=10) as answer:
            return str(json.load(answer)["path"])
    except (URLError, OSError, ValueError) as error:
        raise InvalidInput(
            f"the server at {note.address} does not answer: {error}; `mica up` starts another"
        ) from error


@click.group()
def token() -> None:
    """Who may use the server: tokens for all spaces or for some."""


@token.command()
@click.argument("name", default="")
@click.option("--space", "spaces", multiple=True, metavar="NAME", help="Only this space; may be given again.")
@click.option(
    "--days", type=click.FloatRange(min=0, min_open=True, max=36_500), help="For so long; else until revoked."
)
@json_option
def make(name: str, *, spaces: Sequence[str], days: float | None, as_json: bool) -> None:
    """Make a token and print it. It is kept only as a digest: nobody can be shown it again.

    Example: mica token make laptop --space shop-1a2b3c4d
    """
    settings = load_settings()
    for each in _unknown(spaces, settings):
        click.echo(f"mica: no space is called {each!r} yet; `mica spaces` lists those that are there", err=True)
    lasting = None if days is None else timedelta(days=days)
    secret, kept = Tokens(settings.home).make(name, spaces=spaces, lasting=lasting)
    document = {"id": kept.id, "token": secret, "name": name, "spaces": list(spaces), "until": kept.until}
    Output(as_json=as_json).show(document, lambda _: click.echo(secret))


def _unknown(names: Sequence[str], settings: Settings) -> list[str]:
    """Those that no space of this machine has. Of a database nobody here knows the names."""
    if settings.store is not None and is_address(settings.store):
        return []
    there = {file.name.removesuffix(SUFFIX) for file in space_files(settings.home)}
    there |= {note.space for note in notes(settings.home)}
    return [name for name in names if name not in there]


@token.command("list")
@json_option
def list_(*, as_json: bool) -> None:
    """List the tokens that open something, oldest first; never the tokens themselves.

    Example: mica token list
    """
    found = Tokens(load_settings().home).all()

    def for_people(console: Console) -> None:
        if not found:
            console.print("No tokens. `mica token make` makes one.")
        for each in found:
            opens = ", ".join(each.spaces) or "all spaces"
            until = f", until {local(each.until)}" if each.until else ""
            console.print(f"[green]{each.id}[/] [bold]{escape(each.name)}[/]  {escape(opens)}{until}", soft_wrap=True)

    document = [
        {"id": each.id, "name": each.name, "spaces": each.spaces, "made_at": each.made_at, "until": each.until}
        for each in found
    ]
    Output(as_json=as_json).show(document, for_people)


@token.command()
@click.argument("reference", metavar="ID|NAME")
@json_option
def revoke(reference: str, *, as_json: bool) -> None:
    """Let a token open nothing any more, also in a server that runs.

    Example: mica token revoke laptop
    """
    gone = Tokens(load_settings().home).revoke(reference)
    Output(as_json=as_json).show({"id": gone.id, "name": gone.name}, lambda _: click.echo(f"{gone.id} is revoked"))

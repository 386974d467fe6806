"""The server that `mica up` runs: house, guard, application, and what goes on beside it."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, ExitStack, asynccontextmanager
from pathlib import Path
from typing import TypeAlias

import click
import msgspec
from rich.console import Console
from rich.markup import escape

from mica.cli.access import browse
from mica.cli.output import space_name
from mica.errors import InvalidInput, MicaError
from mica.memory import Memory
from mica.settings import Settings
from mica.store.remote.servers import Note, noted
from mica.web.tokens import Tokens

try:
    from mica.mcp import http as mcp
    from mica.mcp import sse
    from mica.web.access import Access
    from mica.web.app import application
    from mica.web.memory_pool import House
    from mica.web.process import Stopping, alone, bound, run, tend
    from mica.web.request_memory import memory_at
except ModuleNotFoundError as missing:
    needed = ("starlette", "uvicorn", "h11", "websockets", "jinja2")
    if (missing.name or "").partition(".")[0] not in needed:
        raise
    raise InvalidInput(
        'the server needs more packages; `pip install "mica[server]"` installs them, `mica up --once` does without'
    ) from missing

Opened: TypeAlias = Callable[[Path | str], AbstractAsyncContextManager[Memory]]
Look: TypeAlias = Callable[[Opened], Awaitable[None]]


def serve_up(
    place: Path | str, look: Look, *, settings: Settings, port: int | None, host: str | None, browser: bool
) -> None:
    """Serve until Ctrl-C, and take a look around meanwhile. Raises InvalidInput when it cannot be served."""
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(name)s: %(message)s", stream=sys.stderr)
    at = settings.server.port if port is None else port
    listening = bound(host or settings.server.host, at, home=settings.home)

    def ready(link: str) -> None:
        told = Console(highlight=False, emoji=False, soft_wrap=True)
        told.print(f"[bold]Open[/] {escape(link)}")
        told.print("[dim]The link works once; `mica open` makes another. Ctrl-C stops the server.[/]")
        if browser:
            browse(link)

    async def during(house: House) -> None:
        @asynccontextmanager
        async def opened(target: Path | str) -> AsyncIterator[Memory]:
            async with house.using(space_name(target) if target != place else None, make=True) as memory:
                yield memory

        try:
            await look(opened)
        except MicaError as error:  # what is there can be seen all the same
            if not house.is_closed:  # else it was stopped meanwhile
                click.echo(f"mica: {error}", err=True)
        await tend(house)

    asyncio.run(serve(place, settings=settings, listening=listening, ready=ready, during=during))
    click.echo("mica: stopped", err=True)


async def serve(
    place: Path | str,
    *,
    settings: Settings,
    listening: socket.socket,
    ready: Callable[[str], None],
    during: Callable[[House], Awaitable[None]],
) -> None:
    """Serve the spaces of this user until a signal comes. `ready` is told the link, `during` runs beside it."""
    host, port = listening.getsockname()[:2]
    address = f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
    tokens = Tokens(settings.home)
    access = Access(tokens, port=port, hosts=(host, *settings.server.names))
    alike = msgspec.structs.replace(settings, carrier={})  # where we were started says nothing of who asks
    house = House(place, settings=alike)
    with ExitStack() as stack:
        stopping = stack.enter_context(Stopping())
        stack.callback(listening.close)
        stack.enter_context(alone(place, address=address))
        # Whoever was at this address before and was killed could not take its own back.
        secret, token = tokens.make(f"server at {address}", replaces=True)
        stack.callback(tokens.revoke, token.id)
        note = Note(address=address, pid=os.getpid(), token=secret, space=house.default)
        stack.enter_context(noted(note, home=settings.home))
        ready(f"{address}/enter?key={access.new_key()}")
        endpoint = mcp.Endpoint(memory_at)
        house.leaving.append(endpoint.leave)
        extra = [*mcp.routes(endpoint), *(sse.routes(endpoint) if settings.server.mcp_sse else ())]
        app = application(house, access=access, extra=extra)
        await run(app, listening, stopping=stopping, during=lambda: during(house), leaving=endpoint.close)

"""The server that `mica up` runs, with the import and background jobs beside it."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path
from typing import TypeAlias

import click
import msgspec
from rich.console import Console
from rich.markup import escape

from mica.cli.output import OpenMemory, pasteable, program, space_name
from mica.cli.server import browse
from mica.errors import InvalidInput, MicaError
from mica.memory import Memory
from mica.settings import Settings
from mica.store.remote.servers import RunningServer, announce
from mica.web.tokens import EVERYDAY_SCOPES, SCOPES, TokenFile, TokenScope

Look: TypeAlias = Callable[[OpenMemory], Awaitable[None]]


try:
    from mica.mcp import http as mcp
    from mica.web.access import LOOPBACK, Access
    from mica.web.app import application
    from mica.web.memory_pool import MemoryPool, memory_at
    from mica.web.process import Stopping, listen, only_server, run, run_jobs
    from mica.web.scopes import token_at
except ModuleNotFoundError as missing:
    needed = ("starlette", "uvicorn", "h11", "websockets", "jinja2")
    if (missing.name or "").partition(".")[0] not in needed:
        raise
    raise InvalidInput(
        'the server needs more packages; `pip install "mica[server]"` installs them, `mica up --once` works without'
    ) from missing


def serve_up(
    place: Path | str,
    look: Look,
    *,
    settings: Settings,
    port: int | None,
    host: str | None,
    browser: bool,
    is_admin: bool,
) -> None:
    """Run the server until Ctrl-C. At the same time, run `look` (import and print), then the background jobs.

    Raises InvalidInput if `place` cannot be served.
    """
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(name)s: %(message)s", stream=sys.stderr)
    at = settings.server.port if port is None else port
    listening = listen(host or settings.server.host, at, home=settings.home)

    def ready(link: str) -> None:
        console = Console(highlight=False, emoji=False, soft_wrap=True)
        console.print(f"[bold]Open[/] {escape(link)}")
        note = pasteable("The link works once; `mica server open` makes another. Ctrl-C stops the server.")
        console.print(f"[dim]{escape(note)}[/]")
        if browser:
            browse(link)

    async def during(pool: MemoryPool) -> None:
        @asynccontextmanager
        async def opened(target: Path | str) -> AsyncIterator[Memory]:
            async with pool.using(space_name(target) if target != place else None, make=True) as memory:
                yield memory

        try:
            await look(opened)
        except MicaError as error:  # the dashboard still shows what is stored
            if not pool.is_closed:  # otherwise the server was stopped meanwhile
                click.echo(f"mica: {pasteable(str(error))}", err=True)
        await run_jobs(pool)

    scopes = SCOPES if is_admin else EVERYDAY_SCOPES
    asyncio.run(serve(place, settings=settings, listening=listening, scopes=scopes, ready=ready, during=during))
    click.echo("mica: stopped", err=True)


async def serve(
    place: Path | str,
    *,
    settings: Settings,
    listening: socket.socket,
    scopes: tuple[TokenScope, ...] = EVERYDAY_SCOPES,
    ready: Callable[[str], None],
    during: Callable[[MemoryPool], Awaitable[None]],
) -> None:
    """Serve the spaces of this user until a signal arrives.

    `ready` is called with the link to open, which gives a browser these scopes; `during` runs beside the server.
    """
    host, port = listening.getsockname()[:2]
    address = f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
    tokens = TokenFile(settings.home)
    shown = program() if host in LOOPBACK else "mica"  # other machines learn no path of this one
    access = Access(tokens, port=port, hosts=(host, *settings.server.names), program=shown)
    for_clients = msgspec.structs.replace(settings, carrier={})  # clients do not inherit the context of the server
    pool = MemoryPool(place, settings=for_clients)
    with ExitStack() as stack:
        stopping = stack.enter_context(Stopping())
        stack.callback(listening.close)
        stack.enter_context(only_server(place, address=address))
        # A server that was killed at this address could not revoke its own token.
        secret, token = tokens.make(f"server at {address}", replaces=True)
        stack.callback(tokens.revoke, token.id)
        note = RunningServer(address=address, pid=os.getpid(), token=secret, space=pool.default)
        stack.enter_context(announce(note, home=settings.home))
        ready(f"{address}/enter?key={access.new_key(scopes)}")
        endpoint = mcp.Endpoint(memory_at, token_at)
        pool.leaving.append(endpoint.leave)
        extra = [*mcp.routes(endpoint), *(mcp.sse_routes(endpoint) if settings.server.mcp_sse else ())]
        app = application(pool, access=access, extra=extra)
        await run(app, listening, stopping=stopping, during=lambda: during(pool), leaving=endpoint.close)

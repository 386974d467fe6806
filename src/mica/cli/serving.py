"""open, token: the server that `mica up` runs, and who may come in."""

from __future__ import annotations

import os
import socket
import sys
import webbrowser
from collections.abc import Awaitable, Callable
from contextlib import ExitStack
from pathlib import Path

from mica.errors import InvalidInput
from mica.settings import Settings

try:
    from mica.web.access import Access
    from mica.web.app import application
    from mica.web.house import House
    from mica.web.running import PORT, Note, alone, bound, noted, run
    from mica.web.tokens import Tokens
except ModuleNotFoundError as missing:
    if (missing.name or "").partition(".")[0] not in ("starlette", "uvicorn", "httptools", "websockets"):
        raise
    raise InvalidInput(
        'the server needs more packages; `pip install "mica[server]"` installs them, `mica up --once` does without'
    ) from missing


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
    access = Access(tokens, port=port)
    house = House(place, settings=settings)
    with ExitStack() as stack:
        stack.enter_context(alone(place, address=address))
        secret, token = tokens.make(f"server at {address}")
        stack.callback(tokens.revoke, token.id)
        note = Note(address=address, pid=os.getpid(), token=secret, space=house.default)
        stack.enter_context(noted(note, home=settings.home))
        ready(f"{address}/enter?key={access.new_key()}")
        await run(application(house, access=access), listening, during=lambda: during(house))


def can_browse() -> bool:
    """Whether somebody sits here who could see a browser."""
    has_display = sys.platform == "darwin" or bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))
    return sys.stdout.isatty() and has_display


def browse(link: str) -> bool:
    """Open a link in the browser, if there is one."""
    return can_browse() and webbrowser.open(link)


__all__ = ["PORT", "bound", "browse", "serve"]

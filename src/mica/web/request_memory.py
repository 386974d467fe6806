"""What a request is about: the space that it names, as far as its token opens it."""

from __future__ import annotations

from contextlib import AsyncExitStack

from starlette.requests import HTTPConnection
from starlette.types import ASGIApp, Receive, Scope, Send

from mica.errors import AccessDenied, InvalidInput
from mica.memory import Memory
from mica.web.access import TOKEN
from mica.web.memory_pool import House
from mica.web.tokens import Token

USING = "mica.using"  # where a request keeps what it uses


class Using:
    """Lets a request keep the spaces open that it is about, until all of its answer is sent."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async with AsyncExitStack() as stack:
            scope[USING] = stack
            await self._app(scope, receive, send)


def house_of(request: HTTPConnection) -> House:
    house = request.app.state.house
    assert isinstance(house, House)
    return house


def space_of(request: HTTPConnection) -> str:
    """The space that a request names by `?space=`, else the only one of its token, else the server's own.

    Raises AccessDenied when the token does not open it.
    """
    token = request.scope.get(TOKEN)
    assert isinstance(token, Token)  # the guard lets nothing else reach a space
    house = house_of(request)
    named = request.query_params.getlist("space")
    if len(named) > 1 or "" in named:
        raise InvalidInput("name one space by ?space=, or none; /api/spaces lists them")
    space = named[0] if named else token.spaces[0] if len(token.spaces) == 1 else house.default
    if not token.opens(space):
        raise AccessDenied(
            f"this token does not open the space {space!r}; `mica token make --space` makes one that does"
        )
    return space


async def memory_of(request: HTTPConnection, *, make: bool = False) -> Memory:
    """The memory that a request is about, open until it is answered. Raises UnknownSpace and AccessDenied."""
    using: AsyncExitStack = request.scope[USING]
    return await using.enter_async_context(house_of(request).using(space_of(request), make=make))


async def memory_at(scope: Scope) -> Memory:
    """The same, for an application of its own that is mounted beside the routes."""
    return await memory_of(HTTPConnection(scope))

"""What is asked of the server rather than of one space: spaces, links for browsers, its own description."""

from __future__ import annotations

from functools import cache
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from mica.errors import AccessDenied
from mica.web import streams
from mica.web.access import TOKEN, Access
from mica.web.api import briefs as briefing
from mica.web.api import crystals, events, trails
from mica.web.api import records as observing
from mica.web.api import sources as gathering
from mica.web.api import upkeep as keeping
from mica.web.openapi import described
from mica.web.operations import API, Nothing, Operation, document
from mica.web.request_memory import house_of
from mica.web.tokens import Token

DECLARING = (observing, events, crystals, trails, briefing, gathering, keeping)  # the modules whose verbs are routes


class Spaces(msgspec.Struct, frozen=True, kw_only=True):
    """The names of the spaces that this token opens, and the one that is meant when none is named."""

    spaces: list[str]
    default: str


def routes() -> list[Route]:
    return [
        Route("/api/openapi.json", openapi),
        Route("/api/spaces", spaces),
        Route("/api/links", link, methods=["POST"]),
        *API.routes(),
    ]


async def openapi(request: Request) -> Response:
    """This API, described."""
    return document(request, _described())


@cache
def _described() -> dict[str, Any]:
    own = Operation(
        method="GET", path="/spaces", tag="server", does=spaces, asked=Nothing, answer=Spaces, of_space=False
    )
    return described([*API.declared, own, *streams.operations()])


async def spaces(request: Request) -> Response:
    """The spaces that the token opens."""
    token, house = _token(request), house_of(request)
    opened = [name for name in await house.spaces() if token.opens(name)]
    default = token.spaces[0] if len(token.spaces) == 1 else house.default
    return document(request, Spaces(spaces=opened, default=default))


async def link(request: Request) -> Response:
    """A path that lets one browser in, once. A browser sees all spaces, so that only a token for all may ask."""
    if _token(request).spaces:
        raise AccessDenied(
            "a browser sees all spaces, and this token opens some; `mica open` on the server makes a link"
        )
    access: Access = request.app.state.access
    return document(request, {"path": f"/enter?key={access.new_key()}"})


def _token(request: Request) -> Token:
    token = request.scope[TOKEN]
    assert isinstance(token, Token)  # the guard lets nothing else in
    return token

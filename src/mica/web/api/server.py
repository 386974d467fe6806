"""Operations of the server itself: its spaces, links for browsers, and the OpenAPI document."""

from __future__ import annotations

from functools import cache
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from mica.errors import AccessDenied
from mica.store.protocol import PurgeLog
from mica.store.remote.wire import GENERATION, MEDIA_TYPE, PATH, About, roles
from mica.web import streams
from mica.web.access import TOKEN, Access
from mica.web.api import briefs, crystals, events, everyday, sources, trails, upkeep
from mica.web.memory_pool import memory_of, pool_of, store_of
from mica.web.operations import API, EmptyRequest, Operation, json_response, openapi_document
from mica.web.problems import problem, problem_response
from mica.web.tokens import AccessToken

MODULES = (everyday, events, crystals, trails, sources, briefs, upkeep)  # they declare the operations of `API`


class Spaces(msgspec.Struct, frozen=True, kw_only=True):
    """The names of the spaces that this token opens, and the default one."""

    spaces: list[str]
    default: str


def routes() -> list[Route]:
    return [
        Route("/api/openapi.json", openapi),
        Route(SPACES.path, spaces),
        Route("/api/server/link", link, methods=["POST"]),
        *API.routes(),
        *store_routes(),
    ]


async def openapi(request: Request) -> Response:
    """Answer with the OpenAPI description of this API."""
    return json_response(request, _openapi())


@cache
def _openapi() -> dict[str, Any]:
    return openapi_document([*API.declared, SPACES, *streams.OPERATIONS])


async def spaces(request: Request) -> Response:
    """List the spaces that the token opens."""
    token, pool = _token(request), pool_of(request)
    opened = [name for name in await pool.spaces() if token.opens(name)]
    default = token.spaces[0] if len(token.spaces) == 1 else pool.default
    return json_response(request, Spaces(spaces=opened, default=default))


async def link(request: Request) -> Response:
    """Make a one-time login path for a browser. Raises AccessDenied for a token that does not open all spaces."""
    if _token(request).spaces:
        raise AccessDenied(
            "a browser sees all spaces, and this token opens some; `mica server open` on the server makes a link"
        )
    access: Access = request.app.state.access
    return json_response(request, {"path": f"/enter?key={access.new_key()}"})


SPACES = Operation(
    method="GET",
    name="server.spaces",
    function=spaces,
    request_type=EmptyRequest,
    response_type=Spaces,
    of_space=False,
)


def _token(request: Request) -> AccessToken:
    token = request.scope[TOKEN]
    assert isinstance(token, AccessToken)  # the guard lets nothing else in
    return token


# -- The store, for `mica.open("http://…")` -------------------------------------------------------------------------


class OpenSpaceRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The options for opening a space; `make` creates a missing one."""

    make: bool = False


def store_routes() -> list[Route]:
    return [
        Route(PATH, open_space, methods=["POST"]),
        Route(f"{PATH}/{{role}}/{{method}}", call, methods=["POST"]),
    ]


async def open_space(request: Request) -> Response:
    """Open a space and answer with its description; with `make`, a missing one is created."""
    try:
        arguments = msgspec.msgpack.decode(await request.body(), type=OpenSpaceRequest)
    except msgspec.DecodeError as error:
        return problem_response(problem(400, str(error)))
    await memory_of(request, make=arguments.make)
    store = store_of(request)
    return _packed(store.purges, About(space=store.space, location=store.location, generation=store.purges.generation))


async def call(request: Request) -> Response:
    """Call a method of a space's store and answer with its result. The path contains the role and the method."""
    method = roles().get(request.path_params["role"], {}).get(request.path_params["method"])
    if method is None:
        return problem_response(problem(404, "a store has no such method"))
    try:
        arguments = msgspec.msgpack.decode(await request.body(), type=method.request)
    except msgspec.DecodeError as error:
        return problem_response(problem(400, str(error)))
    memory = await memory_of(request)
    is_append = (method.role, method.name) == ("log", "append")
    store = store_of(request)
    run = memory.events.append if is_append else getattr(getattr(store, method.role), method.name)
    result = await run(**{name: getattr(arguments, name) for name in arguments.__struct_fields__})
    return _packed(store.purges, result)


def _packed(purges: PurgeLog, result: object) -> Response:
    headers = {GENERATION: str(purges.generation)}
    return Response(msgspec.msgpack.encode(result), media_type=MEDIA_TYPE, headers=headers)

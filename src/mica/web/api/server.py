"""Operations of the server itself: its spaces, links for browsers, and the OpenAPI document."""

from __future__ import annotations

from functools import cache, partial
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from mica.errors import AccessDenied, InvalidInput
from mica.store.protocol import PurgeLog
from mica.store.remote.wire import GENERATION, MEDIA_TYPE, PATH, About, RoleMethod, roles
from mica.web import streams
from mica.web.access import Access
from mica.web.api import beliefs, briefs, crystals, events, everyday, sources, trails, upkeep
from mica.web.memory_pool import memory_of, pool_of, store_of
from mica.web.operations import API, EmptyRequest, Operation, decoding, json_response, openapi_document
from mica.web.problems import problem, problem_response
from mica.web.scopes import route, token_of
from mica.web.tokens import EVERYDAY_SCOPES, SCOPES, TokenScope

MODULES = (everyday, events, beliefs, crystals, trails, sources, briefs, upkeep)  # they declare the operations of `API`


class Spaces(msgspec.Struct, frozen=True, kw_only=True):
    """The names of the spaces that this token opens, and the default one."""

    spaces: list[str]
    default: str


def routes() -> list[Route]:
    return [
        route("/api/openapi.json", openapi, needs="read"),
        route(SPACES.path, spaces, needs=SPACES.needs),
        route("/api/server/link", link, needs="admin", methods=["POST"]),
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
    token, pool = token_of(request), pool_of(request)
    opened = [name for name in await pool.spaces() if token.opens(name)]
    default = token.spaces[0] if len(token.spaces) == 1 else pool.default
    return json_response(request, Spaces(spaces=opened, default=default))


async def link(request: Request) -> Response:
    """Make a one-time login path for a browser, which may then read and write; with `?admin=1` it may do all.

    Raises AccessDenied for a token that does not open all spaces.
    """
    if token_of(request).spaces:
        raise AccessDenied(
            "a browser sees all spaces, and this token opens some; `mica server open` on the server makes a link"
        )
    access: Access = request.app.state.access
    scopes = SCOPES if request.query_params.get("admin") == "1" else EVERYDAY_SCOPES
    return json_response(request, {"path": f"/enter?key={access.new_key(scopes)}"})


SPACES = Operation(
    method="GET",
    name="server.spaces",
    function=spaces,
    request_type=EmptyRequest,
    response_type=Spaces,
    needs="read",
    of_space=False,
)


# -- The store, for `mica.open("http://…")` -------------------------------------------------------------------------


class OpenSpaceRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The options for opening a space; `make` creates a missing one."""

    make: bool = False


def store_routes() -> list[Route]:
    return [
        route(PATH, open_space, needs="read", methods=["POST"]),
        *(
            route(method.path, partial(call, method), needs=store_scope(method), methods=["POST"])
            for methods in roles().values()
            for method in methods.values()
        ),
        route(f"{PATH}/{{role}}/{{method}}", no_method, needs="read", methods=["POST"]),
    ]


# The scopes that the methods of a store need. `age` compresses old events, which changes no answer.
STORE_SCOPES: dict[TokenScope, frozenset[str]] = {
    "read": frozenset(
        """
        log.get log.get_many log.at log.query log.read log.last_position
        chains.chain chains.ancestors chains.descendants chains.agents
        texts.postings texts.postings_at texts.read vectors.read vectors.missing
        crystals.query crystals.postings crystals.unsealed crystals.citing crystals.above
        beliefs.learned_up_to beliefs.query beliefs.related
        trails.learned_up_to trails.query replies.read replies.concepts work.all purges.all files.sizes files.verify
        """.split()
    ),
    "write": frozenset(
        """
        log.append vectors.save beliefs.save trails.save replies.save
        work.plan work.claim work.renew work.finish files.age
        """.split()
    ),
    "admin": frozenset("purges.bury purges.add purges.scrub files.rebuild".split()),
}


def store_scope(method: RoleMethod) -> TokenScope:
    """Return the scope that a method of a store needs. A method that is not listed needs admin."""
    name = f"{method.role}.{method.name}"
    return next((scope for scope, names in STORE_SCOPES.items() if name in names), "admin")


async def open_space(request: Request) -> Response:
    """Open a space and answer with its description. A missing one is created with `make`, if the token may write."""
    try:
        arguments = _unpack(await request.body(), OpenSpaceRequest)
    except msgspec.DecodeError as error:
        return problem_response(problem(400, str(error)))
    await memory_of(request, make=arguments.make and token_of(request).allows("write"))
    store = store_of(request)
    return _packed(store.purges, About(space=store.space, location=store.location, generation=store.purges.generation))


async def no_method(request: Request) -> Response:
    return problem_response(problem(404, "a store has no such method"))


async def call(method: RoleMethod, request: Request) -> Response:
    """Call a method of a space's store and answer with its result."""
    try:
        arguments = _unpack(await request.body(), method.request)
    except msgspec.DecodeError as error:
        return problem_response(problem(400, str(error)))
    memory = await memory_of(request)
    is_append = (method.role, method.name) == ("log", "append")
    store = store_of(request)
    run = memory.events.append if is_append else getattr(getattr(store, method.role), method.name)
    try:
        result = await run(**{name: getattr(arguments, name) for name in arguments.__struct_fields__})
    except OverflowError as error:
        raise InvalidInput(f"a number of `{method.role}.{method.name}` is too large for a store: {error}") from error
    return _packed(store.purges, result)


def _unpack(body: bytes, kind: Any) -> Any:  # noqa: ANN401 - the request of any method
    """Decode a MessagePack body as a value of the type `kind`. Raises DecodeError."""
    with decoding():
        return msgspec.msgpack.decode(body, type=kind)


def _packed(purges: PurgeLog, result: object) -> Response:
    headers = {GENERATION: str(purges.generation)}
    return Response(msgspec.msgpack.encode(result), media_type=MEDIA_TYPE, headers=headers)

"""The store of a space, lent to Python clients: every verb of the protocol, for `mica.open("http://…")`."""

from __future__ import annotations

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from mica.memory import Memory
from mica.store.remote.wire import GENERATION, MEDIA_TYPE, PATH, About, verbs
from mica.web.problems import answered, problem
from mica.web.request_memory import memory_of


class Opened(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Whether a space that is not there is made."""

    make: bool = False


def routes() -> list[Route]:
    return [Route(PATH, meet, methods=["POST"]), Route(f"{PATH}/{{verb}}", call, methods=["POST"])]


async def meet(request: Request) -> Response:
    """Which space this is, made on request."""
    try:
        asked = msgspec.msgpack.decode(await request.body(), type=Opened)
    except msgspec.DecodeError as error:
        return answered(problem(400, str(error)))
    memory = await memory_of(request, make=asked.make)
    store = memory.store
    return _packed(memory, About(space=store.space, location=store.location, generation=store.generation))


async def call(request: Request) -> Response:
    """One verb of the store."""
    if (verb := verbs().get(request.path_params["verb"])) is None:
        return answered(problem(404, "a store has no such verb"))
    try:
        asked = msgspec.msgpack.decode(await request.body(), type=verb.takes)
    except msgspec.DecodeError as error:
        return answered(problem(400, str(error)))
    memory = await memory_of(request)
    does = memory.take if verb.name == "append" else getattr(memory.store, verb.name)
    told = await does(**{name: getattr(asked, name) for name in asked.__struct_fields__})
    return _packed(memory, told)


def _packed(memory: Memory, told: object) -> Response:
    headers = {GENERATION: str(memory.store.generation)}
    return Response(msgspec.msgpack.encode(told), media_type=MEDIA_TYPE, headers=headers)

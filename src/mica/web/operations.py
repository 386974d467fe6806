"""How a verb becomes a route: declared once by its types, checked on the way in, described in the OpenAPI document.

An operation is a function of a memory and of what is asked, a struct. Its fields come from the path, from the query of
a GET or from the JSON body of a POST; what does not fit the struct is refused with 400 before anything runs.
"""

from __future__ import annotations

import re
import time
from collections.abc import Awaitable, Callable, Mapping
from datetime import datetime
from hashlib import blake2b
from typing import Any, Literal, TypeAlias, TypeVar, cast, get_args, get_origin, get_type_hints

import msgspec
from starlette.requests import HTTPConnection, Request
from starlette.responses import Response
from starlette.routing import Route

from mica.web.problems import answered, problem
from mica.web.request_memory import memory_of

Method: TypeAlias = Literal["GET", "POST"]
Does = TypeVar("Does", bound=Callable[..., Awaitable[object]])

JSON = "application/json"
_NUMBER = re.compile(r"[-+0-9.eE]+")
CARRIED = ("traceparent", "baggage")  # with one of these, what is recorded goes on where the sender was


class Nothing(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Nothing has to be said."""


class Operation(msgspec.Struct, frozen=True, kw_only=True):
    """One route: what may be asked, and what is answered."""

    method: Method
    path: str  # below /api
    tag: str
    does: Callable[..., Awaitable[object]]
    asked: type[msgspec.Struct]
    answer: Any  # the type of what is answered
    timed: bool = False  # whether it is told how long it took, by the name of what was loaded
    media_type: str = "application/json"  # of what is answered
    of_space: bool = True  # whether it is about one space

    @property
    def name(self) -> str:
        return self.does.__name__

    @property
    def parts(self) -> frozenset[str]:
        """The fields that stand in the path."""
        return frozenset(re.findall(r"{(\w+)}", self.path))


class Operations:
    """All operations, in the order in which they were declared."""

    def __init__(self) -> None:
        self.declared: list[Operation] = []

    def get(self, path: str, *, tag: str) -> Callable[[Does], Does]:
        return self._declare("GET", path, tag)

    def post(self, path: str, *, tag: str, timed: bool = False) -> Callable[[Does], Does]:
        return self._declare("POST", path, tag, timed=timed)

    def _declare(self, method: Method, path: str, tag: str, *, timed: bool = False) -> Callable[[Does], Does]:
        def declare(does: Does) -> Does:
            hints = get_type_hints(does, include_extras=True)
            asked = cast(type[msgspec.Struct], hints.get("asked", Nothing))
            self.declared.append(
                Operation(
                    method=method, path=path, tag=tag, does=does, asked=asked, answer=hints["return"], timed=timed
                )
            )
            return does

        return declare

    def routes(self) -> list[Route]:
        """One route for each path; those without a part that varies come first."""
        by_path: dict[str, dict[str, Operation]] = {}
        for operation in sorted(self.declared, key=lambda each: bool(each.parts)):
            by_path.setdefault(operation.path, {})[operation.method] = operation
        return [Route(f"/api{path}", _endpoint(by_method), methods=[*by_method]) for path, by_method in by_path.items()]


API = Operations()


def _endpoint(by_method: Mapping[str, Operation]) -> Callable[[Request], Awaitable[Response]]:
    async def endpoint(request: Request) -> Response:
        operation = by_method["GET" if request.method == "HEAD" else request.method]
        try:
            asked = await _asked(operation, request)
        except msgspec.DecodeError as error:
            return answered(problem(400, str(error)))
        except _Unreadable as error:
            return answered(problem(415, str(error)))
        memory = await memory_of(request)
        given = (memory,) if operation.asked is Nothing else (memory, asked)
        began = time.perf_counter()
        if any(name in request.headers for name in CARRIED):
            with memory.received(request.headers):
                told = await operation.does(*given)
        else:
            told = await operation.does(*given)
        if operation.timed:
            request.app.state.loads[memory.space].observe(getattr(told, "name", ""), time.perf_counter() - began)
        return document(request, told)

    return endpoint


def document(request: Request, told: object) -> Response:
    """An answer as JSON; of a GET with its tag, so that who has it already is not sent it again."""
    body = msgspec.json.encode(told)
    if request.method == "POST":
        return Response(body, media_type=JSON)
    tag = f'"{blake2b(body, digest_size=12).hexdigest()}"'
    headers = {"etag": tag, "cache-control": "private, no-cache"}
    known = request.headers.get("if-none-match", "")
    if tag in (each.strip().removeprefix("W/") for each in known.split(",")):
        return Response(status_code=304, headers=headers)
    return Response(body, media_type=JSON, headers=headers)


class _Unreadable(Exception):
    """A body that is no JSON by its own word."""


async def _asked(operation: Operation, request: Request) -> msgspec.Struct:
    if operation.method == "GET":
        return asked_of(operation.asked, request, parts=operation.parts)
    kind = request.headers.get("content-type", JSON).partition(";")[0].strip().lower()
    if kind != JSON:
        raise _Unreadable(f"a body is sent as {JSON} here, not as {kind[:100]!r}")
    if unknown := sorted(set(request.query_params) - {"space"}):
        raise msgspec.ValidationError(f"no parameter is called {unknown[0]!r}; what is asked stands in the body")
    body = await request.body() or b"{}"
    if not operation.parts:
        return _decoded(body, operation.asked)
    given = msgspec.json.decode(body, type=dict[str, object])
    if doubled := sorted(operation.parts & set(given)):
        raise msgspec.ValidationError(f"{doubled[0]!r} stands in the path; leave it out of the body")
    return msgspec.convert(given | request.path_params, operation.asked)


Asked = TypeVar("Asked", bound=msgspec.Struct)


def _decoded(body: bytes, kind: type[Asked]) -> Asked:
    """What a body says. JSON knows one kind of number: 4.0 is a whole one."""
    try:
        return msgspec.json.decode(body, type=kind)
    except msgspec.ValidationError:
        return msgspec.convert(_with_whole_numbers(msgspec.json.decode(body)), kind)


def _with_whole_numbers(value: object) -> object:
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, list):
        return [_with_whole_numbers(each) for each in value]
    if isinstance(value, dict):
        return {name: _with_whole_numbers(each) for name, each in value.items()}
    return value


def asked_of(kind: type[Asked], request: HTTPConnection, *, parts: frozenset[str] = frozenset()) -> Asked:
    """What a query and a path say. Raises ValidationError, in words for whoever asked."""
    kinds = {field.encode_name: field.type for field in msgspec.structs.fields(kind)}
    given: dict[str, object] = dict(request.path_params)
    for name in dict.fromkeys(request.query_params):
        if name == "space":
            continue
        if name in parts:
            raise msgspec.ValidationError(f"{name!r} stands in the path; leave it out of the query")
        values = request.query_params.getlist(name)
        if name in kinds and is_list(kinds[name]):
            given[name] = values
        elif len(values) > 1:
            raise msgspec.ValidationError(f"{name!r} is given {len(values)} times; once is possible")
        elif name in kinds and _holds(kinds[name], datetime) and _NUMBER.fullmatch(values[0]):
            raise msgspec.ValidationError(f"Expected a date and time with its zone, got a number - at `$.{name}`")
        else:
            given[name] = values[0]
    return msgspec.convert(given, kind, strict=False)


def _holds(kind: object, wanted: type) -> bool:
    """Whether a type is this one, or has it among its parts."""
    return kind is wanted or any(_holds(each, wanted) for each in get_args(kind))


def is_list(kind: object) -> bool:
    """Whether a field takes several values."""
    if get_origin(kind) is not None and hasattr(kind, "__metadata__"):
        kind = get_args(kind)[0]
    return get_origin(kind) in (tuple, list)

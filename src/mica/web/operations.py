"""The operations of the HTTP API. Requests are checked, and the OpenAPI document is made, by the types of functions.

An operation is a function with two parameters: a memory and a request struct. Its path is the Python name:
`memory.events.query` is `/api/events/query`. The fields come from the query of a GET or from the JSON body of a POST. A
request that does not fit the struct is refused with status 400 before anything runs.
"""

from __future__ import annotations

import asyncio
import inspect
import re
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from hashlib import blake2b
from importlib.metadata import version
from typing import Any, Literal, TypeAlias, TypeVar, cast, get_args, get_origin, get_type_hints

import msgspec
from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import HTTPConnection, Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from mica.format.documents import EVENTS
from mica.model.event import NESTING_MAX
from mica.web.memory_pool import memory_of
from mica.web.problems import MEDIA_TYPE, Problem, problem, problem_response
from mica.web.scopes import route
from mica.web.tokens import TokenScope

Method: TypeAlias = Literal["GET", "POST"]
Function = TypeVar("Function", bound=Callable[..., Awaitable[object]])
RequestType = TypeVar("RequestType", bound=msgspec.Struct)

PREFIX = "/api/"
API_VERSION = "1"
VERSION_HEADER = "mica-api-version"
JSON = "application/json"
CARRIER = ("traceparent", "baggage")  # with one of these, events are recorded in the context of the sender
BODY_BYTES_AT_ONCE = 64 * 2**10  # a larger body is decoded in a thread, so that other requests do not wait for it
TOO_DEEP = f"the body is nested too deep; {NESTING_MAX} levels are the most, so flatten it or pass parts as text"
_NUMBER = re.compile(r"[-+0-9.eE]+")


class EmptyRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A request without fields."""


class Operation(msgspec.Struct, frozen=True, kw_only=True):
    """One operation of the HTTP API: its path, its function, and the types of its request and response."""

    method: Method
    name: str  # as in Python: "search", "events.query"
    function: Callable[..., Awaitable[object]]
    request_type: type[msgspec.Struct]
    response_type: Any
    needs: TokenScope  # the scope that a token must have
    is_timed: bool = False  # the duration is observed for /metrics, by the `name` of the response
    media_type: str = JSON  # of the response
    of_space: bool = True  # False for the server's own operations

    @property
    def path(self) -> str:
        return PREFIX + self.name.replace(".", "/")

    @property
    def tag(self) -> str:
        """The group in the OpenAPI document: the first part of the name, or "everyday" for a name without a dot."""
        return self.name.partition(".")[0] if "." in self.name else "everyday"


class Operations:
    """A list of declared operations. Its methods `get` and `post` are decorators that add a function under a name."""

    def __init__(self) -> None:
        self.declared: list[Operation] = []

    def get(self, name: str, *, needs: TokenScope) -> Callable[[Function], Function]:
        return self._declare("GET", name, needs=needs)

    def post(self, name: str, *, needs: TokenScope, is_timed: bool = False) -> Callable[[Function], Function]:
        return self._declare("POST", name, needs=needs, is_timed=is_timed)

    def _declare(
        self, method: Method, name: str, *, needs: TokenScope, is_timed: bool = False
    ) -> Callable[[Function], Function]:
        def declare(function: Function) -> Function:
            hints = get_type_hints(function, include_extras=True)
            self.declared.append(
                Operation(
                    method=method,
                    name=name,
                    function=function,
                    request_type=cast(type[msgspec.Struct], hints.get("request", EmptyRequest)),
                    response_type=hints["return"],
                    needs=needs,
                    is_timed=is_timed,
                )
            )
            return function

        return declare

    def routes(self) -> list[Route]:
        return [route(each.path, _endpoint(each), needs=each.needs, methods=[each.method]) for each in self.declared]


API = Operations()


class ApiVersion:
    """Middleware that adds the API version to every answer below /api. It refuses requests for another version."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or not scope["path"].startswith(PREFIX):
            await self._app(scope, receive, send)
            return

        async def send_with_version(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message)[VERSION_HEADER] = API_VERSION
            await send(message)

        requested = Headers(scope=scope).get(VERSION_HEADER, API_VERSION)
        if requested == API_VERSION:
            await self._app(scope, receive, send_with_version)
            return
        detail = f"this server speaks version {API_VERSION} of the API, not {requested[:20]!r}"
        await problem_response(problem(400, detail))(scope, receive, send_with_version)


# -- Requests and responses ---------------------------------------------------------------------------------------


def _endpoint(operation: Operation) -> Callable[[Request], Awaitable[Response]]:
    async def endpoint(request: Request) -> Response:
        try:
            decoded = await _decode_request(operation, request)
        except msgspec.DecodeError as error:
            return problem_response(problem(400, str(error)))
        except _UnsupportedBody as error:
            return problem_response(problem(415, str(error)))
        memory = await memory_of(request)
        arguments = (memory,) if operation.request_type is EmptyRequest else (memory, decoded)
        began = time.perf_counter()
        if any(name in request.headers for name in CARRIER):
            with memory.received(request.headers):
                value = await operation.function(*arguments)
        else:
            value = await operation.function(*arguments)
        if operation.is_timed:
            request.app.state.loads[memory.space].observe(getattr(value, "name", ""), time.perf_counter() - began)
        return json_response(request, value)

    return endpoint


def json_response(request: Request, value: object) -> Response:
    """Answer with a value as JSON. For a GET it has an ETag, or status 304 if the client has the same value."""
    body = msgspec.json.encode(value)
    if request.method == "POST":
        return Response(body, media_type=JSON)
    tag = f'"{blake2b(body, digest_size=12).hexdigest()}"'
    headers = {"etag": tag, "cache-control": "private, no-cache"}
    known = request.headers.get("if-none-match", "")
    if tag in (each.strip().removeprefix("W/") for each in known.split(",")):
        return Response(status_code=304, headers=headers)
    return Response(body, media_type=JSON, headers=headers)


class _UnsupportedBody(Exception):
    """A body whose content type is not JSON."""


async def _decode_request(operation: Operation, request: Request) -> msgspec.Struct:
    if operation.method == "GET":
        return decode_query(operation.request_type, request)
    kind = request.headers.get("content-type", JSON).partition(";")[0].strip().lower()
    if kind != JSON:
        raise _UnsupportedBody(f"send the body as {JSON}, not as {kind[:100]!r}")
    if unknown := sorted(set(request.query_params) - {"space"}):
        raise msgspec.ValidationError(f"unknown parameter {unknown[0]!r}; a POST takes its fields in the body")
    body = await request.body() or b"{}"
    if len(body) <= BODY_BYTES_AT_ONCE:
        return _decode_body(body, operation.request_type)
    return await asyncio.to_thread(_decode_body, body, operation.request_type)


def _decode_body(body: bytes, kind: type[RequestType]) -> RequestType:
    """Decode a JSON body into a struct. A number such as 4.0 is accepted for an integer. Raises DecodeError."""
    with decoding():
        try:
            return msgspec.json.decode(body, type=kind)
        except msgspec.ValidationError:
            return msgspec.convert(_with_integers(msgspec.json.decode(body)), kind)


@contextmanager
def decoding() -> Iterator[None]:
    """Translate the errors of a block that decodes input to DecodeError.

    It covers input that is nested too deeply, and text that is not UTF-8. The message says which.
    """
    try:
        yield
    except RecursionError as error:
        raise msgspec.DecodeError(TOO_DEEP) from error
    except UnicodeDecodeError as error:
        raise msgspec.DecodeError(
            f"the body has text that is not UTF-8 ({error.reason}); encode it as UTF-8"
        ) from error


def _with_integers(value: object) -> object:
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, list):
        return [_with_integers(each) for each in value]
    if isinstance(value, dict):
        return {name: _with_integers(each) for name, each in value.items()}
    return value


def decode_query(kind: type[RequestType], request: HTTPConnection) -> RequestType:
    """Decode the query parameters of a request into a struct. Raises ValidationError with a message for the client."""
    kinds = {field.encode_name: field.type for field in msgspec.structs.fields(kind)}
    fields: dict[str, object] = {}
    for name in dict.fromkeys(request.query_params):
        if name == "space":
            continue
        values = request.query_params.getlist(name)
        if name in kinds and _is_list(kinds[name]):
            fields[name] = values
        elif len(values) > 1:
            raise msgspec.ValidationError(f"{name!r} was sent {len(values)} times; send it once")
        elif name in kinds and _contains(kinds[name], datetime) and _NUMBER.fullmatch(values[0]):
            raise msgspec.ValidationError(f"Expected a date and time with its zone, got a number - at `$.{name}`")
        else:
            fields[name] = values[0]
    return msgspec.convert(fields, kind, strict=False)


def _contains(kind: object, target: type) -> bool:
    return kind is target or any(_contains(each, target) for each in get_args(kind))


def _is_list(kind: object) -> bool:
    """Return True if the type of a field is a list or tuple, so that a query may contain the field several times."""
    if get_origin(kind) is not None and hasattr(kind, "__metadata__"):
        kind = get_args(kind)[0]
    return get_origin(kind) in (tuple, list)


# -- The OpenAPI document -----------------------------------------------------------------------------------------

Schema: TypeAlias = dict[str, Any]
REFERENCES = "#/components/schemas/{name}"
SPACE: Schema = {
    "name": "space",
    "in": "query",
    "description": "The space; by default the only one of the token, else the server's own.",
    "schema": {"type": "string", "minLength": 1, "maxLength": 200},
}
LAST_ID: Schema = {
    "name": "Last-Event-ID",
    "in": "header",
    "description": "The `id` of the last event received: the stream continues after it, and `after` is ignored.",
    "schema": {"type": "integer", "minimum": 0},
}
VERSION: Schema = {
    "description": "The version of the API. A request may send the same header to insist on one.",
    "schema": {"type": "string", "enum": [API_VERSION]},
}


def openapi_document(operations: Sequence[Operation]) -> Schema:
    """Build the OpenAPI 3.1 description of these operations."""
    kinds = [each.response_type for each in operations] + [each.request_type for each in operations] + [Problem]
    schemas, components = msgspec.json.schema_components(kinds, schema_hook=_any_schema, ref_template=REFERENCES)
    responses, requests = schemas[: len(operations)], schemas[len(operations) : -1]
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "mica",
            "version": version("mica"),
            "description": (
                "Memory for AI agents: the verbs of the Python interface over HTTP. "
                "/api/gateway is a WebSocket with subscriptions; docs/server.md describes its messages."
            ),
        },
        "security": [{"token": []}],  # each operation names the scope that it needs
        "paths": {
            operation.path: {operation.method.lower(): _describe(operation, response, request, components)}
            for operation, response, request in zip(operations, responses, requests, strict=True)
        },
        "components": {
            "schemas": components,
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
    }


def _any_schema(kind: type) -> Schema:
    if kind is object:
        return {"description": "Any JSON value."}
    raise NotImplementedError


def _describe(operation: Operation, response: Schema, request: Schema, components: Schema) -> Schema:
    summary, _, more = (inspect.getdoc(operation.function) or "").partition("\n\n")
    parameters = _parameters(operation, request, components)
    description: Schema = {
        "operationId": operation.name,
        "summary": summary,
        "tags": [operation.tag],
        "security": [{"token": [operation.needs]}],
        "parameters": [*parameters, *([SPACE] if operation.of_space else [])],
        "responses": {
            "200": {
                "description": "Success.",
                "headers": {VERSION_HEADER: VERSION},
                "content": {operation.media_type: {"schema": response}},
            },
            "default": {
                "description": "The error, as a problem document.",
                "content": {MEDIA_TYPE: {"schema": {"$ref": REFERENCES.format(name="Problem")}}},
            },
        },
    }
    if operation.media_type == EVENTS:
        description["parameters"].append(LAST_ID)
    elif operation.method == "GET" and operation.media_type == JSON:
        description["responses"]["304"] = {"description": "Unchanged: If-None-Match has the current ETag."}
    if more:
        description["description"] = more
    if operation.method == "POST" and operation.request_type is not EmptyRequest:
        description["requestBody"] = {"required": True, "content": {JSON: {"schema": request}}}
    return description


def _parameters(operation: Operation, request: Schema, components: Schema) -> list[Schema]:
    """Describe the fields of a GET request as query parameters."""
    if operation.method != "GET":
        return []
    schema = components[request["$ref"].rpartition("/")[2]]
    parameters: list[Schema] = []
    for field in msgspec.structs.fields(operation.request_type):
        name = field.encode_name
        parameter: Schema = {
            "name": name,
            "in": "query",
            "required": name in schema.get("required", ()),
            "schema": {key: value for key, value in schema["properties"][name].items() if key != "default"},
        }
        if _is_list(field.type):
            parameter |= {"style": "form", "explode": True}
        parameters.append(parameter)
    return parameters

"""MCP over streamable HTTP: an ASGI application with one endpoint for both kinds of the protocol.

Protocol with sessions (revisions until 2025-11-25): a client opens a session with `initialize` and sends its id in the
header `Mcp-Session-Id`. After a lost connection it resumes a stream with `Last-Event-ID`.

Protocol without sessions (since 2026-07-28): every request is independent. Its headers repeat fields of its body, and
the client cancels it by closing the connection.

`mica.web.access` checks hosts, origins and tokens before a request gets here.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import secrets
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Literal, Protocol
from urllib.parse import urlencode

import msgspec
from starlette.background import BackgroundTask
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from mica.errors import AccessDenied, MicaError, UnknownSpace
from mica.format.documents import server_sent
from mica.mcp import protocol
from mica.mcp.protocol import RpcError, RpcMessage
from mica.mcp.server import BEAT_S, CARRIER, McpServer
from mica.mcp.streams import McpResponse, Stream, event_stream
from mica.mcp.watcher import Watch
from mica.memory import Memory

BODY_BYTES_MAX = 16 * 2**20  # as a line on standard input
SESSIONS_MAX = 1_000  # the session that was idle longest is closed, and its client reconnects
SESSION_IDLE_S = 3_600.0  # without a request and without a reader of a stream
DIGITS_MAX = 15  # of a message's number in a stream
STREAMS_MAX = 100  # of a session, for resuming; the oldest finished ones are dropped first

SESSION, REVISION, LAST = "mcp-session-id", "mcp-protocol-version", "last-event-id"
METHOD, NAME = "mcp-method", "mcp-name"
WORK = "mica-session"  # the header in which a client may name its working session
# For each method, the parameter that the header Mcp-Name must repeat.
NAME_PARAMETERS = {"tools/call": "name", "prompts/get": "name", "resources/read": "uri"}
# Status codes for errors in the protocol without sessions. With sessions, a readable request is answered with 200.
STATUSES = {
    protocol.PARSE_ERROR: 400,
    protocol.INVALID_REQUEST: 400,
    protocol.INVALID_PARAMS: 400,
    protocol.HEADER_MISMATCH: 400,
    protocol.UNSUPPORTED_VERSION: 400,
    protocol.UNKNOWN_METHOD: 404,
}

MemoryLookup = Callable[[Scope], Awaitable[Memory]]  # the memory of a request's space; raises AccessDenied


class Caller(Protocol):
    """The token of a request, which is already known to have the scope `read`."""

    @property
    def id(self) -> str: ...

    def allows(self, scope: Literal["write"], /) -> bool: ...


CallerLookup = Callable[[Scope], Caller]


class RequestRefused(Exception):
    """A request that is refused with an HTTP status and a JSON-RPC error. `of` is the id of its message, if known."""

    def __init__(
        self, status: int, message: str, *, code: int = protocol.INVALID_REQUEST, data: object = None, of: object = None
    ) -> None:
        super().__init__(message)
        self.status = status
        self.error = RpcError(code, message, data)
        self.id = of if isinstance(of, str | int) and not isinstance(of, bool) else None

    def response(self) -> Response:
        body = msgspec.json.encode(protocol.error_response(self.id, self.error))
        allow = {"Allow": "POST, GET, DELETE"} if self.status == 405 else {}
        return Response(body, status_code=self.status, media_type="application/json", headers=allow)


class SpaceOwner:
    """Provides the memory of one open space, for all MCP clients of that space."""

    session: str | None = None
    is_known = True
    has_space = True

    def __init__(self, memory: Memory) -> None:
        self._memory = memory
        self.watch = Watch(self)

    def expect_roots(self) -> asyncio.Future[object]:
        raise NotImplementedError  # over HTTP the client names the space, not a directory

    async def memory(self, *, makes: bool) -> Memory:
        return self._memory


class McpSession:
    """A session that a client opened with `initialize`: its server, its streams, and when it was last used."""

    def __init__(self, owner: SpaceOwner, caller: Caller, *, session: str | None, beat_s: float) -> None:
        self.id = secrets.token_hex(24)
        self.owner = owner
        self.caller = caller.id
        self.unrequested = Stream("0")  # messages that the client did not request
        named = session or f"mcp-{self.id[:12]}"  # a client without a named session gets one of its own
        self.server = McpServer(
            owner,
            owner.watch,
            self.unrequested.put,
            session=named,
            may_write=caller.allows("write"),
            beat_s=beat_s,
        )
        self.used_at = time.monotonic()
        self.streams = {self.unrequested.name: self.unrequested}
        self._count = 0

    @property
    def is_read(self) -> bool:
        return any(stream.is_read for stream in self.streams.values())

    def stream(self) -> Stream:
        """Add a stream for the answer to a request. Beyond STREAMS_MAX, the oldest finished streams are dropped."""
        self._count += 1
        made = Stream(str(self._count))
        over = [name for name, stream in self.streams.items() if stream.is_over and not stream.is_read]
        for name in over[: max(0, len(self.streams) - STREAMS_MAX)]:
            del self.streams[name]
        self.streams[made.name] = made
        return made

    async def close(self) -> None:
        await self.server.drain()
        for stream in self.streams.values():
            stream.end()


class Endpoint:
    """The ASGI application that serves MCP for all spaces."""

    def __init__(self, memories: MemoryLookup, callers: CallerLookup, *, beat_s: float = BEAT_S) -> None:
        self._memories = memories
        self._callers = callers
        self._beat_s = beat_s
        self._sessions: dict[str, McpSession] = {}
        self._owners: dict[Memory, SpaceOwner] = {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        try:
            response = await self._respond(request)
        except RequestRefused as refused:
            response = refused.response()
        except ClientDisconnect:
            return
        await response(scope, receive, send)

    async def close(self) -> None:
        """End every session and subscription."""
        for owner in self._owners.values():
            await owner.watch.close()
        for session in tuple(self._sessions.values()):
            await self.end(session)

    async def leave(self, memory: Memory) -> None:
        """End the MCP sessions of a space whose memory is about to be closed. Their clients reconnect."""
        if (owner := self._owners.pop(memory, None)) is not None:
            await owner.watch.close()
            for session in tuple(self._sessions.values()):
                if session.owner is owner:
                    await self.end(session)

    async def _respond(self, request: Request) -> Response:
        match request.method:
            case "POST":
                return await self._post(request)
            case "GET":
                return await self._get(request)
            case "DELETE":
                await self.end(await self.session(request))
                return Response(status_code=204)
        raise RequestRefused(405, f"{request.method} is not a method of MCP over HTTP")

    # -- Requests ---------------------------------------------------------------------------------------------

    async def _post(self, request: Request) -> Response:
        check_types(request)
        message = await message_of(request)
        revision = request.headers.get(REVISION)
        if message.is_stateless or revision in protocol.STATELESS:
            return await self._post_stateless(request, message)
        if revision is not None and revision not in protocol.HANDSHAKE:
            known = [*protocol.HANDSHAKE, *protocol.STATELESS]
            detail = f"Unsupported protocol version: {revision}; this server supports {', '.join(known)}"
            data = {"supported": known, "requested": revision}
            raise RequestRefused(400, detail, code=protocol.UNSUPPORTED_VERSION, data=data, of=message.id)
        if message.method == "initialize" and message.is_request:
            session = await self.begin(request)
        else:
            session = await self.session(request)
        if not message.is_request:
            session.server.notice(message)
            return Response(status_code=202)
        stream = session.stream()
        task = session.server.begin(message, stream.put)
        task.add_done_callback(lambda _: stream.end())
        named = {SESSION: session.id} if message.method == "initialize" else {}
        is_primed = session.server.revision == protocol.HANDSHAKE[-1]
        return McpResponse(stream, task, statuses={}, headers=named, ends_with_client=False, primed=is_primed)

    async def _post_stateless(self, request: Request, message: RpcMessage) -> Response:
        """Answer a message of the protocol without sessions. Raises RequestRefused if it is not valid."""
        check_headers(request, message)
        if message.method is None:
            raise RequestRefused(400, "a client may send requests and notifications, not responses", of=message.id)
        if message.id is None:
            return Response(status_code=202)  # cancelling is closing the connection, so there is nothing to do
        lasts = message.method == "subscriptions/listen"
        if lasts and not accepts(request, "text/event-stream"):
            raise RequestRefused(406, "the answer is a stream; send `Accept: text/event-stream`", of=message.id)
        stream = Stream()
        owner = await self.owner(request)
        named = request.headers.get(WORK)
        may_write = self._callers(request.scope).allows("write")
        server = McpServer(owner, owner.watch, stream.put, session=named, may_write=may_write, beat_s=self._beat_s)
        task = server.begin(message, stream.put)
        task.add_done_callback(lambda _: stream.end())
        return McpResponse(stream, task, statuses=STATUSES, headers={}, ends_with_client=True)

    # -- Sessions ---------------------------------------------------------------------------------------------

    async def begin(self, request: Request) -> McpSession:
        """Open a session. This first ends sessions that were idle too long and, at the limit, the one idle longest.

        Raises RequestRefused if SESSIONS_MAX clients are connected, or if the space of the request cannot be opened.
        """
        owner = await self.owner(request)
        now = time.monotonic()
        idle = sorted((each for each in self._sessions.values() if not each.is_read), key=lambda each: each.used_at)
        for number, old in enumerate(idle):
            if now - old.used_at > SESSION_IDLE_S or len(self._sessions) - number >= SESSIONS_MAX:
                await self.end(old)
        if len(self._sessions) >= SESSIONS_MAX:
            raise RequestRefused(503, f"{SESSIONS_MAX:,} clients are connected already")
        caller = self._callers(request.scope)
        session = McpSession(owner, caller, session=request.headers.get(WORK), beat_s=self._beat_s)
        self._sessions[session.id] = session
        return session

    async def session(self, request: Request) -> McpSession:
        """Return the session whose id a request sends. It is valid only in its space, and for the token that opened it.

        Raises RequestRefused if the request sends no id, or if there is no such session.
        """
        named = request.headers.get(SESSION) or request.query_params.get("session")
        if named is None:
            raise RequestRefused(
                400, "open a session with initialize, and send its id as Mcp-Session-Id", code=protocol.INVALID_PARAMS
            )
        session = self._sessions.get(named)
        is_own = session is not None and session.caller == self._callers(request.scope).id
        if session is None or not is_own or session.owner is not await self.owner(request):
            raise RequestRefused(404, "this session has ended or was never opened; start with initialize")
        session.used_at = time.monotonic()
        return session

    async def end(self, session: McpSession) -> None:
        self._sessions.pop(session.id, None)
        await session.close()

    async def owner(self, request: Request) -> SpaceOwner:
        """Return the SpaceOwner of the request's space. Each open space has one.

        Raises RequestRefused if the space does not exist or cannot be opened, or if the token does not open it.
        """
        try:
            memory = await self._memories(request.scope)
        except AccessDenied as error:
            raise RequestRefused(403, f"mica: {error}") from error
        except UnknownSpace as error:
            raise RequestRefused(404, f"mica: {error}") from error
        except MicaError as error:
            raise RequestRefused(503, f"mica: {error}", code=protocol.INTERNAL_ERROR) from error
        return self._owners.setdefault(memory, SpaceOwner(memory))

    async def _get(self, request: Request) -> Response:
        """Open the stream for messages that answer no request. With `Last-Event-ID`, resume an earlier stream."""
        if request.headers.get(REVISION) in protocol.STATELESS:
            raise RequestRefused(405, "since 2026-07-28 a client listens by POST, with subscriptions/listen")
        if not accepts(request, "text/event-stream"):
            raise RequestRefused(406, "the answer is a stream; send `Accept: text/event-stream`")
        session = await self.session(request)
        name, after = "0", 0
        if (last := request.headers.get(LAST)) is not None:
            name, _, number = last.partition("/")
            if name not in session.streams or not number.isdecimal() or len(number) > DIGITS_MAX:
                raise RequestRefused(404, f"there is no stream to resume after {last[:60]!r}; start again")
            after = int(number)
        elif session.unrequested.is_read:
            raise RequestRefused(409, "this session has an open stream already")
        return event_stream(session.streams[name].events(after))


def routes(endpoint: Endpoint, path: str = "/mcp") -> list[Route]:
    """Return the route of the endpoint. A mount would redirect requests whose path has no slash at the end."""
    return [Route(path, endpoint)]


# -- Checking requests --------------------------------------------------------------------------------------------


def accepts(request: Request, kind: str) -> bool:
    """True if the client accepts the media type `kind`. A request without an Accept header accepts any."""
    accepted = request.headers.get("accept", "*/*")
    kinds = [each.partition(";")[0].strip().lower() for each in accepted.split(",")]
    return any(each in (kind, "*/*", f"{kind.partition('/')[0]}/*") for each in kinds)


def check_types(request: Request) -> None:
    sent = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if sent != "application/json":
        raise RequestRefused(415, f"a message is application/json, not {sent!r}")
    if not accepts(request, "application/json") or not accepts(request, "text/event-stream"):
        raise RequestRefused(406, "accept both application/json and text/event-stream")


async def message_of(request: Request) -> RpcMessage:
    """Parse the message in a request's body. Trace headers of the request are added to its `_meta`.

    Raises RequestRefused if the body is not a message or is too large.
    """
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > BODY_BYTES_MAX:
            raise RequestRefused(413, f"a message may have {BODY_BYTES_MAX:,} bytes")
    try:
        message = protocol.parse_message(bytes(body))
    except RpcError as error:
        raise RequestRefused(400, error.message, code=error.code, of=error.data) from error
    carried = {name: value for name in CARRIER if name not in message.meta and (value := request.headers.get(name))}
    if not carried:
        return message
    meta = {**message.meta, **carried}  # a proxy or a tracing client may set these headers
    return msgspec.structs.replace(message, params={**message.params, "_meta": meta})


def check_headers(request: Request, message: RpcMessage) -> None:
    """Raise RequestRefused if the headers of a request contradict its body. For the protocol without sessions."""

    def mismatched(name: str, expected: object) -> RequestRefused:
        detail = f"Header mismatch: {name} header is {request.headers.get(name)!r}, the body says {expected!r}"
        return RequestRefused(400, detail, code=protocol.HEADER_MISMATCH, of=message.id)

    for name in (REVISION, METHOD, NAME):
        if len(request.headers.getlist(name)) > 1:
            raise RequestRefused(400, f"{name} appears more than once", code=protocol.HEADER_MISMATCH, of=message.id)
    if not message.is_request:
        return
    if not message.is_stateless:
        detail = f"_meta needs {protocol.VERSION} and {protocol.CAPABILITIES}"
        raise RequestRefused(400, detail, code=protocol.INVALID_PARAMS, of=message.id)
    if request.headers.get(REVISION) != message.meta[protocol.VERSION]:
        raise mismatched(REVISION, message.meta[protocol.VERSION])
    if request.headers.get(METHOD) != message.method:
        raise mismatched(METHOD, message.method)
    field = NAME_PARAMETERS.get(str(message.method))
    expected = None if field is None else message.params.get(field)
    if expected is not None and decode_header(request.headers.get(NAME)) != expected:
        raise mismatched(NAME, expected)


def decode_header(value: str | None) -> str | None:
    """Return a header value. A value between `=?base64?` and `?=` is decoded first; None if that fails."""
    if value is None or not (value.startswith("=?base64?") and value.endswith("?=")):
        return value
    try:
        return base64.b64decode(value[9:-2], validate=True).decode()
    except (binascii.Error, UnicodeDecodeError):
        return None


# -- The transport of 2024-11-05 ----------------------------------------------------------------------------------
#
# A stream to read, and an address to write to. It was replaced in 2025 and is off unless `server.mcp_sse` is set.


def sse_routes(endpoint: Endpoint, path: str = "/mcp") -> list[Route]:
    """Return the two routes of the transport from 2024 (HTTP with server-sent events), with the endpoint's sessions."""

    async def open_stream(request: Request) -> Response:
        try:
            session = await endpoint.begin(request)
        except RequestRefused as refused:
            return refused.response()
        query = {**request.query_params, "session": session.id}

        async def events() -> AsyncIterator[bytes]:
            yield server_sent(f"{path}/messages?{urlencode(query)}".encode(), event="endpoint")
            async for event in session.unrequested.events():
                yield event

        answer = event_stream(events())
        answer.background = BackgroundTask(endpoint.end, session)  # the session ends with the stream
        return answer

    async def post_message(request: Request) -> Response:
        try:
            session = await endpoint.session(request)
            message = await message_of(request)
        except RequestRefused as refused:
            return refused.response()
        if message.is_request:
            task = session.server.begin(message, session.unrequested.put)
            if message.method == "initialize":  # it must be answered before later messages
                await task
        else:
            session.server.notice(message)
        return Response("Accepted", status_code=202)

    return [Route(f"{path}/sse", open_stream), Route(f"{path}/messages", post_message, methods=["POST"])]

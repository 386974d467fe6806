"""MCP over streamable HTTP: one endpoint for both eras, as an ASGI application.

In the older era a client opens a session with `initialize` and names it in `Mcp-Session-Id`; its streams can be read on
with `Last-Event-ID`, and it goes on when a connection is lost. In the newer one every request stands alone, its headers
say what its body says, and closing the connection cancels it. Hosts, origins and tokens are checked by whoever mounts
it: the guard of `mica.web` stands before all that one server answers.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import secrets
import time
from collections.abc import Awaitable, Callable

import msgspec
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route
from starlette.types import Receive, Scope, Send

from mica.errors import AccessDenied, MicaError, UnknownSpace
from mica.mcp import protocol
from mica.mcp.protocol import Message, Refused
from mica.mcp.server import BEAT_S, CARRIER, Server
from mica.mcp.streams import Answer, Stream, streamed
from mica.mcp.watcher import Watch
from mica.memory import Memory

BODY_BYTES_MAX = 16 * 2**20  # as a line on standard input
SESSIONS_MAX = 1_000  # of the older era; the one that was idle longest goes, and its client begins anew
SESSION_IDLE_S = 3_600.0  # without a request and without a stream that is read
DIGITS_MAX = 15  # of a message's number in a stream
STREAMS_MAX = 100  # of a session, for reading on; the oldest that are over go first

SESSION, REVISION, LAST = "mcp-session-id", "mcp-protocol-version", "last-event-id"
METHOD, NAME = "mcp-method", "mcp-name"
WORK = "mica-session"  # by which a client may name the session that it works in
NAMED = {"tools/call": "name", "prompts/get": "name", "resources/read": "uri"}  # what Mcp-Name repeats
# How the newer era maps errors to status codes; the older one answers what it could read with 200.
STATUSES = {
    protocol.PARSE_ERROR: 400,
    protocol.INVALID_REQUEST: 400,
    protocol.INVALID_PARAMS: 400,
    protocol.HEADER_MISMATCH: 400,
    protocol.UNSUPPORTED_VERSION: 400,
    protocol.UNKNOWN_METHOD: 404,
}

Memories = Callable[[Scope], Awaitable[Memory]]  # of the space that a request is about, as far as it may ask there


class Turned(Exception):
    """A request that is answered by a status of HTTP, and an error of the protocol that says why."""

    def __init__(
        self, status: int, message: str, *, code: int = protocol.INVALID_REQUEST, data: object = None, of: object = None
    ) -> None:
        super().__init__(message)
        self.status = status
        self.refused = Refused(code, message, data)
        self.id = of if isinstance(of, str | int) and not isinstance(of, bool) else None

    def response(self) -> Response:
        body = msgspec.json.encode(protocol.refusal(self.id, self.refused))
        allow = {"Allow": "POST, GET, DELETE"} if self.status == 405 else {}
        return Response(body, status_code=self.status, media_type="application/json", headers=allow)


class Room:
    """An open space, for a server to speak for."""

    session: str | None = None
    is_known = True
    has_space = True

    def __init__(self, memory: Memory) -> None:
        self._memory = memory
        self.watch = Watch(self)

    def expect_roots(self) -> asyncio.Future[object]:
        raise NotImplementedError  # nobody asks where a client works that named a space

    async def memory(self, *, makes: bool) -> Memory:
        return self._memory


class Session:
    """One client of the older era."""

    def __init__(self, room: Room, *, session: str | None, beat_s: float) -> None:
        self.id = secrets.token_hex(24)
        self.room = room
        self.standing = Stream("0")  # what the client did not ask for
        named = session or f"mcp-{self.id[:12]}"  # what one client says is of one session, where it names none
        self.server = Server(room, room.watch, self.standing.put, session=named, beat_s=beat_s)
        self.used_at = time.monotonic()
        self.streams = {self.standing.name: self.standing}
        self._count = 0

    @property
    def is_read(self) -> bool:
        return any(stream.is_read for stream in self.streams.values())

    def stream(self) -> Stream:
        """A stream for the answer to a request."""
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
    """The endpoint. Close it, and every stream ends."""

    def __init__(self, memories: Memories, *, beat_s: float = BEAT_S) -> None:
        self._memories = memories
        self._beat_s = beat_s
        self._sessions: dict[str, Session] = {}
        self._rooms: dict[Memory, Room] = {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        try:
            response = await self._answered(request)
        except Turned as turned:
            response = turned.response()
        except ClientDisconnect:
            return
        await response(scope, receive, send)

    async def close(self) -> None:
        """End every session, and tell all who listen that it is over."""
        for room in self._rooms.values():
            await room.watch.close()
        for session in tuple(self._sessions.values()):
            await self.end(session)

    async def leave(self, memory: Memory) -> None:
        """Speak for a space no more: it is about to be closed. A client of it begins anew."""
        if (room := self._rooms.pop(memory, None)) is not None:
            await room.watch.close()
            for session in tuple(self._sessions.values()):
                if session.room is room:
                    await self.end(session)

    async def _answered(self, request: Request) -> Response:
        match request.method:
            case "POST":
                return await self._posted(request)
            case "GET":
                return await self._read_on(request)
            case "DELETE":
                await self.end(await self.session(request))
                return Response(status_code=204)
        raise Turned(405, f"{request.method} is not a way to speak MCP")

    # -- Requests ---------------------------------------------------------------------------------------------

    async def _posted(self, request: Request) -> Response:
        check_types(request)
        message = await message_of(request)
        revision = request.headers.get(REVISION)
        if message.is_stateless or revision in protocol.STATELESS:
            return await self._alone(request, message)
        if revision is not None and revision not in protocol.HANDSHAKE:
            known = [*protocol.HANDSHAKE, *protocol.STATELESS]
            told = f"Unsupported protocol version: {revision}; this server speaks {', '.join(known)}"
            data = {"supported": known, "requested": revision}
            raise Turned(400, told, code=protocol.UNSUPPORTED_VERSION, data=data, of=message.id)
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
        return Answer(stream, task, statuses={}, headers=named, ends_with_client=False, primed=is_primed)

    async def _alone(self, request: Request, message: Message) -> Response:
        """A request of the newer era."""
        check_headers(request, message)
        if message.method is None:
            raise Turned(400, "a client sends requests and notifications, no responses", of=message.id)
        if message.id is None:
            return Response(
                status_code=202
            )  # a request is cancelled by closing its connection, so nothing is said here
        lasts = message.method == "subscriptions/listen"
        if lasts and not accepts(request, "text/event-stream"):
            raise Turned(406, "the answer is a stream: accept text/event-stream", of=message.id)
        stream = Stream()
        room = await self.room(request)
        named = request.headers.get(WORK)
        server = Server(room, room.watch, stream.put, session=named, beat_s=self._beat_s)
        task = server.begin(message, stream.put)
        task.add_done_callback(lambda _: stream.end())
        return Answer(stream, task, statuses=STATUSES, headers={}, ends_with_client=True)

    # -- Sessions of the older era ----------------------------------------------------------------------------

    async def begin(self, request: Request) -> Session:
        """A new session."""
        room = await self.room(request)
        now = time.monotonic()
        idle = sorted((each for each in self._sessions.values() if not each.is_read), key=lambda each: each.used_at)
        for number, old in enumerate(idle):
            if now - old.used_at > SESSION_IDLE_S or len(self._sessions) - number >= SESSIONS_MAX:
                await self.end(old)
        if len(self._sessions) >= SESSIONS_MAX:
            raise Turned(503, f"{SESSIONS_MAX:,} clients are connected already")
        session = Session(room, session=request.headers.get(WORK), beat_s=self._beat_s)
        self._sessions[session.id] = session
        return session

    async def session(self, request: Request) -> Session:
        """The session that a request names. It holds only for the space that it was opened in."""
        named = request.headers.get(SESSION) or request.query_params.get("session")
        if named is None:
            raise Turned(
                400, "open a session with initialize, and name it in Mcp-Session-Id", code=protocol.INVALID_PARAMS
            )
        session = self._sessions.get(named)
        if session is None or session.room is not await self.room(request):
            raise Turned(404, "this session is over or was never opened; begin with initialize")
        session.used_at = time.monotonic()
        return session

    async def end(self, session: Session) -> None:
        self._sessions.pop(session.id, None)
        await session.close()

    async def room(self, request: Request) -> Room:
        """The space that a request is about. Raises Turned when it is not there, or not to be seen."""
        try:
            memory = await self._memories(request.scope)
        except AccessDenied as error:
            raise Turned(403, f"mica: {error}") from error
        except UnknownSpace as error:
            raise Turned(404, f"mica: {error}") from error
        except MicaError as error:
            raise Turned(503, f"mica: {error}", code=protocol.INTERNAL_ERROR) from error
        return self._rooms.setdefault(memory, Room(memory))

    async def _read_on(self, request: Request) -> Response:
        """What a client did not ask for, or the rest of a stream that was cut off."""
        if request.headers.get(REVISION) in protocol.STATELESS:
            raise Turned(405, "since 2026-07-28 a client listens by POST, with subscriptions/listen")
        if not accepts(request, "text/event-stream"):
            raise Turned(406, "the answer is a stream: accept text/event-stream")
        session = await self.session(request)
        name, after = "0", 0
        if (last := request.headers.get(LAST)) is not None:
            name, _, number = last.partition("/")
            if name not in session.streams or not number.isdecimal() or len(number) > DIGITS_MAX:
                raise Turned(404, f"there is no stream to read on after {last[:60]!r}; begin anew")
            after = int(number)
        elif session.standing.is_read:
            raise Turned(409, "this session has such a stream already")
        return streamed(session.streams[name].events(after))


def routes(endpoint: Endpoint, path: str = "/mcp") -> list[BaseRoute]:
    """Where the endpoint is found. A mount would redirect clients that leave out the slash at the end."""
    return [Route(path, endpoint)]


# -- What a request must be -------------------------------------------------------------------------------------


def accepts(request: Request, kind: str) -> bool:
    """Whether a client takes this kind of answer; one that says nothing takes any."""
    accepted = request.headers.get("accept", "*/*")
    kinds = [each.partition(";")[0].strip().lower() for each in accepted.split(",")]
    return any(each in (kind, "*/*", f"{kind.partition('/')[0]}/*") for each in kinds)


def check_types(request: Request) -> None:
    sent = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if sent != "application/json":
        raise Turned(415, f"a message is application/json, not {sent!r}")
    if not accepts(request, "application/json") or not accepts(request, "text/event-stream"):
        raise Turned(406, "accept both application/json and text/event-stream")


async def message_of(request: Request) -> Message:
    """The message in a body. Raises Turned when there is none, or too much."""
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > BODY_BYTES_MAX:
            raise Turned(413, f"a message has {BODY_BYTES_MAX:,} bytes at the most")
    try:
        message = protocol.read(bytes(body))
    except Refused as refused:
        raise Turned(400, refused.message, code=refused.code, of=refused.data) from refused
    carried = {name: value for name in CARRIER if name not in message.meta and (value := request.headers.get(name))}
    if not carried:
        return message
    meta = {**message.meta, **carried}  # a proxy or a tracing client may name the caller there
    return msgspec.structs.replace(message, params={**message.params, "_meta": meta})


def check_headers(request: Request, message: Message) -> None:
    """In the newer era headers repeat what the body says. Raises Turned when they do not."""

    def mismatched(name: str, expected: object) -> Turned:
        told = f"Header mismatch: {name} header is {request.headers.get(name)!r}, the body says {expected!r}"
        return Turned(400, told, code=protocol.HEADER_MISMATCH, of=message.id)

    for name in (REVISION, METHOD, NAME):
        if len(request.headers.getlist(name)) > 1:
            raise Turned(400, f"{name} appears more than once", code=protocol.HEADER_MISMATCH, of=message.id)
    if not message.is_request:
        return
    if not message.is_stateless:
        told = f"_meta needs {protocol.VERSION} and {protocol.CAPABILITIES}"
        raise Turned(400, told, code=protocol.INVALID_PARAMS, of=message.id)
    if request.headers.get(REVISION) != message.meta[protocol.VERSION]:
        raise mismatched(REVISION, message.meta[protocol.VERSION])
    if request.headers.get(METHOD) != message.method:
        raise mismatched(METHOD, message.method)
    field = NAMED.get(str(message.method))
    expected = None if field is None else message.params.get(field)
    if expected is not None and decoded(request.headers.get(NAME)) != expected:
        raise mismatched(NAME, expected)


def decoded(value: str | None) -> str | None:
    """A header's value; what HTTP cannot carry comes as base64 between marks."""
    if value is None or not (value.startswith("=?base64?") and value.endswith("?=")):
        return value
    try:
        return base64.b64decode(value[9:-2], validate=True).decode()
    except (binascii.Error, UnicodeDecodeError):
        return None

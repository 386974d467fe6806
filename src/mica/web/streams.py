"""Live streams: events and crystals as server-sent events, events over a WebSocket, and the log as JSON lines."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing, suppress
from typing import Annotated

import msgspec
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import BaseRoute
from starlette.websockets import WebSocket, WebSocketDisconnect

from mica.errors import InvalidInput, MicaError
from mica.format.documents import (
    EVENTS,
    QUIET,
    Fields,
    crystal_document,
    event_document,
    event_documents,
    event_line,
    server_sent,
)
from mica.memory import Memory
from mica.model.crystal import Level, crystal_of
from mica.model.event import CRYSTAL, Event, EventQuery
from mica.web.api.events import ResolveRequest
from mica.web.api.fields import EventSelection, Position
from mica.web.memory_pool import memory_of
from mica.web.operations import Operation, decode_query, decoding
from mica.web.problems import Problem, error_problem, problem, problem_response
from mica.web.scopes import route, socket_route
from mica.web.tail import Tails, Wrap

RETRY_MS = 1_000  # before a browser reconnects
SUBSCRIPTIONS_MAX = 50  # of one WebSocket
LAST_ID = "last-event-id"
LINES = "application/x-ndjson"


class FollowRequest(EventSelection, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Selects the events to stream: those after a position or, by default, those stored from now on."""

    after: Position | None = None


class CrystalStreamRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    level: Level | None = None
    after: Position | None = None


class ExportRequest(EventSelection, frozen=True, kw_only=True, forbid_unknown_fields=True):
    after: Position = 0
    with_ancestors: bool = False


async def follow(request: Request) -> Response:
    """Stream events as they are stored, in commit order.

    After a disconnection, `Last-Event-ID` with the position of the last event received resumes the stream after it.
    """
    try:
        parameters = decode_query(FollowRequest, request)
        after = _last_id(request, parameters.after)
    except msgspec.DecodeError as error:
        return problem_response(problem(400, str(error)))
    memory = await memory_of(request)
    return await _event_stream(
        request, memory, parameters.query(limit=None), after=after, fields=parameters.selected_fields, wrap=_wrap
    )


async def crystal_stream(request: Request) -> Response:
    """Stream crystals as they are made, in commit order.

    After a disconnection, `Last-Event-ID` with the position of the last crystal received resumes the stream after it.
    """
    try:
        parameters = decode_query(CrystalStreamRequest, request)
        after = _last_id(request, parameters.after)
    except msgspec.DecodeError as error:
        return problem_response(problem(400, str(error)))
    memory = await memory_of(request)
    level = parameters.level

    def wrap(event: Event, _: bytes) -> bytes:
        crystal = crystal_of(event)
        if level is not None and crystal.level != level:
            return f"id: {event.position}\n\n".encode()  # not sent, but its position counts
        return server_sent(msgspec.json.encode(crystal_document(crystal)), id=event.position or 0, event=CRYSTAL)

    # The fields are part of the tail's cache key, and these lines depend on the level.
    cache_key: Fields = (f"crystal:{level}",)
    return await _event_stream(request, memory, EventQuery(names=(CRYSTAL,)), after=after, fields=cache_key, wrap=wrap)


async def export(request: Request) -> Response:
    """Download the log as lines of JSON, in commit order; `mica events import-log` reads them."""
    try:
        parameters = decode_query(ExportRequest, request)
    except msgspec.DecodeError as error:
        return problem_response(problem(400, str(error)))
    memory, fields = await memory_of(request), parameters.selected_fields
    log = memory.events.log(
        parameters.query(limit=None), after=parameters.after, with_ancestors=parameters.with_ancestors
    )
    first = await anext(log, None)  # raises before the response begins

    async def lines() -> AsyncIterator[bytes]:
        async with aclosing(log):
            if first is not None:
                yield event_line(first, fields) + b"\n"
            async for event in log:
                yield event_line(event, fields) + b"\n"

    return StreamingResponse(lines(), media_type=LINES)


def _operation(
    name: str, function: Callable[..., Awaitable[object]], kind: type[msgspec.Struct], media_type: str
) -> Operation:
    return Operation(
        method="GET",
        name=name,
        function=function,
        request_type=kind,
        response_type=str,
        media_type=media_type,
        needs="read",
    )


FOLLOW = _operation("events.follow", follow, FollowRequest, EVENTS)
EXPORT = _operation("events.export", export, ExportRequest, LINES)
CRYSTALS = _operation("crystals.stream", crystal_stream, CrystalStreamRequest, EVENTS)
OPERATIONS = (FOLLOW, EXPORT, CRYSTALS)


def routes() -> list[BaseRoute]:
    return [
        route(FOLLOW.path, follow, needs=FOLLOW.needs),
        route(EXPORT.path, export, needs=EXPORT.needs),
        route(CRYSTALS.path, crystal_stream, needs=CRYSTALS.needs),
        socket_route("/api/gateway", gateway, needs="read"),
    ]


async def _event_stream(
    request: Request,
    memory: Memory,
    query: EventQuery,
    *,
    after: int | None,
    fields: Fields,
    wrap: Wrap,
) -> Response:
    if request.method == "HEAD":
        return Response(media_type=EVENTS)  # the body would never end
    tails: Tails = request.app.state.tails
    tail = tails.of(memory)
    begin = await tail.begin(after)

    async def lines() -> AsyncIterator[bytes]:
        # The first line has a position, so that a client which disconnects before any event can resume there.
        yield f"retry: {RETRY_MS}\nid: {begin}\n: mica\n\n".encode()
        async with aclosing(tail.lines(query, after=begin, fields=fields, wrap=wrap)) as lines_after:
            with suppress(MicaError):  # the space was closed; the client reconnects
                async for reached, text in lines_after:
                    yield text or b"id: %d\n%b" % (reached, QUIET)

    return StreamingResponse(lines(), media_type=EVENTS, headers={"x-accel-buffering": "no"})


def _wrap(event: Event, line: bytes) -> bytes:
    return server_sent(line, id=event.position or 0)


def _last_id(request: Request, after: int | None) -> int | None:
    """Return the position to resume after: the header `Last-Event-ID` if it was sent, else `after`."""
    last = request.headers.get(LAST_ID)
    if last is None:
        return after
    try:
        return msgspec.convert(last, Position, strict=False)
    except msgspec.ValidationError as error:
        raise msgspec.ValidationError(f"{error} - in the header `Last-Event-ID`: send the `id` of an event") from error


# -- The WebSocket gateway ----------------------------------------------------------------------------------------


class Subscribe(FollowRequest, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="subscribe", tag_field="do"):
    """A request to send all matching events until the client unsubscribes. Each event is sent with this `id`."""

    id: Annotated[str, msgspec.Meta(min_length=1, max_length=100)]


class Unsubscribe(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="unsubscribe", tag_field="do"):
    id: str


class EventsMessage(EventSelection, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="query", tag_field="do"):
    """A request for the latest events that match."""

    id: str
    limit: Annotated[int, msgspec.Meta(ge=0, le=1_000)] = 20


class Resolve(ResolveRequest, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="resolve", tag_field="do"):
    """A request for up to 100 events by id or position."""

    id: str


class StatsMessage(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="stats", tag_field="do"):
    id: str


GatewayMessage = Subscribe | Unsubscribe | EventsMessage | Resolve | StatsMessage
_decoder = msgspec.json.Decoder(GatewayMessage)


async def gateway(socket: WebSocket) -> None:
    """Serve a WebSocket on which a client sends subscribe, unsubscribe, query, resolve and stats messages."""
    try:
        memory = await memory_of(socket)
    except MicaError as error:
        await socket.close(1008, str(error)[:120])
        return
    await socket.accept()
    with suppress(WebSocketDisconnect):
        await _Gateway(socket, memory).run()


class _Gateway:
    def __init__(self, socket: WebSocket, memory: Memory) -> None:
        self._socket = socket
        self._memory = memory
        tails: Tails = socket.app.state.tails
        self._tail = tails.of(memory)
        self._subscribed: dict[str, asyncio.Task[None]] = {}

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            try:
                while True:
                    text = await self._socket.receive_text()
                    await self._answer(text, group)
            except (WebSocketDisconnect, KeyError):  # disconnected, or bytes instead of text
                pass
            finally:
                for task in self._subscribed.values():
                    task.cancel()
        with suppress(RuntimeError):  # the client has closed it already
            await self._socket.close()

    async def _answer(self, text: str, group: asyncio.TaskGroup) -> None:
        identifier: str | None = None
        try:
            with decoding():
                message = _decoder.decode(text)
            identifier = message.id
            match message:
                case Subscribe():
                    await self._subscribe(message, group)
                case Unsubscribe():
                    if (task := self._subscribed.pop(message.id, None)) is not None:
                        task.cancel()
                    await self._send({"id": message.id, "unsubscribed": task is not None})
                case EventsMessage():
                    events = await self._memory.events.query(message.query(limit=message.limit))
                    await self._send(
                        {"id": message.id, "events": [event_document(each, message.selected_fields) for each in events]}
                    )
                case Resolve():
                    resolved = await self._memory.events.resolve(message.references)
                    documents = event_documents(resolved.events, message.selected_fields)
                    await self._send({"id": message.id, "found": documents, "missing": resolved.missing})
                case StatsMessage():
                    sizes = await self._memory.upkeep.sizes()
                    await self._send(
                        {"id": message.id, "sizes": sizes, "position": await self._memory.events.position()}
                    )
        except msgspec.DecodeError as error:
            await self._problem(identifier, problem(400, str(error)))
        except MicaError as error:
            await self._problem(identifier, error_problem(error))

    async def _subscribe(self, message: Subscribe, group: asyncio.TaskGroup) -> None:
        if message.id in self._subscribed:
            raise InvalidInput(f"{message.id!r} is subscribed already; unsubscribe it first")
        if len(self._subscribed) >= SUBSCRIPTIONS_MAX:
            raise InvalidInput(f"{SUBSCRIPTIONS_MAX} subscriptions at most on one connection")
        fields = message.selected_fields
        begin = await self._tail.begin(message.after)
        await self._send({"id": message.id, "subscribed": True, "position": begin})
        self._subscribed[message.id] = group.create_task(self._follow(message, begin, fields))

    async def _follow(self, message: Subscribe, begin: int, fields: Fields) -> None:
        with suppress(MicaError, WebSocketDisconnect, RuntimeError):  # either side has closed
            async with aclosing(self._tail.batches(message.query(limit=None), after=begin)) as batches:
                async for _, events in batches:
                    for event in events:
                        document = event_document(event, fields)
                        await self._send({"id": message.id, "position": event.position, "event": document})

    async def _problem(self, identifier: str | None, problem: Problem) -> None:
        await self._send({"id": identifier, "problem": problem})

    async def _send(self, value: object) -> None:
        await self._socket.send_text(msgspec.json.encode(value).decode())

"""Live routes: events and crystals as server-sent events, events over a WebSocket, and the log as lines of JSON."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing, suppress
from typing import Annotated

import msgspec
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import BaseRoute, Route, WebSocketRoute
from starlette.websockets import WebSocket, WebSocketDisconnect

from mica.errors import InvalidInput, MicaError
from mica.format.documents import EVENTS, QUIET, Fields, crystal_document, event_document, event_line, server_sent
from mica.memory import Memory
from mica.model.crystal import Level, crystal_of
from mica.model.event import CRYSTAL, Event, EventQuery
from mica.web.api.events import ResolveAsked
from mica.web.api.fields import Position, Which
from mica.web.operations import Operation, asked_of
from mica.web.problems import Problem, answered, of_error, problem
from mica.web.request_memory import memory_of
from mica.web.tail import Tails, Wrap

RETRY_MS = 1_000  # after which a browser connects again
SUBSCRIPTIONS_MAX = 50  # of one WebSocket
LAST_ID = "last-event-id"
LINES = "application/x-ndjson"


class StreamAsked(Which, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which events, and from where: after a position, else what is stored from now on."""

    after: Position | None = None


class CrystalStreamAsked(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    level: Level | None = None
    after: Position | None = None


class ExportAsked(Which, frozen=True, kw_only=True, forbid_unknown_fields=True):
    after: Position = 0
    with_ancestors: bool = False


def operations() -> list[Operation]:
    """What is sent piece by piece, as the OpenAPI document has it."""
    return [
        Operation(method="GET", path=path, tag="live", does=does, asked=asked, answer=str, media_type=media_type)
        for path, does, asked, media_type in (
            ("/stream", stream, StreamAsked, EVENTS),
            ("/crystals/stream", crystal_stream, CrystalStreamAsked, EVENTS),
            ("/export", export, ExportAsked, LINES),
        )
    ]


def routes() -> list[BaseRoute]:
    return [
        Route("/api/stream", stream),
        Route("/api/crystals/stream", crystal_stream),
        Route("/api/export", export),
        WebSocketRoute("/api/gateway", gateway),
    ]


async def stream(request: Request) -> Response:
    """Events as they are stored, in commit order; `Last-Event-ID` goes on after that position."""
    try:
        asked = asked_of(StreamAsked, request)
        after = _last_id(request, asked.after)
    except msgspec.DecodeError as error:
        return answered(problem(400, str(error)))
    memory = await memory_of(request)
    return await _served(request, memory, asked.query(limit=None), after=after, fields=asked.chosen, wrap=_sent)


async def crystal_stream(request: Request) -> Response:
    """Crystals as they are made, in commit order; `Last-Event-ID` goes on after that position."""
    try:
        asked = asked_of(CrystalStreamAsked, request)
        after = _last_id(request, asked.after)
    except msgspec.DecodeError as error:
        return answered(problem(400, str(error)))
    memory = await memory_of(request)
    level = asked.level

    def wrap(event: Event, _: bytes) -> bytes:
        crystal = crystal_of(event)
        if level is not None and crystal.level != level:
            return f"id: {event.position}\n\n".encode()  # passed over; the position counts all the same
        return server_sent(msgspec.json.encode(crystal_document(crystal)), id=event.position or 0, event=CRYSTAL)

    # The fields only tell lines apart that are kept: these are of one level.
    kept: Fields = (f"crystal:{level}",)
    return await _served(request, memory, EventQuery(names=(CRYSTAL,)), after=after, fields=kept, wrap=wrap)


async def export(request: Request) -> Response:
    """Events as JSON, one a line, in commit order: what `mica events import` takes."""
    try:
        asked = asked_of(ExportAsked, request)
    except msgspec.DecodeError as error:
        return answered(problem(400, str(error)))
    memory, fields = await memory_of(request), asked.chosen
    log = memory.log(asked.query(limit=None), after=asked.after, with_ancestors=asked.with_ancestors)
    first = await anext(log, None)  # what is wrong shows before the answer begins

    async def lines() -> AsyncIterator[bytes]:
        async with aclosing(log):
            if first is not None:
                yield event_line(first, fields) + b"\n"
            async for event in log:
                yield event_line(event, fields) + b"\n"

    return StreamingResponse(lines(), media_type=LINES)


async def _served(
    request: Request,
    memory: Memory,
    query: EventQuery,
    *,
    after: int | None,
    fields: Fields,
    wrap: Wrap,
) -> Response:
    if request.method == "HEAD":
        return Response(media_type=EVENTS)  # nobody reads what would go on for ever
    tails: Tails = request.app.state.tails
    tail = tails.of(memory)
    begin = await tail.begin(after)

    async def lines() -> AsyncIterator[bytes]:
        # The first line tells where it begins: whoever loses the connection before any event goes on from there.
        yield f"retry: {RETRY_MS}\nid: {begin}\n: mica\n\n".encode()
        async with aclosing(tail.lines(query, after=begin, fields=fields, wrap=wrap)) as sent:
            with suppress(MicaError):  # the space was closed: the client connects again
                async for reached, text in sent:
                    yield text or b"id: %d\n%b" % (reached, QUIET)

    return StreamingResponse(lines(), media_type=EVENTS, headers={"x-accel-buffering": "no"})


def _sent(event: Event, line: bytes) -> bytes:
    return server_sent(line, id=event.position or 0)


def _last_id(request: Request, after: int | None) -> int | None:
    """Where to go on: what a browser that lost its connection says counts more than where it began."""
    last = request.headers.get(LAST_ID)
    if last is None:
        return after
    try:
        return msgspec.convert(last, Position, strict=False)
    except msgspec.ValidationError as error:
        raise msgspec.ValidationError(f"{error} - in the header `Last-Event-ID`: send the `id` of an event") from error


# -- The WebSocket gateway ----------------------------------------------------------------------------------------


class Subscribe(StreamAsked, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="subscribe", tag_field="do"):
    """Send events that fit, under a name, until it is unsubscribed."""

    id: Annotated[str, msgspec.Meta(min_length=1, max_length=100)]


class Unsubscribe(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="unsubscribe", tag_field="do"):
    id: str


class Query(Which, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="query", tag_field="do"):
    """The latest events that fit."""

    id: str
    limit: Annotated[int, msgspec.Meta(ge=0, le=1_000)] = 20


class Resolve(ResolveAsked, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="resolve", tag_field="do"):
    """Up to 100 events by id or position."""

    id: str


class Stats(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="stats", tag_field="do"):
    id: str


Said = Subscribe | Unsubscribe | Query | Resolve | Stats
_said = msgspec.json.Decoder(Said)


async def gateway(socket: WebSocket) -> None:
    """Events over a WebSocket: subscribe, query, resolve and stats, each with a bundle or a list of fields."""
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
                    said = await self._socket.receive_text()
                    await self._answer(said, group)
            except (WebSocketDisconnect, KeyError):  # gone, or bytes in place of text
                pass
            finally:
                for task in self._subscribed.values():
                    task.cancel()
        with suppress(RuntimeError):  # closed by the other side already
            await self._socket.close()

    async def _answer(self, text: str, group: asyncio.TaskGroup) -> None:
        identifier: str | None = None
        try:
            said = _said.decode(text)
            identifier = said.id
            match said:
                case Subscribe():
                    await self._subscribe(said, group)
                case Unsubscribe():
                    if (task := self._subscribed.pop(said.id, None)) is not None:
                        task.cancel()
                    await self._send({"id": said.id, "unsubscribed": task is not None})
                case Query():
                    found = await self._memory.events(said.query(limit=said.limit))
                    await self._send({"id": said.id, "events": [event_document(each, said.chosen) for each in found]})
                case Resolve():
                    told = await self._memory.resolve(said.references)
                    documents = [event_document(each, said.chosen) for each in told.found]
                    await self._send({"id": said.id, "found": documents, "missing": told.missing})
                case Stats():
                    sizes = await self._memory.sizes()
                    await self._send({"id": said.id, "sizes": sizes, "position": await self._memory.position()})
        except msgspec.DecodeError as error:
            await self._problem(identifier, problem(400, str(error)))
        except MicaError as error:
            await self._problem(identifier, of_error(error))

    async def _subscribe(self, said: Subscribe, group: asyncio.TaskGroup) -> None:
        if said.id in self._subscribed:
            raise InvalidInput(f"{said.id!r} is subscribed already; unsubscribe it first")
        if len(self._subscribed) >= SUBSCRIPTIONS_MAX:
            raise InvalidInput(f"{SUBSCRIPTIONS_MAX} subscriptions are possible on one connection")
        fields = said.chosen
        begin = await self._tail.begin(said.after)
        await self._send({"id": said.id, "subscribed": True, "position": begin})
        self._subscribed[said.id] = group.create_task(self._follow(said, begin, fields))

    async def _follow(self, said: Subscribe, begin: int, fields: Fields) -> None:
        with suppress(MicaError, WebSocketDisconnect, RuntimeError):  # closed on either side
            async with aclosing(self._tail.batches(said.query(limit=None), after=begin)) as batches:
                async for _, events in batches:
                    for event in events:
                        told = {"id": said.id, "position": event.position, "event": event_document(event, fields)}
                        await self._send(told)

    async def _problem(self, identifier: str | None, told: Problem) -> None:
        await self._send({"id": identifier, "problem": told})

    async def _send(self, told: object) -> None:
        await self._socket.send_text(msgspec.json.encode(told).decode())

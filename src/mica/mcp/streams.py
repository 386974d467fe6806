"""Message streams over HTTP: the latest messages are buffered, so that a disconnected client can resume."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Mapping
from contextlib import suppress

import msgspec
from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from mica.format.documents import EVENTS, QUIET, server_sent

BUFFERED_MAX = 1_000  # messages of one stream; a client that missed more starts again
QUIET_S = 15.0  # before a comment is sent; proxies close a silent connection after a minute
HEADERS = {"Cache-Control": "no-cache, no-transform", "X-Accel-Buffering": "no"}


class Stream:
    """The messages that belong to one request, or those of a session that belong to no request.

    The latest BUFFERED_MAX messages are buffered, so that a client that was disconnected can resume.
    """

    def __init__(self, name: str = "") -> None:
        self.name = name  # without a name it cannot be resumed
        self.is_read = False
        self._buffer: deque[tuple[int, Mapping[str, object]]] = deque(maxlen=BUFFERED_MAX)
        self._count = 0
        self._is_over = False
        self._news = asyncio.Event()

    @property
    def is_over(self) -> bool:
        return self._is_over

    def put(self, message: Mapping[str, object]) -> None:
        self._count += 1
        self._buffer.append((self._count, message))
        self._notify()

    def end(self) -> None:
        self._is_over = True
        self._notify()

    def _notify(self) -> None:
        waited, self._news = self._news, asyncio.Event()
        waited.set()

    async def read(self, after: int = 0) -> AsyncIterator[tuple[int, Mapping[str, object] | None]]:
        """Yield each message with a number above `after` as it arrives, until the stream ends.

        The results are pairs of number and message. If no message arrives for QUIET_S, the result is the number of the
        last message and None.
        """
        while True:
            news = self._news
            for number, message in tuple(self._buffer):
                if number > after:
                    after = number
                    yield number, message
            if self._is_over and after >= self._count:
                return
            if news is self._news:
                try:
                    async with asyncio.timeout(QUIET_S):
                        await news.wait()
                except TimeoutError:
                    yield after, None

    async def first(self) -> Mapping[str, object] | None:
        """Return the first message, or None if the stream ends without one."""
        async for _, message in self.read():
            if message is not None:
                return message
        return None

    async def events(self, after: int = 0, *, primed: bool = False) -> AsyncIterator[bytes]:
        """Yield the messages with a number above `after` as server-sent events, with ids for resuming.

        With `primed`, begin with an empty event.
        """
        self.is_read = True
        try:
            if primed:
                yield server_sent(b"", id=self.id_of(after))
            async for number, message in self.read(after):
                if message is None:
                    yield QUIET
                    continue
                name = self.id_of(number) if self.name else None
                yield server_sent(msgspec.json.encode(message), event="message", id=name)
        finally:
            self.is_read = False

    def id_of(self, number: int) -> str:
        return f"{self.name}/{number}"


def event_stream(events: AsyncIterator[bytes], headers: Mapping[str, str] | None = None) -> StreamingResponse:
    """Return an HTTP response that streams server-sent events."""
    return StreamingResponse(events, media_type=EVENTS, headers={**HEADERS, **(headers or {})})


class McpResponse(Response):
    """The HTTP response to an MCP request: a JSON document, or an event stream if notifications precede the answer.

    `task` is the task that puts the answer into `stream`. With `ends_with_client`, it is cancelled when the client
    disconnects. `statuses` maps codes of JSON-RPC errors to HTTP status codes; any other answer has the status 200.
    """

    def __init__(
        self,
        stream: Stream,
        task: asyncio.Task[None],
        *,
        statuses: Mapping[int, int],
        headers: Mapping[str, str],
        ends_with_client: bool,
        primed: bool = False,
    ) -> None:
        self.stream = stream
        self.task = task
        self._statuses = statuses
        self._extra_headers = dict(headers)
        self._ends_with_client = ends_with_client
        self._primed = primed

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            first = await self._first(receive)
            if first is not None and "method" not in first:
                error = first.get("error")
                status = self._statuses.get(error["code"], 200) if isinstance(error, dict) else 200
                body = msgspec.json.encode(first)
                plain = Response(body, status_code=status, media_type="application/json", headers=self._extra_headers)
                await plain(scope, receive, send)
            elif first is not None:
                await event_stream(self.stream.events(primed=self._primed), self._extra_headers)(scope, receive, send)
            else:  # cancelled, or the client has disconnected
                await Response(status_code=202, headers=self._extra_headers)(scope, receive, send)
        finally:
            if self._ends_with_client:
                self.task.cancel()

    async def _first(self, receive: Receive) -> Mapping[str, object] | None:
        """Return the first message of the stream, or None if the stream or the connection ends without one."""
        disconnected = asyncio.create_task(_disconnected(receive))
        first = asyncio.create_task(self.stream.first())
        try:
            await asyncio.wait([disconnected, first], return_when=asyncio.FIRST_COMPLETED)
            return first.result() if first.done() else None
        finally:
            for task in (disconnected, first):
                task.cancel()
                with suppress(asyncio.CancelledError):
                    await task


async def _disconnected(receive: Receive) -> None:
    """Wait until the client closes the connection."""
    while (await receive())["type"] != "http.disconnect":
        pass

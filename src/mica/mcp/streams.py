"""What is sent to a client over HTTP: messages in order, kept for a while so that one who was cut off can read on."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Mapping
from contextlib import suppress

import msgspec
from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from mica.format.documents import EVENTS, QUIET, server_sent

KEPT_MAX = 1_000  # messages of one stream; who was cut off for longer begins anew
QUIET_S = 15.0  # of silence; proxies close a silent connection after a minute
HEADERS = {"Cache-Control": "no-cache, no-transform", "X-Accel-Buffering": "no"}


class Stream:
    """Messages for one request, or for a client that asked for nothing in particular."""

    def __init__(self, name: str = "") -> None:
        self.name = name  # without one, nobody can read on
        self.is_read = False
        self._kept: deque[tuple[int, Mapping[str, object]]] = deque(maxlen=KEPT_MAX)
        self._count = 0
        self._is_over = False
        self._news = asyncio.Event()

    @property
    def is_over(self) -> bool:
        return self._is_over

    def put(self, message: Mapping[str, object]) -> None:
        self._count += 1
        self._kept.append((self._count, message))
        self._ring()

    def end(self) -> None:
        self._is_over = True
        self._ring()

    def _ring(self) -> None:
        rung, self._news = self._news, asyncio.Event()
        rung.set()

    async def read(self, after: int = 0) -> AsyncIterator[tuple[int, Mapping[str, object] | None]]:
        """The messages after this number, as they come, until nothing more will; None where it was quiet a while."""
        while True:
            news = self._news
            for number, message in tuple(self._kept):
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
        """The first message; None when the stream ends without any."""
        async for _, message in self.read():
            if message is not None:
                return message
        return None

    async def events(self, after: int = 0, *, primed: bool = False) -> AsyncIterator[bytes]:
        """The same as server-sent events, with ids by which a client can read on."""
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


def streamed(events: AsyncIterator[bytes], headers: Mapping[str, str] | None = None) -> StreamingResponse:
    """A response that goes on for as long as there are events."""
    return StreamingResponse(events, media_type=EVENTS, headers={**HEADERS, **(headers or {})})


class Answer(Response):
    """What a request is answered with: one JSON document, or a stream where something is told before the answer."""

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
        self._named = dict(headers)
        self._ends_with_client = ends_with_client
        self._primed = primed

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            first = await self._first(receive)
            if first is not None and "method" not in first:
                error = first.get("error")
                status = self._statuses.get(error["code"], 200) if isinstance(error, dict) else 200
                body = msgspec.json.encode(first)
                plain = Response(body, status_code=status, media_type="application/json", headers=self._named)
                await plain(scope, receive, send)
            elif first is not None:
                await streamed(self.stream.events(primed=self._primed), self._named)(scope, receive, send)
            else:  # cancelled, or the client is gone: there is nothing to say, and perhaps nobody to hear it
                await Response(status_code=202, headers=self._named)(scope, receive, send)
        finally:
            if self._ends_with_client:
                self.task.cancel()

    async def _first(self, receive: Receive) -> Mapping[str, object] | None:
        """The first message; None when there will be none, or nobody waits for it any more."""
        gone = asyncio.create_task(_gone(receive))
        first = asyncio.create_task(self.stream.first())
        try:
            await asyncio.wait([gone, first], return_when=asyncio.FIRST_COMPLETED)
            return first.result() if first.done() else None
        finally:
            for task in (gone, first):
                task.cancel()
                with suppress(asyncio.CancelledError):
                    await task


async def _gone(receive: Receive) -> None:
    """Returns when the client has closed the connection."""
    while (await receive())["type"] != "http.disconnect":
        pass

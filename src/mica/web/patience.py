"""How long a connection may take to say what it wants: who sends a request drop by drop is cut off."""

from __future__ import annotations

import asyncio

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

HEADERS_S = 10.0  # from a connection, or from the first byte of a request, to the end of its headers
HEADERS_BYTES_MAX = 65_536  # of one request; the browsers' own limit is half of it


class PatientProtocol(HttpToolsProtocol):
    """uvicorn's protocol with limits on the time and size of headers; bodies have theirs in `mica.web.access`."""

    headers_s = HEADERS_S
    _cutting: asyncio.TimerHandle | None = None  # set while headers are awaited
    _bytes = 0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as in uvicorn
        super().connection_made(transport)
        self._wait()

    def connection_lost(self, exc: Exception | None) -> None:
        self._enough()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self._cutting is None and self.cycle is not None and self.cycle.response_complete:
            self._wait()  # something came that is no request yet
        if self._cutting is not None:
            self._bytes += len(data)
            if self._bytes > HEADERS_BYTES_MAX:
                self._cut()

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._wait()

    def on_headers_complete(self) -> None:
        self._enough()
        super().on_headers_complete()

    def _wait(self) -> None:
        self._enough()
        self._cutting = self.loop.call_later(self.headers_s, self._cut)

    def _enough(self) -> None:
        self._bytes = 0
        if self._cutting is not None:
            self._cutting.cancel()
            self._cutting = None

    def _cut(self) -> None:
        self._enough()
        if not self.transport.is_closing():
            self.logger.warning("cut off a connection that did not finish its request")
            self.transport.abort()

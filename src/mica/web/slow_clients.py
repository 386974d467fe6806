"""How long a connection may take to say what it wants: who sends a request drop by drop is cut off."""

from __future__ import annotations

import asyncio

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

HEADERS_S = 10.0  # from a connection, or from the first byte of a request, to the end of its headers


class PatientProtocol(H11Protocol):
    """uvicorn's protocol with a limit on the time that headers take; bodies have theirs in `mica.web.access`."""

    headers_s = HEADERS_S
    _cutting: asyncio.TimerHandle | None = None  # set while the headers of a request are awaited

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as in uvicorn
        super().connection_made(transport)
        self._wait()

    def connection_lost(self, exc: Exception | None) -> None:
        self._enough()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self.conn.their_state is h11.IDLE:
            self._wait()
        else:
            self._enough()

    def _wait(self) -> None:
        if self._cutting is None:
            self._cutting = self.loop.call_later(self.headers_s, self._cut)

    def _enough(self) -> None:
        if self._cutting is not None:
            self._cutting.cancel()
            self._cutting = None

    def _cut(self) -> None:
        self._cutting = None
        if self.conn.their_state is h11.IDLE and not self.transport.is_closing():
            self.logger.warning("cut off a connection that did not finish its request within %.0f s", self.headers_s)
            self.transport.abort()

"""An HTTP server on loopback, which tests give a class of answers: real sockets, no network."""

from __future__ import annotations

import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Self


class LocalServer:
    """Listens on a free port from the moment it is made, and answers between `with` and its end."""

    def __init__(self, answering: type[BaseHTTPRequestHandler]) -> None:
        self._server = _Patient(("127.0.0.1", 0), answering)
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)

    @property
    def port(self) -> int:
        return int(self._server.server_address[1])

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class Answering(BaseHTTPRequestHandler):
    """One connection, which says nothing of what goes on; subclasses answer."""

    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: object) -> None:
        """Stay quiet: what a test wants to know, its server keeps."""


class _Patient(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: object, client_address: object) -> None:
        if not isinstance(sys.exception(), OSError):  # else the client has left, which is its own business
            super().handle_error(request, client_address)  # type: ignore[arg-type]  # handed through

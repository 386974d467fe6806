"""A JSON-RPC client that talks to an MCP server over standard input and output, as coding agents do, for tests."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

END_S = 60  # timeout for the exit of a server; generous for a busy machine, since it normally takes a fraction of it

Message = dict[str, Any]


class StdioClient:
    """Starts a server process and exchanges lines of JSON with it."""

    def __init__(self, words: Sequence[str], *, environment: Mapping[str, str], directory: Path) -> None:
        self.process = subprocess.Popen(
            list(words),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=dict(environment),
            cwd=directory,
        )
        self._count = 0

    def send(self, message: Message | bytes) -> None:
        """Send a message as one line; bytes are sent as they are."""
        assert self.process.stdin is not None
        line = message if isinstance(message, bytes) else msgspec.json.encode(message)
        self.process.stdin.write(line + b"\n")
        self.process.stdin.flush()

    def receive(self) -> Message:
        """Wait for the next message of the server. Fails if the server has ended, with its standard error."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, f"the server has ended: {self.process.stderr and self.process.stderr.read().decode()}"
        return msgspec.json.decode(line, type=dict[str, Any])

    def request(self, method: str, **params: object) -> Message:
        """Send a request and return its response. The response must be the next message of the server."""
        self._count += 1
        self.send({"jsonrpc": "2.0", "id": self._count, "method": method, "params": params})
        answer = self.receive()
        assert answer["id"] == self._count, answer
        return answer

    def initialize(self, **capabilities: object) -> Message:
        """Perform the MCP handshake with these client capabilities, and return the server's response."""
        about = {"name": "claude-code", "version": "2.1.325"}
        answer = self.request("initialize", protocolVersion="2025-11-25", capabilities=capabilities, clientInfo=about)
        self.send({"jsonrpc": "2.0", "method": "notifications/initialized"})
        return answer

    def call(self, name: str, **arguments: object) -> Message:
        """Call a tool and return its result."""
        result: Message = self.request("tools/call", name=name, arguments=arguments)["result"]
        return result

    def leave(self) -> tuple[int, str]:
        """Close the server's input and wait for its exit. Returns its exit code and standard error.

        Fails if the server has sent a message that was not received.
        """
        rest, errors = self.process.communicate(timeout=END_S)
        assert rest == b"", rest
        return self.process.returncode, errors.decode()

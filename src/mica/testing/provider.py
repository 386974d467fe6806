"""A scripted model provider on loopback that speaks the HTTP protocols of OpenAI and Anthropic.

With it, a test covers the whole path to a hosted model, including the provider's client library, without a network:

    with ScriptedProvider(Turn("Hello")) as provider:
        settings.models.providers["openai-chat"].base_url = provider.address + "/v1"
"""

from __future__ import annotations

import json
import sys
import threading
from collections import deque
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self

import msgspec

INPUT_TOKENS = 1_000  # every answer reports the same usage, so that sums can be checked by hand
OUTPUT_TOKENS = 50


class LocalServer:
    """An HTTP server on a free loopback port. Requests are answered inside its `with` block."""

    def __init__(self, connection: type[BaseHTTPRequestHandler]) -> None:
        self._server = _QuietServer(("127.0.0.1", 0), connection)
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


class QuietConnection(BaseHTTPRequestHandler):
    """Base class of request handlers that log nothing. Subclasses answer the requests."""

    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: object) -> None:
        """Log nothing, instead of a line for each request."""


class _QuietServer(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: object, client_address: object) -> None:
        if not isinstance(sys.exception(), OSError):  # an OSError means that the client has disconnected
            super().handle_error(request, client_address)  # type: ignore[arg-type]  # passed on


class Turn(msgspec.Struct, frozen=True):
    """One answer of the provider: a text, an error, or a connection that breaks."""

    text: str = "Done."
    status: int = 200
    headers: dict[str, str] = {}
    body: dict[str, Any] | None = None  # the body of an error
    breaks_after: int | None = None  # cut the connection after this number of chunks of a streamed text
    waits: threading.Event | None = None  # wait for this event before answering
    finish: str = "stop"  # the reason for the end of the answer
    counts: bool = True  # report the token usage in the answer


class ScriptedProvider(LocalServer):
    """A model provider that answers each request with the next turn of a script.

    A text in the script means a `Turn` with this text. After the last turn, requests fail with status 500.
    `requests` holds the path, headers and body of each request.
    """

    def __init__(self, *turns: Turn | str) -> None:
        self.requests: list[tuple[str, dict[str, str], dict[str, Any]]] = []
        self._turns = deque(Turn(turn) if isinstance(turn, str) else turn for turn in turns)
        self._lock = threading.Lock()
        provider = self

        class Conversation(ProviderConnection):
            def take(self, headers: dict[str, str], body: dict[str, Any]) -> Turn:
                with provider._lock:
                    provider.requests.append((self.path, headers, body))
                    if provider._turns:
                        return provider._turns.popleft()
                    return Turn(status=500, body={"error": {"message": "the script has ended"}})

        super().__init__(Conversation)


class ProviderConnection(QuietConnection):
    """Answers requests with the turns that `take` returns, in the protocol of the path that was requested."""

    def take(self, headers: dict[str, str], body: dict[str, Any]) -> Turn:
        """Record a request, and return the turn that answers it."""
        raise NotImplementedError

    def do_POST(self) -> None:
        length = int(self.headers.get("content-length") or 0)
        body = json.loads(self.rfile.read(length) or b"{}")
        turn = self.take({name.lower(): value for name, value in self.headers.items()}, body)
        if turn.waits is not None:
            turn.waits.wait(30)
        try:
            if turn.status != 200:
                self._send(turn.body or {"error": {"message": turn.text, "type": "scripted"}}, turn)
            elif self.path.endswith("/messages"):
                self._messages(turn, body)
            elif self.path.endswith("/responses"):
                self._responses(turn, body)
            else:
                self._completions(turn, body)
        except OSError:
            self.close_connection = True  # the client has disconnected

    # -- Chat completions -----------------------------------------------------------------------------------------

    def _completions(self, turn: Turn, body: dict[str, Any]) -> None:
        head = {"id": "chatcmpl-1", "created": 1, "model": body["model"]}
        counted = {"prompt_tokens": INPUT_TOKENS, "completion_tokens": OUTPUT_TOKENS, "total_tokens": 1_050}
        usage = {"usage": counted} if turn.counts else {}
        if not body.get("stream"):
            message = {"role": "assistant", "content": turn.text}
            choice = {"index": 0, "message": message, "finish_reason": turn.finish}
            self._send({**head, "object": "chat.completion", "choices": [choice], **usage}, turn)
            return
        chunk = {**head, "object": "chat.completion.chunk"}
        events: list[tuple[str | None, object]] = [
            (None, {**chunk, "choices": [{"index": 0, "delta": {"content": piece}, "finish_reason": None}]})
            for piece in _pieces(turn.text)
        ]
        events.append((None, {**chunk, "choices": [{"index": 0, "delta": {}, "finish_reason": turn.finish}], **usage}))
        self._stream([*events, (None, "[DONE]")], turn)

    # -- Responses ------------------------------------------------------------------------------------------------

    def _responses(self, turn: Turn, body: dict[str, Any]) -> None:
        content = {"type": "output_text", "text": turn.text, "annotations": []}
        line = {"id": "msg_1", "type": "message", "role": "assistant", "status": "completed", "content": [content]}
        usage = {
            "input_tokens": INPUT_TOKENS,
            "input_tokens_details": {"cached_tokens": 0},
            "output_tokens": OUTPUT_TOKENS,
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": 1_050,
        }
        response = {
            "id": "resp_1",
            "object": "response",
            "created_at": 1,
            "model": body["model"],
            "status": "completed",
            "output": [line],
            "usage": usage,
            "parallel_tool_calls": True,
            "tool_choice": "auto",
            "tools": [],
        }
        if not body.get("stream"):
            self._send(response, turn)
            return
        begun = {**response, "status": "in_progress", "output": [], "usage": None}
        place = {"item_id": "msg_1", "output_index": 0, "content_index": 0}
        pieces = [("response.output_text.delta", {**place, "delta": piece}) for piece in _pieces(turn.text)]
        events: list[tuple[str, dict[str, Any]]] = [
            ("response.created", {"response": begun}),
            ("response.output_item.added", {"output_index": 0, "item": {**line, "content": []}}),
            ("response.content_part.added", {**place, "part": {**content, "text": ""}}),
            *pieces,
            ("response.output_item.done", {"output_index": 0, "item": line}),
            ("response.completed", {"response": response}),
        ]
        self._stream(
            [(name, {"type": name, "sequence_number": n, **more}) for n, (name, more) in enumerate(events)], turn
        )

    # -- Messages -------------------------------------------------------------------------------------------------

    def _messages(self, turn: Turn, body: dict[str, Any]) -> None:
        usage = {"input_tokens": INPUT_TOKENS, "output_tokens": OUTPUT_TOKENS}
        reason = {"stop": "end_turn", "length": "max_tokens"}[turn.finish]
        message = {"id": "msg_1", "type": "message", "role": "assistant", "model": body["model"], "stop_sequence": None}
        if not body.get("stream"):
            content = [{"type": "text", "text": turn.text}]
            self._send({**message, "content": content, "stop_reason": reason, "usage": usage}, turn)
            return
        begun = {**message, "content": [], "stop_reason": None, "usage": {**usage, "output_tokens": 1}}
        events: list[tuple[str, dict[str, Any]]] = [
            ("message_start", {"message": begun}),
            ("content_block_start", {"index": 0, "content_block": {"type": "text", "text": ""}}),
            *(
                ("content_block_delta", {"index": 0, "delta": {"type": "text_delta", "text": piece}})
                for piece in _pieces(turn.text)
            ),
            ("content_block_stop", {"index": 0}),
            ("message_delta", {"delta": {"stop_reason": reason, "stop_sequence": None}, "usage": usage}),
            ("message_stop", {}),
        ]
        self._stream([(name, {"type": name, **more}) for name, more in events], turn)

    # -- The wire -------------------------------------------------------------------------------------------------

    def _send(self, value: object, turn: Turn) -> None:
        payload = json.dumps(value).encode()
        self.send_response(turn.status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(payload)))
        for name, header in turn.headers.items():
            self.send_header(name, header)
        self.end_headers()
        self.wfile.write(payload)

    def _stream(self, events: list[tuple[str | None, Any]], turn: Turn) -> None:
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("transfer-encoding", "chunked")
        self.end_headers()
        texts = 0
        for name, value in events:
            line = json.dumps(value) if not isinstance(value, str) else value
            texts += "delta" in line and ("content" in line or "text" in line)
            if turn.breaks_after is not None and texts > turn.breaks_after:
                self.close_connection = True  # without the last chunk: the client sees a cut connection
                return
            event = (f"event: {name}\n" if name else "") + f"data: {line}\n\n"
            self.wfile.write(f"{len(event.encode()):x}\r\n{event}\r\n".encode())
            self.wfile.flush()
        self.wfile.write(b"0\r\n\r\n")


def _pieces(text: str) -> list[str]:
    words = text.split(" ")
    return [word + " " for word in words[:-1]] + words[-1:]

"""A model provider on loopback: speaks the protocols of OpenAI and Anthropic over real HTTP, from a script.

With it a test runs the whole path of a hosted model, the provider's own library included, without a network:

    with ScriptedProvider(Turn("Hello")) as provider:
        settings.models.providers["openai-chat"].base_url = provider.address + "/v1"
"""

from __future__ import annotations

import json
import threading
from collections import deque
from typing import Any

import msgspec

from mica.testing.local_server import Answering, LocalServer

INPUT_TOKENS = 1_000  # every answer reports the same usage, so that sums can be checked by hand
OUTPUT_TOKENS = 50


class Turn(msgspec.Struct, frozen=True):
    """One answer: a text, or what a provider does instead."""

    text: str = "Done."
    status: int = 200
    headers: dict[str, str] = {}
    body: dict[str, Any] | None = None  # of an error
    breaks_after: int | None = None  # pieces of a stream; then the connection is cut
    waits: threading.Event | None = None  # the answer comes when this is set
    finish: str = "stop"
    counts: bool = True  # whether the usage is told


class ScriptedProvider(LocalServer):
    """A server that answers one turn for each request, in order. `requests` holds path, headers and body of each."""

    def __init__(self, *turns: Turn | str) -> None:
        self.requests: list[tuple[str, dict[str, str], dict[str, Any]]] = []
        self._turns = deque(Turn(turn) if isinstance(turn, str) else turn for turn in turns)
        self._lock = threading.Lock()
        provider = self

        class Conversation(_Conversation):
            def take(self, headers: dict[str, str], body: dict[str, Any]) -> Turn:
                with provider._lock:
                    provider.requests.append((self.path, headers, body))
                    if provider._turns:
                        return provider._turns.popleft()
                    return Turn(status=500, body={"error": {"message": "the script has ended"}})

        super().__init__(Conversation)


class _Conversation(Answering):
    """One connection."""

    def take(self, headers: dict[str, str], body: dict[str, Any]) -> Turn:
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
            self.close_connection = True  # whoever asked has gone

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
        said = {"id": "msg_1", "type": "message", "role": "assistant", "status": "completed", "content": [content]}
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
            "output": [said],
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
        told: list[tuple[str, dict[str, Any]]] = [
            ("response.created", {"response": begun}),
            ("response.output_item.added", {"output_index": 0, "item": {**said, "content": []}}),
            ("response.content_part.added", {**place, "part": {**content, "text": ""}}),
            *pieces,
            ("response.output_item.done", {"output_index": 0, "item": said}),
            ("response.completed", {"response": response}),
        ]
        self._stream(
            [(name, {"type": name, "sequence_number": n, **more}) for n, (name, more) in enumerate(told)], turn
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
        told: list[tuple[str, dict[str, Any]]] = [
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
        self._stream([(name, {"type": name, **more}) for name, more in told], turn)

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
            said = json.dumps(value) if not isinstance(value, str) else value
            texts += "delta" in said and ("content" in said or "text" in said)
            if turn.breaks_after is not None and texts > turn.breaks_after:
                self.close_connection = True  # without the last chunk: the client sees a cut connection
                return
            event = (f"event: {name}\n" if name else "") + f"data: {said}\n\n"
            self.wfile.write(f"{len(event.encode()):x}\r\n{event}\r\n".encode())
            self.wfile.flush()
        self.wfile.write(b"0\r\n\r\n")


def _pieces(text: str) -> list[str]:
    """The text word by word."""
    words = text.split(" ")
    return [word + " " for word in words[:-1]] + words[-1:]

"""A scripted model for real coding agents: the APIs of Anthropic, OpenAI and Google on loopback, with tool calls.

With it, an unmodified coding agent runs a whole session without a model, a login or a network: it reads files, runs
commands, and calls hooks and MCP servers. Each step of the script answers one request that offers tools. Other requests
(for titles or routing) are answered with "ok" and use no step. After the last step every answer is "Done."

    call = ScriptedCall("Read", {"file_path": "/srv/shop/src/auth.py"})
    with ScriptedModelServer([ScriptedStep("Let me look.", calls=[call])]) as models:
        environment["ANTHROPIC_BASE_URL"] = models.address
"""

from __future__ import annotations

import gzip
import json
import secrets
import threading
from collections.abc import Sequence
from typing import Any

import msgspec

from mica.testing.provider import LocalServer, QuietConnection

Body = dict[str, Any]
USAGE = {"input_tokens": 11, "cache_creation_input_tokens": 222, "cache_read_input_tokens": 3_333, "output_tokens": 44}


class ScriptedCall(msgspec.Struct, frozen=True):
    """A tool call that the scripted model makes."""

    name: str
    input: dict[str, object]
    namespace: str = ""  # of the tools of an MCP server, for clients that use namespaces


class ScriptedStep(msgspec.Struct, frozen=True):
    """One answer of the scripted model: a text, tool calls, or both."""

    text: str = ""
    calls: Sequence[ScriptedCall] = ()


class ScriptedModelServer(LocalServer):
    """A model server that answers each request that offers tools with the next step of a script.

    `requests` holds the bodies of these requests.
    """

    def __init__(self, steps: Sequence[ScriptedStep]) -> None:
        self.requests: list[Body] = []
        self._steps = list(steps)
        self._lock = threading.Lock()
        self._tag = secrets.token_hex(3)
        models = self

        class Conversation(LoopbackConnection):
            def take(self, body: Body) -> tuple[str, ScriptedStep]:
                return models._take(body)

        super().__init__(Conversation)

    def _take(self, body: Body) -> tuple[str, ScriptedStep]:
        with self._lock:
            if not body.get("tools"):
                return f"{self._tag}x{secrets.token_hex(3)}", ScriptedStep("ok")
            self.requests.append(body)
            number = len(self.requests)
            return f"{self._tag}{number:03}", self._steps[number - 1] if number <= len(self._steps) else ScriptedStep(
                "Done."
            )


class LoopbackConnection(QuietConnection):
    """Answers requests with the steps that `take` returns, in the protocol of the path that was requested."""

    def take(self, body: Body) -> tuple[str, ScriptedStep]:
        """Return a tag for the ids in the response, and the step that answers the request with this body."""
        raise NotImplementedError

    def do_HEAD(self) -> None:
        self._send({})

    def do_GET(self) -> None:
        is_list = self.path.rstrip("/").endswith("/models")
        self._send(
            {"object": "list", "data": [{"id": "mock-model", "object": "model"}], "models": []} if is_list else {}
        )

    def do_POST(self) -> None:
        raw = self.rfile.read(int(self.headers.get("content-length") or 0))
        raw = gzip.decompress(raw) if self.headers.get("content-encoding") == "gzip" else raw
        body = json.loads(raw or b"{}")
        if "count_tokens" in self.path or "countTokens" in self.path:
            self._send({"input_tokens": 1_234, "totalTokens": 1_234})
        elif self.path.startswith("/v1/messages"):
            self._messages(body, *self.take(body))
        elif "chat/completions" in self.path:
            self._chat(body, *self.take(body))
        elif "responses" in self.path:
            self._responses(body, *self.take(body))
        elif "enerateContent" in self.path:
            self._generated(body, self.take(body)[1])
        else:
            self._send({})

    # -- Anthropic ------------------------------------------------------------------------------------------------

    def _messages(self, body: Body, tag: str, step: ScriptedStep) -> None:
        blocks: list[Body] = [{"type": "text", "text": step.text}] if step.text else []
        for number, call in enumerate(step.calls):
            blocks.append({"type": "tool_use", "id": f"toolu_{tag}{number}", "name": call.name, "input": call.input})
        reason = "tool_use" if step.calls else "end_turn"
        message = {
            "id": f"msg_{tag}",
            "type": "message",
            "role": "assistant",
            "model": body.get("model"),
            "usage": USAGE,
        }
        if not body.get("stream"):
            self._send({**message, "content": blocks, "stop_reason": reason, "stop_sequence": None})
            return
        self._stream()
        self._event("message_start", message={**message, "content": [], "stop_reason": None, "stop_sequence": None})
        for index, block in enumerate(blocks):
            if block["type"] == "text":
                start, delta = {**block, "text": ""}, {"type": "text_delta", "text": block["text"]}
            else:
                start = {**block, "input": {}}
                delta = {"type": "input_json_delta", "partial_json": json.dumps(block["input"])}
            self._event("content_block_start", index=index, content_block=start)
            self._event("content_block_delta", index=index, delta=delta)
            self._event("content_block_stop", index=index)
        end = {"stop_reason": reason, "stop_sequence": None}
        self._event("message_delta", delta=end, usage={"output_tokens": USAGE["output_tokens"]})
        self._event("message_stop")

    # -- OpenAI ---------------------------------------------------------------------------------------------------

    def _responses(self, body: Body, tag: str, step: ScriptedStep) -> None:
        content = {"type": "output_text", "text": step.text}
        output: list[Body] = []
        if step.text:
            output.append({"type": "message", "role": "assistant", "id": f"msg_{tag}", "content": [content]})
        for number, call in enumerate(step.calls):
            named = {"call_id": f"call_{tag}{number}", "id": f"fc_{tag}{number}", "name": call.name}
            if call.namespace:
                named["namespace"] = call.namespace
            output.append({"type": "function_call", **named, "arguments": json.dumps(call.input)})
        usage = {
            "input_tokens": 1_000,
            "input_tokens_details": {"cached_tokens": 800},
            "output_tokens": 50,
            "output_tokens_details": {"reasoning_tokens": 10},
            "total_tokens": 1_050,
        }
        if not body.get("stream"):
            self._send({"id": f"resp_{tag}", "object": "response", "output": output, "usage": usage})
            return
        self._stream()
        self._event("response.created", response={"id": f"resp_{tag}"})
        for entry in output:
            self._event("response.output_item.done", item=entry)
        self._event("response.completed", response={"id": f"resp_{tag}", "usage": usage})

    def _chat(self, body: Body, tag: str, step: ScriptedStep) -> None:
        message: Body = {"role": "assistant", "content": step.text or None}
        if step.calls:
            message["tool_calls"] = [
                {
                    "index": number,
                    "id": f"call_{tag}{number}",
                    "type": "function",
                    "function": {"name": call.name, "arguments": json.dumps(call.input)},
                }
                for number, call in enumerate(step.calls)
            ]
        reason = "tool_calls" if step.calls else "stop"
        counted = {"prompt_tokens": 1_000, "completion_tokens": 50, "total_tokens": 1_050}
        usage = {**counted, "prompt_tokens_details": {"cached_tokens": 800}}
        head = {"id": f"chatcmpl-{tag}", "model": body.get("model")}
        if not body.get("stream"):
            choice = {"index": 0, "message": message, "finish_reason": reason}
            self._send({**head, "object": "chat.completion", "choices": [choice], "usage": usage})
            return
        self._stream()
        chunk = {**head, "object": "chat.completion.chunk"}
        self._data({**chunk, "choices": [{"index": 0, "delta": message, "finish_reason": None}]})
        self._data({**chunk, "choices": [{"index": 0, "delta": {}, "finish_reason": reason}], "usage": usage})
        self.wfile.write(b"data: [DONE]\n\n")

    # -- Google ---------------------------------------------------------------------------------------------------

    def _generated(self, body: Body, step: ScriptedStep) -> None:
        parts: list[Body] = [{"text": step.text if body.get("tools") else "{}"}] if step.text else []
        parts += [{"functionCall": {"name": call.name, "args": call.input}} for call in step.calls]
        usage = {"promptTokenCount": 1_000, "candidatesTokenCount": 50, "cachedContentTokenCount": 800}
        candidate = {"content": {"role": "model", "parts": parts}, "finishReason": "STOP", "index": 0}
        answer = {
            "candidates": [candidate],
            "usageMetadata": usage | {"totalTokenCount": 1_050},
            "modelVersion": "mock",
        }
        if "streamGenerateContent" in self.path:
            self._stream()
            self._data(answer)
        else:
            self._send(answer)

    # -- HTTP -----------------------------------------------------------------------------------------------------

    def _send(self, value: Body) -> None:
        payload = json.dumps(value).encode()
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(payload)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(payload)

    def _stream(self) -> None:
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("connection", "close")
        self.end_headers()
        self.close_connection = True

    def _event(self, kind: str, **fields: object) -> None:
        self.wfile.write(f"event: {kind}\n".encode())
        self._data({"type": kind, **fields})

    def _data(self, value: Body) -> None:
        self.wfile.write(f"data: {json.dumps(value)}\n\n".encode())
        self.wfile.flush()

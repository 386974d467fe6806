"""A model in this process: a GGUF file, run by xllamacpp. It needs no network and no registration."""

from __future__ import annotations

import asyncio
import secrets
import threading
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import msgspec

from mica.errors import ModelError, ModelRefused, ModelUnavailable, NoModel, PromptTooLong
from mica.llm.protocol import Capabilities, Finish, ModelUsage, Request
from mica.tokens import estimate

WINDOW_TOKENS = 8_192  # memory grows with the window; [models.known] sets a larger one
_FINISH: dict[str, Finish] = {"stop": "stop", "length": "length"}


class LocalModel:
    """A model from a GGUF file. Loading it takes about a second and is done at the first request."""

    def __init__(self, path: str | Path, *, threads: int = 1, window_tokens: int | None = None) -> None:
        self._path = Path(path).expanduser()
        self._threads = threads
        self._window_tokens = window_tokens or WINDOW_TOKENS
        self._server: Any = None
        self._loading = threading.Lock()
        self.name = f"local:{path}"

    def __repr__(self) -> str:
        return f"LocalModel({str(self._path)!r})"

    @property
    def capabilities(self) -> Capabilities:
        """The abilities of the model: JSON answers, but no images and no tools, which small models use unreliably."""
        return Capabilities(json=True, tools=False, images=False, window_tokens=self._window_tokens)

    def price(self, usage: ModelUsage) -> tuple[float, str] | None:
        """Return 0 dollars, because the model runs on the user's machine."""
        return 0.0, "local"

    async def pieces(self, request: Request, *, streamed: bool) -> AsyncGenerator[str | ModelUsage, None]:
        loop = asyncio.get_running_loop()
        arrived: asyncio.Queue[dict[str, Any] | BaseException | None] = asyncio.Queue()
        is_cancelled = threading.Event()

        def on_chunk(chunk: dict[str, Any]) -> bool:
            loop.call_soon_threadsafe(arrived.put_nowait, chunk)
            return is_cancelled.is_set()  # True stops the model

        def run() -> None:
            try:
                self._load().handle_chat_completions(self._body(request), on_chunk)
            except (ModelError, RuntimeError, ValueError, OSError) as error:
                loop.call_soon_threadsafe(arrived.put_nowait, error)
            else:
                loop.call_soon_threadsafe(arrived.put_nowait, None)

        running = loop.run_in_executor(None, run)
        text, usage, finish = "", None, "unknown"
        try:
            while (chunk := await arrived.get()) is not None:
                if isinstance(chunk, BaseException):
                    raise chunk if isinstance(chunk, ModelError) else self._failed(str(chunk)) from chunk
                if "error" in chunk:
                    raise self._refused(chunk["error"])
                usage = chunk.get("usage") or usage
                for choice in chunk.get("choices", ()):
                    finish = choice.get("finish_reason") or finish
                    if piece := choice.get("delta", {}).get("content"):
                        text += piece
                        yield piece
            await running
        finally:
            is_cancelled.set()
        counted = usage or {"prompt_tokens": request.input_tokens(), "completion_tokens": estimate(text)}
        yield ModelUsage(
            input_tokens=counted["prompt_tokens"],
            output_tokens=counted["completion_tokens"],
            is_estimated=usage is None,
            finish=_FINISH.get(finish, "unknown"),
        )

    async def close(self) -> None:
        """Free the memory that the weights take."""
        self._server = None

    def _body(self, request: Request) -> dict[str, Any]:
        messages = [{"role": message.role, "content": message.text} for message in request.messages]
        if request.system:
            messages.insert(0, {"role": "system", "content": request.system})
        body: dict[str, Any] = {
            "messages": messages,
            "max_tokens": request.output_tokens_max,
            "temperature": request.temperature or 0.0,
            "seed": 1,
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        if request.schema is not None:
            # A round trip: the library takes plain dicts and lists only.
            schema = msgspec.json.decode(msgspec.json.encode(request.schema))
            body["response_format"] = {"type": "json_schema", "json_schema": {"name": "answer", "schema": schema}}
        return body

    def _load(self) -> Any:  # noqa: ANN401 the library has no types
        with self._loading:
            if self._server is None:
                self._server = self._start_server()
            return self._server

    def _start_server(self) -> Any:  # noqa: ANN401
        try:
            import xllamacpp
        except ImportError as error:
            raise NoModel(self.name, f"{self.name} needs xllamacpp; install it with mica[local-llm]") from error
        if not self._path.is_file():
            raise NoModel(self.name, f"there are no weights at {self._path}; name a GGUF file in [models.tiers]")
        parameters = xllamacpp.CommonParams()
        parameters.model.path = str(self._path)
        parameters.n_ctx = self._window_tokens
        parameters.n_parallel = 1
        parameters.cpuparams.n_threads = parameters.cpuparams_batch.n_threads = self._threads
        parameters.verbosity = -1
        parameters.warmup = False
        # The library also listens on a loopback port, which mica does not use; a random key closes it to others.
        parameters.api_keys = [secrets.token_hex(16)]
        parameters.ui = False
        try:
            return xllamacpp.Server(parameters)
        except (RuntimeError, ValueError) as error:
            raise self._failed(f"{error}; is it a whole GGUF file?") from error

    def _failed(self, reason: str) -> ModelUnavailable:
        return ModelUnavailable(f"{self.name} does not run: {reason}", model=self.name)

    def _refused(self, error: dict[str, Any]) -> ModelError:
        if error.get("type") == "exceed_context_size_error":
            return PromptTooLong(self.name, tokens=error.get("n_prompt_tokens"), window_tokens=error.get("n_ctx"))
        message, status = f"{self.name} refuses: {error.get('message')}", error.get("code")
        if isinstance(status, int) and status >= 500:
            return ModelUnavailable(message, model=self.name)
        return ModelRefused(message, model=self.name, status=status)

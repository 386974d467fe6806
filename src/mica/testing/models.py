"""Models for tests: one that answers from a script, and one that records a real conversation and plays it back."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import AsyncGenerator, Callable
from pathlib import Path
from typing import Any, TypeAlias, get_args

import msgspec

from mica.errors import InvalidInput
from mica.llm.budgets import Ledger
from mica.llm.models import Models
from mica.llm.protocol import Capabilities, Model, Request, Usage
from mica.llm.resilience import Timing
from mica.settings import ModelsSettings, Tier
from mica.tokens import estimate

Step: TypeAlias = "str | dict[str, Any] | list[Any] | Exception | Callable[[Request], str]"


class ScriptedModel:
    """A model that answers from a script, step by step, and remembers what it was asked in `requests`.

    A step is a text, a value that is sent as JSON, an error that is raised, or a function of the request. A streamed
    answer comes word by word. When the script has ended it fails, so that no question goes unnoticed.
    """

    def __init__(
        self, *steps: Step, name: str = "scripted:model", able: Capabilities | None = None, dollars: float | None = 0.0
    ) -> None:
        self.name = name
        self.requests: list[Request] = []
        self.capabilities = able or Capabilities(json=True, tools=False, images=False)
        self._steps = deque(steps)
        self._dollars = dollars  # for a million tokens; None: nobody knows

    def __repr__(self) -> str:
        return f"ScriptedModel({self.name!r}, {len(self._steps)} steps left)"

    def price(self, usage: Usage) -> tuple[float, str] | None:
        if self._dollars is None:
            return None
        return (usage.input_tokens + usage.output_tokens) * self._dollars / 1_000_000, "script"

    async def pieces(self, request: Request, *, streamed: bool) -> AsyncGenerator[str | Usage, None]:
        self.requests.append(request)
        if not self._steps:
            raise InvalidInput(f"the script of {self.name} has ended; question {len(self.requests)} has no answer")
        step = self._steps.popleft()
        if isinstance(step, Exception):
            raise step
        if isinstance(step, dict | list):
            step = msgspec.json.encode(step).decode()
        text = step if isinstance(step, str) else step(request)
        for piece in text.splitlines(keepends=True) if streamed else [text]:
            for word in _words(piece) if streamed else [piece]:
                yield word
        yield Usage(input_tokens=request.input_tokens(), output_tokens=min(estimate(text), request.output_tokens_max))

    async def close(self) -> None:
        """Nothing to give back."""


def scripted(
    *steps: Step | Model,
    settings: ModelsSettings | None = None,
    ledger: Ledger | None = None,
    timing: Timing | None = None,
    space: str = "",
) -> Models:
    """All four tiers behind these models, or behind one scripted model with these steps."""
    given = [step for step in steps if not isinstance(step, str | dict | list | Exception) and hasattr(step, "pieces")]
    models: list[Any] = given or [ScriptedModel(*steps)]  # type: ignore[arg-type]  # then all are steps
    chains: dict[Tier, list[Model]] = dict.fromkeys(get_args(Tier), models)
    return Models(chains, settings=settings, ledger=ledger, timing=timing, space=space)


class _Exchange(msgspec.Struct, frozen=True, kw_only=True):
    """One line of a recording."""

    model: str
    able: Capabilities
    request: Request
    pieces: tuple[str, ...]
    usage: Usage


def recorded(path: str | Path, model: Model | None = None) -> Model:
    """A model that keeps every exchange in a file, one JSON line each; without `model`, the file played back.

    Played back, a question must be exactly one that was recorded: each answer is given as often as it was, in order.
    Raises InvalidInput when there is no recording, and for a question that is not in it.
    """
    return _Playback(Path(path)) if model is None else _Recorder(Path(path), model)


class _Recorder:
    def __init__(self, path: Path, model: Model) -> None:
        self._path = path
        self._model = model
        self.name = model.name
        path.write_bytes(b"")  # a recording is of one run

    @property
    def capabilities(self) -> Capabilities:
        return self._model.capabilities

    def price(self, usage: Usage) -> tuple[float, str] | None:
        return self._model.price(usage)

    async def pieces(self, request: Request, *, streamed: bool) -> AsyncGenerator[str | Usage, None]:
        texts: list[str] = []
        async for piece in self._model.pieces(request, streamed=streamed):
            if isinstance(piece, str):
                texts.append(piece)
            else:
                exchange = _Exchange(
                    model=self.name, able=self.capabilities, request=request, pieces=tuple(texts), usage=piece
                )
                with self._path.open("ab") as file:
                    file.write(msgspec.json.encode(exchange) + b"\n")
            yield piece

    async def close(self) -> None:
        await self._model.close()


class _Playback:
    def __init__(self, path: Path) -> None:
        if not path.is_file():
            raise InvalidInput(f"there is no recording {path}; make one with recorded(path, model)")
        try:
            lines = msgspec.json.Decoder(_Exchange).decode_lines(path.read_bytes())
        except msgspec.MsgspecError as error:
            raise InvalidInput(f"{path} is no recording: {error}") from error
        if not lines:
            raise InvalidInput(f"the recording {path} is empty; make one with recorded(path, model)")
        self._path = path
        self._kept: defaultdict[bytes, deque[_Exchange]] = defaultdict(deque)
        for line in lines:
            self._kept[_key(line.request)].append(line)
        self.name = lines[0].model
        self.capabilities = lines[0].able

    def price(self, usage: Usage) -> tuple[float, str] | None:
        """Nothing: nobody is called."""
        return 0.0, "recording"

    async def pieces(self, request: Request, *, streamed: bool) -> AsyncGenerator[str | Usage, None]:
        waiting = self._kept[_key(request)]
        if not waiting:
            asked = request.messages[-1].text[:80]
            raise InvalidInput(
                f"{self._path} has no answer left to {asked!r}; record it again with recorded(path, model)"
            )
        exchange = waiting.popleft()
        for piece in exchange.pieces if streamed else ["".join(exchange.pieces)]:
            yield piece
        yield exchange.usage

    async def close(self) -> None:
        """Nothing to give back."""


def _key(request: Request) -> bytes:
    return msgspec.json.encode(msgspec.structs.replace(request, agent=None, tier="routine"), order="deterministic")


def _words(line: str) -> list[str]:
    """The words of a line, each with the blanks behind it: joined they are the line."""
    words = line.split(" ")
    return [word + " " for word in words[:-1]] + [words[-1]] if words[-1] else [word + " " for word in words[:-1]]

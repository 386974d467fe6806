"""Language models for tests: scripted answers, recordings of real conversations, and an encoder without a model."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, get_args
from zlib import crc32

import msgspec

from mica.errors import InvalidInput
from mica.llm.budgets import Ledger
from mica.llm.models import Models
from mica.llm.protocol import Capabilities, Model, ModelUsage, Request
from mica.llm.resilience import Timing
from mica.settings import ModelsSettings, Tier
from mica.tokens import estimate
from mica.words import terms

if TYPE_CHECKING:
    from mica.llm.embeddings import Matrix

DIMENSIONS = 1_024  # of a WordEncoder
Step: TypeAlias = "str | dict[str, Any] | list[Any] | Exception | Callable[[Request], str]"


class ScriptedModel:
    """A model that answers each request with the next step of a script, and collects the requests in `requests`.

    A step is a text, a list or dict that becomes JSON, an exception to raise, or a function from the request to a text.
    A streamed answer comes word by word. A request after the last step raises InvalidInput.
    """

    def __init__(
        self, *steps: Step, name: str = "scripted:model", able: Capabilities | None = None, dollars: float | None = 0.0
    ) -> None:
        self.name = name
        self.requests: list[Request] = []
        self.capabilities = able or Capabilities(json=True, tools=False, images=False)
        self._steps = deque(steps)
        self._dollars = dollars  # per million tokens; None means that the price is unknown

    def __repr__(self) -> str:
        return f"ScriptedModel({self.name!r}, {len(self._steps)} steps left)"

    def price(self, usage: ModelUsage) -> tuple[float, str] | None:
        if self._dollars is None:
            return None
        return (usage.input_tokens + usage.output_tokens) * self._dollars / 1_000_000, "script"

    async def pieces(self, request: Request, *, streamed: bool) -> AsyncGenerator[str | ModelUsage, None]:
        self.requests.append(request)
        if not self._steps:
            raise InvalidInput(f"the script of {self.name} has ended; request {len(self.requests)} has no answer")
        step = self._steps.popleft()
        if isinstance(step, Exception):
            raise step
        if isinstance(step, dict | list):
            step = msgspec.json.encode(step).decode()
        text = step if isinstance(step, str) else step(request)
        for piece in text.splitlines(keepends=True) if streamed else [text]:
            for word in _words(piece) if streamed else [piece]:
                yield word
        yield ModelUsage(
            input_tokens=request.input_tokens(), output_tokens=min(estimate(text), request.output_tokens_max)
        )

    async def close(self) -> None:
        """Do nothing: this model holds no resources."""


def scripted(
    *steps: Step | Model,
    settings: ModelsSettings | None = None,
    ledger: Ledger | None = None,
    timing: Timing | None = None,
    space: str = "",
) -> Models:
    """Return `Models` that answer from a script, for all four tiers.

    `steps` are either models, which every tier uses in this order, or the steps of one `ScriptedModel`.
    """
    models = [step for step in steps if not isinstance(step, str | dict | list | Exception) and hasattr(step, "pieces")]
    chain: list[Any] = models or [ScriptedModel(*steps)]  # type: ignore[arg-type]  # then all are steps
    chains: dict[Tier, list[Model]] = dict.fromkeys(get_args(Tier), chain)
    return Models(chains, settings=settings, ledger=ledger, timing=timing, space=space)


class _Exchange(msgspec.Struct, frozen=True, kw_only=True):
    """One line of a recording: a request and its answer."""

    model: str
    able: Capabilities
    request: Request
    pieces: tuple[str, ...]
    usage: ModelUsage


def recorded(path: str | Path, model: Model | None = None) -> Model:
    """Return a model that records the requests to `model` and its answers in a file.

    Without `model`, the file is played back: the returned model answers each recorded request as often as it was
    recorded, in the same order. It raises InvalidInput if there is no recording, and for a request that is not in it. A
    recording has one line of JSON for each request.
    """
    return _Playback(Path(path)) if model is None else _Recorder(Path(path), model)


class _Recorder:
    def __init__(self, path: Path, model: Model) -> None:
        self._path = path
        self._model = model
        self.name = model.name
        path.write_bytes(b"")  # a recording covers one run

    @property
    def capabilities(self) -> Capabilities:
        return self._model.capabilities

    def price(self, usage: ModelUsage) -> tuple[float, str] | None:
        return self._model.price(usage)

    async def pieces(self, request: Request, *, streamed: bool) -> AsyncGenerator[str | ModelUsage, None]:
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
            raise InvalidInput(f"{path} is not a recording: {error}") from error
        if not lines:
            raise InvalidInput(f"the recording {path} is empty; make one with recorded(path, model)")
        self._path = path
        self._exchanges: defaultdict[bytes, deque[_Exchange]] = defaultdict(deque)
        for line in lines:
            self._exchanges[_key(line.request)].append(line)
        self.name = lines[0].model
        self.capabilities = lines[0].able

    def price(self, usage: ModelUsage) -> tuple[float, str] | None:
        """Return a price of 0, because playback is free."""
        return 0.0, "recording"

    async def pieces(self, request: Request, *, streamed: bool) -> AsyncGenerator[str | ModelUsage, None]:
        remaining = self._exchanges[_key(request)]
        if not remaining:
            question = request.messages[-1].text[:80]
            raise InvalidInput(
                f"{self._path} has no answer left to {question!r}; record it again with recorded(path, model)"
            )
        exchange = remaining.popleft()
        for piece in exchange.pieces if streamed else ["".join(exchange.pieces)]:
            yield piece
        yield exchange.usage

    async def close(self) -> None:
        """Do nothing: playback holds no resources."""


class WordEncoder:
    """A text encoder without a model: texts are similar if they share words.

    `meanings` maps a word to a word with the same meaning, so that both count as equal.
    """

    def __init__(self, meanings: Mapping[str, str] | None = None, *, model: str = "words") -> None:
        self.model = model
        self.texts: list[str] = []  # all encoded texts, in order
        self._meanings = {term: other for word, same in (meanings or {}).items()
                          for term, other in zip(terms(word), terms(same), strict=True)}  # fmt: skip

    def encode(self, texts: Sequence[str]) -> Matrix:
        import numpy

        self.texts += texts
        matrix = numpy.zeros((len(texts), DIMENSIONS), dtype=numpy.float32)
        for number, text in enumerate(texts):
            for term in terms(text):
                matrix[number, crc32(self._meanings.get(term, term).encode()) % DIMENSIONS] += 1
            matrix[number] /= numpy.linalg.norm(matrix[number]) or 1.0
        return matrix


def _key(request: Request) -> bytes:
    return msgspec.json.encode(msgspec.structs.replace(request, agent=None, tier="routine"), order="deterministic")


def _words(line: str) -> list[str]:
    words = line.split(" ")
    return [word + " " for word in words[:-1]] + [words[-1]] if words[-1] else [word + " " for word in words[:-1]]

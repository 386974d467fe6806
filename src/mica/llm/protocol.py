"""Requests to language models, their answers, and two protocols: `Model`, and `LLM` for all models of a space.

A provider implements `Model`: one call to one model, without retries or budgets. The rest of mica uses `LLM`: the
caller names a tier (a kind of task), and the answer says which model gave it, what it cost and which models failed.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from typing import Annotated, Any, Literal, Protocol

import msgspec

from mica.settings import Tier
from mica.tokens import estimate

OUTPUT_TOKENS = 1_024  # the default limit of an answer; reserved in the budget before every call
IMAGE_TOKENS = 1_600  # the most that one image costs with the usual providers
MESSAGE_TOKENS = 8  # that a chat template adds to each message


class ModelMessage(msgspec.Struct, frozen=True, kw_only=True):
    """One message of a conversation with a model."""

    role: Literal["user", "assistant"] = "user"
    text: str


class Image(msgspec.Struct, frozen=True, kw_only=True):
    """An image that is sent to a model with the last message."""

    media_type: str
    content: bytes


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """A request to a model. The model sees everything but `tier` and `agent`."""

    messages: tuple[ModelMessage, ...]
    system: str = ""
    tier: Tier = "routine"
    agent: str | None = None
    schema: Mapping[str, Any] | None = None  # the JSON schema of the answer; None for an answer in plain text
    images: tuple[Image, ...] = ()
    output_tokens_max: Annotated[int, msgspec.Meta(gt=0)] = OUTPUT_TOKENS
    temperature: float | None = None  # None: the model's default

    def input_tokens(self) -> int:
        """Estimate the tokens of the whole input: messages, system prompt, schema and images."""
        texts = [self.system, *(message.text for message in self.messages)]
        if self.schema is not None:
            texts.append(msgspec.json.encode(self.schema).decode())
        return sum(estimate(text) + MESSAGE_TOKENS for text in texts) + IMAGE_TOKENS * len(self.images)


def question(text: str, **more: Any) -> Request:  # noqa: ANN401 the fields of Request, checked by it
    """Return a request with one user message; `more` are further fields of the request."""
    return Request(messages=(ModelMessage(text=text),), **more)


Finish = Literal["stop", "length", "filter", "unknown"]


class ModelUsage(msgspec.Struct, frozen=True, kw_only=True):
    """The token counts of a call as the provider reports them, and the cost of the call if it is known."""

    input_tokens: int
    output_tokens: int
    dollars: float | None = None
    price: str | None = None  # where the price comes from
    is_estimated: bool = False  # True if the provider reported no counts
    finish: Finish = "stop"


class Capabilities(msgspec.Struct, frozen=True, kw_only=True):
    """The abilities of a model; None means unknown."""

    json: bool | None = None  # whether it can restrict its answer to a JSON schema
    tools: bool | None = None  # whether it can call tools
    images: bool | None = None  # whether it accepts images
    window_tokens: int | None = None  # the most tokens of input and output together


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """The text that a model answered, with its cost. An answer from the cache has a cost of 0 and 0 attempts."""

    text: str
    model: str
    input_tokens: int
    output_tokens: int
    dollars: float | None  # None: the price of this model is not known
    price: str | None = None  # the table that the price comes from
    is_estimated: bool = False
    cached: bool = False
    attempts: int = 1  # number of calls, failed ones and other models included
    passed_over: tuple[str, ...] = ()  # models that failed before, each with the reason
    finish: Finish = "stop"

    @property
    def provider(self) -> str:
        return self.model.partition(":")[0]

    @property
    def is_whole(self) -> bool:
        """True if the provider reports that the model finished its answer."""
        return self.finish == "stop"


class Model(Protocol):
    """One model of one provider, implemented by adapters, scripted models and recordings."""

    @property
    def name(self) -> str:
        """The name of the model, as `provider:model`."""

    @property
    def capabilities(self) -> Capabilities: ...

    def price(self, usage: ModelUsage) -> tuple[float, str] | None:
        """Return a pair: the dollars for this usage, and the name of the price table. None if the price is unknown."""

    def pieces(self, request: Request, *, streamed: bool) -> AsyncGenerator[str | ModelUsage, None]:
        """Yield the text of the answer in one or more pieces, then the usage.

        With `streamed`, the pieces are yielded as they arrive. Raises ModelUnavailable if a retry may help,
        ModelRefused if a retry will not help, and PromptTooLong if the request exceeds the model's window.
        """

    async def close(self) -> None: ...


class LLM(Protocol):
    """All models of a space. Callers name a tier, not a model."""

    async def ask(self, request: Request) -> Answer:
        """Return the answer of the first model of the tier that succeeds. Raises ModelError if none does."""

    def stream(self, request: Request) -> AsyncGenerator[str | Answer, None]:
        """Yield the text of the answer in pieces, then the whole answer.

        If a model fails after its first piece, no other model is tried: StreamBroken is raised, with the text that
        arrived.
        """

    def capabilities(self, tier: Tier) -> Capabilities:
        """Return the abilities that all models of a tier have, and the smallest of their context windows."""

"""What a model is asked, what it answers, and the two seams: one model, and all models of a space.

`Model` is what a provider implements: one call to one model, no retries, no money. `LLM` is what the rest of mica
sees: a tier is named, and which model answered, what it cost and what went wrong on the way stands in the answer.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from typing import Annotated, Any, Literal, Protocol

import msgspec

from mica.settings import Tier
from mica.tokens import estimate

OUTPUT_TOKENS = 1_024  # of an answer, unless more is asked for: reserved in the budget before every call
IMAGE_TOKENS = 1_600  # what one picture costs at most with the usual providers; a budget must not be surprised
MESSAGE_TOKENS = 8  # what a chat template wraps around each message


class Message(msgspec.Struct, frozen=True, kw_only=True):
    """One turn of a conversation."""

    role: Literal["user", "assistant"] = "user"
    text: str


class Image(msgspec.Struct, frozen=True, kw_only=True):
    """A picture that goes with the last message."""

    media_type: str
    content: bytes


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """One question. `tier` and `agent` say who asks; everything else is what the model sees."""

    messages: tuple[Message, ...]
    system: str = ""
    tier: Tier = "routine"
    agent: str | None = None
    schema: Mapping[str, Any] | None = None  # the answer is to be JSON of this shape
    images: tuple[Image, ...] = ()
    output_tokens_max: Annotated[int, msgspec.Meta(gt=0)] = OUTPUT_TOKENS
    temperature: float | None = None  # None: as the model likes it

    def input_tokens(self) -> int:
        """What the model will read, estimated; the schema counts, wherever it is put."""
        texts = [self.system, *(message.text for message in self.messages)]
        if self.schema is not None:
            texts.append(msgspec.json.encode(self.schema).decode())
        return sum(estimate(text) + MESSAGE_TOKENS for text in texts) + IMAGE_TOKENS * len(self.images)


def question(text: str, **more: Any) -> Request:  # noqa: ANN401 the fields of Request, checked by it
    """A request of one message."""
    return Request(messages=(Message(text=text),), **more)


Finish = Literal["stop", "length", "filter", "unknown"]


class Usage(msgspec.Struct, frozen=True, kw_only=True):
    """What a call took, as its provider counted it. `dollars` only if the provider's own price is known."""

    input_tokens: int
    output_tokens: int
    dollars: float | None = None
    price: str | None = None  # where the price comes from
    is_estimated: bool = False  # the provider counted nothing: these are our own numbers
    finish: Finish = "stop"


class Capabilities(msgspec.Struct, frozen=True, kw_only=True):
    """What a model can do. None means that nobody knows."""

    json: bool | None = None  # holds its answer to a schema by itself
    tools: bool | None = None
    images: bool | None = None
    window_tokens: int | None = None  # input and output together


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """What came back, and what it cost. An answer from the cache cost nothing and took no attempt."""

    text: str
    model: str
    input_tokens: int
    output_tokens: int
    dollars: float | None  # None: the price of this model is not known
    price: str | None = None  # the table that the price comes from
    is_estimated: bool = False
    cached: bool = False
    attempts: int = 1  # calls in all, those that failed and those of other models included
    passed_over: tuple[str, ...] = ()  # models before this one, each with the reason
    finish: Finish = "stop"

    @property
    def provider(self) -> str:
        return self.model.partition(":")[0]

    @property
    def is_whole(self) -> bool:
        """Whether the model ended by itself, and not at a limit."""
        return self.finish == "stop"


class Model(Protocol):
    """One model of one provider. The seam that an adapter, a scripted model and a recording fill."""

    @property
    def name(self) -> str:
        """`provider:model`."""

    @property
    def capabilities(self) -> Capabilities: ...

    def price(self, usage: Usage) -> tuple[float, str] | None:
        """The dollars of so many tokens and the table they come from; None when no table has this model."""

    def pieces(self, request: Request, *, streamed: bool) -> AsyncGenerator[str | Usage, None]:
        """The text as it comes, in one piece or many, and last the usage.

        Raises ModelUnavailable when trying again may help, ModelRefused when it will not, and PromptTooLong.
        """

    async def close(self) -> None: ...


class LLM(Protocol):
    """Every model of a space behind four tiers."""

    async def ask(self, request: Request) -> Answer:
        """The answer of the first model of the tier that gives one. Raises ModelError."""

    def stream(self, request: Request) -> AsyncGenerator[str | Answer, None]:
        """The text as it comes, and last the answer with all of it.

        Once text was shown, no other model is tried: StreamBroken keeps what came.
        """

    def capabilities(self, tier: Tier) -> Capabilities:
        """What every model of the tier can do, and the smallest window among them."""

"""Models behind an API, called through pydantic-ai.

Each request is one call. Errors are translated to those of mica; nothing is retried.
"""

from __future__ import annotations

import inspect
from collections.abc import AsyncGenerator
from functools import cached_property
from typing import TYPE_CHECKING, Any

from mica.errors import InvalidSettings, ModelError, ModelRefused, ModelUnavailable, NoModel, PromptTooLong
from mica.llm.protocol import Capabilities, Finish, ModelUsage, Request
from mica.redact import redact
from mica.settings import ProviderSettings, Secret, key_variable
from mica.tokens import estimate

if TYPE_CHECKING:
    from pydantic_ai.messages import ModelMessage, ModelResponse
    from pydantic_ai.models import Model as PydanticModel
    from pydantic_ai.models import ModelRequestParameters
    from pydantic_ai.settings import ModelSettings

KEYLESS = frozenset({"ollama", "vllm", "litellm"})  # self-hosted servers, which usually need no key
DETAIL_CHARACTERS_MAX = 300  # of a provider's error message
TRANSIENT = frozenset({408, 409, 425, 429, 500, 502, 503, 504, 529})
_FINISH: dict[str, Finish] = {"stop": "stop", "length": "length", "content_filter": "filter"}


class HostedModel:
    """A model of a provider that pydantic-ai supports. The library is imported at first use."""

    def __init__(self, name: str, *, access: ProviderSettings, key: Secret | None) -> None:
        self.name = name
        self._access = access
        self._key = key
        self._opened: PydanticModel[Any] | None = None

    def __repr__(self) -> str:
        return f"HostedModel({self.name!r})"

    @cached_property
    def capabilities(self) -> Capabilities:
        profile = self._model.profile
        return Capabilities(
            json=bool(profile.get("supports_json_schema_output", False)),
            tools=bool(profile.get("supports_tools", True)),
            images=bool(profile.get("supports_image_input", True)),
            # A self-hosted server may serve anything under a known name, with another window.
            window_tokens=None if self._access.base_url else profile.get("context_window"),
        )

    def price(self, usage: ModelUsage) -> tuple[float, str] | None:
        """Return a pair: the cost in dollars, and the name of the price table.

        The result is None for a self-hosted model, and for a model that is not in the table.
        """
        if self._access.base_url:
            return None
        import genai_prices

        provider, _, model = self.name.partition(":")
        tokens = genai_prices.Usage(input_tokens=usage.input_tokens, output_tokens=usage.output_tokens)
        for provider_id in (provider, provider.partition("-")[0]):
            try:
                found = genai_prices.calc_price(tokens, model, provider_id=provider_id)
            except LookupError:
                continue
            return float(found.total_price), f"genai-prices {genai_prices.__version__}"
        return None

    async def pieces(self, request: Request, *, streamed: bool) -> AsyncGenerator[str | ModelUsage, None]:
        model, messages, settings, parameters = self._call(request)
        from pydantic_ai import exceptions

        try:
            if not streamed:
                response = await model.request(messages, settings, parameters)
                if text := _text(response):
                    yield text
            else:
                shown = 0
                async with model.request_stream(messages, settings, parameters) as stream:
                    async for _ in stream:
                        text = _text(stream.get())
                        if len(text) > shown:
                            yield text[shown:]
                            shown = len(text)
                    response = stream.get()
        except (exceptions.AgentRunError, exceptions.UserError) as error:
            raise self._translate(error) from self._safe_cause(error)
        yield self._usage(request, response)

    async def close(self) -> None:
        """Close the connections, if any were opened."""
        if self._opened is not None and (client := getattr(self._opened, "client", None)) is not None:
            closing = client.close()
            if inspect.isawaitable(closing):
                await closing

    @property
    def _model(self) -> PydanticModel[Any]:
        if self._opened is None:
            self._opened = self._open()
        return self._opened

    def _open(self) -> PydanticModel[Any]:
        try:
            from pydantic_ai import models, providers
            from pydantic_ai.exceptions import UserError
        except ImportError as error:
            raise NoModel(self.name, f"{self.name} needs pydantic-ai-slim; install it with mica[llm]") from error
        name = self.name.partition(":")[0]
        options = {"api_key": self._secret(name), "base_url": self._access.base_url}
        try:
            made = providers.infer_provider_class(name)(**{key: value for key, value in options.items() if value})
            return models.infer_model(self.name, provider_factory=lambda _: made)
        except ImportError as error:
            raise NoModel(
                self.name, f"{self.name} needs the library of its provider; install pydantic-ai-slim[{name}]"
            ) from error
        except (UserError, ValueError, TypeError) as error:
            raise InvalidSettings(f"{self.name} cannot be used: {self._clean(str(error))}") from self._safe_cause(error)

    def _secret(self, provider: str) -> str | None:
        if self._key is not None:
            return self._key.reveal()
        if provider in KEYLESS:
            return "none"  # such a server ignores the header
        variable = self._access.api_key_env or key_variable(provider)
        raise NoModel(
            self.name, f"{self.name} has no key; set {variable}, or name another variable in "
            f"[models.providers.{provider}] api_key_env"
        )  # fmt: skip

    def _call(
        self, request: Request
    ) -> tuple[PydanticModel[Any], list[ModelMessage], ModelSettings, ModelRequestParameters]:
        model = self._model
        from pydantic_ai.messages import (
            BinaryContent,
            InstructionPart,
            ModelRequest,
            ModelResponse,
            TextPart,
            UserPromptPart,
        )
        from pydantic_ai.models import ModelRequestParameters
        from pydantic_ai.output import OutputObjectDefinition
        from pydantic_ai.settings import ModelSettings

        messages: list[ModelMessage] = []
        last = len(request.messages) - 1
        for place, message in enumerate(request.messages):
            if message.role == "assistant":
                messages.append(ModelResponse(parts=[TextPart(message.text)]))
                continue
            images = request.images if place == last else ()
            pictures = [BinaryContent(image.content, media_type=image.media_type) for image in images]
            prompt = UserPromptPart([message.text, *pictures] if pictures else message.text)
            messages.append(ModelRequest(parts=[prompt], instructions=request.system or None))
        parameters = ModelRequestParameters(
            instruction_parts=[InstructionPart(content=request.system)] if request.system else None
        )
        if request.schema is not None:
            wanted = OutputObjectDefinition(json_schema=dict(request.schema), name="answer")
            parameters = ModelRequestParameters(
                instruction_parts=parameters.instruction_parts, output_mode="native", output_object=wanted
            )
        settings = ModelSettings(max_tokens=request.output_tokens_max, max_retries=0)
        if request.temperature is not None:
            settings["temperature"] = request.temperature
        return model, messages, settings, parameters

    def _usage(self, request: Request, response: ModelResponse) -> ModelUsage:
        counted = response.usage
        finish = _FINISH.get(response.finish_reason or "", "unknown")
        if not counted.input_tokens and not counted.output_tokens:
            return ModelUsage(
                input_tokens=request.input_tokens(),
                output_tokens=estimate(_text(response)),
                is_estimated=True,
                finish=finish,
            )
        return ModelUsage(input_tokens=counted.input_tokens, output_tokens=counted.output_tokens, finish=finish)

    def _translate(self, error: Exception) -> ModelError:
        from pydantic_ai import exceptions

        status = getattr(error, "status_code", None)
        detail = self._clean(str(getattr(error, "body", None) or error))
        if isinstance(error, exceptions.UserError):  # the model cannot do what the request needs
            return ModelRefused(f"{self.name} cannot handle this request: {detail}", model=self.name, status=400)
        if isinstance(error, exceptions.ContentFilterError):
            return ModelRefused(f"{self.name} filtered the content: {detail}", model=self.name)
        if isinstance(error, exceptions.ModelContextWindowExceededError):
            return PromptTooLong(self.name)
        if isinstance(error, exceptions.ModelAuthenticationError):
            variable = self._access.api_key_env or key_variable(self.name.partition(":")[0])
            return ModelRefused(
                f"{self.name} does not accept the key in {variable} ({status}): {detail}",
                model=self.name,
                status=status,
            )
        if isinstance(error, exceptions.ModelConnectionError):
            return ModelUnavailable(f"{self.name} cannot be reached: {detail}", model=self.name)
        if status in TRANSIENT or (status is None and isinstance(error, exceptions.ModelAPIError)):
            after = getattr(error, "retry_after", None)
            return ModelUnavailable(
                f"{self.name} answers {status or 'an error'}: {detail}", model=self.name, retry_after_s=after
            )
        if status is not None:
            return ModelRefused(f"{self.name} refuses ({status}): {detail}", model=self.name, status=status)
        return ModelUnavailable(f"{self.name} sent an unreadable answer: {detail}", model=self.name)

    def _clean(self, text: str) -> str:
        if self._key is not None:
            text = text.replace(self._key.reveal(), "[key]")
        text = " ".join(redact(text).split())
        return text if len(text) <= DETAIL_CHARACTERS_MAX else text[: DETAIL_CHARACTERS_MAX - 1] + "…"

    def _safe_cause(self, error: BaseException | None) -> BaseException | None:
        """Return `error` to attach it to another error as the cause, or None if that would reveal a secret.

        The texts of the error and of all its causes are searched for secrets.
        """
        at = error
        while at is not None:
            text = f"{at} {getattr(at, 'body', '')}"
            if (self._key is not None and self._key.reveal() in text) or redact(text) != text:
                return None
            at = at.__cause__ or at.__context__
        return error


def _text(response: ModelResponse) -> str:
    from pydantic_ai.messages import TextPart

    return "".join(part.content for part in response.parts if isinstance(part, TextPart))

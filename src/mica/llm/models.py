"""The models of a space: which model answers a request, with retries, budgets and a cache of answers.

`open_models` opens the models that the settings name. Each tier has a list of models, which are tried in order.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections import OrderedDict
from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from contextlib import aclosing
from itertools import chain
from types import TracebackType
from typing import get_args

import msgspec

from mica.errors import (
    InvalidInput,
    InvalidSettings,
    ModelError,
    ModelRefused,
    ModelUnavailable,
    NoModel,
    PromptTooLong,
    StreamBroken,
)
from mica.llm.budgets import Ledger, Payer, Record, Reservation
from mica.llm.hosted import HostedModel
from mica.llm.local import LocalModel
from mica.llm.protocol import Answer, Capabilities, Model, ModelUsage, Request
from mica.llm.resilience import ModelBreaker, RateLimit, Timing, backoff
from mica.settings import ModelsSettings, ProviderSettings, Settings, Tier
from mica.tokens import estimate

LOCAL = "local"


def open_models(
    settings: Settings, *, space: str = "", record: Record | None = None, timing: Timing | None = None
) -> Models:
    """Return the models that the settings name; each is loaded at its first use.

    `space` is part of the key of cached answers. `record` is called with every reservation and every cost of a call, so
    that they can be logged; `Models.ledger.restore` reads them in a later process. Raises InvalidSettings for a name
    that is not of the form `provider:model`.
    """
    timing = timing or Timing()
    opened: dict[str, Model] = {}
    chains: dict[Tier, list[Model]] = {}
    for tier in get_args(Tier):
        for name in settings.models.chain(tier):
            if name not in opened:
                opened[name] = open_model(name, settings)
            chains.setdefault(tier, []).append(opened[name])
    ledger = Ledger(settings.models.budgets, now=timing.now, record=record)
    return Models(chains, settings=settings.models, space=space, ledger=ledger, timing=timing)


def open_model(name: str, settings: Settings) -> Model:
    """Return the model with this name: `local:<path of a GGUF file>` or `provider:model`. It is loaded when used.

    Raises InvalidSettings for a name of another form.
    """
    provider, _, model = name.partition(":")
    if not provider or not model:
        raise InvalidSettings(
            f'[models.tiers]: {name!r} names no provider; write "provider:model", or set default_provider in [models]'
        )
    access = settings.models.providers.get(provider, ProviderSettings())
    known = settings.models.known.get(name)
    if provider == LOCAL:
        return LocalModel(model, threads=access.threads, window_tokens=known.window_tokens if known else None)
    return HostedModel(name, access=access, key=settings.keys.get(provider))


INPUT_MARGIN = 1.25  # estimates are off by at most 11 % on 95 % of texts; a reservation should rather be too high


class Models:
    """Answers requests: the models of the request's tier are tried in order, until one succeeds.

    Use it in an `async with` statement, or call `close` at the end.
    """

    def __init__(
        self,
        chains: Mapping[Tier, Sequence[Model]],
        *,
        settings: ModelsSettings | None = None,
        space: str = "",
        ledger: Ledger | None = None,
        timing: Timing | None = None,
    ) -> None:
        self.ledger = ledger or Ledger()
        self.cache = AnswerCache(timing or Timing())
        self._chains = {tier: tuple(models) for tier, models in chains.items()}
        self._settings = settings or ModelsSettings()
        self._space = space
        self._timing = timing or Timing()
        self._breakers: dict[str, ModelBreaker] = {}
        self._limits: dict[str, RateLimit] = {}
        self._ready: set[str] = set()
        self._no_schema: set[str] = set()  # models that refused a schema

    async def ask(self, request: Request) -> Answer:
        async with aclosing(self._run(request, streamed=False)) as pieces:
            async for piece in pieces:
                if isinstance(piece, Answer):
                    return piece
        raise AssertionError("a run ends with an answer or an error")

    async def stream(self, request: Request) -> AsyncGenerator[str | Answer, None]:
        async with aclosing(self._run(request, streamed=True)) as pieces:
            async for piece in pieces:
                yield piece

    def capabilities(self, tier: Tier) -> Capabilities:
        every = [self._capabilities(model) for model in self._chain(tier)]
        windows = [each.window_tokens for each in every if each.window_tokens is not None]
        return Capabilities(
            json=_all_true(each.json for each in every),
            tools=_all_true(each.tools for each in every),
            images=_all_true(each.images for each in every),
            window_tokens=min(windows, default=None),
        )

    def state(self) -> dict[str, str]:
        """Return the state of each model's circuit breaker: `closed`, `open` or `half-open`.

        Models that were not called yet are left out.
        """
        return {name: breaker.state for name, breaker in self._breakers.items()}

    async def close(self) -> None:
        for model in {id(model): model for model in chain(*self._chains.values())}.values():
            await model.close()

    async def __aenter__(self) -> Models:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    # -- One request

    async def _run(self, request: Request, *, streamed: bool) -> AsyncGenerator[str | Answer, None]:
        _check(request)
        totals = CallTotals()
        failures: list[ModelError] = []
        for model in self._chain(request.tier):
            if model.name not in self._ready:  # this may import a large library
                await asyncio.to_thread(self._capabilities, model)
                self._ready.add(model.name)
            for shaped in self._shapes(model, request):
                try:
                    self._check_fits(model, shaped)
                    async with aclosing(self._ask_model(model, shaped, totals, streamed=streamed)) as pieces:
                        async for piece in pieces:
                            yield piece
                    return
                except (ModelUnavailable, ModelRefused, PromptTooLong) as error:
                    refused_schema = isinstance(error, ModelRefused) and error.status in (400, 422) and shaped.schema
                    if refused_schema:
                        self._no_schema.add(model.name)  # try again with the schema in the prompt
                        continue
                    failures.append(error)
                    totals.passed_over.append(str(error))
                    break
        raise _summarize(request.tier, failures)

    async def _ask_model(
        self, model: Model, request: Request, totals: CallTotals, *, streamed: bool
    ) -> AsyncGenerator[str | Answer, None]:
        key = key_of(request, space=self._space, model=model.name)
        if cached := self.cache.get(key):
            yield cached.text
            yield cached
            return
        worst = self._worst(model, request)
        payer = Payer(request.agent, request.tier, model.name)
        tokens = worst.input_tokens + worst.output_tokens
        with self.ledger.reserved(payer, tokens=tokens, dollars=worst.dollars) as reservation:
            received: list[str] = []
            try:
                async with aclosing(self._attempts(model, request, totals, received, streamed=streamed)) as pieces:
                    async for piece in pieces:
                        if isinstance(piece, str):
                            yield piece
                        else:
                            answer = self._to_answer(model, piece, "".join(received), totals, reservation)
                            self.cache.put(key, answer)
                            yield answer
            finally:
                if received and reservation.settled is None:  # broken off or cancelled: charge the part that arrived
                    self._settle_partial(model, request, "".join(received), reservation)

    async def _attempts(
        self, model: Model, request: Request, totals: CallTotals, received: list[str], *, streamed: bool
    ) -> AsyncGenerator[str | ModelUsage, None]:
        """Call one model, with retries. Yields the text of the answer in pieces, then the usage.

        The pieces are also appended to `received`, so that the caller can charge for them if the answer breaks off.
        """
        breaker, limit = self._breaker(model), self._limit(model)
        for attempt in range(1, self._settings.attempts_max + 1):
            try:
                with breaker.call():
                    await limit.turn()
                    totals.attempts += 1
                    async with aclosing(model.pieces(request, streamed=streamed)) as pieces:
                        while isinstance(piece := await self._next_piece(model, pieces), str):
                            received.append(piece)
                            yield piece
                    if piece is None:
                        raise ModelUnavailable(f"the answer of {model.name} broke off", model=model.name)
                yield piece
                return
            except ModelUnavailable as error:
                if received and streamed:
                    raise StreamBroken(model.name, "".join(received), str(error)) from error
                received.clear()
                delay_s = backoff(attempt, error.retry_after_s, self._timing.chance())
                if error.retry_after_s:
                    limit.pause(error.retry_after_s)
                if not error.was_called or delay_s is None or attempt == self._settings.attempts_max:
                    raise
                await self._timing.sleep(delay_s)

    async def _next_piece(
        self, model: Model, pieces: AsyncGenerator[str | ModelUsage, None]
    ) -> str | ModelUsage | None:
        timeout_s = self._settings.timeout_s
        try:
            async with asyncio.timeout(timeout_s):
                return await anext(pieces, None)
        except TimeoutError as error:
            raise ModelUnavailable(
                f"{model.name} did not answer for {timeout_s:g} s; raise timeout_s in [models] if it is slow",
                model=model.name,
            ) from error

    # -- Capabilities and costs

    def _chain(self, tier: Tier) -> tuple[Model, ...]:
        if not self._chains.get(tier):
            raise NoModel(tier)
        return self._chains[tier]

    def _capabilities(self, model: Model) -> Capabilities:
        """Return the capabilities of a model. Those in the settings override those that the provider reports.

        A model that has refused a request with a schema counts as unable to use one.
        """
        able = model.capabilities
        known = self._settings.known.get(model.name)
        if known is not None:
            overrides = {name: getattr(known, name) for name in ("json", "tools", "images", "window_tokens")}
            overrides = {name: value for name, value in overrides.items() if value is not None}
            able = msgspec.structs.replace(able, **overrides)
        return msgspec.structs.replace(able, json=False) if model.name in self._no_schema else able

    def _shapes(self, model: Model, request: Request) -> list[Request]:
        """Return the forms of a request to try, in order. A request without a schema has only one form.

        A request with a schema is tried with this schema if the model supports schemas, then with the schema as text in
        the system prompt.
        """
        if request.schema is None:
            return [request]
        words = (
            "Answer with one JSON value of this schema and nothing else, no fence and no remark:\n"
            + msgspec.json.encode(request.schema).decode()
        )
        in_words = msgspec.structs.replace(request, schema=None, system=f"{request.system}\n\n{words}".strip())
        return [request, in_words] if self._capabilities(model).json else [in_words]

    def _check_fits(self, model: Model, request: Request) -> None:
        able = self._capabilities(model)
        if request.images and able.images is False:
            raise ModelRefused(f"{model.name} cannot see images; name a model in the tier that can", model=model.name)
        tokens = request.input_tokens() + request.output_tokens_max
        if able.window_tokens is not None and tokens > able.window_tokens:
            raise PromptTooLong(model.name, tokens=tokens, window_tokens=able.window_tokens)

    def _worst(self, model: Model, request: Request) -> ModelUsage:
        usage = ModelUsage(
            input_tokens=round(request.input_tokens() * INPUT_MARGIN), output_tokens=request.output_tokens_max
        )
        return self._priced(model, usage)

    def _priced(self, model: Model, usage: ModelUsage) -> ModelUsage:
        """Return a copy of the usage with its cost in dollars, which is None if no price is known.

        The prices in the settings are used if there are any, else the cost that the provider reported, else the price
        table of the model.
        """
        known = self._settings.known.get(model.name)
        if known is not None and known.dollars_in is not None and known.dollars_out is not None:
            dollars = (usage.input_tokens * known.dollars_in + usage.output_tokens * known.dollars_out) / 1_000_000
            price = f"settings {known.price_at}" if known.price_at else "settings"
            return msgspec.structs.replace(usage, dollars=dollars, price=price)
        if usage.dollars is None and (found := model.price(usage)):
            return msgspec.structs.replace(usage, dollars=found[0], price=found[1])
        return usage

    def _to_answer(
        self, model: Model, usage: ModelUsage, text: str, totals: CallTotals, reservation: Reservation
    ) -> Answer:
        usage = self._priced(model, usage)
        reservation.settle(usage, usage.dollars)
        return Answer(
            text=text,
            model=model.name,
            input_tokens=usage.input_tokens,
            output_tokens=usage.output_tokens,
            dollars=usage.dollars,
            price=usage.price,
            is_estimated=usage.is_estimated,
            attempts=totals.attempts,
            passed_over=tuple(totals.passed_over),
            finish=usage.finish,
        )

    def _settle_partial(self, model: Model, request: Request, text: str, reservation: Reservation) -> None:
        usage = ModelUsage(input_tokens=request.input_tokens(), output_tokens=estimate(text), is_estimated=True)
        usage = self._priced(model, usage)
        reservation.settle(usage, usage.dollars)

    def _breaker(self, model: Model) -> ModelBreaker:
        return self._breakers.setdefault(model.name, ModelBreaker(model.name, self._timing))

    def _limit(self, model: Model) -> RateLimit:
        provider = model.name.partition(":")[0]
        if provider not in self._limits:
            settings = self._settings.providers.get(provider)
            self._limits[provider] = RateLimit(settings.requests_per_minute if settings else None, self._timing)
        return self._limits[provider]


class CallTotals:
    """The number of calls made for one request so far, and the errors of the models that failed, over all models."""

    def __init__(self) -> None:
        self.attempts = 0
        self.passed_over: list[str] = []  # one error for each model that failed


def _all_true(answers: Iterable[bool | None]) -> bool | None:
    """Return False if any answer is False, else None if any is None, else True."""
    every = set(answers)
    return False if False in every else None if None in every else True


def _check(request: Request) -> None:
    if not request.messages:
        raise InvalidInput("a request without messages asks nothing; give at least one")
    for text in (request.system, *(message.text for message in request.messages)):
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise InvalidInput(f"a text cannot be sent to a model: {error}; remove the invalid character") from error


def _summarize(tier: Tier, failures: Sequence[ModelError]) -> ModelError:
    """Return the error to raise if all models of a tier failed: the only failure, or an error that lists all."""
    if len(failures) == 1:
        return failures[0]
    reasons = "; ".join(str(failure) for failure in failures)
    return ModelUnavailable(f"no model of the tier {tier!r} answered: {reasons}", model=tier)


# -- Cached answers -------------------------------------------------------------------------------------------


ENTRIES_MAX = 256
SIZE_BYTES_MAX = 8_000_000  # of the texts of all answers together
AGE_S_MAX = 3_600.0  # not longer, because a provider may change the model behind a name

_NOT_SEEN_BY_THE_MODEL = {"tier": "routine", "agent": None}


def key_of(request: Request, *, space: str, model: str) -> str:
    """Return the cache key of a request to a model in a space. It does not depend on the request's agent and tier."""
    seen = msgspec.structs.replace(request, **_NOT_SEEN_BY_THE_MODEL)
    content = msgspec.json.encode([space, model, seen], order="deterministic")
    return hashlib.sha256(content).hexdigest()


class AnswerCache:
    """A cache of the latest complete answers, bounded in number, bytes and age."""

    def __init__(self, timing: Timing, *, entries_max: int = ENTRIES_MAX, size_bytes_max: int = SIZE_BYTES_MAX) -> None:
        self._timing = timing
        self._entries_max = entries_max
        self._size_bytes_max = size_bytes_max
        self._entries: OrderedDict[str, tuple[float, Answer]] = OrderedDict()
        self._size_bytes = 0

    def get(self, key: str) -> Answer | None:
        """Return the cached answer for a key, with a cost of 0; None if there is none or it is too old."""
        if key not in self._entries:
            return None
        at, answer = self._entries[key]
        if self._timing.monotonic() - at > AGE_S_MAX:
            self._drop(key)
            return None
        self._entries.move_to_end(key)
        return msgspec.structs.replace(
            answer, cached=True, input_tokens=0, output_tokens=0, dollars=0.0, attempts=0, passed_over=()
        )

    def put(self, key: str, answer: Answer) -> None:
        """Cache an answer, unless the model did not finish it."""
        if not answer.is_whole or not self._entries_max:
            return
        self._drop(key)
        self._entries[key] = (self._timing.monotonic(), answer)
        self._size_bytes += len(answer.text.encode())
        while len(self._entries) > self._entries_max or self._size_bytes > self._size_bytes_max:
            self._drop(next(iter(self._entries)))

    def clear(self) -> None:
        """Empty the cache, for example after a purge."""
        self._entries.clear()
        self._size_bytes = 0

    def _drop(self, key: str) -> None:
        if entry := self._entries.pop(key, None):
            self._size_bytes -= len(entry[1].text.encode())

"""All models of a space: tiers, fallback, breaker, rate limit, cache and budgets, without a bill or a wait."""

from __future__ import annotations

from contextlib import aclosing
from pathlib import Path

import pytest
from tests.llm.attempts import ASK, down, once

from mica.errors import (
    InvalidInput,
    InvalidSettings,
    ModelRefused,
    ModelUnavailable,
    NoModel,
    PromptTooLong,
    StreamBroken,
)
from mica.llm.hosted import HostedModel
from mica.llm.local import LocalModel
from mica.llm.models import Models, open_model, open_models
from mica.llm.protocol import Answer, Capabilities, ModelUsage, Request, question
from mica.llm.resilience import Timing
from mica.settings import load_settings
from mica.testing import HandClock, ScriptedModel, scripted

# -- Tiers and fallback ---------------------------------------------------------------------------------------------


async def test_the_tier_of_the_request_chooses_the_model() -> None:
    """keeps: TD-06. Each tier has its own chain and its own price."""
    cheap, strong = (
        ScriptedModel("cheap", name="a:small", dollars=1.0),
        ScriptedModel("strong", name="b:large", dollars=50.0),
    )
    models = Models({"routine": [cheap], "critical": [strong]})

    routine, critical = await models.ask(ASK), await models.ask(question("And this?", tier="critical"))

    assert (routine.text, routine.model, critical.text, critical.model) == ("cheap", "a:small", "strong", "b:large")
    assert routine.dollars == pytest.approx((routine.input_tokens + routine.output_tokens) * 1e-6)
    assert critical.dollars == pytest.approx((critical.input_tokens + critical.output_tokens) * 50e-6)
    with pytest.raises(NoModel, match="'interactive'"):
        await models.ask(question("Hi", tier="interactive"))


async def test_models_are_tried_in_order_and_the_answer_names_the_skipped_ones() -> None:
    """keeps: TD-06, D-10"""
    first, second, third = (
        ScriptedModel(down(), name="first:m"),
        ScriptedModel(ModelRefused("second:m refuses (403): no", model="second:m", status=403), name="second:m"),
        ScriptedModel("Here", name="third:m"),
    )
    answer = await scripted(first, second, third, settings=once()).ask(ASK)
    assert (answer.text, answer.model, answer.attempts) == ("Here", "third:m", 3)
    assert answer.passed_over == ("first:m answers 503", "second:m refuses (403): no")


async def test_an_error_of_every_model_names_all_of_them() -> None:
    models = scripted(ScriptedModel(down("a:m"), name="a:m"), ScriptedModel(down("b:m"), name="b:m"), settings=once())
    with pytest.raises(
        ModelUnavailable, match=r"no model of the tier 'routine' answered: a:m answers 503; b:m answers"
    ):
        await models.ask(ASK)


async def test_a_prompt_too_long_for_one_model_goes_to_a_larger_one() -> None:
    """keeps: TB-10. It is never cut: a model sees all of it or is not called."""
    small = ScriptedModel("no", name="a:small", able=Capabilities(window_tokens=300))
    large = ScriptedModel("yes", name="b:large", able=Capabilities(window_tokens=100_000))
    text = "word " * 1_000

    answer = await scripted(small, large).ask(question(text))

    assert (answer.text, small.requests) == ("yes", [])
    assert large.requests[0].messages[0].text == text
    assert "a:small can take 300 tokens" in answer.passed_over[0]
    with pytest.raises(PromptTooLong, match="ask in parts"):
        await scripted(ScriptedModel("no", able=Capabilities(window_tokens=300))).ask(question(text))


async def test_a_tier_has_the_abilities_that_all_its_models_share() -> None:
    one = ScriptedModel(able=Capabilities(json=True, tools=True, images=None, window_tokens=8_000))
    other = ScriptedModel(able=Capabilities(json=True, tools=False, images=True, window_tokens=2_000), name="b:m")
    assert scripted(one, other).capabilities("routine") == Capabilities(
        json=True, tools=False, images=None, window_tokens=2_000
    )


@pytest.mark.parametrize("request_", [Request(messages=()), question("half \ud83d character")])
async def test_an_invalid_request_is_refused_before_it_costs_anything(request_: Request) -> None:
    models = scripted("never")
    with pytest.raises(InvalidInput):
        await models.ask(request_)
    assert models.ledger.spent().calls == 0


# -- Streaming ------------------------------------------------------------------------------------------------------


async def test_another_model_may_take_over_before_the_first_token() -> None:
    models = scripted(ScriptedModel(down(), name="first:m"), ScriptedModel("Here you are", name="b:m"), settings=once())
    pieces = [piece async for piece in models.stream(ASK)]
    assert pieces[:-1] == ["Here ", "you ", "are"]
    assert isinstance(pieces[-1], Answer)
    assert pieces[-1].passed_over == ("first:m answers 503",)


async def test_answers_of_two_models_are_never_joined() -> None:
    class Breaking(ScriptedModel):
        async def pieces(self, request: Request, *, streamed: bool):  # type: ignore[no-untyped-def]  # as its parent
            yield "It is "
            raise down()

    second = ScriptedModel("blue", name="b:m")
    models = scripted(Breaking(name="first:m"), second)
    with pytest.raises(StreamBroken) as broken:
        [piece async for piece in models.stream(ASK)]
    assert (broken.value.partial, second.requests) == ("It is ", [])
    assert (await models.ask(ASK)).text == "blue"  # nobody saw the half: whole from the second


async def test_an_abandoned_stream_counts_the_received_tokens() -> None:
    models = scripted("one two three four")
    async with aclosing(models.stream(ASK)) as pieces:
        assert await anext(pieces) == "one "
    assert not models.ledger._open
    assert 0 < models.ledger.spent().tokens < 60


# -- Cache ----------------------------------------------------------------------------------------------------------


async def test_a_repeated_request_is_paid_once(timing: Timing, clock: HandClock) -> None:
    """keeps: D-10, D-22. Cached answers expire."""
    model = ScriptedModel("first", "second", dollars=5.0)
    models = scripted(model, timing=timing)
    first, again = (
        await models.ask(ASK),
        await models.ask(question("What is it?", output_tokens_max=100, agent="scout")),
    )
    assert (first.cached, again.cached, again.text) == (False, True, "first")
    assert (again.input_tokens, again.output_tokens, again.dollars, again.attempts) == (0, 0, 0.0, 0)
    assert models.ledger.spent().calls == 1
    assert [str(piece) for piece in [piece async for piece in models.stream(ASK)][:-1]] == ["first"]
    clock.move(hours=2)
    assert (await models.ask(ASK)).text == "second"


@pytest.mark.parametrize(
    "other",
    [
        question("What is that?", output_tokens_max=100),
        question("What is it?", output_tokens_max=101),
        question("What is it?", output_tokens_max=100, system="Be brief"),
        question("What is it?", output_tokens_max=100, temperature=1.0),
        question("What is it?", output_tokens_max=100, schema={"type": "object"}),
    ],
)
async def test_a_different_request_is_not_answered_from_the_cache(other: Request) -> None:
    models = scripted("first", "second")
    await models.ask(ASK)
    assert (await models.ask(other)).text == "second"


async def test_a_cached_answer_is_shared_neither_between_spaces_nor_models() -> None:
    model = ScriptedModel("first", "second", "third")
    models, walled = scripted(model, space="one"), scripted(model, space="two")
    walled.cache = models.cache  # even if somebody shared it
    assert [(await each.ask(ASK)).text for each in (models, walled, models)] == ["first", "second", "first"]
    renamed = scripted(ScriptedModel("other", name="b:m"), space="one")
    renamed.cache = models.cache
    assert (await renamed.ask(ASK)).text == "other"


async def test_the_cache_is_bounded_and_holds_no_partial_answer() -> None:
    class Cut(ScriptedModel):
        async def pieces(self, request: Request, *, streamed: bool):  # type: ignore[no-untyped-def]  # as its parent
            self.requests.append(request)
            yield "half"
            yield ModelUsage(input_tokens=1, output_tokens=1, finish="length")

    cut = Cut()
    models = scripted(cut)
    await models.ask(ASK)
    await models.ask(ASK)
    assert len(cut.requests) == 2

    big = scripted(ScriptedModel(*["x" * 3_000_000] * 4))
    for number in range(4):
        await big.ask(question(f"Question {number}"))
    assert len(big.cache._entries) == 2


async def test_settings_name_the_fallback_chains(tmp_path: object) -> None:
    """keeps: D-20. They define tiers, a default for unset tiers, and names without a provider."""
    variables = {"HOME": str(tmp_path), "MICA_MODELS_DEFAULT_PROVIDER": "openai", "MICA_MODELS_DEFAULT_MODEL": "mini"}
    settings = load_settings(variables)
    assert settings.models.chain("critical") == ("openai:mini",)
    bad = load_settings({"HOME": str(tmp_path), "MICA_MODELS_DEFAULT_MODEL": "mini"})
    with pytest.raises(InvalidSettings, match="'mini' names no provider"):
        open_models(bad)


@pytest.mark.parametrize("name", ["", "gpt", ":gpt", "openai:"])
def test_a_name_without_provider_or_model_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(InvalidSettings, match="names no provider"):
        open_model(name, load_settings({"HOME": str(tmp_path)}))


def test_the_provider_decides_between_a_local_and_a_hosted_model(tmp_path: Path) -> None:
    settings = load_settings({"HOME": str(tmp_path)})

    local, hosted = open_model("local:/weights/small.gguf", settings), open_model("openai:gpt-x", settings)

    assert isinstance(local, LocalModel)
    assert isinstance(hosted, HostedModel)
    assert (local.name, hosted.name) == ("local:/weights/small.gguf", "openai:gpt-x")


async def test_a_model_shared_by_two_tiers_is_opened_once(tmp_path: Path) -> None:
    config = tmp_path / "config.toml"
    config.write_text('[models.tiers]\nroutine = "local:a.gguf"\ncritical = ["local:a.gguf", "local:b.gguf"]\n')
    settings = load_settings({"HOME": str(tmp_path), "MICA_CONFIG": str(config)})

    async with open_models(settings) as models:
        routine, critical = models._chains["routine"], models._chains["critical"]

    assert [model.name for model in critical] == ["local:a.gguf", "local:b.gguf"]
    assert routine[0] is critical[0]

"""All models of a space: tiers, fallback, breaker, rate limit, cache and budgets, without a bill or a wait."""

from __future__ import annotations

import asyncio
from contextlib import aclosing, suppress
from datetime import timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import mica
from mica import EventQuery, Settings
from mica.errors import (
    BudgetExceeded,
    InvalidInput,
    InvalidSettings,
    ModelRefused,
    ModelUnavailable,
    NoModel,
    PromptTooLong,
    StreamBroken,
)
from mica.llm.budgets import RESERVED, SPENT, Ledger
from mica.llm.models import Models
from mica.llm.protocol import Answer, Capabilities, Request, Usage, question
from mica.llm.resilience import Timing
from mica.llm.tiers import open_models
from mica.settings import BudgetSettings, ModelsSettings, ProviderSettings, load_settings
from mica.testing import HandClock, ScriptedModel, scripted

ASK = question("What is it?", output_tokens_max=100)


def down(name: str = "first:m") -> ModelUnavailable:
    return ModelUnavailable(f"{name} answers 503", model=name)


def once(**more: object) -> ModelsSettings:
    return ModelsSettings(attempts_max=1, **more)  # type: ignore[arg-type]  # fields of the settings


# -- Tiers and fallback ---------------------------------------------------------------------------------------------


async def test_the_tier_of_the_request_chooses_the_model() -> None:
    """TD-06: each tier has its own chain and its own price."""
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


async def test_models_are_tried_in_order_and_the_answer_says_who_was_passed_over() -> None:
    """TD-06, D-10: the fallback chain."""
    first, second, third = (
        ScriptedModel(down(), name="first:m"),
        ScriptedModel(ModelRefused("second:m refuses (403): no", model="second:m", status=403), name="second:m"),
        ScriptedModel("Here", name="third:m"),
    )
    answer = await scripted(first, second, third, settings=once()).ask(ASK)
    assert (answer.text, answer.model, answer.attempts) == ("Here", "third:m", 3)
    assert answer.passed_over == ("first:m answers 503", "second:m refuses (403): no")


async def test_when_all_fail_the_error_names_all() -> None:
    models = scripted(ScriptedModel(down("a:m"), name="a:m"), ScriptedModel(down("b:m"), name="b:m"), settings=once())
    with pytest.raises(
        ModelUnavailable, match=r"no model of the tier 'routine' answered: a:m answers 503; b:m answers"
    ):
        await models.ask(ASK)


async def test_what_does_not_fit_goes_to_a_larger_model_and_is_never_cut() -> None:
    """TB-10: the model sees all of it, or is not asked."""
    small = ScriptedModel("no", name="a:small", able=Capabilities(window_tokens=300))
    large = ScriptedModel("yes", name="b:large", able=Capabilities(window_tokens=100_000))
    text = "word " * 1_000

    answer = await scripted(small, large).ask(question(text))

    assert (answer.text, small.requests) == ("yes", [])
    assert large.requests[0].messages[0].text == text
    assert "a:small can take 300 tokens" in answer.passed_over[0]
    with pytest.raises(PromptTooLong, match="ask in parts"):
        await scripted(ScriptedModel("no", able=Capabilities(window_tokens=300))).ask(question(text))


async def test_a_tier_can_do_what_all_its_models_can() -> None:
    one = ScriptedModel(able=Capabilities(json=True, tools=True, images=None, window_tokens=8_000))
    other = ScriptedModel(able=Capabilities(json=True, tools=False, images=True, window_tokens=2_000), name="b:m")
    assert scripted(one, other).capabilities("routine") == Capabilities(
        json=True, tools=False, images=None, window_tokens=2_000
    )


async def test_settings_name_the_chains(tmp_path: object) -> None:
    """D-20: tiers, a default for those that are not set, and names without a provider."""
    variables = {"HOME": str(tmp_path), "MICA_MODELS_DEFAULT_PROVIDER": "openai", "MICA_MODELS_DEFAULT_MODEL": "mini"}
    settings = load_settings(variables)
    assert settings.models.chain("critical") == ("openai:mini",)
    bad = load_settings({"HOME": str(tmp_path), "MICA_MODELS_DEFAULT_MODEL": "mini"})
    with pytest.raises(InvalidSettings, match="'mini' names no provider"):
        open_models(bad)


@pytest.mark.parametrize("request_", [Request(messages=()), question("half \ud83d character")])
async def test_what_cannot_be_sent_is_refused_before_it_is_paid(request_: Request) -> None:
    models = scripted("never")
    with pytest.raises(InvalidInput):
        await models.ask(request_)
    assert models.ledger.spent().calls == 0


# -- Retry, breaker, rate limit -------------------------------------------------------------------------------------


async def test_a_dead_model_is_left_alone_and_then_tried_by_one_call(timing: Timing, clock: HandClock) -> None:
    """A4: a dead primary costs three calls for each pause; the pause doubles; one success closes it."""
    dead = ScriptedModel(*[down()] * 4, "alive", "alive", name="first:m")
    spare = ScriptedModel(*["spare"] * 9, name="second:m")
    models = scripted(dead, spare, settings=once(), timing=timing)
    asked = iter(range(100))

    async def ask() -> str:
        return (await models.ask(question(f"Question {next(asked)}"))).text

    assert [await ask() for _ in range(5)] == ["spare"] * 5
    assert (len(dead.requests), models.state()["first:m"]) == (3, "open")

    clock.move(seconds=31)
    assert models.state()["first:m"] == "half-open"
    assert [await ask() for _ in range(2)] == ["spare"] * 2
    assert len(dead.requests) == 4  # one probe, which failed

    clock.move(seconds=31)
    assert await ask() == "spare"  # the pause has doubled
    clock.move(seconds=30)
    assert [await ask() for _ in range(2)] == ["alive", "alive"]
    assert models.state()["first:m"] == "closed"


async def test_only_one_of_many_calls_probes(timing: Timing, clock: HandClock) -> None:
    """Also when a probe is cancelled, the next may try."""
    gate = asyncio.Event()

    class Slow(ScriptedModel):
        async def pieces(self, request: Request, *, streamed: bool):  # type: ignore[no-untyped-def]  # as its parent
            self.requests.append(request)
            if len(self.requests) <= 3:
                raise down()
            await gate.wait()
            yield "alive"
            yield Usage(input_tokens=1, output_tokens=1)

    slow = Slow(name="first:m")
    models = scripted(slow, settings=once(), timing=timing)
    for number in range(3):
        with pytest.raises(ModelUnavailable):
            await models.ask(question(f"Down {number}"))
    clock.move(seconds=40)

    probe = asyncio.create_task(models.ask(question("Probe")))
    while len(slow.requests) < 4:
        await asyncio.sleep(0)
    with pytest.raises(ModelUnavailable, match="left alone"):
        await models.ask(question("Too early"))
    assert len(slow.requests) == 4
    probe.cancel()
    with pytest.raises(asyncio.CancelledError):
        await probe
    gate.set()
    assert (await models.ask(question("Next"))).text == "alive"


async def test_calls_to_one_provider_are_spread_over_the_minute(timing: Timing, clock: HandClock) -> None:
    """D-10: rate limits, for each provider its own."""
    settings = ModelsSettings(providers={"a": ProviderSettings(requests_per_minute=6)})
    one, other = ScriptedModel(*"123", name="a:m"), ScriptedModel(*"123", name="b:m")
    models = Models({"routine": [one], "critical": [other]}, settings=settings, timing=timing)
    start = clock()
    for number in range(3):
        await models.ask(question(f"Question {number}", tier="critical"))
    assert clock() == start
    for number in range(3):
        await models.ask(question(f"Question {number}"))
    assert clock() - start == timedelta(seconds=20)


# -- Streaming ------------------------------------------------------------------------------------------------------


async def test_before_the_first_word_another_model_may_take_over() -> None:
    models = scripted(ScriptedModel(down(), name="first:m"), ScriptedModel("Here you are", name="b:m"), settings=once())
    pieces = [piece async for piece in models.stream(ASK)]
    assert pieces[:-1] == ["Here ", "you ", "are"]
    assert isinstance(pieces[-1], Answer)
    assert pieces[-1].passed_over == ("first:m answers 503",)


async def test_two_halves_of_two_models_are_never_joined() -> None:
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


async def test_a_stream_that_is_left_counts_what_came() -> None:
    models = scripted("one two three four")
    async with aclosing(models.stream(ASK)) as pieces:
        assert await anext(pieces) == "one "
    assert not models.ledger._open
    assert 0 < models.ledger.spent().tokens < 60


# -- Cache ----------------------------------------------------------------------------------------------------------


async def test_the_same_question_is_paid_once(timing: Timing, clock: HandClock) -> None:
    """D-10, D-22: a response cache with an end."""
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
async def test_another_question_is_another_question(other: Request) -> None:
    models = scripted("first", "second")
    await models.ask(ASK)
    assert (await models.ask(other)).text == "second"


async def test_a_cached_answer_crosses_neither_space_nor_model() -> None:
    model = ScriptedModel("first", "second", "third")
    models, walled = scripted(model, space="one"), scripted(model, space="two")
    walled.cache = models.cache  # even if somebody shared it
    assert [(await each.ask(ASK)).text for each in (models, walled, models)] == ["first", "second", "first"]
    renamed = scripted(ScriptedModel("other", name="b:m"), space="one")
    renamed.cache = models.cache
    assert (await renamed.ask(ASK)).text == "other"


async def test_the_cache_is_bounded_and_keeps_no_half_answer() -> None:
    class Cut(ScriptedModel):
        async def pieces(self, request: Request, *, streamed: bool):  # type: ignore[no-untyped-def]  # as its parent
            self.requests.append(request)
            yield "half"
            yield Usage(input_tokens=1, output_tokens=1, finish="length")

    cut = Cut()
    models = scripted(cut)
    await models.ask(ASK)
    await models.ask(ASK)
    assert len(cut.requests) == 2

    big = scripted(ScriptedModel(*["x" * 3_000_000] * 4))
    for number in range(4):
        await big.ask(question(f"Question {number}"))
    assert len(big.cache._kept) == 2


# -- Budgets --------------------------------------------------------------------------------------------------------


def paid(*budgets: BudgetSettings, clock: HandClock | None = None, **model: object) -> tuple[Models, ScriptedModel]:
    answering = ScriptedModel(*["yes"] * 50, **model)  # type: ignore[arg-type]  # its own keywords
    return scripted(answering, ledger=Ledger(budgets, now=clock or HandClock())), answering


async def test_a_call_that_could_pass_the_budget_is_not_made() -> None:
    """D-11, U-06: the worst case is reserved before the call."""
    models, model = paid(BudgetSettings(agent="scout", tokens=300))
    await models.ask(question("One", agent="scout", output_tokens_max=200))
    with pytest.raises(BudgetExceeded, match=r"the budget of agent 'scout' per day is 300 tokens") as refused:
        await models.ask(question("Two", agent="scout", output_tokens_max=290))
    assert (refused.value.payer, len(model.requests)) == ("scout", 1)
    await models.ask(question("Three", agent="smith", output_tokens_max=290))  # another's money


async def test_a_budget_of_a_day_begins_anew(clock: HandClock) -> None:
    models, _ = paid(BudgetSettings(tokens=300), clock=clock)
    await models.ask(question("One", output_tokens_max=250))
    for number in range(40):
        try:
            await models.ask(question(f"More {number}", output_tokens_max=250))
        except BudgetExceeded:
            break
    else:
        pytest.fail("the budget was never used up")
    clock.move(days=1)
    await models.ask(question("Tomorrow", output_tokens_max=250))


async def test_dollars_are_not_counted_from_an_unknown_price() -> None:
    """K-04: unknown is not zero."""
    models, model = paid(BudgetSettings(dollars=1.0), dollars=None)
    with pytest.raises(BudgetExceeded, match="no price is known for scripted:model"):
        await models.ask(ASK)
    assert model.requests == []
    free, _ = paid(BudgetSettings(tokens=10_000), dollars=None)
    answer = await free.ask(ASK)
    assert answer.dollars is None
    assert free.ledger.spent() == free.ledger.spent(model="scripted:model")
    assert (free.ledger.spent().unpriced, free.ledger.spent().dollars) == (1, 0.0)


async def test_usage_is_counted_by_agent_tier_and_model() -> None:
    """D-11: per-agent usage."""
    models, _ = paid(dollars=10.0)
    first = await models.ask(question("One", agent="scout"))
    await models.ask(question("Two", agent="smith", tier="critical"))
    scout = models.ledger.spent(agent="scout")
    assert (scout.tokens, scout.calls) == (first.input_tokens + first.output_tokens, 1)
    assert scout.dollars == pytest.approx(first.dollars)
    assert models.ledger.spent(tier="critical").calls == 1
    assert {payer.agent for payer in models.ledger.by_payer()} == {"scout", "smith"}


@given(
    limit=st.integers(0, 2_000),
    wanted=st.lists(st.integers(1, 400), min_size=2, max_size=8),
    fail=st.lists(st.booleans(), min_size=8, max_size=8),
)
def test_concurrent_calls_cannot_overspend(limit: int, wanted: list[int], fail: list[bool]) -> None:
    """D-11: whatever runs at once, what is spent and reserved stays within the budget; what failed is given back."""
    ledger = Ledger([BudgetSettings(tokens=limit, per="ever")])
    seen: list[int] = []

    class Working(ScriptedModel):
        async def pieces(self, request: Request, *, streamed: bool):  # type: ignore[no-untyped-def]  # as its parent
            seen.append(ledger.spent().tokens + sum(cost.tokens for _, _, cost in ledger._open.values()))
            await asyncio.sleep(0)
            if fail[int(request.messages[0].text)]:
                raise ModelRefused("no", model=self.name)
            yield "x" * 20
            yield Usage(input_tokens=5, output_tokens=request.output_tokens_max)

    models = scripted(Working(), ledger=ledger)

    async def run() -> None:
        calls = [models.ask(question(str(n), output_tokens_max=most)) for n, most in enumerate(wanted)]
        for outcome in await asyncio.gather(*calls, return_exceptions=True):
            assert isinstance(outcome, Answer | BudgetExceeded | ModelRefused)

    asyncio.run(run())
    assert all(tokens <= limit for tokens in seen)
    assert ledger.spent().tokens <= limit
    assert not ledger._open


@given(
    calls=st.lists(
        st.tuples(st.sampled_from(["scout", "smith", None]), st.integers(1, 300), st.booleans(), st.booleans()),
        max_size=12,
    ),
    dies=st.booleans(),
)
def test_a_ledger_rebuilt_from_its_records_knows_the_same(
    calls: list[tuple[str | None, int, bool, bool]], dies: bool
) -> None:
    """D-11: a restart does not open the purse again; a call that nobody saw end counts as its worst case."""
    clock = HandClock()
    kept: list[tuple[str, dict[str, object]]] = []
    ledger = Ledger(now=clock, record=lambda name, told: kept.append((name, dict(told))))
    for number, (agent, tokens, succeeds, priced) in enumerate(calls):
        step = "yes" if succeeds else ModelRefused("no", model="scripted:model")
        models = scripted(ScriptedModel(step, dollars=3.0 if priced else None), ledger=ledger)
        with_agent = question(str(number), agent=agent, output_tokens_max=tokens)
        asyncio.run(_quietly(models, with_agent))
    if dies and kept:
        assert kept.pop()[0] == SPENT

    again = Ledger([BudgetSettings(tokens=0)], now=clock)
    for name, told in kept:
        again.restore(name, told, at=clock())
    again.restore("file.read", {"path": "a.py"}, at=clock())

    if dies and kept:
        assert len(again._open) == 1
        assert kept[-1][0] == RESERVED
    else:
        assert again.by_payer() == pytest.approx(ledger.by_payer())
        assert again.spent() == ledger.spent()


async def test_the_log_of_a_space_keeps_what_was_spent(home: Settings, tmp_path: Path) -> None:
    """D-11, U-06: a new process knows what the last one spent."""
    budget = [BudgetSettings(agent="scout", tokens=600, per="ever")]
    ask = question("What is it?", agent="scout", output_tokens_max=500)

    async with mica.open(tmp_path / "shop.db", settings=home) as memory:
        models = scripted("word " * 300, ledger=Ledger(budget, record=memory.emit))
        await models.ask(ask)
        spent = models.ledger.spent()
    async with mica.open(tmp_path / "shop.db", settings=home) as memory:
        ledger = Ledger(budget, record=memory.emit)
        for event in reversed(await memory.events(EventQuery(names=(RESERVED, SPENT), limit=None))):
            ledger.restore(event.name, event.data, at=event.at)
        assert ledger.spent() == spent
        with pytest.raises(BudgetExceeded):
            await scripted("no", ledger=ledger).ask(ask)


async def _quietly(models: Models, request: Request) -> None:
    with suppress(ModelRefused):
        await models.ask(request)

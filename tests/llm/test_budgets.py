"""Budgets and costs of models: reservations, ledgers and their records."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.llm.attempts import ASK

import mica
from mica import EventQuery, Settings
from mica.errors import (
    BudgetExceeded,
    ModelRefused,
    ModelUnavailable,
)
from mica.llm.budgets import RESERVED, SPENT, Ledger, ModelCost, Payer
from mica.llm.models import Models
from mica.llm.protocol import Answer, ModelUsage, Request, question
from mica.settings import BudgetSettings
from mica.testing import HandClock, ScriptedModel, scripted


def paid(*budgets: BudgetSettings, clock: HandClock | None = None, **model: object) -> tuple[Models, ScriptedModel]:
    answering = ScriptedModel(*["yes"] * 50, **model)  # type: ignore[arg-type]  # its own keywords
    return scripted(answering, ledger=Ledger(budgets, now=clock or HandClock())), answering


async def test_a_call_that_could_exceed_the_budget_is_not_made() -> None:
    """keeps: D-11, U-06. The worst case is reserved before the call."""
    models, model = paid(BudgetSettings(agent="scout", tokens=300))
    await models.ask(question("One", agent="scout", output_tokens_max=200))
    with pytest.raises(BudgetExceeded, match=r"the budget of agent 'scout' per day is 300 tokens") as refused:
        await models.ask(question("Two", agent="scout", output_tokens_max=290))
    assert (refused.value.payer, len(model.requests)) == ("scout", 1)
    await models.ask(question("Three", agent="smith", output_tokens_max=290))  # another's money


async def test_a_daily_budget_resets_each_day(clock: HandClock) -> None:
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


async def test_an_unknown_price_counts_no_dollars() -> None:
    """keeps: K-04. Unknown is not zero."""
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
    """keeps: D-11"""
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
    """keeps: D-11. Spent and reserved amounts together stay within the budget; failed calls release theirs."""
    ledger = Ledger([BudgetSettings(tokens=limit, per="ever")])
    seen: list[int] = []

    class Working(ScriptedModel):
        async def pieces(self, request: Request, *, streamed: bool):  # type: ignore[no-untyped-def]  # as its parent
            seen.append(ledger.spent().tokens + sum(cost.tokens for _, _, cost in ledger._open.values()))
            await asyncio.sleep(0)
            if fail[int(request.messages[0].text)]:
                raise ModelRefused("no", model=self.name)
            yield "x" * 20
            yield ModelUsage(input_tokens=5, output_tokens=request.output_tokens_max)

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
def test_a_ledger_rebuilt_from_its_records_has_the_same_totals(
    calls: list[tuple[str | None, int, bool, bool]], dies: bool
) -> None:
    """keeps: D-11. A restart does not reset the budget; a call without a recorded end counts as its worst case."""
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


async def test_spending_is_recorded_in_the_log_of_a_space(home: Settings, tmp_path: Path) -> None:
    """keeps: D-11, U-06. A new process knows what the last one spent."""
    budget = [BudgetSettings(agent="scout", tokens=600, per="ever")]
    ask = question("What is it?", agent="scout", output_tokens_max=500)

    async with mica.open(tmp_path / "shop.db", settings=home) as memory:
        models = scripted("word " * 300, ledger=Ledger(budget, record=memory.emit))
        await models.ask(ask)
        spent = models.ledger.spent()
    async with mica.open(tmp_path / "shop.db", settings=home) as memory:
        ledger = Ledger(budget, record=memory.emit)
        for event in reversed(await memory.events.query(EventQuery(names=(RESERVED, SPENT), limit=None))):
            ledger.restore(event.name, event.data, at=event.at)
        assert ledger.spent() == spent
        with pytest.raises(BudgetExceeded):
            await scripted("no", ledger=ledger).ask(ask)


async def _quietly(models: Models, request: Request) -> None:
    with suppress(ModelRefused):
        await models.ask(request)


def test_a_failed_call_releases_its_reservation_and_costs_nothing() -> None:
    ledger = Ledger([BudgetSettings(per="day", tokens=100)])
    payer = Payer("scout", "routine", "first:m")

    with pytest.raises(ModelUnavailable), ledger.reserved(payer, tokens=100, dollars=None):
        raise ModelUnavailable("first:m answers 503", model="first:m")

    assert ledger.spent() == ModelCost()
    with ledger.reserved(payer, tokens=100, dollars=None):
        pass


def test_the_budget_of_one_agent_does_not_limit_another() -> None:
    ledger = Ledger([BudgetSettings(agent="scout", per="day", tokens=10)])

    with ledger.reserved(Payer("other", "routine", "first:m"), tokens=50, dollars=None):
        pass

    with (
        pytest.raises(BudgetExceeded, match="the budget of agent 'scout' per day is 10 tokens"),
        ledger.reserved(Payer("scout", "routine", "first:m"), tokens=50, dollars=None),
    ):
        raise AssertionError("no call is made over the budget")


def test_a_call_without_a_recorded_end_counts_with_its_worst_case() -> None:
    now = datetime(2026, 11, 18, tzinfo=UTC)
    ledger = Ledger([BudgetSettings(per="day", tokens=100)], now=lambda: now)
    reserved = {"call": "c1", "agent": None, "tier": "routine", "model": "first:m", "tokens": 80, "dollars": None}

    ledger.restore(RESERVED, reserved, at=now)

    assert ledger.spent() == ModelCost()
    with (
        pytest.raises(BudgetExceeded, match="80 are spent or reserved"),
        ledger.reserved(Payer(None, "routine", "first:m"), tokens=30, dollars=None),
    ):
        raise AssertionError("no call is made over the budget")

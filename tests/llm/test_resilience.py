"""Retries, rate limits and circuit breakers of models, without waiting."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest
from tests.llm.attempts import down, once

from mica.errors import ModelUnavailable
from mica.llm.models import Models
from mica.llm.protocol import ModelUsage, Request, question
from mica.llm.resilience import BACKOFF_S, BACKOFF_S_MAX, FAILURES_MAX, OPEN_S, ModelBreaker, RateLimit, Timing, backoff
from mica.settings import ModelsSettings, ProviderSettings
from mica.testing import HandClock, ScriptedModel, scripted


async def test_a_dead_model_is_paused_and_then_probed_by_one_call(timing: Timing, clock: HandClock) -> None:
    """A4: a dead primary costs three calls per pause; the pause doubles; one success closes the breaker."""
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
    """After a cancelled probe the next call may try."""
    gate = asyncio.Event()

    class Slow(ScriptedModel):
        async def pieces(self, request: Request, *, streamed: bool):  # type: ignore[no-untyped-def]  # as its parent
            self.requests.append(request)
            if len(self.requests) <= 3:
                raise down()
            await gate.wait()
            yield "alive"
            yield ModelUsage(input_tokens=1, output_tokens=1)

    slow = Slow(name="first:m")
    models = scripted(slow, settings=once(), timing=timing)
    for number in range(3):
        with pytest.raises(ModelUnavailable):
            await models.ask(question(f"Down {number}"))
    clock.move(seconds=40)

    probe = asyncio.create_task(models.ask(question("Probe")))
    while len(slow.requests) < 4:
        await asyncio.sleep(0)
    with pytest.raises(ModelUnavailable, match="is not called for another"):
        await models.ask(question("Too early"))
    assert len(slow.requests) == 4
    probe.cancel()
    with pytest.raises(asyncio.CancelledError):
        await probe
    gate.set()
    assert (await models.ask(question("Next"))).text == "alive"


async def test_calls_to_one_provider_are_spread_over_the_minute(timing: Timing, clock: HandClock) -> None:
    """keeps: D-10. Each provider has its own rate limit."""
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


def test_backoff_doubles_with_every_failure_up_to_a_limit() -> None:
    waits = [backoff(failed, None, chance=1.0) for failed in (1, 2, 3, 20)]

    assert waits == [BACKOFF_S, 2 * BACKOFF_S, 4 * BACKOFF_S, BACKOFF_S_MAX]
    assert backoff(3, None, chance=0.0) == 0.0


def test_backoff_follows_retry_after_and_gives_up_on_a_long_one() -> None:
    assert backoff(1, 7.5, chance=0.0) == 7.5
    assert backoff(1, BACKOFF_S_MAX + 1, chance=0.0) is None


def test_a_breaker_opens_after_failures_in_a_row_and_closes_after_a_success(timing: Timing, clock: HandClock) -> None:
    breaker = ModelBreaker("first:m", timing)

    for _ in range(FAILURES_MAX):
        assert breaker.state == "closed"
        with pytest.raises(ModelUnavailable), breaker.call():
            raise down()
    with pytest.raises(ModelUnavailable) as rejected, breaker.call():
        raise AssertionError("an open breaker makes no call")
    clock.move(seconds=OPEN_S)

    assert not rejected.value.was_called
    assert breaker.state == "half-open"
    with breaker.call():
        pass
    assert breaker.state == "closed"


def test_a_failed_probe_keeps_the_breaker_open_for_twice_as_long(timing: Timing, clock: HandClock) -> None:
    breaker = ModelBreaker("first:m", timing)
    for _ in range(FAILURES_MAX):
        with pytest.raises(ModelUnavailable), breaker.call():
            raise down()

    clock.move(seconds=OPEN_S)
    with pytest.raises(ModelUnavailable), breaker.call():
        raise down()
    clock.move(seconds=OPEN_S)

    assert breaker.state == "open"
    clock.move(seconds=OPEN_S)
    assert breaker.state == "half-open"


async def test_a_pause_delays_every_later_call(timing: Timing, clock: HandClock) -> None:
    limit = RateLimit(None, timing)
    before = clock.monotonic()

    limit.pause(12.0)
    await limit.turn()

    assert clock.monotonic() - before == pytest.approx(12.0)

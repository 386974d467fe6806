"""What mica itself taught and learned is asked like any other source."""

from __future__ import annotations

from datetime import timedelta

import pytest

import mica
from mica.model import EventId
from mica.select.fragments import Concept
from mica.select.sources import own
from mica.testing import HandClock
from mica.testing.builders import START_AT
from mica.walks import Step


def trail_step(path: str) -> Step:
    return Step(path=path, operation="read", at=START_AT, event=EventId("e"))


async def test_a_teaching_that_names_a_concept_is_told_until_it_is_withdrawn(memory: mica.Memory) -> None:
    """C-12: teachings are a source of the same kind as all others."""
    with memory.context(session="s1", agent="scout"):
        ids = [memory.mark(f"The login-proxy drops cookie {number} of the page").id for number in range(6)]
        crystal = await memory.commit_crystal(
            [("The login-proxy drops cookies", ids[:2])], sources=ids, period="session:s1", confidence=0.9
        )
    teaching = await memory.promote(crystal.id, by="ann")
    source = memory.every_source["teachings"]
    now = teaching.at + timedelta(seconds=1)

    [said] = await source.fragments(Concept("service", "proxy", "login-proxy"), now=now)

    assert said.text == "The login-proxy drops cookies"
    assert (said.confidence, said.locator) == (0.9, f"#{teaching.position}")
    assert said.sources[0] == teaching.id
    assert set(ids[:2]) <= set(said.sources)
    assert list(await source.fragments(Concept("service", "proxy", "mailer"), now=now)) == []
    assert (
        list(await source.fragments(Concept("service", "proxy", "login-proxy"), now=teaching.at - timedelta(days=1)))
        == []
    )
    await memory.withdraw(teaching.id, reason="fixed")
    assert list(await source.fragments(Concept("service", "proxy", "login-proxy"), now=now)) == []


async def test_a_trail_is_told_by_its_name_and_by_its_files(memory: mica.Memory, clock: HandClock) -> None:
    """C-12: trails are a source of the same kind as all others; one that is suspended is not told."""
    await memory.trails.create("payment-flow", [trail_step("pay/stripe.py"), trail_step("models/order.py")])
    source = memory.every_source["trails"]

    for identifier in ("payment-flow", "nav:payment-flow", "pay/stripe.py", "stripe.py"):
        [said] = await source.fragments(Concept("code", "file", identifier), now=clock())
        assert said.key == "nav:payment-flow"
        assert said.text == "nav:payment-flow: pay/stripe.py → models/order.py (walked 0 times)"
    assert list(await source.fragments(Concept("code", "file", "tripe.py"), now=clock())) == []
    await memory.trails.suspend("payment-flow", reason="moved")
    assert list(await source.fragments(Concept("code", "file", "stripe.py"), now=clock())) == []


async def test_trails_that_were_learned_without_an_event_are_found_after_a_while(
    memory: mica.Memory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A space without trails is not asked for them at each question; what is learned since is not missed for long."""
    concept = "code:file:pay/stripe.py"
    await memory.defrag(concept)
    assert "trails" not in (await memory.defrag(concept)).asked
    monkeypatch.setattr(own, "LEARNED_S", 0.0)

    assert "trails" in (await memory.defrag(concept)).asked

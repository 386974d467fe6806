"""Teachings and trails as sources."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from itertools import count
from pathlib import Path

import pytest

import mica
from mica.brief import file_source as own
from mica.model.event import EventId
from mica.model.walk import Step
from mica.settings import Settings
from mica.sources.protocol import Concept, Question
from mica.testing import HandClock
from mica.testing.builders import START_AT


def trail_step(path: str) -> Step:
    return Step(path=path, operation="read", at=START_AT, event=EventId("e"))


async def test_a_teaching_that_names_a_concept_is_gathered_until_withdrawn(memory: mica.Memory) -> None:
    """keeps: C-12. Teachings are a source like all others."""
    with memory.context(session="s1", agent="scout"):
        ids = [memory.mark(f"The login-proxy drops cookie {number} of the page").id for number in range(6)]
        crystal = await memory.crystals.commit(
            [("The login-proxy drops cookies", ids[:2])], sources=ids, period="session:s1", confidence=0.9
        )
    teaching = await memory.crystals.promote(crystal.id, by="ann")
    source = memory.sources.all["teachings"]
    now = teaching.at + timedelta(seconds=1)

    [fragment] = await source.fragments(Question(concept=Concept("service", "proxy", "login-proxy"), now=now))

    assert fragment.text == "The login-proxy drops cookies"
    assert (fragment.confidence, fragment.locator) == (0.9, f"#{teaching.position}")
    assert fragment.sources[0] == teaching.id
    assert set(ids[:2]) <= set(fragment.sources)
    assert list(await source.fragments(Question(concept=Concept("service", "proxy", "mailer"), now=now))) == []
    assert (
        list(
            await source.fragments(
                Question(concept=Concept("service", "proxy", "login-proxy"), now=teaching.at - timedelta(days=1))
            )
        )
        == []
    )
    await memory.crystals.withdraw(teaching.id, reason="fixed")
    assert list(await source.fragments(Question(concept=Concept("service", "proxy", "login-proxy"), now=now))) == []


async def test_a_trail_is_gathered_by_its_name_and_by_its_files(memory: mica.Memory, clock: HandClock) -> None:
    """keeps: C-12. Trails are a source like all others; a suspended one is left out."""
    await memory.trails.create("payment-flow", [trail_step("pay/stripe.py"), trail_step("models/order.py")])
    source = memory.sources.all["trails"]

    for identifier in ("payment-flow", "nav:payment-flow", "pay/stripe.py", "stripe.py"):
        [fragment] = await source.fragments(Question(concept=Concept("code", "file", identifier), now=clock()))
        assert fragment.key == "nav:payment-flow"
        assert fragment.text == "nav:payment-flow: pay/stripe.py → models/order.py (walked 0 times)"
    assert list(await source.fragments(Question(concept=Concept("code", "file", "tripe.py"), now=clock()))) == []
    await memory.trails.suspend("payment-flow", reason="moved")
    assert list(await source.fragments(Question(concept=Concept("code", "file", "stripe.py"), now=clock()))) == []


SOON_S = 30  # on a busy machine
NUMBERS = count()


async def are_trails_asked(memory: mica.Memory) -> bool:
    """Return True if a gather of a new concept asks the trails."""
    return "trails" in (await memory.sources.gather(f"code:file:{next(NUMBERS)}.py")).asked


async def test_a_space_without_file_accesses_is_not_searched_for_trails_again(
    memory: mica.Memory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Trails are learned only from recorded accesses, so the result holds until one is recorded."""
    monkeypatch.setattr(own, "LEARNED_S", 0.0)
    assert await are_trails_asked(memory)

    assert not await are_trails_asked(memory)
    assert not await are_trails_asked(memory)
    memory.emit("file.read", {"path": "pay/stripe.py"})
    assert await are_trails_asked(memory)


async def test_trails_learned_without_an_event_are_found_after_a_while(
    memory: mica.Memory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where files were opened, trails may be learned at any time without an event."""
    memory.emit("file.read", {"path": "pay/stripe.py"})
    await memory.durable()
    await memory.events.position()  # it is stored
    assert await are_trails_asked(memory)
    assert not await are_trails_asked(memory)

    monkeypatch.setattr(own, "LEARNED_S", 0.0)
    memory.emit("session.started")  # trails are checked once more
    assert await are_trails_asked(memory)
    assert await are_trails_asked(memory)


@pytest.mark.parametrize("engine", ["sqlite", "postgres"])
async def test_trails_learned_by_another_process_are_found(
    engine: str, request: pytest.FixtureRequest, tmp_path: Path, home: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file access by another process ends the cached empty result, so later trails are found."""
    monkeypatch.setattr(own, "LEARNED_S", 0.0)
    target = tmp_path / "space.db" if engine == "sqlite" else request.getfixturevalue("server").address()
    async with mica.open(target, settings=home) as memory, mica.open(target, settings=home) as other:
        assert await are_trails_asked(memory)
        assert not await are_trails_asked(memory)

        for session in ("s1", "s2", "s3"):
            steps = [trail_step("pay/stripe.py"), trail_step("models/order.py")]
            await other.trails.log("Pay with a card", steps, outcome="success", session=session)
        await other.events.position()  # it is stored, and nothing is learned from it
        async with asyncio.timeout(SOON_S):
            while not await are_trails_asked(memory):
                await asyncio.sleep(0)
        assert await other.trails.learn() == 1
        [fragment] = (await memory.sources.gather("code:file:models/order.py")).fragments

    assert fragment.source == "trails"
    assert "pay/stripe.py → models/order.py" in fragment.text

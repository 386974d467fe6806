"""Teachings as a source."""

from __future__ import annotations

from datetime import timedelta

import mica
from mica.sources.protocol import Concept, Question


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

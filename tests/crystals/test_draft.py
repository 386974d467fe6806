"""Drafts of crystals made from digests."""

from __future__ import annotations

from datetime import timedelta

from tests.crystals.working_days import OTHER, observe

import mica
from mica.crystals.digest import extract
from mica.crystals.draft import make_draft, material
from mica.crystals.periods import DuePeriod
from mica.model.event import EventId
from mica.model.mark import Mark
from mica.testing import HandClock, build
from mica.testing.builders import START_AT

TEXTS = (
    "Moved the session cookie after the proxy redirect.",
    "After the proxy redirect the session cookie moved.",
    "PostgreSQL partitions are closed every month by the ageing job.",
)


def test_a_dropped_source_names_the_source_that_replaces_it() -> None:
    """keeps: TB-12, B-59"""
    marks = tuple(
        Mark(id=EventId(build(number).id), text=text, at=START_AT + timedelta(minutes=number))
        for number, text in enumerate(TEXTS, 1)
    )
    made_of = material(marks)
    closing = DuePeriod(level="session", period="session:s1", sources=marks)
    draft = make_draft(closing, made_of, extract(made_of.sources, budget_tokens=30), method="test")
    assert draft is not None
    [dropped] = draft.dropped
    assert (dropped.reason, {dropped.id, dropped.similar_to}) == ("said by another", {marks[0].id, marks[1].id})


async def test_a_digest_never_overwrites_an_agents_crystal(memory: mica.Memory, clock: HandClock) -> None:
    """keeps: K-17.

    Late marks make a revision that keeps its statements verbatim and adds the new ones, at higher levels too.
    """
    ids = [ref.id for ref in observe(memory, clock, "s1")]
    own = "Login lost its session because the cookie was set before the redirect."
    rule = "Cookies come after redirects."
    with memory.context(session="s1", agent="scout"):
        written = await memory.crystals.commit(
            [(own, ids[:2])], principles=[(rule, [ids[2]])], topics=["login"], label="mine", confidence=0.6
        )
        clock.move(minutes=1)
        late = memory.mark("The proxy caches the login page for an hour, so the old cookie comes back until then.")

    [revised] = await memory.crystals.make(session="s1")

    assert revised.insight[0].text == own
    assert [each.text for each in revised.principles] == [rule]
    assert revised.insight[0].sources == tuple(ids[:2])
    assert {each for statement in revised.insight[1:] for each in statement.sources} == {late.id}
    assert (revised.method, revised.revision) == ("committed:scout+extractive-1", 2)
    assert (revised.supersedes, revised.sources) == ((written.id,), (*ids, late.id))
    assert (revised.label, revised.confidence, revised.topics[0]) == ("mine", 0.6, "login")
    assert {each.id for each in revised.dropped} == {each.id for each in written.dropped}
    assert await memory.crystals.make(session="s1") == []

    with memory.context(session="s1"):
        clock.move(minutes=1)
        memory.mark("And the load balancer keeps a session for ten minutes after the last request of a browser.")
    [third] = await memory.crystals.make(session="s1")
    assert third.insight[: len(revised.insight)] == revised.insight

    await memory.retract(ids[0], reason="it was the proxy")
    await memory.crystals.make()
    [left] = await memory.crystals.list(level="session")
    assert own not in left.text  # its evidence was retracted
    assert rule in [each.text for each in left.principles]
    assert await memory.upkeep.verify() == []


async def test_a_day_crystal_written_by_an_agent_keeps_its_text(memory: mica.Memory, clock: HandClock) -> None:
    """keeps: K-17. The same rule holds at every level."""
    observe(memory, clock, "s1")
    [session] = await memory.crystals.make(session="s1")
    cited = session.insight[0].sources
    with memory.context(agent="scout"):
        await memory.crystals.commit(
            [("A day of one cookie.", cited)], sources=[session.id], period="day:2026-11-02", level="day"
        )
    late = {ref.id for ref in observe(memory, clock, "s2", texts=OTHER)}

    made = await memory.crystals.make(level="day")

    day = made[-1]
    assert (day.level, day.revision, day.insight[0].text) == ("day", 2, "A day of one cookie.")
    assert day.method == "committed:scout+extractive-1"
    assert late.intersection(each for statement in day.statements for each in statement.sources)
    assert "cookie" not in " ".join(statement.text for statement in day.statements[1:])  # the agent's text covers it
    assert await memory.upkeep.verify() == []


async def test_a_stated_principle_reaches_its_crystal(memory: mica.Memory, clock: HandClock) -> None:
    """keeps: B-43. It is verbatim, exempt from the digest's budget, and cites every mark that states it."""
    observe(memory, clock, "s1")
    with memory.context(session="s1"):
        one = memory.mark("Two requests raced for one row in the cart.", principles=("Lock before you read",))
        clock.move(minutes=1)
        two = memory.mark("So did two workers of the mailer.", principles=["Lock before you read", "Retry once"])

    [crystal] = await memory.crystals.make()

    assert [(each.text, each.sources) for each in crystal.principles][:2] == [
        ("Lock before you read", (one.id, two.id)),
        ("Retry once", (two.id,)),
    ]
    assert crystal.tokens < crystal.source_tokens

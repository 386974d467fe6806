"""Teachings: promoted crystals that hold until they are withdrawn or lose their evidence."""

from __future__ import annotations

import asyncio
from pathlib import Path

import msgspec
import pytest

import mica
from mica.model.crystal import Crystal
from mica.model.event import EventQuery
from mica.model.teaching import PROMOTED, WITHDRAWN, teaching_of
from mica.settings import CrystalSettings, Settings
from mica.testing import HandClock

RULES = ("Set cookies after the last redirect", "Never trust the session id of a redirected request")


async def crystal_of_session(
    memory: mica.Memory, session: str = "s1", *, marks: int = 20, confidence: float = 0.9
) -> Crystal:
    """Commit a crystal of an agent's own marks; with enough marks it can be promoted."""
    with memory.context(session=session, agent="scout"):
        texts = [*RULES, *(f"The proxy dropped cookie {number} of the login page" for number in range(marks - 2))]
        ids = [memory.mark(f"{text} ({session})").id for text in texts]
        return await memory.crystals.commit(
            [("The proxy drops cookies", ids[2:4])],
            principles=[(RULES[0], ids[:1]), (RULES[1], ids[1:2])],
            topics=("cookie", "proxy", "redirect"),
            sources=ids,
            period=f"session:{session}",
            confidence=confidence,
        )


async def test_a_teaching_has_the_text_and_the_marks_of_its_crystal(memory: mica.Memory) -> None:
    """keeps: B-30"""
    made = await crystal_of_session(memory)

    teaching = await memory.crystals.promote(made.id, by="ann", reason="it cost us a day")

    assert teaching.content == made.insight
    assert teaching.principles == made.principles
    assert teaching.source == f"witness:crystal:{made.id}"
    assert (teaching.by, teaching.reason) == ("ann", "it cost us a day")
    assert await memory.crystals.teachings() == [teaching]
    assert await memory.crystals.promote(f"#{made.position}", by="bob") == teaching


async def test_a_teaching_survives_a_restart(tmp_path: Path, home: Settings) -> None:
    """keeps: TB-14"""
    async with mica.open(tmp_path / "space.db", settings=home) as memory:
        made = await crystal_of_session(memory)
        teaching = await memory.crystals.promote(made.id, by="ann")

    async with mica.open(tmp_path / "space.db", settings=home) as memory:
        assert await memory.crystals.teachings() == [teaching]
        assert await memory.upkeep.rebuild() > 0
        assert await memory.crystals.teachings() == [teaching]
        assert await memory.upkeep.verify() == []


async def test_each_run_promotes_at_most_the_three_best_crystals(memory: mica.Memory) -> None:
    """keeps: B-55"""
    for number in range(4):
        await crystal_of_session(memory, f"s{number}", confidence=0.9 + number / 100)
    await crystal_of_session(memory, "doubtful", confidence=0.8)

    assert [each.crystal.period for each in await memory.crystals.candidates()] == [
        f"session:s{n}" for n in (3, 2, 1, 0)
    ]
    first = await memory.crystals.promote_best()
    second = await memory.crystals.promote_best()

    assert [teaching.period for teaching in first] == ["session:s3", "session:s2", "session:s1"]
    assert [teaching.period for teaching in second] == ["session:s0"]
    assert {teaching.by for teaching in first} == {"rule"}
    assert await memory.crystals.candidates() == []
    assert await memory.crystals.promote_best() == []


async def test_a_rule_does_not_promote_a_withdrawn_teaching_again(memory: mica.Memory) -> None:
    made = await crystal_of_session(memory)
    teaching = await memory.crystals.promote(made.id, by="ann")

    ended = await memory.crystals.withdraw(teaching.id, reason="the proxy was replaced")

    assert ended.ended == "withdrawn: the proxy was replaced"
    assert await memory.crystals.teachings() == []
    assert await memory.crystals.teachings(with_ended=True) == [ended]
    assert await memory.crystals.withdraw(teaching.id, reason="again") == ended
    assert await memory.crystals.candidates() == []
    again = await memory.crystals.promote(made.id, by="ann")
    assert again.id != teaching.id
    assert await memory.crystals.teachings() == [again]


async def test_a_later_revision_replaces_an_earlier_teaching(memory: mica.Memory) -> None:
    made = await crystal_of_session(memory)
    old = await memory.crystals.promote(made.id, by="ann")
    revised = await memory.crystals.commit(
        [("The proxy drops cookies", made.sources[2:4])], sources=made.sources, period=made.period
    )

    assert [each.superseded_by for each in await memory.crystals.teachings()] == [revised.id]
    new = await memory.crystals.promote(revised.id, by="ann")

    assert await memory.crystals.teachings() == [new]
    assert [each.id for each in await memory.crystals.teachings(with_ended=True)] == [old.id, new.id]
    with pytest.raises(mica.InvalidInput, match=f"superseded or retracted and cannot be promoted; {revised.id}"):
        await memory.crystals.promote(made.id, by="ann")


async def test_a_rule_promotes_a_later_revision_unless_the_earlier_one_was_withdrawn(memory: mica.Memory) -> None:
    kept, refused = await crystal_of_session(memory, "kept"), await crystal_of_session(memory, "refused")
    await memory.crystals.promote(kept.id, by="ann")
    await memory.crystals.withdraw((await memory.crystals.promote(refused.id, by="ann")).id, reason="wrong")

    for made in (kept, refused):
        await memory.crystals.commit(
            [(made.text, made.insight[0].sources)],
            principles=[(rule.text, rule.sources) for rule in made.principles],
            topics=made.topics,
            sources=made.sources,
            period=made.period,
            confidence=0.95,
        )

    assert [teaching.period for teaching in await memory.crystals.promote_best()] == ["session:kept"]
    assert await memory.crystals.candidates() == []


async def test_a_teaching_ends_with_a_retracted_mark_or_crystal(memory: mica.Memory) -> None:
    one, two = await crystal_of_session(memory, "s1"), await crystal_of_session(memory, "s2")
    await memory.crystals.promote(one.id, by="ann")
    await memory.crystals.promote(two.id, by="ann")

    await memory.retract(one.sources[0], reason="wrong")
    await memory.retract(two.id, reason="wrong")

    assert await memory.crystals.teachings() == []
    assert [each.ended for each in await memory.crystals.teachings(with_ended=True)] == [
        "a mark that it cites was retracted",
        "its crystal was retracted",
    ]


@pytest.mark.parametrize("what", ["mark", "crystal"])
async def test_a_purge_removes_crystals_and_teachings_based_on_purged_marks(memory: mica.Memory, what: str) -> None:
    """No statement outlives the mark that it quotes."""
    made, other = await crystal_of_session(memory, "s1"), await crystal_of_session(memory, "s2")
    teaching = await memory.crystals.promote(made.id, by="ann")
    kept = await memory.crystals.promote(other.id, by="ann")
    gone = made.sources[0] if what == "mark" else made.id

    tried = await memory.purge(ids=[gone], dry_run=True)
    purged = await memory.purge(ids=[gone])

    assert tried.names == purged.names
    assert purged.names["crystal.made"] == 1
    assert purged.names[PROMOTED] == 1
    assert set(purged.ids) == {gone, made.id, teaching.id}
    assert await memory.crystals.teachings(with_ended=True) == [kept]
    again = [each for each in await memory.crystals.list() if each.id != other.id]
    assert [each.sources for each in again] == ([made.sources[1:]] if what == "mark" else [])
    if what == "mark":
        left = [event async for event in memory.events.log()]
        assert not any(f"{RULES[0]} (s1)".encode() in event.body for event in left)


async def test_promoting_a_crystal_that_is_being_purged_is_refused_with_advice(
    memory: mica.Memory, clock: HandClock
) -> None:
    made = await crystal_of_session(memory)
    clock.move(minutes=5)
    await memory.purge(agent="editor")
    clock.move(minutes=-1)  # by the clock of another machine, or of a process that was slow

    with memory.context(agent="editor"), pytest.raises(mica.InvalidInput, match="purged while it was promoted"):
        await memory.crystals.promote(made.id, by="ann")

    assert await memory.crystals.teachings() == []


async def test_two_concurrent_promotions_of_a_crystal_make_one_teaching(tmp_path: Path, home: Settings) -> None:
    async with mica.open(tmp_path / "space.db", settings=home) as one, mica.open(one.location, settings=home) as two:
        made = await crystal_of_session(one)

        both = await asyncio.gather(
            *(memory.crystals.promote(made.id, by=who) for memory, who in ((one, "ann"), (two, "bob")))
        )

        assert both[0] == both[1]
        assert await one.crystals.teachings() == [both[0]]


async def test_a_reference_that_is_not_a_teaching_is_refused(memory: mica.Memory) -> None:
    mark = memory.mark("The cookie is set before the redirect")
    made = await crystal_of_session(memory)

    with pytest.raises(mica.InvalidInput, match="only crystals are promoted"):
        await memory.crystals.promote(mark.id)
    for reference, kind in ((mark.id, "mark"), (made.id, "crystal")):
        with pytest.raises(
            mica.InvalidInput, match=rf"event #\d+ is a {kind}, not a teaching; `mica crystals teachings` lists"
        ):
            await memory.crystals.withdraw(reference, reason="no teaching")
    teaching = await memory.crystals.promote(made.id, by="ann")
    with pytest.raises(mica.InvalidInput, match=f"is a crystal, not a teaching; its teaching is #{teaching.position}$"):
        await memory.crystals.withdraw(made.id, reason="the number of its crystal")
    for name in (PROMOTED, WITHDRAWN):
        memory.emit(name, {"content": "anything"})
        with pytest.raises(mica.InvalidEvent, match="teaching"):
            await memory.crystals.teachings()

    assert await memory.crystals.teachings() == [teaching]
    assert len(await memory.events.query(EventQuery(names=("event.refused",)))) == 2
    with pytest.raises(mica.InvalidEvent, match="is not a teaching"):
        teaching_of(await memory.events.get(mark.id))


async def test_a_teaching_enters_briefs_until_it_is_withdrawn(memory: mica.Memory) -> None:
    """keeps: B-30"""
    made = await crystal_of_session(memory)
    teaching = await memory.crystals.promote(made.id, by="ann")
    memory.mark("Something about invoices and nothing else")

    for query in ("", "cookies after a redirect", "invoices"):
        brief = await memory.brief(query, budget_tokens=2_000)
        taught = [passage for passage in brief.passages if passage.sources[0] == teaching.id]
        assert {passage.source for passage in taught} == {"beliefs"}
        assert all(made.id in passage.sources for passage in taught)
        [rule] = [passage for passage in taught if passage.section == "rules"]
        assert RULES[0] in rule.text
    await memory.crystals.withdraw(teaching.id, reason="fixed")

    assert not [each for each in (await memory.brief("")).passages if teaching.id in each.sources]


async def test_a_crystal_that_lost_a_source_is_not_taught(home: Settings, tmp_path: Path) -> None:
    """keeps: B-30. It is taught again once it has been rebuilt."""
    settings = msgspec.structs.replace(home, crystals=CrystalSettings(auto=False))
    async with mica.open(tmp_path / "space.db", settings=settings) as memory:
        made = await crystal_of_session(memory)
        await memory.retract(made.sources[-1], reason="it was not so")

        with pytest.raises(mica.InvalidInput, match="has a source that was retracted"):
            await memory.crystals.promote(made.id)
        assert await memory.crystals.teachings() == []

"""Teachings: promoted crystals, kept in the log until they are withdrawn or lose what they rest on."""

from __future__ import annotations

import asyncio
from pathlib import Path

import msgspec
import pytest

import mica
from mica.model.crystal import LEVELS, Crystal, Level, Statement
from mica.model.event import EMPTY, EventId, EventQuery
from mica.model.teaching import PROMOTED, SHARE_MIN, WITHDRAWN, passing, score, score_max, teaching_of
from mica.settings import CrystalSettings, Settings
from mica.testing import HandClock

RULES = ("Set cookies after the last redirect", "Never trust the session id of a redirected request")


async def crystal_of_session(
    memory: mica.Memory, session: str = "s1", *, marks: int = 20, confidence: float = 0.9
) -> Crystal:
    """A crystal that an agent wrote of its own marks: it passes the gate when they are enough."""
    with memory.context(session=session, agent="scout"):
        texts = [*RULES, *(f"The proxy dropped cookie {number} of the login page" for number in range(marks - 2))]
        ids = [memory.mark(f"{text} ({session})").id for text in texts]
        return await memory.commit_crystal(
            [("The proxy drops cookies", ids[2:4])],
            principles=[(RULES[0], ids[:1]), (RULES[1], ids[1:2])],
            topics=("cookie", "proxy", "redirect"),
            sources=ids,
            period=f"session:{session}",
            confidence=confidence,
        )


def crystal(
    level: Level = "session", *, marks: int = 20, confidence: float = 0.9, principles: int = 2, topics: int = 3
) -> Crystal:
    clock = HandClock()
    statement = ("It is so", (EventId("m"),))
    return Crystal(
        id=EventId("c"),
        made_at=clock(),
        context=EMPTY,
        level=level,
        period=f"{level}:x",
        insight=(Statement(*statement),),
        principles=tuple(Statement(f"Rule {number}", (EventId("m"),)) for number in range(principles)),
        topics=tuple(f"t{number}" for number in range(topics)),
        sources=(EventId("m"),),
        start_at=clock(),
        end_at=clock(),
        tokens=1,
        source_tokens=2,
        method="test",
        marks=marks,
        confidence=confidence,
    )


@pytest.mark.parametrize("level", LEVELS)
def test_every_level_can_pass_the_gate_and_none_passes_without_rules(level: Level) -> None:
    """K-14, TB-14, B-55"""
    best = crystal(level, confidence=1.0)

    assert score(best) == score_max(level)
    assert [candidate.share for candidate in passing([best])] == [1.0]
    assert passing([crystal(level, confidence=0.86)])
    assert not passing([crystal(level, confidence=0.84)])
    assert not passing([crystal(level, marks=4)])


def test_the_score_is_that_of_the_design() -> None:
    """B-55"""
    assert score(crystal("session", confidence=0.5, marks=10, principles=1, topics=2)) == pytest.approx(0.25)
    assert score(crystal("session", confidence=1.0)) == pytest.approx(0.65)
    assert score(crystal("day", confidence=1.0)) == pytest.approx(0.75)
    assert score(crystal("week", confidence=1.0)) == pytest.approx(0.95)
    assert score(crystal("epoch", confidence=1.0)) == pytest.approx(1.15)
    assert not passing([crystal("session", principles=1)])
    assert SHARE_MIN == 0.85


async def test_a_teaching_says_what_its_crystal_said_with_the_same_marks(memory: mica.Memory) -> None:
    """B-30"""
    made = await crystal_of_session(memory)

    teaching = await memory.promote(made.id, by="ann", reason="it cost us a day")

    assert teaching.content == made.insight
    assert teaching.principles == made.principles
    assert teaching.source == f"witness:crystal:{made.id}"
    assert (teaching.by, teaching.reason) == ("ann", "it cost us a day")
    assert await memory.teachings() == [teaching]
    assert await memory.promote(f"#{made.position}", by="bob") == teaching


async def test_a_teaching_is_there_after_a_restart(tmp_path: Path, home: Settings) -> None:
    """TB-14"""
    async with mica.open(tmp_path / "space.db", settings=home) as memory:
        made = await crystal_of_session(memory)
        teaching = await memory.promote(made.id, by="ann")

    async with mica.open(tmp_path / "space.db", settings=home) as memory:
        assert await memory.teachings() == [teaching]
        assert await memory.rebuild() > 0
        assert await memory.teachings() == [teaching]
        assert await memory.verify() == []


async def test_a_run_promotes_the_three_best_and_the_next_run_the_rest(memory: mica.Memory) -> None:
    """B-55"""
    for number in range(4):
        await crystal_of_session(memory, f"s{number}", confidence=0.9 + number / 100)
    await crystal_of_session(memory, "doubtful", confidence=0.8)

    assert [each.crystal.period for each in await memory.candidates()] == [f"session:s{n}" for n in (3, 2, 1, 0)]
    first = await memory.auto_promote()
    second = await memory.auto_promote()

    assert [teaching.period for teaching in first] == ["session:s3", "session:s2", "session:s1"]
    assert [teaching.period for teaching in second] == ["session:s0"]
    assert {teaching.by for teaching in first} == {"rule"}
    assert await memory.candidates() == []
    assert await memory.auto_promote() == []


async def test_what_was_withdrawn_is_not_promoted_again_by_a_rule(memory: mica.Memory) -> None:
    made = await crystal_of_session(memory)
    teaching = await memory.promote(made.id, by="ann")

    ended = await memory.withdraw(teaching.id, reason="the proxy was replaced")

    assert ended.ended == "withdrawn: the proxy was replaced"
    assert await memory.teachings() == []
    assert await memory.teachings(with_ended=True) == [ended]
    assert await memory.withdraw(teaching.id, reason="again") == ended
    assert await memory.candidates() == []
    again = await memory.promote(made.id, by="ann")
    assert again.id != teaching.id
    assert await memory.teachings() == [again]


async def test_a_later_revision_takes_the_place_of_an_earlier_teaching(memory: mica.Memory) -> None:
    made = await crystal_of_session(memory)
    old = await memory.promote(made.id, by="ann")
    revised = await memory.commit_crystal(
        [("The proxy drops cookies", made.sources[2:4])], sources=made.sources, period=made.period
    )

    assert [each.superseded_by for each in await memory.teachings()] == [revised.id]
    new = await memory.promote(revised.id, by="ann")

    assert await memory.teachings() == [new]
    assert [each.id for each in await memory.teachings(with_ended=True)] == [old.id, new.id]
    with pytest.raises(mica.InvalidInput, match=f"superseded or retracted and cannot be taught; {revised.id}"):
        await memory.promote(made.id, by="ann")


async def test_a_rule_promotes_a_later_revision_unless_somebody_withdrew_the_earlier_one(memory: mica.Memory) -> None:
    kept, refused = await crystal_of_session(memory, "kept"), await crystal_of_session(memory, "refused")
    await memory.promote(kept.id, by="ann")
    await memory.withdraw((await memory.promote(refused.id, by="ann")).id, reason="wrong")

    for made in (kept, refused):
        await memory.commit_crystal(
            [(made.text, made.insight[0].sources)],
            principles=[(rule.text, rule.sources) for rule in made.principles],
            topics=made.topics,
            sources=made.sources,
            period=made.period,
            confidence=0.95,
        )

    assert [teaching.period for teaching in await memory.auto_promote()] == ["session:kept"]
    assert await memory.candidates() == []


async def test_a_teaching_ends_with_a_retracted_mark_or_crystal(memory: mica.Memory) -> None:
    one, two = await crystal_of_session(memory, "s1"), await crystal_of_session(memory, "s2")
    await memory.promote(one.id, by="ann")
    await memory.promote(two.id, by="ann")

    await memory.retract(one.sources[0], reason="wrong")
    await memory.retract(two.id, reason="wrong")

    assert await memory.teachings() == []
    assert [each.ended for each in await memory.teachings(with_ended=True)] == [
        "a mark that it cites was retracted",
        "its crystal was retracted",
    ]


@pytest.mark.parametrize("what", ["mark", "crystal"])
async def test_a_purge_takes_crystals_and_teachings_that_rest_on_what_goes(memory: mica.Memory, what: str) -> None:
    """Forgetting cascades: no statement outlives the mark that it quotes."""
    made, other = await crystal_of_session(memory, "s1"), await crystal_of_session(memory, "s2")
    teaching = await memory.promote(made.id, by="ann")
    kept = await memory.promote(other.id, by="ann")
    gone = made.sources[0] if what == "mark" else made.id

    tried = await memory.purge(ids=[gone], dry_run=True)
    purged = await memory.purge(ids=[gone])

    assert tried.names == purged.names
    assert purged.names["crystal.made"] == 1
    assert purged.names[PROMOTED] == 1
    assert set(purged.ids) == {gone, made.id, teaching.id}
    assert await memory.teachings(with_ended=True) == [kept]
    again = [each for each in await memory.crystals() if each.id != other.id]
    assert [each.sources for each in again] == ([made.sources[1:]] if what == "mark" else [])
    if what == "mark":
        left = [event async for event in memory.log()]
        assert not any(f"{RULES[0]} (s1)".encode() in event.body for event in left)


async def test_a_teaching_that_a_purge_takes_before_it_arrives_is_refused_in_words(
    memory: mica.Memory, clock: HandClock
) -> None:
    made = await crystal_of_session(memory)
    clock.move(minutes=5)
    await memory.purge(agent="editor")
    clock.move(minutes=-1)  # by the clock of another machine, or of a process that was slow

    with memory.context(agent="editor"), pytest.raises(mica.InvalidInput, match="purged while it was promoted"):
        await memory.promote(made.id, by="ann")

    assert await memory.teachings() == []


async def test_two_who_promote_one_crystal_at_once_make_one_teaching(tmp_path: Path, home: Settings) -> None:
    async with mica.open(tmp_path / "space.db", settings=home) as one, mica.open(one.location, settings=home) as two:
        made = await crystal_of_session(one)

        both = await asyncio.gather(*(memory.promote(made.id, by=who) for memory, who in ((one, "ann"), (two, "bob"))))

        assert both[0] == both[1]
        assert await one.teachings() == [both[0]]


async def test_what_is_no_teaching_is_refused(memory: mica.Memory) -> None:
    mark = memory.mark("The cookie is set before the redirect")
    made = await crystal_of_session(memory)

    with pytest.raises(mica.InvalidInput, match="only crystals are promoted"):
        await memory.promote(mark.id)
    for reference, kind in ((mark.id, "mark"), (made.id, "crystal")):
        with pytest.raises(mica.InvalidInput, match=rf"event #\d+ is a {kind}, no teaching; `mica teachings` lists"):
            await memory.withdraw(reference, reason="no teaching")
    teaching = await memory.promote(made.id, by="ann")
    with pytest.raises(mica.InvalidInput, match=f"is a crystal, no teaching; its teaching is #{teaching.position}$"):
        await memory.withdraw(made.id, reason="the number of its crystal")
    for name in (PROMOTED, WITHDRAWN):
        memory.emit(name, {"content": "anything"})
        with pytest.raises(mica.InvalidEvent, match="teaching"):
            await memory.teachings()

    assert await memory.teachings() == [teaching]
    assert len(await memory.events(EventQuery(names=("event.refused",)))) == 2
    with pytest.raises(mica.InvalidEvent, match="is not a teaching"):
        teaching_of(await memory.event(mark.id))


async def test_a_teaching_enters_briefs_until_it_is_withdrawn(memory: mica.Memory) -> None:
    """B-30"""
    made = await crystal_of_session(memory)
    teaching = await memory.promote(made.id, by="ann")
    memory.mark("Something about invoices and nothing else")

    for query in ("", "cookies after a redirect", "invoices"):
        brief = await memory.brief(query, budget_tokens=2_000)
        [taught] = [passage for passage in brief.passages if passage.kind == "teaching"]
        assert taught.sources[:2] == (teaching.id, made.id)
        assert RULES[0] in taught.text
        shown = {passage.sources[0] for passage in brief.passages}
        cited = {mark for statement in teaching.statements for mark in statement.sources}
        assert query == "invoices" or shown.isdisjoint(cited), "a teaching stands beside the marks it quotes"
    await memory.withdraw(teaching.id, reason="fixed")

    assert not [each for each in (await memory.brief("")).passages if each.kind == "teaching"]


async def test_a_crystal_that_lost_a_source_is_not_taught(home: Settings, tmp_path: Path) -> None:
    """B-30, B-43: until it is made anew."""
    settings = msgspec.structs.replace(home, crystals=CrystalSettings(auto=False))
    async with mica.open(tmp_path / "space.db", settings=settings) as memory:
        made = await crystal_of_session(memory)
        await memory.retract(made.sources[-1], reason="it was not so")

        with pytest.raises(mica.InvalidInput, match="rests on something that was retracted"):
            await memory.promote(made.id)
        assert await memory.teachings() == []

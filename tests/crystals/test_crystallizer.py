"""Crystallization from marks to every level, through the public API and on every engine."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from hashlib import blake2b
from pathlib import Path

import msgspec
import pytest
from tests.crystals.working_days import MONDAY, NOTES, OTHER, observe

import mica
from mica.crystals.crystallizer import extractive
from mica.crystals.digest import Digest, DigestSource
from mica.crystals.requests import Crystallized, CrystalScope, Digester
from mica.errors import InvalidEvent, InvalidInput, InvalidSettings, LawBroken, UnknownEvent
from mica.model.crystal import Crystal, CrystalQuery, Level
from mica.model.event import EventId, EventQuery
from mica.model.mark import Mark
from mica.settings import CrystalSettings, Settings
from mica.store.purges import PurgeMatch, Selection
from mica.testing import HandClock


@pytest.fixture
def home(home: Settings) -> Settings:
    return msgspec.structs.replace(home, time_zone="Europe/Berlin", crystals=CrystalSettings(auto=False))


digest_extractively = extractive()


async def make_with(memory: mica.Memory, digest: Digester) -> Crystallized:
    """Crystallize the sessions with another digester."""
    return await memory.crystals._make(CrystalScope(level="session", is_forced=True, digest=digest))


async def digests(memory: mica.Memory) -> dict[str, str]:
    marks = await memory.events.query(EventQuery(names=("mark",), limit=None))
    return {event.id: blake2b(event.body + repr(event.context).encode()).hexdigest() for event in marks}


async def test_sessions_days_weeks_and_epochs_are_crystallized_as_time_passes(
    memory: mica.Memory, clock: HandClock
) -> None:
    """keeps: B-02, B-19, K-15, TB-05, B-63. Levels are made in order, and marks are never changed."""
    before: dict[str, str] = {}  # of every mark, before a crystal could name it
    for day in range(15):
        clock.at = MONDAY + timedelta(days=day)
        observe(memory, clock, f"morning {day}")
        observe(memory, clock, f"noon {day}")
        before = await digests(memory) | before
        await memory.crystals.make_due()
    with memory.context(session="release"):
        memory.mark("Version 1.0 is out", tags=("milestone",))
    before = await digests(memory) | before
    clock.at = MONDAY + timedelta(days=23)

    await memory.crystals.make_due()

    found = await memory.crystals.list(limit=None)
    levels = {level: [each for each in found if each.level == level] for level in ("session", "day", "week", "epoch")}
    assert len([each for each in levels["session"] if each.period.startswith("session:")]) == 30
    assert [each.period for each in levels["day"]][:2] == ["day:2026-11-02", "day:2026-11-03"]
    assert [each.period for each in levels["week"]] == ["week:2026-W45", "week:2026-W46", "week:2026-W47"]
    assert len(levels["epoch"]) == 1
    assert levels["epoch"][0].marks == 180
    [alone] = await memory.crystals.waiting()
    assert (alone.period, alone.reason) == ("pool:2026-11-16", "its sources are too short to be summarized")
    assert await memory.crystals.make_due() == []
    assert await digests(memory) == before
    assert await memory.upkeep.verify() == []


async def test_every_mark_is_reachable_from_the_one_crystal_of_its_week(memory: mica.Memory, clock: HandClock) -> None:
    """keeps: B-36, B-63. Each level has few crystals, and expanding them level by level ends at all marks."""
    for day in range(5):
        clock.at = MONDAY + timedelta(days=day)
        observe(memory, clock, f"morning {day}")
        observe(memory, clock, f"noon {day}")
    marks = {event.id for event in await memory.events.query(EventQuery(names=("mark",), limit=None))}
    clock.at = MONDAY + timedelta(days=8)
    await memory.crystals.make_due()

    layer: list[Crystal | Mark] = list(await memory.crystals.list(level="week"))
    sizes = [len(layer)]
    while crystals := [each for each in layer if isinstance(each, Crystal)]:
        layer = [source for crystal in crystals for source in await memory.crystals.expand(crystal.id)]
        sizes.append(len(layer))

    assert sizes == [1, 5, 10, len(marks)]
    assert {mark.id for mark in layer} == marks


async def test_every_statement_of_a_crystal_quotes_the_marks_it_cites(memory: mica.Memory, clock: HandClock) -> None:
    """keeps: B-62, B-63, M-17, TB-10.

    A line of a day begins with the title of its session. Marks that are not cited are listed with the reason.
    """
    observe(memory, clock, "s1")
    observe(memory, clock, "s2")
    texts = {event.id: str(event.data["text"]) for event in await memory.events.query(EventQuery(names=("mark",)))}

    made = await memory.crystals.make(level="week")
    titles = [each.label for each in made if each.level == "session"]
    assert all(titles)
    for crystal in made:
        assert crystal.method == "extractive-2"
        for statement in crystal.statements:
            quoted = statement.text.rpartition(f"{titles[0]}: ")[2] if crystal.level == "day" else statement.text
            quoted = quoted.partition(f"{titles[-1]}: ")[2] or quoted
            assert any(quoted.rstrip(".") in texts[cited] for cited in statement.sources), statement
        beneath = await memory.crystals.expand(crystal.id)
        cited = {each for statement in crystal.statements for each in statement.sources}
        for source in beneath:
            rests = {source.id} if isinstance(source, mica.Mark) else {x for s in source.statements for x in s.sources}
            assert bool(rests & cited) != (source.id in {each.id for each in crystal.dropped})
        assert crystal.tokens < crystal.source_tokens


async def test_crystallizing_twice_makes_no_new_crystal(memory: mica.Memory, clock: HandClock) -> None:
    """keeps: TB-06. This holds for scheduled runs and for explicit requests."""
    observe(memory, clock, "s1")
    assert len(await memory.crystals.make()) == 1
    assert await memory.crystals.make() == []
    clock.move(days=1)
    assert [crystal.level for crystal in await memory.crystals.make_due()] == ["day"]
    assert await memory.crystals.make_due() == []


async def test_the_same_marks_give_the_same_crystal(memory: mica.Memory, clock: HandClock) -> None:
    """keeps: TB-15.

    The list of dropped marks is equal byte for byte too; a dry run shows the crystal and records nothing.
    """
    observe(memory, clock, "s1")
    [shown] = await memory.crystals.make(dry_run=True)
    assert await memory.crystals.list() == []
    [made] = await memory.crystals.make()
    for name in ("insight", "principles", "significance", "topics", "mood", "dropped", "tokens", "confidence"):
        assert getattr(shown, name) == getattr(made, name)


async def test_a_late_mark_revises_its_crystals_at_every_level(memory: mica.Memory, clock: HandClock) -> None:
    """keeps: K-19, K-20. The earlier revisions stay in the log, superseded."""
    observe(memory, clock, "s1")
    observe(memory, clock, "s2")
    first = {crystal.period: crystal for crystal in await memory.crystals.make(level="week")}
    with memory.context(session="s1", agent="scout"):
        late = memory.mark("The secret in the vault expires in March", at=clock())
    clock.move(days=10)

    again = {crystal.period: crystal for crystal in await memory.crystals.make_due()}

    assert set(again) == {"session:s1", "day:2026-11-02", "week:2026-W45"}
    for period, crystal in again.items():
        assert crystal.supersedes == (first[period].id,)
        assert crystal.revision == 2
    assert late.id in again["session:s1"].sources
    assert first["session:s2"].id in again["day:2026-11-02"].sources
    assert len(await memory.crystals.list(level="day")) == 1
    assert (await memory.crystals.get(first["day:2026-11-02"].id)).insight == first["day:2026-11-02"].insight
    assert await memory.upkeep.verify() == []


async def test_a_retracted_mark_disappears_from_its_crystals(memory: mica.Memory, clock: HandClock) -> None:
    """keeps: B-43. No search finds it and no crystal quotes it; it stays in the log."""
    refs = observe(memory, clock, "s1")
    observe(memory, clock, "s2")
    await memory.crystals.make(level="day")
    wrong = (await memory.crystals.list(level="session"))[0].insight[0].sources[0]

    await memory.retract(wrong, reason="it was the proxy")
    for _ in range(3):
        await memory.crystals.make_due()

    for crystal in await memory.crystals.list(limit=None):
        assert wrong not in crystal.sources
        assert all(wrong not in statement.sources for statement in crystal.statements)
    assert wrong not in [hit.id for hit in await memory.search("cookie secret vault")]
    assert (await memory.events.get(wrong)).name == "mark"
    with pytest.raises(InvalidInput, match="only marks, crystals"):
        await memory.retract((await memory.events.query(EventQuery(names=("mark.retracted",))))[0].id, reason="no")
    for ref in refs:
        if ref.id != wrong:
            await memory.retract(ref.id, reason="all of it")
    await memory.crystals.make_due()
    assert "session:s1" not in [crystal.period for crystal in await memory.crystals.list(limit=None)]
    assert await memory.upkeep.verify() == []


async def test_a_purge_removes_text_from_every_level_for_good(memory: mica.Memory, clock: HandClock) -> None:
    """keeps: K-53. No crystal quotes the purged text, even after repeated runs; affected crystals are rebuilt."""
    observe(memory, clock, "s1")
    observe(memory, clock, "s2", texts=OTHER)
    clock.move(days=9)
    await memory.crystals.make_due()
    quoted = next(each for each in await memory.crystals.list(level="week")).insight[0]

    await memory.purge(ids=[quoted.sources[0]], reason="leaked")
    for _ in range(3):
        await memory.crystals.make_due()
        await memory.upkeep.rebuild()

    left = await memory.crystals.list(limit=None)
    assert {"session", "day", "week"} <= {crystal.level for crystal in left}
    for event in await memory.events.query(EventQuery(limit=None)):
        assert quoted.text not in event.body.decode()
    assert quoted.sources[0] not in {each for crystal in left for each in crystal.sources}
    assert await memory.upkeep.verify() == []


async def test_a_retraction_or_purge_rebuilds_only_the_crystals_it_affects(
    memory: mica.Memory, clock: HandClock
) -> None:
    """keeps: K-53. Periods that were not crystallized yet wait as before, so a purge does not have to make them."""
    memory.crystals._settings = CrystalSettings(auto=True)
    first = observe(memory, clock, "s1")
    clock.move(days=1)
    await memory.purge(ids=[first[0].id])
    await memory.retract(first[1].id, reason="wrong")
    assert await memory.crystals.list(limit=None) == []

    second = observe(memory, clock, "s2", texts=OTHER)
    clock.move(days=9)
    await memory.crystals.make_due()
    observe(memory, clock, "s3", texts=OTHER)
    clock.move(days=9)
    await memory.purge(ids=[second[0].id])
    await memory.retract(second[1].id, reason="wrong")

    left = await memory.crystals.list(limit=None)
    assert {each.period for each in left} == {
        *("pool:2026-11-02", "session:s2", "day:2026-11-02", "day:2026-11-03", "week:2026-W45")
    }
    assert {each.id for each in second[2:]} == {
        source for each in left if each.period == "session:s2" for source in each.sources
    }
    assert {each.period for each in await memory.crystals.make_due()} == {
        *("session:s3", "day:2026-11-12", "week:2026-W46")
    }
    assert await memory.upkeep.verify() == []


async def test_a_tree_of_marks_gets_a_crystal_of_its_own(memory: mica.Memory, clock: HandClock) -> None:
    """keeps: B-20, B-24.

    One crystal covers a root mark and everything below it; it is made again only when marks were added.
    """
    with memory.context(session="s1"):
        root = memory.mark(NOTES[0])
        for text in NOTES[1:]:
            clock.move(seconds=1)
            memory.mark(text, parent=root)
        memory.mark("Something else altogether")
    [tree] = await memory.crystals.make(tree=root.id)
    assert (tree.period, len(tree.sources)) == (f"tree:{root.id}", 6)
    assert await memory.crystals.make(tree=root.id) == []
    assert len(await memory.crystals.make()) == 1
    memory.mark("And the proxy keeps the old cookie for a day, so users must log in again", parent=root)
    [again] = await memory.crystals.make(tree=root.id)
    assert (len(again.sources), again.supersedes) == (7, (tree.id,))
    plain = memory.emit("file.read", {"path": "a.py"})
    with pytest.raises(InvalidInput, match="no mark"):
        await memory.crystals.make(tree=plain.id)
    with pytest.raises(UnknownEvent):
        await memory.crystals.make(tree=EventId(f"{root.id[:-1]}f"))


async def test_an_agent_can_commit_its_own_crystal(memory: mica.Memory, clock: HandClock) -> None:
    """keeps: K-17. It must obey the same laws as every other crystal."""
    refs = observe(memory, clock, "s1")
    ids = [ref.id for ref in refs]
    insight = [("Login lost its session because the cookie was set before the redirect.", ids[:2])]
    with memory.context(session="s1", agent="scout"):
        crystal = await memory.crystals.commit(insight, sources=ids, period="session:s1", topics=["login"])
    assert (crystal.method, crystal.revision, len(crystal.dropped)) == ("committed:scout", 1, 4)
    assert await memory.crystals.list() == [crystal]
    for broken, law in (
        ({"insight": [("Invented.", [])]}, "provenance"),
        ({"insight": [("Invented.", [f"{ids[0][:-1]}f"])]}, "provenance"),
        ({"sources": []}, "provenance"),
        ({"sources": [crystal.id]}, "levels"),
        ({"insight": [("word " * 500, ids[:1])]}, "compression"),
    ):
        arguments: dict[str, object] = {"insight": insight, "sources": ids, "period": "session:s1", **broken}
        with pytest.raises(LawBroken) as refused:
            await memory.crystals.commit(**arguments)  # type: ignore[arg-type]  # one table for all kinds
        assert refused.value.law == law
    for confidence in (2, -0.1):
        with pytest.raises(
            InvalidInput, match=f"a confidence of {confidence} is not possible; give a number from 0 to 1"
        ):
            await memory.crystals.commit(insight, sources=ids, period="session:s1", confidence=confidence)
    with pytest.raises(LawBroken) as overlapping:
        await memory.crystals.commit(insight, sources=ids, period="pool:2026-11-02")
    assert overlapping.value.law == "overlap"
    again = await memory.crystals.commit(insight, sources=ids, period="session:s1")
    assert (again.revision, again.supersedes) == (2, (crystal.id,))


async def test_a_resumed_session_is_open_again(memory: mica.Memory, clock: HandClock) -> None:
    """keeps: B-08. A session that ended is closed only until the next mark in it."""
    observe(memory, clock, "s1")
    with memory.context(session="s1"):
        memory.emit("session.ended")
    assert [crystal.period for crystal in await memory.crystals.make_due()] == ["session:s1"]
    clock.move(minutes=1)
    with memory.context(session="s1"):
        memory.mark("One more thing about the vault")
    assert await memory.crystals.make_due() == []
    assert [(each.period, each.reason) for each in await memory.crystals.waiting()] == [
        ("session:s1", "the session is still active"),
        ("day:2026-11-02", "the day is not over"),
    ]


async def test_a_reference_that_is_not_a_crystal_is_refused(memory: mica.Memory) -> None:
    ref = memory.mark("one")
    with pytest.raises(InvalidEvent, match="not a crystal"):
        await memory.crystals.expand(ref.id)
    with pytest.raises(UnknownEvent):
        await memory.crystals.get("999")
    with pytest.raises(InvalidInput, match="level"):
        await memory.crystals.list(level="year")  # type: ignore[arg-type]


async def test_a_crystal_is_dropped_when_too_little_of_it_remains(memory: mica.Memory, clock: HandClock) -> None:
    """keeps: B-43.

    If no shorter digest of the remaining marks exists, the crystal is removed and no higher level quotes it.
    """
    refs = observe(memory, clock, "s1", texts=NOTES[:5])
    await memory.crystals.make()
    for ref in refs[1:]:
        await memory.retract(ref.id, reason="wrong")
    brief = await memory.brief(budget_tokens=2_000)
    assert [passage for passage in brief.passages if passage.source == "crystals"] == []
    await memory.crystals.make(level="week")
    gone = {ref.id for ref in refs[1:]}
    for crystal in await memory.crystals.list(limit=None):
        assert not gone.intersection(crystal.sources)
        assert all(gone.isdisjoint(statement.sources) for statement in crystal.statements)


async def test_a_retracted_crystal_is_not_made_again(memory: mica.Memory, clock: HandClock) -> None:
    """keeps: B-43. A later mark changes its content, and then a new one is made."""
    observe(memory, clock, "s1")
    [crystal] = await memory.crystals.make()
    await memory.retract(crystal.id, reason="it misses the point")
    clock.move(days=1)
    for _ in range(2):
        assert await memory.crystals.make_due() == []
    assert [each.reason for each in await memory.crystals.waiting()] == ["its crystal was retracted"]
    with memory.context(session="s1"):
        memory.mark("The proxy was the cause all along, and it keeps cookies for a day", at=clock() - timedelta(days=1))
    assert [each.level for each in await memory.crystals.make_due()][:1] == ["session"]


@pytest.mark.parametrize("verb", ["retract", "purge"])
async def test_marks_left_over_after_a_retraction_do_not_wait_forever(
    memory: mica.Memory, clock: HandClock, verb: str
) -> None:
    """keeps: B-43, K-53. Neither a session nor a tree waits forever or relies on a retracted mark."""
    memory.crystals._settings = CrystalSettings()
    with memory.context(session="s1"):
        root = memory.mark(NOTES[0])
        for text in NOTES[1:]:
            memory.mark(text, parent=root)
    for crystal in await memory.crystals.make() + await memory.crystals.make(tree=root.id):
        await memory.retract(crystal.id, reason="it misses the point")
    clock.move(minutes=1)
    with memory.context(session="s1"):
        late = memory.mark("The proxy was the cause all along, and it keeps cookies for a day", parent=root)
    again = await memory.crystals.make(level="day") + await memory.crystals.make(tree=root.id)
    assert len(again) == 3

    await (memory.retract(late.id, reason="wrong") if verb == "retract" else memory.purge(ids=[late.id]))
    clock.move(days=8)

    assert await memory.crystals.make_due() == []
    assert await memory.crystals.list(limit=None) == []
    assert [(each.period, each.reason) for each in await memory.crystals.waiting()] == [
        ("session:s1", "its crystal was retracted")
    ]
    assert await memory.upkeep.verify() == []


async def test_a_failing_session_does_not_block_the_others(memory: mica.Memory, clock: HandClock) -> None:
    """keeps: K-56. The failing one stays in the waiting list with its reason."""
    observe(memory, clock, "s1")
    observe(memory, clock, "s2", texts=OTHER)

    async def digest(
        sources: Sequence[DigestSource], budget_tokens: int, *, task: str, marks: Sequence[Mark]
    ) -> tuple[Digest, str]:
        if "(s1)" in sources[0].text:
            raise InvalidInput("no words for it")
        return await digest_extractively(sources, budget_tokens, task=task, marks=marks)

    done = await make_with(memory, digest)

    assert [crystal.period for crystal in done.crystals] == ["session:s2"]
    assert [(each.period, each.reason) for each in done.waiting] == [("session:s1", "no words for it")]


async def test_a_session_of_long_sentences_gets_a_crystal(memory: mica.Memory, clock: HandClock) -> None:
    """keeps: B-17"""
    long = tuple(" ".join(f"{text.rstrip('.')} and then" for text in NOTES) + f" number {n}" for n in range(6))
    observe(memory, clock, "s1", texts=long)
    [crystal] = await memory.crystals.make()
    assert crystal.tokens < crystal.source_tokens


async def test_a_crystal_made_during_a_purge_is_purged_too(memory: mica.Memory, clock: HandClock) -> None:
    """keeps: K-53"""
    refs = observe(memory, clock, "s1")
    match = memory._purger._match

    async def match_late(selection: Selection) -> PurgeMatch:
        result = await match(selection)
        await memory.crystals.make(level="week")
        return result

    memory._purger._match = match_late  # type: ignore[method-assign]
    [first] = [event for event in await memory.events.query(EventQuery(names=("mark",))) if event.id == refs[0].id]
    await memory.purge(ids=[ref.id for ref in refs[:5]], reason="leaked")
    for event in await memory.events.query(EventQuery(names=("crystal.made",), limit=None)):
        assert not {ref.id for ref in refs[:5]}.intersection(str(event.data["sources"]).split("'"))
    assert str(first.data["text"])[:40] not in str([e.body for e in await memory.events.query(EventQuery(limit=None))])


async def test_a_crystal_whose_marks_are_purged_concurrently_is_postponed(
    memory: mica.Memory, clock: HandClock
) -> None:
    """keeps: K-53.

    The next run makes it from the remaining marks; a tombstone is never returned in place of a crystal.
    """
    refs = observe(
        memory, clock, "s1", texts=(*NOTES, "The token of staging is hunter2hunter2 and is read at the start.")
    )

    async def digest(
        sources: Sequence[DigestSource], budget_tokens: int, *, task: str, marks: Sequence[Mark]
    ) -> tuple[Digest, str]:
        result = await digest_extractively(sources, budget_tokens, task=task, marks=marks)
        await memory.purge(value="hunter2hunter2")
        return result

    done = await make_with(memory, digest)

    assert done.crystals == ()
    assert [each.reason for each in done.waiting] == ["a source was retracted, superseded or purged meanwhile"]
    [crystal] = await memory.crystals.make()
    assert crystal.sources == tuple(ref.id for ref in refs[:-1])


async def test_committing_a_crystal_of_purged_marks_is_refused_with_advice(
    memory: mica.Memory, clock: HandClock
) -> None:
    """keeps: K-53. An agent that wrote it before the purge learns the reason and what it can do."""
    ids = [ref.id for ref in observe(memory, clock, "s1")]
    clock.move(minutes=5)
    await memory.purge(agent="editor")
    clock.move(minutes=-1)  # by the clock of another machine, or of a process that was slow

    with (
        memory.context(agent="editor"),
        pytest.raises(LawBroken, match="its text was purged while it was made; make it again"),
    ):
        await memory.crystals.commit([("Logins fail", ids[:1])], sources=ids, period="session:s1")

    assert await memory.crystals.list() == []
    clock.move(minutes=2)
    await memory.purge(ids=ids[:1])
    with pytest.raises(LawBroken, match=f"{ids[0]} cannot be a source: .* or it was purged"):
        await memory.crystals.commit([("Logins fail", ids[:1])], sources=ids, period="session:s1")


async def test_a_committed_crystal_cannot_cite_another_sessions_marks(memory: mica.Memory, clock: HandClock) -> None:
    """keeps: K-17. A crystal of one session cannot replace the crystal of another."""
    ids = [ref.id for ref in observe(memory, clock, "s1")]
    others = [ref.id for ref in observe(memory, clock, "s2", texts=OTHER)]
    await memory.crystals.commit([("Logins fail", ids[:1])], sources=ids, period="session:s1")

    for period in ("session:s1", "session:s1 2026-11-03", "session:s"):
        with pytest.raises(
            InvalidInput, match=f"a mark of session 's2' and cannot be a source of {period}; .*session:s2"
        ):
            await memory.crystals.commit([("Invoices are wrong", others[:1])], sources=others, period=period)

    await memory.crystals.commit([("Invoices are wrong", others[:1])], sources=others, period="session:s2 2026-11-03")
    assert [(each.period, each.text) for each in await memory.crystals.list()] == [
        ("session:s1", "Logins fail"),
        ("session:s2 2026-11-03", "Invoices are wrong"),
    ]


async def test_a_late_mark_revises_its_epoch(memory: mica.Memory, clock: HandClock) -> None:
    """keeps: K-19, B-11"""
    observe(memory, clock, "s1")
    for day, texts in enumerate((OTHER, NOTES, OTHER), 1):
        clock.at = MONDAY + timedelta(days=day)
        observe(memory, clock, f"s{day + 1}", texts=texts)
    memory.mark("Version 1.0 is out", tags=("milestone",))
    clock.at = MONDAY + timedelta(days=9)
    await memory.crystals.make_due()
    [epoch] = await memory.crystals.list(level="epoch")
    with memory.context(session="s1", agent="scout"):
        memory.mark("The vault is read only at the start, so a new secret needs a restart", at=MONDAY)
    clock.move(days=1)
    await memory.crystals.make_due()
    [again] = await memory.crystals.list(level="epoch")
    assert (again.supersedes, again.revision, again.label) == ((epoch.id,), 2, None)
    assert await memory.upkeep.verify() == []


async def test_an_epoch_keeps_a_week_that_lost_a_retracted_mark(memory: mica.Memory, clock: HandClock) -> None:
    """keeps: B-11, B-18, K-20.

    A label names an epoch. The revised week stays in the same epoch and joins no other, even if no milestone has
    ended the epoch.
    """
    refs: list[mica.Ref] = []
    for week in range(2):
        for day, texts in enumerate((NOTES, OTHER)):
            clock.at = MONDAY + timedelta(weeks=week, days=day)
            refs += observe(memory, clock, f"week {week} day {day}", texts=texts)
    clock.at = MONDAY + timedelta(weeks=2)
    await memory.crystals.make(level="epoch", label="beginnings")
    [epoch] = await memory.crystals.list(level="epoch")
    assert (epoch.marks, epoch.label) == (24, "beginnings")

    await memory.retract(refs[1].id, reason="wrong")
    await memory.crystals.make_due()

    [again] = await memory.crystals.list(level="epoch")
    assert (again.marks, again.period, again.label, again.supersedes) == (23, epoch.period, "beginnings", (epoch.id,))
    assert [week.period for week in await memory.crystals.expand(again.id) if isinstance(week, mica.Crystal)] == [
        "week:2026-W45",
        "week:2026-W46",
    ]
    assert await memory.crystals.make(level="epoch") == []
    assert await memory.upkeep.verify() == []


async def test_a_purge_closes_no_open_period(memory: mica.Memory, clock: HandClock) -> None:
    """keeps: K-53. Marks without a session, marks of a tree and marks of an open session wait as before."""
    memory.crystals._settings = CrystalSettings(auto=True)
    refs = observe(memory, clock, "s1")
    long = observe(memory, clock, "s2", texts=NOTES + OTHER)
    await memory.crystals.make(session="s1")
    await memory.crystals.make(session="s2")
    root = memory.mark(OTHER[0])
    loose = [memory.mark(text, parent=root) for text in OTHER[1:]]
    [tree] = await memory.crystals.make(tree=root.id)
    observe(memory, clock, "s1", texts=OTHER[:2])
    observe(memory, clock, "s2", texts=OTHER[:3])
    observe(memory, clock, "s3", texts=NOTES[:2])
    waits = {each.period: each.count for each in await memory.crystals.waiting() if not each.period.startswith("day:")}

    await memory.purge(ids=[*(ref.id for ref in refs[:3]), long[0].id, loose[0].id])

    live = {crystal.period: set(crystal.sources) for crystal in await memory.crystals.list(limit=None)}
    assert live == {
        "pool:2026-11-02": {ref.id for ref in refs[3:]},
        "session:s2": {ref.id for ref in long[1:]},
        tree.period: {root.id, *(ref.id for ref in loose[1:])},
    }
    still = {each.period: each.count for each in await memory.crystals.waiting() if not each.period.startswith("day:")}
    assert still == waits | {"pool:2026-11-02": len(loose)}
    clock.move(days=1)
    await memory.crystals.make_due()
    [pool] = [crystal for crystal in await memory.crystals.list(level="session") if crystal.period.startswith("pool:")]
    assert len(pool.sources) == 3 + len(loose) + 2 + 2
    assert await memory.upkeep.verify() == []


# -- The scheduler --------------------------------------------------------------------------------------------


async def test_a_due_job_runs_once_among_several_processes(tmp_path: Path, home: Settings, clock: HandClock) -> None:
    """keeps: K-56. Two processes share a store and run at the same moment."""
    auto = msgspec.structs.replace(home, crystals=CrystalSettings())
    async with (
        mica.open(tmp_path / "space.db", settings=auto, clock=clock) as one,
        mica.open(tmp_path / "space.db", settings=auto, clock=clock) as other,
    ):
        observe(one, clock, "s1")
        await one.events.position()  # stored: whichever process runs the job finds the session
        clock.move(days=1)
        ran = await asyncio.gather(one.upkeep.tick(), other.upkeep.tick())
        done = sum(each.done for some in ran for each in some if each.kind == "crystallize")
        assert done == len(await one.crystals.list()) == 2
        assert await one.upkeep.tick() == await other.upkeep.tick() == []
        clock.move(minutes=11)
        assert [each.done for each in await other.upkeep.tick() if each.kind == "crystallize"] == [0]


async def test_a_failed_job_is_reported_and_retried(tmp_path: Path, home: Settings, clock: HandClock) -> None:
    """keeps: K-56. A broken digest stops no other job, and its work is not lost."""
    auto = msgspec.structs.replace(home, crystals=CrystalSettings())
    async with mica.open(tmp_path / "space.db", settings=auto, clock=clock) as memory:
        observe(memory, clock, "s1")
        clock.move(days=1)
        await memory.events.position()
        jobs = memory._scheduler._jobs
        whole = jobs["crystallize"]

        async def broken() -> int:
            raise InvalidInput("no digest today")

        jobs["crystallize"] = msgspec.structs.replace(whole, run=broken)
        [failed] = [ran for ran in await memory.upkeep.tick() if ran.kind == "crystallize"]
        assert (failed.error, failed.done) == ("no digest today", 0)
        jobs["crystallize"] = whole
        clock.move(minutes=11)
        [ran] = [ran for ran in await memory.upkeep.tick() if ran.kind == "crystallize"]
        assert (ran.error, ran.done) == (None, 2)


async def test_the_configured_time_zone_must_exist(tmp_path: Path, home: Settings) -> None:
    """keeps: K-19"""
    wrong = msgspec.structs.replace(home, time_zone="Atlantis/Port")
    with pytest.raises(InvalidSettings, match="Atlantis"):
        await mica.open(tmp_path / "space.db", settings=wrong)


@pytest.mark.parametrize(
    "at", [datetime(1, 1, 1, tzinfo=UTC), datetime(1, 1, 3, tzinfo=UTC), datetime(9999, 12, 31, 23, tzinfo=UTC)]
)
async def test_a_mark_with_an_absurd_time_blocks_no_crystal(
    memory: mica.Memory, clock: HandClock, at: datetime
) -> None:
    """An imported log may contain any time; `mica upkeep tick` once failed on such a mark on every run."""
    for text in NOTES:
        with memory.context(session="absurd"):
            memory.emit("mark", {"text": text, "tags": []}, at=at)
    observe(memory, clock, "s1", texts=OTHER)

    made = await memory.crystals.make(level="epoch")
    clock.move(days=1)
    await memory.crystals.make_due()

    assert {"session:absurd", "session:s1", "day:2026-11-02"} <= {crystal.period for crystal in made}
    assert {each.reason for each in await memory.crystals.waiting()} <= {
        "its sources are too short to be summarized",
        "no milestone has ended it; a mark with the tag milestone does",
    }
    assert await memory.upkeep.verify() == []


async def test_superseded_crystals_stay_readable(memory: mica.Memory, clock: HandClock) -> None:
    """keeps: B-12. A later crystal neither changes nor removes an earlier one."""
    observe(memory, clock, "s1")
    [first] = await memory.crystals.make()
    with memory.context(session="s1"):
        memory.mark("The vault is read only at the start, so a new secret needs a restart")
    [second] = await memory.crystals.make()
    all_of_them = await memory._store.crystals.query(CrystalQuery(is_live=None))
    assert [crystal.id for crystal in all_of_them] == [first.id, second.id]


@pytest.mark.parametrize(
    ("level", "period"),
    [
        ("session", "bogus"),
        ("session", "day:2026-11-03"),
        ("day", "session:s1"),
        ("session", "session:"),
        ("year", "year:1"),
    ],
)
async def test_a_committed_crystal_needs_a_period_that_fits_its_level(
    memory: mica.Memory, level: Level, period: str
) -> None:
    """If the period does not fit the level, nothing is stored."""
    one = memory.mark("The cookie is set before the redirect, so that the session is lost on every login")

    with pytest.raises(InvalidInput, match=r"cannot have the period|there is no level"):
        await memory.crystals.commit([("the cookie", [one.id])], sources=[one.id], period=period, level=level)
    assert await memory.crystals.list() == []


async def test_a_mark_cannot_precede_its_parent_given_as_a_reference(memory: mica.Memory) -> None:
    """keeps: B-39. A reference carries no time, so the parent's time is looked up."""
    late = memory.mark("it happened", at=memory._clock())

    with pytest.raises(InvalidInput, match="cannot be older than its parent"):
        memory.mark("it was caused", parent=late, at=memory._clock() - timedelta(minutes=1))
    memory.mark("it was caused", parent=late)
    [found] = await memory.events.query(EventQuery(names=("mark",), limit=None, text="caused"))
    assert found.parent_id == late.id


async def test_recent_activity_is_queried_per_session(
    memory: mica.Memory, clock: HandClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Any event keeps a session open; reading all recent events could mean a million rows."""
    observe(memory, clock, "s1")
    observe(memory, clock, "s2", texts=OTHER)
    clock.move(minutes=40)
    for _ in range(5):
        memory.emit("file.read", {"path": "a.py"}, context=mica.Context(session="s1"))
        memory.emit("file.read", {"path": "b.py"}, context=mica.Context(session="busy"))
    await memory.events.position()
    queries: list[EventQuery] = []
    events = memory._store.log.query

    async def record(query: EventQuery) -> list[mica.Event]:
        queries.append(query)
        return await events(query)

    monkeypatch.setattr(memory._store.log, "query", record)
    made = await memory.crystals.make_due()

    assert [each.period for each in made] == ["session:s2"]
    assert any(query.session == "s1" for query in queries)
    assert all(query.names or query.limit == 1 for query in queries)

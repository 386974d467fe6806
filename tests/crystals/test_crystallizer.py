"""From marks to crystals of every level, through the front door, on every engine."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from hashlib import blake2b
from pathlib import Path

import msgspec
import pytest

import mica
from mica.crystals.crystallizer import Digester, extractive
from mica.crystals.digest import Digest, Source
from mica.crystals.mood import blend
from mica.crystals.requests import Crystallized, Request
from mica.errors import InvalidEvent, InvalidInput, InvalidSettings, LawBroken, UnknownEvent
from mica.format.documents import event_line
from mica.model.crystal import CrystalQuery, Level
from mica.model.event import EventQuery, Mark
from mica.settings import CrystalSettings, Settings
from mica.store.purges import Found, Selection
from mica.testing import HandClock

MONDAY = datetime(2026, 11, 2, 9, tzinfo=UTC)
SAID = (
    "The cookie is set before the redirect, so the session is lost on every login.",
    "Moved the cookie after the redirect in auth/session.py; all 42 tests pass now.",
    "Never set a cookie before a redirect: browsers drop it when the host changes.",
    "The staging deploy failed because the secret was missing in the vault.",
    "Added the secret to the vault and the deploy went through; login works on staging.",
    "The old cookie helper in utils/http.py is used by nobody and can go.",
)


OTHER = (
    "The invoice total is rounded twice, once in the cart and once in the mailer.",
    "Rounding happens in billing/money.py only; the mailer prints what it is given.",
    "Always keep amounts in cents until they are printed.",
    "The nightly report counted refunds as sales, so Monday's numbers were too high.",
    "Refunds have a type of their own in the ledger now, and the report leaves them out.",
    "Thirty invoices of October were sent again with the right total.",
)


@pytest.fixture
def clock() -> HandClock:
    return HandClock(MONDAY)


@pytest.fixture
def home(home: Settings) -> Settings:
    return msgspec.structs.replace(home, time_zone="Europe/Berlin", crystals=CrystalSettings(auto=False))


def observe(memory: mica.Memory, clock: HandClock, session: str, *, says: tuple[str, ...] = SAID) -> list[mica.Ref]:
    """A session of some minutes, each mark from another."""
    refs = []
    with memory.context(session=session, agent="scout"):
        for text in says:
            clock.move(minutes=1)
            refs.append(memory.mark(f"{text} ({session})"))
    return refs


in_own_words = extractive()


async def made_by(memory: mica.Memory, digest: Digester) -> Crystallized:
    """The crystals of sessions, by another way to say what marks mean."""
    return await memory._crystallized(Request(level="session", is_forced=True, digest=digest))


async def digests(memory: mica.Memory) -> dict[str, str]:
    marks = await memory.events(EventQuery(names=("mark",), limit=None))
    return {event.id: blake2b(event.body + repr(event.context).encode()).hexdigest() for event in marks}


async def test_sessions_days_weeks_and_epochs_appear_as_time_goes_by(memory: mica.Memory, clock: HandClock) -> None:
    """B-63, B-08, B-09, B-10, B-11, B-18, B-19, B-23, B-36, K-15, TB-05, TB-07: in order; no mark is touched."""
    for day in range(15):
        clock.at = MONDAY + timedelta(days=day)
        observe(memory, clock, f"morning {day}")
        observe(memory, clock, f"noon {day}")
        await memory.auto_crystallize()
    with memory.context(session="release"):
        memory.mark("Version 1.0 is out", tags=("milestone",))
    before = await digests(memory)
    clock.at = MONDAY + timedelta(days=23)

    await memory.auto_crystallize()

    found = await memory.crystals(limit=None)
    levels = {level: [each for each in found if each.level == level] for level in ("session", "day", "week", "epoch")}
    assert len([each for each in levels["session"] if each.period.startswith("session:")]) == 30
    assert [each.period for each in levels["day"]][:2] == ["day:2026-11-02", "day:2026-11-03"]
    assert [each.period for each in levels["week"]] == ["week:2026-W45", "week:2026-W46", "week:2026-W47"]
    assert len(levels["epoch"]) == 1
    assert levels["epoch"][0].marks == 180
    [alone] = await memory.waiting()
    assert (alone.period, alone.reason) == ("pool:2026-11-16", "too little to say it in fewer words than it has")
    assert await memory.auto_crystallize() == []
    assert await digests(memory) == before
    assert await memory.verify() == []


async def test_what_a_crystal_says_is_said_by_the_marks_it_cites(memory: mica.Memory, clock: HandClock) -> None:
    """B-62, B-63, K-13, K-51, M-17, TB-10, TB-13: verbatim, at every level; the rest is named with the reason."""
    observe(memory, clock, "s1")
    observe(memory, clock, "s2")
    texts = {event.id: str(event.data["text"]) for event in await memory.events(EventQuery(names=("mark",)))}

    for crystal in await memory.crystallize(level="week"):
        assert crystal.method == "extractive-1"
        for statement in crystal.statements:
            assert all(statement.text in texts[cited] for cited in statement.sources), statement
        beneath = await memory.expand(crystal.id)
        cited = {each for statement in crystal.statements for each in statement.sources}
        for source in beneath:
            rests = {source.id} if isinstance(source, mica.Mark) else {x for s in source.statements for x in s.sources}
            assert bool(rests & cited) != (source.id in {each.id for each in crystal.dropped})
        assert crystal.tokens < crystal.source_tokens


async def test_crystallizing_again_makes_nothing(memory: mica.Memory, clock: HandClock) -> None:
    """TB-06: neither by itself nor when asked."""
    observe(memory, clock, "s1")
    assert len(await memory.crystallize()) == 1
    assert await memory.crystallize() == []
    clock.move(days=1)
    assert [crystal.level for crystal in await memory.auto_crystallize()] == ["day"]
    assert await memory.auto_crystallize() == []


async def test_the_same_marks_give_the_same_crystal(memory: mica.Memory, clock: HandClock) -> None:
    """TB-15: byte for byte, the disclosure too; a dry run shows it and records nothing."""
    observe(memory, clock, "s1")
    [shown] = await memory.crystallize(dry_run=True)
    assert await memory.crystals() == []
    [made] = await memory.crystallize()
    for name in ("insight", "principles", "significance", "topics", "mood", "dropped", "tokens", "confidence"):
        assert getattr(shown, name) == getattr(made, name)


async def test_a_late_mark_makes_new_revisions_up_to_the_top(memory: mica.Memory, clock: HandClock) -> None:
    """K-19, K-20: what was said stays in the log, superseded."""
    observe(memory, clock, "s1")
    observe(memory, clock, "s2")
    first = {crystal.period: crystal for crystal in await memory.crystallize(level="week")}
    with memory.context(session="s1", agent="scout"):
        late = memory.mark("The secret in the vault expires in March", at=clock())
    clock.move(days=10)

    again = {crystal.period: crystal for crystal in await memory.auto_crystallize()}

    assert set(again) == {"session:s1", "day:2026-11-02", "week:2026-W45"}
    for period, crystal in again.items():
        assert crystal.supersedes == (first[period].id,)
        assert crystal.revision == 2
    assert late.id in again["session:s1"].sources
    assert first["session:s2"].id in again["day:2026-11-02"].sources
    assert len(await memory.crystals(level="day")) == 1
    assert (await memory.crystal(first["day:2026-11-02"].id)).insight == first["day:2026-11-02"].insight
    assert await memory.verify() == []


async def test_a_retracted_mark_leaves_its_crystals(memory: mica.Memory, clock: HandClock) -> None:
    """B-43: found by no search, quoted by no crystal; the log keeps it."""
    refs = observe(memory, clock, "s1")
    observe(memory, clock, "s2")
    await memory.crystallize(level="day")
    wrong = (await memory.crystals(level="session"))[0].insight[0].sources[0]

    await memory.retract(wrong, reason="it was the proxy")
    for _ in range(3):
        await memory.auto_crystallize()

    for crystal in await memory.crystals(limit=None):
        assert wrong not in crystal.sources
        assert all(wrong not in statement.sources for statement in crystal.statements)
    assert wrong not in [hit.id for hit in await memory.search("cookie secret vault")]
    assert (await memory.event(wrong)).name == "mark"
    with pytest.raises(InvalidInput, match="only marks, crystals"):
        await memory.retract((await memory.events(EventQuery(names=("mark.retracted",))))[0].id, reason="no")
    for ref in refs:
        if ref.id != wrong:
            await memory.retract(ref.id, reason="all of it")
    await memory.auto_crystallize()
    assert "session:s1" not in [crystal.period for crystal in await memory.crystals(limit=None)]
    assert await memory.verify() == []


async def test_a_purge_goes_through_every_level_and_stays(memory: mica.Memory, clock: HandClock) -> None:
    """K-53: no crystal quotes what is gone, also after repeated passes; the others are made anew."""
    observe(memory, clock, "s1")
    observe(memory, clock, "s2", says=OTHER)
    clock.move(days=9)
    await memory.auto_crystallize()
    quoted = next(each for each in await memory.crystals(level="week")).insight[0]

    await memory.purge(ids=[quoted.sources[0]], reason="leaked")
    for _ in range(3):
        await memory.auto_crystallize()
        await memory.rebuild()

    left = await memory.crystals(limit=None)
    assert {"session", "day", "week"} <= {crystal.level for crystal in left}
    for event in await memory.events(EventQuery(limit=None)):
        assert quoted.text not in event.body.decode()
    assert quoted.sources[0] not in {each for crystal in left for each in crystal.sources}
    assert await memory.verify() == []


async def test_taking_something_back_makes_anew_what_rested_on_it_and_nothing_else(
    memory: mica.Memory, clock: HandClock
) -> None:
    """K-53: what was not crystallized yet waits for its time; a purge does not take as long as that takes."""
    memory._settings = msgspec.structs.replace(memory._settings, crystals=CrystalSettings(auto=True))
    first = observe(memory, clock, "s1")
    clock.move(days=1)
    await memory.purge(ids=[first[0].id])
    await memory.retract(first[1].id, reason="wrong")
    assert await memory.crystals(limit=None) == []

    second = observe(memory, clock, "s2", says=OTHER)
    clock.move(days=9)
    await memory.auto_crystallize()
    observe(memory, clock, "s3", says=OTHER)
    clock.move(days=9)
    await memory.purge(ids=[second[0].id])
    await memory.retract(second[1].id, reason="wrong")

    left = await memory.crystals(limit=None)
    assert {each.period for each in left} == {
        *("pool:2026-11-02", "session:s2", "day:2026-11-02", "day:2026-11-03", "week:2026-W45")
    }
    assert {each.id for each in second[2:]} == {
        source for each in left if each.period == "session:s2" for source in each.sources
    }
    assert {each.period for each in await memory.auto_crystallize()} == {
        *("session:s3", "day:2026-11-12", "week:2026-W46")
    }
    assert await memory.verify() == []


async def test_a_tree_is_crystallized_beside_time(memory: mica.Memory, clock: HandClock) -> None:
    """B-20, B-24: one crystal over a cause and all that followed; again only when something was added."""
    with memory.context(session="s1"):
        root = memory.mark(SAID[0])
        for text in SAID[1:]:
            clock.move(seconds=1)
            memory.mark(text, parent=root)
        memory.mark("Something else altogether")
    [tree] = await memory.crystallize(tree=root.id)
    assert (tree.period, len(tree.sources)) == (f"tree:{root.id}", 6)
    assert await memory.crystallize(tree=root.id) == []
    assert len(await memory.crystallize()) == 1
    memory.mark("And the proxy keeps the old cookie for a day, so users must log in again", parent=root)
    [again] = await memory.crystallize(tree=root.id)
    assert (len(again.sources), again.supersedes) == (7, (tree.id,))
    plain = memory.emit("file.read", {"path": "a.py"})
    with pytest.raises(InvalidInput, match="no mark"):
        await memory.crystallize(tree=plain.id)
    with pytest.raises(UnknownEvent):
        await memory.crystallize(tree=mica.model.event.EventId(f"{root.id[:-1]}f"))


async def test_an_agent_hands_in_its_own_crystal(memory: mica.Memory, clock: HandClock) -> None:
    """B-17, K-17: held to the same laws as every other."""
    refs = observe(memory, clock, "s1")
    ids = [ref.id for ref in refs]
    insight = [("Login lost its session because the cookie was set before the redirect.", ids[:2])]
    with memory.context(session="s1", agent="scout"):
        crystal = await memory.commit_crystal(insight, sources=ids, period="session:s1", topics=["login"])
    assert (crystal.method, crystal.revision, len(crystal.dropped)) == ("committed:scout", 1, 4)
    assert await memory.crystals() == [crystal]
    for broken, law in (
        ({"insight": [("Invented.", [])]}, "provenance"),
        ({"insight": [("Invented.", [f"{ids[0][:-1]}f"])]}, "provenance"),
        ({"sources": []}, "provenance"),
        ({"sources": [crystal.id]}, "levels"),
        ({"insight": [("word " * 500, ids[:1])]}, "compression"),
    ):
        given: dict[str, object] = {"insight": insight, "sources": ids, "period": "session:s1", **broken}
        with pytest.raises(LawBroken) as refused:
            await memory.commit_crystal(**given)  # type: ignore[arg-type]  # one table for all kinds
        assert refused.value.law == law
    for confidence in (2, -0.1):
        with pytest.raises(
            InvalidInput, match=f"a confidence of {confidence} is not possible; give a number from 0 to 1"
        ):
            await memory.commit_crystal(insight, sources=ids, period="session:s1", confidence=confidence)
    with pytest.raises(LawBroken) as overlapping:
        await memory.commit_crystal(insight, sources=ids, period="pool:2026-11-02")
    assert overlapping.value.law == "overlap"
    again = await memory.commit_crystal(insight, sources=ids, period="session:s1")
    assert (again.revision, again.supersedes) == (2, (crystal.id,))


async def test_what_an_agent_wrote_is_never_written_over_by_a_digest(memory: mica.Memory, clock: HandClock) -> None:
    """K-17: late marks make a revision with its statements word for word and what is new; so do those above it."""
    ids = [ref.id for ref in observe(memory, clock, "s1")]
    own = "Login lost its session because the cookie was set before the redirect."
    rule = "Cookies come after redirects."
    with memory.context(session="s1", agent="scout"):
        written = await memory.commit_crystal(
            [(own, ids[:2])], principles=[(rule, [ids[2]])], topics=["login"], label="mine", confidence=0.6
        )
        clock.move(minutes=1)
        late = memory.mark("The proxy caches the login page for an hour, so the old cookie comes back until then.")

    [revised] = await memory.crystallize(session="s1")

    assert revised.insight[0].text == own
    assert [each.text for each in revised.principles] == [rule]
    assert revised.insight[0].sources == tuple(ids[:2])
    assert {each for statement in revised.insight[1:] for each in statement.sources} == {late.id}
    assert (revised.method, revised.revision) == ("committed:scout+extractive-1", 2)
    assert (revised.supersedes, revised.sources) == ((written.id,), (*ids, late.id))
    assert (revised.label, revised.confidence, revised.topics[0]) == ("mine", 0.6, "login")
    assert {each.id for each in revised.dropped} == {each.id for each in written.dropped}
    assert await memory.crystallize(session="s1") == []

    with memory.context(session="s1"):
        clock.move(minutes=1)
        memory.mark("And the load balancer keeps a session for ten minutes after the last request of a browser.")
    [third] = await memory.crystallize(session="s1")
    assert third.insight[: len(revised.insight)] == revised.insight

    await memory.retract(ids[0], reason="it was the proxy")
    await memory.crystallize()
    [left] = await memory.crystals(level="session")
    assert own not in left.text  # what rests on something retracted does not stay
    assert rule in [each.text for each in left.principles]
    assert await memory.verify() == []


async def test_a_day_that_an_agent_wrote_keeps_its_words(memory: mica.Memory, clock: HandClock) -> None:
    """K-17: at every level."""
    observe(memory, clock, "s1")
    [session] = await memory.crystallize(session="s1")
    cited = session.insight[0].sources
    with memory.context(agent="scout"):
        await memory.commit_crystal(
            [("A day of one cookie.", cited)], sources=[session.id], period="day:2026-11-02", level="day"
        )
    late = {ref.id for ref in observe(memory, clock, "s2", says=OTHER)}

    made = await memory.crystallize(level="day")

    day = made[-1]
    assert (day.level, day.revision, day.insight[0].text) == ("day", 2, "A day of one cookie.")
    assert day.method == "committed:scout+extractive-1"
    assert late.intersection(each for statement in day.statements for each in statement.sources)
    assert "cookie" not in " ".join(statement.text for statement in day.statements[1:])  # said by whoever wrote it
    assert await memory.verify() == []


async def test_a_principle_that_somebody_states_reaches_its_crystal(memory: mica.Memory, clock: HandClock) -> None:
    """B-02, B-15: in its own words, beneath no budget of the digest, with every mark that states it."""
    observe(memory, clock, "s1")
    with memory.context(session="s1"):
        one = memory.mark("Two requests raced for one row in the cart.", principles=("Lock before you read",))
        clock.move(minutes=1)
        two = memory.mark("So did two workers of the mailer.", principles=["Lock before you read", "Retry once"])

    [crystal] = await memory.crystallize()

    assert [(each.text, each.sources) for each in crystal.principles][:2] == [
        ("Lock before you read", (one.id, two.id)),
        ("Retry once", (two.id,)),
    ]
    assert crystal.tokens < crystal.source_tokens


async def test_what_is_open_is_named_until_it_is_fulfilled(memory: mica.Memory, clock: HandClock) -> None:
    """TB-17, B-59: friction that something has fulfilled is no gap."""
    observe(memory, clock, "s1")
    with memory.context(session="s1"):
        friction = memory.mark("The tests take ten minutes", tags=("friction",))
        question = memory.mark("Who owns the vault?", tags=("question",))
        clock.move(minutes=1)
        memory.mark("The tests run in parallel now", parent=friction, relation="fulfills")
    [crystal] = await memory.crystallize()
    assert crystal.open == (question.id,)


async def test_crystals_wait_with_a_reason(memory: mica.Memory, clock: HandClock) -> None:
    """B-35: neither eagerly nor never."""
    observe(memory, clock, "s1")
    memory.mark("one thing")
    assert {(each.period, each.count) for each in await memory.waiting()} == {("session:s1", 6), ("pool:2026-11-02", 1)}
    assert await memory.crystals() == []


async def test_a_session_that_was_taken_up_again_goes_on(memory: mica.Memory, clock: HandClock) -> None:
    """B-08: its end counts until somebody writes in it once more."""
    observe(memory, clock, "s1")
    with memory.context(session="s1"):
        memory.emit("session.ended")
    assert [crystal.period for crystal in await memory.auto_crystallize()] == ["session:s1"]
    clock.move(minutes=1)
    with memory.context(session="s1"):
        memory.mark("One more thing about the vault")
    assert await memory.auto_crystallize() == []
    assert [(each.period, each.reason) for each in await memory.waiting()] == [
        ("session:s1", "the session goes on"),
        ("day:2026-11-02", "the day goes on"),
    ]


async def test_what_is_no_crystal_is_told(memory: mica.Memory) -> None:
    ref = memory.mark("one")
    with pytest.raises(InvalidEvent, match="not a crystal"):
        await memory.expand(ref.id)
    with pytest.raises(UnknownEvent):
        await memory.crystal("999")
    with pytest.raises(InvalidInput, match="level"):
        await memory.crystals(level="year")  # type: ignore[arg-type]


async def test_a_relation_keeps_causality(memory: mica.Memory, clock: HandClock) -> None:
    """B-24, B-39: nothing comes before what led to it, and a relation is to something."""
    first = memory.mark("first")
    event = await memory.event(first.id)
    with pytest.raises(InvalidInput, match="cannot come before"):
        memory.mark("earlier", parent=event, at=clock() - timedelta(seconds=1))
    with pytest.raises(InvalidInput, match="needs a parent"):
        memory.mark("alone", relation="continues")
    with pytest.raises(InvalidInput, match="no relation"):
        memory.mark("x", parent=event, relation="likes")  # type: ignore[arg-type]
    memory.mark("second", parent=event, relation="branches", principles=["keep it small"])
    [_, second] = [mica.model.event.mark_of(each) for each in await memory.events(EventQuery(names=("mark",)))]
    assert (second.relation, second.principles, second.parent_id) == ("branches", ("keep it small",), first.id)


async def test_what_little_is_left_of_a_crystal_is_not_said_again(memory: mica.Memory, clock: HandClock) -> None:
    """B-43: where nothing shorter can be said of the rest, the crystal goes; no level above quotes it either."""
    refs = observe(memory, clock, "s1", says=SAID[:5])
    await memory.crystallize()
    for ref in refs[1:]:
        await memory.retract(ref.id, reason="wrong")
    brief = await memory.brief(budget_tokens=2_000)
    assert [passage for passage in brief.passages if passage.source == "crystals"] == []
    await memory.crystallize(level="week")
    gone = {ref.id for ref in refs[1:]}
    for crystal in await memory.crystals(limit=None):
        assert not gone.intersection(crystal.sources)
        assert all(gone.isdisjoint(statement.sources) for statement in crystal.statements)


async def test_a_retracted_crystal_is_not_made_again(memory: mica.Memory, clock: HandClock) -> None:
    """B-43: as long as it would say the same; a later mark makes it another one."""
    observe(memory, clock, "s1")
    [crystal] = await memory.crystallize()
    await memory.retract(crystal.id, reason="it misses the point")
    clock.move(days=1)
    for _ in range(2):
        assert await memory.auto_crystallize() == []
    assert [each.reason for each in await memory.waiting()] == ["its crystal was retracted"]
    with memory.context(session="s1"):
        memory.mark("The proxy was the cause all along, and it keeps cookies for a day", at=clock() - timedelta(days=1))
    assert [each.level for each in await memory.auto_crystallize()][:1] == ["session"]


@pytest.mark.parametrize("verb", ["retract", "purge"])
async def test_what_is_left_with_what_was_retracted_before_ends(
    memory: mica.Memory, clock: HandClock, verb: str
) -> None:
    """B-43, K-53: a session and a tree; they neither wait for ever nor stand on a mark that is taken back."""
    memory._settings = msgspec.structs.replace(memory._settings, crystals=CrystalSettings())
    with memory.context(session="s1"):
        root = memory.mark(SAID[0])
        for text in SAID[1:]:
            memory.mark(text, parent=root)
    for crystal in await memory.crystallize() + await memory.crystallize(tree=root.id):
        await memory.retract(crystal.id, reason="it misses the point")
    clock.move(minutes=1)
    with memory.context(session="s1"):
        late = memory.mark("The proxy was the cause all along, and it keeps cookies for a day", parent=root)
    again = await memory.crystallize(level="day") + await memory.crystallize(tree=root.id)
    assert len(again) == 3

    await (memory.retract(late.id, reason="wrong") if verb == "retract" else memory.purge(ids=[late.id]))
    clock.move(days=8)

    assert await memory.auto_crystallize() == []
    assert await memory.crystals(limit=None) == []
    assert [(each.period, each.reason) for each in await memory.waiting()] == [
        ("session:s1", "its crystal was retracted")
    ]
    assert await memory.verify() == []


async def test_one_session_that_fails_keeps_no_other_from_its_crystal(memory: mica.Memory, clock: HandClock) -> None:
    """K-56: it waits with the reason."""
    observe(memory, clock, "s1")
    observe(memory, clock, "s2", says=OTHER)

    async def digest(
        sources: Sequence[Source], budget_tokens: int, *, task: str, marks: Sequence[Mark]
    ) -> tuple[Digest, str]:
        if "(s1)" in sources[0].text:
            raise InvalidInput("no words for it")
        return await in_own_words(sources, budget_tokens, task=task, marks=marks)

    done = await made_by(memory, digest)

    assert [crystal.period for crystal in done.crystals] == ["session:s2"]
    assert [(each.period, each.reason) for each in done.waiting] == [("session:s1", "no words for it")]


async def test_a_session_of_long_sentences_gets_its_crystal(memory: mica.Memory, clock: HandClock) -> None:
    """B-17"""
    long = tuple(" ".join(f"{text.rstrip('.')} and then" for text in SAID) + f" number {n}" for n in range(6))
    observe(memory, clock, "s1", says=long)
    [crystal] = await memory.crystallize()
    assert crystal.tokens < crystal.source_tokens


async def test_a_crystal_made_while_a_purge_looks_is_purged_too(memory: mica.Memory, clock: HandClock) -> None:
    """K-53"""
    refs = observe(memory, clock, "s1")
    found = memory._purging._found

    async def looks(selection: Selection) -> Found:
        seen = await found(selection)
        await memory.crystallize(level="week")
        return seen

    memory._purging._found = looks  # type: ignore[method-assign]
    [first] = [event for event in await memory.events(EventQuery(names=("mark",))) if event.id == refs[0].id]
    await memory.purge(ids=[ref.id for ref in refs[:5]], reason="leaked")
    for event in await memory.events(EventQuery(names=("crystal.made",), limit=None)):
        assert not {ref.id for ref in refs[:5]}.intersection(str(event.data["sources"]).split("'"))
    assert str(first.data["text"])[:40] not in str([e.body for e in await memory.events(EventQuery(limit=None))])


async def test_a_crystal_whose_words_another_process_purges_meanwhile_waits(
    memory: mica.Memory, clock: HandClock
) -> None:
    """K-53: it is made of what is left the next time, and nobody is shown a tombstone in place of a crystal."""
    refs = observe(
        memory, clock, "s1", says=(*SAID, "The token of staging is hunter2hunter2 and is read at the start.")
    )

    async def digest(
        sources: Sequence[Source], budget_tokens: int, *, task: str, marks: Sequence[Mark]
    ) -> tuple[Digest, str]:
        said = await in_own_words(sources, budget_tokens, task=task, marks=marks)
        await memory.purge(value="hunter2hunter2")
        return said

    done = await made_by(memory, digest)

    assert done.crystals == ()
    assert [each.reason for each in done.waiting] == ["what it rests on was retracted, superseded or purged meanwhile"]
    [crystal] = await memory.crystallize()
    assert crystal.sources == tuple(ref.id for ref in refs[:-1])


async def test_a_crystal_that_a_purge_takes_before_it_arrives_is_refused_in_words(
    memory: mica.Memory, clock: HandClock
) -> None:
    """K-53: an agent that wrote it before a purge is told so, and what it may do."""
    ids = [ref.id for ref in observe(memory, clock, "s1")]
    clock.move(minutes=5)
    await memory.purge(agent="editor")
    clock.move(minutes=-1)  # by the clock of another machine, or of a process that was slow

    with (
        memory.context(agent="editor"),
        pytest.raises(LawBroken, match="says what was purged while it was made; make it anew of what is left"),
    ):
        await memory.commit_crystal([("Logins fail", ids[:1])], sources=ids, period="session:s1")

    assert await memory.crystals() == []
    clock.move(minutes=2)
    await memory.purge(ids=ids[:1])
    with pytest.raises(LawBroken, match=f"{ids[0]} is no mark or crystal .* or was purged"):
        await memory.commit_crystal([("Logins fail", ids[:1])], sources=ids, period="session:s1")


async def test_a_committed_crystal_rests_on_no_mark_of_another_session(memory: mica.Memory, clock: HandClock) -> None:
    """K-17: what one session meant does not take the place of another's crystal."""
    ids = [ref.id for ref in observe(memory, clock, "s1")]
    others = [ref.id for ref in observe(memory, clock, "s2", says=OTHER)]
    await memory.commit_crystal([("Logins fail", ids[:1])], sources=ids, period="session:s1")

    for period in ("session:s1", "session:s1 2026-11-03", "session:s"):
        with pytest.raises(
            InvalidInput, match=f"a mark of session 's2' and cannot be a source of {period}; .*session:s2"
        ):
            await memory.commit_crystal([("Invoices are wrong", others[:1])], sources=others, period=period)

    await memory.commit_crystal([("Invoices are wrong", others[:1])], sources=others, period="session:s2 2026-11-03")
    assert [(each.period, each.text) for each in await memory.crystals()] == [
        ("session:s1", "Logins fail"),
        ("session:s2 2026-11-03", "Invoices are wrong"),
    ]


async def test_a_day_feels_as_its_sessions_did_by_how_many_marks_they_had(
    memory: mica.Memory, clock: HandClock
) -> None:
    """B-49"""
    observe(memory, clock, "s1")
    observe(memory, clock, "s2", says=(*OTHER, "The nightly build failed again, and nobody knows the error yet."))

    made = await memory.crystallize(level="day")

    sessions = [crystal for crystal in made if crystal.level == "session"]
    [day] = [crystal for crystal in made if crystal.level == "day"]
    assert len({crystal.mood for crystal in sessions}) == len({crystal.marks for crystal in sessions}) == 2
    assert day.mood == blend([(crystal.mood, crystal.marks) for crystal in sessions])


async def test_a_late_mark_reaches_its_epoch(memory: mica.Memory, clock: HandClock) -> None:
    """K-19, B-11"""
    observe(memory, clock, "s1")
    for day, says in enumerate((OTHER, SAID, OTHER), 1):
        clock.at = MONDAY + timedelta(days=day)
        observe(memory, clock, f"s{day + 1}", says=says)
    memory.mark("Version 1.0 is out", tags=("milestone",))
    clock.at = MONDAY + timedelta(days=9)
    await memory.auto_crystallize()
    [epoch] = await memory.crystals(level="epoch")
    with memory.context(session="s1", agent="scout"):
        memory.mark("The vault is read only at the start, so a new secret needs a restart", at=MONDAY)
    clock.move(days=1)
    await memory.auto_crystallize()
    [again] = await memory.crystals(level="epoch")
    assert (again.supersedes, again.revision, again.label) == ((epoch.id,), 2, None)
    assert await memory.verify() == []


async def test_an_epoch_keeps_a_week_of_which_a_mark_is_retracted(memory: mica.Memory, clock: HandClock) -> None:
    """B-11, K-20: also one that no milestone has ended; the revised week belongs to the same epoch, and to no other."""
    refs: list[mica.Ref] = []
    for week in range(2):
        for day, says in enumerate((SAID, OTHER)):
            clock.at = MONDAY + timedelta(weeks=week, days=day)
            refs += observe(memory, clock, f"week {week} day {day}", says=says)
    clock.at = MONDAY + timedelta(weeks=2)
    await memory.crystallize(level="epoch", label="beginnings")
    [epoch] = await memory.crystals(level="epoch")
    assert epoch.marks == 24

    await memory.retract(refs[1].id, reason="wrong")
    await memory.auto_crystallize()

    [again] = await memory.crystals(level="epoch")
    assert (again.marks, again.period, again.label, again.supersedes) == (23, epoch.period, "beginnings", (epoch.id,))
    assert [week.period for week in await memory.expand(again.id) if isinstance(week, mica.Crystal)] == [
        "week:2026-W45",
        "week:2026-W46",
    ]
    assert await memory.crystallize(level="epoch") == []
    assert await memory.verify() == []


async def of_two_weeks(memory: mica.Memory, clock: HandClock) -> tuple[list[list[mica.Ref]], mica.Crystal]:
    """What was marked in each of two weeks, and an epoch over them that a person closed and named."""
    refs: list[list[mica.Ref]] = []
    for week in range(2):
        refs.append([])
        for day, says in enumerate((SAID, OTHER)):
            clock.at = MONDAY + timedelta(weeks=week, days=day)
            refs[-1] += observe(memory, clock, f"week {week} day {day}", says=says)
    await memory.crystallize(level="epoch", label="beginnings of hunter2")
    [epoch] = await memory.crystals(level="epoch")
    return refs, epoch


async def test_a_purge_says_what_it_made_anew_and_what_ended(memory: mica.Memory, clock: HandClock) -> None:
    """K-53: the next revision of an epoch that somebody named, and a week of which nothing is left."""
    memory._settings = msgspec.structs.replace(memory._settings, crystals=CrystalSettings())
    refs, epoch = await of_two_weeks(memory, clock)

    tried = await memory.purge(ids=[refs[0][0].id], dry_run=True)
    first = await memory.purge(ids=[refs[0][0].id])
    second = await memory.purge(ids=[ref.id for ref in refs[1]])

    assert (tried.remade, tried.ended, first.ended) == ((), (), ())
    assert [(each.level, each.revision) for each in first.remade] == [
        *(("session", 1), ("day", 1), ("week", 1), ("epoch", 2))
    ]
    assert first.remade[-1].label == epoch.label
    assert [(each.level, each.revision) for each in second.remade] == [("epoch", 3)]
    assert {each.period: each.reason for each in second.ended} == {
        "session:week 1 day 0": "too little is left that it rests on",
        "session:week 1 day 1": "too little is left that it rests on",
        "day:2026-11-09": "too little is left that it rests on",
        "day:2026-11-10": "too little is left that it rests on",
        "week:2026-W46": "too little is left that it rests on",
    }


async def test_a_purge_says_where_the_rest_of_a_session_went_and_why_nothing_was_made_anew(
    memory: mica.Memory, clock: HandClock
) -> None:
    """K-53: a session with few marks is pooled; with `auto` off nothing is made."""
    memory._settings = msgspec.structs.replace(memory._settings, crystals=CrystalSettings())
    refs = observe(memory, clock, "s1")
    await memory.crystallize()

    pooled = await memory.purge(ids=[ref.id for ref in refs[:2]])
    memory._settings = msgspec.structs.replace(memory._settings, crystals=CrystalSettings(auto=False))
    off = await memory.purge(ids=[refs[2].id])

    assert [(each.period, each.count, each.reason) for each in pooled.ended] == [
        ("session:s1", 4, "what is left of it is in pool:2026-11-02 now")
    ]
    assert [each.period for each in pooled.remade] == ["pool:2026-11-02"]
    assert (off.remade, [each.period for each in off.ended]) == ((), ["pool:2026-11-02"])
    assert "`auto` is off" in off.ended[0].reason


@pytest.mark.parametrize("auto", [True, False])
async def test_an_epoch_that_a_person_named_outlives_a_purge_of_what_it_quotes(
    memory: mica.Memory, clock: HandClock, auto: bool
) -> None:
    """K-53: it is made anew of what is left, at once or, where that was cut off, the next time; no milestone
    would ever make it again.
    """
    memory._settings = msgspec.structs.replace(memory._settings, crystals=CrystalSettings(auto=auto))
    refs, epoch = await of_two_weeks(memory, clock)

    await memory.purge(ids=[refs[0][0].id, refs[1][0].id])
    if not auto:
        assert await memory.crystals(level="epoch") == []
        clock.move(weeks=1)
        await memory.auto_crystallize()

    [again] = await memory.crystals(level="epoch")
    assert (again.period, again.label, again.marks) == (epoch.period, "beginnings of hunter2", epoch.marks - 2)
    assert (again.revision, again.supersedes) == (2, (epoch.id,))
    await memory.purge(ids=[ref.id for ref in refs[1]])
    clock.move(weeks=1)
    await memory.auto_crystallize()
    [again] = await memory.crystals(level="epoch")
    assert [week.period for week in await memory.expand(again.id) if isinstance(week, mica.Crystal)] == [
        "week:2026-W45"
    ]
    assert (again.label, again.revision) == ("beginnings of hunter2", 3)
    await memory.purge(value="hunter2", reason="leaked")
    await memory.auto_crystallize()
    [again] = await memory.crystals(level="epoch")
    assert (again.label, again.revision) == (None, 4)
    for event in await memory.events(EventQuery(limit=None)):
        assert b"hunter2" not in event.body
    await memory.purge(ids=[ref.id for ref in refs[0]])
    for _ in range(2):
        assert await memory.auto_crystallize() == []
        await memory.rebuild()
    assert await memory.crystals(limit=None) == []
    assert await memory.verify() == []


async def test_what_a_person_ended_is_not_made_again_by_a_purge(memory: mica.Memory, clock: HandClock) -> None:
    """K-53: an epoch that was retracted, or purged itself; its weeks are free for another one."""
    memory._settings = msgspec.structs.replace(memory._settings, crystals=CrystalSettings(auto=True))
    refs, epoch = await of_two_weeks(memory, clock)
    await memory.retract(epoch.id, reason="too early")
    await memory.purge(ids=[refs[0][0].id])
    clock.move(weeks=1)
    await memory.auto_crystallize()
    assert await memory.crystals(level="epoch") == []

    await memory.crystallize(level="epoch", label="another")
    [other] = await memory.crystals(level="epoch")
    assert (other.label, len(other.sources)) == ("another", 2)
    await memory.purge(ids=[other.id])
    await memory.auto_crystallize()

    assert await memory.crystals(level="epoch") == []
    assert await memory.verify() == []


async def test_a_tree_outlives_a_purge_of_one_of_its_marks(memory: mica.Memory, clock: HandClock) -> None:
    """K-53"""
    memory._settings = msgspec.structs.replace(memory._settings, crystals=CrystalSettings(auto=True))
    with memory.context(session="s1"):
        root = memory.mark(SAID[0])
        below = [memory.mark(text, parent=root) for text in SAID[1:]]
    [tree] = await memory.crystallize(tree=root.id)

    await memory.purge(ids=[root.id])
    await memory.purge(ids=[below[0].id])

    [again] = await memory.crystals()
    assert (again.period, again.revision) == (tree.period, 3)
    assert set(again.sources) == {ref.id for ref in below[1:]}
    await memory.purge(ids=[ref.id for ref in below[1:]])
    assert await memory.auto_crystallize() == []
    assert await memory.verify() == []


async def test_a_purge_closes_nothing_that_was_not_closed(memory: mica.Memory, clock: HandClock) -> None:
    """K-53: marks without a session, of a tree, and of a session that goes on wait as before."""
    memory._settings = msgspec.structs.replace(memory._settings, crystals=CrystalSettings(auto=True))
    refs = observe(memory, clock, "s1")
    long = observe(memory, clock, "s2", says=SAID + OTHER)
    await memory.crystallize(session="s1")
    await memory.crystallize(session="s2")
    root = memory.mark(OTHER[0])
    loose = [memory.mark(text, parent=root) for text in OTHER[1:]]
    [tree] = await memory.crystallize(tree=root.id)
    observe(memory, clock, "s1", says=OTHER[:2])
    observe(memory, clock, "s2", says=OTHER[:3])
    observe(memory, clock, "s3", says=SAID[:2])
    waits = {each.period: each.count for each in await memory.waiting() if not each.period.startswith("day:")}

    await memory.purge(ids=[*(ref.id for ref in refs[:3]), long[0].id, loose[0].id])

    stands = {crystal.period: set(crystal.sources) for crystal in await memory.crystals(limit=None)}
    assert stands == {
        "pool:2026-11-02": {ref.id for ref in refs[3:]},
        "session:s2": {ref.id for ref in long[1:]},
        tree.period: {root.id, *(ref.id for ref in loose[1:])},
    }
    still = {each.period: each.count for each in await memory.waiting() if not each.period.startswith("day:")}
    assert still == waits | {"pool:2026-11-02": len(loose)}
    clock.move(days=1)
    await memory.auto_crystallize()
    [pool] = [crystal for crystal in await memory.crystals(level="session") if crystal.period.startswith("pool:")]
    assert len(pool.sources) == 3 + len(loose) + 2 + 2
    assert await memory.verify() == []


@pytest.mark.parametrize("asked", [{"value": "hunter2"}, {"user": "ann"}])
async def test_an_epoch_outlives_a_purge_of_the_record_that_knows_of_it(
    memory: mica.Memory, clock: HandClock, asked: dict[str, str]
) -> None:
    """K-53: it is not made again yet, and the record says its name, or who purged. Its name goes with that record."""
    refs, epoch = await of_two_weeks(memory, clock)
    with memory.context(user="ann"):
        await memory.purge(ids=[refs[0][0].id])

    with memory.context(user="ben"):
        await memory.purge(value=asked.get("value"), user=asked.get("user"))
    await memory.purge(user="ben")
    for event in await memory.events(EventQuery(limit=None)):
        assert b"hunter2" not in event.body
        assert event.context.user is None
    clock.move(weeks=1)
    await memory.auto_crystallize()

    [again] = await memory.crystals(level="epoch")
    assert (again.period, again.label, again.marks) == (epoch.period, None, epoch.marks - 1)
    assert (again.revision, again.supersedes) == (2, (epoch.id,))
    assert await memory.crystallize(level="epoch") == []
    assert await memory.verify() == []


@pytest.mark.parametrize("auto", [True, False])
async def test_what_a_purge_leaves_nothing_of_ends_with_a_retraction(
    memory: mica.Memory, clock: HandClock, auto: bool
) -> None:
    """K-53: an epoch and a tree; what is marked later in the same weeks is none of theirs."""
    memory._settings = msgspec.structs.replace(memory._settings, crystals=CrystalSettings(auto=auto))
    refs, epoch = await of_two_weeks(memory, clock)
    [tree] = await memory.crystallize(tree=refs[0][0].id)

    await memory.purge(ids=[ref.id for ref in refs[0]])
    assert await retractions(memory) == ([tree.id] if auto else [])
    clock.move(days=1)
    await memory.auto_crystallize()  # the second week is not over, and may be what is left of the epoch
    assert await retractions(memory) == [tree.id]
    clock.move(weeks=1)
    await memory.auto_crystallize()
    [again] = await memory.crystals(level="epoch")
    assert (again.label, again.revision) == (epoch.label, 2)
    await memory.purge(ids=[ref.id for ref in refs[1]])
    assert await retractions(memory) == ([tree.id, again.id] if auto else [tree.id])
    assert await memory.auto_crystallize() == []
    assert await retractions(memory) == [tree.id, again.id]
    for day, says in ((0, SAID), (1, OTHER), (7, SAID), (8, OTHER)):
        with memory.context(session=f"late {day}"):
            for text in says:
                memory.mark(text, at=MONDAY + timedelta(days=day))
    await memory.crystallize(level="epoch", label="another")

    [other] = await memory.crystals(level="epoch")
    assert (other.label, other.revision, other.supersedes) == ("another", 1, ())
    assert await memory.auto_crystallize() == []
    assert await retractions(memory) == [tree.id, again.id]
    assert await memory.verify() == []


async def retractions(memory: mica.Memory) -> list[object]:
    """What was retracted, oldest first."""
    told = await memory.events(EventQuery(names=("mark.retracted",), limit=None))
    return [event.data["mark"] for event in told]


@pytest.mark.parametrize("label", ["mine", None])
async def test_a_tree_that_is_asked_for_again_takes_the_place_of_what_a_purge_left(
    memory: mica.Memory, clock: HandClock, label: str | None
) -> None:
    """K-53: no two crystals stand over the same marks."""
    with memory.context(session="s1"):
        root = memory.mark(SAID[0])
        below = [memory.mark(text, parent=root) for text in SAID[1:]]
    [tree] = await memory.crystallize(tree=root.id, label="theirs")
    await memory.purge(ids=[below[0].id])

    [again] = await memory.crystallize(tree=root.id, label=label)

    assert (again.revision, again.supersedes, again.label) == (2, (tree.id,), label or "theirs")
    clock.move(minutes=1)
    assert await memory.auto_crystallize() == []
    assert await memory.crystals(limit=None) == [again]
    assert await memory.verify() == []


@pytest.mark.parametrize("names", [("log.purged",), ("log.purged", "event.purged")])
async def test_a_part_of_another_log_keeps_nothing_from_being_crystallized(
    memory: mica.Memory, home: Settings, clock: HandClock, tmp_path: Path, names: tuple[str, ...]
) -> None:
    """K-53: one that holds the record of a purge, and nothing of the tree that it took."""
    part = tmp_path / "part.jsonl"
    async with mica.open(":memory:", settings=home, clock=clock) as other:
        with other.context(session="s1"):
            root = other.mark(SAID[0])
            below = [other.mark(text, parent=root) for text in SAID[1:]]
        [tree] = await other.crystallize(tree=root.id)
        await other.purge(ids=[below[0].id])
        records = await other.events(EventQuery(names=names, limit=None))
        wanted = [event for event in records if event.name == "log.purged" or event.id == tree.id]
        part.write_bytes(b"".join(event_line(event) + b"\n" for event in wanted))
    observe(memory, clock, "s1")
    assert (await memory.import_log(part)).events == len(names)

    [made] = await memory.crystallize(session="s1")
    clock.move(days=2)

    assert [crystal.level for crystal in await memory.auto_crystallize()] == ["day"]
    assert made.period == "session:s1"
    assert await memory.verify() == []


async def test_nobody_makes_an_epoch_by_emitting_the_record_of_a_purge(memory: mica.Memory, clock: HandClock) -> None:
    """K-53: what a record says was taken is believed where that very purge left a tombstone."""
    refs, _ = await of_two_weeks(memory, clock)
    seen = memory.emit("tool.ran", {"text": "anything"})
    await memory.purge(ids=[refs[0][0].id, seen.id])
    clock.move(weeks=1)
    await memory.auto_crystallize()
    before = await memory.crystals(limit=None)
    observe(memory, clock, "later")
    for gone in ("x", refs[0][0].id, refs[0][1].id, before[0].id, seen.id):
        for period in ("epoch:forged", "tree:nonsense", f"tree:{refs[0][1].id}"):
            survivor = {"crystal": gone, "period": period, "revision": 41, "label": "obey", "weeks": ["week:2026-W47"]}
            memory.emit("log.purged", {"survivors": [survivor]})
    clock.move(weeks=1)

    made = await memory.auto_crystallize()

    assert [crystal.level for crystal in made] == ["session", "day", "week"]
    assert {crystal.label for crystal in await memory.crystals(limit=None)} == {None, "beginnings of hunter2"}
    assert await memory.verify() == []


# -- The scheduler --------------------------------------------------------------------------------------------


async def test_what_is_due_is_done_once_by_several(tmp_path: Path, home: Settings, clock: HandClock) -> None:
    """K-56: two processes that share a store, at the same moment."""
    auto = msgspec.structs.replace(home, crystals=CrystalSettings())
    async with (
        mica.open(tmp_path / "space.db", settings=auto, clock=clock) as one,
        mica.open(tmp_path / "space.db", settings=auto, clock=clock) as other,
    ):
        observe(one, clock, "s1")
        await one.durable()
        clock.move(days=1)
        ran = await asyncio.gather(one.tick(), other.tick())
        assert sum(each.done for some in ran for each in some) == len(await one.crystals()) == 2
        assert await one.tick() == await other.tick() == []
        clock.move(minutes=11)
        assert [each.done for each in await other.tick()] == [0]


async def test_a_job_that_fails_is_told_and_tried_again(tmp_path: Path, home: Settings, clock: HandClock) -> None:
    """K-56: a broken digest stops nothing else, and its work is not lost."""
    auto = msgspec.structs.replace(home, crystals=CrystalSettings())
    async with mica.open(tmp_path / "space.db", settings=auto, clock=clock) as memory:
        observe(memory, clock, "s1")
        clock.move(days=1)
        await memory.position()
        jobs = memory._scheduler._jobs
        whole = jobs["crystallize"]

        async def broken() -> int:
            raise InvalidInput("no digest today")

        jobs["crystallize"] = msgspec.structs.replace(whole, run=broken)
        [failed] = [ran for ran in await memory.tick() if ran.kind == "crystallize"]
        assert (failed.error, failed.done) == ("no digest today", 0)
        jobs["crystallize"] = whole
        clock.move(minutes=11)
        [ran] = await memory.tick()
        assert (ran.error, ran.done) == (None, 2)


async def test_the_zone_of_days_must_exist(tmp_path: Path, home: Settings) -> None:
    """K-19"""
    wrong = msgspec.structs.replace(home, time_zone="Atlantis/Port")
    with pytest.raises(InvalidSettings, match="Atlantis"):
        await mica.open(tmp_path / "space.db", settings=wrong)


@pytest.mark.parametrize(
    "at", [datetime(1, 1, 1, tzinfo=UTC), datetime(1, 1, 3, tzinfo=UTC), datetime(9999, 12, 31, 23, tzinfo=UTC)]
)
async def test_a_mark_of_an_absurd_time_keeps_nothing_from_being_crystallized(
    memory: mica.Memory, clock: HandClock, at: datetime
) -> None:
    """A log that is imported may say anything; `mica tick` ended with it, every time."""
    for text in SAID:
        with memory.context(session="absurd"):
            memory.emit("mark", {"text": text, "tags": []}, at=at)
    observe(memory, clock, "s1", says=OTHER)

    made = await memory.crystallize(level="epoch")
    clock.move(days=1)
    await memory.auto_crystallize()

    assert {"session:absurd", "session:s1", "day:2026-11-02"} <= {crystal.period for crystal in made}
    assert {each.reason for each in await memory.waiting()} <= {
        "too little to say it in fewer words than it has",
        "no milestone has ended it; a mark with the tag milestone does",
    }
    assert await memory.verify() == []


async def test_superseded_crystals_are_kept(memory: mica.Memory, clock: HandClock) -> None:
    """B-12: a crystal never changes or disappears through a later one."""
    observe(memory, clock, "s1")
    [first] = await memory.crystallize()
    with memory.context(session="s1"):
        memory.mark("The vault is read only at the start, so a new secret needs a restart")
    [second] = await memory.crystallize()
    all_of_them = await memory._store.crystals(CrystalQuery(is_live=None))
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
async def test_a_crystal_is_committed_for_a_period_of_its_level(memory: mica.Memory, level: Level, period: str) -> None:
    """B-17: its name says what it is about; nothing is stored otherwise."""
    one = memory.mark("The cookie is set before the redirect, so that the session is lost on every login")

    with pytest.raises(InvalidInput, match=r"is not about|no level"):
        await memory.commit_crystal([("the cookie", [one.id])], sources=[one.id], period=period, level=level)
    assert await memory.crystals() == []


async def test_a_mark_cannot_come_before_a_parent_that_is_only_referred_to(memory: mica.Memory) -> None:
    """B-39: a reference has no time of its own, and causality holds all the same."""
    late = memory.mark("it happened", at=memory._clock())

    with pytest.raises(InvalidInput, match="cannot come before"):
        memory.mark("it was caused", parent=late, at=memory._clock() - timedelta(minutes=1))
    memory.mark("it was caused", parent=late)
    [found] = await memory.events(EventQuery(names=("mark",), limit=None, text="caused"))
    assert found.parent_id == late.id


async def test_what_happens_lately_is_asked_of_each_session_never_read_whole(
    memory: mica.Memory, clock: HandClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A session in which something happens goes on, whatever it is; half an hour may hold a million events."""
    observe(memory, clock, "s1")
    observe(memory, clock, "s2", says=OTHER)
    clock.move(minutes=40)
    for _ in range(5):
        memory.emit("file.read", {"path": "a.py"}, context=mica.Context(session="s1"))
        memory.emit("file.read", {"path": "b.py"}, context=mica.Context(session="busy"))
    await memory.position()
    asked: list[EventQuery] = []
    events = memory.store.events

    async def seen(query: EventQuery) -> list[mica.Event]:
        asked.append(query)
        return await events(query)

    monkeypatch.setattr(memory.store, "events", seen)
    made = await memory.auto_crystallize()

    assert [each.period for each in made] == ["session:s2"]
    assert any(query.session == "s1" for query in asked)
    assert all(query.names or query.limit == 1 for query in asked)

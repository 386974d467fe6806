"""Tests of the promises of `CrystalIndex`, which run unchanged on every kind of store."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from datetime import datetime, timedelta

import msgspec
import pytest
from hypothesis import strategies as st

from mica.errors import LawBroken
from mica.model.crystal import (
    LEVELS,
    TREE,
    CrystalDraft,
    CrystalQuery,
    Dropped,
    Level,
    Mood,
    Statement,
    count_tokens,
    crystal_data,
    crystal_of,
)
from mica.model.event import CRYSTAL, RETRACTED, Context, Event, EventId, EventQuery, Tombstone
from mica.model.mark import mark_of
from mica.store.crystal_rows import DerivedCrystals
from mica.store.protocol import Store
from mica.testing.builders import build
from mica.testing.histories import History
from mica.tokens import estimate

TEXT = "the cookie is set before the redirect and so the session is lost on every login of a new user"


def build_mark(sequence: int, text: str = TEXT, *, session: str | None = "s1", after_s: float | None = None) -> Event:
    return build(sequence, "mark", {"text": text}, context=Context(session=session), after_s=after_s)


def draft_of(
    sources: Sequence[Event],
    *,
    level: Level = "session",
    period: str = "session:s1",
    text: str = "the cookie is set before the redirect",
    supersedes: Sequence[Event] = (),
) -> CrystalDraft:
    """Return the draft of a crystal with these marks or crystals as sources. With valid sources, it obeys every law."""
    crystals = [crystal_of(source) if source.name == CRYSTAL else None for source in sources]
    cited = [
        source.id if crystal is None else crystal.insight[0].sources[0]
        for source, crystal in zip(sources, crystals, strict=True)
    ]
    first = (Statement(text, tuple(cited[:1])),)
    return CrystalDraft(
        level=level,
        period=period,
        insight=first,
        sources=tuple(source.id for source in sources),
        start_at=min(
            source.at if crystal is None else crystal.start_at
            for source, crystal in zip(sources, crystals, strict=True)
        ),
        end_at=max(
            source.at if crystal is None else crystal.end_at for source, crystal in zip(sources, crystals, strict=True)
        ),
        tokens=count_tokens(first),
        source_tokens=sum(
            estimate(mark_of(source).text) if crystal is None else crystal.tokens
            for source, crystal in zip(sources, crystals, strict=True)
        ),
        method="test",
        dropped=tuple(
            Dropped(source.id, "no room")
            for source, mark in zip(sources[1:], cited[1:], strict=True)
            if mark != cited[0]
        ),
        supersedes=tuple(event.id for event in supersedes),
        revision=1 + len(supersedes),
    )


def build_crystal(sequence: int, draft: CrystalDraft) -> Event:
    """Return the event that records a crystal."""
    return build(sequence, CRYSTAL, crystal_data(draft))


# -- Random proposals -------------------------------------------------------------------------------------------

_TEXTS: dict[Level, str] = {
    "session": "the cookie is set before the redirect",
    "day": "the cookie is set before",
    "week": "the cookie is",
    "epoch": "the",
}


def _mutations(draft: CrystalDraft, known: Sequence[EventId]) -> dict[str, st.SearchStrategy[object]]:
    """Return random changes of a draft, by field. Most of them break a law of crystals."""
    return {
        "sources": st.sampled_from([(), draft.sources[:1], (*draft.sources, *known[:1]), (*draft.sources, "no id")]),
        "insight": st.sampled_from([(), (Statement("the", ()),), (Statement("the", tuple(known[-1:])),)]),
        "dropped": st.just(()),
        "level": st.sampled_from(LEVELS),
        "period": st.sampled_from([f"{TREE}{draft.sources[0]}", "session:\0", "tree"]),
        "start_at": st.sampled_from([draft.start_at - timedelta(days=1), draft.end_at]),
        "end_at": st.sampled_from([draft.end_at + timedelta(days=1), draft.start_at, datetime(2030, 1, 1)]),  # noqa: DTZ001
        "tokens": st.sampled_from([-1, 0, 1, draft.tokens + 1, draft.source_tokens, 10**30]),
        "supersedes": st.lists(st.sampled_from([*known, "no id"]), max_size=3).map(tuple),
    }


@st.composite
def proposals(draw: st.DrawFn, max_size: int = 16) -> History:
    """Generate marks, retractions and crystals, to append one by one. About half of the crystals break a law."""
    derived = DerivedCrystals()
    events: History = []
    for sequence in range(1, draw(st.integers(1, max_size)) + 1):
        known = [event.id for event in events]
        kind = draw(st.sampled_from(["mark", "mark", "mark", "retraction", *["crystal"] * 7]))
        sources = _sources(draw, derived, events) if kind == "crystal" else []
        if kind == "retraction":
            ahead = build(sequence + draw(st.integers(0, 2))).id
            mark = draw(st.sampled_from([*known, ahead]))
            event = build(sequence, RETRACTED, {"mark": mark}, after_s=draw(st.integers(-5, 20)))
        elif sources:
            event = build_crystal(sequence, _propose(draw, derived, events, sources))
        else:
            event = build(
                sequence,
                "mark",
                {"text": draw(st.sampled_from([TEXT, f"{TEXT} again", f"session {TEXT}", "cookie"]))},
                context=Context(session=draw(st.sampled_from([None, "s1", "s2"]))),
                after_s=draw(st.integers(-5, 20)),
                origin=draw(st.sampled_from(["agent", "agent", "agent", "recalled"])),
            )
        events.append(event)
        with suppress(LawBroken):
            derived.add(msgspec.structs.replace(event, position=sequence))
    return events


def _sources(draw: st.DrawFn, derived: DerivedCrystals, events: Sequence[Event]) -> list[Event]:
    """Draw sources for a crystal, all of one level. Most of them are valid."""
    by_level: dict[str, list[Event]] = {}
    for event in events:
        level = derived.crystals[event.id].level if event.id in derived.crystals else event.name
        if derived.is_live(event.id) or (level in ("mark", *LEVELS) and draw(st.integers(0, 9)) == 0):
            by_level.setdefault(level, []).append(event)
    if not by_level:
        return []
    chosen = by_level[draw(st.sampled_from(sorted(by_level)))]
    return draw(st.lists(st.sampled_from(chosen), min_size=1, max_size=3, unique_by=lambda event: event.id))


def _propose(
    draw: st.DrawFn, derived: DerivedCrystals, events: Sequence[Event], sources: Sequence[Event]
) -> CrystalDraft:
    above = LEVELS.index(crystal_of(sources[0]).level) + 1 if sources[0].name == CRYSTAL else 0
    level = LEVELS[min(above, len(LEVELS) - 1)]
    is_tree = draw(st.integers(0, 4)) == 0
    period = f"{TREE}{sources[0].id}" if is_tree else f"{level}:{draw(st.sampled_from(['x', 'y']))}"
    ids = {source.id for source in sources}
    sealing = [
        event for event in events if event.id in derived.crystals and ids & {*derived.crystals[event.id].sources}
    ]
    superseded = sealing if draw(st.integers(0, 3)) else []
    draft = draft_of(sources, level=level, period=period, text=_TEXTS[level], supersedes=superseded)
    if draw(st.booleans()):
        return draft
    choices = _mutations(draft, [event.id for event in events])
    name = draw(st.sampled_from(sorted(choices)))
    return msgspec.structs.replace(draft, **{name: draw(choices[name])})


async def _assert_refused(store: Store, law: str, changed: dict[str, object]) -> None:
    """Check that a valid draft with these changes is refused by this law, and that nothing of its batch is stored."""
    marks = [build_mark(1), build_mark(2), build(3, data={"text": "no mark"})]
    await store.log.append(marks)
    broken = msgspec.structs.replace(draft_of(marks[:2]), **changed)

    with pytest.raises(LawBroken) as refused:
        await store.log.append([build_mark(4), build_crystal(5, broken)])

    assert refused.value.law == law
    assert len(await store.log.query(EventQuery())) == 3
    assert await store.crystals.query(CrystalQuery(is_live=None)) == []
    assert len(await store.crystals.unsealed(limit=10)) == 2


class CrystalContract:
    """Tests of `CrystalIndex`. Subclass it, and add a fixture `store` that yields a new, empty store."""

    async def test_a_crystal_reads_back_equal(self, store: Store) -> None:
        """keeps: B-03, B-06"""
        marks = [build_mark(number) for number in (1, 2, 3)]
        draft = draft_of(marks)
        why, rule = (Statement("every login", (marks[1].id,)),), (Statement("a new user", (marks[2].id,)),)
        draft = msgspec.structs.replace(
            draft,
            significance=why,
            principles=rule,
            topics=("cookie", "login"),
            mood=Mood(brightness=0.75, texture=0.25),
            dropped=(),
            tokens=count_tokens((*draft.insight, *why, *rule)),
        )
        await store.log.append([*marks, build_crystal(4, draft)])

        [crystal] = await store.crystals.query(CrystalQuery())

        assert {name: getattr(crystal, name) for name in draft.__struct_fields__} == {
            name: getattr(draft, name) for name in draft.__struct_fields__
        }
        assert (crystal.id, crystal.position) == (build(4).id, 4)
        assert await store.crystals.unsealed(limit=10) == []
        assert await store.files.verify() == []

    async def test_every_level_has_its_sources_time_range_and_cost(self, store: Store) -> None:
        """keeps: B-01, B-04, B-05, B-07, K-13, K-51.

        Crystals of all levels have the same frozen type. A session has marks as its sources, and a day has sessions.
        Both have the token counts of themselves and of their sources, and the name of the estimator that counted.
        """
        marks = [build_mark(number) for number in (1, 2, 3)]
        session = build_crystal(4, msgspec.structs.replace(draft_of(marks), confidence=0.75, marks=3))
        draft = draft_of([session], level="day", period="day:x", text=_TEXTS["day"])
        day = build_crystal(5, msgspec.structs.replace(draft, confidence=0.25, marks=3))
        await store.log.append([*marks, session, day])

        lower, higher = sorted(await store.crystals.query(CrystalQuery(limit=None)), key=lambda each: each.number)

        assert (lower.sources, higher.sources) == (tuple(mark.id for mark in marks), (session.id,))
        for crystal, event in ((lower, session), (higher, day)):
            assert (crystal.start_at, crystal.end_at, crystal.made_at) == (marks[0].at, marks[-1].at, event.at)
            assert crystal.compression == crystal.source_tokens / crystal.tokens > 1
            assert (crystal.marks, crystal.estimator) == (3, "regex-1")
            with pytest.raises(AttributeError):
                crystal.tokens = 1  # type: ignore[misc]  # it is frozen
        assert [(crystal.period, crystal.confidence) for crystal in (lower, higher)] == [
            ("session:s1", 0.75),
            ("day:x", 0.25),
        ]
        assert (lower.tokens, lower.source_tokens) == (estimate(lower.text), 3 * estimate(TEXT))
        assert higher.source_tokens == lower.tokens

    @pytest.mark.parametrize(
        "changed",
        [
            {"sources": ()},
            {"sources": (build(1).id, build(99).id)},
            {"sources": (build(1).id, build(3).id)},
            {"sources": (build(1).id, build(1).id)},
            {"insight": ()},
            {"insight": (Statement("the cookie", ()),)},
            {"insight": (Statement("the cookie", (build(99).id,)),)},
            {"dropped": ()},
        ],
    )
    async def test_a_crystal_without_existing_sources_is_refused(
        self, store: Store, changed: dict[str, object]
    ) -> None:
        """keeps: B-13, TB-01. The error says which law is broken, and nothing is stored."""
        await _assert_refused(store, "provenance", changed)

    async def test_a_day_over_marks_is_refused(self, store: Store) -> None:
        """keeps: B-14"""
        await _assert_refused(store, "levels", {"level": "day"})

    @pytest.mark.parametrize(
        "changed",
        [{"start_at": build(2).at}, {"end_at": build(1).at}, {"end_at": datetime(2030, 1, 1)}],  # noqa: DTZ001
    )
    async def test_a_crystal_whose_time_does_not_contain_its_sources_is_refused(
        self, store: Store, changed: dict[str, object]
    ) -> None:
        """keeps: B-15, TB-03, TB-16. A time without a zone is refused, too."""
        await _assert_refused(store, "time", changed)

    @pytest.mark.parametrize("changed", [{"tokens": 10_000}, {"tokens": 1}, {"tokens": 0, "estimator": "another"}])
    async def test_a_crystal_that_does_not_compress_is_refused(self, store: Store, changed: dict[str, object]) -> None:
        """keeps: B-16, TB-04, K-13. A wrong count of its tokens is refused, too."""
        await _assert_refused(store, "compression", changed)

    async def test_each_level_has_sources_of_the_level_below(self, store: Store) -> None:
        """keeps: B-14, B-18, TB-02, B-35.

        Days have sessions, weeks have days, epochs have weeks; no level is skipped or mixed.
        """
        marks = [build_mark(number) for number in range(1, 5)]
        events = list(marks)
        sources: list[Event] = marks
        text = TEXT
        for number, level in enumerate(LEVELS, 5):
            text = text[: len(text) * 2 // 3]
            event = build_crystal(number, draft_of(sources, level=level, period=f"{level}:x", text=text))
            await store.log.append(marks)
            if level != "session":  # its sources are the lowest, so there is nothing to mix them with
                beneath = next(each for each in reversed(events) if each not in sources)
                mixed = draft_of([*sources, beneath], level=level, period=f"{level}:y", text="the")
                with pytest.raises(LawBroken, match="levels"):
                    await store.log.append([build_crystal(50 + number, mixed)])
            await store.log.append([event])
            events.append(event)
            sources = [event]
        assert [crystal.level for crystal in await store.crystals.query(CrystalQuery())] == list(LEVELS)
        assert [c.level for c in await store.crystals.query(CrystalQuery(is_sealed=False))] == ["epoch"]
        with pytest.raises(LawBroken, match="levels"):
            await store.log.append(
                [build_crystal(60, draft_of([events[4]], level="week", period="week:2", text="the"))]
            )
        assert await store.files.verify() == []

    async def test_no_source_has_two_live_crystals(self, store: Store) -> None:
        """keeps: TB-06, B-16. When a crystal is superseded, its sources may be summarized by a later crystal."""
        marks = [build_mark(number) for number in (1, 2, 3)]
        first = build_crystal(4, draft_of(marks[:2]))
        await store.log.append([*marks, first])

        with pytest.raises(LawBroken) as refused:
            await store.log.append([build_crystal(5, draft_of(marks))])

        assert refused.value.law == "overlap"
        late = build_crystal(6, draft_of(marks, supersedes=[first]))
        await store.log.append([late])
        assert [crystal.id for crystal in await store.crystals.query(CrystalQuery())] == [late.id]
        assert [crystal.id for crystal in await store.crystals.query(CrystalQuery(is_live=False))] == [first.id]
        with pytest.raises(LawBroken):
            await store.log.append([build_crystal(7, draft_of([first], level="day", period="day:x", text="the"))])
        await store.files.rebuild()
        assert [crystal.id for crystal in await store.crystals.query(CrystalQuery())] == [late.id]

    async def test_a_tree_crystal_does_not_seal_its_marks(self, store: Store) -> None:
        """keeps: B-20. A tree crystal covers a tree of causes. Its marks can also become sources of another crystal."""
        marks = [build_mark(1), build_mark(2)]
        tree = build_crystal(3, draft_of(marks, period=f"tree:{marks[0].id}"))
        await store.log.append([*marks, tree])
        assert len(await store.crystals.unsealed(limit=10)) == 2
        await store.log.append([build_crystal(4, draft_of(marks))])
        assert len(await store.crystals.query(CrystalQuery())) == 2

    async def test_a_retracted_mark_is_not_searchable(self, store: Store) -> None:
        """keeps: B-43. The mark stays in the log, but no search finds it and no new crystal may cite it."""
        marks = [build_mark(1, "cookie one"), build_mark(2, "cookie two")]
        await store.log.append(marks)
        await store.log.append([build(3, RETRACTED, {"mark": marks[0].id, "reason": "wrong"}, parent=marks[0])])

        for _ in range(2):
            assert [event.id for event in await store.crystals.unsealed(limit=10)] == [marks[1].id]
            postings = await store.texts.postings(["cooki"])
            assert [posting.position for posting in postings.by_term["cooki"]] == [2]
            assert await store.log.get(marks[0].id) == msgspec.structs.replace(marks[0], position=1)
            with pytest.raises(LawBroken, match="retracted"):
                await store.log.append([build_crystal(4, draft_of(marks, text="cookie"))])
            assert await store.files.verify() == []
            await store.files.rebuild()

    async def test_a_crystal_is_stale_when_one_of_its_sources_is_gone(self, store: Store) -> None:
        """keeps: B-43. The source is a retracted mark or a superseded crystal. Crystals can be retracted, too."""
        marks = [build_mark(1), build_mark(2), build_mark(3, session="s2")]
        first, other = build_crystal(4, draft_of(marks[:2])), build_crystal(5, draft_of(marks[2:], period="session:s2"))
        await store.log.append([*marks, first, other])
        day = build_crystal(6, draft_of([first, other], level="day", period="day:x", text="the cookie is set"))
        await store.log.append([day])
        stale = CrystalQuery(is_stale=True)
        assert await store.crystals.query(stale) == []

        await store.log.append([build(7, RETRACTED, {"mark": marks[1].id, "reason": "wrong"})])
        assert [crystal.id for crystal in await store.crystals.query(stale)] == [first.id]
        again = build_crystal(8, draft_of(marks[:1], supersedes=[first]))
        await store.log.append([again])
        for _ in range(2):
            assert [crystal.id for crystal in await store.crystals.query(stale)] == [day.id]
            assert again.id in [crystal.id for crystal in await store.crystals.query(CrystalQuery(is_stale=False))]
            await store.files.rebuild()

        await store.log.append([build(9, RETRACTED, {"mark": day.id, "reason": "nothing is left"})])
        assert [crystal.id for crystal in await store.crystals.query(CrystalQuery(level="day"))] == []
        assert len(await store.crystals.query(CrystalQuery(level="session", is_sealed=False))) == 2

    async def test_uncovered_marks_are_filtered_by_session_position_and_limit(self, store: Store) -> None:
        """keeps: B-19. Marks that come after many other marks can still be selected."""
        marks = [build_mark(number, session=f"s{number % 2}") for number in range(1, 7)]
        await store.log.append(marks)
        assert [event.id for event in await store.crystals.unsealed(limit=2)] == [mark.id for mark in marks[:2]]
        assert [event.id for event in await store.crystals.unsealed(limit=2, latest=True)] == [
            mark.id for mark in marks[-2:]
        ]
        odd = [mark.id for mark in marks if mark.context.session == "s1"]
        assert [event.id for event in await store.crystals.unsealed(limit=9, session="s1")] == odd
        assert [event.id for event in await store.crystals.unsealed(limit=1, session="s1", latest=True)] == odd[-1:]
        assert await store.crystals.unsealed(limit=9, session="unknown") == []
        places = [event.position or 0 for event in await store.crystals.unsealed(limit=9, after=0)]
        assert sorted(places)[1:3] == [
            event.position for event in await store.crystals.unsealed(limit=2, after=min(places))
        ]
        assert await store.crystals.unsealed(limit=9, after=max(places)) == []

    async def test_crystals_are_filtered_by_level_period_and_time(self, store: Store) -> None:
        """With a limit, the crystals that end last are returned, oldest first."""
        drafts: list[CrystalDraft] = []
        for number in range(1, 6):
            mark = build_mark(number, session=f"s{number}", after_s=number * 60)
            drafts.append(draft_of([mark], period=f"session:s{number}"))
            await store.log.append([mark, build_crystal(number + 10, drafts[-1])])
        minute = timedelta(minutes=1)
        start = drafts[0].start_at

        async def periods(query: CrystalQuery) -> list[str]:
            return [crystal.period[-1] for crystal in await store.crystals.query(query)]

        assert await periods(CrystalQuery()) == ["1", "2", "3", "4", "5"]
        assert await periods(CrystalQuery(limit=2)) == ["4", "5"]
        assert await periods(CrystalQuery(limit=0)) == []
        assert await periods(CrystalQuery(since=start + 2 * minute, until=start + 4 * minute)) == ["3", "4"]
        assert await periods(CrystalQuery(period="session:s2", level="session")) == ["2"]
        assert await periods(CrystalQuery(level="week")) == []

    async def test_crystals_above_a_mark_are_listed_at_every_level(self, store: Store) -> None:
        """keeps: B-13. A purge uses this list to find the crystals that may quote a purged mark."""
        marks = [build_mark(1), build_mark(2), build_mark(3, session="s2")]
        first = build_crystal(4, draft_of(marks[:1]))
        both = build_crystal(5, draft_of(marks[:2], supersedes=[first]))
        other = build_crystal(6, draft_of(marks[2:], period="session:s2"))
        await store.log.append([*marks, first, both, other])
        day = build_crystal(7, draft_of([both, other], level="day", period="day:x", text="the cookie is set"))
        await store.log.append([day])

        assert await store.crystals.citing([marks[0].id]) == [first.id, both.id, day.id]
        assert await store.crystals.citing([marks[1].id]) == [both.id, day.id]
        assert await store.crystals.citing([other.id]) == [day.id]
        assert await store.crystals.citing([day.id, EventId(build(99).id)]) == []
        assert await store.crystals.above([1, 2, 6, 7, 99]) == {
            1: {4, 5, 7},
            2: {5, 7},
            6: {7},
            7: frozenset(),
            99: frozenset(),
        }
        assert await store.crystals.above([]) == {}

    async def test_postings_of_crystals_are_separate_from_those_of_marks(self, store: Store) -> None:
        """Postings of crystals cover their text and their topics."""
        marks = [build_mark(1), build_mark(2)]
        first = build_crystal(3, draft_of(marks[:1], text="the cookie jar"))
        draft = draft_of(marks, text="a cookie", supersedes=[first])
        draft = msgspec.structs.replace(draft, topics=("oauth",))
        await store.log.append([*marks, first, build_crystal(4, draft)])

        async def places(query: CrystalQuery) -> dict[str, list[tuple[int, int]]]:
            found = await store.crystals.postings(["cooki", "jar", "oauth", "redirect"], query)
            return {
                term: [(posting.position, posting.count) for posting in postings] for term, postings in found.items()
            }

        assert await places(CrystalQuery()) == {"cooki": [(4, 1)], "jar": [], "oauth": [(4, 1)], "redirect": []}
        everything = await places(CrystalQuery(is_live=None))
        assert everything == {"cooki": [(3, 1), (4, 1)], "jar": [(3, 1)], "oauth": [(4, 1)], "redirect": []}
        assert (await places(CrystalQuery(level="week")))["cooki"] == []
        assert (await places(CrystalQuery(is_live=None, positions=frozenset([3]))))["cooki"] == [(3, 1)]
        assert [term for term, each in (await store.texts.postings(["cooki", "oauth"])).by_term.items() if each] == [
            "cooki"
        ]

    async def test_a_buried_crystal_leaves_no_row(self, store: Store) -> None:
        """keeps: K-53. After a purge of a mark and its crystals, the remaining marks can be crystallized again."""
        marks = [build_mark(1), build_mark(2)]
        crystal = build_crystal(3, draft_of(marks))
        await store.log.append([*marks, crystal])
        tombstone = Tombstone(purge=build(1_000).id, reason="leaked")
        await store.purges.bury([marks[0].id, *await store.crystals.citing([marks[0].id])], tombstone)

        assert await store.crystals.query(CrystalQuery(is_live=None)) == []
        assert [event.id for event in await store.crystals.unsealed(limit=10)] == [marks[1].id]
        assert await store.files.verify() == []
        await store.files.rebuild()
        assert await store.crystals.query(CrystalQuery(is_live=None)) == []

    async def test_verify_reports_a_crystal_with_a_purged_source(self, store: Store) -> None:
        """keeps: B-13. Such a crystal is not listed at any level, and verify reports it until it is purged, too."""
        marks = [build_mark(1), build_mark(2)]
        session = build_crystal(3, draft_of(marks))
        day = build_crystal(4, draft_of([session], level="day", period="day:x", text="the cookie"))
        await store.log.append([*marks, session, day])
        tombstone = Tombstone(purge=build(1_000).id, reason="leaked")
        await store.purges.bury([marks[0].id], tombstone)

        for _ in range(2):
            assert await store.crystals.query(CrystalQuery(is_live=None)) == []
            assert [event.id for event in await store.crystals.unsealed(limit=10)] == [marks[1].id]
            broken = await store.files.verify()
            assert [session.id in sentence or day.id in sentence for sentence in broken] == [True, True]
            assert "breaks the law of provenance" in broken[0]
            await store.files.rebuild()
        with pytest.raises(LawBroken, match="provenance"):
            await store.log.append([build_crystal(5, draft_of([day], level="week", period="week:x", text="the"))])
        await store.purges.bury([session.id, day.id], tombstone)
        assert await store.files.verify() == []

    async def test_a_purged_retraction_or_crystal_keeps_its_effect(self, store: Store) -> None:
        """keeps: K-53. The tombstone has the ids that the purged event superseded or retracted."""
        marks = [build_mark(1), build_mark(2), build_mark(3, session="s2")]
        first = build_crystal(4, draft_of(marks[:1]))
        second = build_crystal(5, draft_of(marks[:2], supersedes=[first]))
        retraction = build(6, RETRACTED, {"mark": marks[2].id, "reason": "a secret"})
        await store.log.append([*marks, first, second, retraction])
        await store.purges.bury([second.id, retraction.id], Tombstone(purge=build(1_000).id, reason="leaked"))

        for _ in range(2):
            assert [crystal.id for crystal in await store.crystals.query(CrystalQuery(is_live=None))] == [first.id]
            assert await store.crystals.query(CrystalQuery()) == []
            assert [event.id for event in await store.crystals.unsealed(limit=10)] == [marks[0].id, marks[1].id]
            assert await store.files.verify() == []
            await store.files.rebuild()
        stones = [await store.log.get(event.id) for event in (second, retraction)]
        assert [stone.data for stone in stones if stone] == [
            {"purge": build(1_000).id, "reason": "leaked", "supersedes": [first.id]},
            {"purge": build(1_000).id, "reason": "leaked", "retracts": marks[2].id},
        ]

    async def test_a_retraction_may_come_before_what_it_retracts(self, store: Store) -> None:
        """keeps: B-43. Events of different writers may be stored in any order."""
        marks = [build_mark(1, "cookie one"), build_mark(2)]
        crystal = build_crystal(3, draft_of(marks[1:]))
        await store.log.append([build(4, RETRACTED, {"mark": marks[0].id}), build(5, RETRACTED, {"mark": crystal.id})])
        await store.log.append([*marks, crystal])

        for _ in range(2):
            assert [event.id for event in await store.crystals.unsealed(limit=10)] == [marks[1].id]
            assert await store.crystals.query(CrystalQuery()) == []
            assert [each.id for each in await store.crystals.query(CrystalQuery(is_live=False))] == [crystal.id]
            assert await store.files.verify() == []
            await store.files.rebuild()

    async def test_a_crystal_must_come_after_its_sources(self, store: Store) -> None:
        """keeps: B-14. Therefore no crystal can be its own source, directly or indirectly."""
        marks = [build_mark(1), build_mark(2)]
        session = build_crystal(3, draft_of(marks[:1]))
        own = draft_of(marks[1:], period="session:own")
        for early in (
            [build_crystal(4, draft_of(marks)), *marks],
            [*marks, build_crystal(5, draft_of([session], level="day", period="day:x", text="the cookie")), session],
            [*marks, build_crystal(6, msgspec.structs.replace(own, sources=(marks[1].id, build(6).id)))],
            [*marks, build_crystal(7, msgspec.structs.replace(own, supersedes=(marks[1].id,)))],
        ):
            with pytest.raises(LawBroken, match="provenance"):
                await store.log.append(early)
        ahead = msgspec.structs.replace(own, supersedes=(build(8).id, session.id, marks[0].id, EventId("no id")))
        await store.log.append([*marks, build_crystal(8, ahead), session])

        # A crystal supersedes neither itself nor an event that is stored later.
        assert len(await store.crystals.query(CrystalQuery())) == 2
        assert await store.files.verify() == []

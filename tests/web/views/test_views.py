"""What pages show, without any page: plain values over a memory."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import msgspec
import pytest

import mica
from mica.format.lines import ZONE, local, there
from mica.model.event import EventQuery
from mica.model.trail import Figures, Measured, Trail
from mica.model.walk import Step, walks_of
from mica.settings import Settings, TrailSettings
from mica.store.protocol import Store
from mica.store.reference.store import EphemeralStore
from mica.testing import HandClock
from mica.testing.sample_work import OPEN, work
from mica.web.views import briefs, crystals, events, health, sources, today, trails, worth
from mica.web.views import file_map as files
from mica.web.views.cache import Kept

NOW = datetime(2026, 11, 13, 15, 0, tzinfo=UTC)
GATES = TrailSettings()


@pytest.fixture
async def memory(home: Settings) -> AsyncIterator[mica.Memory]:
    memory = mica.Memory(EphemeralStore(), settings=home, clock=HandClock(NOW))
    await work(memory, now=NOW, weeks=3)
    yield memory
    await memory.close()


@pytest.fixture
async def empty(home: Settings) -> AsyncIterator[mica.Memory]:
    memory = mica.Memory(EphemeralStore(), settings=home, clock=HandClock(NOW))
    yield memory
    await memory.close()


def trail(**given: object) -> Trail:
    step = Step(
        path="a.py", operation="read", at=NOW, event=mica.model.event.event_id(mica.model.event.writer_named("t"), 1)
    )
    whole: dict[str, object] = {
        "key": "k",
        "exact": "e",
        "slug": "fix-login",
        "shape": "fix-login",
        "description": "",
        "steps": (step,),
        "first_at": NOW - timedelta(days=20),
        "last_at": NOW - timedelta(days=1),
        "state": "crystallized",
        "version": 1,
    }
    return Trail(**(whole | given))  # type: ignore[arg-type]  # built from a mapping


# -- Today ------------------------------------------------------------------------------------------------------


async def test_today_tells_the_sessions_of_the_day_and_what_is_open(memory: mica.Memory) -> None:
    day = await today.happened(memory, now=NOW)
    still = await today.still_open(memory)

    assert day is not None
    assert day.is_today
    assert [line.session for line in day.sessions] == ["now", "today-2", "today-4"]
    assert (day.prompts, day.edits) == (3, 3)
    assert sum(day.hours) > 0
    assert [each.session for each in still.sessions] == ["now"]
    assert {mark.text for mark in still.threads} == {text for text, _ in OPEN}


async def test_a_quiet_day_shows_the_latest_one_that_had_work(memory: mica.Memory) -> None:
    day = await today.happened(memory, now=NOW + timedelta(days=9))

    assert day is not None
    assert not day.is_today
    assert day.begins_at <= NOW


async def test_what_a_mark_fulfils_is_open_no_more(memory: mica.Memory) -> None:
    asked = next(mark for mark in (await today.still_open(memory)).threads if "question" in mark.tags)

    memory.mark("Only the accountants", parent=await memory.event(asked.id), relation="fulfills")

    assert asked.id not in {mark.id for mark in (await today.still_open(memory)).threads}


async def test_the_next_agents_brief_is_a_preview_that_leaves_no_receipt(memory: mica.Memory) -> None:
    before = len(await briefs.receipts(memory))

    told = await today.told_next(memory, now=NOW)

    assert told.passages
    assert len(await briefs.receipts(memory)) == before


async def test_an_empty_space_has_nothing_on_any_page_and_says_so(empty: mica.Memory) -> None:
    assert await today.is_empty(empty)
    assert await today.happened(empty, now=NOW) is None
    assert (await today.still_open(empty)).threads == ()
    assert (await crystals.shelf(empty)).nodes == ()
    assert (await trails.patterns(empty, gates=GATES, now=NOW)).trails == 0
    assert (await files.drawn(empty)).spots == ()
    assert (await events.latest(empty, events.Asked())).rows == ()
    assert await briefs.receipts(empty) == []
    assert (await sources.sources(empty, now=NOW)).answered == ()
    assert "this space is empty" in (await health.health(empty, now=NOW)).advice[-1]


# -- What it is worth -------------------------------------------------------------------------------------------


async def test_live_figures_count_what_can_be_seen(memory: mica.Memory) -> None:
    """A-28: active trails, hit rate, recognised tasks and wasted tokens; savings only by the hold-out."""
    found = await worth.worth(memory, "week", now=NOW)

    assert found.live.active_trails == len(await memory.trails.list(state="crystallized", limit=None))
    walks = walks_of(await memory.events(EventQuery(limit=None)))
    given = [walk for walk in walks if walk.offer is not None and not walk.offer.held_out]
    hits = [walk for walk in given if walk.offer is not None and set(walk.offer.paths) & set(walk.touched)]
    assert 0 < len(hits) < len(given)
    assert found.live.hit_rate == pytest.approx(len(hits) / len(given))
    assert found.live.recognised is not None
    assert 0.5 < found.live.recognised < 1  # nobody had walked there before the first of each kind
    assert found.live.session == "now"
    assert found.live.session_offers.offers <= 1


async def test_a_period_tells_new_and_named_trails_waste_and_the_arms(memory: mica.Memory) -> None:
    """A-29."""
    found = await worth.worth(memory, "week", now=NOW + timedelta(seconds=1))
    every = walks_of(await memory.events(EventQuery(limit=None)))
    within = [walk for walk in every if walk.at >= found.report.since and walk.offer and not walk.offer.held_out]
    unused = [walk.offer.tokens for walk in within if walk.offer and not set(walk.offer.paths) & set(walk.touched)]

    assert found.now.wasted == worth.Wasted(offers=len(within), unused=len(unused), tokens=sum(unused))
    assert found.now.crystallized == len(await memory.events(EventQuery(names=("trail.crystallized",))))
    assert found.report.arms.offered + found.report.arms.held_out > 0
    assert not found.is_partial


async def test_no_interval_is_claimed_where_an_arm_is_too_small(home: Settings) -> None:
    memory = mica.Memory(EphemeralStore(), settings=home, clock=HandClock(NOW))
    await work(memory, now=NOW, weeks=1, offers=False)

    found = await worth.worth(memory, "day", now=NOW)

    assert found.report.arms.tokens is None
    assert found.report.arms.verdict == "Nothing was offered."
    assert found.live.hit_rate is None
    await memory.close()


# -- Trails -----------------------------------------------------------------------------------------------------


async def test_hot_paths_come_with_readiness_preferences_and_evolution(memory: mica.Memory) -> None:
    """A-21."""
    found = await trails.patterns(memory, gates=GATES, now=NOW)
    weeks = await trails.evolution(memory, now=NOW)

    assert 0 < len(found.hot) <= 10
    assert found.hot[0].trail.score == max(each.trail.score for each in found.hot)
    assert all(0 <= each.readiness.score <= 1 for each in found.hot)
    agents = dict(zip(found.preferences.agents, found.preferences.rows[0][1], strict=True))
    assert agents == {name: figures.runs for name, figures in found.preferences.rows[0][0].agents.items()} | {
        name: 0 for name in agents if name not in found.preferences.rows[0][0].agents
    }
    assert [week.known for week in weeks] == sorted(week.known for week in weeks)
    assert weeks[-1].known == found.trails


def test_readiness_is_as_far_as_the_weakest_condition() -> None:
    young = trail(runs=1, sessions=1, successes=1, version=0, state="observed")
    ready = trail(runs=9, sessions=9, successes=9, version=0, state="hot")

    assert trails.readiness(young, GATES).weakest.name == "walks"
    assert trails.readiness(young, GATES).score == pytest.approx(1 / GATES.runs)
    assert not trails.readiness(young, GATES).is_ready
    assert trails.readiness(ready, GATES).score == 1
    assert trails.readiness(ready, GATES).is_ready


@pytest.mark.parametrize(
    ("given", "kinds"),
    [
        ({"successes": 3, "failures": 1}, ["failing"]),
        ({"successes": 4, "failures": 1}, []),
        ({"measured": Measured(method="replay", sample=9, baseline_tokens=1_000, tokens=600)}, ["saves little"]),
        ({"measured": Measured(method="replay", sample=9, baseline_tokens=1_000, tokens=400)}, []),
        ({"last_at": NOW - timedelta(days=25)}, ["cooling"]),
        ({"last_at": NOW - timedelta(days=10)}, []),
        ({"last_at": NOW - timedelta(days=40), "state": "cooling"}, []),  # it cooled, and is not archived soon
        ({"last_at": NOW - timedelta(days=55), "state": "cooling"}, ["cooling"]),
        ({"version": 1, "state": "hot"}, []),
        ({"version": 0, "state": "hot", "runs": 3, "sessions": 2}, ["new"]),
        ({"successes": 1, "failures": 9, "state": "archived"}, []),
    ],
)
def test_warnings_tell_of_failing_wasteful_cooling_and_new_trails(given: dict[str, object], kinds: list[str]) -> None:
    """A-36."""
    assert [each.kind for each in trails.warnings([trail(**given)], now=NOW, gates=GATES)] == kinds


def test_a_preference_that_changed_is_told_with_both_periods() -> None:
    """A-29."""
    matrix = trails.preferred([trail(agents={"codex": Figures(runs=2), "gemini": Figures(runs=5)})])

    assert matrix.agents == ("gemini", "codex")
    assert matrix.rows[0][1] == (5, 2)
    assert matrix.most == 5


async def test_the_map_counts_turns_by_folder_and_names_the_trails_through_a_file(memory: mica.Memory) -> None:
    found = await files.drawn(memory)
    leaves = list(_leaves(found.spots))

    assert sum(spot.value for spot in found.spots) == sum(leaf.value for leaf in leaves)
    session = next(leaf for leaf in leaves if leaf.path == "auth/session.py")
    assert {found.ways[number].name for number in session.trails} >= {"nav:fix-login-session"}


def _leaves(spots: tuple[files.Spot, ...]) -> list[files.Spot]:
    return [leaf for spot in spots for leaf in (_leaves(spot.children) if spot.children else [spot])]


# -- Crystals ---------------------------------------------------------------------------------------------------


async def test_the_hierarchy_opens_down_to_marks(memory: mica.Memory) -> None:
    """B-32."""
    shelf = await crystals.shelf(memory)
    node = next(each for each in shelf.nodes if each.level == "week")

    seen = [node.level]
    while node.level != "mark":
        node = (await crystals.below(memory, node.id))[0]
        seen.append(node.level)

    assert seen == ["week", "day", "session", "mark"]
    assert shelf.session == "now"
    assert shelf.session_marks > 0


async def test_a_crystal_shows_each_statement_with_the_marks_it_cites(memory: mica.Memory) -> None:
    crystal = (await memory.crystals(level="session"))[0]

    found = await crystals.detail(memory, crystal.id)

    assert [each.text for each in found.statements] == [each.text for each in crystal.statements]
    assert [[event.id for event in each.cited] for each in found.statements] == [
        list(each.sources) for each in crystal.statements
    ]
    assert found.is_live


async def test_a_retracted_crystal_is_shown_as_one(memory: mica.Memory) -> None:
    crystal = (await memory.crystals(level="session"))[0]

    await memory.retract(crystal.id, reason="wrong")

    assert not (await crystals.detail(memory, crystal.id)).is_live


# -- Events and chains ------------------------------------------------------------------------------------------


async def test_a_tail_takes_up_after_the_last_position_and_obeys_its_filters(memory: mica.Memory) -> None:
    asked = events.Asked(names="mark", agent="codex")
    tail = await events.latest(memory, asked)
    with memory.context(agent="codex"):
        memory.mark("a new one")
        memory.emit("file.read", {"path": "x.py"})
    memory.mark("of somebody else")

    later = await events.later(memory, asked, after=tail.position)

    assert [row.said for row in later.rows] == ["a new one"]
    assert {row.name for row in tail.rows} == {"mark"}


async def test_a_tail_that_was_away_long_is_shown_the_last_events_only(empty: mica.Memory) -> None:
    empty.emit("tick", {"text": "seven"})
    for number in range(events.BEHIND_MAX + 50):
        empty.emit("tick", {"text": str(number)})

    later = await events.later(empty, events.Asked(), after=0)
    older = await events.later(empty, events.Asked(text="seven"), after=0)

    assert older.rows == ()  # what is that far behind is not looked for
    assert len(later.rows) == events.ROWS_MAX
    assert later.rows[0].said == str(events.BEHIND_MAX + 49)


async def test_older_events_follow_one_another_without_a_gap_whatever_their_times(empty: mica.Memory) -> None:
    for number in range(250):
        empty.emit("tick", {"text": str(number)}, at=NOW - timedelta(seconds=number // 80))
    asked = events.Asked(names="tick")

    tail = await events.latest(empty, asked)
    seen = [*tail.rows]
    while tail.has_older:
        tail = await events.older(empty, asked, before=seen[-1].id)
        seen += tail.rows

    wanted = await empty.events(EventQuery(names=("tick",), limit=None))
    assert [row.id for row in seen] == [event.id for event in reversed(wanted)]


async def test_a_chain_is_a_tree_in_order_with_times_since_its_beginning(memory: mica.Memory) -> None:
    walk = (await memory.events(EventQuery(session="now", names=("mark",))))[0]

    chain = await events.chain_of(memory, walk)

    assert chain.events == len(await memory.chain(walk))
    assert chain.links[0].row.id == walk.id
    assert chain.links[0].is_asked
    assert [link.indent for link in chain.links][:2] == [0, 1]
    assert all(link.after_s >= 0 for link in chain.links)


def test_filters_come_from_an_address_and_unknown_ones_are_left_out() -> None:
    asked = events.Asked.of({"names": "file.*, mark", "errors": "1", "bundle": "nonsense", "space": "x"})

    assert asked.query() == EventQuery(names=("file.*", "mark"), errors=True, limit=events.ROWS_MAX)
    assert asked.bundle == ""
    assert asked.is_narrowed


# -- Briefs, health, what is kept ---------------------------------------------------------------------------------


async def test_every_line_of_a_receipt_leads_to_its_source(memory: mica.Memory) -> None:
    listed = await briefs.receipts(memory)

    found = await briefs.explained(memory, listed[0].id)

    assert found is not None
    assert len(found.why.because) == listed[0].lines
    assert all(line.evidence for line in found.why.because)


async def test_tasks_with_briefs_stand_beside_tasks_without(memory: mica.Memory) -> None:
    """C-50: by the figures of `mica quality`, over the same eight weeks."""
    found = await briefs.helped(memory, now=NOW)

    assert found.is_on
    assert found.quality.helped == (await memory.quality(until=NOW)).helped
    assert found.quality.helped.on.tasks + found.quality.helped.off.tasks > 0
    assert "too few" in found.quality.helped.verdict
    assert not found.is_partial


async def test_an_event_of_somebody_else_named_brief_is_no_receipt(memory: mica.Memory) -> None:
    ref = memory.emit("brief", {"passages": "none"})

    assert await briefs.explained(memory, ref.id) is None
    assert ref.id not in {each.id for each in await briefs.receipts(memory)}


async def test_health_tells_what_is_due_and_what_failed(memory: mica.Memory) -> None:
    memory.emit("job.failed", {"kind": "evolve", "text": "no space left"}, error=True)
    await memory.tick()

    found = await health.health(memory, now=NOW)

    assert {each.kind for each in found.work} >= {"crystallize", "evolve"}
    assert [event.data["text"] for event in found.ours] == ["no space left"]
    assert any("failed in the last week" in line for line in found.advice)
    assert await health.laws(memory) == []


async def test_what_takes_long_is_counted_once_until_the_log_has_grown_and_a_while_has_passed(
    empty: mica.Memory,
) -> None:
    clock = HandClock()
    kept: Kept[int] = Kept(fresh_s=10, clock=clock.monotonic)
    counted = 0

    async def count() -> int:
        nonlocal counted
        counted += 1
        return counted

    assert [await kept.get(empty, "a", count) for _ in range(3)] == [1, 1, 1]
    clock.move(seconds=59)
    assert await kept.get(empty, "a", count) == 1  # the log is as it was
    empty.emit("tick")
    assert await kept.get(empty, "a", count) == 2
    empty.emit("tick")
    assert await kept.get(empty, "a", count) == 2  # it has grown, just now
    kept.forget()
    assert await kept.get(empty, "a", count) == 3
    clock.move(seconds=60)
    assert await kept.get(empty, "a", count) == 4  # by the clock alone, sessions are over and trails are old


async def test_a_purge_ends_what_was_counted_at_once(empty: mica.Memory) -> None:
    """U-08."""
    kept: Kept[list[str]] = Kept()
    mark = empty.mark("Rosalind Quickfinger")

    async def texts() -> list[str]:
        return [events.said_by(event) for event in await empty.events(EventQuery(names=("mark",)))]

    before = await kept.get(empty, "texts", texts)
    await empty.purge(ids=[mark.id])

    assert before == ["Rosalind Quickfinger"]
    assert await kept.get(empty, "texts", texts) == []


async def test_a_purged_event_is_shown_without_its_content(memory: mica.Memory) -> None:
    mark = (await memory.events(EventQuery(names=("mark",), limit=1)))[0]

    await memory.purge(ids=[mark.id])

    row = events.row_of(await memory.event(mark.id))
    assert row.said == "purged"
    assert msgspec.json.encode(row).find(b"discounts") == -1


async def test_sources_tell_health_latency_coherence_conflicts_and_what_it_all_took(empty: mica.Memory) -> None:
    """C-20."""

    def broken(concept: object) -> object:
        raise ValueError("the reviews are away")

    said = [{"key": "verdict", "text": "approved", "value": "yes", "confidence": 0.9, "at": NOW.isoformat()}]
    other = [{"key": "verdict", "text": "rejected", "value": "no", "confidence": 0.8, "at": NOW.isoformat()}]
    empty.register("board", lambda concept: said, rank=10)
    empty.register("mail", lambda concept: other, rank=40)
    empty.register("reviews", broken, rank=50)
    for _ in range(3):
        await empty.defrag("judgment:code_review:7", deadline_s=20)

    found = await sources.sources(empty, now=NOW)
    declared = await sources.declared(empty)
    account = await sources.gathered(empty, "judgment:code_review:7")

    by_name = {each.name: each for each in found.answered}
    assert found.cost.gathers == 3
    assert found.cost.conflicts == sum(each.conflicts for each in found.gathers) >= 1
    assert found.cost.milliseconds == pytest.approx(sum(each.latency_ms for each in found.gathers), abs=0.01)
    assert found.cost.coherence is not None
    assert by_name["board"].lines >= 1
    assert "reviews are away" in by_name["reviews"].reason
    assert {each.health.source: each.rank for each in declared} == {"board": 10, "mail": 40, "reviews": 50}
    assert [each.health.state for each in declared] == ["answers", "answers", "failing"]
    assert (by_name["reviews"].asked, by_name["reviews"].missed) == (3, 3)
    assert [(each.source, each.against) for each in account.conflicts] == [("mail", "board")]
    assert (await sources.sources(empty, now=NOW)).cost.gathers == 3  # what a person looks at is not recorded


async def test_no_source_failed_more_often_than_it_was_asked(empty: mica.Memory) -> None:
    """A brief about a concept is two receipts, and both name who was missing."""

    def broken(concept: object) -> object:
        raise ValueError("the reviews are away")

    empty.register("reviews", broken)
    await empty.brief("login", concept="judgment:code_review:7", deadline_s=20)

    found = {each.name: each for each in (await sources.sources(empty, now=NOW)).answered}

    assert (found["reviews"].asked, found["reviews"].missed) == (2, 2)
    assert all(each.missed <= each.asked for each in found.values())


async def test_every_engine_shows_the_same(store: Store, home: Settings) -> None:
    """A-21, B-32."""
    shown = []
    for engine in (EphemeralStore(), store):
        memory = mica.Memory(engine, settings=home, clock=HandClock(NOW))
        await work(memory, now=NOW, weeks=1)
        day = await today.happened(memory, now=NOW)
        still = await today.still_open(memory)
        found = await worth.worth(memory, "week", now=NOW)
        hot = await trails.patterns(memory, gates=GATES, now=NOW)
        weeks = await trails.evolution(memory, now=NOW)
        drawn = await files.drawn(memory)
        shelf = await crystals.shelf(memory)
        tail = await events.latest(memory, events.Asked(names="mark"))
        chain = await events.chain_of(memory, await memory.event(tail.rows[-1].id))
        answered = await sources.sources(memory, now=NOW)
        assert day is not None
        shown.append(
            (
                (day.prompts, day.reads, day.edits, day.failures, day.hours),
                ([each.session for each in still.sessions], [mark.text for mark in still.threads]),
                (found.now, found.before, found.report.arms, found.live),
                ([(each.trail.name, each.trail.runs, each.readiness) for each in hot.hot], hot.states, hot.warnings),
                [(week.known, week.crystallized, week.used) for week in weeks],
                drawn.spots,
                ([(node.level, node.name, node.said) for node in shelf.nodes], shelf.session_marks),
                ([row.said for row in tail.rows], [(link.row.name, link.indent) for link in chain.links]),
                [(each.name, each.lines) for each in answered.answered],
                len(await briefs.receipts(memory)),
                len(await crystals.answers(memory, "redirect")),
            )
        )
        await memory.close()

    assert shown[0] == shown[1]


@pytest.mark.parametrize(
    ("name", "data", "told"),
    [
        ("model.answer", {"model": "m-1", "output_tokens": 1_234}, "m-1, 1,234 tokens"),
        ("model.answer", {"model": "m-1"}, "m-1"),
        ("defrag", {"concept": "judgment:code_review:1"}, "judgment:code_review:1"),
        ("brief.switched", {"on": True}, "on"),
        ("brief.switched", {"on": False}, "off"),
    ],
)
async def test_an_event_without_a_text_says_what_it_is_about(
    empty: mica.Memory, name: str, data: dict[str, object], told: str
) -> None:
    empty.emit(name, data)
    [event] = await empty.events()

    assert events.said_by(event) == told


@pytest.mark.parametrize("at", [datetime(9999, 12, 31, 23, 30, tzinfo=UTC), datetime(1, 1, 1, 0, 30, tzinfo=UTC)])
@pytest.mark.parametrize("zone", ["Asia/Tokyo", "America/New_York", "UTC"])
async def test_the_ends_of_the_calendar_are_shown_in_every_zone(at: datetime, zone: str) -> None:
    """K-46: a foreign log may hold any time; where a zone's calendar has ended it is shown as it is."""
    token = ZONE.set(ZoneInfo(zone))
    try:
        async with mica.open(":memory:") as memory:
            memory.emit("session.started", context=mica.Context(session="odd"), at=at)
            day = await today.happened(memory, now=at)
        assert day is not None
        assert local(at)
        assert there(at) == at
        assert there(day.begins_at) <= there(at)
    finally:
        ZONE.reset(token)

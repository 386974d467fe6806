"""All views together: of an empty space, and on every engine."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import mica
from mica.model.event import event_id, writer_named
from mica.model.trail import Trail
from mica.model.walk import Step
from mica.settings import Settings, TrailSettings
from mica.store.protocol import Store
from mica.store.reference.store import EphemeralStore
from mica.testing import HandClock
from mica.testing.sample_work import work
from mica.web.views import briefs, crystals, events, health, sources, today, trails, worth
from mica.web.views import file_map as files

NOW = datetime(2026, 11, 13, 15, 0, tzinfo=UTC)


GATES = TrailSettings()


def trail(**given: object) -> Trail:
    step = Step(path="a.py", operation="read", at=NOW, event=event_id(writer_named("t"), 1))
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


async def test_an_empty_space_has_nothing_on_any_page_and_says_so(empty: mica.Memory) -> None:
    assert await today.is_empty(empty)
    assert await today.happened(empty, now=NOW) is None
    assert (await today.still_open(empty)).threads == ()
    assert (await crystals.shelf(empty)).nodes == ()
    assert (await trails.patterns(empty, gates=GATES, now=NOW)).trails == 0
    assert (await files.file_map(empty)).spots == ()
    assert (await events.latest(empty, events.EventFilter())).rows == ()
    assert await briefs.receipts(empty) == []
    assert (await sources.sources(empty, now=NOW)).answered == ()
    assert "this space is empty" in (await health.health(empty, now=NOW)).advice[-1]


async def test_every_engine_shows_the_same(store: Store, home: Settings) -> None:
    """keeps: A-21, B-32"""
    shown = []
    for engine in (EphemeralStore(), store):
        memory = mica.Memory(engine, settings=home, clock=HandClock(NOW))
        await work(memory, now=NOW, weeks=1)
        day = await today.happened(memory, now=NOW)
        still = await today.still_open(memory)
        found = await worth.worth(memory, "week", now=NOW)
        hot = await trails.patterns(memory, gates=GATES, now=NOW)
        weeks = await trails.evolution(memory, now=NOW)
        drawn = await files.file_map(memory)
        shelf = await crystals.shelf(memory)
        tail = await events.latest(memory, events.EventFilter(names="mark"))
        chain = await events.chain_of(memory, await memory.events.get(tail.rows[-1].id))
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

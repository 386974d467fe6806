"""All views together: of an empty space, and on every engine."""

from __future__ import annotations

from tests.sample_work import work
from tests.web.views.conftest import NOW

import mica
from mica.settings import Settings, TrailSettings
from mica.store.protocol import Store
from mica.store.reference.store import EphemeralStore
from mica.testing import HandClock
from mica.web.views import briefs, crystals, events, health, sources, today, trails, worth
from mica.web.views import file_map as files

GATES = TrailSettings()


async def test_every_view_of_an_empty_space_is_empty(empty: mica.Memory) -> None:
    assert await today.is_empty(empty)
    assert await today.latest_day(empty, now=NOW) is None
    assert (await today.open_work(empty)).threads == ()
    assert (await crystals.shelf(empty)).nodes == ()
    assert (await trails.patterns(empty, gates=GATES, now=NOW)).trails == 0
    assert (await files.file_map(empty)).spots == ()
    assert (await events.latest(empty, events.EventFilter())).rows == ()
    assert await briefs.receipts(empty) == []
    assert (await sources.sources(empty, now=NOW)).contributions == ()
    assert "this space is empty" in (await health.health(empty, now=NOW)).advice[-1]


async def test_every_engine_has_the_same_views(store: Store, home: Settings) -> None:
    """keeps: A-21, B-32"""
    shown = []
    for engine in (EphemeralStore(), store):
        memory = mica.Memory(engine, settings=home, clock=HandClock(NOW))
        await work(memory, now=NOW, weeks=1)
        day = await today.latest_day(memory, now=NOW)
        open_work = await today.open_work(memory)
        found = await worth.worth(memory, "week", now=NOW)
        hot = await trails.patterns(memory, gates=GATES, now=NOW)
        weeks = await trails.evolution(memory, now=NOW)
        tree = await files.file_map(memory)
        shelf = await crystals.shelf(memory)
        tail = await events.latest(memory, events.EventFilter(names="mark"))
        chain = await events.chain_of(memory, await memory.events.get(tail.rows[-1].id))
        used = await sources.sources(memory, now=NOW)
        assert day is not None
        shown.append(
            (
                (day.prompts, day.reads, day.edits, day.failures, day.hours),
                ([each.session for each in open_work.sessions], [mark.text for mark in open_work.threads]),
                (found.now, found.before, found.report.arms, found.live),
                ([(each.trail.name, each.trail.runs, each.readiness) for each in hot.hot], hot.states, hot.warnings),
                [(week.known, week.crystallized, week.used) for week in weeks],
                tree.spots,
                ([(node.level, node.name, node.text) for node in shelf.nodes], shelf.session_marks),
                ([row.summary for row in tail.rows], [(link.row.name, link.indent) for link in chain.links]),
                [(each.name, each.lines) for each in used.contributions],
                len(await briefs.receipts(memory)),
                len(await crystals.answers(memory, "redirect")),
            )
        )
        await memory.close()

    assert shown[0] == shown[1]

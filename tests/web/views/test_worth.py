"""Measured value: tokens saved and wasted according to the hold-out."""

from __future__ import annotations

from datetime import timedelta

import pytest
from tests.sample_work import work
from tests.web.views.conftest import NOW

import mica
from mica.model.event import EventQuery
from mica.model.walk import OFFER, walks_of
from mica.settings import Settings
from mica.store.reference.store import EphemeralStore
from mica.testing import HandClock
from mica.web.views import worth


async def test_live_figures_count_trails_offers_and_tasks(memory: mica.Memory) -> None:
    """keeps: A-28. Active trails, hit rate, recognised tasks and wasted tokens; savings only by the hold-out."""
    found = await worth.worth(memory, "week", now=NOW)

    assert found.live.active_trails == len(await memory.trails.list(state="crystallized", limit=None))
    walks = walks_of(await memory.events.query(EventQuery(limit=None)))
    offered = [walk for walk in walks if walk.offer is not None and not walk.offer.held_out]
    hits = [walk for walk in offered if walk.offer is not None and set(walk.offer.paths) & set(walk.touched)]
    assert 0 < len(hits) < len(offered)
    assert found.live.hit_rate == pytest.approx(len(hits) / len(offered))
    assert found.live.recognised is not None
    assert 0.5 < found.live.recognised < 1  # the first task of each kind has no earlier trail
    assert found.live.session == "now"
    assert found.live.session_held_out
    assert found.live.session_offers == worth.OfferWaste()


async def test_an_offer_that_the_active_session_did_not_use_is_wasted(memory: mica.Memory) -> None:
    """keeps: A-28"""
    at = NOW - timedelta(minutes=5)
    steps = [{"path": path, "operation": "read", "tokens": 100} for path in ("auth.py", "session.py")]
    for paths in (["README.md"], ["auth.py"]):
        walk = memory.trails.record("fix the login", steps, session="now", agent="codex", at=at)
        offer = {"paths": paths, "tokens": 60, "held_out": False}
        memory.emit(OFFER, offer, parent=walk, origin="tool", at=at)

    found = await worth.worth(memory, "week", now=NOW)

    assert found.live.session_offers == worth.OfferWaste(offers=2, unused=1, tokens=60)


async def test_a_period_has_new_and_named_trails_waste_and_the_arms(memory: mica.Memory) -> None:
    """keeps: A-29"""
    found = await worth.worth(memory, "week", now=NOW + timedelta(seconds=1))
    every = walks_of(await memory.events.query(EventQuery(limit=None)))
    within = [walk for walk in every if walk.at >= found.report.since and walk.offer and not walk.offer.held_out]
    unused = [walk.offer.tokens for walk in within if walk.offer and not set(walk.offer.paths) & set(walk.touched)]

    assert found.now.waste == worth.OfferWaste(offers=len(within), unused=len(unused), tokens=sum(unused))
    assert found.now.crystallized == len(await memory.events.query(EventQuery(names=("trail.crystallized",))))
    assert found.report.arms.offered + found.report.arms.held_out > 0
    assert not found.is_partial


async def test_there_is_no_interval_while_an_arm_is_too_small(home: Settings) -> None:
    memory = mica.Memory(EphemeralStore(), settings=home, clock=HandClock(NOW))
    await work(memory, now=NOW, weeks=1, offers=False)

    found = await worth.worth(memory, "day", now=NOW)

    assert found.report.arms.tokens is None
    assert found.report.arms.verdict == "Nothing was offered."
    assert found.live.hit_rate is None
    await memory.close()

"""Receipts: the recorded events of briefs and gathers."""

from __future__ import annotations

import pytest
from tests.sources.scripted_sources import ScriptedSource

import mica
from mica import EventQuery, Memory
from mica.settings import Settings
from mica.sources import api
from mica.sources.protocol import GATHERED_NAMES
from mica.testing import HandClock

CONCEPT = "service:api:login"


async def test_a_purge_removes_receipts_that_quote_a_purged_statement(memory: Memory) -> None:
    old = memory.sources.judge(CONCEPT, "WAG", confidence=0.5, reasons=["the zebra said so"])
    memory.sources.judge(CONCEPT, "GROWL", confidence=0.5)
    gathered = await memory.sources.gather(CONCEPT, deadline_s=5)
    assert "zebra" in gathered.injection

    await memory.purge(ids=[old.id])

    assert "zebra" not in str([event.data for event in await memory.events.query(EventQuery(limit=None))])


async def test_a_receipt_has_the_cost_and_the_concepts_of_a_brief(memory: Memory) -> None:
    memory.sources.add(ScriptedSource("app", {"port": 8080}))

    brief = await memory.brief("port", concept=CONCEPT)

    (recorded,) = await memory.events.query(EventQuery(names=("brief",)))
    assert recorded.id == brief.receipt
    assert recorded.data["concepts"] == [CONCEPT]
    assert recorded.data["coherence"] == 0.75
    assert isinstance(recorded.data["latency_ms"], float)
    (gather,) = await memory.events.query(EventQuery(names=("sources.gathered",)))
    assert gather.data["concept"] == CONCEPT


async def test_briefs_can_be_switched_off_for_one_request_or_for_a_space(memory: Memory) -> None:
    """keeps: C-34. The receipt records it."""
    memory.mark("The login cookie is set before the redirect")

    off = await memory.brief("login", off=True)
    assert (off.text, off.passages, off.is_off) == ("", (), True)

    await memory.briefs.switch(on=False)
    assert not await memory.briefs.is_on()
    assert (await memory.brief("login")).is_off
    await memory.briefs.switch(on=True)
    assert "cookie" in (await memory.brief("login")).text

    recorded = [event.data.get("is_off", False) for event in await memory.events.query(EventQuery(names=("brief",)))]
    assert recorded == [True, True, False]


async def test_a_purge_removes_receipts_of_gathers_that_quote_purged_text(memory: Memory) -> None:
    """keeps: U-08. Receipts that quote other events stay."""
    other = memory.sources.judge("judgment:code_review:other", "Sis", confidence=0.9)
    await memory.sources.gather("judgment:code_review:other", deadline_s=30)
    gone = [memory.mark("abc123 holds Ararat").id, memory.sources.judge(CONCEPT, "Masis", confidence=0.9).id]
    await memory.sources.gather(CONCEPT)
    await memory.brief("abc123", concept=CONCEPT)

    await memory.purge(ids=gone)

    left = [str(event.data) for event in await memory.events.query(EventQuery(limit=None))]
    assert not [data for data in left if "Ararat" in data or "Masis" in data]
    assert [data for data in left if other.id in data and "Sis" in data]


async def test_gathers_of_earlier_versions_are_still_read(
    home: Settings, clock: HandClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Earlier versions recorded a gather as `defrag`. Every reader of recorded gathers knows both names."""
    assert GATHERED_NAMES == ("sources.gathered", "defrag")
    async with mica.open(":memory:", settings=home, clock=clock) as memory:
        memory.sources.add(ScriptedSource("app", {"port": 8080}))
        mark = memory.mark("The login has stripes like a zebra")
        monkeypatch.setattr(api, "GATHERED", "defrag")
        earlier = await memory.sources.gather(CONCEPT, deadline_s=5)
        monkeypatch.undo()
        assert "zebra" in earlier.injection
        assert earlier.receipt is not None
        assert (await memory.events.get(earlier.receipt)).name == "defrag"
        clock.move(hours=1)

        (whole,) = await memory.why(earlier.receipt)
        (line,) = await memory.why("[app] port is 8080")
        then = await memory.brief(concept=CONCEPT, at=clock())
        report = await memory.briefs.quality(weeks=1)
        history = await memory.sources.history()
        warmed = await memory.sources.warm_most_used()
        await memory.purge(ids=[mark.id])
        left = str([event.data for event in await memory.events.query(EventQuery(limit=None))])

    assert (("app", "row port"),) in [each.origins for each in whole.because]
    assert line.id == earlier.receipt
    assert "port is 8080" in then.text
    assert (report.cost.gathers, [week.gathers for week in report.weeks]) == (1, [1])
    assert history["app"].asked == 1
    assert warmed == 1
    assert "zebra" not in left

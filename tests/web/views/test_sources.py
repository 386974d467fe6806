"""What each source contributed."""

from __future__ import annotations

import pytest
from tests.web.views.conftest import NOW

import mica
from mica.sources.protocol import GATHERED_NAMES
from mica.web.views import sources


async def test_sources_show_health_latency_coherence_conflicts_and_cost(empty: mica.Memory) -> None:
    """keeps: C-20"""

    def broken(concept: object) -> object:
        raise ValueError("the reviews are away")

    first = [{"key": "verdict", "text": "approved", "value": "yes", "confidence": 0.9, "at": NOW.isoformat()}]
    other = [{"key": "verdict", "text": "rejected", "value": "no", "confidence": 0.8, "at": NOW.isoformat()}]
    empty.sources.register("board", lambda concept: first, rank=10)
    empty.sources.register("mail", lambda concept: other, rank=40)
    empty.sources.register("reviews", broken, rank=50)
    for _ in range(3):
        await empty.sources.gather("judgment:code_review:7", deadline_s=20)

    found = await sources.sources(empty, now=NOW)
    declared = await sources.statuses(empty)
    account = await sources.gather(empty, "judgment:code_review:7")

    by_name = {each.name: each for each in found.contributions}
    assert found.cost.gathers == 3
    assert found.cost.conflicts == sum(each.conflicts for each in found.gathers) >= 1
    assert found.cost.milliseconds == pytest.approx(sum(each.latency_ms for each in found.gathers), abs=0.01)
    assert found.cost.coherence is not None
    assert by_name["board"].lines >= 1
    assert "reviews are away" in by_name["reviews"].reason
    assert {each.health.source: each.rank for each in declared} == {"board": 10, "mail": 40, "reviews": 50}
    assert [each.health.state for each in declared] == ["answers", "answers", "failing"]
    assert (by_name["reviews"].requests, by_name["reviews"].failures) == (3, 3)
    assert [(each.source, each.against) for each in account.conflicts] == [("mail", "board")]
    assert (await sources.sources(empty, now=NOW)).cost.gathers == 3  # a preview is not recorded


async def test_gathers_of_earlier_versions_are_counted(empty: mica.Memory) -> None:
    for name in GATHERED_NAMES:
        empty.emit(name, {"concept": "a:b:c", "asked": ["board"]}, origin="recalled")

    found = await sources.sources(empty, now=NOW)

    assert ([each.concept for each in found.gathers], found.cost.gathers) == (["a:b:c", "a:b:c"], 2)
    assert [(each.name, each.requests) for each in found.contributions] == [("board", 2)]


async def test_no_source_has_more_failures_than_requests(empty: mica.Memory) -> None:
    """A brief about a concept records two receipts, and both list the missing source."""

    def broken(concept: object) -> object:
        raise ValueError("the reviews are away")

    empty.sources.register("reviews", broken)
    await empty.brief("login", concept="judgment:code_review:7", deadline_s=20)

    found = {each.name: each for each in (await sources.sources(empty, now=NOW)).contributions}

    assert (found["reviews"].requests, found["reviews"].failures) == (2, 2)
    assert all(each.failures <= each.requests for each in found.values())

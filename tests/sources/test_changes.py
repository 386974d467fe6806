"""Changes: events that make cached replies old, of this process and of others."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from tests.sources.gated_source import GatedSource

import mica
from mica import EventQuery, Memory
from mica.settings import Settings
from mica.sources.protocol import Concept
from mica.sources.replies import NOTES_MAX
from mica.testing import HandClock

CONCEPT = "judgment:code_review:abc123"


@pytest.fixture(params=["sqlite", "postgres"])
def address(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A space that several processes share."""
    if request.param == "sqlite":
        return str(tmp_path / "shared.db")
    return str(request.getfixturevalue("server").address())


async def until(memory: Memory, source: GatedSource, count: int) -> None:
    """Ask until a source was asked so often: events of others are heard soon, not at once."""
    while len(source.asked) < count:
        await memory.sources.gather(CONCEPT)
        await asyncio.sleep(0.01)


async def test_an_event_is_noted_once_even_if_it_is_stored_later(memory: Memory) -> None:
    app = GatedSource("app", invalidated_by=("deploy.done",))
    memory.sources.add(app)
    await memory.sources.gather(CONCEPT)
    memory.emit("deploy.done")
    await memory.sources.gather(CONCEPT)

    await memory.events.position()  # stores it
    await memory.sources.gather(CONCEPT)

    assert len(app.asked) == 2


async def test_an_event_counts_among_many_later_ones(address: str, home: Settings, clock: HandClock) -> None:
    """keeps: K-24. If it is unknown whether another process's reply is outdated, it counts as outdated."""
    here, there = (GatedSource("app", invalidated_by=("deploy.*",)) for _ in range(2))
    async with mica.open(address, settings=home, clock=clock) as first:
        first.sources.add(here)
        await first.sources.gather(CONCEPT)
    async with mica.open(address, settings=home, clock=clock) as second:
        second.sources.add(there)
        await second.sources.gather("a:b:other")
        second.emit("deploy.done", {"concept": CONCEPT})
        for number in range(NOTES_MAX):
            second.emit("deploy.done", {"concept": f"a:b:{number}"})
        await second.events.query(EventQuery(limit=1))

        async with asyncio.timeout(10):
            await until(second, there, 2)

    assert there.asked[-1] == Concept.parse(CONCEPT).id

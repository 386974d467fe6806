"""Disagreements of sources: each is recorded once."""

from __future__ import annotations

import asyncio
from pathlib import Path

from tests.sources.scripted_sources import ScriptedSource

import mica
from mica import EventQuery, Memory
from mica.settings import Settings


async def gathered(memory: Memory, count: int) -> list[str]:
    """The concepts of the first gathers that are recorded."""
    found: list[str] = []
    async with asyncio.timeout(20):
        async for event in memory.events.follow(EventQuery(names=("sources.gathered",)), after=0):
            found.append(str(event.data["concept"]))
            if len(found) == count:
                break
    return found


async def test_low_agreement_of_cached_replies_queries_their_sources_again(home: Settings) -> None:
    """keeps: C-15. This happens once; a reply fetched just now is not fetched again."""
    async with mica.open(":memory:", settings=home) as memory:
        sources = [ScriptedSource(f"s{number}", {"port": number}) for number in range(4)]
        for each in sources:
            memory.sources.add(each)
        await memory.sources.gather("a:b:c")
        assert await memory.events.query(EventQuery(names=("quality.degraded",))) == []

        cached = await memory.sources.gather("a:b:c")

        assert cached.coherence == 0.25
        assert (await memory.events.query(EventQuery(names=("quality.degraded",))))[0].data["concept"] == "a:b:c"
        assert await gathered(memory, 3) == ["a:b:c"] * 3
        assert len(sources[0].requests) == 2


async def test_a_lasting_disagreement_is_recorded_once_and_its_replies_are_used(home: Settings, tmp_path: Path) -> None:
    """keeps: C-15. It is recorded once across processes; a different disagreement is recorded again."""
    sources = [ScriptedSource(f"s{number}", {"port": number}) for number in range(4)]

    async def ask(times: int) -> int:
        async with mica.open(tmp_path / "space.db", settings=home) as memory:
            for each in sources:
                memory.sources.add(each)
            for _ in range(times):
                await memory.sources.gather("a:b:c")
            return len(await memory.events.query(EventQuery(names=("quality.degraded",))))

    assert await ask(6) == 1
    assert len(sources[0].requests) == 2  # at first, and after that was told
    assert await ask(6) == 1
    assert len(sources[0].requests) <= 3

    sources[0].facts["port"] = 9
    async with mica.open(tmp_path / "space.db", settings=home) as memory:
        memory.emit("learning.done", {"concept": "a:b:c"})
    assert await ask(6) == 2

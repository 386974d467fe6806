"""The public class behind `memory.crystals`: streams and contexts."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

import mica
from mica.model.crystal import Crystal
from mica.settings import Settings


async def commit(memory: mica.Memory, period: str) -> Crystal:
    marks = [memory.mark(f"The proxy dropped cookie {number} of {period}") for number in range(5)]
    ids = [mark.id for mark in marks]
    return await memory.crystals.commit([(f"Cookies of {period}", ids)], sources=ids, period=period)


async def test_a_stream_gives_crystals_of_a_level_from_any_process(tmp_path: Path, home: Settings) -> None:
    """keeps: B-31"""
    async with mica.open(tmp_path / "space.db", settings=home) as here:
        before = await commit(here, "session:before")
        async with mica.open(tmp_path / "space.db", settings=home) as there:
            everything = here.crystals.stream(after=await here.events.position())
            days = here.crystals.stream("day", after=0)
            waiting = [asyncio.ensure_future(anext(stream)) for stream in (everything, days)]
            session = await commit(there, "session:one")
            day = await there.crystals.commit(
                [("A day", session.insight[0].sources)], sources=[session.id], period="day:2026-11-01", level="day"
            )

            assert [(await each).id for each in waiting] == [session.id, day.id]
            assert (await anext(everything)).id == day.id
            assert (await anext(here.crystals.stream(after=0))).id == before.id


async def test_a_stream_of_an_unknown_level_is_refused(home: Settings) -> None:
    async with mica.open(":memory:", settings=home) as memory:
        with pytest.raises(mica.InvalidInput, match="there is no level 'month'"):
            await anext(memory.crystals.stream("month"))  # type: ignore[arg-type]  # what a caller without types may give


# -- Context: crystals within a budget (design B)


async def hierarchy(memory: mica.Memory) -> tuple[Crystal, Crystal, Crystal]:
    """A day over one session, and a session that no day covers."""
    covered = await commit(memory, "session:covered")
    fresh = await commit(memory, "session:fresh")
    day = await memory.crystals.commit(
        [("Day of the proxy", covered.insight[0].sources)], sources=[covered.id], period="day:2026-11-01", level="day"
    )
    return covered, fresh, day


async def test_making_crystals_returns_a_list_however_many_there_are(home: Settings) -> None:
    """keeps: K-16. None in an empty space, one for a session, and none again while nothing is new."""
    async with mica.open(":memory:", settings=home) as memory:
        assert await memory.crystals.make() == []
        with memory.context(session="s1"):
            for number in range(6):
                memory.mark(f"The proxy of production dropped cookie number {number} of the login")

        made = await memory.crystals.make()

        assert isinstance(made, list)
        assert [crystal.period for crystal in made] == ["session:s1"]
        assert await memory.crystals.make(session="s1") == []
        assert await memory.crystals.make_due() == []


async def test_a_context_is_crystals_with_the_highest_level_first(home: Settings) -> None:
    """keeps: B-26, K-12"""
    async with mica.open(":memory:", settings=home) as memory:
        covered, fresh, day = await hierarchy(memory)

        context = await memory.crystals.context()

        assert context[0].id == day.id
        assert {crystal.id for crystal in context} == {covered.id, fresh.id, day.id}
        levels = [crystal.number for crystal in context]
        assert levels == sorted(levels, reverse=True)


async def test_a_context_never_exceeds_its_budget_and_uses_it(home: Settings) -> None:
    """keeps: B-26, TB-08, TB-09. With room for one crystal it holds the highest; those it covers are added last."""
    async with mica.open(":memory:", settings=home) as memory:
        covered, fresh, day = await hierarchy(memory)
        both = day.tokens + fresh.tokens

        assert await memory.crystals.context(1) == []
        assert [each.id for each in await memory.crystals.context(day.tokens)] == [day.id]
        assert [each.id for each in await memory.crystals.context(both)] == [day.id, fresh.id]
        assert len(await memory.crystals.context(both + covered.tokens)) == 3


async def test_a_context_with_a_query_holds_only_relevant_crystals(home: Settings) -> None:
    """keeps: B-26, K-11"""
    async with mica.open(":memory:", settings=home) as memory:
        _, fresh, _ = await hierarchy(memory)

        found = await memory.crystals.context(query="fresh", recency_weight=0.0)

        assert [crystal.id for crystal in found] == [fresh.id]
        assert await memory.crystals.context(query="kubernetes") == []


async def test_a_retracted_crystal_is_in_no_context(home: Settings) -> None:
    async with mica.open(":memory:", settings=home) as memory:
        crystal = await commit(memory, "session:wrong")

        await memory.retract(crystal.id, reason="wrong file")

        assert crystal.id not in {each.id for each in await memory.crystals.context()}


@pytest.mark.parametrize(("budget", "weight", "message"), [(0, 0.5, "0 tokens"), (100, 1.5, "recency weight of 1.5")])
async def test_an_impossible_budget_or_weight_is_refused(
    home: Settings, budget: int, weight: float, message: str
) -> None:
    async with mica.open(":memory:", settings=home) as memory:
        with pytest.raises(mica.InvalidInput, match=message):
            await memory.crystals.context(budget, recency_weight=weight)

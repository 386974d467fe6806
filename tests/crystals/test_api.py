"""Crystals as they are made."""

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
    return await memory.commit_crystal([(f"Cookies of {period}", ids)], sources=ids, period=period)


async def test_a_stream_gives_crystals_of_a_level_from_any_process(tmp_path: Path, home: Settings) -> None:
    """B-31"""
    async with mica.open(tmp_path / "space.db", settings=home) as here:
        before = await commit(here, "session:before")
        async with mica.open(tmp_path / "space.db", settings=home) as there:
            everything = here.crystal_stream(after=await here.position())
            days = here.crystal_stream("day", after=0)
            waiting = [asyncio.ensure_future(anext(stream)) for stream in (everything, days)]
            session = await commit(there, "session:one")
            day = await there.commit_crystal(
                [("A day", session.insight[0].sources)], sources=[session.id], period="day:2026-11-01", level="day"
            )

            assert [(await each).id for each in waiting] == [session.id, day.id]
            assert (await anext(everything)).id == day.id
            assert (await anext(here.crystal_stream(after=0))).id == before.id


async def test_a_stream_of_a_level_that_is_none_is_refused(home: Settings) -> None:
    async with mica.open(":memory:", settings=home) as memory:
        with pytest.raises(mica.InvalidInput, match="there is no level 'month'"):
            await anext(memory.crystal_stream("month"))  # type: ignore[arg-type]  # what a caller without types may give

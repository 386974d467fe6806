"""A crystal written by a real model, through the public API."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import msgspec
import pytest
from tests.crystals.test_model_digest import MARKS

import mica
from mica.errors import ModelError
from mica.model.event import EventQuery
from mica.settings import Settings
from mica.testing import HandClock


def by_model(home: Settings, weights: Path) -> Settings:
    models = {"tiers": {"routine": f"local:{weights}"}, "known": {f"local:{weights}": {"window_tokens": 4_096}}}
    return msgspec.structs.replace(
        home,
        models=msgspec.convert(models, type(home.models)),
        crystals=msgspec.structs.replace(home.crystals, auto=False),
    )


async def test_a_real_small_model_makes_a_crystal(
    tmp_path: Path, home: Settings, clock: HandClock, weights: Path
) -> None:
    """keeps: B-17, B-22, K-18, K-57.

    It obeys the same laws and its cost is recorded; the test fails if anything but the model answered.
    """
    async with mica.open(tmp_path / "space.db", settings=by_model(home, weights), clock=clock) as memory:
        with memory.context(session="s1", agent="scout"):
            for text in MARKS:
                clock.at += timedelta(minutes=1)
                memory.mark(text)
        [crystal] = await memory.crystals.make(digest="model")

        assert crystal.method == f"model:local:{weights}"
        [stored] = await memory.crystals.list()
        assert stored == crystal
        assert crystal.tokens < crystal.source_tokens
        marks = {event.id: str(event.data["text"]) for event in await memory.events.query(EventQuery(names=("mark",)))}
        assert {each for statement in crystal.statements for each in statement.sources} <= marks.keys()
        spent = await memory.events.query(EventQuery(names=("model.spent",)))
        assert sum(int(str(event.data["tokens"])) for event in spent) > 0
        assert (await memory._open_models()).ledger.spent(model=f"local:{weights}").calls == len(spent)
        assert await memory.upkeep.verify() == []


async def test_without_a_configured_model_no_other_method_is_used(
    tmp_path: Path, home: Settings, clock: HandClock
) -> None:
    """keeps: K-57.

    A model is called only if one is configured, and an extractive crystal is never a silent substitute.
    """
    async with mica.open(tmp_path / "space.db", settings=home, clock=clock) as memory:
        with memory.context(session="s1"):
            for text in MARKS:
                memory.mark(text)
        with pytest.raises(ModelError):
            await memory.crystals.make(digest="model")
        assert await memory.crystals.list() == []

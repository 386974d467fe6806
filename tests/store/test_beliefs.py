"""Every engine keeps the promises of `BeliefTable`; the `store` fixture has one parameter per engine."""

from __future__ import annotations

import asyncio
from pathlib import Path

import msgspec
import pytest

from mica.model.belief import BeliefQuery
from mica.settings import Settings
from mica.store.protocol import Store
from mica.store.target import open_store
from mica.testing.contract.beliefs import BeliefContract, build_belief


class TestBeliefs(BeliefContract):
    """The suite is in `mica.testing.contract.beliefs`."""


async def learn_steps(store: Store, name: str, steps: int) -> None:
    """Learn up to one more position, again and again, and begin again when another store was faster."""
    learned = 0
    while learned < steps:
        now = await store.beliefs.learned_up_to()
        lesson = msgspec.structs.replace(now, position=now.position + 1)
        belief = build_belief(f"{name}-{lesson.position}", "main", after_s=lesson.position)
        learned += await store.beliefs.save([belief], lesson, after=now.position)


@pytest.mark.parametrize("engine", ["sqlite", "postgres"])
async def test_stores_that_learn_at_once_learn_each_position_once(
    request: pytest.FixtureRequest, tmp_path: Path, home: Settings, engine: str
) -> None:
    """keeps: U-03. Each has its own connections, as in several processes."""
    target = tmp_path / "space.db" if engine == "sqlite" else request.getfixturevalue("server").address()
    stores = [await open_store(target, settings=home) for _ in range(3)]

    await asyncio.gather(*(learn_steps(store, f"b{number}", 5) for number, store in enumerate(stores)))

    found = await stores[0].beliefs.query(BeliefQuery())
    assert [belief.id.split("-")[1] for belief in found] == [str(position) for position in range(15, 0, -1)]
    assert await stores[1].beliefs.related(["main"]) == {"main": found}
    assert (await stores[2].beliefs.learned_up_to()).position == 15
    for store in stores:
        await store.close()

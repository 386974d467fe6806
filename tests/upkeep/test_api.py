"""The maintenance of a space through `memory.upkeep`."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

import mica
from mica import EventQuery, Memory
from mica.errors import (
    InvalidEvent,
    InvalidInput,
)
from mica.settings import Settings
from mica.testing import HandClock


async def test_ageing_changes_no_answer(memory: Memory, clock: HandClock) -> None:
    """keeps: E-03, TE-09. Rows of the last 24 hours stay; older ones are compressed and still found."""
    with memory.context(session="s1", agent="scout"):
        first = memory.mark("The cookie is set before the redirect")
        second = memory.mark("Moved the cookie after the redirect", parent=first)
    assert await memory.upkeep.age() == 0
    before = await memory.search("cookie")
    chain = await memory.events.chain(await memory.events.get(first.id))
    events = await memory.events.query(EventQuery(session="s1"))

    clock.move(hours=25)
    memory.mark("still young")
    progress: list[int] = []
    count = await memory.upkeep.age(on_progress=progress.append)

    assert count == sum(progress[-1:]) == (await memory.upkeep.sizes()).aged
    assert await memory.events.chain(await memory.events.get(first.id)) == chain
    assert await memory.events.query(EventQuery(session="s1")) == events
    assert [hit.id for hit in await memory.search("cookie")] == [hit.id for hit in before]
    assert (await memory.events.get(second.id)).parent_id == first.id
    with pytest.raises(InvalidInput, match="cannot be negative"):
        await memory.upkeep.age(timedelta(hours=-1))


async def test_sizes_include_events_not_yet_stored(memory: Memory) -> None:
    for _ in range(3):
        memory.emit("one")

    assert (await memory.upkeep.sizes()).events == 3


async def test_a_healthy_space_has_no_problems_and_no_backlog(memory: Memory) -> None:
    memory.mark("The cookie is set too early")

    assert await memory.upkeep.verify() == []
    assert memory.upkeep.damaged == []
    assert await memory.upkeep.backlog() == (0, 0)


async def test_a_rebuild_reads_every_event_and_changes_no_answer(memory: Memory) -> None:
    memory.mark("The cookie is set too early")
    memory.emit("one")
    before = await memory.search("cookie")

    assert await memory.upkeep.rebuild() == 2
    assert await memory.search("cookie") == before


async def test_a_tick_runs_each_job_that_is_due_once(memory: Memory) -> None:
    memory.emit("one")

    first = await memory.upkeep.tick(["crystallize"])
    second = await memory.upkeep.tick(["crystallize"])

    assert ([each.kind for each in first], second) == (["crystallize"], [])
    assert {work.kind for work in await memory.upkeep.planned()} >= {"crystallize"}
    with pytest.raises(InvalidInput, match="kinds"):
        await memory.upkeep.tick("crystallize")


async def test_pinned_events_are_recorded_by_their_ids(memory: Memory) -> None:
    one = memory.emit("one")
    memory.upkeep.pin(one)
    memory.upkeep.unpin(one.id)

    pinned = await memory.events.query(EventQuery(names=("log.*",)))

    assert [event.data["ids"] for event in pinned] == [[one.id], [one.id]]
    with pytest.raises(InvalidInput, match="no events; pass events"):
        memory.upkeep.pin()
    with pytest.raises(InvalidEvent):
        memory.upkeep.pin("nonsense")


async def test_a_copy_is_another_store_with_the_same_events(memory: Memory, home: Settings, tmp_path: Path) -> None:
    memory.emit("one")

    copied = await memory.upkeep.copy_to(tmp_path / "copy.db")

    assert (copied.events, copied.stored, copied.repeated) == (1, 1, 0)
    async with mica.open(tmp_path / "copy.db", settings=home) as other:
        assert await other.events.query() == await memory.events.query()


async def test_without_an_embedding_model_no_vectors_are_made(memory: Memory) -> None:
    memory.mark("The cookie is set too early")

    assert await memory.upkeep.embed() == 0
    assert await memory.upkeep.without_vector() is None


async def test_a_purged_value_can_be_allowed_again(memory: Memory) -> None:
    memory.mark("The vault is called q7zx")
    await memory.purge(value="q7zx")
    with pytest.raises(InvalidInput, match="was purged"):
        memory.mark("q7zx again")

    await memory.upkeep.allow("q7zx")

    memory.mark("q7zx again")
    with pytest.raises(InvalidInput, match="no purge of the value"):
        await memory.upkeep.allow("q7zx")


async def test_retention_must_be_configured(memory: Memory) -> None:
    with pytest.raises(InvalidInput, match="retention"):
        await memory.upkeep.retain()

    assert not (await memory.upkeep.retain(dry_run=True)).enabled

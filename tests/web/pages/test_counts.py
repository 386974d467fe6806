"""Counted figures and their cache."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

import mica
from mica.model.event import EventQuery
from mica.settings import Settings
from mica.store.reference.store import EphemeralStore
from mica.testing import HandClock
from mica.web.pages.counts import CountCache
from mica.web.views import events


@pytest.fixture
async def empty(home: Settings) -> AsyncIterator[mica.Memory]:
    memory = mica.Memory(EphemeralStore(), settings=home, clock=HandClock())
    yield memory
    await memory.close()


async def test_a_value_is_cached_until_the_log_has_grown_and_it_is_not_fresh(
    empty: mica.Memory,
) -> None:
    clock = HandClock()
    cache: CountCache[int] = CountCache(fresh_s=10, clock=clock.monotonic)
    counted = 0

    async def count() -> int:
        nonlocal counted
        counted += 1
        return counted

    assert [await cache.get(empty, "a", count) for _ in range(3)] == [1, 1, 1]
    clock.move(seconds=59)
    assert await cache.get(empty, "a", count) == 1  # the log has not grown
    empty.emit("tick")
    assert await cache.get(empty, "a", count) == 2
    empty.emit("tick")
    assert await cache.get(empty, "a", count) == 2  # the log has grown, but the value is fresh
    cache.clear()
    assert await cache.get(empty, "a", count) == 3
    clock.move(seconds=60)
    assert await cache.get(empty, "a", count) == 4  # the value has expired


async def test_a_purge_invalidates_the_cache_at_once(empty: mica.Memory) -> None:
    """keeps: U-08"""
    cache: CountCache[list[str]] = CountCache()
    mark = empty.mark("Rosalind Quickfinger")

    async def texts() -> list[str]:
        return [events.describe_event(event) for event in await empty.events.query(EventQuery(names=("mark",)))]

    before = await cache.get(empty, "texts", texts)
    await empty.purge(ids=[mark.id])

    assert before == ["Rosalind Quickfinger"]
    assert await cache.get(empty, "texts", texts) == []

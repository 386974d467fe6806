"""Counted figures and their cache."""

from __future__ import annotations

import mica
from mica.model.event import EventQuery
from mica.testing import HandClock
from mica.web.views import events
from mica.web.views.cache import CountCache


async def test_what_takes_long_is_counted_once_until_the_log_has_grown_and_a_while_has_passed(
    empty: mica.Memory,
) -> None:
    clock = HandClock()
    kept: CountCache[int] = CountCache(fresh_s=10, clock=clock.monotonic)
    counted = 0

    async def count() -> int:
        nonlocal counted
        counted += 1
        return counted

    assert [await kept.get(empty, "a", count) for _ in range(3)] == [1, 1, 1]
    clock.move(seconds=59)
    assert await kept.get(empty, "a", count) == 1  # the log is as it was
    empty.emit("tick")
    assert await kept.get(empty, "a", count) == 2
    empty.emit("tick")
    assert await kept.get(empty, "a", count) == 2  # it has grown, just now
    kept.forget()
    assert await kept.get(empty, "a", count) == 3
    clock.move(seconds=60)
    assert await kept.get(empty, "a", count) == 4  # by the clock alone, sessions are over and trails are old


async def test_a_purge_ends_what_was_counted_at_once(empty: mica.Memory) -> None:
    """keeps: U-08"""
    kept: CountCache[list[str]] = CountCache()
    mark = empty.mark("Rosalind Quickfinger")

    async def texts() -> list[str]:
        return [events.said_by(event) for event in await empty.events.query(EventQuery(names=("mark",)))]

    before = await kept.get(empty, "texts", texts)
    await empty.purge(ids=[mark.id])

    assert before == ["Rosalind Quickfinger"]
    assert await kept.get(empty, "texts", texts) == []

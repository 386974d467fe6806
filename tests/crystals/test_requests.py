"""The report of a purge or a retraction about the crystals it removed."""

from __future__ import annotations

from tests.crystals.working_days import crystallize_two_weeks, observe

import mica
from mica.settings import CrystalSettings
from mica.testing import HandClock


async def test_waiting_crystals_are_listed_with_a_reason(memory: mica.Memory, clock: HandClock) -> None:
    """keeps: B-35, B-61. A crystal is not made at once; what is missing from a day is named, not judged."""
    observe(memory, clock, "s1")
    memory.mark("one thing")
    assert {(each.period, each.count, each.reason) for each in await memory.crystals.waiting()} == {
        ("session:s1", 6, "the session is still active"),
        ("pool:2026-11-02", 1, "small sessions are pooled at the end of the day"),
    }
    assert await memory.crystals.list() == []


async def test_a_purge_reports_what_it_rebuilt_and_what_ended(memory: mica.Memory, clock: HandClock) -> None:
    """keeps: K-53. It rebuilds a named epoch as its next revision and ends a week that has no marks left."""
    memory.crystals._settings = CrystalSettings()
    refs, epoch = await crystallize_two_weeks(memory, clock)

    tried = await memory.purge(ids=[refs[0][0].id], dry_run=True)
    first = await memory.purge(ids=[refs[0][0].id])
    second = await memory.purge(ids=[ref.id for ref in refs[1]])

    assert (tried.remade, tried.ended, first.ended) == ((), (), ())
    assert [(each.level, each.revision) for each in first.remade] == [
        *(("session", 1), ("day", 1), ("week", 1), ("epoch", 2))
    ]
    assert first.remade[-1].label == epoch.label
    assert [(each.level, each.revision) for each in second.remade] == [("epoch", 3)]
    assert {each.period: each.reason for each in second.ended} == {
        "session:week 1 day 0": "too few of its sources remain",
        "session:week 1 day 1": "too few of its sources remain",
        "day:2026-11-09": "too few of its sources remain",
        "day:2026-11-10": "too few of its sources remain",
        "week:2026-W46": "too few of its sources remain",
    }


async def test_a_purge_reports_where_remaining_marks_went_and_why_none_were_rebuilt(
    memory: mica.Memory, clock: HandClock
) -> None:
    """keeps: K-53. A session with few marks is pooled; with `auto` off nothing is rebuilt."""
    memory.crystals._settings = CrystalSettings()
    refs = observe(memory, clock, "s1")
    await memory.crystals.make()

    pooled = await memory.purge(ids=[ref.id for ref in refs[:2]])
    memory.crystals._settings = CrystalSettings(auto=False)
    off = await memory.purge(ids=[refs[2].id])

    assert [(each.period, each.count, each.reason) for each in pooled.ended] == [
        ("session:s1", 4, "its other sources are in pool:2026-11-02 now")
    ]
    assert [each.period for each in pooled.remade] == ["pool:2026-11-02"]
    assert (off.remade, [each.period for each in off.ended]) == ((), ["pool:2026-11-02"])
    assert "`auto` is off" in off.ended[0].reason

"""The report of a purge or a retraction about the crystals it removed."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

import mica
from mica.settings import CrystalSettings
from mica.testing import HandClock

MONDAY = datetime(2026, 11, 2, 9, tzinfo=UTC)


NOTES = (
    "The cookie is set before the redirect, so the session is lost on every login.",
    "Moved the cookie after the redirect in auth/session.py; all 42 tests pass now.",
    "Never set a cookie before a redirect: browsers drop it when the host changes.",
    "The staging deploy failed because the secret was missing in the vault.",
    "Added the secret to the vault and the deploy went through; login works on staging.",
    "The old cookie helper in utils/http.py is used by nobody and can go.",
)


OTHER = (
    "The invoice total is rounded twice, once in the cart and once in the mailer.",
    "Rounding happens in billing/money.py only; the mailer prints what it is given.",
    "Always keep amounts in cents until they are printed.",
    "The nightly report counted refunds as sales, so Monday's numbers were too high.",
    "Refunds have a type of their own in the ledger now, and the report leaves them out.",
    "Thirty invoices of October were sent again with the right total.",
)


@pytest.fixture
def clock() -> HandClock:
    return HandClock(MONDAY)


def observe(memory: mica.Memory, clock: HandClock, session: str, *, texts: tuple[str, ...] = NOTES) -> list[mica.Ref]:
    """Record a session with one mark per minute."""
    refs = []
    with memory.context(session=session, agent="scout"):
        for text in texts:
            clock.move(minutes=1)
            refs.append(memory.mark(f"{text} ({session})"))
    return refs


async def test_waiting_crystals_are_listed_with_a_reason(memory: mica.Memory, clock: HandClock) -> None:
    """keeps: B-35. A crystal is not made at once, and does not wait forever."""
    observe(memory, clock, "s1")
    memory.mark("one thing")
    assert {(each.period, each.count) for each in await memory.crystals.waiting()} == {
        ("session:s1", 6),
        ("pool:2026-11-02", 1),
    }
    assert await memory.crystals.list() == []


async def crystallize_two_weeks(memory: mica.Memory, clock: HandClock) -> tuple[list[list[mica.Ref]], mica.Crystal]:
    """Record two weeks of marks and close them as a labelled epoch; returns the marks by week and the epoch."""
    refs: list[list[mica.Ref]] = []
    for week in range(2):
        refs.append([])
        for day, texts in enumerate((NOTES, OTHER)):
            clock.at = MONDAY + timedelta(weeks=week, days=day)
            refs[-1] += observe(memory, clock, f"week {week} day {day}", texts=texts)
    await memory.crystals.make(level="epoch", label="beginnings of hunter2")
    [epoch] = await memory.crystals.list(level="epoch")
    return refs, epoch


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

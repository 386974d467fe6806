"""Periods: when they are over, and which sources their crystals have."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest

from mica.crystals import periods as closings
from mica.crystals.periods import Calendar, DuePeriod
from mica.model.crystal import Crystal, Level, Statement, Waiting
from mica.model.event import EMPTY, EventId
from mica.model.mark import Mark

BERLIN = Calendar(ZoneInfo("Europe/Berlin"))
NOON = datetime(2026, 11, 4, 12, tzinfo=UTC)  # a Wednesday
IDLE = timedelta(minutes=30)


def marks(count: int, *, session: str | None = "s1", at: datetime = NOON, tags: tuple[str, ...] = ()) -> list[Mark]:
    return [
        Mark(
            id=EventId(f"{session}-{at:%d%H%M}-{number}"),
            text=f"mark {number}",
            at=at + timedelta(minutes=number),
            session=session,
            tags=tags,
            position=number,
        )
        for number in range(count)
    ]


def crystal(
    period: str, *, level: Level = "session", start: datetime = NOON, hours: float = 1, sources: Sequence[str] = ("m",)
) -> Crystal:
    return Crystal(
        id=EventId(f"crystal of {period}"),
        made_at=start,
        context=EMPTY,
        level=level,
        period=period,
        insight=(Statement("it works", (EventId("m"),)),),
        sources=tuple(EventId(source) for source in sources),
        start_at=start,
        end_at=start + timedelta(hours=hours),
        tokens=3,
        source_tokens=30,
        method="test",
    )


def closed_sessions(
    group: Iterable[Mark], live: Sequence[Crystal] = (), *, now: datetime, **more: object
) -> list[DuePeriod[Mark] | Waiting]:
    options: dict[str, object] = {"calendar": BERLIN, "last_at": {}, "idle": IDLE, **more}
    return list(closings.sessions(group, live, now=now, **options))  # type: ignore[arg-type]


def periods(found: Iterable[DuePeriod[Mark] | DuePeriod[Crystal] | Waiting]) -> list[str]:
    return [each.period for each in found if isinstance(each, DuePeriod)]


def test_a_session_closes_after_a_period_without_events() -> None:
    """keeps: B-08, B-23"""
    group = marks(6)
    assert periods(closed_sessions(group, now=group[-1].at + IDLE)) == ["session:s1"]
    [waits] = closed_sessions(group, now=group[-1].at + IDLE - timedelta(seconds=1))
    assert waits == Waiting(period="session:s1", count=6, reason="the session is still active")


def test_any_event_keeps_a_session_open() -> None:
    """keeps: B-08. An edit counts as much as a mark."""
    group = marks(6)
    now = group[-1].at + 2 * IDLE
    assert periods(closed_sessions(group, now=now, last_at={"s1": now})) == []
    assert periods(closed_sessions(group, now=now, last_at={"s2": now})) == ["session:s1"]


def test_an_ended_or_requested_session_is_closed() -> None:
    """keeps: B-23, B-08. A session closes by its end event or by an explicit request."""
    group = marks(6)
    assert periods(closed_sessions(group, now=NOON, ended={"s1"})) == ["session:s1"]
    assert periods(closed_sessions(group, now=NOON, forced=True)) == ["session:s1"]


def test_small_sessions_are_pooled_at_the_end_of_the_day() -> None:
    """One crystal over all of them is shorter than its sources; one for each would not be."""
    group = [*marks(2), *marks(2, session="s2", at=NOON + timedelta(hours=1)), *marks(1, session=None)]
    [waits] = closed_sessions(group, now=NOON + timedelta(hours=3))
    assert (waits.period, isinstance(waits, Waiting) and waits.count) == ("pool:2026-11-04", 5)
    [pool] = closed_sessions(group, now=NOON + timedelta(hours=12))
    assert isinstance(pool, DuePeriod)
    assert (pool.period, [mark.at for mark in pool.sources]) == ("pool:2026-11-04", sorted(mark.at for mark in group))


def test_late_marks_revise_the_crystal_of_their_session() -> None:
    """keeps: K-19. The new revision supersedes the old one, which is never edited."""
    before = crystal("session:s1")
    late = marks(1, at=NOON + timedelta(minutes=20))
    [revision] = closed_sessions(late, [before], now=NOON + timedelta(hours=5))
    assert isinstance(revision, DuePeriod)
    assert (revision.period, revision.supersedes, revision.revision) == ("session:s1", (before,), 2)


def test_a_session_of_several_days_gets_one_crystal_per_day() -> None:
    """keeps: B-08. The session of a daemon never ends, and last week's statements are not repeated."""
    before = crystal("session:s1")
    next_day = marks(6, at=NOON + timedelta(days=1))
    [fresh] = closed_sessions(next_day, [before], now=NOON + timedelta(days=2))
    assert isinstance(fresh, DuePeriod)
    assert (fresh.period, fresh.supersedes) == ("session:s1 2026-11-05", ())
    both = [before, crystal("session:s1 2026-11-05", start=NOON + timedelta(days=1))]
    late = [*marks(1, at=NOON), *marks(1, at=NOON + timedelta(days=1))]
    assert periods(closed_sessions(late, both, now=NOON + timedelta(days=2))) == ["session:s1", "session:s1 2026-11-05"]


def test_sessions_with_a_common_name_prefix_are_kept_apart() -> None:
    other = crystal("session:fix login")
    [fresh] = closed_sessions(marks(6, session="fix"), [other], now=NOON + timedelta(hours=5))
    assert isinstance(fresh, DuePeriod)
    assert (fresh.period, fresh.supersedes) == ("session:fix", ())
    [long] = closed_sessions(marks(6, session="x" * 4_000), now=NOON + timedelta(hours=5))
    assert len(long.period) < 400


@pytest.mark.parametrize(
    ("zone", "day"),
    [("Europe/Berlin", "2026-11-04"), ("Asia/Tokyo", "2026-11-05"), ("America/Los_Angeles", "2026-11-04")],
)
def test_a_day_begins_at_midnight_in_the_configured_zone(zone: str, day: str) -> None:
    """keeps: K-19, TB-07"""
    late = crystal("session:s1", start=datetime(2026, 11, 4, 16, tzinfo=UTC))
    calendar = Calendar(ZoneInfo(zone))
    [closing] = closings.days([late], {}, now=NOON + timedelta(days=3), calendar=calendar)
    assert closing.period == f"day:{day}"


def test_a_day_ends_at_midnight_when_the_clocks_change() -> None:
    """keeps: TB-07, B-09, B-23. Berlin has a day of 25 hours on 2026-10-25, and one of 23 in spring."""
    for start, end in (
        (datetime(2026, 10, 25, 10, tzinfo=UTC), datetime(2026, 10, 25, 23, tzinfo=UTC)),  # 24:00 is 23:00 UTC
        (datetime(2026, 3, 29, 10, tzinfo=UTC), datetime(2026, 3, 29, 22, tzinfo=UTC)),
    ):
        group = [crystal("session:s1", start=start)]
        assert periods(closings.days(group, {}, now=end - timedelta(seconds=1), calendar=BERLIN)) == []
        assert periods(closings.days(group, {}, now=end, calendar=BERLIN)) == [f"day:{start:%Y-%m-%d}"]


def test_a_day_and_a_week_end_earlier_on_request() -> None:
    """keeps: B-09, B-10. A day has the sessions that began on it, a week its days."""
    sessions = [crystal("session:s1"), crystal("session:s2", start=NOON + timedelta(hours=1))]
    yesterday, today = NOON - timedelta(days=1), NOON
    days = [crystal(f"day:{each:%Y-%m-%d}", level="day", start=each) for each in (yesterday, today)]
    now = NOON + timedelta(hours=3)

    assert periods(closings.days(sessions, {}, now=now, calendar=BERLIN)) == []
    assert periods(closings.weeks(days, {}, now=now, calendar=BERLIN)) == []
    [day] = closings.days(sessions, {}, now=now, calendar=BERLIN, forced=True)
    [week] = closings.weeks(days, {}, now=now, calendar=BERLIN, forced=True)

    assert isinstance(day, DuePeriod)
    assert isinstance(week, DuePeriod)
    assert (day.period, [*day.sources]) == ("day:2026-11-04", sessions)
    assert (week.period, [*week.sources]) == ("week:2026-W45", days)


def test_a_week_ends_on_sunday_at_midnight() -> None:
    """keeps: B-10, K-19, B-23. Weeks are ISO weeks, across the turn of the year too."""
    day = crystal("day:2026-12-30", level="day", start=datetime(2026, 12, 30, 9, tzinfo=UTC))
    sunday_24 = datetime(2027, 1, 3, 23, tzinfo=UTC)  # in Berlin
    assert periods(closings.weeks([day], {}, now=sunday_24 - timedelta(seconds=1), calendar=BERLIN)) == []
    assert periods(closings.weeks([day], {}, now=sunday_24, calendar=BERLIN)) == ["week:2026-W53"]


def test_a_revised_session_revises_its_day_at_once() -> None:
    """keeps: K-19, K-20"""
    day = crystal("day:2026-11-04", level="day", sources=("crystal of session:s1", "crystal of session:s2"))
    again = crystal("session:s1")
    [closing] = closings.days([again], {day.period: day}, now=NOON, calendar=BERLIN)
    assert isinstance(closing, DuePeriod)
    other = crystal("session:s2", start=NOON - timedelta(hours=2))
    whole = closings.with_sources(closing, {other.id: other})
    assert [source.period for source in whole.sources] == ["session:s2", "session:s1"]
    assert whole.revision == 2


def test_a_milestone_ends_an_epoch_without_naming_it() -> None:
    """keeps: B-11, B-23"""
    weeks = [
        crystal(f"week:2026-W{45 + number}", level="week", start=NOON + timedelta(weeks=number), hours=100)
        for number in range(4)
    ]
    first, second = (marks(1, at=NOON + timedelta(weeks=number, days=1), tags=("milestone",))[0] for number in (1, 2))
    [early] = closings.epochs(weeks[:2], [first], now=first.at, calendar=BERLIN)
    assert isinstance(early, Waiting)
    found = list(closings.epochs(weeks, [second, first], now=NOON + timedelta(weeks=9), calendar=BERLIN))
    assert [[week.period for week in each.sources] for each in found if isinstance(each, DuePeriod)] == [
        ["week:2026-W45", "week:2026-W46"],
        ["week:2026-W47"],
    ]
    assert [each.label for each in found if isinstance(each, DuePeriod)] == [
        None,
        None,
    ]  # an epoch is not named after its milestone
    assert isinstance(found[-1], Waiting)
    [forced] = closings.epochs(weeks, [], now=NOON, calendar=BERLIN, forced=True, label="beginnings")
    assert isinstance(forced, DuePeriod)
    assert (len(forced.sources), forced.label) == (4, "beginnings")

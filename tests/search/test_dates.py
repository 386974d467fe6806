"""What people call a time, read by a clock and a zone that the test gives."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mica.errors import InvalidInput
from mica.search.dates import Period, find_periods, parse_moment

NOW = datetime(2025, 6, 18, 12, 0, tzinfo=UTC)  # a Wednesday
BERLIN, NEW_YORK = ZoneInfo("Europe/Berlin"), ZoneInfo("America/New_York")


def day(month: int, number: int, *, year: int = 2025) -> datetime:
    return datetime(year, month, number, tzinfo=UTC)


def spans(text: str, *, now: datetime = NOW) -> list[tuple[datetime, datetime]]:
    return [(period.start_at, period.end_at) for period in find_periods(text, now=now, zone=UTC)]


@pytest.mark.parametrize(
    ("text", "ago"),
    [
        ("1 minute ago", timedelta(minutes=1)),
        ("an hour ago", timedelta(hours=1)),
        ("Two hours ago", timedelta(hours=2)),
        ("30 seconds ago", timedelta(seconds=30)),
        ("90s", timedelta(seconds=90)),
    ],
)
def test_a_moment_may_be_relative_to_now(text: str, ago: timedelta) -> None:
    assert parse_moment(text, now=NOW, zone=UTC) == NOW - ago


@pytest.mark.parametrize(
    ("question", "start", "end"),
    [
        ("on 2025-03-05", day(3, 5), day(3, 6)),
        ("on 5 March, 2024", day(3, 5, year=2024), day(3, 6, year=2024)),
        ("on the 5th of March 2024", day(3, 5, year=2024), day(3, 6, year=2024)),
        ("on March 5", day(3, 5), day(3, 6)),
        ("on Nov 3rd", day(11, 3, year=2024), day(11, 4, year=2024)),
        ("in Sept 2024", day(9, 1, year=2024), day(10, 1, year=2024)),
        ("on October 5th", day(10, 5, year=2024), day(10, 6, year=2024)),
        ("in December 2023", day(12, 1, year=2023), day(1, 1, year=2024)),
        ("in May", day(5, 1), day(6, 1)),
        ("in July", day(7, 1, year=2024), day(8, 1, year=2024)),
        ("during 2023", day(1, 1, year=2023), day(1, 1, year=2024)),
        ("in 2024-11", day(11, 1, year=2024), day(12, 1, year=2024)),
        ("in 2025-W20", day(5, 12), day(5, 19)),
        ("week 1", day(12, 30, year=2024), day(1, 6)),
        ("week 52 of 2024", day(12, 23, year=2024), day(12, 30, year=2024)),
        ("yesterday", day(6, 17), day(6, 18)),
        ("last night", day(6, 17), day(6, 18)),
        ("what was done today", day(6, 18), day(6, 19)),
        ("two weeks ago", day(6, 2), day(6, 9)),
        ("10 days ago", day(6, 8), day(6, 9)),
        ("a couple of days ago", day(6, 16), day(6, 17)),
        ("three months ago", day(3, 1), day(4, 1)),
        ("last week", day(6, 9), day(6, 16)),
        ("last weekend", day(6, 14), day(6, 16)),
        ("this month", day(6, 1), day(7, 1)),
        ("last year", day(1, 1, year=2024), day(1, 1)),
        ("in the past 3 days", day(6, 15), NOW),
        ("last Tuesday", day(6, 17), day(6, 18)),
        ("last Wednesday", day(6, 11), day(6, 12)),
        ("on Wednesday", day(6, 18), day(6, 19)),
        ("on thursday", day(6, 12), day(6, 13)),
        ("since last Tuesday", day(6, 17), NOW),
        ("after March", day(4, 1), NOW),
        ("before yesterday", day(1, 1, year=1970), day(6, 17)),
        ("until yesterday", day(1, 1, year=1970), day(6, 18)),
    ],
)
def test_dates_are_read_from_a_question(question: str, start: datetime, end: datetime) -> None:
    assert spans(question) == [(start, end)]


@pytest.mark.parametrize(
    "question", ["on 31 April", "march on, you may", "2025-13-45", "port 8080", "the last one", "week 99", "mondays"]
)
def test_text_that_is_not_a_date_is_not_read_as_one(question: str) -> None:
    assert spans(question) == []


def test_several_dates_give_several_periods_in_order() -> None:
    found = find_periods("between August 11 and August 15 2023, and in May", now=NOW, zone=UTC)

    assert [period.words for period in found] == ["August 11", "August 15 2023", "May"]


def test_a_day_begins_at_midnight_in_the_askers_zone() -> None:
    late = datetime(2025, 6, 18, 2, 0, tzinfo=UTC)  # still the 17th in New York

    assert find_periods("today", now=late, zone=NEW_YORK) == (
        Period(datetime(2025, 6, 17, 4, tzinfo=UTC), datetime(2025, 6, 18, 4, tzinfo=UTC), "today"),
    )
    assert spans("today", now=late) == [(day(6, 18), day(6, 19))]


@pytest.mark.parametrize(
    ("now", "hours"), [(datetime(2026, 3, 30, 8, tzinfo=UTC), 23), (datetime(2025, 10, 27, 8, tzinfo=UTC), 25)]
)
def test_a_day_with_a_clock_change_has_its_own_length(now: datetime, hours: int) -> None:
    """keeps: TB-07"""
    (yesterday,) = find_periods("yesterday", now=now, zone=BERLIN)

    assert yesterday.end_at - yesterday.start_at == timedelta(hours=hours)
    assert yesterday.end_at.astimezone(BERLIN).hour == 0


def test_a_week_begins_on_monday_even_when_asked_on_sunday() -> None:
    """keeps: TB-07"""
    sunday, monday = datetime(2025, 6, 22, 21, 30, tzinfo=UTC), datetime(2025, 6, 22, 22, 30, tzinfo=UTC)

    assert find_periods("this week", now=sunday, zone=BERLIN)[0].start_at == datetime(2025, 6, 15, 22, tzinfo=UTC)
    assert find_periods("last week", now=monday, zone=BERLIN)[0].start_at == datetime(2025, 6, 15, 22, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2025-06-01", datetime(2025, 5, 31, 22, tzinfo=UTC)),
        ("2025-06-01T09:30", datetime(2025, 6, 1, 7, 30, tzinfo=UTC)),
        ("2025-06-01T09:30Z", datetime(2025, 6, 1, 9, 30, tzinfo=UTC)),
        ("2h", NOW - timedelta(hours=2)),
        ("last Tuesday", datetime(2025, 6, 16, 22, tzinfo=UTC)),
        ("2025-W20", datetime(2025, 5, 11, 22, tzinfo=UTC)),
    ],
)
def test_a_moment_is_the_start_of_the_named_period(text: str, expected: datetime) -> None:
    assert parse_moment(text, now=NOW, zone=BERLIN) == expected


@pytest.mark.parametrize("text", ["", "soon", "999999w", "May and June", "0000-01-01"])
def test_a_text_without_a_moment_is_refused(text: str) -> None:
    with pytest.raises(InvalidInput):
        parse_moment(text, now=NOW, zone=BERLIN)


@given(st.text("0123456789 -agodyewklstMrchWu", max_size=40), st.integers(0, 100 * 365), st.sampled_from([UTC, BERLIN]))
def test_every_period_has_its_start_before_its_end(text: str, days: int, zone: ZoneInfo) -> None:
    now = datetime.fromtimestamp(0, UTC) + timedelta(days=days, hours=7)

    for period in find_periods(text, now=now, zone=zone):
        assert period.start_at <= period.end_at
        assert period.describe(zone).startswith(period.words)


@pytest.mark.parametrize(
    "text",
    [
        "2025-11-03T25:00",
        "2025-11-3T09:30",
        "2025-11-31T10:00",
        "2025-11-03T09:30 foo",
        "2025-11-03 9am",
        "foo 2025 bar",
        "not 2025",
        "in March foo",
        "16.11.2024",
        "2025/05/16",
        "before last week",
    ],
)
def test_a_partly_understood_text_is_not_a_moment(text: str) -> None:
    """keeps: U-04. A purge since "2025-11-03T25:00" must not take the whole year."""
    with pytest.raises(InvalidInput, match="is not a time; write"):
        parse_moment(text, now=NOW, zone=UTC)

"""Parses times in plain English: "last Tuesday", "in March", "two weeks ago", "2026-W45".

Phrases are relative to the current time and the user's time zone. Days begin at midnight, weeks on Monday. A weekday,
or a month without a year, means the latest one that has already begun.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta, tzinfo
from datetime import time as time_of_day

import msgspec

from mica.errors import InvalidInput


class Period(msgspec.Struct, frozen=True):
    """A period of time that a text mentions, with the phrase that mentions it."""

    start_at: datetime
    end_at: datetime  # exclusive
    words: str = ""  # the phrase that names it

    def describe(self, zone: tzinfo | None = None) -> str:
        """Return the phrase with the start and the end of the period in a time zone, for display."""
        start, end = (at.astimezone(zone).strftime("%Y-%m-%d %H:%M") for at in (self.start_at, self.end_at))
        return f"{self.words}: {start} to {end}{f' ({zone})' if zone else ''}"


def find_periods(text: str, *, now: datetime, zone: tzinfo | None = None) -> tuple[Period, ...]:
    """Return the periods of time that a text mentions, in the order of the text.

    Phrases such as "yesterday" are relative to `now` in the time zone `zone`; None means the zone of this machine.
    """
    found: list[tuple[int, Period]] = []
    rest = text
    for pattern, read in _PHRASES:
        for match in pattern.finditer(rest):
            try:
                days = read(match, now.astimezone(zone).date())
                if days is None:
                    continue
                start_at, end_at = (_midnight(day, zone) for day in days)
                if match.re in _UNTIL_NOW:
                    end_at = max(now, start_at)
            except (ValueError, OverflowError):  # 31 April, or the year 0
                continue
            found.append((match.start(), _apply_bound(text, match, start_at, end_at, now)))
        rest = pattern.sub(lambda match: " " * len(match[0]), rest)
    return tuple(period for _, period in sorted(found, key=lambda pair: pair[0]))


def parse_moment(moment: str | datetime, *, now: datetime, zone: tzinfo | None = None) -> datetime:
    """Parse a time: ISO 8601, an age (90s, 2h, 3d, 1w, an hour ago), or a phrase such as "last Tuesday".

    A phrase for a period, such as a day, means the start of the period. A text without a time zone is in the zone
    `zone`; None means the zone of this machine. A datetime with a time zone is returned unchanged. Raises InvalidInput
    for a datetime without a time zone, and for a text that is not exactly one time.
    """
    if isinstance(moment, datetime):
        if moment.tzinfo is None:
            raise InvalidInput(f"{moment!r} has no time zone; give an aware time, or a text such as 'last Tuesday'")
        return moment
    text = moment.strip()
    if match := re.fullmatch(r"(\d{1,6})([smhdw])", text):
        try:
            return now - timedelta(**{_UNITS[match[2]]: int(match[1])})
        except OverflowError:
            raise InvalidInput(f"{text!r} is before the first date that can be represented") from None
    if match := _JUST_AGO.fullmatch(text):
        return now - timedelta(**{f"{match['unit'].lower()}s": _count(match["count"])})
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        named = find_periods(text, now=now, zone=zone)
        if len(named) != 1 or not _is_whole_text(text, named[0].words):
            raise InvalidInput(
                f"{text!r} is not a time; write 2026-11-15, 2026-11-15T09:30, 2026-W46, 'last Tuesday', "
                f"'two weeks ago', or an age such as 2h, 3d or 1w"
            ) from None
        return named[0].start_at
    try:
        return (moment.replace(tzinfo=zone) if moment.tzinfo is None and zone else moment).astimezone(UTC)
    except (ValueError, OverflowError):
        raise InvalidInput(f"{text!r} is outside the dates that can be represented") from None


def resolve_time(moment: datetime | str | None, *, now: datetime, zone: tzinfo | None = None) -> datetime | None:
    """Parse a time as `parse_moment` does, but return None for None.

    Raises InvalidInput for a datetime without a time zone, and for a text that is not exactly one time.
    """
    if isinstance(moment, str):
        return parse_moment(moment, now=now, zone=zone)
    if moment is not None and moment.tzinfo is None:
        raise InvalidInput(f"{moment!r} has no time zone; give an aware time, or a text such as 'last Tuesday'")
    return moment


def _is_whole_text(text: str, words: str) -> bool:
    """Return True if `text` is the phrase `words` and nothing else, except words such as "since", "in" or "the".

    Returns False if the text begins with "before" or "until", because it then means a time without a start.
    """
    sentence = text.lower().strip(" .,")
    if sentence.startswith(("before ", "until ", "till ")):
        return False
    for phrase in (words, words.partition(" ")[2]):  # with and without a preposition
        ending = phrase.lower().strip(" .,")
        if ending and sentence.endswith(ending):
            return _LEADING.issuperset(sentence.removesuffix(ending).split())
    return False


_LEADING = frozenset("since after from in on of at the".split())
_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def _midnight(day: date, zone: tzinfo | None) -> datetime:
    return datetime.combine(day, time_of_day(), zone).astimezone(UTC)


_BEFORE = re.compile(r"\b(since|after|before|until|till) (?:the |in |on )*$", re.IGNORECASE)


def _apply_bound(text: str, match: re.Match[str], start_at: datetime, end_at: datetime, now: datetime) -> Period:
    """Return the period that a phrase means, changed by a word such as "since" or "before" in front of the phrase.

    `match` is the phrase in `text`. Alone, it means the time from `start_at` to `end_at`. With "since" or "after", the
    period lasts until `now`; with "before" or "until", it begins in 1970 or earlier.
    """
    words = match[0].strip()
    if (bound := _BEFORE.search(text, max(0, match.start() - 20), match.start())) is None:
        return Period(start_at, end_at, words)
    words = f"{bound[1].lower()} {words}"
    match bound[1].lower():
        case "since":
            return Period(start_at, max(now, end_at), words)
        case "after":
            return Period(end_at, max(now, end_at), words)
        case "before":
            return Period(min(_EPOCH, start_at), start_at, words)
        case _:
            return Period(min(_EPOCH, start_at), end_at, words)


# -- Phrases --------------------------------------------------------------------------------------------------

Days = tuple[date, date]  # the first day, and the day after the last
_MONTHS = "January February March April May June July August September October November December".split()
_WEEKDAYS = "monday tuesday wednesday thursday friday saturday sunday".split()
_NUMBERS = "one two three four five six seven eight nine ten eleven twelve".split()
_COUNTS = {word: number for number, word in enumerate(_NUMBERS, 1)} | {"a": 1, "an": 1, "couple of": 2, "few": 3}

_YEAR = r"(?P<year>(?:19|20)\d\d)\b"
_MONTH = rf"(?P<month>{'|'.join(_MONTHS)})\b"  # with a capital: "may" and "march" are also verbs
_SHORT_MONTH = rf"(?P<month>{'|'.join(f'{month[:3]}(?:{month[3:]})?' for month in _MONTHS)}|Sept)\b\.?"
_DAY = r"(?P<day>\d{1,2})(?:st|nd|rd|th)?\b"
_COUNT = rf"(?P<count>\d{{1,3}}|{'|'.join(sorted(_COUNTS, key=len, reverse=True))})"
_UNIT = r"(?P<unit>day|week|month|year)s?\b"


def _calendar(match: re.Match[str], today: date) -> Days | None:
    parts = match.groupdict()
    day, year = int(parts.get("day") or 0), int(parts.get("year") or 0)
    name = parts.get("month")
    month = int(parts.get("number") or 0) or (_month(name) if name else 0)
    first = date(year or today.year, month or 1, day or 1)
    if not year and first > today:
        first = first.replace(year=today.year - 1)
    if day:
        return first, first + timedelta(days=1)
    return first, _later(first, months=1 if month else 12)


def _month(name: str) -> int:
    return next(number for number, month in enumerate(_MONTHS, 1) if month.startswith(name[:3]))


def _iso_week(match: re.Match[str], today: date) -> Days:
    number = int(match["week"])
    first = date.fromisocalendar(int(match["year"] or today.year), number, 1)
    if not match["year"] and first > today:
        first = date.fromisocalendar(today.year - 1, number, 1)
    return first, first + timedelta(days=7)


def _day_word(match: re.Match[str], today: date) -> Days:
    first = today - timedelta(days=0 if match[0].lower() == "today" else 1)
    return first, first + timedelta(days=1)


def _ago(match: re.Match[str], today: date) -> Days:
    return _unit_around(match["unit"], _back(today, match["unit"], _count(match["count"])))


def _previous(match: re.Match[str], today: date) -> Days:
    back = 0 if match["which"].lower() == "this" else 1
    return _unit_around(match["unit"], _back(today, match["unit"], back))


def _last_units(match: re.Match[str], today: date) -> Days:
    return _back(today, match["unit"], _count(match["count"] or "one")), today + timedelta(days=1)


def _weekday(match: re.Match[str], today: date) -> Days:
    """Return a pair: the latest day that is the weekday in the phrase, and the day after it.

    The latest such day may be today, except after "last" or "past".
    """
    back = (today.weekday() - _WEEKDAYS.index(match["weekday"].lower())) % 7
    if back == 0 and (match["which"] or "").lower() in {"last", "past"}:
        back = 7
    first = today - timedelta(days=back)
    return first, first + timedelta(days=1)


def _count(word: str) -> int:
    return int(word) if word.isdigit() else _COUNTS[word.lower()]


def _back(day: date, unit: str, count: int) -> date:
    match unit.lower():
        case "day":
            return day - timedelta(days=count)
        case "week" | "weekend":
            return day - timedelta(weeks=count)
        case "month":
            return _later(day.replace(day=1), months=-count)
        case _:
            return date(day.year - count, 1, 1)


def _unit_around(unit: str, day: date) -> Days:
    match unit.lower():
        case "day":
            return day, day + timedelta(days=1)
        case "week":
            first = day - timedelta(days=day.weekday())
            return first, first + timedelta(days=7)
        case "weekend":
            first = day - timedelta(days=day.weekday()) + timedelta(days=5)
            return first, first + timedelta(days=2)
        case "month":
            return day.replace(day=1), _later(day.replace(day=1), months=1)
        case _:
            return date(day.year, 1, 1), date(day.year + 1, 1, 1)


def _later(first: date, *, months: int) -> date:
    """Return the first day of the month that is `months` months after the month of `first`."""
    number = first.year * 12 + first.month - 1 + months
    return date(number // 12, number % 12 + 1, 1)


def _phrase(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern, re.IGNORECASE)


_RECENT = _phrase(rf"\b(?:last|past) {_COUNT} {_UNIT}")
_UNTIL_NOW = {_RECENT}
_JUST_AGO = _phrase(rf"{_COUNT} (?P<unit>second|minute|hour)s? ago")  # a moment, not a period of days
_PHRASES: list[tuple[re.Pattern[str], Callable[[re.Match[str], date], Days | None]]] = [
    # The first pattern that matches consumes the words.
    (_phrase(r"\bweek (?P<week>\d{1,2})(?: of (?P<year>(?:19|20)\d\d))?\b"), _iso_week),
    (re.compile(r"\b(?P<year>(?:19|20)\d\d)-?W(?P<week>\d\d)\b"), _iso_week),
    (re.compile(r"\b(?P<year>(?:19|20)\d\d)-(?P<number>\d\d)-(?P<day>\d\d)\b"), _calendar),
    (re.compile(r"\b(?P<year>(?:19|20)\d\d)-(?P<number>0[1-9]|1[0-2])\b(?!-)"), _calendar),
    (re.compile(rf"\b{_DAY}(?: of)? {_SHORT_MONTH}(?:,? ?{_YEAR})?"), _calendar),
    (re.compile(rf"\b{_SHORT_MONTH} {_DAY}(?:,? ?{_YEAR})?"), _calendar),
    (re.compile(rf"\b{_SHORT_MONTH},? ?{_YEAR}"), _calendar),
    (re.compile(rf"\b{_MONTH}"), _calendar),
    (re.compile(rf"\b{_YEAR}"), _calendar),
    (_phrase(r"\b(?:today|yesterday|last night)\b"), _day_word),
    (_phrase(rf"\b{_COUNT} {_UNIT} ago\b"), _ago),
    (_RECENT, _last_units),
    (_phrase(r"\b(?P<which>last|past|this) (?P<unit>day|week|weekend|month|year)\b"), _previous),
    (_phrase(rf"\b(?:(?P<which>last|past|this|on) )?(?P<weekday>{'|'.join(_WEEKDAYS)})\b"), _weekday),
]

"""When a session, a day, a week or an epoch is over, and what then goes into its crystal. Pure: a clock is an argument.

Marks become crystals of their session once it is over. A session with few marks is pooled with others of its day, so
that no crystal is longer than what it stands for. What arrives late, or is retracted, makes a new revision of the
crystal it belongs to, and so of those above it.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, date, datetime, timedelta, tzinfo
from hashlib import blake2b
from typing import Generic, TypeVar

import msgspec

from mica.model.crystal import TREE, Crystal, Level, Waiting
from mica.model.event import EventId, Mark

S = TypeVar("S", Mark, Crystal)

SESSION_CHARACTERS_MAX = 300  # of an id, in the name of a period
FIRST_AT, LAST_AT = (  # that are counted by days: beyond, there is no room for a zone and a week
    datetime.min.replace(day=20, tzinfo=UTC),
    datetime.max.replace(day=10, tzinfo=UTC),
)
SESSION_MARKS_MIN = 5  # fewer do not make a session of their own


class Survivor(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a purge has left of an epoch or a tree, so that it is made anew of what remains."""

    crystal: EventId  # that is gone
    period: str
    revision: int
    label: str | None = None
    weeks: tuple[str, ...] = ()  # that an epoch rested on, by their periods

    @property
    def is_tree(self) -> bool:
        return self.period.startswith(TREE)


class Closing(msgspec.Struct, Generic[S], frozen=True, kw_only=True):
    """A crystal that is to be made."""

    level: Level
    period: str
    sources: tuple[S, ...]
    supersedes: tuple[Crystal, ...] = ()
    label: str | None = None
    survivor: Survivor | None = None  # in whose place it is made

    @property
    def ids(self) -> set[EventId]:
        """Those of its sources."""
        return {source.id for source in self.sources}

    @property
    def revision(self) -> int:
        gone = 0 if self.survivor is None else self.survivor.revision
        return 1 + max((crystal.revision for crystal in self.supersedes), default=gone)

    @property
    def superseded(self) -> tuple[EventId, ...]:
        """Those in whose place it is made, also where a purge has taken them."""
        taken = [] if self.survivor is None else [self.survivor.crystal]
        return tuple([crystal.id for crystal in self.supersedes] + taken)

    @property
    def unfounded(self) -> tuple[EventId, ...]:
        """Those of them that rest on something that is gone: without a successor they do not stand either."""
        kept = {crystal.id for crystal in self.supersedes if self.ids.issuperset(crystal.sources)}
        return tuple([each for each in self.superseded if each not in kept])


class Calendar:
    """Days and weeks as people in one time zone count them; without one, as this machine does."""

    def __init__(self, zone: tzinfo | None = None) -> None:
        self._zone = zone

    def day(self, at: datetime) -> date:
        return min(max(at, FIRST_AT), LAST_AT).astimezone(self._zone).date()

    def is_over(self, day: date, now: datetime) -> bool:
        return self.day(now) > day

    @staticmethod
    def week(day: date) -> str:
        year, week, _ = day.isocalendar()
        return f"{year}-W{week:02}"

    def is_week_over(self, day: date, now: datetime) -> bool:
        """Whether the ISO week of this day is over: on Sunday at 24:00."""
        return self.day(now) >= day - timedelta(days=day.weekday()) + timedelta(days=7)


def long_before(at: datetime, days: int) -> datetime:
    """So many days earlier, or the beginning of the calendar."""
    return at - timedelta(days=days) if at > FIRST_AT else datetime.min.replace(tzinfo=UTC)


def sessions(
    marks: Iterable[Mark],
    live: Sequence[Crystal],
    *,
    now: datetime,
    calendar: Calendar,
    last_at: Mapping[str, datetime],
    idle: timedelta,
    ended: Collection[str] = (),
    sealed: Collection[EventId] = (),
    forced: bool = False,
) -> Iterator[Closing[Mark] | Waiting]:
    """What is to be made of marks that no crystal covers. `live` are the crystals of sessions and pools around them.

    `last_at` says when something last happened in a session; one that is `forced` to close is not asked. The marks of
    `sealed` had a crystal and have it no more: they are closed, whether the others around them are or not.
    """
    by_period = {crystal.period: crystal for crystal in live}
    by_session = _of_sessions(live)
    pooled: defaultdict[date, list[Mark]] = defaultdict(list)
    for session, group in _by_session(marks).items():
        name = session_period(session or "")
        if session is None:
            for mark in group:
                pooled[calendar.day(mark.at)].append(mark)
            continue
        is_over = forced or session in ended or now - max(group[-1].at, last_at.get(session, group[-1].at)) >= idle
        closed = group if is_over else [mark for mark in group if mark.id in sealed]
        if len(closed) < len(group):
            yield Waiting(period=name, count=len(group) - len(closed), reason="the session goes on")
        own = by_session.get(name, [])
        for before, part in _parts(closed, own, calendar):
            if before is not None:
                yield Closing(level="session", period=before.period, sources=part, supersedes=(before,))
            elif len(part) >= SESSION_MARKS_MIN:
                period = f"{name} {calendar.day(part[0].at).isoformat()}" if own else name
                yield Closing(level="session", period=period, sources=part)
            else:
                pooled[calendar.day(part[0].at)].extend(part)
    for day, group in sorted(pooled.items()):
        period = f"pool:{day.isoformat()}"
        is_over = forced or calendar.is_over(day, now)
        closed = group if is_over else [mark for mark in group if mark.id in sealed]
        if closed:
            pool = by_period.get(period)
            supersedes = () if pool is None else (pool,)
            yield Closing(level="session", period=period, sources=tuple(_in_order(closed)), supersedes=supersedes)
        if waits := len(group) - len(closed):
            yield Waiting(period=period, count=waits, reason="the day goes on, and few marks wait for its end")


def session_period(session: str) -> str:
    """What a session's crystals are called; a very long id by its beginning and a digest."""
    if len(session) <= SESSION_CHARACTERS_MAX:
        return f"session:{session}"
    told = blake2b(session.encode(), digest_size=8).hexdigest()
    return f"session:{session[: SESSION_CHARACTERS_MAX // 2]}… {told}"


def is_of_another(mark: Mark, period: str) -> bool:
    """Whether a mark belongs to a session, and this is the period of another one."""
    if mark.session is None or not period.startswith(session_period("")):
        return False
    name, later = session_period(mark.session), _LATER_DAY.fullmatch(period)
    return period != name and (later is None or later[1] != name)


def _of_sessions(crystals: Iterable[Crystal]) -> dict[str, list[Crystal]]:
    """The crystals of each session by its name: the first, and those of later days, which name theirs behind it."""
    found: defaultdict[str, list[Crystal]] = defaultdict(list)
    for crystal in crystals:
        found[crystal.period].append(crystal)
        if named := _LATER_DAY.fullmatch(crystal.period):
            found[named[1]].append(crystal)
    return dict(found)


_LATER_DAY = re.compile(r"(.*) \d{4}-\d{2}-\d{2}", re.DOTALL)


def _parts(
    marks: Sequence[Mark], own: Sequence[Crystal], calendar: Calendar
) -> list[tuple[Crystal | None, tuple[Mark, ...]]]:
    """The marks of one session: late ones by the crystal that they revise, then those of days that have none yet."""
    late: defaultdict[str, list[Mark]] = defaultdict(list)
    fresh: list[Mark] = []
    for mark in marks:
        day = calendar.day(mark.at)
        at_that_time = [each for each in own if calendar.day(each.start_at) <= day <= calendar.day(each.end_at)]
        if at_that_time:
            late[at_that_time[-1].period].append(mark)
        else:
            fresh.append(mark)
    parts = [(crystal, tuple(late[crystal.period])) for crystal in own if crystal.period in late]
    return [*parts, *([(None, tuple(fresh))] if fresh else [])]


def days(
    crystals: Iterable[Crystal],
    live: Mapping[str, Crystal],
    *,
    now: datetime,
    calendar: Calendar,
    again: Collection[str] = (),
    forced: bool = False,
) -> Iterator[Closing[Crystal] | Waiting]:
    """What is to be made of session crystals that no day covers. `live` are crystals of days, by period.

    A period of `again` had a crystal and has it no more: it is closed, whether it is over or not. So below.
    """
    by_day: defaultdict[date, list[Crystal]] = defaultdict(list)
    for crystal in crystals:
        by_day[_day_of(crystal, calendar)].append(crystal)
    for day, group in sorted(by_day.items()):
        period = f"day:{day.isoformat()}"
        is_over = forced or period in again or calendar.is_over(day, now)
        yield _closing("day", period, group, live, is_over=is_over, waits="the day")


def weeks(
    crystals: Iterable[Crystal],
    live: Mapping[str, Crystal],
    *,
    now: datetime,
    calendar: Calendar,
    again: Collection[str] = (),
    forced: bool = False,
) -> Iterator[Closing[Crystal] | Waiting]:
    """What is to be made of day crystals that no week covers. `live` are crystals of weeks, by period."""
    by_week: defaultdict[str, list[Crystal]] = defaultdict(list)
    for crystal in crystals:
        by_week[calendar.week(_day_of(crystal, calendar))].append(crystal)
    for week, group in sorted(by_week.items()):
        period = f"week:{week}"
        is_over = forced or period in again or calendar.is_week_over(_day_of(group[0], calendar), now)
        yield _closing("week", period, group, live, is_over=is_over, waits="the week")


def epochs(
    crystals: Sequence[Crystal],
    milestones: Sequence[Mark],
    live: Mapping[str, Crystal] | None = None,
    *,
    now: datetime,
    calendar: Calendar,
    homes: Mapping[str, str] | None = None,
    survivors: Iterable[Survivor] = (),
    label: str | None = None,
    forced: bool = False,
) -> Iterator[Closing[Crystal] | Waiting]:
    """What is to be made of week crystals that no epoch covers: a milestone ends an epoch and opens the next.

    `live` are crystals of epochs, by period; `survivors` are those that a purge took. `homes` says which of them rested
    on a week: its new revision goes there, however that epoch was ended. An epoch is not named after its milestone: the
    words stay the mark's own.
    """
    known = live or {}
    gone = {each.period: each for each in survivors}
    left: list[Crystal] = []
    returning: defaultdict[str, list[Crystal]] = defaultdict(list)
    for crystal in sorted(crystals, key=lambda crystal: crystal.end_at):
        home = (homes or {}).get(crystal.period)
        (left if home is None else returning[home]).append(crystal)
    for period, group in returning.items():
        if period in known:
            yield _epoch(period, group, known, known[period].label)
        else:
            closing = _epoch(period, group, known, gone[period].label)
            yield msgspec.structs.replace(closing, survivor=gone[period])
    for milestone in _in_order(milestones):
        taken = [crystal for crystal in left if crystal.start_at < milestone.at]
        if taken and calendar.is_week_over(calendar.day(milestone.at), now):
            left = [crystal for crystal in left if crystal.start_at >= milestone.at]
            period = f"epoch:until {calendar.day(milestone.at).isoformat()} {milestone.id[-8:]}"
            yield _epoch(period, taken, known)
    if left and forced:
        last = calendar.day(left[-1].end_at).isoformat()
        yield _epoch(f"epoch:until {last}", left, known, label)
    elif left:
        yield Waiting(
            period=f"epoch:since {calendar.day(left[0].start_at).isoformat()}",
            count=len(left),
            reason="no milestone has ended it; a mark with the tag milestone does",
        )


def _epoch(
    period: str, group: Sequence[Crystal], live: Mapping[str, Crystal], label: str | None = None
) -> Closing[Crystal]:
    supersedes = (live[period],) if period in live else ()
    return Closing(level="epoch", period=period, sources=tuple(group), supersedes=supersedes, label=label)


def _closing(
    level: Level, period: str, group: list[Crystal], live: Mapping[str, Crystal], *, is_over: bool, waits: str
) -> Closing[Crystal] | Waiting:
    before = live.get(period)
    if is_over or before is not None:
        supersedes = (before,) if before else ()
        return Closing(level=level, period=period, sources=tuple(group), supersedes=supersedes)
    return Waiting(period=period, count=len(group), reason=f"{waits} goes on")


def revised(closing: Closing[S], kept: Mapping[EventId, S]) -> Closing[S]:
    """A closing with what the crystals that it supersedes rested on and is still there."""
    sources: dict[EventId, S] = {source.id: source for source in closing.sources}
    for crystal in closing.supersedes:
        sources |= {each: kept[each] for each in crystal.sources if each in kept}
    return msgspec.structs.replace(closing, sources=tuple(_in_order(sources.values())))


def _day_of(crystal: Crystal, calendar: Calendar) -> date:
    """The day that a crystal counts to: that on which it began, so that a late mark does not move it."""
    return calendar.day(crystal.start_at)


def _by_session(marks: Iterable[Mark]) -> dict[str | None, list[Mark]]:
    found: defaultdict[str | None, list[Mark]] = defaultdict(list)
    for mark in _in_order(marks):
        found[mark.session].append(mark)
    return found


def _in_order(sources: Iterable[S]) -> list[S]:
    return sorted(sources, key=lambda source: (_began(source), source.position or 0, source.id))


def _began(source: Mark | Crystal) -> datetime:
    return source.at if isinstance(source, Mark) else source.start_at

"""Decides when a session, day, week or epoch is over, and which sources its crystal gets. `now` is a parameter.

Marks are crystallized when their session is over. Small sessions are pooled at the end of the day, so that no crystal
is longer than its sources. After a late mark or a retraction, the crystal of the period and those above it get a new
revision.
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
from mica.model.event import EventId
from mica.model.mark import Mark

S = TypeVar("S", Mark, Crystal)

SESSION_CHARACTERS_MAX = 300  # of a session id in the name of its period
FIRST_AT, LAST_AT = (  # the range of dates that leaves room for a time zone and a week
    datetime.min.replace(day=20, tzinfo=UTC),
    datetime.max.replace(day=10, tzinfo=UTC),
)
SESSION_MARKS_MIN = 5  # smaller sessions are pooled


class Survivor(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A record of a purged epoch or tree crystal, from which it can be made again from its remaining sources."""

    crystal: EventId  # the purged one
    period: str
    revision: int
    label: str | None = None
    weeks: tuple[str, ...] = ()  # of an epoch, by their periods

    @property
    def is_tree(self) -> bool:
        return self.period.startswith(TREE)


class DuePeriod(msgspec.Struct, Generic[S], frozen=True, kw_only=True):
    """A period whose crystal is to be made, with its sources."""

    level: Level
    period: str
    sources: tuple[S, ...]
    supersedes: tuple[Crystal, ...] = ()
    label: str | None = None
    survivor: Survivor | None = None  # the purged crystal that it replaces

    @property
    def ids(self) -> set[EventId]:
        """The ids of the sources."""
        return {source.id for source in self.sources}

    @property
    def revision(self) -> int:
        gone = 0 if self.survivor is None else self.survivor.revision
        return 1 + max((crystal.revision for crystal in self.supersedes), default=gone)

    @property
    def superseded(self) -> tuple[EventId, ...]:
        """The ids of the crystals that the new crystal replaces, including a purged one."""
        purged = [] if self.survivor is None else [self.survivor.crystal]
        return tuple([crystal.id for crystal in self.supersedes] + purged)

    @property
    def unfounded(self) -> tuple[EventId, ...]:
        """The ids of the replaced crystals that lost a source. If no new crystal is made, they are retracted."""
        intact = {crystal.id for crystal in self.supersedes if self.ids.issuperset(crystal.sources)}
        return tuple([each for each in self.superseded if each not in intact])


class Calendar:
    """Days and ISO weeks in one time zone, by default that of this machine."""

    def __init__(self, zone: tzinfo | None = None) -> None:
        self._zone = zone

    def day(self, at: datetime) -> date:
        return min(max(at, FIRST_AT), LAST_AT).astimezone(self._zone).date()

    def time_of_day(self, at: datetime) -> str:
        """Return a time of day, such as 09:30, in this time zone."""
        return f"{min(max(at, FIRST_AT), LAST_AT).astimezone(self._zone):%H:%M}"

    def is_over(self, day: date, now: datetime) -> bool:
        return self.day(now) > day

    @staticmethod
    def week(day: date) -> str:
        year, week, _ = day.isocalendar()
        return f"{year}-W{week:02}"

    def is_week_over(self, day: date, now: datetime) -> bool:
        """True if the ISO week of `day` is over. A week ends on Sunday at 24:00."""
        return self.day(now) >= day - timedelta(days=day.weekday()) + timedelta(days=7)


def days_before(at: datetime, days: int) -> datetime:
    """Return the time `days` before `at`; the earliest possible time if `at` is too early for that."""
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
) -> Iterator[DuePeriod[Mark] | Waiting]:
    """Yield the sessions, and daily pools of small sessions, that can be crystallized now, and those that must wait.

    `marks` are the marks that no crystal covers, and `live` the present crystals of their sessions and pools. A session
    is over if it is in `ended`, or if it had no event for the time `idle`. The time of its last event is in `last_at`,
    if that event is later than its last mark. With `forced`, every session counts as over. Marks in `sealed` belonged
    to a crystal that was removed, so they are included even if their session is not over.
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
            yield Waiting(period=name, count=len(group) - len(closed), reason="the session is still active")
        own = by_session.get(name, [])
        for before, part in _parts(closed, own, calendar):
            if before is not None:
                yield DuePeriod(level="session", period=before.period, sources=part, supersedes=(before,))
            elif len(part) >= SESSION_MARKS_MIN:
                period = f"{name} {calendar.day(part[0].at).isoformat()}" if own else name
                yield DuePeriod(level="session", period=period, sources=part)
            else:
                pooled[calendar.day(part[0].at)].extend(part)
    for day, group in sorted(pooled.items()):
        period = f"pool:{day.isoformat()}"
        is_over = forced or calendar.is_over(day, now)
        closed = group if is_over else [mark for mark in group if mark.id in sealed]
        if closed:
            pool = by_period.get(period)
            supersedes = () if pool is None else (pool,)
            yield DuePeriod(level="session", period=period, sources=tuple(_in_order(closed)), supersedes=supersedes)
        if waits := len(group) - len(closed):
            yield Waiting(period=period, count=waits, reason="small sessions are pooled at the end of the day")


def session_period(session: str) -> str:
    """Return the name of a session's period. If the id is very long, it is cut and a hash is added."""
    if len(session) <= SESSION_CHARACTERS_MAX:
        return f"session:{session}"
    digest = blake2b(session.encode(), digest_size=8).hexdigest()
    return f"session:{session[: SESSION_CHARACTERS_MAX // 2]}… {digest}"


def is_of_another(mark: Mark, period: str) -> bool:
    """Return True if `period` is that of a session and the mark belongs to another session."""
    if mark.session is None or not period.startswith(session_period("")):
        return False
    name, later = session_period(mark.session), _LATER_DAY.fullmatch(period)
    return period != name and (later is None or later[1] != name)


def _of_sessions(crystals: Iterable[Crystal]) -> dict[str, list[Crystal]]:
    """Map each period to its crystals.

    A session that lasts several days may have a crystal for each later day, whose period ends with the date. The period
    of the session also lists these crystals.
    """
    by_period: defaultdict[str, list[Crystal]] = defaultdict(list)
    for crystal in crystals:
        by_period[crystal.period].append(crystal)
        if named := _LATER_DAY.fullmatch(crystal.period):
            by_period[named[1]].append(crystal)
    return dict(by_period)


_LATER_DAY = re.compile(r"(.*) \d{4}-\d{2}-\d{2}", re.DOTALL)


def _parts(
    marks: Sequence[Mark], own: Sequence[Crystal], calendar: Calendar
) -> list[tuple[Crystal | None, tuple[Mark, ...]]]:
    """Group the marks of one session by the crystal in `own` whose days include them; other marks are under None."""
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
) -> Iterator[DuePeriod[Crystal] | Waiting]:
    """Yield the days that can be crystallized now, and those that must wait.

    `crystals` are the session crystals that no day crystal covers; `live` has the day crystals by period. With
    `forced`, every day counts as over. The periods in `again`, whose crystals were removed, always count as over.
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
) -> Iterator[DuePeriod[Crystal] | Waiting]:
    """Yield the weeks that can be crystallized now, and those that must wait.

    `crystals` are the day crystals that no week crystal covers; `live` has the week crystals by period. With
    `forced`, every week counts as over. The periods in `again`, whose crystals were removed, always count as over.
    """
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
) -> Iterator[DuePeriod[Crystal] | Waiting]:
    """Yield the epochs that can be crystallized now, and the one that waits for its milestone.

    `crystals` are the week crystals that no epoch covers. A milestone ends an epoch and begins the next one. `live` has
    the epoch crystals by period, and `survivors` the records of purged ones. `homes` maps weeks to the epochs that they
    belonged to before, by period: a new crystal of such a week is added to the same epoch again. With `forced`, the
    last epoch ends without a milestone, and gets the name `label`. Periods contain no text of milestones, because a
    milestone may be purged later.
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
            due_period = _epoch(period, group, known, gone[period].label)
            yield msgspec.structs.replace(due_period, survivor=gone[period])
    for milestone in _in_order(milestones):
        before = [crystal for crystal in left if crystal.start_at < milestone.at]
        if before and calendar.is_week_over(calendar.day(milestone.at), now):
            left = [crystal for crystal in left if crystal.start_at >= milestone.at]
            period = f"epoch:until {calendar.day(milestone.at).isoformat()} {milestone.id[-8:]}"
            yield _epoch(period, before, known)
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
) -> DuePeriod[Crystal]:
    supersedes = (live[period],) if period in live else ()
    return DuePeriod(level="epoch", period=period, sources=tuple(group), supersedes=supersedes, label=label)


def _closing(
    level: Level, period: str, group: list[Crystal], live: Mapping[str, Crystal], *, is_over: bool, waits: str
) -> DuePeriod[Crystal] | Waiting:
    before = live.get(period)
    if is_over or before is not None:
        supersedes = (before,) if before else ()
        return DuePeriod(level=level, period=period, sources=tuple(group), supersedes=supersedes)
    return Waiting(period=period, count=len(group), reason=f"{waits} is not over")


def with_sources(due_period: DuePeriod[S], live: Mapping[EventId, S]) -> DuePeriod[S]:
    """Add to a due period the sources of the crystals it supersedes. Sources that are not in `live` are left out."""
    sources: dict[EventId, S] = {source.id: source for source in due_period.sources}
    for crystal in due_period.supersedes:
        sources |= {each: live[each] for each in crystal.sources if each in live}
    return msgspec.structs.replace(due_period, sources=tuple(_in_order(sources.values())))


def _day_of(crystal: Crystal, calendar: Calendar) -> date:
    """Return the day of a crystal: the day of its earliest source, which a late mark does not change."""
    return calendar.day(crystal.start_at)


def _by_session(marks: Iterable[Mark]) -> dict[str | None, list[Mark]]:
    by_session: defaultdict[str | None, list[Mark]] = defaultdict(list)
    for mark in _in_order(marks):
        by_session[mark.session].append(mark)
    return by_session


def _in_order(sources: Iterable[S]) -> list[S]:
    return sorted(sources, key=lambda source: (_began(source), source.position or 0, source.id))


def _began(source: Mark | Crystal) -> datetime:
    return source.at if isinstance(source, Mark) else source.start_at

"""The contents of the Today page: the work of the day, open work, and the brief of the next agent."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

import msgspec

from mica.events.activity import FileLine, OpenSession, SessionLine, overview
from mica.format.lines import to_user_zone
from mica.memory import Memory
from mica.model.brief import Brief
from mica.model.crystal import Crystal
from mica.model.event import MARK, Event, EventQuery
from mica.model.mark import Mark, mark_of

DAY_EVENTS = 4_000  # the latest of a day that are read
SESSIONS_MAX, FILES_MAX, CRYSTALS_MAX = 12, 8, 5
THREADS_MAX = 12
PREVIEW_S = 2.0  # no agent waits for it, so slow sources may answer too
WORK_EVENTS = (MARK, "file.*", "shell.run", "command.run", "session.*", "model.answer", "tool.*", "task.*")


class Day(msgspec.Struct, frozen=True, kw_only=True):
    """The work of agents on one day."""

    begins_at: datetime
    is_today: bool
    sessions: tuple[SessionLine, ...] = ()
    files: tuple[FileLine, ...] = ()
    prompts: int = 0
    reads: int = 0
    edits: int = 0
    commands: int = 0
    failures: int = 0
    commits: int = 0
    marks: int = 0
    hours: tuple[int, ...] = ()  # events in each of its 24 hours
    is_partial: bool = False  # older events of the day are not counted


class OpenWork(msgspec.Struct, frozen=True, kw_only=True):
    """Active sessions, and marks that are still open."""

    sessions: tuple[OpenSession, ...] = ()
    marks: dict[str, int] = {}  # number of marks of each active session
    threads: tuple[Mark, ...] = ()  # open marks, latest first


async def is_empty(memory: Memory) -> bool:
    """Return True if the space has no events."""
    return not await memory.events.query(EventQuery(limit=1))


async def latest_day(memory: Memory, *, now: datetime) -> Day | None:
    """Summarize the work of today, or of the latest day with work. None if there is no work yet."""
    midnight = _midnight(now)
    events = await _work(memory, midnight, None)
    if not events:
        latest = await memory.events.query(EventQuery(names=WORK_EVENTS, limit=1))
        if not latest:
            return None
        midnight = _midnight(latest[-1].at)
        is_last = midnight > datetime.max.replace(tzinfo=UTC) - timedelta(days=1)  # of the calendar
        events = await _work(memory, midnight, None if is_last else midnight + timedelta(days=1))
    return _day(events, midnight, is_today=midnight == _midnight(now))


async def _work(memory: Memory, since: datetime, until: datetime | None) -> Sequence[Event]:
    return await memory.events.query(EventQuery(names=WORK_EVENTS, since=since, until=until, limit=DAY_EVENTS))


def _midnight(at: datetime) -> datetime:
    """Return the beginning of the day of `at`, in the configured time zone or else that of this machine."""
    try:
        return to_user_zone(at).replace(hour=0, minute=0, second=0, microsecond=0).astimezone(UTC)
    except OverflowError:  # the first day of the calendar
        return at.astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)


def _day(events: Sequence[Event], midnight: datetime, *, is_today: bool) -> Day:
    summary = overview(events, sessions=len(events), files=FILES_MAX)
    hours = [0] * 24
    for event in events:
        hours[min(23, max(0, int((event.at - midnight).total_seconds() // 3600)))] += 1
    tags = [mark_of(event).tags for event in events if event.name == MARK]
    return Day(
        begins_at=midnight,
        is_today=is_today,
        sessions=summary.sessions[:SESSIONS_MAX],
        files=summary.files,
        prompts=sum(line.prompts for line in summary.sessions),
        reads=sum(line.reads for line in summary.sessions),
        edits=sum(line.edits for line in summary.sessions),
        commands=sum(line.commands for line in summary.sessions),
        failures=sum(line.failures for line in summary.sessions),
        commits=sum("commit" in each for each in tags),
        marks=len(tags),
        hours=tuple(hours),
        is_partial=len(events) == DAY_EVENTS,
    )


async def open_work(memory: Memory) -> OpenWork:
    """Read the active sessions, and the open marks about friction, questions and tasks, latest first."""
    sessions = await memory.events.open_sessions()
    counted = {
        each.session: len(await memory.events.query(EventQuery(session=each.session, names=(MARK,), limit=1_000)))
        for each in sessions[-SESSIONS_MAX:]
    }
    threads = await memory.crystals.open_marks(limit=THREADS_MAX)
    return OpenWork(sessions=tuple(reversed(sessions[-SESSIONS_MAX:])), marks=counted, threads=tuple(reversed(threads)))


async def next_brief(memory: Memory, *, now: datetime) -> Brief:
    """Make the brief that an agent starting now would get. Nothing is recorded."""
    return await memory.brief(deadline_s=PREVIEW_S, now=now, is_preview=True)


async def latest_crystals(memory: Memory) -> list[Crystal]:
    """Read the latest crystals, latest first."""
    return list(reversed(await memory.crystals.list(limit=CRYSTALS_MAX)))

"""The contents of the Today page: findings, the next brief line by line, the work of the day, open work."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta

import msgspec

from mica.events.activity import FileLine, OpenSession, SessionLine, overview
from mica.format.beliefs import OPEN_KINDS, Found, summarize
from mica.format.lines import to_user_zone
from mica.memory import Memory
from mica.model.belief import Belief, BeliefId
from mica.model.brief import Brief
from mica.model.crystal import Crystal
from mica.model.event import MARK, Event, EventId, EventQuery
from mica.model.mark import Mark, mark_of

DAY_EVENTS = 4_000  # the latest of a day that are read
SESSIONS_MAX, FILES_MAX, CRYSTALS_MAX = 12, 8, 5
THREADS_MAX = 12
MATCHED_LETTERS = 40  # of a belief that a line of a brief must show, because long texts are cut
_HANDLE = re.compile(r"\((#\d+)\)\s*$")
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
    """Active sessions, open tasks and questions, and marks that are still open."""

    sessions: tuple[OpenSession, ...] = ()
    marks: dict[str, int] = {}  # number of marks of each active session
    beliefs: tuple[Belief, ...] = ()  # open tasks and questions, latest first
    threads: tuple[Mark, ...] = ()  # other open marks, latest first


class BriefLine(msgspec.Struct, frozen=True, kw_only=True):
    """One line of a brief, and what a person may correct or end about it."""

    text: str
    belief: BeliefId | None = None
    mark: EventId | None = None  # if no belief is behind the line


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
    held = await memory.beliefs.in_force()
    beliefs = [each for each in held if each.kind in OPEN_KINDS][:THREADS_MAX]
    threads = await memory.crystals.open_marks(limit=THREADS_MAX)
    stating = await memory.beliefs.of_events([mark.id for mark in threads])
    stated = {event for each in stating if each.kind in OPEN_KINDS for event in each.evidence}
    return OpenWork(
        sessions=tuple(reversed(sessions[-SESSIONS_MAX:])),
        marks=counted,
        beliefs=tuple(beliefs),
        threads=tuple(mark for mark in reversed(threads) if mark.id not in stated),
    )


async def found(memory: Memory) -> Found:
    """Count the beliefs in force, and read the newest rules, decisions and open ends."""
    return summarize(await memory.beliefs.in_force())


async def brief_lines(memory: Memory, brief: Brief) -> list[BriefLine]:
    """Return the lines of a brief as an agent receives them, each with the belief or the mark behind it."""
    by_handle: dict[str, list[EventId]] = {}
    for passage in brief.passages:
        if passage.handle and passage.sources and not passage.origins:
            by_handle.setdefault(passage.handle, []).append(passage.sources[0])
    stated: dict[EventId, list[Belief]] = {}
    for belief in await memory.beliefs.of_events([each for sources in by_handle.values() for each in sources]):
        for event in belief.evidence if belief.is_in_force else ():
            stated.setdefault(event, []).append(belief)
    lines = []
    for text in brief.text.splitlines():
        ending = _HANDLE.search(text)
        sources = by_handle.get(ending[1], []) if ending is not None and text.startswith("- ") else []
        lines.append(await _brief_line(memory, text, sources, stated))
    return lines


async def _brief_line(
    memory: Memory, text: str, sources: Sequence[EventId], stated: Mapping[EventId, Sequence[Belief]]
) -> BriefLine:
    shown = _letters(text)
    for source in sources:
        fitting = [each for each in stated.get(source, ()) if _letters(each.text)[:MATCHED_LETTERS] in shown]
        if fitting:
            return BriefLine(text=text, belief=max(fitting, key=lambda each: len(each.text)).id)
        if (await memory.events.get(source)).name == MARK:
            return BriefLine(text=text, mark=source)
    return BriefLine(text=text)


def _letters(text: str) -> str:
    """Return the letters and digits of a text, by which a line is compared however it is spaced and escaped."""
    return "".join(filter(str.isalnum, text))


async def next_brief(memory: Memory, *, now: datetime) -> Brief:
    """Make the brief that an agent starting now would get. Nothing is recorded."""
    return await memory.brief(deadline_s=PREVIEW_S, now=now, is_preview=True)


async def latest_crystals(memory: Memory) -> list[Crystal]:
    """Read the latest crystals, latest first."""
    return list(reversed(await memory.crystals.list(limit=CRYSTALS_MAX)))

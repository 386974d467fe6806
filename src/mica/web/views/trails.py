"""The figures of the Trails page: the most valuable trails, warnings, use by agents, and counts by week."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Literal

import msgspec

from mica.format.charts import Column, columns
from mica.format.lines import plural
from mica.memory import Memory
from mica.model.event import EventQuery
from mica.model.trail import CREATED, CRYSTALLIZED, OFFERED, USED, Trail, passes, trust
from mica.navigation.trails.loader import load_trail
from mica.settings import TrailSettings

TOP = 10  # hot paths
AGENTS_MAX, MATRIX_ROWS = 8, 12
WEEKS = 12  # of evolution
EVENTS_MAX = 5_000  # events that the evolution is counted from
FAILED_SHARE = 0.20  # of known outcomes; above it a trail gets a warning
SAVED_SHARE = 0.50  # of its baseline; below it an active trail saves too little
DRIFT_TOKENS = 200_000  # of files read to locate ranges: enough for a whole trail
NEAR = timedelta(days=7)  # before a trail cools or is archived


class Condition(msgspec.Struct, frozen=True, kw_only=True):
    """One condition for giving a trail a name automatically: the current value and the required one."""

    name: str
    have: float
    need: float

    @property
    def share(self) -> float:
        return min(1.0, self.have / self.need) if self.need else 1.0


class Readiness(msgspec.Struct, frozen=True, kw_only=True):
    """How close a trail is to getting a name automatically, by the condition that is furthest from fulfilled."""

    conditions: tuple[Condition, ...]
    is_ready: bool  # it passes the gate

    @property
    def score(self) -> float:
        return min(each.share for each in self.conditions)

    @property
    def weakest(self) -> Condition:
        return min(self.conditions, key=lambda each: each.share)


class HotPath(msgspec.Struct, frozen=True, kw_only=True):
    """One of the most valuable trails, and how close it is to getting a name automatically."""

    trail: Trail
    readiness: Readiness


Kind = Literal["failing", "saves little", "cooling", "new"]


class TrailWarning(msgspec.Struct, frozen=True, kw_only=True):
    """A warning about a trail that may need a person's attention."""

    kind: Kind
    trail: str
    key: str
    text: str


class Preferences(msgspec.Struct, frozen=True, kw_only=True):
    """How often each agent used the files of each trail: one row per trail, one column per agent."""

    agents: tuple[str, ...]
    rows: tuple[tuple[Trail, tuple[int, ...]], ...]

    @property
    def most(self) -> int:
        return max((count for _, counts in self.rows for count in counts), default=0)


class TrailWeek(msgspec.Struct, frozen=True, kw_only=True):
    """Trail activity in one week, and the number of trails at its end."""

    begins_at: datetime
    known: int
    crystallized: int
    refreshed: int
    offered: int
    used: int


class Patterns(msgspec.Struct, frozen=True, kw_only=True):
    """All figures of the Trails page."""

    trails: int
    states: dict[str, int]
    hot: tuple[HotPath, ...]
    warnings: tuple[TrailWarning, ...]
    preferences: Preferences
    drifted: tuple[Trail, ...]
    is_learning: bool


async def patterns(memory: Memory, *, gates: TrailSettings, now: datetime, limit: int = TOP) -> Patterns:
    """Read the figures of the Trails page: the most valuable trails, warnings, and preferences of agents."""
    trails = await memory.trails.known()
    active = [trail for trail in trails if trail.state != "archived"]
    return Patterns(
        trails=len(trails),
        states=dict(Counter(trail.state for trail in trails)),
        hot=tuple(HotPath(trail=trail, readiness=readiness(trail, gates)) for trail in active[:limit]),
        warnings=tuple(warnings(trails, now=now, gates=gates)),
        preferences=preference_matrix(active),
        drifted=tuple(trail for trail in active if trail.drifted),
        is_learning=await memory.trails.is_learning(),
    )


def readiness(trail: Trail, gates: TrailSettings) -> Readiness:
    """Compare a trail with the conditions for getting a name automatically."""
    conditions = (
        Condition(name="walks", have=trail.runs, need=gates.runs),
        Condition(name="sessions", have=trail.sessions, need=gates.sessions),
        Condition(name="trust", have=trust(trail, gates), need=gates.crystallize),
    )
    return Readiness(conditions=conditions, is_ready=passes(trail, gates))


def preference_matrix(trails: Sequence[Trail]) -> Preferences:
    """Count how often each agent used each trail.

    The result has the first MATRIX_ROWS trails that a named agent used, and the AGENTS_MAX agents that used them most.
    """
    walked = [trail for trail in trails if trail.agents][:MATRIX_ROWS]
    runs: Counter[str] = Counter()
    for trail in walked:
        for agent, figures in trail.agents.items():
            runs[agent] += figures.runs
    agents = tuple(agent for agent, _ in sorted(runs.items(), key=lambda pair: (-pair[1], pair[0]))[:AGENTS_MAX])
    rows = [
        (trail, tuple(trail.agents[name].runs if name in trail.agents else 0 for name in agents)) for trail in walked
    ]
    return Preferences(agents=agents, rows=tuple(rows))


def warnings(trails: Sequence[Trail], *, now: datetime, gates: TrailSettings) -> list[TrailWarning]:
    """Return the warnings about trails, most serious first. Archived trails have none."""
    unsorted = [each for trail in trails for each in _trail_warnings(trail, now=now, gates=gates)]
    kinds: tuple[Kind, ...] = ("failing", "saves little", "cooling", "new")
    return sorted(unsorted, key=lambda each: kinds.index(each.kind))


def _trail_warnings(trail: Trail, *, now: datetime, gates: TrailSettings) -> list[TrailWarning]:
    if trail.state == "archived":
        return []
    texts: list[tuple[Kind, str]] = []
    known = trail.successes + trail.failures
    if trail.version and known and trail.failures / known > FAILED_SHARE:
        texts.append(("failing", f"{trail.failures} of {plural(known, 'task')} that walked it failed"))
    saved = trail.measured
    if trail.version and saved is not None and saved.saving < SAVED_SHARE * saved.baseline_tokens:
        share = saved.saving / saved.baseline_tokens if saved.baseline_tokens else 0.0
        texts.append(("saves little", f"it saved {share:.0%} of {saved.baseline_tokens:,} tokens ({saved.method})"))
    if trail.version and (change := _next_state(trail, now=now, gates=gates)) is not None:
        state, days = change
        texts.append(
            ("cooling", f"unused since {trail.last_at:%-d %B}; {state} in {plural(days, 'day')} unless it is used")
        )
    if trail.state == "hot" and not trail.version:
        texts.append(
            ("new", f"{plural(trail.runs, 'walk')} in {plural(trail.sessions, 'session')}, and no command yet")
        )
    return [TrailWarning(kind=kind, trail=trail.name, key=trail.key, text=text) for kind, text in texts]


def _next_state(trail: Trail, *, now: datetime, gates: TrailSettings) -> tuple[str, int] | None:
    """Return the state that an unused trail will have next, "cooling" or "archived", and in how many days.

    Returns None if its state does not change within the period NEAR.
    """
    unused = now - trail.last_at
    half, archived = timedelta(days=gates.half_life_days), timedelta(days=gates.archive_days)
    for state, after in (("cooling", half), ("archived", archived)):
        if after - NEAR <= unused < after:
            return state, max(1, (after - unused).days)
    return None


class StepLocation(msgspec.Struct, frozen=True, kw_only=True):
    """The line range of a step when it was read, and its location in the working tree now."""

    path: str
    then: str  # the lines that were read
    now: str  # where they are now
    drift: tuple[str, ...] = ()  # how they have changed since
    is_gone: bool = False  # it can no longer be found; `now` has the reason


async def locate_steps(trail: Trail, *, root: Path | None) -> list[StepLocation] | None:
    """Find each line range of a trail in the working tree. None if the tree is not on this machine."""
    if root is None:
        return None
    loaded = await asyncio.to_thread(load_trail, trail, root=root, budget_tokens=DRIFT_TOKENS)
    located = [
        StepLocation(
            path=range_.now.path,
            then=f"{range_.was.start}–{range_.was.end}",
            now=f"{range_.match.start}–{range_.match.end}",
            drift=range_.drift,
        )
        for range_ in loaded.shown
    ]
    lost = [
        StepLocation(path=range_.path, then=f"{range_.start}–{range_.end}", now=range_.reason, is_gone=True)
        for range_ in loaded.left_out
    ]
    return [*located, *lost]


def evolution_chart(weeks: Sequence[TrailWeek], label: Callable[[datetime], str]) -> str:
    """Draw the weeks as an SVG chart: known trails as a line; named, renewed and used trails as columns."""
    return columns(
        "Trails known, named, renewed and used by week",
        [
            Column(label=label(week.begins_at), parts=(week.crystallized, week.refreshed, week.used), line=week.known)
            for week in weeks
        ],
        parts=(("named", "epoch"), ("renewed", "week"), ("used", "session")),
        line=("trails known", "accent"),
    )


async def evolution(memory: Memory, *, now: datetime) -> list[TrailWeek]:
    """Count the trails known, named, renewed, offered and used in each of the last WEEKS weeks, oldest week first."""
    begins = [now - timedelta(weeks=number) for number in range(WEEKS, 0, -1)]
    trails = await memory.trails.known()
    names = (CREATED, CRYSTALLIZED, OFFERED, USED)
    events = await memory.events.query(EventQuery(names=names, since=begins[0], limit=EVENTS_MAX))
    weeks = []
    for begin in begins:
        end = begin + timedelta(weeks=1)
        within = [event for event in events if begin <= event.at < end]
        counts = Counter(event.name for event in within)
        named = [event for event in within if event.name in (CREATED, CRYSTALLIZED)]
        first = sum(event.data.get("version") == 1 for event in named)
        week = TrailWeek(
            begins_at=begin,
            known=sum(trail.first_at < end for trail in trails),
            crystallized=first,
            refreshed=len(named) - first,
            offered=counts[OFFERED],
            used=counts[USED],
        )
        weeks.append(week)
    return weeks

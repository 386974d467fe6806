"""Trails: which are hot, what they saved, how near each is to a name, who walks them, and what to say of them."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Literal

import msgspec

from mica.format.charts import Column, columns
from mica.memory import Memory
from mica.model.event import EventQuery
from mica.model.trail import CREATED, CRYSTALLIZED, OFFERED, USED, Trail, passes, trust
from mica.navigation.trails.loader import load_trail
from mica.settings import TrailSettings

TOP = 10  # hot paths
AGENTS_MAX, MATRIX_ROWS = 8, 12
WEEKS = 12  # of evolution
TOLD_MAX = 5_000  # events of trails that the evolution is counted from
FAILED_SHARE = 0.20  # of known outcomes, above which a trail is told as failing
SAVED_SHARE = 0.50  # of its baseline, below which an active trail saves too little
DRIFT_TOKENS = 200_000  # of files that are looked at to say where ranges stand: all of a trail's
NEAR = timedelta(days=7)  # before a trail cools or is archived


class Condition(msgspec.Struct, frozen=True, kw_only=True):
    """One condition of the gate: what there is, and what is asked for."""

    name: str
    have: float
    need: float

    @property
    def share(self) -> float:
        return min(1.0, self.have / self.need) if self.need else 1.0


class Readiness(msgspec.Struct, frozen=True, kw_only=True):
    """How near a trail is to its name: as far as its weakest condition."""

    conditions: tuple[Condition, ...]
    is_ready: bool  # a rule would crystallize it

    @property
    def score(self) -> float:
        return min(each.share for each in self.conditions)

    @property
    def weakest(self) -> Condition:
        return min(self.conditions, key=lambda each: each.share)


class HotPath(msgspec.Struct, frozen=True, kw_only=True):
    """A trail as it stands in the list."""

    trail: Trail
    readiness: Readiness


Kind = Literal["failing", "saves little", "cooling", "new"]


class Warned(msgspec.Struct, frozen=True, kw_only=True):
    """Something about a trail that a person may want to act on (A-36)."""

    kind: Kind
    trail: str
    key: str
    text: str


class Preferences(msgspec.Struct, frozen=True, kw_only=True):
    """Who walked which trail how often: one row for each trail, one column for each agent."""

    agents: tuple[str, ...]
    rows: tuple[tuple[Trail, tuple[int, ...]], ...]

    @property
    def most(self) -> int:
        return max((count for _, counts in self.rows for count in counts), default=0)


class TrailWeek(msgspec.Struct, frozen=True, kw_only=True):
    """What happened to trails in one week, and how many there were at its end."""

    begins_at: datetime
    known: int
    crystallized: int
    refreshed: int
    offered: int
    used: int


class Patterns(msgspec.Struct, frozen=True, kw_only=True):
    """The whole page."""

    trails: int
    states: dict[str, int]
    hot: tuple[HotPath, ...]
    warnings: tuple[Warned, ...]
    preferences: Preferences
    drifted: tuple[Trail, ...]
    is_learning: bool


async def patterns(memory: Memory, *, gates: TrailSettings, now: datetime, limit: int = TOP) -> Patterns:
    """The trails of a space, those worth most first."""
    found = await memory.trails.known()
    standing = [trail for trail in found if trail.state != "archived"]
    return Patterns(
        trails=len(found),
        states=dict(Counter(trail.state for trail in found)),
        hot=tuple(HotPath(trail=trail, readiness=readiness(trail, gates)) for trail in standing[:limit]),
        warnings=tuple(warnings(found, now=now, gates=gates)),
        preferences=preferred(standing),
        drifted=tuple(trail for trail in standing if trail.drifted),
        is_learning=await memory.trails.is_learning(),
    )


def readiness(trail: Trail, gates: TrailSettings) -> Readiness:
    """How near a trail is to being crystallized by the rule."""
    conditions = (
        Condition(name="walks", have=trail.runs, need=gates.runs),
        Condition(name="sessions", have=trail.sessions, need=gates.sessions),
        Condition(name="trust", have=trust(trail, gates), need=gates.crystallize),
    )
    return Readiness(conditions=conditions, is_ready=passes(trail, gates))


def preferred(trails: Sequence[Trail]) -> Preferences:
    """The matrix over the trails that somebody named walked, those given first."""
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


def warnings(trails: Sequence[Trail], *, now: datetime, gates: TrailSettings) -> list[Warned]:
    """What is to be said of trails, the gravest first. Of archived ones nothing is."""
    found = [warned for trail in trails for warned in _warned(trail, now=now, gates=gates)]
    kinds: tuple[Kind, ...] = ("failing", "saves little", "cooling", "new")
    return sorted(found, key=lambda each: kinds.index(each.kind))


def _warned(trail: Trail, *, now: datetime, gates: TrailSettings) -> list[Warned]:
    if trail.state == "archived":
        return []
    told: list[tuple[Kind, str]] = []
    known = trail.successes + trail.failures
    if trail.version and known and trail.failures / known > FAILED_SHARE:
        told.append(("failing", f"{trail.failures} of {known} tasks that walked it failed"))
    saved = trail.measured
    if trail.version and saved is not None and saved.saving < SAVED_SHARE * saved.baseline_tokens:
        share = saved.saving / saved.baseline_tokens if saved.baseline_tokens else 0.0
        told.append(("saves little", f"it saved {share:.0%} of {saved.baseline_tokens:,} tokens ({saved.method})"))
    if trail.version and (left := _until_colder(trail, now=now, gates=gates)) is not None:
        state, days = left
        told.append(("cooling", f"unused since {trail.last_at:%d %B}; {state} in {days} days unless somebody walks it"))
    if trail.state == "hot" and not trail.version:
        told.append(("new", f"walked {trail.runs} times in {trail.sessions} sessions, and it has no command yet"))
    return [Warned(kind=kind, trail=trail.name, key=trail.key, text=text) for kind, text in told]


def _until_colder(trail: Trail, *, now: datetime, gates: TrailSettings) -> tuple[str, int] | None:
    """What becomes of a trail soon if nobody walks it, and in how many days; None where that is far off."""
    unused = now - trail.last_at
    half, archived = timedelta(days=gates.half_life_days), timedelta(days=gates.archive_days)
    for state, after in (("cooling", half), ("archived", archived)):
        if after - NEAR <= unused < after:
            return state, max(1, (after - unused).days)
    return None


class Stands(msgspec.Struct, frozen=True, kw_only=True):
    """Where a step of a trail is in the working tree now."""

    path: str
    then: str  # the lines that were read
    now: str  # where they stand
    drift: tuple[str, ...] = ()  # what happened to them since
    is_gone: bool = False


async def standing(trail: Trail, *, root: Path | None) -> list[Stands] | None:
    """Where each range of a trail stands now; None where the working tree is not on this machine."""
    if root is None:
        return None
    loaded = await asyncio.to_thread(load_trail, trail, root=root, budget_tokens=DRIFT_TOKENS)
    found = [
        Stands(
            path=one.now.path,
            then=f"{one.was.start}–{one.was.end}",
            now=f"{one.found.start}–{one.found.end}",
            drift=one.drift,
        )
        for one in loaded.shown
    ]
    gone = [
        Stands(path=one.path, then=f"{one.start}–{one.end}", now=one.reason, is_gone=True) for one in loaded.left_out
    ]
    return [*found, *gone]


def evolution_chart(weeks: Sequence[TrailWeek], label: Callable[[datetime], str]) -> str:
    """The weeks as SVG: known trails as a line; named, renewed and used ones as columns."""
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
    """The last weeks, oldest first: how many trails were known, named, told of and used."""
    begins = [now - timedelta(weeks=number) for number in range(WEEKS, 0, -1)]
    trails = await memory.trails.known()
    names = (CREATED, CRYSTALLIZED, OFFERED, USED)
    told = await memory.events.query(EventQuery(names=names, since=begins[0], limit=TOLD_MAX))
    weeks = []
    for begin in begins:
        end = begin + timedelta(weeks=1)
        within = [event for event in told if begin <= event.at < end]
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

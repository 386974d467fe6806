"""Measures whether briefs help, how soon crystals are used, which sources contribute, and what asking them costs.

The report depends only on the events. Tasks of sessions with briefs are compared to tasks of sessions without briefs,
in which briefs were switched off or withheld for comparison. Sessions that had briefs only at times are excluded. Every
gain is reported with the share of tasks that did worse. If there is too little data, the report says so.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from statistics import fmean, median

import msgspec

from mica.model.event import BRIEFED, CRYSTAL, Event, EventId
from mica.model.teaching import PROMOTED
from mica.model.trail import CRYSTALLIZED
from mica.model.walk import Walk, walks_of
from mica.navigation.report import SESSIONS_MIN, bootstrap_difference
from mica.sources.protocol import GATHERED_NAMES

RECEIPT = "brief"  # the event that records a brief
WEEKS = 8  # length of the comparison
TASKS_MIN = 30  # per arm; fewer prove nothing
WEEK = timedelta(days=7)


class Arm(msgspec.Struct, frozen=True, kw_only=True):
    """Counts of one group in the comparison: all tasks with briefs, or all tasks without."""

    tasks: int = 0
    judged: int = 0  # tasks with an outcome
    succeeded: int = 0
    sessions: int = 0  # of the judged tasks

    @property
    def success(self) -> float | None:
        return self.succeeded / self.judged if self.judged else None


class BriefEffect(msgspec.Struct, frozen=True, kw_only=True):
    """Tasks with briefs compared to tasks without, and the share of tasks that did worse with briefs."""

    on: Arm = Arm()
    off: Arm = Arm()
    mixed: int = 0  # tasks of sessions that had both
    difference: float | None = None  # of the success rates; positive in favour of briefs
    low: float | None = None  # bound of its 95 % interval
    high: float | None = None
    worse: float | None = None  # share of the tasks with briefs whose kind did better without
    kinds: int = 0  # kinds of tasks that both arms had

    @property
    def verdict(self) -> str:
        if self.difference is None or self.low is None or self.high is None:
            return (
                f"Tasks with an outcome: {self.on.judged:,} with briefs and {self.off.judged:,} without, "
                f"too few to say whether briefs help ({TASKS_MIN} of each are needed, from {SESSIONS_MIN} sessions)."
            )
        sure = "helped" if self.low > 0 else "harmed" if self.high < 0 else "made no measurable difference"
        worse = "" if self.worse is None else f"; worse for {self.worse:.0%} of the tasks"
        return f"Briefs {sure}: {self.difference:+.1%} success ({self.low:+.1%} to {self.high:+.1%}){worse}."


class CrystalDelay(msgspec.Struct, frozen=True, kw_only=True):
    """The median time from a mark to the crystal that cites it, and from that crystal to its first use in a brief."""

    crystals_used: int = 0
    to_crystal_h: float | None = None
    to_use_h: float | None = None


class Yield(msgspec.Struct, frozen=True, kw_only=True):
    """How many sources were asked, how many contributed text to an answer, and the names of those that never did."""

    asked: int = 0
    contributed: int = 0
    never: tuple[str, ...] = ()

    @property
    def share(self) -> float | None:
        return self.contributed / self.asked if self.asked else None


class GatherCost(msgspec.Struct, frozen=True, kw_only=True):
    """The cost of asking sources about concepts, and counts of the fragments that were not shown, by reason."""

    gathers: int = 0
    tokens: int = 0
    milliseconds: float = 0.0
    dollars: float = 0.0
    p50_ms: float | None = None
    p99_ms: float | None = None
    coherence: float | None = None  # mean
    answered: float | None = None  # share of the questions to sources that were answered, from the cache too
    cached: float | None = None  # share answered from the cache
    conflicts: int = 0
    counts: dict[str, int] = {}  # junk, duplicates, loops and other fragments that were not shown


class QualityWeek(msgspec.Struct, frozen=True, kw_only=True):
    """How many crystals, teachings, trails and briefs were made in one week, and how often sources were asked."""

    begins: datetime
    crystals: int = 0
    teachings: int = 0
    trails: int = 0
    briefs: int = 0
    gathers: int = 0


class Quality(msgspec.Struct, frozen=True, kw_only=True):
    """The quality report of a period."""

    since: datetime
    until: datetime
    helped: BriefEffect
    closing: CrystalDelay
    yielded: Yield
    cost: GatherCost
    weeks: tuple[QualityWeek, ...]


def quality(events: Sequence[Event], *, since: datetime, until: datetime) -> Quality:
    """Compute the report of the period from `since` to `until`. `events` are in order of time.

    Events before `since` are not counted. They are used only as the start of a delay, for example the time of a mark
    that a later crystal cites.
    """
    within = [event for event in events if event.at >= since]
    receipts = [event for event in within if event.name == RECEIPT]
    gathers = [event for event in within if event.name in GATHERED_NAMES]
    return Quality(
        since=since,
        until=until,
        helped=_helped(walks_of(within), [event for event in within if event.name in (RECEIPT, BRIEFED)]),
        closing=_closing(events, receipts),
        yielded=_yield(gathers, receipts),
        cost=_cost(gathers),
        weeks=_weeks(within, since=since, until=until),
    )


def _helped(walks: Iterable[Walk], briefs: Iterable[Event]) -> BriefEffect:
    arms_of: dict[str, set[bool]] = defaultdict(set)
    for event in briefs:
        if event.context.session is not None and "as_of" not in event.data:
            is_off = "held_out" if event.name == BRIEFED else "is_off"
            arms_of[event.context.session].add(event.data.get(is_off) is not True)
    arms: dict[bool, list[Walk]] = {True: [], False: []}
    mixed = 0
    for walk in walks:
        session_arms = arms_of.get(walk.session or "", set())
        if len(session_arms) == 1:
            arms[next(iter(session_arms))].append(walk)
        mixed += len(session_arms) > 1
    on, off = (_arm(arms[each]) for each in (True, False))
    helped = BriefEffect(on=on, off=off, mixed=mixed)
    if min(on.judged, off.judged) < TASKS_MIN:
        return helped
    ours, theirs = (
        [(walk.session or "", float(walk.outcome == "success")) for walk in arms[each] if walk.outcome != "unknown"]
        for each in (True, False)
    )
    interval = bootstrap_difference(ours, theirs)
    if interval is None:
        return helped
    worse, kinds = _worse(arms[True], arms[False])
    return msgspec.structs.replace(
        helped,
        difference=fmean(value for _, value in ours) - fmean(value for _, value in theirs),
        low=interval[0],
        high=interval[1],
        worse=worse,
        kinds=kinds,
    )


def _arm(walks: Sequence[Walk]) -> Arm:
    judged = [walk for walk in walks if walk.outcome != "unknown"]
    return Arm(
        tasks=len(walks),
        judged=len(judged),
        succeeded=sum(walk.outcome == "success" for walk in judged),
        sessions=len({walk.session for walk in judged}),
    )


def _worse(ours: Iterable[Walk], theirs: Iterable[Walk]) -> tuple[float | None, int]:
    """Return a pair: the share of tasks with briefs that did worse, and the number of kinds of tasks compared.

    `ours` are the tasks with briefs, and `theirs` those without. A task did worse if tasks of its kind succeeded more
    often without briefs. Only kinds with outcomes in both groups are compared; without any, the share is None.
    """
    kinds: dict[str, tuple[list[bool], list[bool]]] = defaultdict(lambda: ([], []))
    for place, walks in enumerate((ours, theirs)):
        for walk in walks:
            if walk.outcome != "unknown":
                kinds[walk.task or ""][place].append(walk.outcome == "success")
    both = [(own, other) for own, other in kinds.values() if own and other]
    total = sum(len(own) for own, _ in both)
    worse = sum(len(own) for own, other in both if fmean(own) < fmean(other))
    return (worse / total if total else None), len(both)


def _closing(events: Iterable[Event], receipts: Iterable[Event]) -> CrystalDelay:
    at = {event.id: event.at for event in events}
    used: dict[EventId, tuple[datetime, list[EventId]]] = {}
    for event in receipts:
        for passage in _listed(event.data.get("passages")):
            sources = [EventId(each) for each in _texts(passage.get("sources"))]
            if passage.get("source") in ("crystals", "teachings") and sources:
                used.setdefault(sources[0], (event.at, sources[1:]))
    to_use = [(when - at[crystal]).total_seconds() / 3600 for crystal, (when, _) in used.items() if crystal in at]
    to_crystal = [
        (at[crystal] - at[mark]).total_seconds() / 3600
        for crystal, (_, marks) in used.items()
        for mark in marks
        if crystal in at and mark in at
    ]
    return CrystalDelay(
        crystals_used=len(used),
        to_crystal_h=median(to_crystal) if to_crystal else None,
        to_use_h=median(to_use) if to_use else None,
    )


def _yield(gathers: Iterable[Event], receipts: Iterable[Event]) -> Yield:
    asked: set[str] = set()
    contributed: set[str] = set()
    for event in gathers:
        asked.update(_texts(event.data.get("asked")))
        for fragment in _listed(event.data.get("fragments")):
            contributed.update(each[0] for each in _pairs(fragment.get("origins")))
    for event in receipts:
        for passage in _listed(event.data.get("passages")):
            if isinstance(source := passage.get("source"), str):
                contributed.add(source)
                asked.add(source)
    return Yield(asked=len(asked), contributed=len(asked & contributed), never=tuple(sorted(asked - contributed)))


def _cost(gathers: Sequence[Event]) -> GatherCost:
    records = [event.data for event in gathers]
    took = sorted(_number(each.get("latency_ms")) for each in records)
    asked = sum(len(_texts(each.get("asked"))) for each in records)
    missing = sum(
        len(set(_texts(each.get("asked"))) & {*(each.get("missing") or {})})  # type: ignore[misc]  # a mapping
        for each in records
        if isinstance(each.get("missing"), Mapping)
    )
    cached = sum(len(_texts(each.get("cached"))) for each in records)
    shares = [_number(each["coherence"]) for each in records if each.get("coherence") is not None]
    counts: Counter[str] = Counter()
    for each in records:
        if isinstance(recorded := each.get("counts"), Mapping):
            counts.update({str(name): int(_number(number)) for name, number in recorded.items()})
    return GatherCost(
        gathers=len(records),
        tokens=int(sum(_number(each.get("tokens")) for each in records)),
        milliseconds=sum(took),
        dollars=sum(_number(each.get("dollars")) for each in records),
        p50_ms=median(took) if took else None,
        p99_ms=took[min(len(took) - 1, int(len(took) * 0.99))] if took else None,
        coherence=fmean(shares) if shares else None,
        answered=1 - missing / asked if asked else None,
        cached=cached / asked if asked else None,
        conflicts=int(sum(_number(each.get("conflicts")) for each in records)),
        counts=dict(sorted(counts.items())),
    )


def _weeks(events: Iterable[Event], *, since: datetime, until: datetime) -> tuple[QualityWeek, ...]:
    names = {CRYSTAL: "crystals", PROMOTED: "teachings", CRYSTALLIZED: "trails", RECEIPT: "briefs"}
    names |= dict.fromkeys(GATHERED_NAMES, "gathers")
    counted: dict[int, Counter[str]] = defaultdict(Counter)
    count = -(-(until - since) // WEEK)
    for event in events:
        if event.name in names:
            week = min(count - 1, (event.at - since) // WEEK)  # an event at `until` belongs to the last week
            counted[week][names[event.name]] += 1
    return tuple(QualityWeek(begins=since + number * WEEK, **counted[number]) for number in range(count))


def _listed(value: object) -> list[dict[str, object]]:
    return [each for each in value if isinstance(each, dict)] if isinstance(value, list) else []


def _texts(value: object) -> list[str]:
    return [each for each in value if isinstance(each, str)] if isinstance(value, list) else []


def _pairs(value: object) -> list[list[str]]:
    return [each for each in value if isinstance(each, list) and each] if isinstance(value, list) else []


def _number(value: object) -> float:
    return float(value) if isinstance(value, int | float) else 0.0

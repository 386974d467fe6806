"""Measures the value of suggested files: the tokens they saved and wasted, with a report of a day or week.

The saving of a single session cannot be measured, because it is unknown which files the session would have read without
an offer (a suggestion of trails or files). So some offers are withheld at random, and the mean of tasks with offers is
compared to that of tasks without, with a confidence interval. The tokens of unused offers are counted as wasted.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta

import msgspec

from mica.events.activity import open_sessions
from mica.llm.prices import prices
from mica.memory import Memory
from mica.model.event import Event, EventQuery
from mica.model.trail import CREATED, CRYSTALLIZED, USED, Trail, covered_share
from mica.model.walk import WALK_EVENTS, Walk, walks_of
from mica.navigation.report import ARMS_SPAN, Period, Report, make_report

REPORT_EVENTS = 40_000  # the latest of eight weeks; reading them takes a few seconds at most
RECOGNISED_TASKS = 200  # the latest tasks that are matched against trails
FILES_MIN = 2  # a task or trail with fewer files is never matched
COVERED = 0.75  # share of a trail's files that a task must open to have walked it
REPORTED = ("trail.*", "crystal*", "teaching.*", "hook.failed", "job.failed")


class OfferWaste(msgspec.Struct, frozen=True, kw_only=True):
    """The number of offers (suggestions of files or trails), how many were unused, and the tokens of unused ones."""

    offers: int = 0
    unused: int = 0
    tokens: int = 0  # of the unused offers


class LiveFigures(msgspec.Struct, frozen=True, kw_only=True):
    """Current figures: active trails, how often they are used, and the suggestions made in the active session."""

    active_trails: int
    hit_rate: float | None  # share of offers that were used; None if there were none
    recognised: float | None  # share of the latest tasks that walked a known trail
    recognised_of: int  # number of these tasks
    session: str | None  # the active one
    session_offers: OfferWaste
    session_held_out: bool  # it gets no offers, for comparison


class Preference(msgspec.Struct, frozen=True, kw_only=True):
    """How often an agent used the files of a trail in this period, and in the period before."""

    agent: str
    trail: str
    now: int
    before: int


class OfferCounts(msgspec.Struct, frozen=True, kw_only=True):
    """Counts of trails and of suggestions (offers) in one period."""

    new_trails: int
    crystallized: int
    refreshed: int
    success: float | None  # share of successes among uses with a known outcome
    success_of: int  # number of these uses
    waste: OfferWaste


class WorthView(msgspec.Struct, frozen=True, kw_only=True):
    """The figures of a day or a week beside those of the period before.

    They include a comparison of tasks with and without suggestions.
    """

    report: Report
    now: OfferCounts
    before: OfferCounts
    preferences: tuple[Preference, ...] = ()  # those that changed most
    live: LiveFigures
    is_partial: bool = False  # older events were not read


async def worth(memory: Memory, period: Period, *, now: datetime) -> WorthView:
    """Compute the figures of a period that ends now, from at most REPORT_EVENTS events."""
    query = EventQuery(names=(*WALK_EVENTS, *REPORTED), since=now - ARMS_SPAN, until=now, limit=REPORT_EVENTS)
    events = await memory.events.query(query)
    trails = await memory.trails.known()
    view = await asyncio.to_thread(_build_view, events, trails, period=period, now=now)
    return msgspec.structs.replace(view, is_partial=len(events) == REPORT_EVENTS)


def _build_view(events: Sequence[Event], trails: Sequence[Trail], *, period: Period, now: datetime) -> WorthView:
    report = make_report(events, period=period, until=now, prices=prices())
    walks = walks_of(events)
    length = report.until - report.since
    return WorthView(
        report=report,
        now=counts(events, walks, trails, since=report.since, until=report.until),
        before=counts(events, walks, trails, since=report.since - length, until=report.since),
        preferences=preferences(walks, trails, since=report.since, length=length),
        live=live_figures(events, walks, trails, now=now),
    )


def counts(
    events: Iterable[Event], walks: Iterable[Walk], trails: Iterable[Trail], *, since: datetime, until: datetime
) -> OfferCounts:
    """Count trails and suggestions (offers) between two moments."""
    within = [event for event in events if event.name in (CREATED, CRYSTALLIZED, USED) and since <= event.at < until]
    ends = Counter(str(event.data.get("outcome")) for event in within if event.name == USED)
    named = [event for event in within if event.name != USED]
    first = sum(event.data.get("version") == 1 for event in named)
    known = ends["success"] + ends["failure"]
    return OfferCounts(
        new_trails=sum(since <= trail.first_at < until for trail in trails),
        crystallized=first,
        refreshed=len(named) - first,
        success=ends["success"] / known if known else None,
        success_of=known,
        waste=offer_waste(walk for walk in walks if since <= walk.at < until),
    )


def offer_waste(walks: Iterable[Walk]) -> OfferWaste:
    """Count the suggestions that tasks got, and the cost of unused ones. Withheld suggestions do not count."""
    offers = [(walk.offer, walk) for walk in walks if walk.offer is not None and not walk.offer.held_out]
    unused = [offer.tokens for offer, walk in offers if not set(offer.paths) & set(walk.touched)]
    return OfferWaste(offers=len(offers), unused=len(unused), tokens=sum(unused))


def live_figures(
    events: Sequence[Event], walks: Sequence[Walk], trails: Sequence[Trail], *, now: datetime
) -> LiveFigures:
    """Compute the current figures, from events in order of time."""
    recent = [event for event in events if event.at >= now - timedelta(minutes=30)]
    sessions = open_sessions(recent)
    session = sessions[-1].session if sessions else None
    own = [walk for walk in walks if session is not None and walk.session == session]
    all_offers = offer_waste(walks)
    tasks = [walk for walk in walks if len(walk.touched) >= FILES_MIN][-RECOGNISED_TASKS:]
    known = [trail for trail in trails if trail.state != "archived" and len(trail.paths) >= FILES_MIN]
    recognised = sum(
        any(trail.first_at < walk.at and covered_share(trail.paths, walk.touched) >= COVERED for trail in known)
        for walk in tasks
    )
    return LiveFigures(
        active_trails=sum(trail.state == "crystallized" for trail in trails),
        hit_rate=1 - all_offers.unused / all_offers.offers if all_offers.offers else None,
        recognised=recognised / len(tasks) if tasks else None,
        recognised_of=len(tasks),
        session=session,
        session_offers=offer_waste(own),
        session_held_out=any(walk.offer is not None and walk.offer.held_out for walk in own),
    )


def preferences(
    walks: Sequence[Walk], trails: Sequence[Trail], *, since: datetime, length: timedelta, limit: int = 5
) -> tuple[Preference, ...]:
    """Return the agents that use a named trail more or less often than before, at most `limit`, largest change first.

    Uses since `since` are compared with uses in the period of `length` before `since`.
    """
    named = [trail for trail in trails if trail.version and len(trail.paths) >= FILES_MIN]
    counts: Counter[tuple[str, str, bool]] = Counter()
    for walk in walks:
        if walk.agent is None or walk.at < since - length or len(walk.touched) < FILES_MIN:
            continue
        for trail in named:
            if covered_share(trail.paths, walk.touched) >= COVERED:
                counts[walk.agent, trail.name, walk.at >= since] += 1
    pairs = {(agent, name) for agent, name, _ in counts}
    compared = [
        Preference(agent=agent, trail=name, now=counts[agent, name, True], before=counts[agent, name, False])
        for agent, name in pairs
    ]
    changed = [each for each in compared if each.now != each.before]
    return tuple(sorted(changed, key=lambda each: (-abs(each.now - each.before), each.agent, each.trail))[:limit])

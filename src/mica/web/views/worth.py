"""What mica is worth here: tokens saved and wasted, by the hold-out; live figures, the day's and the week's report.

Nothing is derived from a formula. What a single session saved cannot be seen: nobody knows what it would have read
without an offer. What can be seen is the mean of tasks with offers beside tasks whose offers were held out, with its
interval, and the tokens of offers of which nothing was used.
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

REPORT_EVENTS = 40_000  # the latest of eight weeks that are read: some seconds at the most
RECOGNISED_TASKS = 200  # the latest, of which it is asked whether a trail leads through their files
FILES_MIN = 2  # of a task that could have been a trail
COVERED = 0.75  # of a trail's files, from which a task has walked it
TOLD = ("trail.*", "crystal*", "teaching.*", "hook.failed", "job.failed")


class Wasted(msgspec.Struct, frozen=True, kw_only=True):
    """Offers of a period of which nothing was used, and what they cost."""

    offers: int = 0
    unused: int = 0
    tokens: int = 0


class Live(msgspec.Struct, frozen=True, kw_only=True):
    """How it goes just now (A-28)."""

    active_trails: int
    hit_rate: float | None  # of offers, that something of them was used; None while nothing was offered
    recognised: float | None  # of the latest tasks, that they walked a trail which an earlier one had walked
    recognised_of: int
    session: str | None  # that goes on
    session_offers: Wasted
    session_held_out: bool  # it is told nothing, for comparison


class Preference(msgspec.Struct, frozen=True, kw_only=True):
    """How often an agent walked a trail in this period and in the one before."""

    agent: str
    trail: str
    now: int
    before: int


class OfferCounts(msgspec.Struct, frozen=True, kw_only=True):
    """What became of trails and offers in one period."""

    new_trails: int
    crystallized: int
    refreshed: int
    success: float | None  # of uses of a trail whose end is known
    success_of: int
    wasted: Wasted


class WorthView(msgspec.Struct, frozen=True, kw_only=True):
    """A day or a week (A-29) beside the one before it, and the comparison of the arms."""

    report: Report
    now: OfferCounts
    before: OfferCounts
    preferences: tuple[Preference, ...] = ()  # that changed most
    live: Live
    is_partial: bool = False  # older events were not read


async def worth(memory: Memory, period: Period, *, now: datetime) -> WorthView:
    """The figures of a period that ends now, from the latest events."""
    query = EventQuery(names=(*WALK_EVENTS, *TOLD), since=now - ARMS_SPAN, until=now, limit=REPORT_EVENTS)
    events = await memory.events.query(query)
    trails = await memory.trails.known()
    found = await asyncio.to_thread(_counted, events, trails, period=period, now=now)
    return msgspec.structs.replace(found, is_partial=len(events) == REPORT_EVENTS)


def _counted(events: Sequence[Event], trails: Sequence[Trail], *, period: Period, now: datetime) -> WorthView:
    told = make_report(events, period=period, until=now, prices=prices())
    walks = walks_of(events)
    length = told.until - told.since
    return WorthView(
        report=told,
        now=counts(events, walks, trails, since=told.since, until=told.until),
        before=counts(events, walks, trails, since=told.since - length, until=told.since),
        preferences=preferences(walks, trails, since=told.since, length=length),
        live=live(events, walks, trails, now=now),
    )


def counts(
    events: Iterable[Event], walks: Iterable[Walk], trails: Iterable[Trail], *, since: datetime, until: datetime
) -> OfferCounts:
    """What became of trails and offers between two moments."""
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
        wasted=wasted(walk for walk in walks if since <= walk.at < until),
    )


def wasted(walks: Iterable[Walk]) -> Wasted:
    """What offers cost of which nothing was used; offers that were held out cost nothing."""
    given = [(walk.offer, walk) for walk in walks if walk.offer is not None and not walk.offer.held_out]
    unused = [offer.tokens for offer, walk in given if not set(offer.paths) & set(walk.touched)]
    return Wasted(offers=len(given), unused=len(unused), tokens=sum(unused))


def live(events: Sequence[Event], walks: Sequence[Walk], trails: Sequence[Trail], *, now: datetime) -> Live:
    """How it goes just now, from events in order of time."""
    lately = [event for event in events if event.at >= now - timedelta(minutes=30)]
    going_on = open_sessions(lately)
    session = going_on[-1].session if going_on else None
    own = [walk for walk in walks if session is not None and walk.session == session]
    all_offers = wasted(walks)
    tasks = [walk for walk in walks if len(walk.touched) >= FILES_MIN][-RECOGNISED_TASKS:]
    known = [trail for trail in trails if trail.state != "archived" and len(trail.paths) >= FILES_MIN]
    recognised = sum(
        any(trail.first_at < walk.at and covered_share(trail.paths, walk.touched) >= COVERED for trail in known)
        for walk in tasks
    )
    return Live(
        active_trails=sum(trail.state == "crystallized" for trail in trails),
        hit_rate=1 - all_offers.unused / all_offers.offers if all_offers.offers else None,
        recognised=recognised / len(tasks) if tasks else None,
        recognised_of=len(tasks),
        session=session,
        session_offers=wasted(own),
        session_held_out=any(walk.offer is not None and walk.offer.held_out for walk in own),
    )


def preferences(
    walks: Sequence[Walk], trails: Sequence[Trail], *, since: datetime, length: timedelta, limit: int = 5
) -> tuple[Preference, ...]:
    """Which agents walk which named trails more or less often than in the period before, the largest change first."""
    named = [trail for trail in trails if trail.version and len(trail.paths) >= FILES_MIN]
    counts: Counter[tuple[str, str, bool]] = Counter()
    for walk in walks:
        if walk.agent is None or walk.at < since - length or len(walk.touched) < FILES_MIN:
            continue
        for trail in named:
            if covered_share(trail.paths, walk.touched) >= COVERED:
                counts[walk.agent, trail.name, walk.at >= since] += 1
    pairs = {(agent, name) for agent, name, _ in counts}
    found = [
        Preference(agent=agent, trail=name, now=counts[agent, name, True], before=counts[agent, name, False])
        for agent, name in pairs
    ]
    changed = [each for each in found if each.now != each.before]
    return tuple(sorted(changed, key=lambda each: (-abs(each.now - each.before), each.agent, each.trail))[:limit])

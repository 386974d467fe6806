"""The contents of the Health page: unstored events, size, checks of the stored data, jobs and recent failures."""

from __future__ import annotations

import platform
from collections import Counter
from collections.abc import Sequence
from datetime import datetime, timedelta
from importlib.metadata import version

import msgspec

from mica.format.lines import plural
from mica.memory import Memory
from mica.model.crystal import Waiting
from mica.model.event import Event, EventQuery
from mica.store.leases import Work
from mica.store.protocol import Sizes

LATELY = timedelta(days=7)
FAILED_MAX = 15
OWN_FAILURES = ("job.failed", "hook.failed", "event.refused")  # failures of mica's own work


class SpaceHealth(msgspec.Struct, frozen=True, kw_only=True):
    """The health of a space, as the page shows it."""

    location: str
    space: str
    sizes: Sizes
    backlog_events: int
    backlog_bytes: int
    damaged: tuple[str, ...]
    work: tuple[Work, ...]
    without_vector: int | None  # None if semantic search is off
    own_failures: tuple[Event, ...]  # recent failures of mica's own work, latest first
    versions: dict[str, str]
    advice: tuple[str, ...]  # next steps, one sentence each


class Errors(msgspec.Struct, frozen=True, kw_only=True):
    """Recent failures of any kind."""

    latest: tuple[Event, ...] = ()  # latest first
    names: tuple[tuple[str, int], ...] = ()  # event names and counts, most frequent first


async def health(memory: Memory, *, now: datetime) -> SpaceHealth:
    """Read the health of a space. The stored data is not checked, because that is slow; see `laws`."""
    sizes = await memory.upkeep.sizes()
    events, size_bytes = await memory.upkeep.backlog()
    work = await memory.upkeep.planned()
    without_vector = await memory.upkeep.without_vector()
    failures = await memory.events.query(EventQuery(names=OWN_FAILURES, since=now - LATELY, limit=FAILED_MAX))
    return SpaceHealth(
        location=memory.location,
        space=memory.space,
        sizes=sizes,
        backlog_events=events,
        backlog_bytes=size_bytes,
        damaged=tuple(memory.upkeep.damaged),
        work=tuple(work),
        without_vector=without_vector,
        own_failures=tuple(reversed(failures)),
        versions={"mica": version("mica"), "Python": platform.python_version()},
        advice=tuple(_advice(sizes, events, memory.upkeep.damaged, failures, work, now=now)),
    )


def _advice(
    sizes: Sizes,
    waiting: int,
    damaged: Sequence[str],
    failures: Sequence[Event],
    work: Sequence[Work],
    *,
    now: datetime,
) -> list[str]:
    advice = list(damaged)
    if waiting:
        advice.append(f"{plural(waiting, 'event')} not stored yet: another process writes, or the store is unavailable")
    if failures:
        advice.append(
            f"{plural(len(failures), 'operation')} of mica failed in the last week; they are listed below and retried"
        )
    if late := [each.kind for each in work if each.due_at < now - timedelta(hours=1)]:
        advice.append(f"overdue: {', '.join(late)}; no process was active; `mica upkeep tick` runs them now")
    if not sizes.events:
        advice.append("this space is empty: run `mica import`, or `mica mark` a first observation")
    return advice


async def errors(memory: Memory, *, now: datetime) -> Errors:
    """Read the failures of the last week, latest first."""
    failures = await memory.events.query(EventQuery(errors=True, since=now - LATELY, limit=200))
    names = Counter(event.name for event in failures)
    return Errors(latest=tuple(reversed(failures[-FAILED_MAX:])), names=tuple(names.most_common(6)))


async def uncovered(memory: Memory) -> list[Waiting]:
    """List the periods that have no crystal yet, each with the reason."""
    return await memory.crystals.waiting()


async def laws(memory: Memory) -> list[str]:
    """Check all stored data against its invariants. Returns one sentence for each problem."""
    return [*await memory.upkeep.verify(), *memory.upkeep.damaged]

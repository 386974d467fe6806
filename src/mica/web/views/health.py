"""Health: what waits, what there is, whether the laws hold, what is due, and what failed lately."""

from __future__ import annotations

import platform
from collections import Counter
from collections.abc import Sequence
from datetime import datetime, timedelta
from importlib.metadata import version

import msgspec

from mica.memory import Memory
from mica.model.crystal import Waiting
from mica.model.event import Event, EventQuery
from mica.store.leases import Work
from mica.store.protocol import Sizes

LATELY = timedelta(days=7)
FAILED_MAX = 15
OURS = ("job.failed", "hook.failed", "event.refused")  # failures of mica's own work


class SpaceHealth(msgspec.Struct, frozen=True, kw_only=True):
    """How a space is."""

    location: str
    space: str
    sizes: Sizes
    backlog_events: int
    backlog_bytes: int
    damaged: tuple[str, ...]
    work: tuple[Work, ...]
    without_vector: int | None  # None: meaning does not count here
    ours: tuple[Event, ...]  # what failed of our own work lately, the latest first
    versions: dict[str, str]
    advice: tuple[str, ...]  # what to do, in sentences


class Errors(msgspec.Struct, frozen=True, kw_only=True):
    """What failed lately, of anybody's work."""

    latest: tuple[Event, ...] = ()  # the latest first
    names: tuple[tuple[str, int], ...] = ()  # how often what failed, the most first


async def health(memory: Memory, *, now: datetime) -> SpaceHealth:
    """How a space is, as far as can be said at once; whether the laws hold is asked for apart."""
    sizes = await memory.upkeep.sizes()
    events, size_bytes = await memory.upkeep.backlog()
    work = await memory.upkeep.planned()
    unread = await memory.upkeep.without_vector()
    ours = await memory.events.query(EventQuery(names=OURS, since=now - LATELY, limit=FAILED_MAX))
    return SpaceHealth(
        location=memory.location,
        space=memory.space,
        sizes=sizes,
        backlog_events=events,
        backlog_bytes=size_bytes,
        damaged=tuple(memory.upkeep.damaged),
        work=tuple(work),
        without_vector=unread,
        ours=tuple(reversed(ours)),
        versions={"mica": version("mica"), "Python": platform.python_version()},
        advice=tuple(_advice(sizes, events, memory.upkeep.damaged, ours, work, now=now)),
    )


def _advice(
    sizes: Sizes, waiting: int, damaged: Sequence[str], ours: Sequence[Event], work: Sequence[Work], *, now: datetime
) -> list[str]:
    told = list(damaged)
    if waiting:
        told.append(f"{waiting:,} events wait for the store; another process writes just now, or the store was away")
    if ours:
        told.append(
            f"{len(ours)} pieces of our own work failed in the last week; they are listed below and tried again"
        )
    if late := [each.kind for each in work if each.due_at < now - timedelta(hours=1)]:
        told.append(f"{', '.join(late)} is overdue: nobody was active; `mica upkeep tick` does it now")
    if not sizes.events:
        told.append("this space is empty: run `mica import`, or `mica mark` a first observation")
    return told


async def errors(memory: Memory, *, now: datetime) -> Errors:
    """What failed lately, the latest first."""
    found = await memory.events.query(EventQuery(errors=True, since=now - LATELY, limit=200))
    names = Counter(event.name for event in found)
    return Errors(latest=tuple(reversed(found[-FAILED_MAX:])), names=tuple(names.most_common(6)))


async def uncovered(memory: Memory) -> list[Waiting]:
    """What no crystal covers yet, and why."""
    return await memory.crystals.waiting()


async def laws(memory: Memory) -> list[str]:
    """Every broken promise in the stored data; reads all of it."""
    return [*await memory.upkeep.verify(), *memory.upkeep.damaged]

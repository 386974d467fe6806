"""Finds the events that retention purges.

An old event is purged unless it is pinned, a pattern in the settings keeps its name, or an event that is kept by name
refers to it.
"""

from __future__ import annotations

import re
from datetime import datetime, timedelta
from typing import Literal, TypeAlias

import msgspec

from mica.model.event import Event, EventId, is_tombstone, name_pattern
from mica.settings import RetentionSettings
from mica.store.purges import SearchedLog
from mica.store.query import EVENTS_AT_ONCE

RETENTION = "retention"  # the beginning of the reason in the tombstones of events that retention purged
OFF = "retention is off, so nothing is purged; `enabled = true` under [retention] in the settings turns it on"
PINNED, UNPINNED = "log.pinned", "log.unpinned"
DEEP = 10  # an event with more ancestors belongs to the class "deep"

Class: TypeAlias = Literal["default", "deep", "error"]

_ID = re.compile(rb"\b[0-7][0-9a-hjkmnp-tv-z]{25}-[0-7][0-9a-f]{15}\b")


class RetentionResult(msgspec.Struct, frozen=True, kw_only=True):
    """The events that retention purged, or would purge in a dry run, and those that it left."""

    enabled: bool  # whether retention is on; if not, nothing is purged
    classes: dict[str, int]  # the number of purged events, by class
    kept: dict[str, int] = {}  # the number of old events that stay, by the pattern that keeps their name
    cited: int = 0  # the number of old events that stay because they are pinned, or because a kept event cites them
    archive: str | None = None  # the path of the file with the purged events
    unreached: tuple[str, ...] = ()  # one sentence for each file that may still have the purged content


def class_of(event: Event, settings: RetentionSettings) -> tuple[Class, timedelta]:
    """Return a pair: the class of an event (default, deep or error), and how long events of this class are retained.

    An event with more than DEEP ancestors is deep. If several classes apply, the one with the longest period is
    returned.
    """
    days: list[tuple[float, Class]] = [(settings.default_days, "default")]
    if event.depth > DEEP:
        days.append((settings.deep_days, "deep"))
    if event.error:
        days.append((settings.error_days, "error"))
    longest, name = max(days)
    return name, timedelta(days=longest)


class DueEvents(msgspec.Struct, frozen=True, kw_only=True):
    """The events to purge now, and how many old events stay."""

    classes: dict[Class, list[EventId]]  # the ids of the events to purge, by class
    kept: dict[str, int]  # the number of old events that stay, by the pattern that keeps their name
    cited: int  # the number of old events that stay because they are pinned, or because a kept event cites them


async def due(log: SearchedLog, settings: RetentionSettings, *, now: datetime) -> DueEvents:
    """Return the events to purge now, by class, and how many old events stay.

    An old event stays in three cases: its name matches a pattern in the setting `keep`; it is pinned; or it is the
    parent of an event with such a name, or is mentioned by its id in the data of one.
    """
    kept_counts = dict.fromkeys(settings.keep, 0)
    keep_patterns: dict[str, str | None] = {}  # by event name; None if no pattern keeps it
    old: dict[EventId, Class] = {}
    cited: set[EventId] = set()
    pinned: set[EventId] = set()
    after = 0
    while events := await log.read(after, limit=EVENTS_AT_ONCE):
        for event in events:
            named = {EventId(match.decode()) for match in _ID.findall(event.body)}
            if event.name == PINNED:
                pinned |= named
            if event.name == UNPINNED:
                pinned -= named
            if event.name not in keep_patterns:
                fits = (pattern for pattern in settings.keep if name_pattern(pattern).fullmatch(event.name))
                keep_patterns[event.name] = next(fits, None)
            pattern = keep_patterns[event.name]
            name, period = class_of(event, settings)
            is_old = event.at < now - period and not is_tombstone(event)
            if pattern is not None:
                kept_counts[pattern] += is_old
            if event.name in (PINNED, UNPINNED):
                continue
            if pattern is not None:
                cited |= named if event.parent_id is None else {*named, event.parent_id}
            elif is_old:
                old[event.id] = name
        after = events[-1].position or 0
    classes: dict[Class, list[EventId]] = {}
    staying = 0
    for identifier, name in old.items():
        if identifier in cited or identifier in pinned:
            staying += 1
        else:
            classes.setdefault(name, []).append(identifier)
    kept = {pattern: number for pattern, number in kept_counts.items() if number}
    return DueEvents(classes=dict(sorted(classes.items())), kept=kept, cited=staying)

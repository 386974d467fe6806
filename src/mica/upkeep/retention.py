"""Which events retention takes: bulk events that are old enough and that nothing worth keeping refers to."""

from __future__ import annotations

import re
from datetime import datetime, timedelta
from typing import Literal, TypeAlias

import msgspec

from mica.model.event import Event, EventId, is_tombstone, name_pattern
from mica.settings import RetentionSettings
from mica.store.backwards import EVENTS_AT_ONCE
from mica.store.purges import Readable

RETENTION = "retention"  # how the reason of its tombstones begins
OFF = "retention is off, and nothing goes; `enabled = true` under [retention] in the settings turns it on"
PINNED, UNPINNED = "log.pinned", "log.unpinned"
DEEP = 10  # an event further below its root is deep (E-24)

Class: TypeAlias = Literal["default", "deep", "error"]

_ID = re.compile(rb"\b[0-7][0-9a-hjkmnp-tv-z]{25}-[0-7][0-9a-f]{15}\b")


class Retained(msgspec.Struct, frozen=True, kw_only=True):
    """What retention did, or would do."""

    enabled: bool  # while it is off, nothing goes
    classes: dict[str, int]  # how many events of each class went
    kept: dict[str, int] = {}  # how many are as old and stay, by the pattern that keeps their name
    cited: int = 0  # how many are as old and stay, because they are pinned or something that is kept refers to them
    archive: str | None = None  # the file that they were written to first
    unreached: tuple[str, ...] = ()


def class_of(event: Event, settings: RetentionSettings) -> tuple[Class, timedelta]:
    """The class of an event and how long it is kept; of several that it belongs to, the longest."""
    days: list[tuple[float, Class]] = [(settings.default_days, "default")]
    if event.depth > DEEP:
        days.append((settings.deep_days, "deep"))
    if event.error:
        days.append((settings.error_days, "error"))
    longest, name = max(days)
    return name, timedelta(days=longest)


class Due(msgspec.Struct, frozen=True, kw_only=True):
    """The events whose time is over, by class, and how many of that age stay, as `Retained` counts them."""

    classes: dict[Class, list[EventId]]
    kept: dict[str, int]
    cited: int


async def due(store: Readable, settings: RetentionSettings, *, now: datetime) -> Due:
    """Which events go.

    An event stays as long as one that is kept for good descends from it directly or names its id, or it is pinned.
    """
    kept = dict.fromkeys(settings.keep, 0)
    keeping: dict[str, str | None] = {}  # by name: which pattern keeps it
    old: dict[EventId, Class] = {}
    cited: set[EventId] = set()
    pinned: set[EventId] = set()
    after = 0
    while events := await store.log(after, limit=EVENTS_AT_ONCE):
        for event in events:
            named = {EventId(found.decode()) for found in _ID.findall(event.body)}
            if event.name == PINNED:
                pinned |= named
            if event.name == UNPINNED:
                pinned -= named
            if event.name not in keeping:
                fits = (pattern for pattern in settings.keep if name_pattern(pattern).fullmatch(event.name))
                keeping[event.name] = next(fits, None)
            pattern = keeping[event.name]
            name, period = class_of(event, settings)
            is_old = event.at < now - period and not is_tombstone(event)
            if pattern is not None:
                kept[pattern] += is_old
            if event.name in (PINNED, UNPINNED):
                continue
            if pattern is not None:
                cited |= named if event.parent_id is None else {*named, event.parent_id}
            elif is_old:
                old[event.id] = name
        after = events[-1].position or 0
    found: dict[Class, list[EventId]] = {}
    staying = 0
    for identifier, name in old.items():
        if identifier in cited or identifier in pinned:
            staying += 1
        else:
            found.setdefault(name, []).append(identifier)
    counted = {pattern: number for pattern, number in kept.items() if number}
    return Due(classes=dict(sorted(found.items())), kept=counted, cited=staying)

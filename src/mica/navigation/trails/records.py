"""Read the events in which people and rules named, renamed, suspended and measured trails."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from datetime import datetime

import msgspec

from mica.model.crystal import retraction_target
from mica.model.event import RETRACTED, Event, EventId, EventQuery
from mica.model.trail import (
    CREATED,
    CRYSTALLIZED,
    EVOLVED,
    MEASURED,
    OFFERED,
    PREFIX,
    RENAMED,
    RESUMED,
    SUSPENDED,
    USED,
    By,
    Measurement,
    TrailQuery,
    key_of,
)
from mica.model.walk import Step
from mica.store.protocol import EventLog, TrailTable


class NamedTrail(msgspec.Struct, kw_only=True):
    """A trail that a person or a rule has named, combined from all events about it."""

    key: str
    keys: tuple[str, ...] = ()  # the other keys that the trail had when it was named
    slug: str
    shape: str = ""
    description: str = ""
    steps: tuple[Step, ...]
    by: By
    version: int
    at: datetime  # when the trail was first named
    is_chosen: bool = False  # True if a person chose the slug; False if it was made of words of prompts
    suspended: str | None = None  # the reason if the trail is suspended
    measured: Measurement | None = None

    @property
    def paths(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(step.pattern or step.path for step in self.steps))


class Naming(msgspec.Struct, frozen=True, kw_only=True):
    """The data of `trail.created` and `trail.crystallized` events."""

    slug: str
    steps: tuple[Step, ...]
    key: str = ""
    keys: tuple[str, ...] = ()
    shape: str = ""
    description: str = ""
    by: By = "user"
    version: int = 1
    exact: str = ""
    walks: tuple[EventId, ...] = ()  # the walks whose prompts gave the words of the name and the description
    is_chosen: bool = msgspec.field(default=False, name="given")
    renamed: tuple[tuple[str, str], ...] = ()  # renamed files among its steps: (old path, new path)

    @property
    def cites(self) -> frozenset[EventId]:
        """The ids of all events that this naming refers to: walks and steps."""
        return frozenset([*self.walks, *(step.event for step in self.steps)])


def named_trails(events: Iterable[Event]) -> list[NamedTrail]:
    """Return the current named trails, combined from events about trails. The events must be in order of time.

    Invalid events are ignored. An event that gives a trail a name also lists the prompts from which the words of the
    name were taken; if all of these prompts were retracted, the event is ignored.
    """
    events = list(events)
    retracted = {retraction_target(event) for event in events if event.name == RETRACTED}
    by_key: dict[str, NamedTrail] = {}
    owner: dict[str, str] = {}  # of every key that a named trail has
    for event in events:
        if event.name in (CREATED, CRYSTALLIZED):
            _name(event, by_key, owner, retracted)
            continue
        data = event.data
        key = owner.get(str(data.get("key")))
        named = by_key.get(key) if key is not None else None
        if named is None:
            continue
        if event.name == RENAMED and isinstance(slug := data.get("slug"), str):
            named.slug, named.is_chosen = slug, True
        elif event.name == SUSPENDED:
            named.suspended = str(data.get("reason") or "by hand")
        elif event.name == RESUMED:
            named.suspended = None
        elif event.name == MEASURED:
            named.measured = _measured(event) or named.measured
    return list(by_key.values())


def _name(event: Event, by_key: dict[str, NamedTrail], owner: dict[str, str], retracted: set[EventId]) -> None:
    try:
        naming = msgspec.json.decode(event.body, type=Naming)
    except msgspec.DecodeError:
        return
    if not naming.steps or (naming.walks and retracted.issuperset(naming.walks)):
        return
    key = naming.key or key_of(step.pattern or step.path for step in naming.steps)
    known = by_key.get(owner.get(key, ""))
    named = NamedTrail(
        key=known.key if known is not None else key,
        keys=tuple(dict.fromkeys([*(known.keys if known else ()), *naming.keys])),
        slug=naming.slug,
        shape=naming.shape,
        description=naming.description,
        steps=naming.steps,
        by=naming.by,
        version=naming.version,
        at=known.at if known is not None else event.at,
        is_chosen=naming.is_chosen or event.name == CREATED or (known is not None and known.is_chosen),
        suspended=known.suspended if known is not None else None,
        measured=known.measured if known is not None else None,
    )
    by_key[named.key] = named
    owner |= dict.fromkeys((named.key, key, *named.keys), named.key)


def renamed_files(events: Iterable[Event]) -> dict[str, str]:
    """Return a mapping from the old paths of renamed files to their current paths, as recorded with trails."""
    found: dict[str, str] = {}
    for event in events:
        if event.name == CRYSTALLIZED and event.data.get("renamed"):
            with suppress(msgspec.DecodeError):
                for old, new in msgspec.json.decode(event.body, type=Naming).renamed:
                    found.pop(new, None)  # the name is in use again
                    found = {then: new if now == old else now for then, now in found.items()} | {old: new}
    return found


async def find_naming_events(log: EventLog, trails: TrailTable, identifiers: Iterable[EventId]) -> list[Event]:
    """Return the events with a trail name that was made of words of certain prompts, so that a purge can remove them.

    `identifiers` are the ids of the prompts. Events that have only the key of a trail are not returned, so that the
    uses of the trail still count. An event in which a person renamed a trail is returned only if all prompts of the
    trail are in `identifiers`.
    """
    prompt_ids = frozenset(identifiers)
    keys: set[str] = set()
    lost_keys: set[str] = set()  # of trails that lose all their prompts
    slugs: set[str] = set()
    for trail in await trails.query(TrailQuery(limit=None)):
        if not prompt_ids.isdisjoint([*trail.walks, *(step.event for step in trail.steps)]):
            keys.update((trail.key, *trail.merged))
            lost_keys.update((trail.key, *trail.merged) if prompt_ids.issuperset(trail.walks) else ())
            slugs.add(trail.slug)
    found: list[Event] = []
    for event in await log.query(EventQuery(names=(CREATED, CRYSTALLIZED), limit=None)):
        with suppress(msgspec.DecodeError):
            named = msgspec.json.decode(event.body, type=Naming)
            if event.id in prompt_ids or not prompt_ids.isdisjoint(named.cites):
                found.append(event)
                keys.update((named.key, *named.keys))
                slugs.add(named.slug)
    keys.discard("")
    if not keys:
        return found
    for event in await log.query(EventQuery(names=(OFFERED, USED, RENAMED), limit=None)):
        if "slug" in event.data and event.data.get("key") in (lost_keys if event.name == RENAMED else keys):
            found.append(event)
            slugs.add(str(event.data.get("slug")))
    names = {PREFIX + slug for slug in slugs}
    for event in await log.query(EventQuery(names=(EVOLVED,), limit=None)):
        listed = (names_listed for names_listed in event.data.values() if isinstance(names_listed, list))
        if any(name in names for names_listed in listed for name in names_listed):
            found.append(event)
    return found


def _measured(event: Event) -> Measurement | None:
    try:
        return msgspec.json.decode(event.body, type=Measurement)
    except msgspec.DecodeError:
        return None

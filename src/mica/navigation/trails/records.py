"""What people and rules said of trails, read from the events in which they said it."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from datetime import datetime

import msgspec

from mica.model.crystal import retracted_by
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
    Measured,
    TrailQuery,
    key_of,
)
from mica.model.walk import Step
from mica.store.protocol import Store


class Said(msgspec.Struct, kw_only=True):
    """A trail that was named."""

    key: str
    keys: tuple[str, ...] = ()  # others by which it was known when it was named
    slug: str
    shape: str = ""
    description: str = ""
    steps: tuple[Step, ...]
    by: By
    version: int
    at: datetime
    given: bool = False  # whether a person chose the slug; else it is words of prompts
    suspended: str | None = None
    measured: Measured | None = None

    @property
    def paths(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(step.pattern or step.path for step in self.steps))


class Naming(msgspec.Struct, frozen=True, kw_only=True):
    """What `trail.created` and `trail.crystallized` hold."""

    slug: str
    steps: tuple[Step, ...]
    key: str = ""
    keys: tuple[str, ...] = ()
    shape: str = ""
    description: str = ""
    by: By = "user"
    version: int = 1
    exact: str = ""
    walks: tuple[EventId, ...] = ()  # whose prompts its name and description are made of
    given: bool = False
    renamed: tuple[tuple[str, str], ...] = ()  # files that its steps followed: old name, new name

    @property
    def cites(self) -> frozenset[EventId]:
        """Every event that it names."""
        return frozenset([*self.walks, *(step.event for step in self.steps)])


def said_in(events: Iterable[Event]) -> list[Said]:
    """The trails that these events name, as they were named first; what cannot be read says nothing.

    Neither does a name of which every prompt was retracted that it was made of.
    """
    events = list(events)
    retracted = {retracted_by(event) for event in events if event.name == RETRACTED}
    found: dict[str, Said] = {}
    owner: dict[str, str] = {}  # of every key that a named trail has
    for event in events:
        if event.name in (CREATED, CRYSTALLIZED):
            _name(event, found, owner, retracted)
            continue
        data = event.data
        key = owner.get(str(data.get("key")))
        said = found.get(key) if key is not None else None
        if said is None:
            continue
        if event.name == RENAMED and isinstance(slug := data.get("slug"), str):
            said.slug, said.given = slug, True
        elif event.name == SUSPENDED:
            said.suspended = str(data.get("reason") or "by hand")
        elif event.name == RESUMED:
            said.suspended = None
        elif event.name == MEASURED:
            said.measured = _measured(event) or said.measured
    return list(found.values())


def _name(event: Event, found: dict[str, Said], owner: dict[str, str], retracted: set[EventId]) -> None:
    try:
        naming = msgspec.json.decode(event.body, type=Naming)
    except msgspec.DecodeError:
        return
    if not naming.steps or (naming.walks and retracted.issuperset(naming.walks)):
        return
    key = naming.key or key_of(step.pattern or step.path for step in naming.steps)
    known = found.get(owner.get(key, ""))
    said = Said(
        key=known.key if known is not None else key,
        keys=tuple(dict.fromkeys([*(known.keys if known else ()), *naming.keys])),
        slug=naming.slug,
        shape=naming.shape,
        description=naming.description,
        steps=naming.steps,
        by=naming.by,
        version=naming.version,
        at=known.at if known is not None else event.at,
        given=naming.given or event.name == CREATED or (known is not None and known.given),
        suspended=known.suspended if known is not None else None,
        measured=known.measured if known is not None else None,
    )
    found[said.key] = said
    owner |= dict.fromkeys((said.key, key, *said.keys), said.key)


def renamed_in(events: Iterable[Event]) -> dict[str, str]:
    """Files that trails followed to another name, by the name that they had."""
    found: dict[str, str] = {}
    for event in events:
        if event.name == CRYSTALLIZED and event.data.get("renamed"):
            with suppress(msgspec.DecodeError):
                for old, new in msgspec.json.decode(event.body, type=Naming).renamed:
                    found.pop(new, None)  # the name is in use again
                    found = {then: new if now == old else now for then, now in found.items()} | {old: new}
    return found


async def naming(store: Store, identifiers: Iterable[EventId]) -> list[Event]:
    """Every event that calls a trail by a name which it took from one of these: a slug is words of prompts.

    Uses and measurements that say only the key of a trail, which tells nothing, are not among them: figures stay. A
    name that a person chose goes with the last prompt that led there.
    """
    wanted = frozenset(identifiers)
    keys: set[str] = set()
    gone: set[str] = set()  # of trails that nothing is left of
    slugs: set[str] = set()
    for trail in await store.trails(TrailQuery(limit=None)):
        if not wanted.isdisjoint([*trail.walks, *(step.event for step in trail.steps)]):
            keys.update((trail.key, *trail.merged))
            gone.update((trail.key, *trail.merged) if wanted.issuperset(trail.walks) else ())
            slugs.add(trail.slug)
    found: list[Event] = []
    for event in await store.events(EventQuery(names=(CREATED, CRYSTALLIZED), limit=None)):
        with suppress(msgspec.DecodeError):
            named = msgspec.json.decode(event.body, type=Naming)
            if event.id in wanted or not wanted.isdisjoint(named.cites):
                found.append(event)
                keys.update((named.key, *named.keys))
                slugs.add(named.slug)
    keys.discard("")
    if not keys:
        return found
    for event in await store.events(EventQuery(names=(OFFERED, USED, RENAMED), limit=None)):
        if "slug" in event.data and event.data.get("key") in (gone if event.name == RENAMED else keys):
            found.append(event)
            slugs.add(str(event.data.get("slug")))
    names = {PREFIX + slug for slug in slugs}
    for event in await store.events(EventQuery(names=(EVOLVED,), limit=None)):
        listed = (told for told in event.data.values() if isinstance(told, list))
        if any(name in names for told in listed for name in told):
            found.append(event)
    return found


def _measured(event: Event) -> Measured | None:
    try:
        return msgspec.json.decode(event.body, type=Measured)
    except msgspec.DecodeError:
        return None

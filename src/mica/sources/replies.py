"""What sources replied, kept for the next who asks: in this process, and in the store for others.

A reply is fresh until its age runs out, or until an event says that it is old; the event always wins (K-24). An old
one is kept too: it is better than nothing when its source does not answer, and whoever is shown it is told its age.
What a source of ours stated and somebody took back is not kept: nobody is shown that again, however old it is called.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from datetime import datetime, timedelta
from functools import lru_cache
from hashlib import blake2b
from itertools import takewhile

import msgspec

from mica.errors import InvalidInput, MicaError
from mica.model.event import RETRACTED, Reply, name_pattern, split_id
from mica.model.teaching import WITHDRAWN
from mica.model.trail import SUSPENDED
from mica.sources.changes import Change, Changes
from mica.sources.protocol import DEGRADED, GATHERED, JUDGMENT_RETRACTED, PHI_INV, Concept, Declared, Fragment, covers
from mica.store.protocol import Store
from mica.store.purges import PURGE

REPLIES_MAX = 2_000  # kept in a process
CHARACTERS_MAX = 16_000_000  # of all their texts
NOTES_MAX = 1_000  # changes that are remembered for replies of other processes
SAVE_S = 0.5  # replies gather for so long and are saved in one transaction
ELSEWHERE_MAX = 20_000  # concepts that others asked about; beyond that nobody is waited for
CLOSE_S = 2.0  # closing waits for that at most
UNSAVED_MAX = 1_000  # beyond that the store is stuck, and others ask for themselves

FIBONACCI = (0, 1, 1, 2, 3, 5, 8, 13, 21, 34, 55, 89, 144, 233)
# Minutes for which replies about a kind of thing may be used, by its domain (K-24).
TTL_MINUTES = {
    "judgment": FIBONACCI[8],
    "learning": FIBONACCI[9],
    "pattern": FIBONACCI[10],
    "psychology": FIBONACCI[7],
}
OTHER_TTL_MINUTES = FIBONACCI[6]

# What makes replies old without a source naming it: the events, and what they are about when they do not say so.
TRIGGERS = {
    "judgment.*": "judgment:*",
    "learning.*": "learning:*",
    "session.ended": "judgment:*",
    DEGRADED: "*",
}

# After these, what was stated does not hold, and is not only old.
TAKEN_BACK = (RETRACTED, JUDGMENT_RETRACTED, WITHDRAWN, SUSPENDED)


def ttl_s(declared: Declared, concept: Concept) -> float:
    """For how many seconds a reply may be used."""
    if declared.is_live:
        return 0.0
    if declared.ttl_s is not None:
        return declared.ttl_s
    return 60.0 * TTL_MINUTES.get(concept.domain, OTHER_TTL_MINUTES)


Key = tuple[str, Concept]  # a source by its name, and what it was asked about


class Kept(msgspec.Struct, frozen=True, kw_only=True):
    """A reply, and what decides whether it may still be used."""

    fragments: tuple[Fragment, ...]
    missing: str = ""  # what the source said that it lacks
    at: datetime  # when it was asked
    tick: int  # of the changes then
    position: int  # of the log then
    generation: int  # of the store then: a purge has passed since when it differs
    characters: int  # of all that was said
    is_old: bool = False  # something happened since
    version: str = ""  # what the source called what it read, if it can tell that without reading


class _Body(msgspec.Struct):
    fragments: tuple[Fragment, ...]
    missing: str = ""
    version: str = ""


class Replies:
    """The replies that a process keeps. The store keeps them too, for other processes and the next one."""

    def __init__(self, store: Store, *, own: Callable[[], str]) -> None:
        self._store = store
        self._writer = own  # who writes the events of this process
        self._kept: OrderedDict[Key, Kept] = OrderedDict()  # the latest used last
        self._characters = 0
        self._notes: deque[tuple[Change, str]] = deque(maxlen=NOTES_MAX)  # in the order of their ticks
        self._names: dict[str, bool] = {}
        self._declared: dict[str, Declared] = {}
        self._forgotten = 0  # the tick before which nothing is kept
        self._unnoted_tick = self._unnoted_position = 0  # of the latest change that is not among the notes any more
        self._unsaved: dict[Key, tuple[Declared, Kept]] = {}  # each with how its source was declared then
        self._saving: asyncio.Task[None] | None = None
        self._hurry = asyncio.Event()  # save at once
        self._elsewhere: set[str] | None = None  # concepts that others were told about; None: nobody has looked
        self.changes: Changes | None = None

    # -- Which changes matter

    def know(self, declared: Iterable[Declared]) -> None:
        """These are the sources."""
        self._declared = {each.name: each for each in declared}
        self._names.clear()

    def is_wanted(self, name: str) -> bool:
        """Whether events of this name can make a reply old."""
        known = self._names.get(name)
        if known is None:
            named = [each for one in self._declared.values() for each in one.invalidated_by]
            patterns = [PURGE, GATHERED, *TRIGGERS, *named]
            known = any(name_pattern(pattern).fullmatch(name) for pattern in patterns)
            if len(self._names) < NOTES_MAX:
                self._names[name] = known
        return known

    def note(self, change: Change) -> None:
        """Something happened."""
        if change.event.name == PURGE:
            self.forget()
            return
        about = change.event.data.get("concept")
        pattern = about if isinstance(about, str) and about else ""
        if change.event.name == GATHERED:
            self._gathered_by(split_id(change.event.id)[0], pattern)
            return
        if len(self._notes) == NOTES_MAX:
            self._unnote(self._notes[0][0].tick, self._notes[0][0].position)
        self._notes.append((change, pattern))
        for key in self._named(pattern) if pattern else list(self._kept):
            kept, declared = self._kept.get(key), self._declared.get(key[0])
            if kept is None or declared is None or kept.tick >= change.tick:
                continue
            if not _touches(change, pattern, declared, key[1]):
                continue
            if _is_taken_back(change.event.name, declared):
                self._drop(key)
                self._unsaved.pop(key, None)
            elif not kept.is_old:
                self._kept[key] = msgspec.structs.replace(kept, is_old=True)

    def _named(self, pattern: str) -> list[Key]:
        """What a change may touch that names a concept: that one alone, unless it is a pattern."""
        if "*" not in pattern and "?" not in pattern:
            with suppress(InvalidInput):
                concept = Concept.parse(pattern)
                return [(source, concept) for source in self._declared]
        return list(self._kept)

    def _gathered_by(self, writer: str, concept: str) -> None:
        """Somebody gathered something. If that was another process, its replies may be in the store by now."""
        if writer != self._writer() and self._elsewhere is not None and len(self._elsewhere) < ELSEWHERE_MAX:
            self._elsewhere.add(concept)

    def forget(self) -> None:
        """Keep nothing, and nothing of what is being asked for: something was purged, or too much has happened."""
        self._kept.clear()
        self._unsaved.clear()
        self._notes.clear()
        self._characters = 0
        if self.changes is not None:
            self.changes.tick += 1
            self._forgotten = self.changes.tick
            self._unnote(self.changes.tick, self.changes.position)

    def drop(self, source: str) -> None:
        """Keep nothing of a source: another has its name now."""
        for key in [key for key in self._kept if key[0] == source]:
            self._drop(key)
        for key in [key for key in self._unsaved if key[0] == source]:
            del self._unsaved[key]

    def _unnote(self, tick: int, position: int) -> None:
        self._unnoted_tick = max(self._unnoted_tick, tick)
        self._unnoted_position = max(self._unnoted_position, position)

    def is_changed(self, declared: Declared, concept: Concept, *, since: int) -> bool:
        """Whether something happened after a tick that makes what a source says of a concept old, or may have."""
        return since < self._unnoted_tick or any(self._touching(declared, concept, since=since))

    def _touching(self, declared: Declared, concept: Concept, *, since: int) -> Iterator[str]:
        """The names of what happened after a tick and makes what a source says of a concept old, the latest first."""
        for change, pattern in takewhile(lambda note: note[0].tick > since, reversed(self._notes)):
            if _touches(change, pattern, declared, concept):
                yield change.event.name

    # -- Replies

    def kept(self, declared: Declared, concept: Concept) -> Kept | None:
        """What this source replied last, fresh or not."""
        key = declared.name, concept
        kept = self._kept.get(key)
        if kept is None:
            return None
        if kept.generation != self._store.generation:
            self._drop(key)
            return None
        self._kept.move_to_end(key)
        return kept

    def is_fresh(self, kept: Kept, declared: Declared, concept: Concept, *, now: datetime) -> bool:
        """Whether a reply may be used as it is."""
        return not kept.is_old and timedelta(0) <= now - kept.at < timedelta(seconds=ttl_s(declared, concept))

    def is_ageing(self, kept: Kept, declared: Declared, concept: Concept, *, now: datetime) -> bool:
        """Whether a fresh reply should be asked for again, before anybody has to wait for it."""
        return now - kept.at > timedelta(seconds=PHI_INV * ttl_s(declared, concept))

    def keep(self, declared: Declared, concept: Concept, kept: Kept) -> None:
        """Keep a reply, here and soon in the store, unless one is kept that knows of more."""
        key = declared.name, concept
        known = self._kept.get(key)
        if kept.tick < self._forgotten or (known is not None and known.tick > kept.tick):
            return
        if self.is_changed(declared, concept, since=kept.tick):  # it happened while the source was asked
            since = self._touching(declared, concept, since=kept.tick)
            names = TAKEN_BACK if kept.tick < self._unnoted_tick else since
            if any(_is_taken_back(name, declared) for name in names):
                return
            kept = msgspec.structs.replace(kept, is_old=True)
        self._put(key, kept)
        if ttl_s(declared, concept) > 0 and len(self._unsaved) < UNSAVED_MAX:
            self._unsaved[key] = declared, kept
            if self._saving is None or self._saving.done():
                self._saving = asyncio.ensure_future(self._save())

    async def load(self, wanted: Mapping[str, Declared], concept: Concept) -> None:
        """Take over what other processes were told about a concept. Raises StoreError."""
        if self._elsewhere is None:
            self._elsewhere = set(await self._store.replied())
        if str(concept) not in self._elsewhere:
            return
        for reply in await self._store.replies(str(concept)):
            declared = wanted.get(reply.source)
            if declared is None or declared.is_live or reply.declared != fingerprint(declared):
                continue
            known = self._kept.get((reply.source, concept))
            if known is not None and known.at >= reply.at:
                continue
            is_known = self.changes is not None and await self.changes.reach(reply.position)
            is_known = is_known and reply.position >= self._unnoted_position
            since = [
                change.event.name
                for change, pattern in self._notes
                if change.position > reply.position and _touches(change, pattern, declared, concept)
            ]
            if any(_is_taken_back(name, declared) for name in (since if is_known else TAKEN_BACK)):
                continue
            is_old = not is_known or bool(since)
            with suppress(msgspec.DecodeError, MicaError):  # of another version: it is asked for again
                body = msgspec.json.decode(reply.body, type=_Body)
                kept = Kept(
                    fragments=body.fragments,
                    missing=body.missing,
                    at=reply.at,
                    tick=0 if self.changes is None else self.changes.tick,
                    position=reply.position,
                    generation=self._store.generation,
                    characters=sum(each.characters for each in body.fragments),
                    is_old=is_old,
                    version=body.version,
                )
                self._put((reply.source, concept), kept)

    async def close(self) -> None:
        """Save what is not saved yet, unless the store takes too long."""
        if self._saving is not None and not self._saving.done():
            self._hurry.set()
            await asyncio.wait([self._saving], timeout=CLOSE_S)
            self._saving.cancel()
            await asyncio.wait([self._saving])

    def _put(self, key: Key, kept: Kept) -> None:
        self._drop(key)
        self._kept[key] = kept
        self._characters += kept.characters
        while len(self._kept) > REPLIES_MAX or (self._characters > CHARACTERS_MAX and len(self._kept) > 1):
            self._drop(next(iter(self._kept)))

    def _drop(self, key: Key) -> None:
        kept = self._kept.pop(key, None)
        if kept is not None:
            self._characters -= kept.characters

    async def _save(self) -> None:
        while self._unsaved:
            with suppress(TimeoutError):
                async with asyncio.timeout(SAVE_S):
                    await self._hurry.wait()
            try:
                await self._save_now()
            except MicaError:
                self._unsaved.clear()  # others ask for themselves

    async def _save_now(self) -> None:
        unsaved, self._unsaved = self._unsaved, {}
        generation = self._store.generation
        current = [
            Reply(
                concept=str(concept),
                source=source,
                at=kept.at,
                position=kept.position,
                declared=fingerprint(declared),
                body=msgspec.json.encode(_Body(kept.fragments, kept.missing, kept.version)),
            )
            for (source, concept), (declared, kept) in unsaved.items()
            if kept.generation == generation
        ]
        if current:
            await self._store.save_replies(current, generation=generation)


@lru_cache(maxsize=256)
def fingerprint(declared: Declared) -> str:
    """How a source is declared, in short: a reply of one that was declared otherwise is another's."""
    return blake2b(msgspec.json.encode(declared), digest_size=8).hexdigest()


def _is_taken_back(name: str, declared: Declared) -> bool:
    """Whether an event of this name says that something of what this source states does not hold."""
    return name in TAKEN_BACK and any(name_pattern(each).fullmatch(name) for each in declared.invalidated_by)


def _touches(change: Change, pattern: str, declared: Declared, concept: Concept) -> bool:
    """Whether a change makes what a source says of a concept old."""
    name = change.event.name
    if any(name_pattern(each).fullmatch(name) for each in declared.invalidated_by):
        return not pattern or _covers(pattern, concept)
    for trigger, usual in TRIGGERS.items():
        if name_pattern(trigger).fullmatch(name):
            return _covers(pattern or usual, concept)
    return False


def _covers(pattern: str, concept: Concept) -> bool:
    try:
        return covers(pattern, concept)
    except MicaError:
        return True  # whatever it means, it may mean this one

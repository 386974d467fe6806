"""The cache of replies: in this process, and in the store for other processes.

A reply is fresh until it expires or an event makes it old, whichever comes first (K-24). Old replies stay cached: when
a source does not answer, its old reply is shown with its age. A statement of mica's own sources that was withdrawn is
removed from the cache and never shown again.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from datetime import datetime, timedelta
from hashlib import blake2b
from itertools import takewhile

import msgspec

from mica.errors import InvalidInput, MicaError
from mica.model.event import RETRACTED, name_pattern, split_id
from mica.model.mark import Reply
from mica.model.teaching import WITHDRAWN
from mica.model.text_cache import remember_texts
from mica.model.trail import SUSPENDED
from mica.sources.changes import Changes, LogChange
from mica.sources.protocol import (
    DEGRADED,
    GATHERED,
    JUDGMENT_RETRACTED,
    PHI_INV,
    Concept,
    Fragment,
    SourceDeclaration,
    covers,
)
from mica.store.protocol import PurgeLog, ReplyTable
from mica.store.purges import PURGE

REPLIES_MAX = 2_000  # cached in a process
CHARACTERS_MAX = 16_000_000  # of all their texts
NOTES_MAX = 1_000  # changes that are remembered, to judge replies of other processes by
SAVE_S = 0.5  # replies of this span are saved in one transaction
ELSEWHERE_MAX = 20_000  # concepts that other processes cached; further ones are not looked up
CLOSE_S = 2.0  # for saving when the process closes
UNSAVED_MAX = 1_000  # beyond that the store is stuck, and other processes ask for themselves

FIBONACCI = (0, 1, 1, 2, 3, 5, 8, 13, 21, 34, 55, 89, 144, 233)
# Minutes until replies expire, by the domain of their concept (K-24).
TTL_MINUTES = {
    "judgment": FIBONACCI[8],
    "learning": FIBONACCI[9],
    "pattern": FIBONACCI[10],
    "psychology": FIBONACCI[7],
}
OTHER_TTL_MINUTES = FIBONACCI[6]

# Events that make replies old for every source, each with the concepts it means when it names none.
TRIGGERS = {
    "judgment.*": "judgment:*",
    "learning.*": "learning:*",
    "session.ended": "judgment:*",
    DEGRADED: "*",
}

# After these events a statement no longer holds, so an old reply must not be shown either.
WITHDRAWING = (RETRACTED, JUDGMENT_RETRACTED, WITHDRAWN, SUSPENDED)


def ttl_s(declared: SourceDeclaration, concept: Concept) -> float:
    """The seconds after which a reply expires."""
    if declared.is_live:
        return 0.0
    if declared.ttl_s is not None:
        return declared.ttl_s
    return 60.0 * TTL_MINUTES.get(concept.domain, OTHER_TTL_MINUTES)


Key = tuple[str, Concept]  # the name of a source, and the concept


class CachedReply(msgspec.Struct, frozen=True, kw_only=True):
    """A reply with everything that decides whether it may still be used."""

    fragments: tuple[Fragment, ...]
    missing: str = ""  # the part that the source could not give
    at: datetime  # when the source was called
    tick: int  # of the changes then
    position: int  # of the log then
    generation: int  # of the store then: a purge has passed since when it differs
    characters: int  # of all its fragments
    is_old: bool = False  # an event made it old
    version: str = ""  # of the data that the source read, if the source can name one


class _Body(msgspec.Struct):
    fragments: tuple[Fragment, ...]
    missing: str = ""
    version: str = ""


class Replies:
    """The cached replies of a process. They are saved in the store too, for other processes and the next one."""

    def __init__(self, table: ReplyTable, purges: PurgeLog, *, own: Callable[[], str]) -> None:
        self._table = table
        self._purges = purges
        self._writer = own  # the writer of this process's events
        self._cached: OrderedDict[Key, CachedReply] = OrderedDict()  # least recently used first
        self._characters = 0
        self._notes: deque[tuple[LogChange, str]] = deque(maxlen=NOTES_MAX)  # in the order of their ticks
        self._names: dict[str, bool] = {}
        self._declared: dict[str, SourceDeclaration] = {}
        self._forgotten = 0  # replies from before this tick are not cached
        self._unnoted_tick = self._unnoted_position = 0  # of the latest change that has left the notes
        self._unsaved: dict[Key, tuple[SourceDeclaration, CachedReply]] = {}  # each with the declaration of its source
        self._saving: asyncio.Task[None] | None = None
        self._hurry = asyncio.Event()  # set to save at once
        self._saved_elsewhere: set[str] | None = None  # concepts that other processes cached; None: not read yet
        self.changes: Changes | None = None

    # -- Which changes matter

    def know(self, declared: Iterable[SourceDeclaration]) -> None:
        """Set the declarations of the sources in use."""
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

    def note(self, change: LogChange) -> None:
        """Mark the replies that a change makes old."""
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
        for key in self._named(pattern) if pattern else list(self._cached):
            kept, declared = self._cached.get(key), self._declared.get(key[0])
            if kept is None or declared is None or kept.tick >= change.tick:
                continue
            if not _touches(change, pattern, declared, key[1]):
                continue
            if _is_withdrawn(change.event.name, declared):
                self._drop(key)
                self._unsaved.pop(key, None)
            elif not kept.is_old:
                self._cached[key] = msgspec.structs.replace(kept, is_old=True)

    def _named(self, pattern: str) -> list[Key]:
        """The cached replies that a change about a concept may touch; all of them if it names a pattern."""
        if "*" not in pattern and "?" not in pattern:
            with suppress(InvalidInput):
                concept = Concept.parse(pattern)
                return [(source, concept) for source in self._declared]
        return list(self._cached)

    def _gathered_by(self, writer: str, concept: str) -> None:
        """Note a gather of another process: its replies may be in the store by now."""
        if (
            writer != self._writer()
            and self._saved_elsewhere is not None
            and len(self._saved_elsewhere) < ELSEWHERE_MAX
        ):
            self._saved_elsewhere.add(concept)

    def forget(self) -> None:
        """Empty the cache, and cache no call that is under way: something was purged, or changes were missed."""
        self._cached.clear()
        self._unsaved.clear()
        self._notes.clear()
        self._characters = 0
        if self.changes is not None:
            self.changes.tick += 1
            self._forgotten = self.changes.tick
            self._unnote(self.changes.tick, self.changes.position)

    def drop(self, source: str) -> None:
        """Drop the replies of a source, because another source has its name now."""
        for key in [key for key in self._cached if key[0] == source]:
            self._drop(key)
        for key in [key for key in self._unsaved if key[0] == source]:
            del self._unsaved[key]

    def _unnote(self, tick: int, position: int) -> None:
        self._unnoted_tick = max(self._unnoted_tick, tick)
        self._unnoted_position = max(self._unnoted_position, position)

    def is_changed(self, declared: SourceDeclaration, concept: Concept, *, since: int) -> bool:
        """Whether a change after a tick made a reply of this source about a concept old, or may have."""
        return since < self._unnoted_tick or any(self._touching(declared, concept, since=since))

    def _touching(self, declared: SourceDeclaration, concept: Concept, *, since: int) -> Iterator[str]:
        """The names of events after a tick that make a reply about a concept old, the latest first."""
        for change, pattern in takewhile(lambda note: note[0].tick > since, reversed(self._notes)):
            if _touches(change, pattern, declared, concept):
                yield change.event.name

    # -- Replies

    def cached(self, declared: SourceDeclaration, concept: Concept) -> CachedReply | None:
        """The last reply of this source, fresh or not."""
        key = declared.name, concept
        kept = self._cached.get(key)
        if kept is None:
            return None
        if kept.generation != self._purges.generation:
            self._drop(key)
            return None
        self._cached.move_to_end(key)
        return kept

    def is_fresh(self, kept: CachedReply, declared: SourceDeclaration, concept: Concept, *, now: datetime) -> bool:
        """Whether a reply may be used as it is."""
        return not kept.is_old and timedelta(0) <= now - kept.at < timedelta(seconds=ttl_s(declared, concept))

    def is_ageing(self, kept: CachedReply, declared: SourceDeclaration, concept: Concept, *, now: datetime) -> bool:
        """Whether a fresh reply should be refreshed in the background, before it expires."""
        return now - kept.at > timedelta(seconds=PHI_INV * ttl_s(declared, concept))

    def keep(self, declared: SourceDeclaration, concept: Concept, kept: CachedReply) -> None:
        """Cache a reply, here and soon in the store, unless a newer one is cached."""
        key = declared.name, concept
        known = self._cached.get(key)
        if kept.tick < self._forgotten or (known is not None and known.tick > kept.tick):
            return
        if self.is_changed(declared, concept, since=kept.tick):  # during the call
            since = self._touching(declared, concept, since=kept.tick)
            names = WITHDRAWING if kept.tick < self._unnoted_tick else since
            if any(_is_withdrawn(name, declared) for name in names):
                return
            kept = msgspec.structs.replace(kept, is_old=True)
        self._put(key, kept)
        if ttl_s(declared, concept) > 0 and len(self._unsaved) < UNSAVED_MAX:
            self._unsaved[key] = declared, kept
            if self._saving is None or self._saving.done():
                self._saving = asyncio.ensure_future(self._save())

    async def load(self, wanted: Mapping[str, SourceDeclaration], concept: Concept) -> None:
        """Read the replies about a concept that other processes saved. Raises StoreError."""
        if self._saved_elsewhere is None:
            self._saved_elsewhere = set(await self._table.concepts())
        if str(concept) not in self._saved_elsewhere:
            return
        for reply in await self._table.read(str(concept)):
            declared = wanted.get(reply.source)
            if declared is None or declared.is_live or reply.declared != fingerprint(declared):
                continue
            known = self._cached.get((reply.source, concept))
            if known is not None and known.at >= reply.at:
                continue
            is_known = self.changes is not None and await self.changes.reach(reply.position)
            is_known = is_known and reply.position >= self._unnoted_position
            since = [
                change.event.name
                for change, pattern in self._notes
                if change.position > reply.position and _touches(change, pattern, declared, concept)
            ]
            if any(_is_withdrawn(name, declared) for name in (since if is_known else WITHDRAWING)):
                continue
            is_old = not is_known or bool(since)
            with suppress(msgspec.DecodeError, MicaError):  # written by another version: the source is asked again
                body = msgspec.json.decode(reply.body, type=_Body)
                kept = CachedReply(
                    fragments=body.fragments,
                    missing=body.missing,
                    at=reply.at,
                    tick=0 if self.changes is None else self.changes.tick,
                    position=reply.position,
                    generation=self._purges.generation,
                    characters=sum(each.characters for each in body.fragments),
                    is_old=is_old,
                    version=body.version,
                )
                self._put((reply.source, concept), kept)

    async def close(self) -> None:
        """Save the replies that are not saved yet, unless the store takes too long."""
        if self._saving is not None and not self._saving.done():
            self._hurry.set()
            await asyncio.wait([self._saving], timeout=CLOSE_S)
            self._saving.cancel()
            await asyncio.wait([self._saving])

    def _put(self, key: Key, kept: CachedReply) -> None:
        self._drop(key)
        self._cached[key] = kept
        self._characters += kept.characters
        while len(self._cached) > REPLIES_MAX or (self._characters > CHARACTERS_MAX and len(self._cached) > 1):
            self._drop(next(iter(self._cached)))

    def _drop(self, key: Key) -> None:
        kept = self._cached.pop(key, None)
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
                self._unsaved.clear()  # other processes ask for themselves

    async def _save_now(self) -> None:
        unsaved, self._unsaved = self._unsaved, {}
        generation = self._purges.generation
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
            await self._table.save(current, generation=generation)


@remember_texts(256)
def fingerprint(declared: SourceDeclaration) -> str:
    """A hash of the declaration of a source; a reply is only used under the same declaration."""
    return blake2b(msgspec.json.encode(declared), digest_size=8).hexdigest()


def _is_withdrawn(name: str, declared: SourceDeclaration) -> bool:
    """Whether an event of this name withdraws statements of this source."""
    return name in WITHDRAWING and any(name_pattern(each).fullmatch(name) for each in declared.invalidated_by)


def _touches(change: LogChange, pattern: str, declared: SourceDeclaration, concept: Concept) -> bool:
    """Whether a change makes replies of a source about a concept old."""
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
        return True  # an invalid pattern may mean any concept

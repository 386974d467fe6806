"""The cache of replies of sources: in this process, and in the store for other processes.

A reply is fresh until it expires, or until an event makes it old. An old reply stays in the cache: if its source does
not answer, the old reply is used, and its age is shown. Some events withdraw a statement of one of mica's own sources;
replies that may contain the statement are then removed and never used again.
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
from mica.model.event import JUDGMENT_RETRACTED, RETRACTED, name_pattern, split_id
from mica.model.mark import Reply
from mica.model.teaching import WITHDRAWN
from mica.model.text_cache import remember_texts
from mica.model.trail import SUSPENDED
from mica.sources.changes import Changes, LogChange
from mica.sources.protocol import (
    DEGRADED,
    GATHERED_NAMES,
    PHI_INV,
    Concept,
    Fragment,
    SourceDeclaration,
    covers,
)
from mica.store.protocol import PurgeLog, ReplyTable
from mica.store.purges import PURGE

REPLIES_MAX = 2_000  # cached in one process
CHARACTERS_MAX = 16_000_000  # of all replies together that are cached in one process
NOTES_MAX = 1_000  # changes that are remembered, to decide whether replies of other processes are old
SAVE_S = 0.5  # replies that arrive within this time are saved in one transaction
ELSEWHERE_MAX = 20_000  # remembered concepts that other processes cached; later ones are not looked up in the store
CLOSE_S = 2.0  # for saving when the cache is closed
UNSAVED_MAX = 1_000  # if more replies wait, the store is stuck; further replies are not saved for other processes

FIBONACCI = (0, 1, 1, 2, 3, 5, 8, 13, 21, 34, 55, 89, 144, 233)
# Minutes until replies expire, by the domain of their concept.
TTL_MINUTES = {
    "judgment": FIBONACCI[8],
    "learning": FIBONACCI[9],
    "pattern": FIBONACCI[10],
    "psychology": FIBONACCI[7],
}
OTHER_TTL_MINUTES = FIBONACCI[6]

# Events that make replies of every source old, each with the pattern of concepts that applies if the event names none.
TRIGGERS = {
    "judgment.*": "judgment:*",
    "learning.*": "learning:*",
    "session.ended": "judgment:*",
    DEGRADED: "*",
}

# After these events a statement no longer holds, so an old reply must not be shown either.
WITHDRAWING = (RETRACTED, JUDGMENT_RETRACTED, WITHDRAWN, SUSPENDED)


def ttl_s(declared: SourceDeclaration, concept: Concept) -> float:
    """Return the seconds after which a source's reply about a concept expires."""
    if declared.is_live:
        return 0.0
    if declared.ttl_s is not None:
        return declared.ttl_s
    return 60.0 * TTL_MINUTES.get(concept.domain, OTHER_TTL_MINUTES)


Key = tuple[str, Concept]  # the name of a source, and the concept


class CachedReply(msgspec.Struct, frozen=True, kw_only=True):
    """A source's reply, with everything that decides whether it may still be used."""

    fragments: tuple[Fragment, ...]
    missing: str = ""  # why the reply is incomplete
    at: datetime  # when the source was called
    tick: int  # the tick at which the source was called, see `LogChange`
    position: int  # the position up to which this process had read the log when the source was called
    generation: int  # the store's number of purges at that time; if the number differs now, the reply is not used
    characters: int  # of all its fragments
    is_old: bool = False  # whether an event made it old
    version: str = ""  # of the data that the source read, if the source reports one


class _Body(msgspec.Struct):
    fragments: tuple[Fragment, ...]
    missing: str = ""
    version: str = ""


class Replies:
    """The cached replies of this process. They are also saved in the store, for other processes and later ones."""

    def __init__(self, table: ReplyTable, purges: PurgeLog, *, own: Callable[[], str]) -> None:
        self._table = table
        self._purges = purges
        self._writer = own  # the writer of this process's events
        self._cached: OrderedDict[Key, CachedReply] = OrderedDict()  # least recently used first
        self._characters = 0
        self._notes: deque[tuple[LogChange, str]] = deque(maxlen=NOTES_MAX)  # in the order of their ticks
        self._names: dict[str, bool] = {}
        self._declared: dict[str, SourceDeclaration] = {}
        self._forgotten = 0  # replies of calls that began before this tick are not cached
        self._unnoted_tick = self._unnoted_position = 0  # of the latest change that is no longer in `_notes`
        self._unsaved: dict[Key, tuple[SourceDeclaration, CachedReply]] = {}  # each with the declaration of its source
        self._saving: asyncio.Task[None] | None = None
        self._hurry = asyncio.Event()  # set to save at once
        self._saved_elsewhere: set[str] | None = None  # concepts that other processes cached; None: not read yet
        self.changes: Changes | None = None

    # -- Which changes matter

    def know(self, declared: Iterable[SourceDeclaration]) -> None:
        """Set the declarations of the sources in use. They say which events make replies old."""
        self._declared = {each.name: each for each in declared}
        self._names.clear()

    def is_wanted(self, name: str) -> bool:
        """Return True if events of this name must be passed to `note`, because they can make a reply old."""
        known = self._names.get(name)
        if known is None:
            named = [each for one in self._declared.values() for each in one.invalidated_by]
            patterns = [PURGE, *GATHERED_NAMES, *TRIGGERS, *named]
            known = any(name_pattern(pattern).fullmatch(name) for pattern in patterns)
            if len(self._names) < NOTES_MAX:
                self._names[name] = known
        return known

    def note(self, change: LogChange) -> None:
        """Mark the replies that a change makes old. Remove the replies that may contain a withdrawn statement.

        A statement is withdrawn by an event whose name is in WITHDRAWING. After a purge, all replies are removed.
        """
        if change.event.name == PURGE:
            self.forget()
            return
        about = change.event.data.get("concept")
        pattern = about if isinstance(about, str) and about else ""
        if change.event.name in GATHERED_NAMES:
            self._gathered_by(split_id(change.event.id)[0], pattern)
            return
        if len(self._notes) == NOTES_MAX:
            self._unnote(self._notes[0][0].tick, self._notes[0][0].position)
        self._notes.append((change, pattern))
        for key in self._named(pattern) if pattern else list(self._cached):
            reply, declared = self._cached.get(key), self._declared.get(key[0])
            if reply is None or declared is None or reply.tick >= change.tick:
                continue
            if not _touches(change, pattern, declared, key[1]):
                continue
            if _is_withdrawn(change.event.name, declared):
                self._drop(key)
                self._unsaved.pop(key, None)
            elif not reply.is_old:
                self._cached[key] = msgspec.structs.replace(reply, is_old=True)

    def _named(self, pattern: str) -> list[Key]:
        """Return the keys (source, concept) of the replies that a change may affect.

        `pattern` is the name of the concept that the change is about, or a pattern of concepts. For a pattern, the keys
        of all cached replies are returned.
        """
        if "*" not in pattern and "?" not in pattern:
            with suppress(InvalidInput):
                concept = Concept.parse(pattern)
                return [(source, concept) for source in self._declared]
        return list(self._cached)

    def _gathered_by(self, writer: str, concept: str) -> None:
        if (
            writer != self._writer()
            and self._saved_elsewhere is not None
            and len(self._saved_elsewhere) < ELSEWHERE_MAX
        ):
            self._saved_elsewhere.add(concept)

    def forget(self) -> None:
        """Empty the cache, after a purge or after changes of the log were missed.

        The replies to calls that are running now will not be cached.
        """
        self._cached.clear()
        self._unsaved.clear()
        self._notes.clear()
        self._names.clear()
        self._characters = 0
        if self.changes is not None:
            self.changes.tick += 1
            self._forgotten = self.changes.tick
            self._unnote(self.changes.tick, self.changes.position)

    def drop(self, source: str) -> None:
        """Remove the replies of the source named `source`. Call this when another source gets the name."""
        for key in [key for key in self._cached if key[0] == source]:
            self._drop(key)
        for key in [key for key in self._unsaved if key[0] == source]:
            del self._unsaved[key]

    def _unnote(self, tick: int, position: int) -> None:
        self._unnoted_tick = max(self._unnoted_tick, tick)
        self._unnoted_position = max(self._unnoted_position, position)

    def is_changed(self, declared: SourceDeclaration, concept: Concept, *, since: int) -> bool:
        """Return True if a change after tick `since` made this source's replies about this concept old.

        The result is also True if some changes after that tick are no longer remembered.
        """
        return since < self._unnoted_tick or any(self._touching(declared, concept, since=since))

    def _touching(self, declared: SourceDeclaration, concept: Concept, *, since: int) -> Iterator[str]:
        """Yield the name of each event after tick `since` that makes a reply about this concept old, latest first."""
        for change, pattern in takewhile(lambda note: note[0].tick > since, reversed(self._notes)):
            if _touches(change, pattern, declared, concept):
                yield change.event.name

    # -- Replies

    def cached(self, declared: SourceDeclaration, concept: Concept) -> CachedReply | None:
        """Return the cached reply of this source about a concept, fresh or old; None if there is none.

        A reply from before a purge is removed, and the result is None.
        """
        key = declared.name, concept
        reply = self._cached.get(key)
        if reply is None:
            return None
        if reply.generation != self._purges.generation:
            self._drop(key)
            return None
        self._cached.move_to_end(key)
        return reply

    def is_fresh(self, reply: CachedReply, declared: SourceDeclaration, concept: Concept, *, now: datetime) -> bool:
        """Return True if a reply has not expired and no event has made it old."""
        return not reply.is_old and timedelta(0) <= now - reply.at < timedelta(seconds=ttl_s(declared, concept))

    def is_ageing(self, reply: CachedReply, declared: SourceDeclaration, concept: Concept, *, now: datetime) -> bool:
        """Return True if a fresh reply will expire soon, so that it should be refreshed in the background."""
        return now - reply.at > timedelta(seconds=PHI_INV * ttl_s(declared, concept))

    def keep(self, declared: SourceDeclaration, concept: Concept, reply: CachedReply) -> None:
        """Cache a reply, and save it in the store soon. A reply that is older than the cached one is ignored.

        If an event made the reply old while the source was being called, the reply is cached as old. If the event
        withdrew a statement of this source, or if the cache was emptied meanwhile, the reply is not cached.
        """
        key = declared.name, concept
        known = self._cached.get(key)
        if reply.tick < self._forgotten or (known is not None and known.tick > reply.tick):
            return
        if self.is_changed(declared, concept, since=reply.tick):  # during the call
            since = self._touching(declared, concept, since=reply.tick)
            names = WITHDRAWING if reply.tick < self._unnoted_tick else since
            if any(_is_withdrawn(name, declared) for name in names):
                return
            reply = msgspec.structs.replace(reply, is_old=True)
        self._put(key, reply)
        if ttl_s(declared, concept) > 0 and len(self._unsaved) < UNSAVED_MAX:
            self._unsaved[key] = declared, reply
            if self._saving is None or self._saving.done():
                self._saving = asyncio.ensure_future(self._save())

    async def load(self, wanted: Mapping[str, SourceDeclaration], concept: Concept) -> None:
        """Cache the replies about a concept that other processes have saved in the store. Raises StoreError.

        `wanted` has the declarations of the sources whose replies are needed, by name.
        """
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
                cached_reply = CachedReply(
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
                self._put((reply.source, concept), cached_reply)

    async def close(self) -> None:
        """Save the replies that are not saved yet. Waits at most CLOSE_S seconds."""
        if self._saving is not None and not self._saving.done():
            self._hurry.set()
            await asyncio.wait([self._saving], timeout=CLOSE_S)
            self._saving.cancel()
            await asyncio.wait([self._saving])

    def _put(self, key: Key, reply: CachedReply) -> None:
        self._drop(key)
        self._cached[key] = reply
        self._characters += reply.characters
        while len(self._cached) > REPLIES_MAX or (self._characters > CHARACTERS_MAX and len(self._cached) > 1):
            self._drop(next(iter(self._cached)))

    def _drop(self, key: Key) -> None:
        reply = self._cached.pop(key, None)
        if reply is not None:
            self._characters -= reply.characters

    async def _save(self) -> None:
        while self._unsaved:
            with suppress(TimeoutError):
                async with asyncio.timeout(SAVE_S):
                    await self._hurry.wait()
            try:
                await self._save_now()
            except MicaError:
                self._unsaved.clear()  # other processes will call the sources themselves

    async def _save_now(self) -> None:
        unsaved, self._unsaved = self._unsaved, {}
        generation = self._purges.generation
        current = [
            Reply(
                concept=str(concept),
                source=source,
                at=reply.at,
                position=reply.position,
                declared=fingerprint(declared),
                body=msgspec.json.encode(_Body(reply.fragments, reply.missing, reply.version)),
            )
            for (source, concept), (declared, reply) in unsaved.items()
            if reply.generation == generation
        ]
        if current:
            await self._table.save(current, generation=generation)


@remember_texts(256)
def fingerprint(declared: SourceDeclaration) -> str:
    """Return a hash of a source's declaration. A saved reply is used only by a source with the same hash."""
    return blake2b(msgspec.json.encode(declared), digest_size=8).hexdigest()


def _is_withdrawn(name: str, declared: SourceDeclaration) -> bool:
    return name in WITHDRAWING and any(name_pattern(each).fullmatch(name) for each in declared.invalidated_by)


def _touches(change: LogChange, pattern: str, declared: SourceDeclaration, concept: Concept) -> bool:
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

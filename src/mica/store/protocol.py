"""The protocols of a store: one for each role, such as `EventLog` or `WorkQueue`, and `Store` with all roles.

A function takes the role that it needs, for example `EventLog` and not `Store`. A read raises StoreError when the store
cannot answer; an empty result always means that nothing matches. Lists are ordered by time, then by position in the
log, unless a method states another order. The suites in `mica.testing.contract` test all of these promises.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Protocol

import msgspec

from mica.model.belief import Belief, BeliefQuery
from mica.model.crystal import Crystal, CrystalQuery
from mica.model.event import Appended, Event, EventId, EventQuery, Tombstone
from mica.model.mark import Posting, Postings, Reply, Text, Vectors
from mica.model.trail import LearnedUpTo, Trail, TrailQuery
from mica.store.leases import Claim, Work
from mica.store.purges import Purge

REPLIES_MAX = 5_000  # per space, a few megabytes; older replies are dropped, and their sources are asked again
BLOCK_EVENTS = 2_048  # in a full block of compressed events, 44 bytes each; 46 in half the size, 42 in twice the size
RELATED_BELIEFS = 64  # per key by default; older beliefs about a subject that common say little about a new one
LATEST_MARKS = 1_000  # `CrystalIndex.unsealed(latest=True)` considers only this many of the latest marks


class Sizes(msgspec.Struct, frozen=True, kw_only=True):
    """Counts of what a space stores, and its size on disk."""

    events: int
    marks: int  # marks that a search can find, so neither retracted nor recalled ones
    contexts: int  # distinct contexts; events / contexts is how often a context is shared on average
    payloads: int  # distinct large payloads
    size_bytes: int  # of all files of the store; 0 for a store in memory
    aged: int = 0  # events that were compressed
    blocks: int = 0  # blocks of compressed events
    page_checksums: bool | None = None  # of a server: whether it notices damaged pages; None for any other store


def no_progress(count: int) -> None:
    """Ignore a progress report. This is the default progress callback."""


class EventLog(Protocol):
    """The append-only log of a space: every event, in the order in which it was stored. Only `append` stores events."""

    async def append(self, events: Sequence[Event]) -> Appended:
        """Store events in order, all or none; returns how many were new and how many were already stored.

        All projections (the indexes and tables that are derived from the log) are updated in the same transaction.
        When the call returns, the events survive a power loss.

        If an equal event with the same id is already stored, the new event counts as repeated. If the stored event is
        different, DuplicateEvent is raised. If either of the two is a tombstone (the replacement of a purged event),
        the new event counts as repeated, so purged content does not return. A new event that matches a stored purge is
        stored as a tombstone. The parent of an event may be unknown. If it is known and contradicts the event's root or
        depth, InvalidEvent is raised.

        A crystal that breaks a law of crystals raises LawBroken; its sources must be stored before it. A superseded or
        retracted crystal is no longer live. A retracted mark is excluded from search results and from new crystals,
        whether the retraction is stored before or after the mark.
        """

    async def get(self, identifier: EventId) -> Event | None:
        """Return the event with this id, or None. Raises InvalidEvent when the id is malformed."""

    async def get_many(self, identifiers: Sequence[EventId]) -> list[Event]:
        """Return the stored events with these ids, each once, in the order of `identifiers`. Unknown ids are skipped.

        Raises InvalidEvent when an id is malformed.
        """

    async def at(self, position: int) -> Event | None:
        """Return the event at this position of the log, or None."""

    async def query(self, query: EventQuery) -> list[Event]:
        """Return the matching events, oldest first. If they exceed the limit of the query, the oldest are left out.

        Raises InvalidInput when the text of the query contains no word to search for.
        """

    async def read(self, after: int, *, limit: int) -> list[Event]:
        """Return up to `limit` events after this position, in order of position.

        A reader that continues at the last position it got never misses an event.
        """

    async def last_position(self) -> int:
        """Return the highest position ever assigned, or 0 for an empty log. New events get higher positions."""


class ChainIndex(Protocol):
    """Lookup of related events: by parent and child, and by the correlation id in their contexts."""

    async def chain(self, correlation: str) -> list[Event]:
        """Return all events of a chain. `correlation` is a correlation id or the id of a root event.

        A correlation id selects all events that have it in their context. The id of a root event selects the root and
        all its descendants.
        """

    async def ancestors(self, identifier: EventId) -> list[Event]:
        """Return the parent of this event, the parent's parent, and so on up to the root, nearest first."""

    async def descendants(self, identifier: EventId, *, depth: int | None = None) -> list[Event]:
        """Return the direct and indirect children of this event, at most `depth` levels below it."""

    async def agents(self) -> list[str]:
        """Return the names of all agents that occur in contexts, each once, sorted."""


class AppendNotices(Protocol):
    """Notifications of appends. They are only hints: a listener reads the log to get the events."""

    @property
    def is_live(self) -> bool:
        """True while listeners are notified of every append, so no polling is needed."""

    def listen(self, ring: Callable[[], None]) -> Callable[[], None]:
        """Register `ring`, which is called soon after each append; returns a function that unregisters it.

        The returned function may be called from any thread, also more than once. An engine without notifications
        never calls `ring`. A notification may be lost, or be sent without an append.
        """


class TextIndex(Protocol):
    """The full-text index of marks."""

    async def postings(
        self,
        wanted: Sequence[str],
        *,
        weights: Mapping[str, float] | None = None,
        limit: int | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
    ) -> Postings:
        """Return, for each term in `wanted`, the marks that contain it, and statistics of all marks in the space.

        `limit` is the maximum number of marks in the result: those with the highest sum of term weights, and of marks
        with equal sums those stored last. The weight of a term depends on how rare it is and on its factor in `weights`
        (1 if it has none); see `mica.store.query.term_weights`. `since` and `until` (exclusive) restrict the marks by
        time, but never the statistics.
        """

    async def postings_at(self, wanted: Sequence[str], positions: Sequence[int]) -> dict[str, tuple[Posting, ...]]:
        """Return, for each term in `wanted`, the marks at `positions` that contain it."""

    async def read(self, positions: Sequence[int], *, neighbours: int = 2) -> list[Text]:
        """Return the marks at `positions` and their neighbours in the same session.

        For each of the positions, these are up to `neighbours` marks before it and up to `neighbours` marks after it.
        Each mark is returned once, in order of position.
        """


class VectorIndex(Protocol):
    """Embedding vectors of marks, one per mark."""

    async def save(self, model: str, vectors: Mapping[int, bytes]) -> None:
        """Store the vectors that `model` computed, keyed by the position of their mark. They replace older vectors.

        A position without a mark is ignored, for example because the mark was purged in the meantime.
        """

    async def read(self, model: str, *, after: int = 0, limit: int) -> Vectors:
        """Return the vectors of a model after position `after`, and the number of all its vectors.

        If there are more than `limit`, those with the highest positions are returned. They are in order of position.
        """

    async def missing(self, model: str, *, limit: int) -> list[tuple[int, str]]:
        """Return position and text of up to `limit` marks that have no vector of this model, highest position first."""


class CrystalIndex(Protocol):
    """Crystals (summaries of marks or of other crystals), and the sources that each of them covers."""

    async def query(self, query: CrystalQuery) -> list[Crystal]:
        """Return the matching crystals, ordered by the end of their time range.

        If the query has a limit, only the crystals that end last are returned.
        """

    async def postings(self, wanted: Sequence[str], query: CrystalQuery) -> dict[str, tuple[Posting, ...]]:
        """Return, for each term in `wanted`, the crystals that contain it and match `query`, in order of position.

        Every term has an entry, which may be empty.
        """

    async def unsealed(
        self,
        *,
        limit: int,
        session: str | None = None,
        latest: bool = False,
        after: int | None = None,
    ) -> list[Event]:
        """Return the oldest `limit` marks that still have to be summarized, in order of time.

        These are marks that are not retracted and are not a source of a live session, day, week or epoch crystal.
        `session` restricts them to one session. With `latest`, only the newest LATEST_MARKS marks are searched, and the
        newest `limit` results are returned. With `after`, which is for reading in batches, the result has the `limit`
        marks with the lowest positions above `after`.
        """

    async def citing(self, identifiers: Sequence[EventId]) -> list[EventId]:
        """Return the ids of all crystals, live or superseded, that have one of these events as a source.

        Sources of sources count too. The ids are in order of the positions of the crystals.
        """

    async def above(self, positions: Sequence[int]) -> dict[int, frozenset[int]]:
        """Return, for each position, the positions of all crystals that cite the event there (see `citing`)."""


class TrailTable(Protocol):
    """Trails (files that proved useful together) that were learned from the log.

    `PurgeLog.bury` and `StoreFiles.rebuild` delete all of them.
    """

    async def save(self, trails: Sequence[Trail], lesson: LearnedUpTo) -> bool:
        """Replace all stored trails by `trails`; returns True if they were stored.

        `lesson` is the state of the log from which `trails` were learned. Nothing is stored, and False is returned, if
        the stored trails were learned up to a later position. The same applies if something was purged after that
        state, because `trails` may quote it.
        """

    async def learned_up_to(self) -> LearnedUpTo:
        """Return the log position up to which trails were learned (or 0), and the current `PurgeLog.generation`."""

    async def query(self, query: TrailQuery) -> list[Trail]:
        """Return the matching trails in the order that the query requests, then by key."""


class BeliefTable(Protocol):
    """Beliefs (statements that mica holds to be true, see `mica.model.belief`) that were learned from the log.

    `PurgeLog.bury` and `StoreFiles.rebuild` delete all of them, so that they are learned again from the first event.
    """

    async def learned_up_to(self) -> LearnedUpTo:
        """Return the log position up to which beliefs were learned (or 0), and the current `PurgeLog.generation`."""

    async def save(self, beliefs: Sequence[Belief], lesson: LearnedUpTo, *, after: int) -> bool:
        """Store new and changed beliefs together with the new position; returns True if they were stored.

        `after` is the position after which they were learned, and `lesson` the state of the log up to which they were
        learned. Nothing is stored, and False is returned, if the stored position is not `after`, because another
        process has learned in the meantime. The same applies if something was purged since `lesson.generation`, because
        a belief may quote it. After False, read the position and the beliefs again before you learn; False is also
        possible if the connection was lost after the beliefs were stored.

        A belief replaces the stored one with the same id; if an id is repeated, its last belief counts. A belief that
        contains a purged value is left out, and a stored one with its id is deleted.
        """

    async def query(self, query: BeliefQuery) -> list[Belief]:
        """Return the matching beliefs, those with the latest evidence first, then by id."""

    async def related(self, keys: Sequence[str], *, per_key: int = RELATED_BELIEFS) -> dict[str, list[Belief]]:
        """Return, for each key, the newest `per_key` beliefs that have this key and are not ended, in that order.

        Every key has an entry, which may be empty. The cost does not depend on the number of stored beliefs.
        """


class ReplyTable(Protocol):
    """A cache of the replies of sources, which are asked about concepts. A purge or a rebuild empties it."""

    async def save(self, replies: Sequence[Reply], *, generation: int) -> bool:
        """Cache replies; returns True if they were stored.

        `generation` is the value of `PurgeLog.generation` when the sources were asked. If it has changed, nothing is
        stored and False is returned, because the replies may quote text that was purged since then. A newer reply
        replaces an older one of the same source about the same concept. A reply that contains a purged value is
        skipped. Only the newest REPLIES_MAX replies stay cached.
        """

    async def read(self, concept: str) -> list[Reply]:
        """Return the cached replies of all sources about a concept, ordered by source."""

    async def concepts(self) -> list[str]:
        """Return the concepts that have cached replies, sorted."""


class WorkQueue(Protocol):
    """A queue of background work that several processes share. A claim is a lease, so it expires by itself."""

    async def plan(self, kind: str, *, about: str = "", due_at: datetime, only_new: bool = False) -> None:
        """Plan work for `due_at`. If the same work is already planned, the earlier of the two times counts.

        `kind` and `about` identify the work. If a process is doing it now, it will be done again after that. With
        `only_new`, nothing changes when the work is already planned or being done.
        """

    async def claim(self, kinds: Collection[str], *, owner: str, due_by: datetime, lease: timedelta) -> Claim | None:
        """Claim the unclaimed work of these kinds with the earliest due time.

        Return None if none is due by `due_by`. No other process can claim this work until the lease ends. The end of a
        lease is measured by the store's clock, because the clocks of two machines may differ.
        """

    async def renew(self, claim: Claim, *, lease: timedelta) -> Claim:
        """Start the lease of a claim again now; returns the renewed claim.

        Raises ClaimLost when another process has claimed the work, or when it is finished.
        """

    async def finish(self, claim: Claim, *, again_at: datetime | None = None) -> None:
        """Remove finished work from the queue, or plan it again for `again_at`.

        Raises ClaimLost when another process has claimed the work, or when it is finished already. A claim whose lease
        has ended stays valid until another process claims the work.
        """

    async def all(self) -> list[Work]:
        """Return all work that is planned or held, ordered by due time."""


class PurgeLog(Protocol):
    """Removes the content of events, and stores purges that also apply to events that arrive later.

    `mica.store.purges` finds the events that a purge selects.
    """

    @property
    def generation(self) -> int:
        """A counter that every purge by any process increases. It is as of the last write through this object."""

    async def bury(self, identifiers: Sequence[EventId], cause: Tombstone) -> int:
        """Replace these events by tombstones, and delete data that only they refer to; returns how many were replaced.

        Runs in one or several transactions; call it for each batch of `purges.steps`, so that these are short. No event
        changes its position. Compressed events are replaced, too. `cause` has the id and the reason of the purge, which
        each tombstone repeats. A crystal that has one of these events as a source is removed from the index. Events
        that a replaced event superseded or retracted stay superseded or retracted. Unknown ids and tombstones are
        ignored.
        """

    async def add(self, purge: Purge) -> None:
        """Store a purge, which is applied to all events appended from now on. Adding it twice changes nothing."""

    async def all(self) -> list[Purge]:
        """Return every stored purge, oldest first."""

    async def scrub(self) -> list[str]:
        """Remove copies of purged content from the store's own files.

        Returns one sentence for each place where copies may remain.
        """


class StoreFiles(Protocol):
    """Maintenance of the stored data: sizes, verification, rebuilding and compression."""

    async def sizes(self) -> Sizes:
        """Return counts of what the space stores, and its size on disk."""

    async def verify(self, *, on_progress: Callable[[int], None] = no_progress) -> list[str]:
        """Check the stored data; returns one sentence for each fault, so an empty list means that the data is intact.

        `on_progress` is called with the number of events checked so far, on any thread; a remote store never calls it.
        """

    async def rebuild(self, *, on_progress: Callable[[int], None] = no_progress) -> int:
        """Recreate all indexes from the log in one transaction; returns the number of events read.

        Vectors, trails, beliefs and cached replies are deleted, because they can be computed or fetched again.
        `on_progress` is called with the number of events read so far, on any thread; a remote store never calls it.
        """

    async def age(self, before: datetime, *, limit: int = 8_192, at_least: int = 1) -> int:
        """Compress up to `limit` events older than `before` in one bounded transaction; returns the number compressed.

        Call it again until it returns 0. Reads return the same events as before. If fewer than `at_least` events are
        due, nothing is compressed, unless their size alone fills one transaction.
        """


class Store(Protocol):
    """One space: its log and everything that is derived from the log, with one object per role."""

    log: EventLog
    chains: ChainIndex
    notices: AppendNotices
    texts: TextIndex
    vectors: VectorIndex
    crystals: CrystalIndex
    trails: TrailTable
    beliefs: BeliefTable
    replies: ReplyTable
    work: WorkQueue
    purges: PurgeLog
    files: StoreFiles

    @property
    def space(self) -> str:
        """The id of the space, assigned when the space is created and never changed."""

    @property
    def location(self) -> str:
        """The file or address of the store, without passwords."""

    @property
    def segments(self) -> Path | None:
        """The folder of segments (files with events that are not stored yet); None if the store has no such folder."""

    async def close(self) -> None:
        """Release files, connections and threads. May be called twice.

        Every other call on a closed store raises StoreUnavailable.
        """

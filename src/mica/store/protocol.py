"""The roles of a store and what each promises. The contract suites in `mica.testing` check every sentence.

A function asks for the role it needs: `EventLog`, not `Store`. Every read raises StoreError when the store cannot
answer; an empty result always means that nothing is there. Lists are ordered by time, then by position, unless a method
says otherwise.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Protocol

import msgspec

from mica.model.crystal import Crystal, CrystalQuery
from mica.model.event import Appended, Event, EventId, EventQuery, Tombstone
from mica.model.mark import Posting, Postings, Reply, Text, Vectors
from mica.model.trail import LearnedUpTo, Trail, TrailQuery
from mica.store.leases import Claim, Work
from mica.store.purges import Purge

REPLIES_MAX = 5_000  # of a space: some megabytes; older replies are dropped and asked for again when needed
BLOCK_EVENTS = 2_048  # of a full block of aged events: 44 bytes each; half as many take 2 more, twice as many 2 less
LATEST_MARKS = 1_000  # `CrystalIndex.unsealed(latest=True)` looks at so many of the latest marks


class Sizes(msgspec.Struct, frozen=True, kw_only=True):
    """How much a space holds."""

    events: int
    marks: int  # that a search can find: neither retracted nor recalled
    contexts: int  # distinct ones; events / contexts is how often one is shared
    payloads: int  # distinct large payloads
    size_bytes: int  # of every file of the store; 0 when it has none
    aged: int = 0  # events that were compressed
    blocks: int = 0  # that hold the compressed events


def no_progress(count: int) -> None:
    """A progress callback that does nothing."""


class EventLog(Protocol):
    """The log: every event of a space, in order. `append` is the only write of events."""

    async def append(self, events: Sequence[Event]) -> Appended:
        """Store events in order, all or none, and update every projection in the same transaction.

        When it returns, the events survive power loss. The id is the key: an event that is already stored counts as
        repeated when it is equal, and raises DuplicateEvent when it differs. A parent may be unknown; a known parent
        must fit in root and depth, else InvalidEvent is raised. Where either event is a tombstone, the other counts as
        repeated, so purged content does not return. A new event that a purge selects is stored as its tombstone.

        A crystal that breaks a law raises LawBroken; its sources must be stored before it. A superseded or retracted
        crystal is no longer live. A retracted mark is in no search result and becomes part of no crystal, whether the
        retraction is stored before or after the mark.
        """

    async def get(self, identifier: EventId) -> Event | None:
        """The event with this id. Raises InvalidEvent when the id is malformed."""

    async def get_many(self, identifiers: Sequence[EventId]) -> list[Event]:
        """The stored events with these ids, in the order of the ids, each once. Raises as `get` does."""

    async def at(self, position: int) -> Event | None:
        """The event at this position of the log."""

    async def query(self, query: EventQuery) -> list[Event]:
        """The latest events that match the query. Raises InvalidInput when its text has no word to search for."""

    async def read(self, after: int, *, limit: int) -> list[Event]:
        """The events after this position, in order of position. A reader that remembers the last one misses none."""

    async def last_position(self) -> int:
        """The highest position that was ever assigned, 0 for an empty log. Later events get higher ones."""


class ChainIndex(Protocol):
    """How events are connected: by parents, and by the correlation of their contexts."""

    async def chain(self, correlation: str) -> list[Event]:
        """All events of one chain: those that share the correlation, or descend from the root with this id."""

    async def ancestors(self, identifier: EventId) -> list[Event]:
        """The parent of this event, its parent, and so on, nearest first; without the event itself."""

    async def descendants(self, identifier: EventId, *, depth: int | None = None) -> list[Event]:
        """The events caused by this event, at most `depth` steps away; without the event itself."""

    async def agents(self) -> list[str]:
        """The agents named in contexts, each once, in order of name."""


class AppendNotices(Protocol):
    """Notifications of appends. They are hints: a listener still has to read the log."""

    @property
    def is_live(self) -> bool:
        """True while listeners are notified of every append, so no polling is needed."""

    def listen(self, ring: Callable[[], None]) -> Callable[[], None]:
        """Call `ring` soon after each append; the returned function ends that, from any thread.

        An engine without notifications never calls it. A notification may be lost, or come without an append.
        """


class TextIndex(Protocol):
    """Full text of marks."""

    async def postings(
        self,
        wanted: Sequence[str],
        *,
        weights: Mapping[str, float] | None = None,
        limit: int | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
    ) -> Postings:
        """The marks that contain these terms, and statistics of all marks.

        With a limit, the marks with the highest sum of term weights are listed (see `candidates.term_weights`; the
        default weight is 1), of equal ones the latest. With a time range, only marks within it are listed. The
        statistics always cover all marks.
        """

    async def postings_at(self, wanted: Sequence[str], positions: Sequence[int]) -> dict[str, tuple[Posting, ...]]:
        """The marks at these positions that contain these terms, by term."""

    async def read(self, positions: Sequence[int], *, neighbours: int = 2) -> list[Text]:
        """The marks at these positions and the nearest marks of their sessions, each once, in order of position."""


class VectorIndex(Protocol):
    """Embeddings of marks, one per mark."""

    async def save(self, model: str, vectors: Mapping[int, bytes]) -> None:
        """Store the vectors that a model computed for the marks at these positions, replacing older ones.

        Positions without a mark, or whose mark was purged in the meantime, are ignored.
        """

    async def read(self, model: str, *, after: int = 0, limit: int) -> Vectors:
        """The latest vectors of a model after a position, and the number of all its vectors."""

    async def missing(self, model: str, *, limit: int) -> list[tuple[int, str]]:
        """Position and text of the marks that have no vector of this model, the latest first."""


class CrystalIndex(Protocol):
    """Crystals and the marks that they cover."""

    async def query(self, query: CrystalQuery) -> list[Crystal]:
        """The crystals that match, ordered by their end."""

    async def postings(self, wanted: Sequence[str], query: CrystalQuery) -> dict[str, tuple[Posting, ...]]:
        """The matching crystals that contain each of these terms, in order of position. Every term has an entry."""

    async def unsealed(
        self,
        *,
        limit: int,
        session: str | None = None,
        latest: bool = False,
        after: int | None = None,
    ) -> list[Event]:
        """The oldest marks that are the source of no live session, day, week or epoch crystal, without retracted ones.

        Restricted to a session, if one is given. With `latest`, the newest of the last LATEST_MARKS marks; with
        `after`, the first that were stored after this position, for reading in batches. In order of time.
        """

    async def citing(self, identifiers: Sequence[EventId]) -> list[EventId]:
        """The crystals whose sources include these events, directly or through other crystals, superseded ones too.

        In order of position.
        """

    async def above(self, positions: Sequence[int]) -> dict[int, frozenset[int]]:
        """For each position, the positions of the crystals that `citing` finds for its event."""


class TrailTable(Protocol):
    """Trails that were learned from the log. A purge or a rebuild deletes them all."""

    async def save(self, trails: Sequence[Trail], lesson: LearnedUpTo) -> bool:
        """Replace all trails by those learned up to a position; True when they were stored.

        False when other trails were learned from more of the log, or when something was purged since the learning
        began and the trails may quote it.
        """

    async def learned_up_to(self) -> LearnedUpTo:
        """The position up to which trails were learned, 0 for none, and the current generation."""

    async def query(self, query: TrailQuery) -> list[Trail]:
        """The trails that match, in the order that the query names, then by key."""


class ReplyTable(Protocol):
    """Cached replies of sources. A purge or a rebuild deletes them all."""

    async def save(self, replies: Sequence[Reply], *, generation: int) -> bool:
        """Store replies, each replacing an earlier one of its source; True when they were stored.

        False when something was purged since the store had this generation: the replies may quote it. Replies that
        contain a purged value are left out. Only the latest REPLIES_MAX are kept.
        """

    async def read(self, concept: str) -> list[Reply]:
        """The replies of all sources about a concept, ordered by source."""

    async def concepts(self) -> list[str]:
        """The concepts that have replies, in order."""


class WorkQueue(Protocol):
    """Background work that several processes share. A claim is a lease: it ends by itself."""

    async def plan(self, kind: str, *, about: str = "", due_at: datetime, only_new: bool = False) -> None:
        """Plan work for a time. Of two plans for the same work the earlier counts.

        Work that is planned while a process holds it is done once more afterwards. With `only_new`, nothing changes
        when the work is already planned or held.
        """

    async def claim(self, kinds: Collection[str], *, owner: str, due_by: datetime, lease: timedelta) -> Claim | None:
        """Take the work of these kinds that is free and has been due longest; None when there is none.

        No other process gets it until the lease ends. Leases are measured by the store's clock, so the clocks of two
        machines may differ; the caller decides what is due.
        """

    async def renew(self, claim: Claim, *, lease: timedelta) -> Claim:
        """Extend a claim from now on. Raises ClaimLost when another process has the work, or it is finished."""

    async def finish(self, claim: Claim, *, again_at: datetime | None = None) -> None:
        """Remove the work, or plan it again. Raises ClaimLost when another process has it, or it is finished.

        A claim whose lease has ended is still valid while no other process has taken the work.
        """

    async def all(self) -> list[Work]:
        """All work that is planned or held, ordered by due time."""


class PurgeLog(Protocol):
    """Purged content and the rules that keep it away. `mica.store.purges` decides what goes."""

    @property
    def generation(self) -> int:
        """A number that grows with every purge of any process; as of this store's last write."""

    async def bury(self, identifiers: Sequence[EventId], cause: Tombstone) -> int:
        """Replace these events by tombstones and delete everything that only they referred to; returns how many.

        Done in one or several bounded transactions. Other events keep their positions, compressed or not. A crystal
        that has one of them as a source is removed from the index; what they superseded or retracted stays so. Unknown
        ids and tombstones are ignored.
        """

    async def add(self, purge: Purge) -> None:
        """Apply this purge to everything appended from now on. Adding it twice changes nothing."""

    async def all(self) -> list[Purge]:
        """Every purge that was added, oldest first."""

    async def scrub(self) -> list[str]:
        """Remove copies of purged content from the store's own files; returns what could not be done, as sentences."""


class StoreFiles(Protocol):
    """Upkeep of what is on disk."""

    async def sizes(self) -> Sizes:
        """How much the space holds."""

    async def verify(self, *, on_progress: Callable[[int], None] = no_progress) -> list[str]:
        """Every broken promise in the stored data, one sentence each; empty when all hold.

        `on_progress` gets the number of events checked so far, on any thread; a remote store never calls it.
        """

    async def rebuild(self, *, on_progress: Callable[[int], None] = no_progress) -> int:
        """Recreate all projections of the log in one transaction; returns the number of events read.

        `on_progress` as for `verify`.
        """

    async def age(self, before: datetime, *, limit: int = 8_192, at_least: int = 1) -> int:
        """Compress events older than this; returns how many, 0 when nothing is left to do.

        One bounded transaction. Readers see no difference. Nothing is done when fewer than `at_least` events are due,
        unless they are large enough to fill a step.
        """


class Store(Protocol):
    """One space: its log and the projections of the log, as one object per role."""

    log: EventLog
    chains: ChainIndex
    notices: AppendNotices
    texts: TextIndex
    vectors: VectorIndex
    crystals: CrystalIndex
    trails: TrailTable
    replies: ReplyTable
    work: WorkQueue
    purges: PurgeLog
    files: StoreFiles

    @property
    def space(self) -> str:
        """The id of the space, made with it and never changed."""

    @property
    def location(self) -> str:
        """The file or address, without passwords."""

    @property
    def segments(self) -> Path | None:
        """The folder of waiting segments; None when the store ends with the process."""

    async def close(self) -> None:
        """Release files and threads. Closing twice is fine; using a closed store raises StoreUnavailable."""

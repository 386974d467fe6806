"""What every store promises. The contract suite in `mica.testing` checks each sentence on each engine."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from operator import itemgetter
from pathlib import Path
from typing import Protocol

import msgspec

from mica.errors import InvalidEvent, InvalidInput
from mica.model.crystal import Crystal, CrystalQuery, crystal_of, retracted_by
from mica.model.event import (
    CRYSTAL,
    DEPTH_MAX,
    MARK,
    PURGED,
    RETRACTED,
    Appended,
    Claim,
    Event,
    EventId,
    EventQuery,
    Posting,
    Postings,
    Ref,
    Reply,
    Text,
    Tombstone,
    Vectors,
    Work,
    decode_mark,
    searchable_text,
    split_id,
    tombstone_of,
)
from mica.model.teaching import PROMOTED, WITHDRAWN, teaching_of, withdrawal_of
from mica.model.trail import Lesson, Trail, TrailQuery
from mica.store.purges import Purge
from mica.words import terms, terms_of, words

REPLIES_MAX = 5_000  # of a space: some megabytes; those that nobody asked for lately are asked for again
LATEST_MARKS = 1_000  # among which the latest are looked for that no crystal covers


class Sizes(msgspec.Struct, frozen=True, kw_only=True):
    """How much a space holds."""

    events: int
    marks: int  # that can be found: neither retracted nor recalled
    contexts: int  # distinct ones; events / contexts is how often one is shared
    payloads: int  # distinct large payloads
    size_bytes: int  # of every file of the store; 0 when it has none
    aged: int = 0  # of the events: those that were turned into what takes less room
    blocks: int = 0  # in which they are


def unheard(count: int) -> None:
    """For work whose progress nobody follows."""


class Store(Protocol):
    """One space's log and what is derived from it.

    Every read raises StoreError when the store cannot answer; an empty result always means that nothing is there.
    Lists are ordered by time, then by position, unless a method says otherwise.
    """

    @property
    def space(self) -> str:
        """The id of the space, made with it and never changed."""

    @property
    def location(self) -> str:
        """Where it is kept, for people."""

    @property
    def segments(self) -> Path | None:
        """The folder in which writers keep what is on its way into this store; None when it ends with the process."""

    async def append(self, events: Sequence[Event]) -> Appended:
        """Store events in order, all or none, and index their text. Returned means on disk, power loss or not.

        The id is the key: an event that is there already counts as repeated when it is the same to the letter, and
        raises DuplicateEvent when it differs. A parent may be unknown; a known one must fit in root and depth, else
        InvalidEvent. Where either is a tombstone, the other counts as repeated, so nothing purged comes back. A new
        event that a kept purge takes is stored as its tombstone.

        A crystal that breaks a law raises LawBroken; what it rests on must come before it. What it supersedes is live
        no more. A retracted mark is found by no search and becomes part of no crystal, a retracted crystal is live no
        more, whether the retraction comes before or after it.
        """

    async def event(self, identifier: EventId) -> Event | None:
        """The event with this id. Raises InvalidEvent when it is no id."""

    async def events_of(self, identifiers: Sequence[EventId]) -> list[Event]:
        """Those of the events with these ids that are there, in this order, each once. Raises as `event` does."""

    async def event_at(self, position: int) -> Event | None:
        """The event at this position of the log."""

    async def events(self, query: EventQuery) -> list[Event]:
        """The latest events that fit the query. Raises InvalidInput when its text has no word to look for."""

    async def log(self, after: int, *, limit: int) -> list[Event]:
        """The events after this position, in order of position. A reader that remembers the last misses none."""

    async def last_position(self) -> int:
        """The position that was given last, 0 when none was. Its event may be gone since; later ones come after it."""

    @property
    def hears(self) -> bool:
        """Whether whoever listens is rung for every append just now, so that nobody needs to look by himself."""

    def listen(self, ring: Callable[[], None]) -> Callable[[], None]:
        """Call `ring` soon after somebody has appended, until what is returned is called, from any thread.

        A hint: an engine that hears of nothing never rings, and a ring may be lost or come for nothing.
        """

    async def chain(self, correlation: str) -> list[Event]:
        """All events of one chain: those that share the correlation, or descend from the root of this id."""

    async def ancestors(self, identifier: EventId) -> list[Event]:
        """What led to this event, nearest first; without the event itself."""

    async def descendants(self, identifier: EventId, *, depth: int | None = None) -> list[Event]:
        """What this event led to, at most `depth` steps away; without the event itself."""

    async def postings(
        self,
        wanted: Sequence[str],
        *,
        weights: Mapping[str, float] | None = None,
        limit: int | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
    ) -> Postings:
        """Which marks contain these terms, and the statistics of all marks.

        With a limit so many marks are listed: those whose terms are worth most together, by what `worths` makes of
        the weights, 1 where none is given; of equal ones the latest. Within a time only its marks are listed.
        Statistics are of all marks, whatever is listed.
        """

    async def postings_at(self, wanted: Sequence[str], positions: Sequence[int]) -> dict[str, tuple[Posting, ...]]:
        """Which of the marks at these positions contain these terms."""

    async def texts(self, positions: Sequence[int], *, neighbours: int = 2) -> list[Text]:
        """The marks at these positions and the nearest marks of their sessions, each once, in order of position."""

    async def crystals(self, query: CrystalQuery) -> list[Crystal]:
        """The crystals that fit, by their end."""

    async def crystal_postings(self, wanted: Sequence[str], query: CrystalQuery) -> dict[str, tuple[Posting, ...]]:
        """Which of the crystals that fit contain these terms: every term asked for, in order of position."""

    async def unsealed(
        self,
        *,
        limit: int,
        session: str | None = None,
        latest: bool = False,
        after: int | None = None,
    ) -> list[Event]:
        """The oldest marks that no live crystal of the hierarchy of time has as a source, without retracted ones.

        Of a session, if one is given. With `latest`, the newest of the last LATEST_MARKS; with `after`, the first that
        were stored after this position, to read many of them by and by. In order of time.
        """

    async def citing(self, identifiers: Sequence[EventId]) -> list[EventId]:
        """Every crystal that rests on one of these events, directly or by others, superseded ones too; by position."""

    async def above(self, positions: Sequence[int]) -> dict[int, frozenset[int]]:
        """Where the crystals are that rest on what is at each of these, directly or by others, superseded ones too."""

    async def agents(self) -> list[str]:
        """Everyone who is named as agent in a context, in order of name."""

    async def save_vectors(self, model: str, vectors: Mapping[int, bytes]) -> None:
        """Keep what a model made of the marks at these positions, in place of what another made of them.

        What is no mark, or was purged since its text was read, is left out.
        """

    async def vectors(self, model: str, *, after: int = 0, limit: int) -> Vectors:
        """What this model made of the latest marks after a position, and of how many marks in all."""

    async def without_vector(self, model: str, *, limit: int) -> list[tuple[int, str]]:
        """Position and text of marks that this model was not asked about, the latest first."""

    async def save_trails(self, trails: Sequence[Trail], lesson: Lesson) -> bool:
        """Keep trails that were learned up to a position, in place of all others, and say whether they are kept.

        They are not when others were learned from more of the log, or when something was purged since the lesson
        began: what was read may be gone. Every purge and every rebuild forgets all trails.
        """

    async def lesson(self) -> Lesson:
        """Up to which position trails were learned, 0 when they were not; and the generation, as it is now."""

    async def trails(self, query: TrailQuery) -> list[Trail]:
        """The trails that fit, in the order that the query asks for, then by key."""

    async def save_replies(self, replies: Sequence[Reply], *, generation: int) -> bool:
        """Keep what sources replied, each in place of what it replied earlier, and say whether that was done.

        It is not when something was purged since the store had this generation: the replies may quote it. Every purge
        and every rebuild forgets all of them, and of very many only the latest are kept. One that says a purged value
        is not kept, though its source still states it.
        """

    async def replies(self, concept: str) -> list[Reply]:
        """What sources replied about a concept, in the order of their names."""

    async def replied(self) -> list[str]:
        """The concepts that replies are kept of, in order."""

    async def plan(self, kind: str, *, about: str = "", due_at: datetime, only_new: bool = False) -> None:
        """See to it that this work is done at that time or soon after. Of two plans for the same, the earlier counts.

        Planned while somebody holds it, it is done once more after that. With `only_new` nothing changes where it is
        planned or held already.
        """

    async def claim(self, kinds: Collection[str], *, owner: str, due_by: datetime, lease: timedelta) -> Claim | None:
        """Take the work of these kinds that is due longest and that nobody holds; None when there is none.

        Until the lease has run out nobody else gets it. Leases are measured by the store's own clock, so the clocks of
        two machines may differ; what is due is the caller's to say.
        """

    async def renew(self, claim: Claim, *, lease: timedelta) -> Claim:
        """Hold it for so long from now on. Raises ClaimLost when another has it, or it is finished."""

    async def finish(self, claim: Claim, *, again_at: datetime | None = None) -> None:
        """It is done; with a time, it is planned again. Raises ClaimLost when another has it, or it is finished.

        A lease that has run out is no obstacle as long as nobody else has taken the work.
        """

    async def work(self) -> list[Work]:
        """All work that is planned or held, in the order in which it is due."""

    async def sizes(self) -> Sizes:
        """How much there is."""

    async def verify(self, *, on_progress: Callable[[int], None] = unheard) -> list[str]:
        """Every broken promise found in the stored data, one sentence each; empty when all hold.

        `on_progress` hears, on any thread, how many events are done; behind a server nothing is heard.
        """

    async def rebuild(self, *, on_progress: Callable[[int], None] = unheard) -> int:
        """Derive again what is derived from the log, in one step; returns the number of events read.

        `on_progress` as for `verify`.
        """

    async def age(self, before: datetime, *, limit: int = 8_192, at_least: int = 1) -> int:
        """Turn events older than this into what takes less room; returns how many, 0 when nothing is left to do.

        One bounded step, whole or not at all. No reader sees a difference. Nothing is done when fewer are due than
        `at_least`, unless they are so large that they fill a step.
        """

    # -- Purge: `mica.store.purges` says what goes, a store makes it go

    @property
    def generation(self) -> int:
        """Grows whenever something was purged, by whichever process; as of this store's last write."""

    async def bury(self, identifiers: Sequence[EventId], told: Tombstone) -> int:
        """Replace these events by their tombstones, with all that only they referred to.

        One bounded step or several, each whole or not at all; what others find in the same place stays as it is, aged
        or not. A crystal that rests on one of them is among the crystals no more; what they superseded or retracted
        stays so. Returns how many were replaced; what is unknown or a tombstone already is left alone.
        """

    async def keep_purge(self, purge: Purge) -> None:
        """Apply this purge to whatever is appended from now on. Keeping it twice is fine."""

    async def purges(self) -> list[Purge]:
        """Every purge that is kept, oldest first."""

    async def scrub(self) -> list[str]:
        """Leave no copy of what was purged in the store's own files; returns what could not be done, in sentences."""

    async def close(self) -> None:
        """Release files and threads. Closing twice is fine; using a closed store raises StoreUnavailable."""


# -- What engines share, so that they answer alike ---------------------------------------------------------------


class Placed(Protocol):
    """What is known of a parent when its children are checked."""

    @property
    def id(self) -> EventId: ...
    @property
    def root_id(self) -> EventId: ...
    @property
    def depth(self) -> int: ...


# What must be readable to be stored, by the name of the event.
_READERS: dict[str, Callable[[Event], object]] = {
    MARK: decode_mark,
    PURGED: tombstone_of,
    CRYSTAL: crystal_of,
    RETRACTED: retracted_by,
    PROMOTED: teaching_of,
    WITHDRAWN: withdrawal_of,
}


def check_event(event: Event, parent: Placed | None) -> None:
    """Raise InvalidEvent when the event is not whole or its known parent does not fit."""
    split_id(event.id)
    check_content(event, parent)


def check_content(event: Event, parent: Placed | None) -> None:
    """As `check_event`, for one whose id was read already."""
    if parent is None:  # else its root is the parent's, as is checked below, and its parent has been found by its id
        if event.root_id != event.id:
            split_id(event.root_id)
        if event.parent_id:
            split_id(event.parent_id)
    if (read := _READERS.get(event.name)) is not None:
        read(event)
    if not 0 <= event.depth <= DEPTH_MAX:
        raise InvalidEvent(f"event {event.id!r} has depth {event.depth}; 0 to {DEPTH_MAX:,} are possible")
    check_lineage(event, parent)


def check_lineage(event: Event, parent: Placed | None) -> None:
    """Raise InvalidEvent when a known parent does not fit the event's root and depth."""
    if event.parent_id is None:
        if event.root_id != event.id or event.depth != 0:
            raise InvalidEvent(f"event {event.id!r} has no parent; its root must be itself and its depth 0")
    elif parent is not None and (event.root_id != parent.root_id or event.depth != parent.depth + 1):
        raise InvalidEvent(
            f"event {event.id!r} has root {event.root_id!r} and depth {event.depth}, "
            f"its parent {parent.id!r} has root {parent.root_id!r} and depth {parent.depth}"
        )
    elif event.parent_id == event.id:
        raise InvalidEvent(f"event {event.id!r} cannot be its own parent")


def wanted_terms(text: str) -> list[str]:
    """The distinct terms of a full-text question."""
    found = sorted(set(terms(text)))
    if not found:
        raise InvalidInput(f"nothing to look for in {text!r}; give at least one word that is not a stop word")
    return found


def rarity(containing: int, total: float) -> float:
    """How much a term says that so many of all documents contain: BM25's weight, always above 0."""
    return math.log1p((max(total, containing) - containing + 0.5) / (containing + 0.5))


WORTH_STEPS = 4  # in which worths are counted, of one unit of rarity: sums of whole numbers are alike in every engine


def worths(containing: Mapping[str, int], weights: Mapping[str, float], marks: int) -> dict[str, int]:
    """What each term is worth where few of the marks that answer can be listed: 1 at least, more the rarer it is."""
    return {
        term: max(1, round(WORTH_STEPS * weights.get(term, 1.0) * rarity(count, marks)))
        for term, count in containing.items()
    }


def gathered(
    by_term: dict[str, tuple[Posting, ...]],
    lengths: Iterable[tuple[int, int]],
    containing: dict[str, int] | None = None,
) -> Postings:
    """Postings with the statistics of a histogram of lengths: pairs of length and number of marks, by length."""
    containing = {term: len(found) for term, found in by_term.items()} if containing is None else containing
    histogram = list(lengths)
    marks = sum(count for _, count in histogram)
    if not marks:
        return Postings(by_term=by_term, marks=0, mean_length=0.0, length_spread=0.0, containing=containing)
    logarithms = [(math.log(max(1, length)), count) for length, count in histogram]
    mean = math.fsum(logarithm * count for logarithm, count in logarithms) / marks
    spread = math.fsum((logarithm - mean) ** 2 * count for logarithm, count in logarithms) / marks
    return Postings(
        by_term=by_term,
        marks=marks,
        mean_length=sum(length * count for length, count in histogram) / marks,
        length_spread=spread,
        containing=containing,
    )


def grouped(origins: Iterable[int], pairs: Iterable[tuple[int, int]]) -> dict[int, frozenset[int]]:
    """What belongs to each origin; nothing to those that no pair names."""
    found: dict[int, set[int]] = {origin: set() for origin in origins}
    for origin, position in pairs:
        found[origin].add(position)
    return {origin: frozenset(positions) for origin, positions in found.items()}


def broken_lineage(events: Iterable[Event]) -> list[str]:
    """One sentence for every event whose parent is missing or does not fit."""
    lineage = Lineage()
    lineage.add(events)
    return lineage.broken()


class Lineage:
    """Whether the parents of a log's events are there and fit. Events are added in the order of the log.

    Of a long log only the `parents` are remembered, where somebody knows which events are some.
    """

    def __init__(self, parents: Collection[str] | None = None) -> None:
        self._parents = parents
        self._refs: dict[str, Ref] = {}
        self._early: list[Event] = []  # children that came before their parents
        self._problems: list[tuple[int, str]] = []

    def add(self, events: Iterable[Event]) -> None:
        for event in events:
            if self._parents is None or event.id in self._parents:
                self._refs[event.id] = event.ref
            if event.parent_id is None or event.parent_id in self._refs:
                self._check(event, None if event.parent_id is None else self._refs[event.parent_id])
            else:
                self._early.append(msgspec.structs.replace(event, body=b""))

    def broken(self) -> list[str]:
        """One sentence for every event whose parent is missing or does not fit, when all were added."""
        for event in self._early:
            if event.parent_id not in self._refs:
                missing = (
                    f"event {event.id} (position {event.position}) names a parent that is not here: {event.parent_id}; "
                )
                missing += "`mica events import` of the log that holds it makes it whole"
                self._problems.append((event.position or 0, missing))
            self._check(event, self._refs.get(event.parent_id or ""))
        return [told for _, told in sorted(self._problems, key=itemgetter(0))]

    def _check(self, event: Event, parent: Ref | None) -> None:
        try:
            check_lineage(event, parent)
        except InvalidEvent as error:
            self._problems.append((event.position or 0, str(error)))


def stale_texts(events: Iterable[Event], lengths: dict[int, int], counts: dict[int, dict[str, int]]) -> list[str]:
    """One sentence for every event that is not indexed as it is stored.

    The index has lengths and counts of terms by position; those of these events are taken out of it.
    """
    return [
        stale_text(event)
        for event in events
        if (lengths.pop(event.position or 0, None), counts.pop(event.position or 0, {})) != indexed(event)
    ]


def indexed(event: Event) -> tuple[int | None, dict[str, int]]:
    """What an index should hold of an event: how many words its text has, and how often each term."""
    if (text := searchable_text(event)) is None:
        return None, {}
    found = words(text)
    return len(found), dict(Counter(terms_of(found)))


def stale_text(event: Event) -> str:
    return f"event {event.id} is not indexed as it is stored; `mica rebuild` mends it"


def orphaned_texts(positions: Iterable[int]) -> list[str]:
    """One sentence for every position that the index names and the log does not."""
    return [
        f"the index names position {position}, where no event is; `mica rebuild` mends it"
        for position in sorted(positions)
    ]


def missing_positions(gaps: Iterable[tuple[int, int]]) -> list[str]:
    """One sentence for every gap in the log: positions are given in order and never taken back."""
    return [f"the events at positions {first} to {last} are gone from the log" for first, last in gaps]

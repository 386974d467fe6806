"""The data of the reference store, shared by its roles."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Collection
from datetime import datetime
from operator import attrgetter

import msgspec

from mica.errors import StoreUnavailable
from mica.model.belief import Belief, BeliefId
from mica.model.event import MARK, Event, new_writer
from mica.model.mark import Posting, Reply, searchable_text
from mica.model.trail import Trail
from mica.store.crystal_rows import DerivedCrystals, derive
from mica.store.leases import Claim
from mica.store.purges import PurgeFilter
from mica.words import terms_of, words


class WorkRow(msgspec.Struct):
    """A piece of planned work, and the claim on it, if any."""

    due_at: datetime
    again_at: datetime | None = None  # the next due time, if the work was planned again while a process held it
    claim: Claim | None = None


class ReferenceState:
    """All data of a space in memory."""

    def __init__(self) -> None:
        self.space = str(new_writer())
        self.log: list[Event] = []  # position is the index plus one
        self.by_id: dict[str, Event] = {}
        self.lengths: dict[int, int] = {}  # words of each searchable event, by position
        self.counts: defaultdict[str, dict[int, int]] = defaultdict(dict)  # occurrences of each term, by position
        self.derived = DerivedCrystals()
        self.vectors: dict[int, tuple[str, bytes]] = {}  # of marks, by position, with the model that made each
        self.trails: list[Trail] = []
        self.learned = 0  # the log position up to which trails were learned
        self.beliefs: dict[BeliefId, Belief] = {}
        self.beliefs_learned = 0  # the log position up to which beliefs were learned
        self.replies: dict[tuple[str, str], Reply] = {}  # by concept and source
        self.work: dict[tuple[str, str], WorkRow] = {}
        self.purge_filter = PurgeFilter()
        self.generation = 0
        self.is_closed = False

    def check_open(self) -> None:
        """Raise StoreUnavailable if the store is closed."""
        if self.is_closed:
            raise StoreUnavailable("the store is closed; open it again")

    def index(self, event: Event) -> None:
        """Add the text of an event to the full-text index."""
        if event.position and (text := searchable_text(event)) is not None:
            text_words = words(text)
            self.lengths[event.position] = len(text_words)
            for term, count in Counter(terms_of(text_words)).items():
                self.counts[term][event.position] = count

    def rebuild(self) -> None:
        """Recreate everything that is derived from the log."""
        self.lengths.clear()
        self.counts.clear()
        self.vectors.clear()
        self.forget_learned()
        for event in self.log:
            self.index(event)
        self.derived = derive(self.log)

    def forget_learned(self) -> None:
        """Delete trails, beliefs and replies, which may quote purged text."""
        self.trails, self.learned, self.replies = [], 0, {}
        self.beliefs, self.beliefs_learned = {}, 0

    def is_mark(self, event: Event) -> bool:
        """Return True if the event is a mark that a search can find."""
        return event.name == MARK and event.position in self.lengths and event.id not in self.derived.retracted

    def select(self, matches: Callable[[Event], bool]) -> list[Event]:
        """Return the matching events, ordered by time, then by position."""
        return sorted((event for event in self.log if matches(event)), key=attrgetter("sort_key"))

    def postings(self, term: str, positions: Collection[int]) -> tuple[Posting, ...]:
        """Return the postings of a term in the texts at these positions, in order of position."""
        return tuple(
            Posting(position, count, self.lengths[position], self.log[position - 1].context.session)
            for position, count in self.counts.get(term, {}).items()
            if position in positions
        )

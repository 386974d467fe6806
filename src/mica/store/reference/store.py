"""The reference store: in memory, boring and complete. Every other store must answer as it does."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import datetime, timedelta
from operator import attrgetter

import msgspec

from mica.errors import ClaimLost, DuplicateEvent, LawBroken, StoreUnavailable
from mica.model.crystal import Crystal, CrystalQuery
from mica.model.event import (
    MARK,
    Appended,
    Claim,
    Event,
    EventId,
    EventQuery,
    Posting,
    Postings,
    Reply,
    Text,
    Tombstone,
    Vectors,
    Work,
    is_tombstone,
    mark_of,
    new_writer,
    searchable_text,
    split_id,
    tombstone,
    utc_now,
)
from mica.model.trail import Lesson, Trail, TrailQuery
from mica.store.crystal_rows import Derived, broken_crystals, derived
from mica.store.leases import check_lease, check_moment, check_words, nothing_to_hear
from mica.store.protocol import (
    LATEST_MARKS,
    REPLIES_MAX,
    Sizes,
    broken_lineage,
    check_event,
    gathered,
    grouped,
    unheard,
    worths,
)
from mica.store.purges import Outstanding, Purge, may_stand_for
from mica.store.query import matcher
from mica.words import terms, terms_of, words


class EphemeralStore:
    """A space that ends with its process."""

    def __init__(self) -> None:
        self._space = str(new_writer())
        self._log: list[Event] = []  # position is the index plus one
        self._by_id: dict[str, Event] = {}
        self._lengths: dict[int, int] = {}  # of each searchable event in words, by position
        self._said: defaultdict[str, dict[int, int]] = defaultdict(dict)  # how often each term, by position
        self._derived = Derived()
        self._vectors: dict[int, tuple[str, bytes]] = {}  # of marks, by position, with the model that made each
        self._trails: list[Trail] = []
        self._learned = 0  # the position up to which
        self._replies: dict[tuple[str, str], Reply] = {}  # by concept and source
        self._work: dict[tuple[str, str], _Row] = {}
        self._outstanding = Outstanding()
        self._generation = 0
        self._is_closed = False

    @property
    def space(self) -> str:
        return self._space

    @property
    def location(self) -> str:
        return ":memory:"

    @property
    def segments(self) -> None:
        return None

    async def append(self, events: Sequence[Event]) -> Appended:
        self._check_open()
        fresh: dict[str, Event] = {}
        repeated = 0
        for event in events:
            parent = event.parent_id and (self._by_id.get(event.parent_id) or fresh.get(event.parent_id))
            check_event(event, parent.ref if parent else None)
            known = self._by_id.get(event.id) or fresh.get(event.id)
            if known is not None:
                if not may_stand_for(known, event):
                    raise DuplicateEvent(event.id)
                repeated += 1
                continue
            position = len(self._log) + len(fresh) + 1
            fresh[event.id] = msgspec.structs.replace(self._outstanding.applied(event), position=position)
        self._log.extend(fresh.values())
        self._by_id |= fresh
        try:
            for event in fresh.values():
                self._index(event)
                self._derived.add(event)
        except LawBroken:
            del self._log[len(self._log) - len(fresh) :]
            for identifier in fresh:
                del self._by_id[identifier]
            await self.rebuild()
            raise
        return Appended(stored=len(fresh), repeated=repeated)

    async def event(self, identifier: EventId) -> Event | None:
        self._check_open()
        split_id(identifier)
        return self._by_id.get(identifier)

    async def events_of(self, identifiers: Sequence[EventId]) -> list[Event]:
        found = [await self.event(identifier) for identifier in dict.fromkeys(identifiers)]
        return [event for event in found if event is not None]

    async def event_at(self, position: int) -> Event | None:
        self._check_open()
        return self._log[position - 1] if 0 < position <= len(self._log) else None

    async def events(self, query: EventQuery) -> list[Event]:
        self._check_open()
        found = self._ordered(matcher(query))
        return found if query.limit is None else found[max(0, len(found) - query.limit) :]

    async def log(self, after: int, *, limit: int) -> list[Event]:
        self._check_open()
        return self._log[max(0, after) : max(0, after) + limit]

    async def last_position(self) -> int:
        self._check_open()
        return len(self._log)

    hears = False
    listen = staticmethod(nothing_to_hear)

    async def chain(self, correlation: str) -> list[Event]:
        self._check_open()
        return self._ordered(lambda event: correlation in (event.context.correlation, event.root_id))

    async def ancestors(self, identifier: EventId) -> list[Event]:
        event = await self.event(identifier)
        found: list[Event] = []
        while event and event.parent_id and (event := self._by_id.get(event.parent_id)) and event not in found:
            found.append(event)
        return sorted(found, key=lambda event: -event.depth)

    async def descendants(self, identifier: EventId, *, depth: int | None = None) -> list[Event]:
        event = await self.event(identifier)
        deepest = None if event is None or depth is None else event.depth + depth
        found: set[EventId] = set()
        generation = {identifier}
        while generation:
            children = {event.id for event in self._log if event.parent_id in generation}
            generation = {i for i in children - found if deepest is None or self._by_id[i].depth <= deepest}
            found |= generation
        return self._ordered(lambda event: event.id in found)

    async def postings(
        self,
        wanted: Sequence[str],
        *,
        weights: Mapping[str, float] | None = None,
        limit: int | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
    ) -> Postings:
        found, lengths = self._postings(wanted)
        containing = {term: len(postings) for term, postings in found.items()}
        worth = worths(containing, weights or {}, len(lengths))
        worth_at: Counter[int] = Counter()
        for term, postings in found.items():
            for posting in postings:
                if self._is_within(posting.position, since, until):
                    worth_at[posting.position] += worth[term]
        chosen = set(sorted(worth_at, key=lambda position: (-worth_at[position], -position))[:limit])
        by_term = {
            term: tuple(posting for posting in postings if posting.position in chosen)
            for term, postings in found.items()
        }
        return gathered(by_term, sorted(Counter(lengths.values()).items()), containing)

    def _is_within(self, position: int, since: datetime | None, until: datetime | None) -> bool:
        at = self._log[position - 1].at
        return (since is None or at >= since) and (until is None or at < until)

    async def postings_at(self, wanted: Sequence[str], positions: Sequence[int]) -> dict[str, tuple[Posting, ...]]:
        at = set(positions)
        return {
            term: tuple(posting for posting in found if posting.position in at)
            for term, found in self._postings(wanted)[0].items()
        }

    def _postings(self, wanted: Sequence[str]) -> tuple[dict[str, tuple[Posting, ...]], dict[int, int]]:
        """All postings of these terms, and the lengths of all marks."""
        self._check_open()
        lengths = {at: length for at, length in self._lengths.items() if self._is_mark(self._log[at - 1])}
        return {term: self._said_at(term, lengths) for term in wanted}, lengths

    def _said_at(self, term: str, positions: Collection[int]) -> tuple[Posting, ...]:
        """The postings of a term at those of these positions where it is said, in order."""
        return tuple(
            Posting(position, count, self._lengths[position], self._log[position - 1].context.session)
            for position, count in self._said.get(term, {}).items()
            if position in positions
        )

    async def texts(self, positions: Sequence[int], *, neighbours: int = 2) -> list[Text]:
        self._check_open()
        marks = self._ordered(self._is_mark)
        wanted = {event.position or 0 for event in marks}.intersection(positions)
        sessions: dict[str | None, list[Event]] = {self._log[each - 1].context.session: [] for each in wanted}
        for event in marks:
            if event.context.session in sessions:
                sessions[event.context.session].append(event)
        found: dict[int, Text] = {}
        for session, together in sessions.items():
            length = sum(self._lengths[event.position or 0] for event in together)
            near = {
                other
                for ordinal, event in enumerate(together)
                if event.position in wanted
                for other in range(ordinal - neighbours, ordinal + neighbours + 1)
                if session is not None or other == ordinal
            }
            for ordinal, event in enumerate(together):
                if ordinal in near and event.position:
                    own = self._lengths[event.position]
                    found[event.position] = Text(
                        mark=mark_of(event),
                        position=event.position,
                        length=own,
                        ordinal=ordinal if session is not None else 0,
                        session_length=length if session is not None else own,
                    )
        return [found[position] for position in sorted(found)]

    async def crystals(self, query: CrystalQuery) -> list[Crystal]:
        self._check_open()
        here = self._derived
        sealed = here.sealed
        found = [
            crystal
            for crystal in here.crystals.values()
            if (query.level is None or crystal.level == query.level)
            and (query.period is None or crystal.period == query.period)
            and (query.since is None or crystal.end_at >= query.since)
            and (query.until is None or crystal.start_at < query.until)
            and (query.is_live is None or here.is_live(crystal.id) == query.is_live)
            and (query.is_sealed is None or (crystal.id in sealed) == query.is_sealed)
            and (query.positions is None or crystal.position in query.positions)
            and (query.is_stale is None or (not all(map(here.is_live, crystal.sources))) == query.is_stale)
        ]
        found.sort(key=lambda crystal: (crystal.end_at, crystal.position))
        return found if query.limit is None else found[max(0, len(found) - query.limit) :]

    async def unsealed(
        self,
        *,
        limit: int,
        session: str | None = None,
        latest: bool = False,
        after: int | None = None,
    ) -> list[Event]:
        self._check_open()
        marks = self._ordered(
            lambda event: (
                self._is_mark(event)
                and (session is None or event.context.session == session)
                and (after is None or (event.position or 0) > after)
            )
        )
        found = [mark for mark in (marks[-LATEST_MARKS:] if latest else marks) if mark.id not in self._derived.sealed]
        if after is not None:
            found = sorted(sorted(found, key=lambda mark: mark.position or 0)[:limit], key=lambda mark: mark.place)
        return found[max(0, len(found) - limit) :] if latest else found[:limit]

    async def citing(self, identifiers: Sequence[EventId]) -> list[EventId]:
        self._check_open()
        for identifier in identifiers:
            split_id(identifier)
        found = set(identifiers)
        for crystal in self._derived.crystals.values():  # in order: what a crystal rests on comes before it
            if found.intersection(crystal.sources):
                found.add(crystal.id)
        return [crystal for crystal in self._derived.crystals if crystal in found.difference(identifiers)]

    async def crystal_postings(self, wanted: Sequence[str], query: CrystalQuery) -> dict[str, tuple[Posting, ...]]:
        positions = {crystal.position or 0 for crystal in await self.crystals(query)}
        return {term: self._said_at(term, positions) for term in wanted}

    async def above(self, positions: Sequence[int]) -> dict[int, frozenset[int]]:
        self._check_open()
        pairs = [
            (position, self._by_id[crystal].position or 0)
            for position in positions
            if 0 < position <= len(self._log)
            for crystal in await self.citing([self._log[position - 1].id])
        ]
        return grouped(positions, pairs)

    async def agents(self) -> list[str]:
        self._check_open()
        return sorted({event.context.agent for event in self._log if event.context.agent is not None})

    async def save_vectors(self, model: str, vectors: Mapping[int, bytes]) -> None:
        self._check_open()
        self._vectors |= {
            position: (model, vector)
            for position, vector in vectors.items()
            if position in self._lengths and self._log[position - 1].name == MARK
        }

    async def vectors(self, model: str, *, after: int = 0, limit: int) -> Vectors:
        self._check_open()
        found = sorted((position, vector) for position, (made_by, vector) in self._vectors.items() if made_by == model)
        later = [row for row in found if row[0] > after]
        return Vectors(len(found), tuple(later[max(0, len(later) - limit) :]))

    async def without_vector(self, model: str, *, limit: int) -> list[tuple[int, str]]:
        self._check_open()
        missing = [
            (event.position or 0, searchable_text(event) or "")
            for event in reversed(self._log)
            if event.name == MARK
            and event.position in self._lengths
            and self._vectors.get(event.position, ("",))[0] != model
        ]
        return missing[:limit]

    async def save_trails(self, trails: Sequence[Trail], lesson: Lesson) -> bool:
        self._check_open()
        if lesson.generation != self._generation or lesson.position < self._learned:
            return False
        self._trails, self._learned = list(trails), lesson.position
        return True

    async def save_replies(self, replies: Sequence[Reply], *, generation: int) -> bool:
        self._check_open()
        if generation != self._generation:
            return False
        for reply in self._outstanding.without_purged(replies):
            known = self._replies.get((reply.concept, reply.source))
            if known is None or known.at <= reply.at:
                self._replies[reply.concept, reply.source] = reply
        latest = sorted(self._replies.values(), key=lambda reply: reply.at, reverse=True)[:REPLIES_MAX]
        if latest:
            self._replies = {key: reply for key, reply in self._replies.items() if reply.at >= latest[-1].at}
        return True

    async def replies(self, concept: str) -> list[Reply]:
        self._check_open()
        return [reply for key, reply in sorted(self._replies.items()) if key[0] == concept]

    async def replied(self) -> list[str]:
        self._check_open()
        return sorted({concept for concept, _ in self._replies})

    async def lesson(self) -> Lesson:
        self._check_open()
        return Lesson(position=self._learned, generation=self._generation)

    async def trails(self, query: TrailQuery) -> list[Trail]:
        self._check_open()
        found = [
            trail for trail in self._trails if query.slug in (None, trail.slug) and query.shape in (None, trail.shape)
        ]
        by_runs = query.order == "runs"
        found.sort(key=lambda trail: trail.key)
        found.sort(
            key=lambda trail: (trail.runs, trail.last_at) if by_runs else (trail.last_at, trail.runs), reverse=True
        )
        return found[: query.limit]

    async def plan(self, kind: str, *, about: str = "", due_at: datetime, only_new: bool = False) -> None:
        self._check_open()
        check_words(kind=kind, about=about)
        check_moment("due_at", due_at)
        row = self._work.get((kind, about))
        if row is None:
            self._work[kind, about] = _Row(due_at)
        elif only_new:
            return
        elif row.claim is None:
            row.due_at = min(row.due_at, due_at)
        else:
            row.again_at = min(row.again_at or due_at, due_at)

    async def claim(self, kinds: Collection[str], *, owner: str, due_by: datetime, lease: timedelta) -> Claim | None:
        self._check_open()
        check_words(owner=owner)
        check_moment("due_by", due_by)
        check_lease(lease)
        now = utc_now()
        free = [
            (row.due_at, key)
            for key, row in self._work.items()
            if key[0] in kinds and row.due_at <= due_by and (row.claim is None or row.claim.held_until <= now)
        ]
        if not free:
            return None
        due_at, (kind, about) = min(free)
        taken = Claim(id=new_writer(), kind=kind, about=about, due_at=due_at, owner=owner, held_until=now + lease)
        self._work[kind, about].claim = taken
        return taken

    async def renew(self, claim: Claim, *, lease: timedelta) -> Claim:
        check_lease(lease)
        row = self._held(claim)
        row.claim = msgspec.structs.replace(claim, held_until=utc_now() + lease)
        return row.claim

    async def finish(self, claim: Claim, *, again_at: datetime | None = None) -> None:
        if again_at is not None:
            check_moment("again_at", again_at)
        planned = [at for at in (again_at, self._held(claim).again_at) if at is not None]
        if planned:
            self._work[claim.kind, claim.about] = _Row(min(planned))
        else:
            del self._work[claim.kind, claim.about]

    async def work(self) -> list[Work]:
        self._check_open()
        return [
            Work(
                kind=kind,
                about=about,
                due_at=row.due_at,
                owner=None if row.claim is None else row.claim.owner,
                held_until=None if row.claim is None else row.claim.held_until,
            )
            for (kind, about), row in sorted(self._work.items(), key=lambda pair: (pair[1].due_at, pair[0]))
        ]

    async def sizes(self) -> Sizes:
        self._check_open()
        return Sizes(
            events=len(self._log),
            marks=sum(map(self._is_mark, self._log)),
            contexts=len({event.context for event in self._log}),
            payloads=0,
            size_bytes=0,
        )

    async def verify(self, *, on_progress: Callable[[int], None] = unheard) -> list[str]:
        self._check_open()
        problems = broken_lineage(self._log) + broken_crystals(derived(self._log), self._derived.rows)
        on_progress(len(self._log))
        return problems

    async def rebuild(self, *, on_progress: Callable[[int], None] = unheard) -> int:
        self._check_open()
        self._lengths.clear()
        self._said.clear()
        self._vectors.clear()
        self._trails, self._learned, self._replies = [], 0, {}
        for event in self._log:
            self._index(event)
        self._derived = derived(self._log)
        on_progress(len(self._log))
        return len(self._log)

    @property
    def generation(self) -> int:
        return self._generation

    async def bury(self, identifiers: Sequence[EventId], told: Tombstone) -> int:
        self._check_open()
        known = [self._by_id[identifier] for identifier in dict.fromkeys(identifiers) if identifier in self._by_id]
        content = [event for event in known if not is_tombstone(event)]
        for event in content:
            position = event.position or 0
            self._by_id[event.id] = self._log[position - 1] = tombstone(event, told)
            self._lengths.pop(position, None)
            for term in terms(searchable_text(event) or ""):
                said = self._said.get(term, {})
                said.pop(position, None)
                if not said:
                    self._said.pop(term, None)  # the word itself goes with the last who said it
            self._vectors.pop(position, None)
        self._derived = derived(self._log)
        self._generation += bool(content)
        if content:
            self._trails, self._learned, self._replies = [], 0, {}
        return len(content)

    async def keep_purge(self, purge: Purge) -> None:
        self._check_open()
        self._outstanding = Outstanding([*self._outstanding.purges, purge])
        self._generation += 1
        self._replies = {}

    async def purges(self) -> list[Purge]:
        self._check_open()
        return list(self._outstanding.purges)

    async def scrub(self) -> list[str]:
        self._check_open()
        return []

    async def age(self, before: datetime, *, limit: int = 8_192, at_least: int = 1) -> int:
        """Nothing: what is in memory ends with the process."""
        self._check_open()
        return 0

    async def close(self) -> None:
        self._is_closed = True

    def _held(self, claim: Claim) -> _Row:
        self._check_open()
        row = self._work.get((claim.kind, claim.about))
        if row is None or row.claim is None or row.claim.id != claim.id:
            raise ClaimLost(claim.kind, claim.about, claim.owner)
        return row

    def _check_open(self) -> None:
        if self._is_closed:
            raise StoreUnavailable("the store is closed; open it again")

    def _index(self, event: Event) -> None:
        if event.position and (text := searchable_text(event)) is not None:
            found = words(text)
            self._lengths[event.position] = len(found)
            for term, count in Counter(terms_of(found)).items():
                self._said[term][event.position] = count

    def _is_mark(self, event: Event) -> bool:
        return event.name == MARK and event.position in self._lengths and event.id not in self._derived.retracted

    def _ordered(self, fits: Callable[[Event], bool]) -> list[Event]:
        return sorted((event for event in self._log if fits(event)), key=attrgetter("place"))


class _Row(msgspec.Struct):
    """A piece of work."""

    due_at: datetime
    again_at: datetime | None = None  # planned once more while somebody held it
    claim: Claim | None = None

"""The embedded store without its thread: one SQLite file for a space.

It is synchronous and belongs to one thread; a short-lived process may use it directly. Write-ahead logging lets readers
and one writer of several processes go on together; every write is one immediate transaction, committed with a full
sync.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime, timedelta
from functools import cached_property
from itertools import starmap
from operator import itemgetter
from pathlib import Path

import apsw
import msgspec

from mica.errors import ClaimLost, DuplicateEvent, InvalidEvent
from mica.model.crystal import Crystal, CrystalQuery, crystal_of
from mica.model.event import (
    EMPTY,
    ORIGINS,
    PURGED,
    Appended,
    Claim,
    Event,
    EventId,
    EventQuery,
    Mark,
    Posting,
    Postings,
    Reply,
    Text,
    Tombstone,
    Vectors,
    Work,
    WriterId,
    event_id,
    is_tombstone,
    mark_of,
    microseconds,
    new_writer,
    searchable_text,
    split_ids,
    utc_now,
)
from mica.model.trail import Lesson, Trail, TrailQuery
from mica.store.codec import (
    CACHE_ENTRIES_MAX,
    INLINE_BYTES_MAX,
    READ_ROWS,
    compressed,
    digest,
    expanded,
    moment,
    remember,
)
from mica.store.crystal_rows import NAMING, Derived, named_by
from mica.store.leases import check_lease, check_moment, check_words
from mica.store.protocol import (
    Lineage,
    Sizes,
    check_content,
    grouped,
    missing_positions,
    unheard,
)
from mica.store.purges import Outstanding, Purge, may_stand_for
from mica.store.sqlite import crystals as sqlite_crystals
from mica.store.sqlite import log_query as sqlite_query
from mica.store.sqlite import replies as sqlite_replies
from mica.store.sqlite import texts as sqlite_texts
from mica.store.sqlite import trails as sqlite_trails
from mica.store.sqlite import work as sqlite_work
from mica.store.sqlite.blocks import STEP_EVENTS, Blocks
from mica.store.sqlite.file import COLUMNS, FileName, Key, Row, as_json, insert, open_file, translated
from mica.store.sqlite.purges import bury, truncate_log
from mica.store.sqlite.words import Words

PATIENCE_S = 60  # eight writers with full syncs wait for seconds, not minutes: longer means that one is stuck
BURY_BLOCKS = 4  # written anew in one transaction: some 100 ms, as long as a step of ageing
VERIFY_PASSES = 2  # over the whole log
VACUUM_PAGES = 2_000  # given back after a step of ageing, in some 10 ms: more than it frees, so that a backlog goes too

_ORIGIN = {origin: number for number, origin in enumerate(ORIGINS)}
_EVENTS = f"events ({COLUMNS})", "(?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
_LINE = """WHERE position IN (
        WITH RECURSIVE line (found, up_writer, up_sequence) AS (
            SELECT NULL, ?, ?
            UNION
            SELECT position, parent_writer, parent_sequence FROM line
            JOIN events ON writer = up_writer AND sequence = up_sequence
        )
        SELECT found FROM line
    ) ORDER BY depth DESC"""
_BELOW = """WHERE position IN (
        WITH RECURSIVE below (found, own_writer, own_sequence) AS (
            SELECT NULL, value ->> 0, value ->> 1 FROM json_each(?1)
            UNION
            SELECT position, writer, sequence FROM below
            JOIN events ON parent_writer = own_writer AND parent_sequence = own_sequence
            WHERE depth <= coalesce(?2, depth)
        )
        SELECT found FROM below
    )"""
_OF_KEYS = "WHERE (writer, sequence) IN (SELECT value ->> 0, value ->> 1 FROM json_each(?))"
_POSITION, _TIME, _CONTEXT, _ABOVE = itemgetter(0), itemgetter(4, 0), itemgetter(5), itemgetter(0, 8, 9)


class Place(msgspec.Struct, frozen=True, gc=False):
    """Where a stored event stands in its chain: what its children are compared with."""

    id: EventId
    root_id: EventId
    depth: int
    own: Key
    root: Key


KEPT_MARKS_MAX = 10_000  # read last and kept, at most 20 MB
KEPT_CHARACTERS_MAX = 2_000  # of a mark that is kept


class SqliteCore:
    """A space in a file. Not safe for several threads; safe for several processes."""

    def __init__(self, path: Path, *, busy_ms: int = PATIENCE_S * 1_000) -> None:
        self._path = path
        self._places: dict[EventId, Place] = {}
        self._outstanding = Outstanding()
        self.generation = -1  # of the words that are remembered: a purge takes some away
        with translated(path):
            self._connection = open_file(path, busy_ms=busy_ms)
            self._file = FileName(path)
            self._words = Words(self._connection)
            self._blocks = Blocks(self._connection)
            self._facts = sqlite_texts.Facts(self._connection)
            self._marks_read: dict[int, Mark] = {}
            self._follow_purges()

    @cached_property
    def space(self) -> str:
        return str(self._one("SELECT id FROM space")[0])

    def append(self, events: Sequence[Event]) -> Appended:
        fresh: dict[EventId, Event] = {}
        places: dict[EventId, Place] = {}
        parents: list[Place | None] = []
        with self._writing():
            keys = split_ids(event.id for event in events)
            known = self._known(keys)
            writers = self._words.numbers["writers"]  # those of these events among them
            first = self.last_position() + 1
            applied = (
                None if self._outstanding.latest is None else self._outstanding.applied
            )  # mostly nothing is purged
            for event, (writer, sequence) in zip(events, keys, strict=True):
                identifier, above = event.id, event.parent_id
                parent = None if above is None else places.get(above) or self._place(above)
                check_content(event, parent)
                if identifier not in known and identifier not in fresh:
                    fresh[identifier] = kept = event if applied is None else applied(event)
                    number = writers.get(writer) or self._words.number("writers", writer)
                    places[identifier] = self._new_place(kept, (number, sequence), parent)
                    parents.append(parent)
                elif self._differs(event, fresh.get(identifier)):
                    raise DuplicateEvent(identifier)
            if fresh:
                # Of what is stored only: a purge took the words of what is a tombstone.
                self._words.intern_contexts({id(event.context): event.context for event in fresh.values()}.values())
                each = zip(fresh.values(), places.values(), parents, range(first, first + len(fresh)), strict=True)
                insert(self._connection, *_EVENTS, list(starmap(self._row, each)))
                sqlite_texts.index(self._connection, self._words, enumerate(fresh.values(), first))
                sqlite_crystals.index(self._connection, self.event, enumerate(fresh.values(), first))
                self._connection.execute("UPDATE space SET last_position = ?", (first + len(fresh) - 1,))
        if len(self._places) + len(places) > CACHE_ENTRIES_MAX:
            self._places.clear()
        self._places |= places  # only now: what a failed commit takes back must not be remembered
        return Appended(stored=len(fresh), repeated=len(events) - len(fresh))

    def event(self, identifier: EventId) -> Event | None:
        with self._reading():
            row = self._row_of(self._words.known_key(identifier))
            return None if row is None else self._event(row)

    def events_of(self, identifiers: Sequence[EventId]) -> list[Event]:
        with self._reading():
            keys = [key for each in dict.fromkeys(identifiers) if (key := self._words.known_key(each)) is not None]
            rows = self._table(_OF_KEYS, (as_json(keys),))
            found = {(row[1], row[2]): row for row in rows}
            if self._blocks.is_used:
                found |= {key: row for key in keys if key not in found and (row := self._row_of(key)) is not None}
            return [self._event(found[key]) for key in keys if key in found]

    def event_at(self, position: int) -> Event | None:
        with self._reading():
            return next(iter(self._at([position])), None)

    def events(self, query: EventQuery) -> list[Event]:
        with self._reading():
            if query.text is not None:
                self._facts.follow()
            rows = self._latest(query)
            if self._blocks.is_used:
                wanted = sqlite_query.wanted(self._connection, self._words, self._facts, query)
                rows = rows if wanted is None else self._blocks.latest(wanted, rows, query.limit)
            return [self._event(row) for row in reversed(rows)]

    def _latest(self, query: EventQuery) -> list[Row]:
        since = sqlite_query.recent(self._connection, query)
        if since is not None:
            rows = self._table(*sqlite_query.latest(self._connection, self._facts, query, since=since))
            if len(rows) == query.limit:
                return rows  # all others are older
        return self._table(*sqlite_query.latest(self._connection, self._facts, query))

    def log(self, after: int, *, limit: int) -> list[Event]:
        with self._reading():
            return [self._event(row) for row in self._rows_after(after, limit=limit)]

    def _rows_after(self, after: int, *, limit: int) -> list[Row]:
        rows = self._table("WHERE position > ? ORDER BY position LIMIT ?", (after, limit))
        if self._blocks.is_used:
            until = rows[-1][0] if rows and len(rows) >= limit else None
            rows = sorted([*rows, *self._blocks.after(after, until=until, limit=limit)], key=_POSITION)[:limit]
        return rows

    def last_position(self) -> int:
        return int(self._one("SELECT last_position FROM space")[0])

    def chain(self, correlation: str) -> list[Event]:
        with self._reading():
            statement = "SELECT id FROM contexts WHERE substr(correlation, -8) = substr(?, -8) AND correlation = ?"
            contexts = {number for (number,) in self._rows(statement, (correlation, correlation))}
            try:
                root = self._words.known_key(EventId(correlation))
            except InvalidEvent:
                root = None  # no root has this id
            rows = self._table(
                """WHERE position IN (
                    SELECT position FROM events WHERE root_writer = ? AND root_sequence = ?
                    UNION
                    SELECT position FROM events WHERE context IN (SELECT value FROM json_each(?))
                )""",
                (*(root or (0, 0)), as_json(sorted(contexts))),
            )
            if self._blocks.is_used:
                rows += self._blocks.of_contexts(contexts)
                if root is not None:
                    rows += [row for _, row in self._blocks.members([root])]
                    rows += [row for row in [self._row_of(root)] if row is not None and row[6:8] == root]
            return self._ordered(rows)

    def ancestors(self, identifier: EventId) -> list[Event]:
        with self._reading():
            found: dict[Key, Row] = {}
            row = self._row_of(self._words.known_key(identifier))
            while row is not None and row[8] is not None and (key := (row[8], row[9])) not in found:
                line = self._table(_LINE, key) or [aged for aged in [self._row_of(key)] if aged is not None]
                left = {(each[1], each[2]): each for each in line}  # as far as it goes in rows, or one that aged
                found |= left
                row = left.pop(key, None)
                while row is not None and (above := left.pop((row[8], row[9]), None)) is not None:
                    row = above
            return [self._event(row) for row in sorted(found.values(), key=lambda row: -row[10])]

    def descendants(self, identifier: EventId, *, depth: int | None = None) -> list[Event]:
        with self._reading():
            key = self._words.known_key(identifier)
            own = self._row_of(key)
            if key is None:
                return []
            deepest = None if own is None or depth is None else own[10] + depth
            found: dict[Key, Row] = {}
            aged: dict[Key, list[Row]] = {}  # by parent
            roots: set[Key] = set()
            reached = [key]
            chains = set() if own is None else {(own[6], own[7])}
            while reached:
                rows = self._table(_BELOW, (as_json(reached), deepest))
                found |= {(row[1], row[2]): row for row in rows}
                reached += [(row[1], row[2]) for row in rows]
                chains |= {(row[6], row[7]) for row in rows}
                if not self._blocks.is_used:
                    break
                for parent, row in self._blocks.members(chains - roots):
                    aged.setdefault(parent, []).append(row)
                roots |= chains
                fresh: list[Key] = []
                while reached:
                    for row in aged.get(reached.pop(), ()):
                        if (row[1], row[2]) not in found and (deepest is None or row[10] <= deepest):
                            found[row[1], row[2]] = row
                            fresh.append((row[1], row[2]))
                            reached.append((row[1], row[2]))
                reached = fresh
            return self._ordered(found.values())

    def postings(
        self,
        wanted: Sequence[str],
        *,
        weights: Mapping[str, float] | None = None,
        limit: int | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
    ) -> Postings:
        with self._reading():
            self._facts.follow()
            return self._facts.postings(wanted, weights or {}, limit=limit, since=since, until=until)

    def postings_at(self, wanted: Sequence[str], positions: Sequence[int]) -> dict[str, tuple[Posting, ...]]:
        with self._reading():
            self._facts.follow()
            return self._facts.postings_at(wanted, positions)

    def save_vectors(self, model: str, vectors: Mapping[int, bytes]) -> None:
        with self._writing():
            sqlite_texts.save_vectors(self._connection, model, vectors)

    def vectors(self, model: str, *, after: int = 0, limit: int) -> Vectors:
        with self._reading():
            return sqlite_texts.vectors(self._connection, model, after=after, limit=limit)

    def without_vector(self, model: str, *, limit: int) -> list[tuple[int, str]]:
        with self._reading():
            found = self._at(sqlite_texts.without_vector(self._connection, model, limit=limit))
            return [(event.position or 0, searchable_text(event) or "") for event in reversed(found)]

    def save_trails(self, trails: Sequence[Trail], lesson: Lesson) -> bool:
        with self._writing():
            return sqlite_trails.save(self._connection, trails, lesson)

    def lesson(self) -> Lesson:
        with self._reading():
            return sqlite_trails.lesson_of(self._connection)

    def trails(self, query: TrailQuery) -> list[Trail]:
        with self._reading():
            return sqlite_trails.found(self._connection, query)

    def save_replies(self, replies: Sequence[Reply], *, generation: int) -> bool:
        with self._writing():
            kept = self._outstanding.without_purged(replies)
            return sqlite_replies.save(self._connection, kept, generation=generation)

    def replies(self, concept: str) -> list[Reply]:
        with self._reading():
            return sqlite_replies.found(self._connection, concept)

    def replied(self) -> list[str]:
        with self._reading():
            return sqlite_replies.concepts(self._connection)

    def texts(self, positions: Sequence[int], *, neighbours: int = 2) -> list[Text]:
        with self._reading():
            self._facts.follow()
            found = sqlite_texts.around(self._connection, self._facts, positions, neighbours=neighbours)
            return [
                Text(mark=mark, position=mark.position or 0, length=length, ordinal=ordinal, session_length=whole)
                for mark in self._marks(sorted(found))
                for length, ordinal, whole in [found[mark.position or 0]]
            ]

    def crystals(self, query: CrystalQuery) -> list[Crystal]:
        with self._reading():
            found = map(crystal_of, self._at(sqlite_crystals.found(self._connection, query)))
            return sorted(found, key=lambda crystal: (crystal.end_at, crystal.position))

    def unsealed(
        self,
        *,
        limit: int,
        session: str | None = None,
        latest: bool = False,
        after: int | None = None,
    ) -> list[Event]:
        with self._reading():
            positions = sqlite_crystals.unsealed(self._connection, limit, session=session, latest=latest, after=after)
            return sorted(self._at(positions), key=lambda event: event.place)

    def citing(self, identifiers: Sequence[EventId]) -> list[EventId]:
        with self._reading():
            known = [event.position for event in map(self.event, identifiers) if event and event.position]
            return [event.id for event in self._at(sqlite_crystals.citing(self._connection, known))]

    def crystal_postings(self, wanted: Sequence[str], query: CrystalQuery) -> dict[str, tuple[Posting, ...]]:
        with self._reading():
            self._facts.follow()
            positions = sqlite_crystals.found(self._connection, query)
            return self._facts.postings_at(wanted, positions, only_marks=False)

    def above(self, positions: Sequence[int]) -> dict[int, frozenset[int]]:
        with translated(self._path):
            return grouped(positions, sqlite_crystals.above(self._connection, positions))

    def agents(self) -> list[str]:
        statement = "SELECT DISTINCT agent FROM contexts WHERE agent IS NOT NULL ORDER BY agent"
        return [row[0] for row in self._rows(statement)]

    def plan(self, kind: str, *, about: str = "", due_at: datetime, only_new: bool = False) -> None:
        check_words(kind=kind, about=about)
        check_moment("due_at", due_at)
        with self._writing():
            sqlite_work.plan(self._connection, kind, about, due_at=microseconds(due_at), only_new=only_new)

    def claim(self, kinds: Collection[str], *, owner: str, due_by: datetime, lease: timedelta) -> Claim | None:
        check_words(owner=owner)
        check_moment("due_by", due_by)
        check_lease(lease)
        now, due = utc_now(), microseconds(due_by)
        with translated(self._path):
            if not sqlite_work.is_due(self._connection, kinds, due_by=due, now=microseconds(now)):
                return None
        with self._writing():
            return sqlite_work.claim(
                self._connection,
                new_writer(),
                kinds,
                owner=owner,
                due_by=due,
                now=microseconds(now),
                held_until=microseconds(now + lease),
            )

    def renew(self, claim: Claim, *, lease: timedelta) -> Claim:
        check_lease(lease)
        with self._writing():
            renewed = sqlite_work.renew(self._connection, claim, held_until=microseconds(utc_now() + lease))
        if renewed is None:
            raise ClaimLost(claim.kind, claim.about, claim.owner)
        return renewed

    def finish(self, claim: Claim, *, again_at: datetime | None = None) -> None:
        if again_at is not None:
            check_moment("again_at", again_at)
        with self._writing():
            is_ours = sqlite_work.finish(
                self._connection, claim, again_at=None if again_at is None else microseconds(again_at)
            )
        if not is_ours:
            raise ClaimLost(claim.kind, claim.about, claim.owner)

    def work(self) -> list[Work]:
        with translated(self._path):
            return sqlite_work.work(self._connection)

    def sizes(self) -> Sizes:
        with self._reading():
            rows, marks, contexts, payloads = self._one(
                """SELECT (SELECT count(*) FROM events), (SELECT count(*) FROM texts WHERE is_mark),
                (SELECT count(*) FROM contexts), (SELECT count(*) FROM payloads)"""
            )
            blocks, aged, inside = self._blocks.counts()
        files = [self._path, *(self._path.with_name(self._path.name + end) for end in ("-wal", "-shm"))]
        size = sum(file.stat().st_size for file in files if file.exists())
        return Sizes(
            events=rows + aged,
            marks=marks,
            contexts=contexts,
            payloads=payloads + inside,
            size_bytes=size,
            aged=aged,
            blocks=blocks,
        )

    def verify(self, *, on_progress: Callable[[int], None] = unheard) -> list[str]:
        read = 0

        def count(events: int) -> None:
            nonlocal read
            read += events
            on_progress(read // VERIFY_PASSES)

        with self._reading():
            return self._broken(count)

    def _broken(self, count: Callable[[int], None]) -> list[str]:
        problems = [f"SQLite: {row[0]}" for row in self._rows("PRAGMA integrity_check") if row[0] != "ok"]
        problems += [
            f"SQLite: row of {row[0]} names a missing {row[2]}" for row in self._rows("PRAGMA foreign_key_check")
        ]
        if problems:
            return problems  # rows of a damaged file cannot be trusted any further
        for identifier, named, body in self._rows("SELECT id, digest, body FROM payloads"):
            if digest(expanded(body)) != named:
                problems.append(f"payload {identifier} does not have the content that its digest names")
        for identifier, named in self._rows("SELECT id, digest FROM contexts"):
            if bytes.fromhex(self._words.context(identifier).id) != named:
                problems.append(f"context {identifier} does not have the content that its digest names")
        problems += self._blocks.problems()
        if problems:
            return problems
        parents: set[Key] = set()
        missing = self._missing_positions(parents, count)
        lineage = Lineage({self._words.id(*parent) for parent in parents})
        said = Derived(named_by(self.events(EventQuery(names=NAMING, limit=None))))

        def read() -> Iterator[Event]:
            for event in self._whole_log(count):
                lineage.add([event])
                said.add_stored([event])
                yield event

        stale = sqlite_texts.stale(self._connection, read())
        return problems + lineage.broken() + missing + stale + sqlite_crystals.broken(self._connection, said)

    def _missing_positions(self, parents: set[Key], count: Callable[[int], None]) -> list[str]:
        """Gaps in the log: positions are given in order and never taken back. Notes on the way who is a parent."""
        gaps = []
        before = 0
        while rows := self._rows_after(before, limit=READ_ROWS):
            for position, writer, sequence in map(_ABOVE, rows):
                if writer is not None:
                    parents.add((writer, sequence))
                if position != before + 1:
                    gaps.append((before + 1, position - 1))
                before = position
            count(len(rows))
        if before < self.last_position():
            gaps.append((before + 1, self.last_position()))
        return missing_positions(gaps)

    def rebuild(self, *, on_progress: Callable[[int], None] = unheard) -> int:
        count = 0
        with self._writing():
            sqlite_texts.clear(self._connection)
            sqlite_crystals.clear(self._connection)
            sqlite_trails.clear(self._connection)
            sqlite_replies.clear(self._connection)
            if self._blocks.is_used:
                self._blocks.remap()
            self._forget()
            last = 0
            while batch := self.log(last, limit=READ_ROWS):
                sqlite_texts.index(self._connection, self._words, ((event.position or 0, event) for event in batch))
                sqlite_crystals.index_stored(
                    self._connection, self.event, ((event.position or 0, event) for event in batch)
                )
                last = batch[-1].position or 0
                count += len(batch)
                on_progress(count)
        return count

    def age(self, before: datetime, *, limit: int = STEP_EVENTS, at_least: int = 1) -> int:
        with self._writing():
            moved = self._blocks.age(microseconds(before), limit=limit, at_least=at_least)
        if moved:
            with (
                translated(self._path),
                suppress(apsw.BusyError),
            ):  # pages that stay free now are used or given back later
                self._connection.pragma("incremental_vacuum", VACUUM_PAGES)
                self._connection.pragma("wal_checkpoint", "truncate")
        return moved

    def _thaw(self, positions: Iterable[int]) -> int:
        """Turn the events in blocks at these positions into rows again, for what must change them; how many."""
        rows = self._blocks.take_out(positions) if self._blocks.is_used else []
        insert(self._connection, *_EVENTS, [self._thawed(row) for row in rows])
        return len(rows)

    def _thawed(self, row: Row) -> Row:
        *rest, data, payload = row
        if data is not None and len(data) > INLINE_BYTES_MAX:
            return (*rest, None, self._payload_number(data))
        return (*rest, data if data is None else data.decode(), payload)

    def burials(self, identifiers: Iterable[EventId]) -> list[list[EventId]]:
        """These ids in portions that are buried in one transaction each: of few blocks, for others wait meanwhile."""
        together: defaultdict[int, list[EventId]] = defaultdict(list)
        with self._reading():
            for identifier in dict.fromkeys(identifiers):
                together[self._block_of(identifier)].append(identifier)
        blocks = sorted(together)
        return [
            [identifier for block in blocks[start : start + BURY_BLOCKS] for identifier in together[block]]
            for start in range(0, len(blocks), BURY_BLOCKS)
        ]

    def _block_of(self, identifier: EventId) -> int:
        """The block that the event of this id is in; 0 when it is in none."""
        key = self._words.known_key(identifier) if self._blocks.is_used else None
        position = None if key is None else self._blocks.position(*key)
        return 0 if position is None else self._blocks.place(position)

    def bury(self, identifiers: Sequence[EventId], told: Tombstone) -> int:
        with self._writing():
            known = (self.event(identifier) for identifier in dict.fromkeys(identifiers))
            content = [event for event in known if event is not None and not is_tombstone(event)]
            if content:
                self._thaw(event.position or 0 for event in content)
                name, context = self._words.number("names", PURGED), self._words.context_number(EMPTY)
                bury(self._connection, content, told, name=name, context=context)
        self._forget()
        return len(content)

    def keep_purge(self, purge: Purge) -> None:
        with self._writing():
            self._connection.execute(
                "INSERT INTO purges (id, purge) VALUES (?, ?) ON CONFLICT DO NOTHING",
                (purge.told.purge, msgspec.json.encode(purge).decode()),
            )
            self._connection.execute("UPDATE space SET generation = generation + 1")
            sqlite_replies.clear(self._connection)

    def purges(self) -> list[Purge]:
        rows = self._rows("SELECT purge FROM purges")
        return list(Outstanding(msgspec.json.decode(row[0], type=Purge) for row in rows).purges)

    def compact(self) -> None:
        """Write the whole file anew. Pages that SQLite splits keep copies of old rows where no row is any more."""
        with translated(self._path):
            self._connection.execute("VACUUM")

    def truncate_log(self) -> bool:
        with translated(self._path):
            return truncate_log(self._connection)

    def close(self) -> None:
        self._connection.close()

    # -- Writing ----------------------------------------------------------------------------------------------

    @contextmanager
    def _writing(self) -> Iterator[None]:
        with translated(self._path):
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                self._file.check()
                self._follow_purges()
                self._blocks.follow()
                yield
                self._connection.execute("COMMIT")
            except BaseException:
                self._forget()  # what was interned in the transaction is gone with it
                if self._connection.in_transaction:
                    self._connection.execute("ROLLBACK")
                raise

    @contextmanager
    def _reading(self) -> Iterator[None]:
        """One view of the store for several reads, whatever others write or age meanwhile."""
        with translated(self._path):
            if self._connection.in_transaction:
                yield
                return
            self._connection.execute("BEGIN")
            try:
                self._blocks.follow()
                yield
            finally:
                self._connection.execute("COMMIT")

    def _follow_purges(self) -> None:
        """Forget the numbers of words that a purge may have taken away, and know what it takes from now on."""
        generation, highest = self._one("SELECT generation, highest_number FROM space")
        if generation != self.generation:
            self._forget()
            self._outstanding = Outstanding(self.purges())
            self.generation, self._words.highest_number = generation, highest

    def _forget(self) -> None:
        self._words.forget()
        self._blocks.forget()
        self._places.clear()
        self._facts.forget()
        self._marks_read.clear()

    def _known(self, keys: Iterable[tuple[WriterId, int]]) -> set[EventId]:
        """Which of these events are there already, by id. A new writer's, or what follows its last, costs one look."""
        sequences: defaultdict[WriterId, list[int]] = defaultdict(list)
        for writer, sequence in keys:
            sequences[writer].append(sequence)
        known: set[EventId] = set()
        for writer, wanted in sequences.items():
            number = self._words.number("writers", writer)
            between = "SELECT 1 FROM events WHERE writer = ? AND sequence BETWEEN ? AND ? LIMIT 1"
            if self._connection.execute(between, (number, min(wanted), max(wanted))).fetchone() is not None:
                there = self._connection.execute(
                    """SELECT sequence FROM json_each(?) AS wanted
                    CROSS JOIN events ON events.writer = ? AND events.sequence = wanted.value""",
                    (as_json(wanted), number),
                )
                known.update(event_id(writer, sequence) for (sequence,) in there)
            if self._blocks.is_used:
                known.update(event_id(writer, sequence) for sequence in self._blocks.known(number, wanted))
        return known

    def _differs(self, event: Event, known: Event | None) -> bool:
        known = known or self.event(event.id)
        return known is None or not may_stand_for(known, event)

    def _new_place(self, event: Event, own: Key, parent: Place | None) -> Place:
        root = own
        if event.parent_id is not None:
            root = self._words.key(event.root_id) if parent is None else parent.root
        return Place(event.id, event.root_id, event.depth, own, root)

    def _row(self, event: Event, place: Place, parent: Place | None, position: int) -> Row:
        """An event as a row of the table, its words interned."""
        body = event.body
        is_inline = len(body) <= INLINE_BYTES_MAX
        if parent is not None:
            above: Key | tuple[None, None] = parent.own
        else:
            above = (None, None) if event.parent_id is None else self._words.key(event.parent_id)
        return (
            position,
            *place.own,
            self._words.numbers["names"].get(event.name) or self._words.number("names", event.name),
            microseconds(event.at),
            self._words.context_number(event.context),
            *place.root,
            *above,
            event.depth,
            _ORIGIN[event.origin],
            event.error,
            body.decode() if is_inline else None,
            None if is_inline else self._payload_number(body),
        )

    def _payload_number(self, body: bytes) -> int:
        name = digest(body)
        row = self._connection.execute("SELECT id FROM payloads WHERE digest = ?", (name,)).fetchone()
        if row is not None:
            return int(row[0])
        self._connection.execute(
            "INSERT INTO payloads (digest, size_bytes, body) VALUES (?, ?, ?)", (name, len(body), compressed(body))
        )
        return self._connection.last_insert_rowid()

    # -- Reading ----------------------------------------------------------------------------------------------

    def _rows(self, statement: str, bindings: apsw.Bindings = ()) -> Iterator[Row]:
        with translated(self._path):
            yield from self._connection.execute(statement, bindings)

    def _one(self, statement: str, bindings: apsw.Bindings = ()) -> Row:
        return next(iter(self._rows(statement, bindings)))

    def _table(self, rest: str, bindings: apsw.Bindings = ()) -> list[Row]:
        """Events that are rows."""
        with translated(self._path):
            return self._connection.execute(f"SELECT {COLUMNS} FROM events {rest}", bindings).fetchall()

    def _row_of(self, key: Key | None) -> Row | None:
        """The event of this id, as a row."""
        if key is None:
            return None
        rows = self._table("WHERE writer = ? AND sequence = ?", key)
        if not rows and self._blocks.is_used and (position := self._blocks.position(*key)) is not None:
            rows = self._blocks.at([position])
        return rows[0] if rows else None

    def _at(self, positions: Sequence[int]) -> list[Event]:
        """The events at these positions, in order of position."""
        rows = self._table("WHERE position IN (SELECT value FROM json_each(?))", (as_json(positions),))
        if self._blocks.is_used:
            rows += self._blocks.at(positions)
        self._words.learn_contexts(map(_CONTEXT, rows))
        return [self._event(row) for row in sorted(rows, key=_POSITION)]

    def _marks(self, positions: Sequence[int]) -> list[Mark]:
        """The marks at these positions, in this order. Marks never change, so the latest read are kept."""
        known = {position: mark for position in positions if (mark := self._marks_read.get(position)) is not None}
        for event in self._at([position for position in positions if position not in known]):
            mark = mark_of(event)
            known[event.position or 0] = mark
            if len(mark.text) <= KEPT_CHARACTERS_MAX:
                remember(self._marks_read, event.position or 0, mark, limit=KEPT_MARKS_MAX)
        return [known[position] for position in positions if position in known]

    def _ordered(self, rows: Iterable[Row]) -> list[Event]:
        """Events by time and position, each once."""
        return [self._event(row) for row in sorted({row[0]: row for row in rows}.values(), key=_TIME)]

    def _whole_log(self, count: Callable[[int], None] = unheard) -> Iterator[Event]:
        last = 0
        while batch := self.log(last, limit=READ_ROWS):
            yield from batch
            count(len(batch))
            last = batch[-1].position or 0

    def _event(self, row: Row) -> Event:
        (position, writer, sequence, name, at, context, root_writer, root_sequence, parent_writer, parent_sequence,
         depth, origin, error, data, payload) = row  # fmt: skip
        if data is None:
            body = expanded(self._one("SELECT body FROM payloads WHERE id = ?", (payload,))[0])
        else:
            body = data if isinstance(data, bytes) else data.encode()
        parent = None if parent_writer is None else self._words.id(parent_writer, parent_sequence)
        identifier = self._words.id(writer, sequence)
        is_root = root_sequence == sequence and root_writer == writer
        return Event(
            id=identifier,
            name=self._words.word("names", name),
            at=moment(at),
            body=body,
            context=self._words.context(context),
            root_id=identifier if is_root else self._words.id(root_writer, root_sequence),
            parent_id=parent,
            depth=depth,
            origin=ORIGINS[origin],
            error=bool(error),
            position=position,
        )

    def _place(self, identifier: EventId) -> Place | None:
        """Where a stored event stands in its chain."""
        if (place := self._places.get(identifier)) is not None:
            return place
        if (key := self._words.known_key(identifier)) is None:
            return None
        row = self._connection.execute(
            "SELECT root_writer, root_sequence, depth FROM events WHERE writer = ? AND sequence = ?", key
        ).fetchone()
        if row is None and self._blocks.is_used and (header := self._blocks.header(*key)) is not None:
            row = header.root_writer, header.root_sequence, header.depth
        if row is None:
            return None
        place = Place(identifier, self._words.id(row[0], row[1]), row[2], key, (row[0], row[1]))
        remember(self._places, identifier, place)
        return place

"""The shared store: the spaces of many machines in one PostgreSQL, each behind row-level security.

Every call is one transaction. Reads see one snapshot. Appends lock the row of their space until the commit: positions
have no gaps and become visible in their order, so a reader that remembers its position never steps over a late commit.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import date, datetime, timedelta
from functools import partial
from itertools import count, groupby
from operator import itemgetter
from pathlib import Path

from mica.errors import ClaimLost, DuplicateEvent, InvalidEvent
from mica.model.crystal import Crystal, CrystalQuery
from mica.model.event import (
    Appended,
    Claim,
    Clock,
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
    WriterId,
    is_tombstone,
    mark_of,
    microseconds,
    new_writer,
    searchable_text,
    split_id,
    utc_now,
)
from mica.model.trail import Lesson, Trail, TrailQuery
from mica.store.codec import CACHE_ENTRIES_MAX, Together
from mica.store.leases import check_lease, check_moment, check_words
from mica.store.postgres import crystals as postgres_crystals
from mica.store.postgres import replies as postgres_replies
from mica.store.postgres import texts as postgres_texts
from mica.store.postgres import trails as postgres_trails
from mica.store.postgres import work as postgres_work
from mica.store.postgres.append import Draft, Drafts, Indexed, Place, Writing, chunks, drafted, indexed
from mica.store.postgres.crystals import Crystallizing
from mica.store.postgres.purges import TABLES, bury, keep_purge, outstanding
from mica.store.postgres.rows import POSITION_MAX, Reading
from mica.store.postgres.server import (
    FAILURES,
    LONG_S,
    PATIENCE_S,
    Address,
    Connection,
    Pool,
    connect,
    parse_address,
    translated,
)
from mica.store.postgres.space import READ, WRITE, PostgresSpace, reading
from mica.store.postgres.statements import AT_FOUND, AT_KEYS, AT_POSITIONS, HERE, latest
from mica.store.postgres.verify import broken
from mica.store.postgres.words import read
from mica.store.protocol import (
    Sizes,
    unheard,
    wanted_terms,
)
from mica.store.purges import Outstanding, Purge, may_stand_for

WRITERS_MAX = 10_000  # whose highest sequence is kept: a megabyte; an importer may have a writer for each transcript

_NOTIFY = "SELECT set_config('synchronous_commit', 'off', true), pg_notify('mica_{space}', '{last}')"
_WRITER = f"(SELECT id FROM writers WHERE space = {HERE} AND name = $2)"


class PostgresStore(PostgresSpace):
    """A space on a server. Open it with `await PostgresStore.open(address)`."""

    def __init__(self, address: Address, pool: Pool, *, home: Path | None = None, clock: Clock = utc_now) -> None:
        super().__init__(address, pool, home=home, clock=clock)
        self._places: dict[EventId, Place] = {}  # of events that are stored
        self._tip = -1  # the last position when this store last appended
        self._highest: dict[WriterId, int] = {}  # and the highest sequences of some writers then
        self._outstanding: Outstanding | None = None  # unknown until something is written
        self._appending = asyncio.Lock()  # one connection waits for the lock on the server, the others can read

    # -- Append -----------------------------------------------------------------------------------------------

    async def append(self, events: Sequence[Event]) -> Appended:
        self._pool_or_raise()
        if not events:
            return Appended()
        planned: dict[EventId, int] = {}
        async with self._appending:
            return await self._patiently(lambda: self._append(events, planned))

    async def _append(self, events: Sequence[Event], planned: dict[EventId, int]) -> Appended:
        """One try. `planned` is where the try before meant to store each event, and then where this one does."""
        earlier = dict(planned)
        planned.clear()
        await self._make_months(_months_of(events))
        first, *others = chunks(events)
        drafts = await _drafted(first, self._places)
        done = Appended()
        async with self._transaction(WRITE) as connection:
            writing = await self._lock(connection, expected=len(events))
            for following in [*others, ()]:
                writing.places |= drafts.places
                there, new = await self._checked(writing, drafts)
                prepared = await writing.prepare(new)
                planned |= prepared.positions
                wrote, upcoming = await asyncio.gather(
                    prepared.write(),  # begins first, so that the server is busy while the next are drafted
                    _drafted(following, writing.places, self._places),
                    return_exceptions=True,  # the connection is free again only when both have ended
                )
                if isinstance(wrote, BaseException):
                    raise wrote
                if isinstance(upcoming, BaseException):
                    raise upcoming
                await Crystallizing(writing, self._reads(connection)).index(
                    (prepared.positions[draft.event.id], draft.event) for draft in new
                )
                # What stands exactly where the try before meant to put it was stored by that try; its answer was lost.
                before = sum(earlier.get(identifier) == position for identifier, position in there.items())
                repeated = len(there) - before + drafts.repeated
                done = Appended(done.stored + len(new) + before, done.repeated + repeated)
                drafts = upcoming
            if len(planned) < len(events):
                await connection.execute(
                    "UPDATE spaces SET last_position = $2 WHERE number = $1", self._number, writing.last
                )
            await connection.execute("COMMIT")
            if planned:
                # A hint for who listens: who misses it finds the events all the same, so no failure of it counts.
                # After the commit, not in it: commits that notify wait for each other in the whole cluster. Nobody
                # waits until it is on disk.
                with suppress(*FAILURES):
                    await connection.execute(_NOTIFY.format(space=self._space, last=writing.last))
        self._words.keep()
        self._tip, self._highest = writing.last, writing.highest if len(writing.highest) < WRITERS_MAX else {}
        if len(self._places) + len(writing.places) > CACHE_ENTRIES_MAX:
            self._places.clear()
        self._places |= writing.places  # only now: what was not committed must not be remembered
        return done

    async def _checked(self, writing: Writing, drafts: Drafts) -> tuple[dict[EventId, int], list[Draft]]:
        """Where those of these events are that are there already, and the others as they are to be stored.

        What earlier chunks wrote is there for this one, though not yet for others.
        """
        there = await writing.positions(drafts.drafts)
        await writing.check_parents(drafts.strangers)
        new = drafts.drafts
        if there:
            stored = {event.id: event for event in await self._reads(writing.connection).at(there.values())}
            for draft in new:
                if draft.event.id in there and not may_stand_for(stored[draft.event.id], draft.event):
                    raise DuplicateEvent(draft.event.id)
            new = [draft for draft in new if draft.event.id not in there]
        return there, [self._applied(draft) for draft in new]

    def _applied(self, draft: Draft) -> Draft:
        """The draft, or that of a tombstone when a purge took the event before it arrived."""
        assert self._outstanding is not None  # known since the lock
        kept = self._outstanding.applied(draft.event)
        return draft if kept is draft.event else drafted([kept]).drafts[0]

    async def _lock(self, connection: Connection, *, expected: int = 0) -> Writing:
        """Wait until no other append is under way in this space, and take so many positions."""
        self._words.begin()
        last, generation = await connection.fetchrow(
            """UPDATE spaces SET last_position = last_position + $2 WHERE number = $1
            RETURNING last_position - $2, generation""",
            self._number,
            expected,
        )
        if generation != self._generation or self._outstanding is None:
            self._words.forget()
            self._outstanding = await outstanding(connection, self._number)
            self._generation = generation
        highest = self._highest if last == self._tip else {}  # nobody else has written since
        return Writing(connection, self._number, self._words, after=last, highest=highest)

    # -- Read -------------------------------------------------------------------------------------------------

    @reading
    async def event(self, connection: Connection, identifier: EventId) -> Event | None:
        writer, sequence = split_id(identifier)
        found = await self._reads(connection).found(
            f"FROM keys {AT_KEYS} WHERE keys.space = {HERE} AND keys.writer = {_WRITER} AND keys.sequence = $3",
            writer,
            sequence,
        )
        return found[0] if found else None

    @reading
    async def events_of(self, connection: Connection, identifiers: Sequence[EventId]) -> list[Event]:
        reads = self._reads(connection)
        found = {event.id: event for event in await reads.at(await reads.positions(dict.fromkeys(identifiers)))}
        return [found[identifier] for identifier in dict.fromkeys(identifiers) if identifier in found]

    @reading
    async def event_at(self, connection: Connection, position: int) -> Event | None:
        found = await self._reads(connection).at([position])
        return found[0] if found else None

    @reading
    async def events(self, connection: Connection, query: EventQuery) -> list[Event]:
        wanted = None if query.text is None else wanted_terms(query.text)
        contexts = await self._reads(connection).fitting_contexts(query)
        names = await self._reads(connection).fitting_names(query.names) if query.names else None
        terms = None
        if wanted is not None:
            terms = list((await self._words.known_numbers(connection, "terms", wanted)).values())
            if len(terms) < len(wanted):
                return []
        rest, values = latest(query, contexts=contexts, names=names, terms=terms)
        return (await self._reads(connection).found(rest, *values))[::-1]

    @reading
    async def log(self, connection: Connection, after: int, *, limit: int) -> list[Event]:
        return await self._reads(connection).after(after, limit=limit)

    @reading
    async def last_position(self, connection: Connection) -> int:
        found = await connection.fetchval("SELECT last_position FROM spaces WHERE number = $1", self._number)
        return int(found)

    hears = False  # a process that is killed after its commit has notified nobody

    @reading
    async def chain(self, connection: Connection, correlation: str) -> list[Event]:
        try:
            writer, sequence = split_id(correlation)
        except InvalidEvent:
            writer, sequence = WriterId(""), -1  # no root has this id
        return await self._reads(connection).found(
            f"""FROM (
                SELECT at, position FROM events WHERE space = {HERE} AND root_writer = {_WRITER} AND root_sequence = $3
                UNION
                SELECT events.at, events.position FROM contexts CROSS JOIN LATERAL (
                    SELECT at, position FROM events WHERE space = {HERE} AND context = contexts.id OFFSET 0
                ) AS events WHERE contexts.space = {HERE} AND contexts.correlation = $4
            ) AS found {AT_FOUND} ORDER BY events.at, events.position""",
            writer,
            sequence,
            correlation.encode(),
        )

    @reading
    async def ancestors(self, connection: Connection, identifier: EventId) -> list[Event]:
        return await self._reads(connection).found(
            f"""FROM (
                WITH RECURSIVE line (at, position, writer, sequence) AS (
                    SELECT NULL::bigint, NULL::bigint, parent_writer, parent_sequence FROM keys {AT_KEYS}
                    WHERE keys.space = {HERE} AND keys.writer = {_WRITER} AND keys.sequence = $3
                    UNION
                    SELECT events.at, events.position, events.parent_writer, events.parent_sequence FROM line
                    CROSS JOIN LATERAL (
                        SELECT * FROM keys WHERE space = {HERE}
                            AND writer = line.writer AND sequence = line.sequence OFFSET 0
                    ) AS keys {AT_KEYS}
                )
                SELECT at, position FROM line WHERE position IS NOT NULL
            ) AS found {AT_FOUND} ORDER BY depth DESC""",
            *split_id(identifier),
        )

    @reading
    async def descendants(
        self, connection: Connection, identifier: EventId, *, depth: int | None = None
    ) -> list[Event]:
        return await self._reads(connection).found(
            f"""FROM (
                WITH RECURSIVE deepest (depth) AS (
                    SELECT events.depth + $4::bigint FROM keys {AT_KEYS}
                    WHERE keys.space = {HERE} AND keys.writer = {_WRITER} AND keys.sequence = $3
                ), below (at, position, writer, sequence) AS (
                    SELECT NULL::bigint, NULL::bigint, {_WRITER}, $3::bigint
                    UNION
                    SELECT events.at, events.position, events.writer, events.sequence FROM below
                    CROSS JOIN LATERAL (
                        SELECT * FROM events WHERE space = {HERE}
                            AND parent_writer = below.writer AND parent_sequence = below.sequence OFFSET 0
                    ) AS events WHERE events.depth <= coalesce((SELECT depth FROM deepest), events.depth)
                )
                SELECT at, position FROM below WHERE position IS NOT NULL
            ) AS found {AT_FOUND} ORDER BY events.at, events.position""",
            *split_id(identifier),
            depth,
        )

    # -- What a ranker needs ----------------------------------------------------------------------------------

    @reading
    async def postings(
        self,
        connection: Connection,
        wanted: Sequence[str],
        *,
        weights: Mapping[str, float] | None = None,
        limit: int | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
    ) -> Postings:
        return await postgres_texts.listed(
            connection, self._number, wanted, weights or {}, limit=limit, since=since, until=until
        )

    @reading
    async def postings_at(
        self, connection: Connection, wanted: Sequence[str], positions: Sequence[int]
    ) -> dict[str, tuple[Posting, ...]]:
        return await postgres_texts.listed_at(connection, self._number, wanted, positions)

    async def save_vectors(self, model: str, vectors: Mapping[int, bytes]) -> None:
        async def once() -> None:
            async with self._transaction(WRITE) as connection:
                await self._lock(connection)
                await postgres_texts.save_vectors(connection, self._number, model, vectors)

        async with self._appending:
            await self._patiently(once)

    @reading
    async def vectors(self, connection: Connection, model: str, *, after: int = 0, limit: int) -> Vectors:
        return await postgres_texts.vectors(connection, self._number, model, after=after, limit=limit)

    async def save_trails(self, trails: Sequence[Trail], lesson: Lesson) -> bool:
        async def once() -> bool:
            async with self._transaction(WRITE) as connection:
                await self._lock(connection)
                return await postgres_trails.save(connection, self._number, trails, lesson)

        async with self._appending:
            return await self._patiently(once)

    async def save_replies(self, replies: Sequence[Reply], *, generation: int) -> bool:
        async def once() -> bool:
            async with self._transaction(WRITE) as connection:
                await self._lock(connection)
                assert self._outstanding is not None  # known since the lock
                kept = self._outstanding.without_purged(replies)
                return await postgres_replies.save(connection, self._number, kept, generation=generation)

        async with self._appending:
            return await self._patiently(once)

    @reading
    async def replies(self, connection: Connection, concept: str) -> list[Reply]:
        return await postgres_replies.found(connection, self._number, concept)

    @reading
    async def replied(self, connection: Connection) -> list[str]:
        return await postgres_replies.concepts(connection, self._number)

    @reading
    async def lesson(self, connection: Connection) -> Lesson:
        return await postgres_trails.lesson_of(connection, self._number)

    @reading
    async def trails(self, connection: Connection, query: TrailQuery) -> list[Trail]:
        return await postgres_trails.found(connection, self._number, query)

    @reading
    async def without_vector(self, connection: Connection, model: str, *, limit: int) -> list[tuple[int, str]]:
        missing = await postgres_texts.without_vector(connection, self._number, model, limit=limit)
        found = await self._reads(connection).at(missing)
        return [(event.position or 0, searchable_text(event) or "") for event in reversed(found)]

    @reading
    async def texts(self, connection: Connection, positions: Sequence[int], *, neighbours: int = 2) -> list[Text]:
        wanted = {position for position in positions if 0 < position <= POSITION_MAX}
        rows = await connection.fetch(
            f"SELECT position, length, session FROM texts WHERE space = {HERE} AND is_mark AND {AT_POSITIONS}",
            self._number,
            sorted(wanted),
        )
        found = {position: (length, 0, length) for position, length, session in rows if session is None}
        by_session: defaultdict[int, list[int]] = defaultdict(list)
        for position, _, session in rows:
            if session is not None:
                by_session[session].append(position)
        in_order = await connection.fetch(
            f"""SELECT session, position, length FROM texts
            WHERE space = {HERE} AND session = ANY ($2::integer[]) AND is_mark ORDER BY session, at, position""",
            self._number,
            list(by_session),
        )
        for session, grouped in groupby(in_order, itemgetter(0)):
            marks = list(grouped)
            together = Together([each[1] for each in marks], [each[2] for each in marks])
            found |= together.near(by_session[session], neighbours=neighbours)
        return [
            Text(mark=mark_of(event), position=position, length=length, ordinal=ordinal, session_length=whole)
            for event in await self._reads(connection).at(found)
            for position in [event.position or 0]
            for length, ordinal, whole in [found[position]]
        ]

    @reading
    async def crystals(self, connection: Connection, query: CrystalQuery) -> list[Crystal]:
        return await postgres_crystals.found(self._reads(connection), query)

    @reading
    async def unsealed(
        self,
        connection: Connection,
        *,
        limit: int,
        session: str | None = None,
        latest: bool = False,
        after: int | None = None,
    ) -> list[Event]:
        return await postgres_crystals.unsealed(
            self._reads(connection), limit, session=session, latest=latest, after=after
        )

    @reading
    async def citing(self, connection: Connection, identifiers: Sequence[EventId]) -> list[EventId]:
        reads = self._reads(connection)
        return await postgres_crystals.citing(reads, await reads.positions(identifiers))

    @reading
    async def crystal_postings(
        self, connection: Connection, wanted: Sequence[str], query: CrystalQuery
    ) -> dict[str, tuple[Posting, ...]]:
        positions = await postgres_crystals.positions(self._reads(connection), query)
        return await postgres_texts.listed_at(connection, self._number, wanted, positions, only_marks=False)

    @reading
    async def above(self, connection: Connection, positions: Sequence[int]) -> dict[int, frozenset[int]]:
        return await postgres_crystals.above(self._reads(connection), positions)

    @reading
    async def agents(self, connection: Connection) -> list[str]:
        rows = await connection.fetch(
            "SELECT DISTINCT agent FROM contexts WHERE space = $1 AND agent IS NOT NULL ORDER BY agent", self._number
        )
        return [read(agent) for (agent,) in rows]

    # -- Work -------------------------------------------------------------------------------------------------

    async def plan(self, kind: str, *, about: str = "", due_at: datetime, only_new: bool = False) -> None:
        check_words(kind=kind, about=about)
        check_moment("due_at", due_at)

        async def once() -> None:
            async with self._transaction(WRITE) as connection:
                await postgres_work.plan(
                    connection, self._number, kind, about, due_at=microseconds(due_at), only_new=only_new
                )

        await self._patiently(once)

    async def claim(self, kinds: Collection[str], *, owner: str, due_by: datetime, lease: timedelta) -> Claim | None:
        check_words(owner=owner)
        check_moment("due_by", due_by)
        check_lease(lease)
        identifier = new_writer()  # one for all tries: what the first has taken is found by the next

        async def once() -> Claim | None:
            async with self._transaction(WRITE) as connection:
                return await postgres_work.claim(
                    connection, self._number, identifier, kinds, owner=owner, due_by=microseconds(due_by), lease=lease
                )

        return await self._patiently(once)

    async def renew(self, claim: Claim, *, lease: timedelta) -> Claim:
        check_lease(lease)

        async def once() -> Claim | None:
            async with self._transaction(WRITE) as connection:
                return await postgres_work.renew(connection, self._number, claim, lease=lease)

        renewed = await self._patiently(once)
        if renewed is None:
            raise ClaimLost(claim.kind, claim.about, claim.owner)
        return renewed

    async def finish(self, claim: Claim, *, again_at: datetime | None = None) -> None:
        if again_at is not None:
            check_moment("again_at", again_at)
        tries = count(1)

        async def once() -> bool:
            is_first = next(tries) == 1
            async with self._transaction(WRITE) as connection:
                is_ours = await postgres_work.finish(
                    connection, self._number, claim, again_at=None if again_at is None else microseconds(again_at)
                )
            return is_ours or not is_first  # an earlier try was committed, and its answer lost

        if not await self._patiently(once):
            raise ClaimLost(claim.kind, claim.about, claim.owner)

    @reading
    async def work(self, connection: Connection) -> list[Work]:
        return await postgres_work.work(connection, self._number)

    # -- Keep -------------------------------------------------------------------------------------------------

    @reading
    async def names(self, connection: Connection) -> list[str]:
        """The names of the spaces that this role may enter, in their order."""
        return [row[0] for row in await connection.fetch("SELECT name FROM spaces ORDER BY name")]

    @reading
    async def sizes(self, connection: Connection) -> Sizes:
        """As promised; the size is that of the whole schema, which the spaces share."""
        events, marks, contexts, payloads, size = await connection.fetchrow(
            """SELECT (SELECT count(*) FROM keys WHERE space = $1),
            (SELECT count(*) FROM texts WHERE space = $1 AND is_mark),
            (SELECT count(*) FROM contexts WHERE space = $1),
            (SELECT count(*) FROM payloads WHERE space = $1),
            (SELECT sum(pg_total_relation_size(oid))::bigint FROM pg_class
                WHERE relnamespace = current_schema()::regnamespace AND relkind = 'r')""",
            self._number,
        )
        return Sizes(events=events, marks=marks, contexts=contexts, payloads=payloads, size_bytes=size)

    async def verify(self, *, on_progress: Callable[[int], None] = unheard) -> list[str]:
        async def once() -> list[str]:
            async with self._transaction(READ, patience_s=LONG_S) as connection:
                return await broken(self._reads(connection), on_progress)

        return await self._patiently(once)

    async def age(self, before: datetime, *, limit: int = 8_192, at_least: int = 1) -> int:
        """Nothing: the log is partitioned by month, and a closed partition is never written again.

        What a table takes is the server's to decide: a role that does not own it cannot compact it.
        """
        self._pool_or_raise()
        return 0

    async def rebuild(self, *, on_progress: Callable[[int], None] = unheard) -> int:
        async with self._appending:
            return await self._patiently(partial(self._rebuild, on_progress))

    async def _rebuild(self, on_progress: Callable[[int], None]) -> int:
        count = 0
        async with self._transaction(WRITE, patience_s=LONG_S) as connection:
            writing = await self._lock(connection)
            for table in ("postings", "texts", "vectors"):
                await connection.execute(f"DELETE FROM {table} WHERE space = $1", self._number, timeout=LONG_S)
            await postgres_crystals.clear(connection, self._number)
            await postgres_trails.clear(connection, self._number)
            await postgres_replies.clear(connection, self._number)
            reads = self._reads(connection)
            crystallizing = Crystallizing(writing, reads)
            async for batch in reads.whole_log():
                await writing.index(await asyncio.to_thread(_indexed, batch))
                await crystallizing.index_stored((event.position or 0, event) for event in batch)
                count += len(batch)
                on_progress(count)
        self._words.keep()
        return count

    # -- Purge ------------------------------------------------------------------------------------------------

    @property
    def generation(self) -> int:
        return self._generation

    async def bury(self, identifiers: Sequence[EventId], told: Tombstone) -> int:
        async def once() -> int:
            async with self._transaction(WRITE) as connection:
                writing = await self._lock(connection)
                there = await writing.positions_of(set(identifiers))
                found = await self._reads(connection).at(there.values())
                content = [event for event in found if not is_tombstone(event)]
                if content:
                    await bury(connection, self._number, self._words, content, told)
            self._words.forget()
            return len(content)

        async with self._appending:
            return await self._patiently(once)

    async def keep_purge(self, purge: Purge) -> None:
        async def once() -> None:
            async with self._transaction(WRITE) as connection:
                await self._lock(connection)
                await keep_purge(connection, self._number, purge)

        async with self._appending:
            await self._patiently(once)

    @reading
    async def purges(self, connection: Connection) -> list[Purge]:
        return list((await outstanding(connection, self._number)).purges)

    async def scrub(self) -> list[str]:
        """As promised, as far as a client can: see docs/postgres.md."""
        host = self._address.host
        left = f"PostgreSQL at {host} keeps old rows until it vacuums, and in its write-ahead log and backups"
        with translated(self._address):
            async with self._pool_or_raise().acquire(timeout=PATIENCE_S) as connection:
                is_owner = await connection.fetchval(
                    "SELECT pg_has_role(nspowner, 'USAGE') FROM pg_namespace WHERE nspname = $1", self._address.schema
                )
                if is_owner:
                    tables = ", ".join(f"{self._address.schema}.{table}" for table in TABLES)
                    await connection.execute(f"VACUUM {tables}", timeout=LONG_S)
        return [left] if is_owner else [f"{left}; its owner can run VACUUM in schema {self._address.schema}"]

    def _reads(self, connection: Connection) -> Reading:
        return Reading(connection, self._number, self._words)


async def prepare(address: str, *, admitted: Iterable[str] = (), clock: Clock = utc_now) -> None:
    """Make or migrate the schema as its owner, and let these roles use it. It makes no space: a space is its user's."""
    parsed = parse_address(address, space="none")
    store = PostgresStore(parsed, await connect(parsed), clock=clock)
    try:
        await store._prepare()
        async with store._transaction(WRITE) as connection:
            for role in admitted:
                await connection.execute("SELECT admit(quote_ident($1)::regrole)", role)
    finally:
        await store.close()


def _indexed(events: Iterable[Event]) -> list[tuple[int, Event, Indexed]]:
    return [(event.position or 0, event, found) for event in events if (found := indexed(event)) is not None]


async def _drafted(events: Sequence[Event], *known: Mapping[EventId, Place]) -> Drafts:
    return await asyncio.to_thread(drafted, events, *known) if events else Drafts([], {}, [], 0)


def _months_of(events: Iterable[Event]) -> set[date]:
    return {date(year, month, 1) for year, month in {(event.at.year, event.at.month) for event in events}}

"""The PostgreSQL implementation of `EventLog`, the append-only log.

Appends lock the row of their space until the commit: positions have no gaps and become visible in order, so a reader
that remembers its position never misses an event.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import date

from mica.errors import DuplicateEvent
from mica.model.event import Appended, Event, EventId, EventQuery, split_id
from mica.store.checks import ChainPlace
from mica.store.codec import CACHE_ENTRIES_MAX
from mica.store.postgres.append import Drafts, Key, PreparedEvent, WriteTransaction, chunks, draft_events
from mica.store.postgres.crystals import CrystalRowWriter
from mica.store.postgres.server import FAILURES, Connection
from mica.store.postgres.space import WRITE, PostgresRole, PostgresSpace, reading
from mica.store.postgres.statements import AT_KEYS, HERE, OF_WRITER, latest
from mica.store.purges import is_same_or_tombstone
from mica.store.query import query_terms

WRITERS_MAX = 10_000  # with a cached highest sequence, a megabyte; an import may have one writer per transcript

_NOTIFY = "SELECT set_config('synchronous_commit', 'off', true), pg_notify('mica_{space}', '{last}')"


class PostgresLog(PostgresRole):
    """Implements `EventLog` in PostgreSQL."""

    def __init__(self, space: PostgresSpace) -> None:
        super().__init__(space)
        self._places: dict[EventId, ChainPlace[Key]] = {}  # of stored events

    async def append(self, events: Sequence[Event]) -> Appended:
        self._space.pool()
        if not events:
            return Appended()
        planned: dict[EventId, int] = {}
        async with self._space.appending:
            return await self._space.run_with_retries(lambda: self._append(events, planned))

    async def _append(self, events: Sequence[Event], planned: dict[EventId, int]) -> Appended:
        """Make one attempt to append these events.

        `planned` maps event ids to the positions that the previous attempt assigned; this attempt replaces them. An
        event that is already stored at its planned position was stored by the previous attempt, whose answer was lost.
        It counts as stored, not as repeated.
        """
        earlier = dict(planned)
        planned.clear()
        await self._space.make_months(_months_of(events))
        first, *others = chunks(events)
        drafts = await _draft_in_thread(first, self._places)
        done = Appended()
        async with self._space.transaction(WRITE) as connection:
            writing = await self._space.lock(connection, expected=len(events))
            for following in [*others, ()]:
                writing.places |= drafts.places
                stored, new = await self._split_stored(writing, drafts)
                prepared = await writing.prepare(new)
                planned |= prepared.positions
                wrote, upcoming = await asyncio.gather(
                    prepared.write(),  # starts first, so that the server works while the next chunk is drafted
                    _draft_in_thread(following, writing.places, self._places),
                    return_exceptions=True,  # wait for both, because the connection is in use until then
                )
                if isinstance(wrote, BaseException):
                    raise wrote
                if isinstance(upcoming, BaseException):
                    raise upcoming
                await CrystalRowWriter(writing, self._space.reads(connection)).index(
                    (prepared.positions[draft.event.id], draft.event) for draft in new
                )
                # Events at the positions of the previous attempt were stored by it, although its answer was lost.
                before = sum(earlier.get(identifier) == position for identifier, position in stored.items())
                repeated = len(stored) - before + drafts.repeated
                done = Appended(done.stored + len(new) + before, done.repeated + repeated)
                drafts = upcoming
            if len(planned) < len(events):
                await connection.execute(
                    "UPDATE spaces SET last_position = $2 WHERE number = $1", self._space.number, writing.last
                )
            await connection.execute("COMMIT")
            if planned:
                # A hint to listeners, which also poll, so failures are ignored. It is sent after the commit, because
                # commits that notify wait for each other in the whole cluster, and does not wait for the disk.
                with suppress(*FAILURES):
                    await connection.execute(_NOTIFY.format(space=self._space.id, last=writing.last))
        self._space.words.keep()
        self._space.tip, self._space.highest = (
            writing.last,
            writing.highest if len(writing.highest) < WRITERS_MAX else {},
        )
        if len(self._places) + len(writing.places) > CACHE_ENTRIES_MAX:
            self._places.clear()
        self._places |= writing.places  # only after the commit
        return done

    async def _split_stored(
        self, writing: WriteTransaction, drafts: Drafts
    ) -> tuple[dict[EventId, int], list[PreparedEvent]]:
        """Return the positions of the events that are already stored, and the new events with purges applied.

        Events of earlier chunks of the same append count as stored. Raises DuplicateEvent or InvalidEvent.
        """
        positions = await writing.positions(drafts.drafts)
        await writing.check_parents(drafts.unchecked)
        new = drafts.drafts
        if positions:
            stored = {event.id: event for event in await self._space.reads(writing.connection).at(positions.values())}
            for draft in new:
                if draft.event.id in positions and not is_same_or_tombstone(stored[draft.event.id], draft.event):
                    raise DuplicateEvent(draft.event.id)
            new = [draft for draft in new if draft.event.id not in positions]
        return positions, [self._apply_purges(draft) for draft in new]

    def _apply_purges(self, draft: PreparedEvent) -> PreparedEvent:
        """Return the draft, or the draft of a tombstone if a purge selects its event."""
        assert self._space.purge_filter is not None  # set when the space was locked
        event = self._space.purge_filter.apply(draft.event)
        return draft if event is draft.event else draft_events([event]).drafts[0]

    @reading
    async def get(self, connection: Connection, identifier: EventId) -> Event | None:
        writer, sequence = split_id(identifier)
        found = await self._space.reads(connection).select(
            f"FROM keys {AT_KEYS} WHERE keys.space = {HERE} AND keys.writer = {OF_WRITER} AND keys.sequence = $3",
            writer,
            sequence,
        )
        return found[0] if found else None

    @reading
    async def get_many(self, connection: Connection, identifiers: Sequence[EventId]) -> list[Event]:
        reads = self._space.reads(connection)
        found = {event.id: event for event in await reads.at(await reads.positions(dict.fromkeys(identifiers)))}
        return [found[identifier] for identifier in dict.fromkeys(identifiers) if identifier in found]

    @reading
    async def at(self, connection: Connection, position: int) -> Event | None:
        found = await self._space.reads(connection).at([position])
        return found[0] if found else None

    @reading
    async def query(self, connection: Connection, query: EventQuery) -> list[Event]:
        text_terms = None if query.text is None else query_terms(query.text)
        contexts = await self._space.reads(connection).fitting_contexts(query)
        names = await self._space.reads(connection).fitting_names(query.names) if query.names else None
        terms = None
        if text_terms is not None:
            terms = list((await self._space.words.known_numbers(connection, "terms", text_terms)).values())
            if len(terms) < len(text_terms):
                return []
        rest, values = latest(query, contexts=contexts, names=names, terms=terms)
        return (await self._space.reads(connection).select(rest, *values))[::-1]

    @reading
    async def read(self, connection: Connection, after: int, *, limit: int) -> list[Event]:
        return await self._space.reads(connection).after(after, limit=limit)

    @reading
    async def last_position(self, connection: Connection) -> int:
        last = await connection.fetchval("SELECT last_position FROM spaces WHERE number = $1", self._space.number)
        return int(last)


async def _draft_in_thread(events: Sequence[Event], *known: Mapping[EventId, ChainPlace[Key]]) -> Drafts:
    return await asyncio.to_thread(draft_events, events, *known) if events else Drafts([], {}, [], 0)


def _months_of(events: Iterable[Event]) -> set[date]:
    return {date(year, month, 1) for year, month in {(event.at.year, event.at.month) for event in events}}

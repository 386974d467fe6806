"""The PostgreSQL implementation of `CrystalIndex`, the index of crystals and their sources.

Its rows are derived from events. The laws that every crystal must obey are checked here and again by triggers of the
database.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence

from mica.errors import LawBroken
from mica.model.crystal import (
    LEVELS,
    Crystal,
    CrystalQuery,
    Fact,
    check_laws,
    crystal_of,
    overlap,
    retraction_target,
    source_fact,
)
from mica.model.event import CRYSTAL, PURGED, RETRACTED, Event, EventId, is_id, microseconds, tombstone_of
from mica.model.mark import Posting
from mica.store.crystal_rows import CrystalRow, CrystalRows, SourceRow
from mica.store.postgres.append import WriteTransaction
from mica.store.postgres.rows import POSITION_MAX, RowReader
from mica.store.postgres.server import LONG_S, Connection, authority
from mica.store.postgres.space import PostgresRole, reading
from mica.store.postgres.statements import AT_POSITIONS, HERE
from mica.store.postgres.texts import read_postings_at
from mica.store.protocol import LATEST_MARKS
from mica.store.query import group_by_origin

TABLES = ("crystals", "crystal_sources", "retractions")

_STALE = """EXISTS (
        SELECT FROM crystal_sources
        LEFT JOIN texts ON texts.space = $1 AND texts.position = source AND is_mark
        LEFT JOIN crystals AS below ON below.space = $1 AND below.position = source AND below.superseded_by IS NULL
        WHERE crystal_sources.space = $1 AND crystal = crystals.position
            AND texts.position IS NULL AND below.position IS NULL
    )"""
_CITING = """WITH RECURSIVE above (position) AS (
        SELECT unnest($2::bigint[])
        UNION
        SELECT crystal FROM above JOIN crystal_sources ON space = $1 AND source = above.position
    )
    SELECT position FROM above JOIN crystals USING (position) WHERE space = $1"""
_ABOVE = """WITH RECURSIVE above (origin, position) AS (
        SELECT wanted, wanted FROM unnest($2::bigint[]) AS wanted
        UNION
        SELECT origin, crystal FROM above JOIN crystal_sources ON space = $1 AND source = above.position
    )
    SELECT origin, position FROM above JOIN crystals USING (position) WHERE space = $1 AND position <> origin"""


class CrystalRowWriter:
    """Updates the rows of marks and crystals for new events, in a transaction that holds the lock of the space."""

    def __init__(self, writing: WriteTransaction, reads: RowReader) -> None:
        self._writing = writing
        self._reads = reads
        self._connection = writing.connection

    async def index(self, events: Iterable[tuple[int, Event]]) -> None:
        """Update the rows for new events. `events` are pairs of position and event.

        Raises LawBroken for a crystal that breaks a law.
        """
        for position, event in events:
            if event.name == CRYSTAL:
                await self._add(position, crystal_of(event))
            elif event.name == RETRACTED:
                await self._retract(retraction_target(event), by=position)
            elif event.name == PURGED:
                tombstone = tombstone_of(event)
                await self._supersede(tombstone.supersedes, by=position)
                if tombstone.retracts is not None:
                    await self._retract(tombstone.retracts, by=position)

    async def index_stored(self, events: Iterable[tuple[int, Event]]) -> None:
        """Update the rows for events that are already stored. A crystal that lost a source to a purge gets no row."""
        for position, event in events:
            try:
                await self.index([(position, event)])
            except LawBroken:  # before any row was written
                await self._supersede(crystal_of(event).supersedes, by=position)

    async def _add(self, position: int, crystal: Crystal) -> None:
        places = await self._positions(crystal.sources, before=position)
        facts = await self._facts(places)
        check_laws(crystal, facts)
        superseded = await self._positions(crystal.supersedes, before=position)
        sources = [places[each] for each in crystal.sources]
        if not crystal.is_tree and await self._is_sealed(sources, besides=superseded.values()):
            raise overlap(crystal)
        await self._end(superseded.values(), by=position)
        await self._connection.execute(
            """INSERT INTO crystal_sources (space, crystal, source, tokens, is_live)
            SELECT $1, $2, source, tokens, $5 FROM unnest($3::bigint[], $4::bigint[]) AS wanted (source, tokens)""",
            self._reads.space,
            position,
            sources,
            [facts[each].tokens for each in crystal.sources],
            not crystal.is_tree,
        )
        await self._connection.execute(
            """INSERT INTO crystals (space, position, level, period, start_at, end_at, tokens)
            VALUES ($1, $2, $3, $4, $5, $6, $7)""",
            self._reads.space,
            position,
            crystal.number,
            crystal.period.encode(),
            microseconds(crystal.start_at),
            microseconds(crystal.end_at),
            crystal.tokens,
        )
        retracted = await self._connection.fetchval(
            f"SELECT position FROM retractions WHERE space = {HERE} AND retracted = $2", self._reads.space, crystal.id
        )
        if retracted is not None:
            await self._end([position], by=retracted)

    async def _facts(self, places: dict[EventId, int]) -> dict[EventId, Fact]:
        """Return the properties of the sources in `places` that the laws check. Crystals without a row are left out."""
        rows = await self._connection.fetch(
            f"""SELECT position, NULL FROM texts WHERE space = {HERE} AND {AT_POSITIONS} AND is_mark
            UNION ALL SELECT position, superseded_by IS NULL FROM crystals WHERE space = {HERE} AND {AT_POSITIONS}""",
            self._reads.space,
            list(places.values()),
        )
        marks = {position for position, is_live in rows if is_live is None}
        crystals = {position: is_live for position, is_live in rows if is_live is not None}
        facts: dict[EventId, Fact] = {}
        for event in await self._reads.at(places.values()):
            position = event.position or 0
            if event.name == CRYSTAL:
                fact = source_fact(event, is_live=crystals[position]) if position in crystals else None
            else:
                fact = source_fact(event, is_live=position in marks)
            if fact is not None:
                facts[event.id] = fact
        return facts

    async def _is_sealed(self, sources: Sequence[int], *, besides: Iterable[int]) -> bool:
        return bool(
            await self._connection.fetchval(
                f"""SELECT EXISTS (SELECT FROM crystal_sources
                WHERE space = {HERE} AND source = ANY ($2::bigint[]) AND is_live AND crystal <> ALL ($3::bigint[]))""",
                self._reads.space,
                sources,
                list(besides),
            )
        )

    async def _positions(self, identifiers: Iterable[EventId], *, before: int) -> dict[EventId, int]:
        """Return the positions of these events, if they are stored before position `before`."""
        known = await self._writing.positions_of(filter(is_id, identifiers))
        return {identifier: position for identifier, position in known.items() if position < before}

    async def _supersede(self, identifiers: Sequence[EventId], *, by: int) -> None:
        if identifiers:
            await self._end((await self._positions(identifiers, before=by)).values(), by=by)

    async def _retract(self, identifier: EventId, *, by: int) -> None:
        await self._connection.execute(
            "INSERT INTO retractions (space, retracted, position) VALUES ($1, $2, $3) ON CONFLICT DO NOTHING",
            self._reads.space,
            identifier,
            by,
        )
        known = list((await self._writing.positions_of([identifier])).values())
        await self._connection.execute(
            f"UPDATE texts SET is_mark = false WHERE space = {HERE} AND {AT_POSITIONS} AND is_mark",
            self._reads.space,
            known,
        )
        await self._end(known, by=by)

    async def _end(self, positions: Iterable[int], *, by: int) -> None:
        """Mark the crystals at these positions, if any, as superseded by the event at position `by`."""
        ended = await self._connection.fetch(
            f"""UPDATE crystals SET superseded_by = $3
            WHERE space = {HERE} AND {AT_POSITIONS} AND superseded_by IS NULL RETURNING position""",
            self._reads.space,
            list(positions),
            by,
        )
        if ended:
            await self._connection.execute(
                f"""UPDATE crystal_sources SET is_live = false
                WHERE space = {HERE} AND crystal = ANY ($2::bigint[]) AND is_live""",
                self._reads.space,
                [position for (position,) in ended],
            )


async def _read(reads: RowReader, query: CrystalQuery) -> list[Crystal]:
    crystals = map(crystal_of, await reads.at(await _positions(reads, query)))
    return sorted(crystals, key=lambda crystal: (crystal.end_at, crystal.position))


async def _positions(reads: RowReader, query: CrystalQuery) -> list[int]:
    """Return the positions of the matching crystals, up to the limit of the query; those that end last come first."""
    values: list[object] = [reads.space]
    conditions = ["space = $1"]

    def require(condition: str, value: object) -> None:
        if value is not None:
            values.append(value)
            conditions.append(condition.format(f"${len(values)}"))

    require("level = {}", None if query.level is None else LEVELS.index(query.level))
    require("period = {}", None if query.period is None else query.period.encode())
    require("end_at >= {}", None if query.since is None else microseconds(query.since))
    require("start_at < {}", None if query.until is None else microseconds(query.until))
    require("(superseded_by IS NULL) = {}", query.is_live)
    sealed = "EXISTS (SELECT FROM crystal_sources WHERE space = $1 AND source = crystals.position AND is_live)"
    require(f"{sealed} = {{}}", query.is_sealed)
    require(f"{_STALE} = {{}}", query.is_stale)
    require("position = ANY ({}::bigint[])", None if query.positions is None else sorted(query.positions))
    values.append(query.limit)
    rows = await reads.connection.fetch(
        f"""SELECT position FROM crystals WHERE {" AND ".join(conditions)}
        ORDER BY end_at DESC, position DESC LIMIT ${len(values)}::bigint""",
        *values,
    )
    return [position for (position,) in rows]


async def _unsealed(
    reads: RowReader, limit: int, *, session: str | None, latest: bool, after: int | None
) -> list[Event]:
    condition = "position > $3"
    if session is not None:
        condition += " AND session = (SELECT id FROM sessions WHERE space = $1 AND name = $4)"
    window = f"ORDER BY at DESC, position DESC LIMIT {LATEST_MARKS}" if latest else ""
    order = "at DESC, position DESC" if latest else "at, position" if after is None else "position"
    rows = await reads.connection.fetch(
        f"""SELECT position FROM (
            SELECT position, at FROM texts WHERE space = $1 AND is_mark AND {condition} {window}
        ) AS marks WHERE NOT EXISTS (
            SELECT FROM crystal_sources WHERE space = $1 AND source = marks.position AND is_live
        ) ORDER BY {order} LIMIT $2::bigint""",
        reads.space,
        limit,
        after or 0,
        *([] if session is None else [session.encode()]),
    )
    return sorted(await reads.at(position for (position,) in rows), key=lambda event: event.sort_key)


async def _citing(reads: RowReader, positions: Sequence[int]) -> list[EventId]:
    """Return the ids of all crystals, live or superseded, with a direct or indirect source at these positions."""
    rows = await reads.connection.fetch(_CITING, reads.space, positions)
    return [event.id for event in await reads.at({position for (position,) in rows}.difference(positions))]


async def _above(reads: RowReader, wanted: Sequence[int]) -> dict[int, frozenset[int]]:
    """Return, for each position, the positions of the crystals that have the event there as a source.

    Sources of sources count too.
    """
    known = [position for position in set(wanted) if 0 < position <= POSITION_MAX]
    rows = await reads.connection.fetch(_ABOVE, reads.space, known)
    return group_by_origin(wanted, [(origin, position) for origin, position in rows])


async def clear(connection: Connection, space: int) -> None:
    """Delete all crystal rows before they are derived again."""
    async with authority(connection, space, "rebuild"):
        for table in TABLES:
            await connection.execute(f"DELETE FROM {table} WHERE space = $1", space, timeout=LONG_S)


async def bury(connection: Connection, space: int, positions: Sequence[int]) -> None:
    """Delete the rows of the crystals at these positions and of all crystals that were made from them.

    Must be called inside a `with authority(…, "purge")` block, which makes the database permit it.
    """
    rows = await connection.fetch(_CITING, space, positions)
    buried = [position for (position,) in rows]
    await connection.execute("DELETE FROM crystals WHERE space = $1 AND position = ANY ($2::bigint[])", space, buried)
    await connection.execute(
        "DELETE FROM crystal_sources WHERE space = $1 AND crystal = ANY ($2::bigint[])", space, buried
    )


async def read_rows(reads: RowReader) -> CrystalRows:
    """Read all stored rows about crystals."""
    crystals, sources, retracted, marks = [
        await reads.connection.fetch(statement, reads.space, timeout=LONG_S)
        for statement in (
            """SELECT position, level, period, start_at, end_at, tokens, superseded_by FROM crystals
            WHERE space = $1""",
            "SELECT crystal, source, tokens, is_live FROM crystal_sources WHERE space = $1",
            "SELECT retracted FROM retractions WHERE space = $1",
            "SELECT position FROM texts WHERE space = $1 AND is_mark",
        )
    ]
    return CrystalRows(
        [CrystalRow(position, level, period.decode(), *rest) for position, level, period, *rest in crystals],
        [SourceRow(*row) for row in sources],
        [identifier for (identifier,) in retracted],
        array("q", (position for (position,) in marks)),
    )


class PostgresCrystals(PostgresRole):
    """Implements `CrystalIndex` in PostgreSQL."""

    @reading
    async def query(self, connection: Connection, query: CrystalQuery) -> list[Crystal]:
        return await _read(self._space.reads(connection), query)

    @reading
    async def postings(
        self, connection: Connection, wanted: Sequence[str], query: CrystalQuery
    ) -> dict[str, tuple[Posting, ...]]:
        positions = await _positions(self._space.reads(connection), query)
        return await read_postings_at(connection, self._space.number, wanted, positions, only_marks=False)

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
        return await _unsealed(self._space.reads(connection), limit, session=session, latest=latest, after=after)

    @reading
    async def citing(self, connection: Connection, identifiers: Sequence[EventId]) -> list[EventId]:
        reads = self._space.reads(connection)
        return await _citing(reads, await reads.positions(identifiers))

    @reading
    async def above(self, connection: Connection, positions: Sequence[int]) -> dict[int, frozenset[int]]:
        return await _above(self._space.reads(connection), positions)

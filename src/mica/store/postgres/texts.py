"""The PostgreSQL implementation of `TextIndex`, the full-text index."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from itertools import groupby
from operator import itemgetter

from mica.model.event import microseconds
from mica.model.mark import Posting, Postings, Text, mark_of
from mica.store.codec import SessionMarks
from mica.store.postgres.rows import POSITION_MAX, Row, offload
from mica.store.postgres.server import Connection
from mica.store.postgres.space import PostgresRole, reading
from mica.store.postgres.statements import AT_POSITIONS, HERE
from mica.store.postgres.words import read
from mica.store.query import term_weights, with_statistics

_EVER = -(2**63), 2**63 - 1
_COUNTS = f"""SELECT terms.name, count(*) FROM terms
    JOIN postings ON postings.space = {HERE} AND postings.term = terms.id
    JOIN texts ON texts.space = {HERE} AND texts.position = postings.position AND texts.is_mark
    WHERE terms.space = {HERE} AND terms.name = ANY ($2) GROUP BY terms.name"""
_HEAVIEST = f"""SELECT found.position FROM (
        SELECT postings.position, sum(wanted.weight) AS weight
        FROM unnest($2::text[], $3::integer[]) AS wanted (name, weight)
        JOIN terms ON terms.space = {HERE} AND terms.name = wanted.name
        JOIN postings ON postings.space = {HERE} AND postings.term = terms.id
        GROUP BY postings.position
    ) AS found
    JOIN texts ON texts.space = {HERE} AND texts.position = found.position AND texts.is_mark
        AND texts.at >= $4 AND texts.at < $5
    ORDER BY found.weight DESC, found.position DESC LIMIT $6"""
_AT = f"""SELECT terms.name, postings.position, postings.count, texts.length, sessions.name FROM terms
    JOIN postings ON postings.space = {HERE} AND postings.term = terms.id AND postings.{AT_POSITIONS}
    JOIN texts ON texts.space = {HERE} AND texts.position = postings.position AND (texts.is_mark OR NOT $4)
    LEFT JOIN sessions ON sessions.space = {HERE} AND sessions.id = texts.session
    WHERE terms.space = {HERE} AND terms.name = ANY ($3) ORDER BY postings.position"""


async def _read_postings(
    connection: Connection,
    space: int,
    wanted: Sequence[str],
    weights: Mapping[str, float],
    *,
    limit: int | None,
    since: datetime | None,
    until: datetime | None,
) -> Postings:
    """Return the postings of these terms in the `limit` marks with the highest sum of weights.

    The result also has statistics of all marks.
    """
    counts = {term: int(count) for term, count in await connection.fetch(_COUNTS, space, list(wanted))}
    containing = {term: counts.get(term, 0) for term in wanted}
    lengths = await connection.fetch(
        "SELECT length, count(*) FROM texts WHERE space = $1 AND is_mark GROUP BY length ORDER BY length", space
    )
    statistics = with_statistics({}, [(row[0], row[1]) for row in lengths], containing)
    first, last = _EVER[0] if since is None else microseconds(since), _EVER[1] if until is None else microseconds(until)
    weight = term_weights(containing, weights, statistics.marks)
    rows = await connection.fetch(_HEAVIEST, space, list(weight), list(weight.values()), first, last, limit)
    return statistics.with_postings(
        await read_postings_at(connection, space, wanted, [position for (position,) in rows])
    )


async def read_postings_at(
    connection: Connection, space: int, wanted: Sequence[str], positions: Sequence[int], *, only_marks: bool = True
) -> dict[str, tuple[Posting, ...]]:
    """Return the postings of these terms in the texts at these positions; with `only_marks`, only in marks."""
    rows = await connection.fetch(_AT, space, possible_positions(positions), list(wanted), only_marks)
    return await offload(len(rows), lambda: _by_term(wanted, rows))


def possible_positions(positions: Iterable[int]) -> list[int]:
    return sorted({position for position in positions if 0 < position <= POSITION_MAX})


def _by_term(wanted: Sequence[str], rows: Iterable[Row]) -> dict[str, tuple[Posting, ...]]:
    found: dict[str, list[Posting]] = {term: [] for term in wanted}
    for term, position, count, length, session in rows:
        found[term].append(Posting(position, count, length, None if session is None else read(session)))
    return {term: tuple(postings) for term, postings in found.items()}


class PostgresTexts(PostgresRole):
    """Implements `TextIndex` in PostgreSQL."""

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
        return await _read_postings(
            connection, self._space.number, wanted, weights or {}, limit=limit, since=since, until=until
        )

    @reading
    async def postings_at(
        self, connection: Connection, wanted: Sequence[str], positions: Sequence[int]
    ) -> dict[str, tuple[Posting, ...]]:
        return await read_postings_at(connection, self._space.number, wanted, positions)

    @reading
    async def read(self, connection: Connection, positions: Sequence[int], *, neighbours: int = 2) -> list[Text]:
        wanted = {position for position in positions if 0 < position <= POSITION_MAX}
        rows = await connection.fetch(
            f"SELECT position, length, session FROM texts WHERE space = {HERE} AND is_mark AND {AT_POSITIONS}",
            self._space.number,
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
            self._space.number,
            list(by_session),
        )
        for session, grouped in groupby(in_order, itemgetter(0)):
            marks = list(grouped)
            session_marks = SessionMarks([each[1] for each in marks], [each[2] for each in marks])
            found |= session_marks.near(by_session[session], neighbours=neighbours)
        return [
            Text(mark=mark_of(event), position=position, length=length, ordinal=ordinal, session_length=session_length)
            for event in await self._space.reads(connection).at(found)
            for position in [event.position or 0]
            for length, ordinal, session_length in [found[position]]
        ]

"""Full text and vectors of one space in PostgreSQL, as a ranker asks for them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime

from mica.model.event import Posting, Postings, Vectors, microseconds
from mica.store.postgres.rows import POSITION_MAX, Row, beside
from mica.store.postgres.server import Connection
from mica.store.postgres.statements import AT_POSITIONS, HERE
from mica.store.postgres.words import read
from mica.store.protocol import gathered, worths

_EVER = -(2**63), 2**63 - 1
_COUNTS = f"""SELECT terms.name, count(*) FROM terms
    JOIN postings ON postings.space = {HERE} AND postings.term = terms.id
    JOIN texts ON texts.space = {HERE} AND texts.position = postings.position AND texts.is_mark
    WHERE terms.space = {HERE} AND terms.name = ANY ($2) GROUP BY terms.name"""
_HEAVIEST = f"""SELECT found.position FROM (
        SELECT postings.position, sum(wanted.worth) AS worth
        FROM unnest($2::text[], $3::integer[]) AS wanted (name, worth)
        JOIN terms ON terms.space = {HERE} AND terms.name = wanted.name
        JOIN postings ON postings.space = {HERE} AND postings.term = terms.id
        GROUP BY postings.position
    ) AS found
    JOIN texts ON texts.space = {HERE} AND texts.position = found.position AND texts.is_mark
        AND texts.at >= $4 AND texts.at < $5
    ORDER BY found.worth DESC, found.position DESC LIMIT $6"""
_AT = f"""SELECT terms.name, postings.position, postings.count, texts.length, sessions.name FROM terms
    JOIN postings ON postings.space = {HERE} AND postings.term = terms.id AND postings.{AT_POSITIONS}
    JOIN texts ON texts.space = {HERE} AND texts.position = postings.position AND (texts.is_mark OR NOT $4)
    LEFT JOIN sessions ON sessions.space = {HERE} AND sessions.id = texts.session
    WHERE terms.space = {HERE} AND terms.name = ANY ($3) ORDER BY postings.position"""


async def listed(
    connection: Connection,
    space: int,
    wanted: Sequence[str],
    weights: Mapping[str, float],
    *,
    limit: int | None,
    since: datetime | None,
    until: datetime | None,
) -> Postings:
    """The postings of these terms in the marks that they are worth most in, and the statistics of all marks."""
    counts = {term: int(count) for term, count in await connection.fetch(_COUNTS, space, list(wanted))}
    containing = {term: counts.get(term, 0) for term in wanted}
    lengths = await connection.fetch(
        "SELECT length, count(*) FROM texts WHERE space = $1 AND is_mark GROUP BY length ORDER BY length", space
    )
    statistics = gathered({}, [(row[0], row[1]) for row in lengths], containing)
    first, last = _EVER[0] if since is None else microseconds(since), _EVER[1] if until is None else microseconds(until)
    worth = worths(containing, weights, statistics.marks)
    rows = await connection.fetch(_HEAVIEST, space, list(worth), list(worth.values()), first, last, limit)
    return statistics.with_postings(await listed_at(connection, space, wanted, [position for (position,) in rows]))


async def listed_at(
    connection: Connection, space: int, wanted: Sequence[str], positions: Sequence[int], *, only_marks: bool = True
) -> dict[str, tuple[Posting, ...]]:
    """The postings of these terms in the marks, or in whatever has a text, at these positions."""
    rows = await connection.fetch(_AT, space, _possible(positions), list(wanted), only_marks)
    return await beside(len(rows), lambda: _by_term(wanted, rows))


async def save_vectors(connection: Connection, space: int, model: str, vectors: Mapping[int, bytes]) -> None:
    """Keep the vectors of those positions that are marks."""
    known = {position: vectors[position] for position in _possible(vectors)}
    # A purge waits until these rows are committed, or they wait for it and find no text any more.
    await connection.execute(
        """INSERT INTO vectors (space, position, model, vector)
        SELECT $1, texts.position, $2, given.vector FROM unnest($3::bigint[], $4::bytea[]) AS given (position, vector)
        JOIN texts ON texts.space = $1 AND texts.position = given.position AND texts.is_mark
        ON CONFLICT (space, position) DO UPDATE SET model = excluded.model, vector = excluded.vector""",
        space,
        model,
        list(known),
        list(known.values()),
    )


async def vectors(connection: Connection, space: int, model: str, *, after: int, limit: int) -> Vectors:
    """The latest vectors of a model, and how many it has."""
    count = await connection.fetchval("SELECT count(*) FROM vectors WHERE space = $1 AND model = $2", space, model)
    rows = await connection.fetch(
        """SELECT position, vector FROM vectors WHERE space = $1 AND position > $3 AND model = $2
        ORDER BY position DESC LIMIT $4""",
        space,
        model,
        after,
        limit,
    )
    return Vectors(int(count), tuple((position, vector) for position, vector in reversed(rows)))


async def without_vector(connection: Connection, space: int, model: str, *, limit: int) -> list[int]:
    """The positions of the latest marks that a model has no vector of."""
    rows = await connection.fetch(
        """SELECT position FROM texts WHERE space = $1 AND is_mark AND NOT EXISTS (
            SELECT FROM vectors WHERE vectors.space = $1 AND vectors.position = texts.position AND model = $2
        ) ORDER BY position DESC LIMIT $3""",
        space,
        model,
        limit,
    )
    return [position for (position,) in rows]


def _possible(positions: Iterable[int]) -> list[int]:
    return sorted({position for position in positions if 0 < position <= POSITION_MAX})


def _by_term(wanted: Sequence[str], rows: Iterable[Row]) -> dict[str, tuple[Posting, ...]]:
    found: dict[str, list[Posting]] = {term: [] for term in wanted}
    for term, position, often, length, session in rows:
        found[term].append(Posting(position, often, length, None if session is None else read(session)))
    return {term: tuple(postings) for term, postings in found.items()}

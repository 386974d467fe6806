"""The PostgreSQL implementation of `BeliefTable`, the beliefs learned from the log.

Keys and sessions are stored as digests, because an index refuses values of more than about 2,700 bytes. Without current
statistics, the planner expects few beliefs. Then it may read all beliefs of a key to sort them, or all entries of an
index that has the wanted column in another place. So ids are looked up one by one, and sorting is avoided.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from mica.model.belief import KINDS, STATES, Belief, BeliefId, BeliefQuery
from mica.model.event import EventId, microseconds
from mica.model.trail import LearnedUpTo
from mica.store.codec import digest
from mica.store.postgres.append import WriteTransaction
from mica.store.postgres.server import Connection
from mica.store.postgres.space import PostgresRole, reading
from mica.store.postgres.statements import HERE
from mica.store.protocol import RELATED_BELIEFS

TABLES = ("beliefs", "belief_keys", "belief_evidence", "belief_lessons")

_EARLIEST = -(2**63)  # the smallest time that the server can store
_IN_INDEX_ORDER = "SET LOCAL enable_sort = off"  # read the newest rows of a range of an index, not all of them
# An index lookup for each id; see `HERE` and its neighbours.
_EACH = f"""unnest($2::text[]) AS wanted (id) CROSS JOIN LATERAL (
        SELECT {{columns}} FROM {{table}} WHERE space = {HERE} AND {{table}}.{{column}} = wanted.id OFFSET 0
    ) AS found"""


async def clear(connection: Connection, space: int) -> None:
    """Delete all beliefs of a space. They can be learned again from the log."""
    for table in TABLES:
        await connection.execute(f"DELETE FROM {table} WHERE space = $1", space)


class PostgresBeliefs(PostgresRole):
    """Implements `BeliefTable` in PostgreSQL."""

    @reading
    async def learned_up_to(self, connection: Connection) -> LearnedUpTo:
        return await _learned(connection, self._space.number)

    async def save(self, beliefs: Sequence[Belief], lesson: LearnedUpTo, *, after: int) -> bool:
        latest = {belief.id: belief for belief in beliefs}

        async def replace(writing: WriteTransaction) -> bool:
            connection, space = writing.connection, self._space.number
            assert self._space.purge_filter is not None  # set when the space was locked
            if await _learned(connection, space) != LearnedUpTo(position=after, generation=lesson.generation):
                return False
            for table, column in (("beliefs", "id"), ("belief_keys", "belief"), ("belief_evidence", "belief")):
                rows = _EACH.format(columns="ctid", table=table, column=column)
                await connection.execute(
                    f"DELETE FROM {table} WHERE ctid = ANY (ARRAY(SELECT found.ctid FROM {rows}))", space, list(latest)
                )
            await _insert(connection, space, self._space.purge_filter.without_purged(latest.values()))
            await connection.execute(
                """INSERT INTO belief_lessons (space, position) VALUES ($1, $2)
                ON CONFLICT (space) DO UPDATE SET position = excluded.position""",
                space,
                lesson.position,
            )
            return True

        return await self._space.write(replace)

    @reading
    async def query(self, connection: Connection, query: BeliefQuery) -> list[Belief]:
        is_narrow = query.ids or query.evidence or query.session is not None
        found = await (_select if is_narrow else _latest)(connection, self._space.number, query)
        beliefs = await _read(connection, self._space.number, found)
        return [beliefs[each] for each in found]

    @reading
    async def related(
        self, connection: Connection, keys: Sequence[str], *, per_key: int = RELATED_BELIEFS
    ) -> dict[str, list[Belief]]:
        wanted = {digest(key.encode()): key for key in keys}
        await connection.execute(_IN_INDEX_ORDER)
        rows = await connection.fetch(
            f"""SELECT wanted.key, found.belief FROM unnest($2::bytea[]) AS wanted (key) CROSS JOIN LATERAL (
                SELECT belief, last_at FROM belief_keys WHERE space = {HERE} AND belief_keys.key = wanted.key
                ORDER BY last_at DESC, belief LIMIT $3::bigint
            ) AS found ORDER BY found.last_at DESC, found.belief""",
            self._space.number,
            list(wanted),
            per_key,
        )
        beliefs = await _read(connection, self._space.number, {identifier for _, identifier in rows})
        found: dict[str, list[Belief]] = {key: [] for key in keys}
        for key, identifier in rows:
            found[wanted[key]].append(beliefs[identifier])
        return found


async def _learned(connection: Connection, space: int) -> LearnedUpTo:
    row = await connection.fetchrow(
        """SELECT coalesce((SELECT position FROM belief_lessons WHERE space = $1), 0), generation
        FROM spaces WHERE number = $1""",
        space,
    )
    return LearnedUpTo(position=row[0], generation=row[1])


async def _insert(connection: Connection, space: int, beliefs: Sequence[Belief]) -> None:
    await connection.execute(
        """INSERT INTO beliefs (space, id, kind, state, session, last_at, belief) SELECT $1, *
        FROM unnest($2::text[], $3::text[], $4::text[], $5::bytea[], $6::bigint[], $7::bytea[])""",
        space,
        [each.id for each in beliefs],
        [each.kind for each in beliefs],
        [each.state for each in beliefs],
        [None if each.session is None else digest(each.session.encode()) for each in beliefs],
        [microseconds(each.last_at) for each in beliefs],
        [msgspec.json.encode(each) for each in beliefs],
    )
    keys = [(each, key) for each in beliefs if each.state != "ended" for key in sorted(set(each.keys))]
    await connection.execute(
        """INSERT INTO belief_keys (space, belief, key, last_at) SELECT $1, *
        FROM unnest($2::text[], $3::bytea[], $4::bigint[])""",
        space,
        [each.id for each, _ in keys],
        [digest(key.encode()) for _, key in keys],
        [microseconds(each.last_at) for each, _ in keys],
    )
    evidence = [(each.id, event) for each in beliefs for event in sorted(set(each.evidence))]
    await connection.execute(
        "INSERT INTO belief_evidence (space, belief, event) SELECT $1, * FROM unnest($2::text[], $3::text[])",
        space,
        [identifier for identifier, _ in evidence],
        [event for _, event in evidence],
    )


async def _latest(connection: Connection, space: int, query: BeliefQuery) -> list[BeliefId]:
    """Return the ids of the newest beliefs of some kinds and states, which are the ends of a few ranges of an index."""
    await connection.execute(_IN_INDEX_ORDER)
    rows = await connection.fetch(
        f"""SELECT found.id FROM unnest($2::text[]) AS states (state) CROSS JOIN unnest($3::text[]) AS kinds (kind)
        CROSS JOIN LATERAL (
            SELECT id, last_at FROM beliefs
            WHERE space = {HERE} AND beliefs.state = states.state AND beliefs.kind = kinds.kind AND last_at >= $4
            ORDER BY last_at DESC, id LIMIT $5::bigint
        ) AS found ORDER BY found.last_at DESC, found.id LIMIT $5::bigint""",
        space,
        sorted(set(query.states or STATES)),
        sorted(set(query.kinds or KINDS)),
        _EARLIEST if query.since is None else microseconds(query.since),
        query.limit,
    )
    return [row[0] for row in rows]


async def _select(connection: Connection, space: int, query: BeliefQuery) -> list[BeliefId]:
    """Return the ids of the newest beliefs that match a query by id, evidence or session."""
    session = None if query.session is None else digest(query.session.encode())
    columns = "id, kind, state, session, last_at"
    wanted: object
    if query.ids or query.evidence:
        supported = await _supported(connection, space, query.evidence)
        wanted = sorted(set(query.ids) & supported if query.ids and query.evidence else {*query.ids, *supported})
        source = _EACH.format(columns=columns, table="beliefs", column="id")
    else:
        wanted = session
        source = f"(SELECT {columns} FROM beliefs WHERE space = {HERE} AND session = $2::bytea OFFSET 0) AS found"
    rows = await connection.fetch(
        f"""SELECT found.id FROM {source}
        WHERE ($3::bytea IS NULL OR found.session = $3)
            AND found.state = ANY ($4::text[]) AND found.kind = ANY ($5::text[]) AND found.last_at >= $6
        ORDER BY found.last_at DESC, found.id LIMIT $7::bigint""",
        space,
        wanted,
        session,
        list(query.states or STATES),
        list(query.kinds or KINDS),
        _EARLIEST if query.since is None else microseconds(query.since),
        query.limit,
    )
    return [row[0] for row in rows]


async def _supported(connection: Connection, space: int, events: Sequence[EventId]) -> set[BeliefId]:
    """Return the ids of the beliefs that have one of these events as evidence."""
    if not events:
        return set()
    rows = _EACH.format(columns="belief", table="belief_evidence", column="event")
    return {row[0] for row in await connection.fetch(f"SELECT found.belief FROM {rows}", space, list(events))}


async def _read(connection: Connection, space: int, identifiers: Iterable[BeliefId]) -> dict[BeliefId, Belief]:
    rows = _EACH.format(columns="id, belief", table="beliefs", column="id")
    found = await connection.fetch(f"SELECT found.id, found.belief FROM {rows}", space, list(identifiers))
    return {identifier: msgspec.json.decode(encoded, type=Belief) for identifier, encoded in found}

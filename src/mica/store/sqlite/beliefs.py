"""The SQLite implementation of `BeliefTable`, the beliefs learned from the log."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import apsw
import msgspec

from mica.model.belief import KINDS, STATES, Belief, BeliefId, BeliefQuery
from mica.model.event import microseconds
from mica.model.trail import LearnedUpTo
from mica.store.protocol import RELATED_BELIEFS
from mica.store.sqlite.core import SqliteCore
from mica.store.sqlite.file import Row, as_json, values_checksum
from mica.store.sqlite.worker import SqliteRole, threaded

_EARLIEST = -(2**63)  # the smallest time that SQLite can store
_TABLES = ("beliefs", "belief_keys", "belief_evidence", "belief_lessons")
_AMONG = "IN (SELECT value FROM json_each(?))"


def clear(connection: apsw.Connection) -> None:
    """Delete all beliefs. They can be learned again from the log."""
    for table in _TABLES:
        connection.execute(f"DELETE FROM {table}")


def _learned_up_to(core: SqliteCore) -> LearnedUpTo:
    with core.reading():
        return _learned(core)


def _learned(core: SqliteCore) -> LearnedUpTo:
    position, generation = core.one("SELECT coalesce((SELECT position FROM belief_lessons), 0), generation FROM space")
    return LearnedUpTo(position=position, generation=generation)


def _save(core: SqliteCore, beliefs: Sequence[Belief], lesson: LearnedUpTo, *, after: int) -> bool:
    latest = {belief.id: belief for belief in beliefs}
    with core.writing():
        if _learned(core) != LearnedUpTo(position=after, generation=lesson.generation):
            return False
        saved = as_json(list(latest))
        for table, column in (("beliefs", "id"), ("belief_keys", "belief"), ("belief_evidence", "belief")):
            core.connection.execute(f"DELETE FROM {table} WHERE {column} {_AMONG}", (saved,))
        _insert(core.connection, core.purge_filter.without_purged(latest.values()))
        core.connection.execute("DELETE FROM belief_lessons")
        core.connection.execute("INSERT INTO belief_lessons (position) VALUES (?)", (lesson.position,))
        return True


def _insert(connection: apsw.Connection, beliefs: Sequence[Belief]) -> None:
    connection.executemany(
        "INSERT INTO beliefs (id, kind, state, session, last_at, belief, crc) VALUES (?, ?, ?, ?, ?, ?, ?)",
        [(*row, values_checksum(*row)) for row in map(_row, beliefs)],
    )
    connection.executemany(
        "INSERT INTO belief_keys (belief, key, last_at) VALUES (?, ?, ?)",
        [
            (belief.id, key, microseconds(belief.last_at))
            for belief in beliefs
            if belief.state != "ended"
            for key in set(belief.keys)
        ],
    )
    connection.executemany(
        "INSERT INTO belief_evidence (belief, event) VALUES (?, ?)",
        [(belief.id, event) for belief in beliefs for event in set(belief.evidence)],
    )


def _row(belief: Belief) -> Row:
    encoded = msgspec.json.encode(belief).decode()
    return belief.id, belief.kind, belief.state, belief.session, microseconds(belief.last_at), encoded


def _query(core: SqliteCore, query: BeliefQuery) -> list[Belief]:
    with core.reading():
        is_narrow = query.ids or query.evidence or query.session is not None
        found = (_select if is_narrow else _latest)(core, query)
        beliefs = _read(core, found)
        return [beliefs[each] for each in found]


def _latest(core: SqliteCore, query: BeliefQuery) -> list[BeliefId]:
    """Return the ids of the newest beliefs of some kinds and states, which are the ends of a few ranges of an index."""
    since = _EARLIEST if query.since is None else microseconds(query.since)
    limit = -1 if query.limit is None else query.limit
    rows = [
        (-last_at, identifier)
        for state in dict.fromkeys(query.states or STATES)
        for kind in dict.fromkeys(query.kinds or KINDS)
        for last_at, identifier in core.rows(
            """SELECT last_at, id FROM beliefs WHERE state = ? AND kind = ? AND last_at >= ?
            ORDER BY last_at DESC, id LIMIT ?""",
            (state, kind, since, limit),
        )
    ]
    return [identifier for _, identifier in sorted(rows)[: query.limit]]


def _select(core: SqliteCore, query: BeliefQuery) -> list[BeliefId]:
    """Return the ids of the newest beliefs that match a query by id, evidence or session.

    A plus sign keeps SQLite from using the index of kinds and states, whose ranges may be long.
    """
    conditions: dict[str, object] = {}
    if query.ids:
        conditions[f"id {_AMONG}"] = as_json(query.ids)
    if query.evidence:
        conditions[f"id IN (SELECT belief FROM belief_evidence WHERE event {_AMONG})"] = as_json(query.evidence)
    if query.session is not None:
        conditions["session = ?"] = query.session
    if query.kinds:
        conditions[f"+kind {_AMONG}"] = as_json(query.kinds)
    if query.states:
        conditions[f"+state {_AMONG}"] = as_json(query.states)
    if query.since is not None:
        conditions["last_at >= ?"] = microseconds(query.since)
    rows = core.rows(
        f"SELECT id FROM beliefs WHERE {' AND '.join(conditions)} ORDER BY last_at DESC, id LIMIT ?",
        (*conditions.values(), -1 if query.limit is None else query.limit),
    )
    return [row[0] for row in rows]


def _related(core: SqliteCore, keys: Sequence[str], *, per_key: int = RELATED_BELIEFS) -> dict[str, list[Belief]]:
    with core.reading():
        found = {
            key: [
                row[0]
                for row in core.rows(
                    "SELECT belief FROM belief_keys WHERE key = ? ORDER BY last_at DESC, belief LIMIT ?", (key, per_key)
                )
            ]
            for key in keys
        }
        beliefs = _read(core, {each for own in found.values() for each in own})
        return {key: [beliefs[each] for each in own] for key, own in found.items()}


def _read(core: SqliteCore, identifiers: Iterable[BeliefId]) -> dict[BeliefId, Belief]:
    rows = core.rows(f"SELECT id, belief FROM beliefs WHERE id {_AMONG}", (as_json(list(identifiers)),))
    return {identifier: msgspec.json.decode(encoded, type=Belief) for identifier, encoded in rows}


class SqliteBeliefs(SqliteRole):
    """Implements `BeliefTable` in a SQLite file."""

    learned_up_to = threaded(_learned_up_to)
    save = threaded(_save)
    query = threaded(_query)
    related = threaded(_related)

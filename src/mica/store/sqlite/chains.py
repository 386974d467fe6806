"""The SQLite implementation of `ChainIndex`, the lookup of related events.

For events that are rows, recursive SQL statements follow parents and children. For events in compressed blocks, Python
code follows the headers of the blocks.
"""

from __future__ import annotations

from mica.errors import InvalidEvent
from mica.model.event import Event, EventId
from mica.store.sqlite.core import SqliteCore
from mica.store.sqlite.file import Key, Row, as_json
from mica.store.sqlite.worker import SqliteRole, threaded

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


def _chain(core: SqliteCore, correlation: str) -> list[Event]:
    with core.reading():
        statement = "SELECT id FROM contexts WHERE substr(correlation, -8) = substr(?, -8) AND correlation = ?"
        contexts = {number for (number,) in core.rows(statement, (correlation, correlation))}
        try:
            root = core.words.known_key(EventId(correlation))
        except InvalidEvent:
            root = None  # no root has this id
        rows = core.table(
            """WHERE position IN (
                SELECT position FROM events WHERE root_writer = ? AND root_sequence = ?
                UNION
                SELECT position FROM events WHERE context IN (SELECT value FROM json_each(?))
            )""",
            (*(root or (0, 0)), as_json(sorted(contexts))),
        )
        if core.blocks.is_used:
            rows += core.blocks.of_contexts(contexts)
            if root is not None:
                rows += [row for _, row in core.blocks.members([root])]
                rows += [row for row in [core.row_of(root)] if row is not None and row[6:8] == root]
        return core.in_order(rows)


def _ancestors(core: SqliteCore, identifier: EventId) -> list[Event]:
    with core.reading():
        found: dict[Key, Row] = {}
        row = core.row_of(core.words.known_key(identifier))
        while row is not None and row[8] is not None and (key := (row[8], row[9])) not in found:
            line = core.table(_LINE, key) or [aged for aged in [core.row_of(key)] if aged is not None]
            ancestors = {(each[1], each[2]): each for each in line}  # consecutive rows, or one aged event
            found |= ancestors
            row = ancestors.pop(key, None)
            while row is not None and (above := ancestors.pop((row[8], row[9]), None)) is not None:
                row = above
        return [core.to_event(row) for row in sorted(found.values(), key=lambda row: -row[10])]


def _descendants(core: SqliteCore, identifier: EventId, *, depth: int | None = None) -> list[Event]:
    with core.reading():
        key = core.words.known_key(identifier)
        own = core.row_of(key)
        if key is None:
            return []
        deepest = None if own is None or depth is None else own[10] + depth
        found: dict[Key, Row] = {}
        aged: dict[Key, list[Row]] = {}  # by parent
        roots: set[Key] = set()
        reached = [key]
        chains = set() if own is None else {(own[6], own[7])}
        while reached:
            rows = core.table(_BELOW, (as_json(reached), deepest))
            found |= {(row[1], row[2]): row for row in rows}
            reached += [(row[1], row[2]) for row in rows]
            chains |= {(row[6], row[7]) for row in rows}
            if not core.blocks.is_used:
                break
            for parent, row in core.blocks.members(chains - roots):
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
        return core.in_order(found.values())


def _agents(core: SqliteCore) -> list[str]:
    statement = "SELECT DISTINCT agent FROM contexts WHERE agent IS NOT NULL ORDER BY agent"
    return [row[0] for row in core.rows(statement)]


class SqliteChains(SqliteRole):
    """Implements `ChainIndex` in a SQLite file."""

    chain = threaded(_chain)
    ancestors = threaded(_ancestors)
    descendants = threaded(_descendants)
    agents = threaded(_agents)

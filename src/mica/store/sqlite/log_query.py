"""Translate an event query for a SQLite store: into SQL for rows, and into a filter for events in blocks."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial

import apsw

from mica.model.event import EventQuery, microseconds, name_pattern
from mica.store.candidates import query_terms
from mica.store.sqlite.blocks import BlockFilter
from mica.store.sqlite.file import as_json
from mica.store.sqlite.statistics import TextStatistics
from mica.store.sqlite.words import SqliteWords

MANY_CONTEXTS = 1_000  # in a session; a very long session collects contexts, and each costs an index lookup
RECENT_ROWS = 20_000  # scanned first for such a session, in about 10 ms at most

_MANY = "SELECT 1 FROM contexts WHERE session = (SELECT id FROM sessions WHERE name = ?) LIMIT 1 OFFSET ?"
_RECENT = "SELECT at FROM events ORDER BY at DESC LIMIT 1 OFFSET ?"


def recent(connection: apsw.Connection, query: EventQuery) -> int | None:
    """Return the time (in microseconds) from which events should be scanned first, or None for most queries.

    The scan is faster for the query of a session with very many contexts, where looking up each context costs more.
    """
    if query.session is None or query.limit is None:
        return None
    if connection.execute(_MANY, (query.session, MANY_CONTEXTS)).fetchone() is None:
        return None
    row = connection.execute(_RECENT, (RECENT_ROWS,)).fetchone()
    return None if row is None else int(row[0])


def latest(
    connection: apsw.Connection, facts: TextStatistics, query: EventQuery, *, since: int | None = None
) -> tuple[str, list[str | int]]:
    """Return the part of a SELECT after the table name that finds the matching rows, latest first, and its values.

    With `since`, only rows from that time on are selected; they are scanned by time, not looked up by context.
    """
    conditions: list[str] = []
    bindings: list[str | int] = []

    def require(condition: str, *values: str | int) -> None:
        conditions.append(condition)
        bindings.extend(values)

    if since is not None:
        require("at >= ?", since)
    if query.session is not None:
        require(
            """context IN (SELECT contexts.id FROM contexts JOIN sessions ON sessions.id = contexts.session
            WHERE sessions.name = ?)"""
            if since is None
            else """(SELECT session FROM contexts WHERE contexts.id = context)
            = (SELECT id FROM sessions WHERE name = ?)""",
            query.session,
        )
    if query.agent is not None:
        require(f"{'' if since is None else '+'}context IN (SELECT id FROM contexts WHERE agent = ?)", query.agent)
    if query.user is not None:
        require(f"{'' if since is None else '+'}context IN (SELECT id FROM contexts WHERE user = ?)", query.user)
    if query.names:
        fitting = _fitting_names(connection, query.names)
        require(f"name IN ({', '.join('?' * len(fitting))})", *fitting)
    if query.since is not None:
        require("at >= ?", microseconds(query.since))
    if query.until is not None:
        require("at < ?", microseconds(query.until))
    if query.errors is not None:
        require("error = ?", int(query.errors))
    if query.text is not None:
        positions = facts.containing(query_terms(query.text))
        require("position IN (SELECT value FROM json_each(?))", as_json(positions))
    where = f"WHERE {' AND '.join(conditions)} " if conditions else ""
    limit = -1 if query.limit is None else query.limit
    return f"{where}ORDER BY at DESC, position DESC LIMIT ?", [*bindings, limit]


def block_filter(
    connection: apsw.Connection, words: SqliteWords, facts: TextStatistics, query: EventQuery
) -> BlockFilter | None:
    """Return the filter that applies a query to events in blocks; None when no event in a block can match."""
    session = None
    if query.session is not None:
        row = connection.execute("SELECT id FROM sessions WHERE name = ?", (query.session,)).fetchone()
        if row is None:
            return None
        session = row[0]
    sessions = [
        frozenset(number for (number,) in connection.execute(statement, (value,)))
        for statement, value in (
            ("SELECT DISTINCT coalesce(session, 0) FROM contexts WHERE agent = ?", query.agent),
            ("SELECT DISTINCT coalesce(session, 0) FROM contexts WHERE user = ?", query.user),
        )
        if value is not None
    ]
    return BlockFilter(
        session=session,
        names=frozenset(_fitting_names(connection, query.names)) if query.names else None,
        since=None if query.since is None else microseconds(query.since),
        until=None if query.until is None else microseconds(query.until),
        error=None if query.errors is None else int(query.errors),
        positions=None if query.text is None else frozenset(facts.containing(query_terms(query.text))),
        context=partial(_fits, words, query) if sessions or session is not None else None,
        sessions=frozenset.intersection(*sessions) if sessions else None,
    )


def _fitting_names(connection: apsw.Connection, patterns: Iterable[str]) -> list[int]:
    """Return the numbers of the event names that match one of these patterns."""
    compiled = [name_pattern(pattern) for pattern in patterns]
    return [
        number
        for number, name in connection.execute("SELECT id, name FROM names ORDER BY id")
        if any(pattern.fullmatch(name) for pattern in compiled)
    ]


def _fits(words: SqliteWords, query: EventQuery, context: int) -> bool:
    """Return True if the context with this number meets the conditions of the query."""
    interned = words.context(context)
    return (
        query.session in (None, interned.session)
        and query.agent in (None, interned.agent)
        and query.user in (None, interned.user)
    )

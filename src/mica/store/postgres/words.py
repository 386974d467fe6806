"""Interned words (such as names and terms) and contexts in PostgreSQL: stored once, and referred to by number."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Literal, TypeAlias

from mica.model.event import Context
from mica.store.codec import labels_of, labels_text, remember
from mica.store.postgres.server import Connection
from mica.store.postgres.statements import HERE

Table: TypeAlias = Literal["writers", "names", "sessions", "terms"]

# The row of the space is locked, so no other writer adds a number between the two reads.
_INTERN = """
    WITH known AS (SELECT id, name FROM {table} WHERE space = {here} AND name = ANY ($2::{type}[])),
    fresh AS (
        INSERT INTO {table} (space, name)
        SELECT $1, name FROM unnest($2::{type}[]) AS name WHERE name NOT IN (SELECT name FROM known)
        RETURNING id, name
    )
    SELECT id, name FROM known UNION ALL SELECT id, name FROM fresh"""
_INTERN_CONTEXTS = f"""
    WITH known AS (SELECT id, digest FROM contexts WHERE space = {HERE} AND digest = ANY ($2::bytea[])),
    fresh AS (
        INSERT INTO contexts (space, digest, session, agent, "user", task, correlation, labels)
        SELECT $1, digest, session, agent, "user", task, correlation, labels
        FROM unnest($2::bytea[], $3::integer[], $4::bytea[], $5::bytea[], $6::bytea[], $7::bytea[], $8::text[])
            AS wanted (digest, session, agent, "user", task, correlation, labels)
        WHERE digest NOT IN (SELECT digest FROM known)
        RETURNING id, digest
    )
    SELECT id, digest FROM known UNION ALL SELECT id, digest FROM fresh"""


class PostgresWords:
    """A process's cache of the interned words and contexts of a space. A number is assigned once and never reused.

    `numbers` and `context_numbers` assign new numbers, so they are called only in a transaction that holds the lock of
    the space. `keep` caches the new numbers after the commit.
    """

    def __init__(self, space: int) -> None:
        self._space = space
        self._numbers: dict[tuple[Table, str], int] = {}
        self._words: dict[tuple[Table, int], str] = {}
        self._context_numbers: dict[Context, int] = {}
        self._contexts: dict[int, Context] = {}
        self._fresh: list[tuple[Table, str, int]] = []
        self._fresh_contexts: list[tuple[Context, int]] = []

    def begin(self) -> None:
        """Discard the new numbers of an earlier transaction that did not commit."""
        self._fresh.clear()
        self._fresh_contexts.clear()

    def keep(self) -> None:
        """Cache the numbers that the transaction has assigned, after its commit."""
        for table, word, number in self._fresh:
            remember(self._numbers, (table, word), number)
        for context, number in self._fresh_contexts:
            remember(self._context_numbers, context, number)
        self.begin()

    def forget(self) -> None:
        """Empty the cache, because a purge has removed words."""
        self.begin()
        for cache in (self._numbers, self._words, self._context_numbers, self._contexts):
            cache.clear()

    async def numbers(self, connection: Connection, table: Table, wanted: Iterable[str]) -> dict[str, int]:
        """Return the number (row id) of each of these words. New words are added to the table."""
        distinct = set(wanted)
        found = {word: self._numbers[table, word] for word in distinct if (table, word) in self._numbers}
        if missing := sorted(distinct - found.keys()):
            statement = _INTERN.format(table=table, here=HERE, type="bytea" if table == "sessions" else "text")
            rows = await connection.fetch(statement, self._space, [stored(table, word) for word in missing])
            interned = {read(name): number for number, name in rows}
            self._fresh += [(table, word, number) for word, number in interned.items()]
            found |= interned
        return found

    async def known_numbers(self, connection: Connection, table: Table, wanted: Collection[str]) -> dict[str, int]:
        """Return the number (row id) of each of these words that is in the table; other words are left out."""
        rows = await connection.fetch(
            f"SELECT id, name FROM {table} WHERE space = {HERE} AND name = ANY ($2)",
            self._space,
            [stored(table, word) for word in wanted],
        )
        return {read(name): number for number, name in rows}

    async def words(self, connection: Connection, table: Table, numbers: Iterable[int]) -> dict[int, str]:
        """Return the words with these numbers (row ids), by number."""
        distinct = set(numbers)
        found = {number: self._words[table, number] for number in distinct if (table, number) in self._words}
        if missing := distinct - found.keys():
            rows = await connection.fetch(
                f"SELECT id, name FROM {table} WHERE space = {HERE} AND id = ANY ($2)", self._space, list(missing)
            )
            for number, name in rows:
                found[number] = read(name)
                remember(self._words, (table, number), found[number])
        return found

    async def context_numbers(self, connection: Connection, wanted: Iterable[Context]) -> dict[Context, int]:
        """Return the number (row id) of each of these contexts. New contexts are added to their table."""
        distinct = set(wanted)
        found = {context: self._context_numbers[context] for context in distinct if context in self._context_numbers}
        missing = {bytes.fromhex(context.id): context for context in distinct - found.keys()}
        if missing:
            contexts = list(missing.values())
            sessions = await self.numbers(
                connection, "sessions", (context.session for context in contexts if context.session is not None)
            )
            rows = await connection.fetch(
                _INTERN_CONTEXTS,
                self._space,
                list(missing),
                [None if context.session is None else sessions[context.session] for context in contexts],
                [_bytes(context.agent) for context in contexts],
                [_bytes(context.user) for context in contexts],
                [_bytes(context.task) for context in contexts],
                [_bytes(context.correlation) for context in contexts],
                [labels_text(context) for context in contexts],
            )
            interned = {missing[digest]: number for number, digest in rows}
            self._fresh_contexts += interned.items()
            found |= interned
        return found

    async def contexts(self, connection: Connection, numbers: Iterable[int]) -> dict[int, Context]:
        """Return the contexts with these numbers (row ids), by number."""
        distinct = set(numbers)
        found = {number: self._contexts[number] for number in distinct if number in self._contexts}
        if missing := distinct - found.keys():
            rows = await connection.fetch(
                f"""SELECT contexts.id, sessions.name, agent, "user", task, correlation, labels FROM contexts
                LEFT JOIN sessions ON sessions.space = {HERE} AND sessions.id = contexts.session
                WHERE contexts.space = {HERE} AND contexts.id = ANY ($2)""",
                self._space,
                list(missing),
            )
            for number, session, agent, user, task, correlation, labels in rows:
                found[number] = Context(
                    session=_text(session),
                    agent=_text(agent),
                    user=_text(user),
                    task=_text(task),
                    correlation=_text(correlation),
                    labels=labels_of(labels),
                )
                remember(self._contexts, number, found[number])
        return found


def stored(table: Table, word: str) -> str | bytes:
    """Return a word as its table stores it. Sessions are stored as bytes: they may contain NUL, which text cannot."""
    return word.encode() if table == "sessions" else word


def read(name: str | bytes) -> str:
    return name.decode() if isinstance(name, bytes) else name


def _bytes(word: str | None) -> bytes | None:
    return None if word is None else word.encode()


def _text(word: bytes | None) -> str | None:
    return None if word is None else word.decode()

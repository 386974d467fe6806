"""Interned words (such as names and terms) and contexts in SQLite: stored once, and referred to by number."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import count
from typing import cast

import apsw

from mica.errors import StoreDamaged
from mica.model.event import Context, EventId, WriterId, event_id, split_id
from mica.store.codec import CACHE_ENTRIES_MAX, labels_of, labels_text, remember
from mica.store.sqlite.file import Key, Row, as_json, insert
from mica.words import term_of


class SqliteWords:
    """A connection's cache of interned words and contexts, used inside its transactions.

    The owner calls `forget` after a rollback and after a purge, because both remove words.
    """

    def __init__(self, connection: apsw.Connection) -> None:
        self._connection = connection
        self.numbers: dict[str, dict[str, int]] = {"writers": {}, "names": {}, "sessions": {}}  # by table
        self._term_numbers: dict[str, int] = {}  # by word as written; 0 for a word without a term
        self.highest_number = 0  # the highest number of a word or context that a purge removed
        self._words: dict[tuple[str, int], str] = {}
        self._context_numbers: dict[Context, int] = {}
        self._contexts: dict[int, Context] = {}
        self._last_context: tuple[Context | None, int] = None, 0

    def forget(self) -> None:
        self._last_context = None, 0
        self._words.clear()
        self._context_numbers.clear()
        self._contexts.clear()
        self._term_numbers.clear()
        for known in self.numbers.values():
            known.clear()

    # -- Words to numbers -------------------------------------------------------------------------------------

    def number(self, table: str, word: str) -> int:
        """Return the number (row id) of a word in this table. A new word is added to the table."""
        known = self.numbers[table]
        if (number := known.get(word)) is not None:
            return number
        row = self._connection.execute(f"SELECT id FROM {table} WHERE name = ?", (word,)).fetchone()
        if row is None:
            new = (self._next_number(table), word)
            self._connection.execute(f"INSERT INTO {table} (id, name) VALUES (?, ?)", new)
            number = self._connection.last_insert_rowid()
        else:
            number = row[0]
        remember(known, word, number)
        return number

    def term_numbers(self, words: Iterable[str]) -> Mapping[str, int]:
        """Return a mapping with the term number of each of these words, and maybe of others. New terms are interned.

        The number is 0 for a word that is not indexed, such as a stop word.
        """
        numbers = self._term_numbers
        if len(numbers) > CACHE_ENTRIES_MAX:
            numbers.clear()
        fresh = {word: term_of(word) for word in words if word not in numbers}
        if fresh:
            known: dict[str, int] = {"": 0}
            lookup = as_json(sorted({*fresh.values()} - {""}))
            statement = "SELECT term, id FROM terms WHERE term IN (SELECT value FROM json_each(?))"
            known.update(self._connection.execute(statement, (lookup,)))
            new = [term for term in dict.fromkeys(fresh.values()) if term not in known]
            if new:
                first = max(int(self._one("SELECT coalesce(max(id), 0) FROM terms", ())[0]), self.highest_number) + 1
                known.update(zip(new, count(first)))
                rows = [(known[term], term) for term in sorted(new)]  # in index order
                insert(self._connection, "terms (id, term)", "(?, ?)", rows)
            numbers.update((word, known[term]) for word, term in fresh.items())
        return numbers

    def key(self, identifier: EventId) -> Key:
        """Return the key of an id: the number of its writer, and its sequence. A new writer is interned."""
        writer, sequence = split_id(identifier)
        return self.numbers["writers"].get(writer) or self.number("writers", writer), sequence

    def known_key(self, identifier: EventId) -> Key | None:
        """Return the key of an id; None if its writer is unknown. Raises InvalidEvent for a malformed id."""
        writer, sequence = split_id(identifier)
        number = self.numbers["writers"].get(writer)
        if number is None:
            row = self._connection.execute("SELECT id FROM writers WHERE name = ?", (writer,)).fetchone()
            number = None if row is None else row[0]
        return None if number is None else (number, sequence)

    def context_number(self, context: Context) -> int:
        """Return the number (row id) of a context. A new context is added to its table."""
        last, number = self._last_context  # consecutive events usually share one, and comparing is cheaper than hashing
        if last is context:
            return number
        if (known := self._context_numbers.get(context)) is not None:
            self._last_context = context, known
            return known
        self.intern_contexts([context])
        number = self._context_numbers[context]
        self._last_context = context, number
        return number

    def intern_contexts(self, wanted: Iterable[Context]) -> None:
        """Cache the numbers of these contexts, and intern new ones. A batch takes half the time of single calls."""
        unknown = {context: bytes.fromhex(context.id) for context in wanted if context not in self._context_numbers}
        if not unknown:
            return
        lookup = as_json([name.hex() for name in unknown.values()])
        statement = "SELECT digest, id FROM contexts WHERE digest IN (SELECT unhex(value) FROM json_each(?))"
        known: dict[bytes, int] = dict(iter(self._connection.execute(statement, (lookup,))))
        new = {name: context for context, name in unknown.items() if name not in known}
        if new:
            first = max(int(self._one("SELECT coalesce(max(id), 0) FROM contexts", ())[0]), self.highest_number) + 1
            known.update(zip(new, count(first)))
            columns = "id, digest, session, agent, user, task, correlation, labels"
            rows = [self._context_row(known[name], name, context) for name, context in new.items()]
            insert(self._connection, f"contexts ({columns})", "(?, ?, ?, ?, ?, ?, ?, ?)", rows)
        if len(self._context_numbers) + len(unknown) > CACHE_ENTRIES_MAX:
            self._context_numbers.clear()
        self._context_numbers.update((context, known[name]) for context, name in unknown.items())

    def _context_row(self, number: int, name: bytes, context: Context) -> Row:
        session = None if context.session is None else self.number("sessions", context.session)
        values = context.agent, context.user, context.task, context.correlation, labels_text(context)
        return (number, name, session, *values)

    def _next_number(self, table: str) -> int | None:
        """Return a number that was never used; None if SQLite may assign the number.

        SQLite might reuse the numbers of purged words, which other processes may have cached.
        """
        if not self.highest_number:
            return None
        highest = f"coalesce((SELECT id FROM {table} ORDER BY id DESC LIMIT 1), 0)"
        return int(self._one(f"SELECT max({highest}, ?) + 1", (self.highest_number,))[0])

    # -- Numbers to words -------------------------------------------------------------------------------------

    def word(self, table: str, number: int) -> str:
        """Return the word that has this number in this table."""
        key = (table, number)
        if (word := self._words.get(key)) is None:
            found = f"(SELECT id FROM {table} AS indexed WHERE indexed.name = {table}.name)"  # reads the index's copy
            word, is_indexed = self._one(f"SELECT name, id = {found} FROM {table} WHERE id = ?", (number,))
            if not is_indexed:
                raise StoreDamaged(
                    self._connection.filename, f"{word!r}, number {number} of {table}, is not in its index"
                )
            remember(self._words, key, word)
        return word

    def id(self, writer: int, sequence: int) -> EventId:
        """Return the event id with this key."""
        return event_id(WriterId(self.word("writers", writer)), sequence)

    def context(self, number: int) -> Context:
        """Return the context with this number."""
        if (context := self._contexts.get(number)) is None:
            self.learn_contexts([number])
            context = self._contexts[number]
        return context

    def learn_contexts(self, numbers: Iterable[int]) -> None:
        """Cache the contexts with these numbers. Those that are not cached yet are read in one query."""
        if not (unknown := [number for number in set(numbers) if number not in self._contexts]):
            return
        rows = self._connection.execute(
            """SELECT contexts.id, sessions.name, agent, user, task, correlation, labels, digest FROM contexts
            LEFT JOIN sessions ON sessions.id = contexts.session
            WHERE contexts.id IN (SELECT value FROM json_each(?))""",
            (as_json(unknown),),
        )
        for number, session, agent, user, task, correlation, labels, name in rows:
            context = Context(
                session=session, agent=agent, user=user, task=task, correlation=correlation, labels=labels_of(labels)
            )
            if bytes.fromhex(context.id) != name:
                raise StoreDamaged(self._connection.filename, f"context {number} does not match its digest")
            remember(self._contexts, number, context)

    def _one(self, statement: str, bindings: apsw.Bindings) -> Row:
        row = self._connection.execute(statement, bindings).fetchone()
        if row is None:
            raise StoreDamaged(self._connection.filename, f"a row is missing ({statement})")
        return cast(Row, row)

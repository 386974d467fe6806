"""The open SQLite file of a space: one connection, its caches, its transactions, and the reads that roles share.

A `SqliteCore` is synchronous and belongs to one thread. Write-ahead logging lets readers and one writer of several
processes work at the same time; every write is one immediate transaction, committed with a full sync.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from operator import itemgetter
from pathlib import Path

import apsw
import msgspec

from mica.errors import StoreDamaged
from mica.model.event import ORIGINS, Event, EventId
from mica.model.mark import Mark, mark_of
from mica.store.checks import ChainPlace
from mica.store.codec import READ_ROWS, compress, digest, expand, moment, remember
from mica.store.protocol import no_progress
from mica.store.purges import Purge, PurgeFilter
from mica.store.sqlite.blocks import Blocks
from mica.store.sqlite.file import COLUMNS, FileIdentity, Key, Row, as_json, open_file, row_checksum, translated
from mica.store.sqlite.statistics import TextStatistics
from mica.store.sqlite.words import SqliteWords

PATIENCE_S = 60  # eight writers with full syncs wait seconds; a longer wait means that one is stuck
CACHED_MARKS_MAX = 10_000  # at most 20 MB
CACHED_CHARACTERS_MAX = 2_000  # longer marks are not cached

_POSITION, _TIME, _CONTEXT = itemgetter(0), itemgetter(4, 0), itemgetter(5)


class SqliteCore:
    """The open SQLite file of a space. Only one thread may use it; several processes may open the same file."""

    def __init__(self, path: Path, *, busy_ms: int = PATIENCE_S * 1_000) -> None:
        self.path = path
        self.places: dict[EventId, ChainPlace[Key]] = {}  # a cache of the lineage of stored events
        self.purge_filter = PurgeFilter()
        self.generation = -1  # the purge counter of the file when the caches were last emptied
        with translated(path):
            self.connection = open_file(path, busy_ms=busy_ms)
            self._file = FileIdentity(path)
            self.words = SqliteWords(self.connection)
            self.blocks = Blocks(self.connection)
            self.statistics = TextStatistics(self.connection)
            self._marks: dict[int, Mark] = {}
            self._refresh_purges()

    @cached_property
    def space(self) -> str:
        return str(self.one("SELECT id FROM space")[0])

    def close(self) -> None:
        self.connection.close()

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Run the `with` block in one write transaction with up-to-date caches; roll back when it raises."""
        with translated(self.path):
            self.connection.execute("BEGIN IMMEDIATE")
            try:
                self._file.check()
                self._refresh_purges()
                self.blocks.refresh()
                yield
                self.connection.execute("COMMIT")
            except BaseException:
                self.forget()  # the words interned in this transaction are rolled back
                if self.connection.in_transaction:
                    self.connection.execute("ROLLBACK")
                raise

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Run the `with` block on one snapshot of the file. An open transaction is used if there is one."""
        with translated(self.path):
            if self.connection.in_transaction:
                yield
                return
            self.connection.execute("BEGIN")
            try:
                self.blocks.refresh()
                yield
            finally:
                self.connection.execute("COMMIT")

    def _refresh_purges(self) -> None:
        """If any process has purged since the last call, empty the caches and read the stored purges."""
        generation, highest = self.one("SELECT generation, highest_number FROM space")
        if generation != self.generation:
            self.forget()
            self.purge_filter = PurgeFilter(self.purges())
            self.generation, self.words.highest_number = generation, highest

    def purges(self) -> list[Purge]:
        """Return every stored purge, oldest first."""
        rows = self.rows("SELECT purge FROM purges")
        return list(PurgeFilter(msgspec.json.decode(row[0], type=Purge) for row in rows).purges)

    def forget(self) -> None:
        """Empty every cache."""
        self.words.forget()
        self.blocks.forget()
        self.places.clear()
        self.statistics.forget()
        self._marks.clear()

    def rows(self, statement: str, bindings: apsw.Bindings = ()) -> Iterator[Row]:
        with translated(self.path):
            yield from self.connection.execute(statement, bindings)

    def one(self, statement: str, bindings: apsw.Bindings = ()) -> Row:
        row = next(self.rows(statement, bindings), None)
        if row is None:
            raise StoreDamaged(str(self.path), f"a row is missing ({' '.join(statement.split())})")
        return row

    def table(self, rest: str, bindings: apsw.Bindings = ()) -> list[Row]:
        """Return rows of the events table. Events in compressed blocks are not in this table.

        `rest` is the part of the SELECT statement after the name of the table.
        """
        with translated(self.path):
            return self.connection.execute(f"SELECT {COLUMNS} FROM events {rest}", bindings).fetchall()

    def row_of(self, key: Key | None) -> Row | None:
        """Return the event with this key as a row, from the table or from a block; None if it is not stored."""
        if key is None:
            return None
        rows = self.table("WHERE writer = ? AND sequence = ?", key)
        if not rows and self.blocks.is_used and (position := self.blocks.position(*key)) is not None:
            rows = self.blocks.at([position])
        return rows[0] if rows else None

    def get(self, identifier: EventId) -> Event | None:
        """Return the event with this id, or None."""
        with self.reading():
            row = self.row_of(self.words.known_key(identifier))
            return None if row is None else self.to_event(row)

    def at(self, positions: Sequence[int]) -> list[Event]:
        """Return the events at these positions, in order of position."""
        rows = self.table("WHERE position IN (SELECT value FROM json_each(?))", (as_json(positions),))
        if self.blocks.is_used:
            rows += self.blocks.at(positions)
        self.words.learn_contexts(map(_CONTEXT, rows))
        return [self.to_event(row) for row in sorted(rows, key=_POSITION)]

    def marks_at(self, positions: Sequence[int]) -> list[Mark]:
        """Return the marks at these positions, in this order. Short marks are cached."""
        known = {position: mark for position in positions if (mark := self._marks.get(position)) is not None}
        for event in self.at([position for position in positions if position not in known]):
            mark = mark_of(event)
            known[event.position or 0] = mark
            if len(mark.text) <= CACHED_CHARACTERS_MAX:
                remember(self._marks, event.position or 0, mark, limit=CACHED_MARKS_MAX)
        return [known[position] for position in positions if position in known]

    def in_order(self, rows: Iterable[Row]) -> list[Event]:
        """Convert rows to events, each once, ordered by time and position."""
        return [self.to_event(row) for row in sorted({row[0]: row for row in rows}.values(), key=_TIME)]

    def read(self, after: int, *, limit: int) -> list[Event]:
        """Return up to `limit` events after a position, in order of position."""
        with self.reading():
            return [self.to_event(row) for row in self.rows_after(after, limit=limit)]

    def rows_after(self, after: int, *, limit: int) -> list[Row]:
        """Return up to `limit` events after a position as rows, from the table and from blocks."""
        rows = self.table("WHERE position > ? ORDER BY position LIMIT ?", (after, limit))
        if self.blocks.is_used:
            until = rows[-1][0] if rows and len(rows) >= limit else None
            rows = sorted([*rows, *self.blocks.after(after, until=until, limit=limit)], key=_POSITION)[:limit]
        if rows and rows[-1][0] <= after:  # or a reader of the whole log would read the same rows for ever
            raise StoreDamaged(str(self.path), f"position {rows[-1][0]} comes after position {after}")
        return rows

    def whole_log(self, count: Callable[[int], None] = no_progress) -> Iterator[Event]:
        """Yield every event in order of position; `count` is called with the size of each batch."""
        last = 0
        while batch := self.read(last, limit=READ_ROWS):
            yield from batch
            count(len(batch))
            last = batch[-1].position or 0

    def last_position(self) -> int:
        return int(self.one("SELECT last_position FROM space")[0])

    def to_event(self, row: Row) -> Event:
        """Convert a row of the events table, with the columns in COLUMNS, to an event."""
        (position, writer, sequence, name, at, context, root_writer, root_sequence, parent_writer, parent_sequence,
         depth, origin, error, data, payload, crc) = row  # fmt: skip
        body = b"" if data is None else data if isinstance(data, bytes) else data.encode()
        if crc is not None and crc != row_checksum(row):
            raise StoreDamaged(str(self.path), f"the event at position {position} does not match its checksum")
        if data is None:
            body = expand(self.one("SELECT body FROM payloads WHERE id = ?", (payload,))[0])
        parent = None if parent_writer is None else self.words.id(parent_writer, parent_sequence)
        identifier = self.words.id(writer, sequence)
        is_root = root_sequence == sequence and root_writer == writer
        return Event(
            id=identifier,
            name=self.words.word("names", name),
            at=moment(at),
            body=body,
            context=self.words.context(context),
            root_id=identifier if is_root else self.words.id(root_writer, root_sequence),
            parent_id=parent,
            depth=depth,
            origin=ORIGINS[origin],
            error=bool(error),
            position=position,
        )

    def payload_number(self, body: bytes) -> int:
        """Return the row id of a large payload. A payload that is not stored yet is stored first."""
        name = digest(body)
        row = self.connection.execute("SELECT id FROM payloads WHERE digest = ?", (name,)).fetchone()
        if row is not None:
            return int(row[0])
        self.connection.execute(
            "INSERT INTO payloads (digest, size_bytes, body) VALUES (?, ?, ?)", (name, len(body), compress(body))
        )
        return self.connection.last_insert_rowid()

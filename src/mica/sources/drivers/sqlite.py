"""SQLite files as sources: one read-only query for each question, with limits that SQLite enforces."""

from __future__ import annotations

import os
import stat
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Annotated
from urllib.parse import quote

import apsw

from mica.errors import SourceFailed
from mica.sources.drivers.rows import MappedRows, SourceRecord
from mica.sources.drivers.tables import About, Around, DeclaredSource, QueryTemplate, SourceQueryPreview, SourceTable
from mica.sources.protocol import RANK_DATABASE, Concept
from mica.sources.threads import PER_SOURCE_MAX

BUSY_MS = 50  # how long to wait for a writer; a reader of a file in WAL mode never waits
STEPS = 1_000  # instructions of SQLite's virtual machine between two checks of the time limit: some 20 µs
CELL_BYTES_MAX = 1_000_000  # of all values of one answer together; more is content, not a statement
READ_ONLY = apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI
READING = frozenset({apsw.SQLITE_SELECT, apsw.SQLITE_READ, apsw.SQLITE_RECURSIVE})

Query = Annotated[str, About(min_length=1, description="one SELECT, with $1, $2 … as its parameters")]
Parameters = Annotated[
    tuple[str, ...],
    About(description='the values of $1, $2 … from {domain}, {type} and {id}, as in ["{type}", "{id}"]'),
]


DEFAULT_PARAMETERS = ("{id}",)


def parse_parameters(parameters: tuple[str, ...] | None) -> list[QueryTemplate]:
    """Parse the templates of a query's parameters. Without `parameters`, `$1` is the id of the concept.

    Raises ValueError for an invalid template.
    """
    return [QueryTemplate(text) for text in (DEFAULT_PARAMETERS if parameters is None else parameters)]


class SqliteTable(SourceTable, frozen=True, kw_only=True, tag="sqlite"):
    """The settings of a source that queries a SQLite file."""

    path: Annotated[str, About(min_length=1, description="a SQLite file")]
    query: Query
    parameters: Parameters | None = None
    bytes_max: Annotated[int, About(ge=1, description="a number of bytes")] = CELL_BYTES_MAX


class SqliteSource(DeclaredSource):
    """A source that runs a query on a SQLite file. The file is opened read-only, and SQLite refuses to write."""

    driver = "sqlite"
    rank = RANK_DATABASE
    table: SqliteTable

    def __init__(self, name: str, table: SqliteTable, around: Around) -> None:
        super().__init__(name, table, around)
        self._path = around.folder / Path(table.path).expanduser()
        self._parameters = parse_parameters(table.parameters)
        self._idle: list[tuple[tuple[int, int], apsw.Connection]] = []  # with the identity of the open file
        self._is_closed = False

    @property
    def place(self) -> str:
        return str(self._path)

    async def query(self, concept: Concept, *, now: datetime) -> MappedRows:
        bound = {str(number): asking.of(concept) for number, asking in enumerate(self._parameters, start=1)}
        is_cancelled = threading.Event()
        until = time.monotonic() + self.table.timeout_s

        def is_over() -> bool:
            return is_cancelled.is_set() or time.monotonic() > until

        try:
            rows, missing = await self.blocking(lambda: self._rows(self.table.query, bound, is_over))
        finally:
            is_cancelled.set()  # ends the query if the caller was cancelled
        mapped = self.mapping.fragments(
            (SourceRecord(row, concept) for row in rows), now=now, where=f"{self._path.name}#row "
        )
        return MappedRows(mapped.fragments, mapped.missing + missing)

    def _rows(
        self, query: str, bound: dict[str, str], is_over: Callable[[], bool]
    ) -> tuple[list[dict[str, object]], tuple[str, ...]]:
        most = self.declared.fragments_max
        rows: list[dict[str, object]] = []
        size_bytes = 0
        try:
            with self._cursor(is_over) as cursor:
                for values in cursor.execute(query, bound):
                    size_bytes += sum(len(value) for value in values if isinstance(value, str | bytes))
                    if size_bytes > self.table.bytes_max:
                        return rows, (
                            f"rows after the first {len(rows)} go beyond bytes_max = {self.table.bytes_max:,}",
                        )
                    if len(rows) == most:
                        return rows, (self.cut("rows"),)
                    columns = [name for name, _ in cursor.get_description()]
                    rows.append(dict(zip(columns, values, strict=True)))
                return rows, ()
        except (apsw.Error, KeyError) as error:
            raise SourceFailed(self.name, self._describe(error)) from error

    @contextmanager
    def _cursor(self, is_over: Callable[[], bool]) -> Iterator[apsw.Cursor]:
        """Return a context with a cursor of a connection that no other call uses.

        SQLite calls `is_over` while it runs a query. When `is_over` returns True, the query is aborted.
        """
        key, connection = self._connection()
        connection.set_progress_handler(is_over, STEPS)
        cursor = connection.cursor()
        try:
            yield cursor
        finally:
            cursor.close(force=True)
            connection.set_progress_handler(None)
            if self._is_closed or len(self._idle) >= PER_SOURCE_MAX:
                connection.close()
            else:
                self._idle.append((key, connection))

    def _connection(self) -> tuple[tuple[int, int], apsw.Connection]:
        """Return a pair: the device and inode of the file, and a connection to the file.

        The device and inode show later whether the connection is still to the file at this path, or to a file that was
        replaced. Raises SourceFailed if there is no regular file.
        """
        try:
            found = self._path.stat()
        except OSError as error:
            raise SourceFailed(
                self.name, f"there is no file {self._path} ({error.strerror}); correct `path`"
            ) from error
        if not stat.S_ISREG(found.st_mode):
            raise SourceFailed(self.name, f"{self._path} is not a file but a folder, pipe or device; give a file")
        key = found.st_dev, found.st_ino
        while self._idle:
            before, connection = self._idle.pop()
            if before == key:
                return key, connection
            connection.close()
        return key, self._opened()

    def _opened(self) -> apsw.Connection:
        address = f"file:{quote(str(self._path))}?mode=ro"
        try:
            connection = self._guarded(apsw.Connection(address, flags=READ_ONLY))
        except (apsw.CantOpenError, apsw.ReadOnlyError):
            log = self._path.with_name(self._path.name + "-wal")
            if not os.access(self._path, os.R_OK) or (log.exists() and log.stat().st_size):
                raise
            # A WAL-mode file in a read-only folder can only be opened as immutable.
            connection = self._guarded(apsw.Connection(f"{address}&immutable=1", flags=READ_ONLY))
        return connection

    def _guarded(self, connection: apsw.Connection) -> apsw.Connection:
        try:
            connection.set_busy_timeout(BUSY_MS)
            connection.limit(apsw.SQLITE_LIMIT_LENGTH, max(self.table.bytes_max, len(self.table.query) + 1_000))
            connection.limit(apsw.SQLITE_LIMIT_ATTACHED, 0)
            connection.config(apsw.SQLITE_DBCONFIG_DEFENSIVE, 1)
            connection.config(apsw.SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0)  # views of a hostile file must not call functions
            connection.pragma("query_only", 1)
            connection.execute("SELECT 1 FROM sqlite_schema LIMIT 1").fetchall()  # fails now if the file cannot be read
            connection.authorizer = _only_reading
        except BaseException:
            connection.close()
            raise
        return connection

    def _describe(self, error: apsw.Error | KeyError) -> str:
        if isinstance(error, KeyError):
            return f"the query has ${error.args[0]}, but `parameters` has no value for it; add one"
        if isinstance(error, apsw.AuthError | apsw.ReadOnlyError) or "not authorized" in str(error):
            return f"the query does more than read, and SQLite refused it ({error}); give one SELECT"
        if isinstance(error, apsw.InterruptError):
            return f"the query took longer than timeout_s = {self.table.timeout_s:g}; add an index, or ask for less"
        if isinstance(error, apsw.TooBigError):
            return f"a value is longer than bytes_max = {self.table.bytes_max:,}; select a part of it with substr()"
        if isinstance(error, apsw.BusyError | apsw.LockedError):
            return f"{self._path} is being written by another process; try again"
        if isinstance(error, apsw.NotADBError | apsw.CorruptError):
            return f"{self._path} is not a SQLite database, or damaged ({error}); correct `path`"
        if isinstance(error, apsw.CantOpenError | apsw.PermissionsError):
            return f"{self._path} cannot be read ({error}); check its permissions"
        return f"SQLite refuses the query: {error}; try it with `sqlite3 -readonly`"

    def explain(self, concept: Concept) -> SourceQueryPreview:
        bound = {f"${number}": asking.of(concept) for number, asking in enumerate(self._parameters, start=1)}
        return self.preview(self.table.query, bound)

    async def check(self) -> str:
        until = time.monotonic() + self.table.timeout_s
        rows, _ = await self.blocking(
            lambda: self._rows("SELECT count(*) AS tables FROM sqlite_schema", {}, lambda: time.monotonic() > until)
        )
        return f"{self._path}, {rows[0]['tables']} tables and indexes"

    async def close(self) -> None:
        self._is_closed = True
        while self._idle:
            self._idle.pop()[1].close()


def _only_reading(operation: int, first: str | None, second: str | None, _: str | None, __: str | None) -> int:
    """Return SQLITE_OK if a query may do this operation, otherwise SQLITE_DENY. SQLite calls this as an authorizer.

    A query may read tables and call functions. It may do nothing else.
    """
    is_allowed = (
        operation in READING
        or (operation == apsw.SQLITE_FUNCTION and second != "load_extension")
        or (operation == apsw.SQLITE_PRAGMA and first == "data_version" and second is None)  # full-text search needs it
    )
    return apsw.SQLITE_OK if is_allowed else apsw.SQLITE_DENY

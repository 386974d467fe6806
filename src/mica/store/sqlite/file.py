"""The SQLite file of a store: opening, migration, and translation of SQLite's errors."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from marshal import dumps
from pathlib import Path
from typing import Any, Literal
from urllib.parse import quote
from zlib import crc32

import apsw
import msgspec

from mica.errors import NotAStore, SchemaTooNew, StoreBusy, StoreDamaged, StoreError, StoreFull, StoreUnavailable
from mica.model.event import microseconds, new_writer, utc_now
from mica.private_files import FILE_MODE
from mica.store.migrations import EngineSchema, load_schema
from mica.store.sqlite.write_ahead_log import check_log

Key = tuple[int, int]  # an id: the number of its writer, and its sequence
Row = tuple[Any, ...]  # tables are STRICT, so a column has its declared type

COLUMNS = """position, writer, sequence, name, at, context, root_writer, root_sequence, parent_writer,
    parent_sequence, depth, origin, error, data, payload, crc"""  # of the events table; rows have this order
OPEN_RETRY_S = 0.005
CHECKPOINT_PAGES = 4_000  # 16 MB of write-ahead log, so that pages that change often are copied less often
CACHE_KIB = 16_384  # page cache; with SQLite's default of 2 MB a search in a large space reads pages repeatedly
READ_ONLY = apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI
APPLICATION_ID = 0x6D696361  # "mica" in the file header; a database of another program is never written to


def open_file(path: Path, *, busy_ms: int) -> apsw.Connection:
    """Open the SQLite file of a store, and create or migrate it if necessary.

    A file that may not be written is opened read-only. SQLite's own errors are not translated here.
    """
    if path.is_dir():
        raise NotAStore(f"{path} is a directory; give a file, such as {path / 'space.db'}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StoreUnavailable(
            f"cannot create the folder {path.parent}: {error.strerror}; choose another with --store or MICA_HOME"
        ) from error
    with suppress(OSError):  # it exists, or SQLite reports why it cannot be created
        os.close(
            os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, FILE_MODE)
        )  # and SQLite gives its log the same
    exists = path.exists() and path.stat().st_size > 0
    until = time.monotonic() + busy_ms / 1_000
    try:
        while True:
            try:
                return _ready(apsw.Connection(str(path)), path, busy_ms=busy_ms)
            except apsw.BusyError:  # SQLite does not wait while another process turns the write-ahead log on
                if time.monotonic() > until:
                    raise
                time.sleep(OPEN_RETRY_S)
    except (apsw.ReadOnlyError, apsw.CantOpenError):
        if not exists:
            raise
        log = path.with_name(path.name + "-wal")
        if log.exists() and log.stat().st_size:
            raise StoreUnavailable(
                f"{path} has changes in {log.name}, which can only be read if the folder is writable; "
                "copy both elsewhere"
            ) from None
        # In a read-only folder, SQLite can only read the file as immutable.
        return _ready(apsw.Connection(f"file:{quote(str(path))}?immutable=1", flags=READ_ONLY), path, busy_ms=busy_ms)


class FileIdentity:
    """Detects that the open file was removed or replaced; SQLite would continue to write to the removed file."""

    def __init__(self, path: Path) -> None:
        self._path = path.absolute()
        self._identity = self._stat()

    def check(self) -> None:
        """Raise StoreUnavailable if the file was removed or replaced after this object was created."""
        if (identity := self._stat()) != self._identity:
            reason = f": {identity}" if isinstance(identity, str) else ""
            raise StoreUnavailable(
                f"{self._path} was removed or replaced while it was open{reason}; nothing more is written to it, and"
                " new events wait beside it until the space is opened again"
            )

    def _stat(self) -> tuple[int, int] | str | None:
        """Return device and inode of the file, or the reason why they cannot be read."""
        try:
            status = self._path.stat()
        except OSError as error:
            return error.strerror
        return status.st_dev, status.st_ino


def _ready(connection: apsw.Connection, path: Path, *, busy_ms: int) -> apsw.Connection:
    try:
        connection.set_busy_timeout(busy_ms)
        _migrate(connection, path)
    except BaseException:
        connection.close()
        raise
    return connection


def _migrate(connection: apsw.Connection, path: Path) -> None:
    """Configure the connection, and migrate the file to the current schema. Safe in several processes at a time."""
    schema = load_schema("sqlite")
    version = _version(connection, path)
    if version > schema.version:
        raise SchemaTooNew(f"{path} has schema version {version}, this mica knows {schema.version}; upgrade mica")
    if 0 < version < schema.first:
        raise StoreError(f"{path} has schema version {version}, older than any release; import its transcripts again")
    if connection.readonly("main"):
        if version < schema.version:
            raise StoreUnavailable(f"{path} has an old schema and is read-only; open it once with write access")
        return
    check_log(connection, path)
    if version == 0:
        connection.pragma("auto_vacuum", 2)  # incremental, because ageing frees pages; can only be set in a new file
    connection.pragma("journal_mode", "wal")
    connection.pragma("synchronous", "full")
    connection.pragma("foreign_keys", "on")
    connection.pragma("wal_autocheckpoint", CHECKPOINT_PAGES)
    connection.pragma("cache_size", -CACHE_KIB)
    if version == schema.version:
        return
    connection.execute("BEGIN IMMEDIATE")
    try:
        version = int(connection.pragma("user_version") or 0)
        _apply(connection, schema, version)
        connection.pragma("application_id", APPLICATION_ID)
        connection.pragma("user_version", schema.version)
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def _apply(connection: apsw.Connection, schema: EngineSchema, version: int) -> None:
    """Create the tables of a new file or migrate an older one, inside a transaction."""
    new = [schema.statements] if version == 0 else [statements for _, statements in schema.after(version)]
    for statements in new:
        for _ in connection.execute(statements):
            pass
    if version == 0:
        created = (new_writer(), microseconds(utc_now()))
        connection.execute(
            "INSERT INTO space (id, created_at, crc) VALUES (?, ?, ?)", (*created, values_checksum(*created))
        )


def _version(connection: apsw.Connection, path: Path) -> int:
    """Return the schema version of the file; 0 for a new file. Raises NotAStore for a database of another program."""
    connection.execute("BEGIN")
    try:
        has_tables = connection.execute("SELECT 1 FROM sqlite_schema LIMIT 1").fetchone() is not None
        if has_tables and connection.pragma("application_id") != APPLICATION_ID:
            raise NotAStore(f"{path} is an SQLite database of another program; give another path")
        return int(connection.pragma("user_version") or 0)
    finally:
        connection.execute("COMMIT")


@contextmanager
def translated(path: Path) -> Iterator[None]:
    """Translate SQLite errors of the `with` block into MicaErrors, whose messages give the file and a remedy."""
    try:
        yield
    except apsw.FullError as error:
        raise StoreFull(f"no space left for {path}; free some and try again; nothing was written") from error
    except apsw.NotADBError as error:
        raise NotAStore(f"{path} is not an SQLite database; give another path") from error
    except apsw.CorruptError as error:
        raise StoreDamaged(str(path), str(error)) from error
    except (apsw.BusyError, apsw.LockedError) as error:
        raise StoreBusy(f"{path} is being written by another process; try again") from error
    except (apsw.ReadOnlyError, apsw.CantOpenError, apsw.PermissionsError) as error:
        raise StoreUnavailable(
            f"cannot write {path} ({error}); check the permissions of the file and its folder, "
            "or choose another with --store or MICA_HOME"
        ) from error
    except apsw.ConnectionClosedError as error:
        raise StoreUnavailable(f"the store {path} is closed; open it again") from error
    except apsw.IOError as error:
        raise StoreUnavailable(f"the disk of {path} fails ({error}); nothing was written") from error
    except apsw.Error as error:
        raise StoreError(f"{path} cannot be used: {error}; is it a mica store?") from error


@contextmanager
def authority(connection: apsw.Connection, work: Literal["age", "purge", "rebuild"]) -> Iterator[None]:
    """Permit ageing (compression of old events), a purge or a rebuild inside the `with` block.

    Outside of such a block, triggers of the database refuse the changes that this work makes. Must be used inside a
    transaction, because a row in the table `authority` gives the permission.
    """
    connection.execute("INSERT INTO authority (work, at) VALUES (?, ?)", (work, microseconds(utc_now())))
    yield
    connection.execute("DELETE FROM authority WHERE work = ?", (work,))


def insert(connection: apsw.Connection, into: str, values: str, rows: Sequence[Row]) -> None:
    """Insert rows one by one with one prepared statement, which is faster than many rows per statement."""
    connection.executemany(f"INSERT INTO {into} VALUES {values}", rows)


def row_checksum(row: Row) -> int:
    """Return the checksum of a row of the events table, without the column `crc`. Signed, to take four bytes."""
    return crc32(dumps(row[:15], 2)) - 2**31  # of the formats, version 2 is the same in every Python


def check_row(row: Row, connection: apsw.Connection) -> None:
    """Raise StoreDamaged if a row of the events table, with the columns in COLUMNS, does not match its checksum."""
    if row[15] is not None and row[15] != row_checksum(row):
        raise StoreDamaged(connection.filename, f"the event at position {row[0]} does not match its checksum")


def values_checksum(*values: object) -> int:
    """Return the checksum of a row with these values, for any table but `events`."""
    total = 0
    for value in values:
        raw = value if isinstance(value, bytes) else str(value).encode("utf-8", "surrogatepass")
        total = crc32(raw, crc32(b"%d:" % len(raw), total))
    return total - 2**31


def as_json(values: Sequence[int] | Sequence[str] | Sequence[Key]) -> str:
    """Encode values as JSON for `json_each`, so that any number of values is one SQL parameter."""
    return msgspec.json.encode(values).decode()

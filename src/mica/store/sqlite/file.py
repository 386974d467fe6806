"""The file under the embedded store: opening, migrating, and SQLite's errors in our words."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Literal
from urllib.parse import quote

import apsw
import msgspec

from mica.errors import NotAStore, SchemaTooNew, StoreBusy, StoreError, StoreFull, StoreUnavailable
from mica.model.event import microseconds, new_writer, utc_now
from mica.store.migrations import EngineSchema, load_schema

Key = tuple[int, int]  # an id: the number of its writer, and its sequence
Row = tuple[Any, ...]  # the schema's tables are STRICT: a column has the type that it declares

COLUMNS = """position, writer, sequence, name, at, context, root_writer, root_sequence, parent_writer,
    parent_sequence, depth, origin, error, data, payload"""  # of an event, in the order of `Row`
MODE = 0o600  # of a new file: what an agent saw is its owner's business. SQLite gives the log the mode of the file
OPEN_RETRY_S = 0.005
CHECKPOINT_PAGES = 4_000  # 16 MB of log before it goes into the file: what is written again and again goes there once
CACHE_KIB = 16_384  # of pages; in the 2 MB that SQLite keeps, a search in a large space reads each page anew
READ_ONLY = apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI
APPLICATION_ID = 0x6D696361  # "mica" in the file's header: a foreign database is never written to


def open_file(path: Path, *, busy_ms: int) -> apsw.Connection:
    """A connection to a store of this version; made or migrated if need be, read-only where writing is not allowed."""
    if path.is_dir():
        raise NotAStore(f"{path} is a directory; give a file, such as {path / 'space.db'}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StoreUnavailable(
            f"cannot make the folder {path.parent}: {error.strerror}; choose another with --store or MICA_HOME"
        ) from error
    with suppress(OSError):  # it is there, or SQLite says why it cannot be made
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, MODE))
    is_there = path.exists() and path.stat().st_size > 0
    until = time.monotonic() + busy_ms / 1_000
    try:
        while True:
            try:
                return _ready(apsw.Connection(str(path)), path, busy_ms=busy_ms)
            except apsw.BusyError:  # SQLite does not wait by itself while another turns the log on
                if time.monotonic() > until:
                    raise
                time.sleep(OPEN_RETRY_S)
    except (apsw.ReadOnlyError, apsw.CantOpenError):
        if not is_there:
            raise
        log = path.with_name(path.name + "-wal")
        if log.exists() and log.stat().st_size:
            raise StoreUnavailable(
                f"{path} has changes in {log.name}, which can only be read where the folder can be written; "
                "copy both elsewhere"
            ) from None
        # Without the right to write beside the file, SQLite reads it only as one that nobody changes.
        return _ready(apsw.Connection(f"file:{quote(str(path))}?immutable=1", flags=READ_ONLY), path, busy_ms=busy_ms)


class FileName:
    """A file by its name: SQLite goes on writing to one that was removed, which nobody ever reads again."""

    def __init__(self, path: Path) -> None:
        self._path = path.absolute()
        self._known = self._found()

    def check(self) -> None:
        """Raises StoreUnavailable when the name leads to another file, or to none."""
        if (found := self._found()) != self._known:
            told = f": {found}" if isinstance(found, str) else ""
            raise StoreUnavailable(
                f"{self._path} was removed or replaced while it was open{told}; nothing is written to it any more, and"
                " what is emitted waits beside it until the space is opened again"
            )

    def _found(self) -> tuple[int, int] | str | None:
        try:
            found = self._path.stat()
        except OSError as error:
            return error.strerror
        return found.st_dev, found.st_ino


def _ready(connection: apsw.Connection, path: Path, *, busy_ms: int) -> apsw.Connection:
    try:
        connection.set_busy_timeout(busy_ms)
        _migrate(connection, path)
    except BaseException:
        connection.close()
        raise
    return connection


def _migrate(connection: apsw.Connection, path: Path) -> None:
    """Bring the file to this version. Several processes may try at once; one does it, the others find it done."""
    schema = load_schema("sqlite")
    version = _version(connection, path)
    if version > schema.version:
        raise SchemaTooNew(f"{path} has schema version {version}, this mica knows {schema.version}; upgrade mica")
    if 0 < version < schema.first:
        raise StoreError(f"{path} has schema version {version}, older than any release; import its transcripts again")
    if connection.readonly("main"):
        if version < schema.version:
            raise StoreUnavailable(f"{path} has an old schema and cannot be written; open it once where it can be")
        return
    if version == 0:
        connection.pragma("auto_vacuum", 2)  # incremental; only a new file takes it: ageing releases pages
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
    """Create the tables of a new file, or migrate those of an older one, within a transaction."""
    new = [schema.statements] if version == 0 else [statements for _, statements in schema.after(version)]
    for statements in new:
        for _ in connection.execute(statements):
            pass
    if version == 0:
        created = (new_writer(), microseconds(utc_now()))
        connection.execute("INSERT INTO space (id, created_at) VALUES (?, ?)", created)


def _version(connection: apsw.Connection, path: Path) -> int:
    """The version of the schema, in one view of the file. Raises NotAStore when it is another program's."""
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
    """Turn SQLite's errors into ours, once, with the file and what to do."""
    try:
        yield
    except apsw.FullError as error:
        raise StoreFull(f"no space left for {path}; free some and try again, nothing of this write was kept") from error
    except apsw.NotADBError as error:
        raise NotAStore(f"{path} is not an SQLite database; give another path") from error
    except apsw.CorruptError as error:
        raise StoreError(
            f"{path} is damaged ({error}); keep a copy, go back to a backup, or import again into another store"
        ) from error
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
        raise StoreUnavailable(f"the disk under {path} fails ({error}); nothing of this write was kept") from error
    except apsw.Error as error:
        raise StoreError(f"{path} cannot be used: {error}; is it a store of mica?") from error


@contextmanager
def authority(connection: apsw.Connection, work: Literal["age", "purge", "rebuild"]) -> Iterator[None]:
    """Insert the row without which triggers refuse changes of the log, for this block of a transaction only."""
    connection.execute("INSERT INTO authority (work, at) VALUES (?, ?)", (work, microseconds(utc_now())))
    yield
    connection.execute("DELETE FROM authority WHERE work = ?", (work,))


def insert(connection: apsw.Connection, into: str, values: str, rows: Sequence[Row]) -> None:
    """Insert rows one by one, by one statement that is prepared once: many rows in a statement cost more."""
    connection.executemany(f"INSERT INTO {into} VALUES {values}", rows)


def as_json(values: Sequence[int] | Sequence[str] | Sequence[Key]) -> str:
    """Values as `json_each` takes them: one parameter, however many there are."""
    return msgspec.json.encode(values).decode()

"""The file under the embedded store: opening, migrating, and SQLite's errors in our words."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib import resources
from pathlib import Path

import apsw

from mica.errors import NotAStore, SchemaTooNew, StoreBusy, StoreError, StoreFull, StoreUnavailable
from mica.model import microseconds, new_writer, utc_now

APPLICATION_ID = 0x6D696361  # "mica" in the file's header: a foreign database is never written to


def connect(path: Path, *, busy_ms: int) -> apsw.Connection:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StoreUnavailable(
            f"cannot make the folder {path.parent}: {error.strerror}; choose another with --store or MICA_HOME"
        ) from error
    connection = apsw.Connection(str(path))
    connection.set_busy_timeout(busy_ms)
    return connection


def migrate(connection: apsw.Connection, path: Path) -> None:
    """Bring the file to this version. Several processes may try at once; one does it, the others find it done."""
    files = migrations()
    application = int(connection.pragma("application_id") or 0)
    version = int(connection.pragma("user_version") or 0)
    if application != APPLICATION_ID and _has_tables(connection):
        raise NotAStore(f"{path} is an SQLite database of another program; give another path")
    if version > len(files):
        raise SchemaTooNew(
            f"{path} has schema version {version}, this mica knows {len(files)}; upgrade mica (`pip install -U mica`)"
        )
    connection.pragma("journal_mode", "wal")
    connection.pragma("synchronous", "full")
    connection.pragma("foreign_keys", "on")
    if version == len(files):
        return
    connection.execute("BEGIN IMMEDIATE")
    try:
        version = int(connection.pragma("user_version") or 0)
        for statements in files[version:]:
            for _ in connection.execute(statements):
                pass
        if version == 0:
            connection.execute(
                "INSERT INTO space (id, created_at) VALUES (?, ?)", (new_writer(), microseconds(utc_now()))
            )
        connection.pragma("application_id", APPLICATION_ID)
        connection.pragma("user_version", len(files))
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def migrations() -> list[str]:
    """The numbered migrations of this engine, in order."""
    folder = resources.files("mica.store") / "migrations" / "sqlite"
    return [file.read_text(encoding="utf-8") for file in sorted(folder.iterdir(), key=lambda file: file.name)]


def _has_tables(connection: apsw.Connection) -> bool:
    return connection.execute("SELECT 1 FROM sqlite_schema LIMIT 1").fetchone() is not None


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
        raise StoreError(f"{path} is damaged ({error}); keep a copy of it and run `mica verify`") from error
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

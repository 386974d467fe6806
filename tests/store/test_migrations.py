"""Files of the first supported schema are migrated; older and newer ones are refused unharmed."""

from __future__ import annotations

import re
import sqlite3
import tarfile
from pathlib import Path

import apsw
import msgspec
import pytest
from tests.store.sqlite.direct_store import DirectStore

from mica.errors import SchemaTooNew, StoreError
from mica.store.migrations import FIRST, EngineSchema, load_schema
from mica.store.sqlite import file as sqlite_file
from mica.store.sqlite.store import SqliteStore
from mica.testing import build

HOME = Path(__file__).parents[1] / "fixtures" / "home-932c732.tar.xz"


@pytest.fixture
def first(tmp_path: Path) -> Path:
    """A file that commit 932c732 wrote."""
    with tarfile.open(HOME) as archive:
        member = next(each for each in archive if each.name.endswith(".db"))
        file = archive.extractfile(member)
        assert file is not None
        path = tmp_path / "first.db"
        path.write_bytes(file.read())
    return path


def described(path: Path) -> list[tuple[str, str, str]]:
    """The schema of a file without comments and blanks."""
    connection = sqlite3.connect(path)
    rows = connection.execute(
        "SELECT type, name, sql FROM sqlite_schema WHERE name NOT LIKE 'sqlite_%' ORDER BY type, name"
    ).fetchall()
    connection.close()
    return [(kind, name, _plain(text)) for kind, name, text in rows]


def _plain(statement: str) -> str:
    return re.sub(r"\s*([(),])\s*", r"\1", " ".join(re.sub(r"--[^\n]*", "", statement).split()))


def version_of(path: Path) -> int:
    connection = apsw.Connection(str(path))
    version = int(connection.pragma("user_version") or 0)
    connection.close()
    return version


@pytest.fixture
def newer(monkeypatch: pytest.MonkeyPatch) -> EngineSchema:
    """A later schema with one more migration."""
    schema = load_schema("sqlite")
    notes = "CREATE TABLE notes (text TEXT NOT NULL) STRICT;"
    changed = msgspec.structs.replace(
        schema, statements=f"{schema.statements}\n{notes}", migrations=(*schema.migrations, notes)
    )
    monkeypatch.setattr(sqlite_file, "load_schema", lambda _: changed)
    return changed


def test_the_schema_equals_the_first_one_and_its_migrations(first: Path, tmp_path: Path) -> None:
    """keeps: E-08"""
    assert version_of(first) == FIRST["sqlite"]

    DirectStore(first).close()
    DirectStore(tmp_path / "new.db").close()

    assert described(first) == described(tmp_path / "new.db")
    assert version_of(first) == version_of(tmp_path / "new.db") == load_schema("sqlite").version


def test_a_migration_keeps_every_event(first: Path, tmp_path: Path, newer: EngineSchema) -> None:
    """keeps: E-08"""
    store = DirectStore(first)
    events = store.log.read(0, limit=1_000)
    stored = store.log.append([build(1, "mark", {"text": "after the migration"})])

    assert stored.stored == 1
    assert len(events) > 30
    assert store.files.verify() == []
    store.close()
    DirectStore(tmp_path / "new.db").close()
    assert described(first) == described(tmp_path / "new.db")
    assert version_of(first) == newer.version == load_schema("sqlite").version + 1


def test_a_failed_migration_changes_nothing(first: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = described(first)
    broken = msgspec.structs.replace(
        load_schema("sqlite"), migrations=("CREATE TABLE notes (text TEXT); CREATE TABLE notes (text TEXT);",)
    )
    monkeypatch.setattr(sqlite_file, "load_schema", lambda _: broken)

    with pytest.raises(StoreError, match="already exists"):
        DirectStore(first)

    assert described(first) == before
    assert version_of(first) == FIRST["sqlite"]


@pytest.mark.parametrize(
    ("version", "error", "remedy"),
    [(99, SchemaTooNew, "upgrade mica"), (FIRST["sqlite"] - 1, StoreError, "import its transcripts again")],
)
async def test_a_file_of_another_version_is_refused_unharmed_with_the_remedy(
    tmp_path: Path, version: int, error: type[Exception], remedy: str
) -> None:
    path = tmp_path / "space.db"
    DirectStore(path).close()
    connection = apsw.Connection(str(path))
    connection.pragma("user_version", version)
    connection.close()
    before = path.read_bytes()

    with pytest.raises(error, match=f"version {version}.*{remedy}"):
        await SqliteStore.open(path)

    assert path.read_bytes() == before


def test_migrations_are_counted_from_the_first_version() -> None:
    schema = EngineSchema(first=10, statements="", migrations=("to 11", "to 12"))

    assert schema.version == 12
    assert schema.after(10) == [(11, "to 11"), (12, "to 12")]
    assert schema.after(11) == [(12, "to 12")]
    assert schema.after(12) == []

"""The SQLite file itself: its pragmas, its permissions, foreign and damaged files, and full disks."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

import pytest
from tests.store.sqlite.direct_store import DirectStore

import mica
from mica.errors import NotAStore, StoreError, StoreFull, StoreUnavailable
from mica.model.event import Appended, Context, EventQuery
from mica.settings import Settings
from mica.store.sqlite.file import APPLICATION_ID
from mica.store.sqlite.purges import compact
from mica.store.sqlite.store import SqliteStore
from mica.testing import build


def test_the_file_can_be_read_without_mica(tmp_path: Path) -> None:
    """SQLite alone is enough in an emergency."""
    core = DirectStore(tmp_path / "space.db")
    core.log.append([build(1, "mark", {"text": "x"}, context=Context(session="s1"))])
    core.close()
    connection = sqlite3.connect(tmp_path / "space.db")
    rows = connection.execute("SELECT names.name, data FROM events JOIN names ON names.id = events.name").fetchall()
    assert rows == [("mark", '{"text":"x"}')]
    assert connection.execute("PRAGMA application_id").fetchone() == (APPLICATION_ID,)
    connection.close()


def test_a_space_keeps_its_id(tmp_path: Path) -> None:
    core = DirectStore(tmp_path / "space.db")
    space = core.space
    core.close()
    again = DirectStore(tmp_path / "space.db")
    assert again.space == space
    again.close()


@pytest.mark.parametrize("is_new", [True, False])
def test_every_commit_reaches_the_disk(tmp_path: Path, is_new: bool) -> None:
    """keeps: K-48. Appended events survive power loss; 2 is SQLite's value for a full sync."""
    if not is_new:
        DirectStore(tmp_path / "space.db").close()
    core = DirectStore(tmp_path / "space.db")
    assert core.connection.pragma("synchronous") == 2
    assert core.connection.pragma("journal_mode") == "wal"
    core.close()


def test_a_new_store_is_readable_only_by_its_owner(tmp_path: Path) -> None:
    """Like segments and exports; also the files that SQLite creates beside it. A mode set by the user stays."""
    path = tmp_path / "folder" / "space.db"
    before = os.umask(0o022)
    try:
        core = DirectStore(path)
        core.log.append([build(1)])
        modes = {file.name: file.stat().st_mode & 0o777 for file in path.parent.iterdir()}
        compact(core.core)
        core.close()
    finally:
        os.umask(before)
    assert modes == dict.fromkeys(("space.db", "space.db-wal", "space.db-shm"), 0o600)
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.parent.stat().st_mode & 0o777 == 0o755
    path.chmod(0o640)
    DirectStore(path).close()
    assert path.stat().st_mode & 0o777 == 0o640


def test_a_new_file_opened_by_many_at_once_is_not_mistaken_for_foreign(tmp_path: Path) -> None:
    """The check for foreign files does not race with the creation of a new one."""
    problems: list[BaseException] = []

    def open_it(path: Path) -> None:
        try:
            DirectStore(path).close()
        except BaseException as error:  # noqa: BLE001 - checked below
            problems.append(error)

    for number in range(15):
        threads = [threading.Thread(target=open_it, args=(tmp_path / f"{number}.db",)) for _ in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert problems == []


async def test_a_foreign_database_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "foreign.db"
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE notes (x)")
    connection.commit()
    connection.close()
    before = path.read_bytes()

    with pytest.raises(NotAStore, match="another program"):
        await SqliteStore.open(path)

    assert path.read_bytes() == before


async def test_a_file_that_is_no_database_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("dear diary, " * 1000)
    with pytest.raises(NotAStore, match=r"notes\.txt"):
        await SqliteStore.open(path)
    assert path.read_text() == "dear diary, " * 1000


UNPRIVILEGED = """
import os, sys
from pathlib import Path
from mica.errors import StoreError
from tests.store.sqlite.direct_store import DirectStore
from mica.testing import build
DirectStore(Path(sys.argv[1]) / "space.db").close()  # imports modules that an unprivileged user may not read
os.chmod(Path(sys.argv[1]) / "space.db", 0o444)
os.chmod(sys.argv[1], 0o555)
if os.geteuid() == 0:
    os.setuid(65534)  # root may write anywhere
for name in ("new.db", "deeper/new.db"):
    try:
        DirectStore(Path(sys.argv[1]) / name)
    except StoreError as error:
        print(type(error).__name__, error)
core = DirectStore(Path(sys.argv[1]) / "space.db")
print("reads", core.files.sizes().events)
try:
    core.log.append([build(2)])
except StoreError as error:
    print(type(error).__name__, error)
"""


def test_a_read_only_folder_can_be_read_and_a_write_names_it() -> None:
    with tempfile.TemporaryDirectory() as folder:
        core = DirectStore(Path(folder) / "space.db")
        core.log.append([build(1)])
        core.close()
        Path(folder).chmod(0o755)
        command = [sys.executable, "-c", UNPRIVILEGED, folder]
        result = subprocess.run(command, capture_output=True, text=True, check=False)
        lines = result.stdout.splitlines()
        assert len(lines) == 4, result.stderr
        assert lines.pop(2) == "reads 1"
        for line in lines:
            assert line.startswith("StoreUnavailable")
            assert folder in line
            assert "choose another" in line


async def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(StoreUnavailable, match=r"file.*choose another"):
        await SqliteStore.open(tmp_path / "file" / "space.db")


async def test_a_read_only_file_is_named(tmp_path: Path) -> None:
    """Root ignores permissions, so the file is opened read-only in SQLite."""
    path = tmp_path / "space.db"
    core = DirectStore(path)
    core.connection.pragma("query_only", True)
    with pytest.raises(StoreUnavailable, match=r"cannot write .*space\.db"):
        core.log.append([build(1)])
    core.close()


def test_a_damaged_file_is_reported_not_read_as_empty(tmp_path: Path) -> None:
    path = tmp_path / "space.db"
    core = DirectStore(path)
    core.log.append([build(n, data={"text": "x" * 3_000}) for n in range(100)])
    core.close()
    with path.open("r+b") as file:
        file.seek(path.stat().st_size // 2 // 4096 * 4096)  # pages of events: those of empty tables come first
        file.write(b"\xff" * 4096 * 10)

    with pytest.raises(StoreError, match="damaged"):
        DirectStore(path).log.query(EventQuery(limit=None))


@pytest.mark.parametrize("is_replaced", [False, True])
async def test_events_emitted_after_the_file_was_removed_go_into_the_next_file(
    tmp_path: Path, home: Settings, is_replaced: bool
) -> None:
    """Nothing is written to the removed file. Events whose segment is still there are stored again, too."""
    path = tmp_path / "space.db"
    memory = await mica.open(path, settings=home)
    memory.emit("before")
    await memory.events.query()
    for file in tmp_path.glob("space.db*"):
        if file.is_file():
            file.unlink()
    if is_replaced:
        path.touch()

    memory.emit("after")
    with pytest.raises(StoreUnavailable, match=r"space\.db was removed or replaced while it was open"):
        await memory.events.query()
    await memory.close()

    async with mica.open(path, settings=home) as again:
        assert [event.name for event in await again.events.query()] == ["before", "after"]


def test_a_full_disk_keeps_what_was_there_and_loses_nothing_else(tmp_path: Path) -> None:
    core = DirectStore(tmp_path / "space.db")
    core.log.append([build(1, data={"n": 1})])
    core.connection.pragma("max_page_count", core.connection.pragma("page_count"))
    big = [build(n, data={"text": os.urandom(2_000).hex()}) for n in range(2, 60)]

    with pytest.raises(StoreFull, match="no space left"):
        core.log.append(big)

    assert [event.data for event in core.log.query(EventQuery())] == [{"n": 1}]
    core.connection.pragma("max_page_count", 2**30)
    assert core.log.append(big) == Appended(stored=58)
    assert core.files.verify() == []
    core.close()


LIMITED = """
import resource, signal, sys
from pathlib import Path
from mica.errors import StoreError
from tests.store.sqlite.direct_store import DirectStore
from mica.testing import build
core = DirectStore(Path(sys.argv[1]))
core.log.append([build(1)])
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (400_000, 400_000))
try:
    core.log.append([build(n, data={"t": "x" * 5_000}) for n in range(2, 500)])
except StoreError as error:
    print("refused:", error)
"""


def test_a_disk_that_refuses_to_grow_is_an_error_and_the_store_stays_whole(tmp_path: Path) -> None:
    path = tmp_path / "space.db"
    result = subprocess.run([sys.executable, "-c", LIMITED, path], capture_output=True, text=True, check=False)
    assert result.stdout.startswith("refused:"), result.stderr

    core = DirectStore(path)
    assert core.files.verify() == []
    assert core.files.sizes().events == 1
    core.close()

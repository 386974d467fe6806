"""What only the SQLite store promises: its file, its schema, other processes, and bad disks."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import random
import re
import signal
import sqlite3
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path

import apsw
import msgspec
import pytest

import mica
from mica.errors import NotAStore, SchemaTooNew, StoreBusy, StoreError, StoreFull, StoreUnavailable
from mica.format.documents import event_document
from mica.model.event import RETRACTED, Appended, Context, Event, EventQuery, Tombstone, writer_named
from mica.model.trail import TrailQuery
from mica.settings import Settings
from mica.store import codec as encoding
from mica.store.protocol import unheard
from mica.store.sqlite import core as sqlite_core
from mica.store.sqlite import log_query as sqlite_query
from mica.store.sqlite import store as sqlite
from mica.store.sqlite import words as sqlite_words
from mica.store.sqlite.core import SqliteCore
from mica.store.sqlite.file import APPLICATION_ID, Row, migrations
from mica.store.sqlite.store import SqliteStore
from mica.testing import build
from mica.testing.builders import START_AT

SCHEMA = Path(sqlite.__file__).parent / "schema" / "sqlite.sql"


def described(connection: sqlite3.Connection) -> list[tuple[str, str, str]]:
    rows = connection.execute(
        "SELECT type, name, sql FROM sqlite_schema WHERE name NOT LIKE 'sqlite_%' ORDER BY type, name"
    )
    return [(kind, name, _plain(text)) for kind, name, text in rows]


def _plain(statement: str) -> str:
    """Without comments and blanks: a column that was added later is written after the comment of the one before."""
    return re.sub(r"\s*([(),])\s*", r"\1", " ".join(re.sub(r"--[^\n]*", "", statement).split()))


def test_the_schema_equals_its_migrations() -> None:
    """E-08"""
    from_schema, from_migrations = sqlite3.connect(":memory:"), sqlite3.connect(":memory:")
    from_schema.executescript(SCHEMA.read_text(encoding="utf-8"))
    for statements in migrations():
        from_migrations.executescript(statements)
    assert described(from_schema) == described(from_migrations)
    from_schema.close()
    from_migrations.close()


def test_the_file_can_be_read_without_mica(tmp_path: Path) -> None:
    """An emergency needs nothing but SQLite."""
    core = SqliteCore(tmp_path / "space.db")
    core.append([build(1, "mark", {"text": "x"}, context=Context(session="s1"))])
    core.close()
    connection = sqlite3.connect(tmp_path / "space.db")
    rows = connection.execute("SELECT names.name, data FROM events JOIN names ON names.id = events.name").fetchall()
    assert rows == [("mark", '{"text":"x"}')]
    assert connection.execute("PRAGMA application_id").fetchone() == (APPLICATION_ID,)
    connection.close()


def test_a_space_keeps_its_id(tmp_path: Path) -> None:
    core = SqliteCore(tmp_path / "space.db")
    space = core.space
    core.close()
    again = SqliteCore(tmp_path / "space.db")
    assert again.space == space
    again.close()


def test_a_file_of_the_first_version_is_migrated_whole(tmp_path: Path) -> None:
    """E-08: what was stored before blocks were known is read, indexed and aged as if it were new."""
    path = tmp_path / "space.db"
    core = SqliteCore(path)
    events = [build(n, "mark", {"text": f"word {n} Word"}, context=Context(correlation="req-1")) for n in range(1, 29)]
    events.append(build(29, "mark", {"text": "of"}, context=Context(correlation="req-1")))  # has no term
    core.append(events)
    core.close()
    tables = "space writers names sessions contexts payloads events texts terms".split()
    old = sqlite3.connect(tmp_path / "old.db")
    old.executescript(migrations()[0])
    old.execute("ATTACH ? AS new", (str(path),))
    for table in tables:
        columns = ", ".join(row[1] for row in old.execute(f"PRAGMA main.table_info ({table})"))
        old.execute(f"INSERT INTO main.{table} ({columns}) SELECT {columns} FROM new.{table}")
    old.execute(
        """INSERT INTO main.postings (term, position, count)
        SELECT value, position, count(*) FROM new.unfiled JOIN json_each(terms) GROUP BY value, position"""
    )
    old.commit()
    old.executescript(f"DETACH new; PRAGMA application_id = {APPLICATION_ID}; PRAGMA user_version = 1")
    old.close()

    core = SqliteCore(tmp_path / "old.db")

    assert core.verify() == []
    assert [event.id for event in core.chain("req-1")] == [event.id for event in events]
    assert core.age(START_AT + timedelta(days=1)) == 29
    assert core.append(events) == Appended(repeated=29)
    assert core.verify() == []
    core.close()


@pytest.mark.parametrize("is_new", [True, False])
def test_every_commit_reaches_the_disk(tmp_path: Path, is_new: bool) -> None:
    """K-48: what append has returned survives power loss: 2 is SQLite's number for a full sync."""
    if not is_new:
        SqliteCore(tmp_path / "space.db").close()
    core = SqliteCore(tmp_path / "space.db")
    assert core._connection.pragma("synchronous") == 2
    assert core._connection.pragma("journal_mode") == "wal"
    core.close()


def test_a_new_store_is_its_owners_alone(tmp_path: Path) -> None:
    """Like segments and exports; also the files that SQLite puts beside it. A mode that somebody chose stays."""
    path = tmp_path / "folder" / "space.db"
    before = os.umask(0o022)
    try:
        core = SqliteCore(path)
        core.append([build(1)])
        modes = {file.name: file.stat().st_mode & 0o777 for file in path.parent.iterdir()}
        core.compact()
        core.close()
    finally:
        os.umask(before)
    assert modes == dict.fromkeys(("space.db", "space.db-wal", "space.db-shm"), 0o600)
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.parent.stat().st_mode & 0o777 == 0o755
    path.chmod(0o640)
    SqliteCore(path).close()
    assert path.stat().st_mode & 0o777 == 0o640


def test_large_payloads_are_stored_once_and_whole(tmp_path: Path) -> None:
    """TE-05, E-06, E-27, K-43: content-addressed, never truncated; 50 MB reads back identical."""
    core = SqliteCore(tmp_path / "space.db")
    large: dict[str, object] = {"text": "ab\0ü" * (10 * 2**20)}
    core.append([build(1, "tool.ran", large), build(2, "tool.ran", large), build(3, "tool.ran", {"x": "y" * 6_000})])
    assert core.sizes().payloads == 2
    event = core.event(build(2).id)
    assert event is not None
    assert event.data == large
    assert core.verify() == []
    core.close()


def test_what_is_remembered_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """TE-12: memory does not grow with the log, however many names, sessions and contexts there are."""
    monkeypatch.setattr(encoding, "CACHE_ENTRIES_MAX", 100)
    monkeypatch.setattr(sqlite_core, "CACHE_ENTRIES_MAX", 100)
    monkeypatch.setattr(sqlite_words, "CACHE_ENTRIES_MAX", 100)
    core = SqliteCore(tmp_path / "space.db")
    for first in range(0, 1_000, 20):
        events = [
            build(n, f"name.{n}", {"text": f"word{n}"}, context=Context(session=f"s{n}"), writer=writer_named(str(n)))
            for n in range(first, first + 20)
        ]
        core.append(events)
        assert [core.event(event.id) for event in events] == core.log(first, limit=20)
        core.age(START_AT + timedelta(seconds=first))

    words = core._words
    sizes = [len(cache) for cache in (core._places, words._context_numbers, words._contexts, words._words)]
    sizes += [len(cache) for cache in words.numbers.values()]
    assert 0 < min(sizes) <= max(sizes) <= 100
    core.close()


def test_an_event_cannot_be_changed_even_by_sql(tmp_path: Path) -> None:
    """B-12: refused by the database as well as by the code."""
    core = SqliteCore(tmp_path / "space.db")
    core.append([build(1)])
    core.close()
    connection = sqlite3.connect(tmp_path / "space.db")
    with pytest.raises(sqlite3.IntegrityError, match="never changed"):
        connection.execute("UPDATE events SET data = '{}'")
    with pytest.raises(sqlite3.IntegrityError, match="never removed"):
        connection.execute("DELETE FROM events")
    connection.close()


@pytest.mark.parametrize(("gone", "said"), [(2, "positions 2 to 2"), (3, "positions 3 to 3"), (1, "positions 1 to 1")])
def test_verify_finds_what_was_removed_by_force(tmp_path: Path, gone: int, said: str) -> None:
    core = SqliteCore(tmp_path / "space.db")
    core.append([build(1), build(2), build(3)])
    core._connection.execute("DROP TRIGGER events_are_kept")
    core._connection.execute("DELETE FROM events WHERE position = ?", (gone,))
    assert [problem for problem in core.verify() if said in problem]
    core.close()


def test_verify_sees_one_moment_while_others_write(tmp_path: Path) -> None:
    """A store that grows during the check is not reported as broken."""
    path = tmp_path / "space.db"
    reader, writer = SqliteCore(path), SqliteCore(path)
    writer.append([build(n, "mark", {"text": f"mark {n}"}) for n in range(50)])
    whole_log = reader._whole_log

    def grown(count: Callable[[int], None] = unheard) -> Iterator[Event]:
        yield from whole_log(count)
        start = writer.sizes().events
        writer.append([build(start + n, "mark", {"text": "more"}) for n in range(20)])

    reader._whole_log = grown  # type: ignore[method-assign]  # another process would write just now
    assert reader.verify() == []
    reader.close()
    writer.close()


def test_verify_and_rebuild_tell_how_far_they_are(tmp_path: Path) -> None:
    """Of a long log somebody hears more than once, and at the end the whole of it."""
    core = SqliteCore(tmp_path / "space.db")
    core.append([build(n, "mark", {"text": f"mark {n}"}) for n in range(2 * encoding.READ_ROWS + 1)])
    rebuilt: list[int] = []
    verified: list[int] = []
    assert core.rebuild(on_progress=rebuilt.append) == 2 * encoding.READ_ROWS + 1
    assert rebuilt == [encoding.READ_ROWS, 2 * encoding.READ_ROWS, 2 * encoding.READ_ROWS + 1]
    assert core.verify(on_progress=verified.append) == []
    assert verified == sorted(verified)
    assert (len(verified) > len(rebuilt), verified[-1]) == (True, 2 * encoding.READ_ROWS + 1)
    core.close()


def test_a_new_file_opened_by_many_at_once_is_nobody_elses(tmp_path: Path) -> None:
    """The check for foreign files and the making of a new one do not mix."""
    problems: list[BaseException] = []

    def open_it(path: Path) -> None:
        try:
            SqliteCore(path).close()
        except BaseException as error:  # noqa: BLE001 - told below
            problems.append(error)

    for number in range(15):
        threads = [threading.Thread(target=open_it, args=(tmp_path / f"{number}.db",)) for _ in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert problems == []


def test_all_files_together_are_smaller_than_events_with_embedded_contexts(tmp_path: Path) -> None:
    """TE-06, E-02, E-10: counted over every file, indexes included, against one JSON line for each event."""
    core = SqliteCore(tmp_path / "space.db")
    contexts = [
        Context(session=f"session-{n}", agent=f"agent-{n % 5}", user="ann", task="find out why the login loses it")
        for n in range(100)
    ]
    events = [
        build(n, "tool.ran", {"tool": "search", "query": f"what is {n}", "ok": True}, context=contexts[n // 50])
        for n in range(5_000)
    ]
    core.append(events)
    sizes = core.sizes()
    core.close()
    embedded = sum(len(msgspec.json.encode(event_document(event))) + 1 for event in events)

    on_disk = sum(file.stat().st_size for file in tmp_path.iterdir())

    assert sizes.contexts == 100
    assert on_disk < embedded


@pytest.mark.parametrize("aged", [0, 2, 9])
@pytest.mark.parametrize(
    "read",
    [
        lambda core: core.event(build(1).id),
        lambda core: core.event_at(1),
        lambda core: core.chain(build(1).id),
        lambda core: core.chain("req-1"),
        lambda core: core.ancestors(build(3).id),
        lambda core: core.descendants(build(1).id),
        lambda core: core.events(EventQuery(session="s1", limit=10)),
        lambda core: core.events(EventQuery(agent="a", limit=10)),
        lambda core: core.events(EventQuery(names=("file.*",), limit=10)),
        lambda core: core.events(EventQuery(since=START_AT, until=START_AT, limit=10)),
        lambda core: core.events(EventQuery(text="cookie", limit=10)),
        lambda core: core.postings(["cooki"]),
        lambda core: core.texts([1]),
    ],
)
def test_no_read_scans_the_log(tmp_path: Path, read: Callable[[SqliteCore], object], aged: int) -> None:
    """TE-10, E-10, E-26: what a question costs does not grow with the log: an index leads to the rows."""
    core = SqliteCore(tmp_path / "space.db")
    root = build(1, "mark", {"text": "cookie"}, context=Context(session="s1", agent="a", correlation="req-1"))
    core.append([root, child := build(2, "file.read", parent=root), build(3, "mark", {"text": "x"}, parent=child)])
    core.age(START_AT + timedelta(seconds=aged))

    plans = plans_of(core, read)

    assert plans
    for text, plan in plans:
        scans = [step for step in plan if step.startswith("SCAN")]
        assert not [step for step in scans if "contexts" in step or ("events" in step and "INDEX" not in step)], text
    core.close()


def test_no_purge_scans_a_table_that_grows_with_the_log(tmp_path: Path) -> None:
    """U-08: what one event costs a purge does not grow with the log."""
    core = SqliteCore(tmp_path / "space.db")
    events = [build(n, "mark", {"text": f"word{n}"}, context=Context(session=f"s{n}", agent="a")) for n in range(1, 9)]
    core.append(events)
    told = Tombstone(purge=build(99).id, reason="leaked")

    plans = plans_of(core, lambda core: core.bury([event.id for event in events[:4]], told))

    assert [text for text, _ in plans if "DELETE FROM terms" in text]
    for text, plan in plans:
        scans = [step for step in plan if step.startswith("SCAN")]
        grown = ("events", "contexts", "sessions", "terms", "texts", "postings")
        assert not [step for step in scans if step.split()[1] in grown], text
    core.close()


def plans_of(core: SqliteCore, read: Callable[[SqliteCore], object]) -> list[tuple[str, list[str]]]:
    """The statements of a read, each with the steps that SQLite plans for it."""
    statements: list[tuple[str, apsw.Bindings | None]] = []

    def trace(_: object, text: str, bindings: apsw.Bindings | None) -> bool:
        statements.append((text, bindings))
        return True

    core._connection.exec_trace = trace
    read(core)
    core._connection.exec_trace = None
    return [
        (text, [str(row[3]) for row in core._connection.execute(f"EXPLAIN QUERY PLAN {text}", bindings)])
        for text, bindings in statements
    ]


@pytest.mark.parametrize(
    ("query", "index"),
    [
        (TrailQuery(slug="auth"), "trails_by_slug"),
        (TrailQuery(shape="fix-login"), "trails_by_shape"),
        (TrailQuery(limit=10), "trails_by_runs"),
        (TrailQuery(limit=10, order="last_at"), "trails_by_last_use"),
    ],
)
def test_trails_are_found_by_an_index(tmp_path: Path, query: TrailQuery, index: str) -> None:
    """A-06: by name, task shape, number of runs and last use."""
    core = SqliteCore(tmp_path / "space.db")

    [plan] = [plan for text, plan in plans_of(core, lambda core: core.trails(query)) if "FROM trails" in text]

    assert f"INDEX {index}" in plan[0]
    core.close()


# -- Files that are not ours, or not whole --------------------------------------------------------------------


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


async def test_a_newer_schema_is_refused_with_the_remedy(tmp_path: Path) -> None:
    path = tmp_path / "space.db"
    SqliteCore(path).close()
    connection = apsw.Connection(str(path))
    connection.pragma("user_version", 99)
    connection.close()
    with pytest.raises(SchemaTooNew, match=r"version 99.*upgrade"):
        await SqliteStore.open(path)


UNPRIVILEGED = """
import os, sys
from pathlib import Path
from mica.errors import StoreError
from mica.store.sqlite.core import SqliteCore
from mica.testing import build
SqliteCore(Path(sys.argv[1]) / "space.db").close()  # loads what a user without rights may not read
os.chmod(Path(sys.argv[1]) / "space.db", 0o444)
os.chmod(sys.argv[1], 0o555)
if os.geteuid() == 0:
    os.setuid(65534)  # root may write anywhere
for name in ("new.db", "deeper/new.db"):
    try:
        SqliteCore(Path(sys.argv[1]) / name)
    except StoreError as error:
        print(type(error).__name__, error)
core = SqliteCore(Path(sys.argv[1]) / "space.db")
print("reads", core.sizes().events)
try:
    core.append([build(2)])
except StoreError as error:
    print(type(error).__name__, error)
"""


def test_a_read_only_folder_can_be_read_and_is_named_by_what_writes() -> None:
    with tempfile.TemporaryDirectory() as folder:
        core = SqliteCore(Path(folder) / "space.db")
        core.append([build(1)])
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
    """Root ignores permissions, so SQLite itself is told that the file is read-only."""
    path = tmp_path / "space.db"
    core = SqliteCore(path)
    core._connection.pragma("query_only", True)
    with pytest.raises(StoreUnavailable, match=r"cannot write .*space\.db"):
        core.append([build(1)])
    core.close()


def test_a_damaged_file_is_reported_not_read_as_empty(tmp_path: Path) -> None:
    path = tmp_path / "space.db"
    core = SqliteCore(path)
    core.append([build(n, data={"text": "x" * 3_000}) for n in range(100)])
    core.close()
    with path.open("r+b") as file:
        file.seek(4096 * 60)
        file.write(b"\xff" * 4096 * 10)

    with pytest.raises(StoreError, match="damaged"):
        SqliteCore(path).events(EventQuery(limit=None))


@pytest.mark.parametrize("is_replaced", [False, True])
async def test_what_is_emitted_when_the_file_was_removed_is_kept_for_the_next(
    tmp_path: Path, home: Settings, is_replaced: bool
) -> None:
    """Nothing goes into a file that nobody can read again."""
    path = tmp_path / "space.db"
    memory = await mica.open(path, settings=home)
    memory.emit("before")
    await memory.events()
    for file in tmp_path.glob("space.db*"):
        if file.is_file():
            file.unlink()
    if is_replaced:
        path.touch()

    memory.emit("after")
    with pytest.raises(StoreUnavailable, match=r"space\.db was removed or replaced while it was open"):
        await memory.events()
    await memory.close()

    async with mica.open(path, settings=home) as again:
        assert [event.name for event in await again.events()] == ["after"]


def test_a_full_disk_keeps_what_was_there_and_loses_nothing_else(tmp_path: Path) -> None:
    core = SqliteCore(tmp_path / "space.db")
    core.append([build(1, data={"n": 1})])
    core._connection.pragma("max_page_count", core._connection.pragma("page_count"))
    big = [build(n, data={"text": os.urandom(2_000).hex()}) for n in range(2, 60)]

    with pytest.raises(StoreFull, match="no space left"):
        core.append(big)

    assert [event.data for event in core.events(EventQuery())] == [{"n": 1}]
    core._connection.pragma("max_page_count", 2**30)
    assert core.append(big) == Appended(stored=58)
    assert core.verify() == []
    core.close()


LIMITED = """
import resource, signal, sys
from pathlib import Path
from mica.errors import StoreError
from mica.store.sqlite.core import SqliteCore
from mica.testing import build
core = SqliteCore(Path(sys.argv[1]))
core.append([build(1)])
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (400_000, 400_000))
try:
    core.append([build(n, data={"t": "x" * 5_000}) for n in range(2, 500)])
except StoreError as error:
    print("refused:", error)
"""


def test_a_disk_that_refuses_to_grow_is_an_error_and_the_store_stays_whole(tmp_path: Path) -> None:
    path = tmp_path / "space.db"
    result = subprocess.run([sys.executable, "-c", LIMITED, path], capture_output=True, text=True, check=False)
    assert result.stdout.startswith("refused:"), result.stderr

    core = SqliteCore(path)
    assert core.verify() == []
    assert core.sizes().events == 1
    core.close()


def test_verify_names_stale_indexes_and_rebuild_mends_them(tmp_path: Path) -> None:
    """U-07, TE-14: every row of the index leads to the event it was made from."""
    core = SqliteCore(tmp_path / "space.db")
    core.append([build(1, "mark", {"text": "one two"})])
    core._connection.execute("UPDATE texts SET length = 9")
    assert core.verify() == [f"event {build(1).id} is not indexed as it is stored; `mica rebuild` mends it"]
    core.rebuild()
    assert core.verify() == []
    core.close()


def test_verify_compares_every_posting_with_the_log(tmp_path: Path) -> None:
    """TE-14"""
    core = SqliteCore(tmp_path / "space.db")
    core.append([build(1, "mark", {"text": "one two two"}), build(2, "mark", {"text": "three"})])
    for damage in ("DELETE FROM unfiled WHERE position = 1", "UPDATE unfiled SET terms = '[77]' WHERE position = 2"):
        core._connection.execute(damage)
        assert len(core.verify()) == 1
        core.rebuild()
        assert core.verify() == []
    core._connection.execute("INSERT INTO unfiled (position, terms) SELECT 77, json_array(id) FROM terms LIMIT 1")
    assert "position 77" in core.verify()[0]
    core.close()


def test_a_rebuild_elsewhere_leaves_remembered_words_right(tmp_path: Path) -> None:
    one, two = SqliteCore(tmp_path / "space.db"), SqliteCore(tmp_path / "space.db")
    one.append([build(1, "mark", {"text": "alpha beta"})])
    two.rebuild()
    two.append([build(2, "mark", {"text": "gamma"})])
    one.append([build(3, "mark", {"text": "beta alpha"})])
    assert [event.position for event in one.events(EventQuery(text="alpha"))] == [1, 3]
    assert two.verify() == []
    one.close()
    two.close()


def test_verify_names_rows_of_the_index_that_lead_to_no_event(tmp_path: Path) -> None:
    """TE-14"""
    core = SqliteCore(tmp_path / "space.db")
    core.append([build(1, "mark", {"text": "one two"})])
    core._connection.pragma("foreign_keys", "off")
    core._connection.execute("INSERT INTO texts (position, at, length, is_mark) VALUES (99, 0, 2, 1)")

    assert core.verify() != []

    core.rebuild()
    assert core.verify() == []
    core.close()


def test_verify_names_a_context_whose_content_changed(tmp_path: Path) -> None:
    core = SqliteCore(tmp_path / "space.db")
    core.append([build(1, context=Context(agent="a"))])
    core._connection.execute("UPDATE contexts SET agent = 'b'")
    assert core.verify() == ["context 1 does not have the content that its digest names"]
    core.close()


# -- Threads, tasks, processes --------------------------------------------------------------------------------


async def test_no_thread_is_left_behind(tmp_path: Path) -> None:
    before = {thread.name for thread in threading.enumerate()}
    store = await SqliteStore.open(tmp_path / "space.db")
    await store.append([build(1)])
    await store.close()
    left = {thread.name for thread in threading.enumerate()} - before
    assert not any("mica" in name for name in left)


async def test_the_event_loop_goes_on_while_events_are_written(tmp_path: Path) -> None:
    """TE-11: writing happens on the store's own thread."""
    store = await SqliteStore.open(tmp_path / "space.db")
    writing = asyncio.create_task(store.append([build(n, "mark", {"text": f"mark {n}"}) for n in range(3_000)]))
    turns = 0
    while not writing.done():
        await asyncio.sleep(0)
        turns += 1
    assert turns > 10
    assert await writing == Appended(stored=3_000)
    await store.close()


async def test_a_cancelled_append_is_whole_or_absent_and_can_be_repeated(tmp_path: Path) -> None:
    store = await SqliteStore.open(tmp_path / "space.db")
    events = [build(n) for n in range(500)]
    for _ in range(5):
        task = asyncio.create_task(store.append(events))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert (await store.sizes()).events in {0, 500}
    appended = await store.append(events)
    assert appended.stored + appended.repeated == 500
    assert (await store.sizes()).events == 500
    await store.close()


async def test_readers_go_on_while_another_process_writes(tmp_path: Path) -> None:
    """U-03, U-05: a locked file delays only writing, and only until it is free."""
    path = tmp_path / "space.db"
    store = await SqliteStore.open(path)
    await store.append([build(1)])
    other = apsw.Connection(str(path))
    other.execute("BEGIN IMMEDIATE")

    waiting = asyncio.create_task(store.append([build(2)]))
    for _ in range(5):
        assert (await store.sizes()).events == 1
    assert not waiting.done()
    other.execute("COMMIT")
    other.close()

    assert await waiting == Appended(stored=1)
    await store.close()


async def test_who_waits_for_a_locked_file_is_told_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Once, while it goes on waiting: without a word a command seems to hang."""
    monkeypatch.setattr(sqlite, "SAY_S", 0)
    store = await SqliteStore.open(tmp_path / "space.db")
    other = apsw.Connection(str(tmp_path / "space.db"))
    other.execute("BEGIN IMMEDIATE")

    writing = asyncio.create_task(store.append([build(1)]))
    while not caplog.messages and not writing.done():
        await asyncio.sleep(0)
    other.execute("ROLLBACK")

    assert await writing == Appended(stored=1)
    assert caplog.messages == [
        f"{tmp_path / 'space.db'} is locked by another process; waiting for it, 60 s at the most"
    ]
    other.close()
    await store.close()


async def test_patience_ends_with_a_clear_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite, "PATIENCE_S", 0)
    path = tmp_path / "space.db"
    store = await SqliteStore.open(path)
    other = apsw.Connection(str(path))
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(StoreBusy, match="was busy"):
        await store.append([build(1)])
    other.close()
    assert await store.append([build(1)]) == Appended(stored=1)
    await store.close()


def _append_many(path: Path, writer: str, rounds: int, size: int) -> None:
    core = SqliteCore(path)
    for start in range(0, rounds * size, size):
        batch = [build(start + n, "mark", {"text": f"{writer} {n}"}, writer=writer_named(writer)) for n in range(size)]
        core.append(batch)
    core.close()


def test_eight_processes_lose_and_double_nothing(tmp_path: Path) -> None:
    """U-03, TE-08: they also all create the file at once."""
    path = tmp_path / "space.db"
    spawn = multiprocessing.get_context("spawn")
    workers = [spawn.Process(target=_append_many, args=(path, f"w{n}", 10, 20)) for n in range(8)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert [worker.exitcode for worker in workers] == [0] * 8

    core = SqliteCore(path)
    assert core.sizes().events == 8 * 10 * 20
    assert core.verify() == []
    core.close()


KILLED = """
import sys
from pathlib import Path
from mica.store.sqlite.core import SqliteCore
from mica.testing import build
core = SqliteCore(Path(sys.argv[1]))
number = 0
while True:
    core.append([build(number + n, "mark", {"text": f"mark {number + n}"}) for n in range(10)])
    number += 10
    print(number, flush=True)
"""


def killed(script: str, path: Path, *, after: int) -> int:
    """Run a script that prints how much it has stored, kill it after so many lines; the last number it printed."""
    process = subprocess.Popen([sys.executable, "-c", script, path], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    printed = [process.stdout.readline() for _ in range(after)]
    process.send_signal(signal.SIGKILL)
    printed += process.stdout.read().split()
    process.wait()
    process.stdout.close()
    return int(printed[-1])


@pytest.mark.parametrize("after", [1, 7, 30])
def test_what_append_acknowledged_survives_a_kill(tmp_path: Path, after: int) -> None:
    """TE-07: acknowledged means stored, log and index agree after the crash."""
    path = tmp_path / "space.db"

    acknowledged = killed(KILLED, path, after=after)

    core = SqliteCore(path)
    positions = [event.data["text"] for event in core.events(EventQuery(limit=None))]
    assert positions[:acknowledged] == [f"mark {n}" for n in range(acknowledged)]
    assert len(positions) % 10 == 0
    assert core.verify() == []
    core.close()


REBUILDING = """
import sys
from pathlib import Path
from mica.store.sqlite.core import SqliteCore
SqliteCore(Path(sys.argv[1])).rebuild(on_progress=lambda count: (print(count, flush=True), sys.stdin.readline()))
"""


def test_a_rebuild_that_is_killed_never_was(tmp_path: Path) -> None:
    """TE-07: everything is found as before, and the next rebuild begins anew."""
    path = tmp_path / "space.db"
    core = SqliteCore(path)
    events = [build(number, "mark", {"text": f"cookie {number}"}) for number in range(2 * encoding.READ_ROWS)]
    core.append(events)
    process = subprocess.Popen(
        [sys.executable, "-c", REBUILDING, path], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdin is not None
    assert process.stdout is not None
    assert int(process.stdout.readline()) == encoding.READ_ROWS  # it has begun, and waits to go on

    process.send_signal(signal.SIGKILL)
    process.wait()
    process.stdin.close()
    process.stdout.close()

    assert core.verify() == []
    assert core.postings(["cooki"], limit=1).marks == len(events)
    assert core.rebuild() == len(events)
    assert core.verify() == []
    core.close()


async def test_what_another_process_changes_is_known_to_the_next_search(tmp_path: Path) -> None:
    """C-24: what a store remembers of its texts never outlives them."""
    ours, theirs = await SqliteStore.open(tmp_path / "space.db"), await SqliteStore.open(tmp_path / "space.db")
    marks = [build(number, "mark", {"text": "cookie"}, context=Context(session="s")) for number in range(1, 4)]

    async def told() -> tuple[int, list[int]]:
        found = await ours.postings(["cooki"])
        return found.containing["cooki"], [text.position for text in await ours.texts([1, 2, 3], neighbours=0)]

    await theirs.append(marks[:2])
    assert await told() == (2, [1, 2])
    await theirs.append(marks[2:])
    assert await told() == (3, [1, 2, 3])
    await theirs.append([build(4, RETRACTED, {"mark": marks[1].id, "reason": "wrong"})])
    assert await told() == (2, [1, 3])
    await theirs.bury([marks[2].id], Tombstone(purge=build(1_000).id, reason="leaked"))
    assert await told() == (1, [1])
    await ours.close()
    await theirs.close()


@pytest.mark.parametrize("recent", [0, 3, 40, 1_000])
async def test_a_session_with_many_contexts_answers_as_any_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, recent: int
) -> None:
    """TE-10: the latest of a session that never ends are looked for among the latest of the log first."""
    chance = random.Random(recent)
    events = [
        build(
            number,
            chance.choice(["step", "other"]),
            after_s=chance.randint(0, 30),
            context=Context(session=chance.choice(["lasting", "other"]), task=f"t{chance.randint(0, 20)}"),
        )
        for number in range(1, 120)
    ]
    queries = [
        EventQuery(session="lasting", names=names, limit=limit)
        for names in ((), ("step",))
        for limit in (0, 1, 5, 30, 200, None)
    ]
    store = await SqliteStore.open(tmp_path / "space.db")
    await store.append(events)
    plain = [await store.events(query) for query in queries]
    monkeypatch.setattr(sqlite_query, "MANY_CONTEXTS", 2)
    monkeypatch.setattr(sqlite_query, "RECENT_ROWS", recent)
    assert [await store.events(query) for query in queries] == plain
    await store.close()


def test_verifying_reads_the_log_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Once to see which events are parents, once for everything else: `mica doctor` waits for it."""
    core = SqliteCore(tmp_path / "space.db")
    core.append([build(n, "mark", {"text": f"word{n}"}) for n in range(1, 30)])
    read: list[int] = []
    rows_after = core._rows_after

    def counted(after: int, *, limit: int) -> list[Row]:
        rows = rows_after(after, limit=limit)
        read.extend(row[0] for row in rows)
        return rows

    monkeypatch.setattr(core, "_rows_after", counted)

    assert core.verify() == []
    assert sorted(read) == sorted([*range(1, 30)] * 2)
    core.close()

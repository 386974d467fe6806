"""Crystals in a database: triggers that enforce the laws, verification, copies and exports."""

from __future__ import annotations

import re
import sqlite3
from contextlib import closing
from pathlib import Path

import asyncpg
import msgspec
import pytest

import mica
from mica.format.documents import event_line
from mica.model.crystal import CrystalQuery
from mica.model.event import RETRACTED, EventId, EventQuery
from mica.settings import Settings
from mica.store.crystal_rows import DerivedCrystals, broken_crystals, derive, referenced_ids
from mica.store.postgres.store import PostgresStore
from mica.store.protocol import Store
from mica.store.reference.store import EphemeralStore
from mica.store.sqlite.store import SqliteStore
from mica.testing import build
from mica.testing.builders import TOMBSTONE
from mica.testing.contract.crystals import CrystalContract, build_crystal, build_mark, draft_of
from mica.testing.histories import History
from mica.testing.postgres import APP, LocalPostgres
from mica.upkeep.copy import copy

AT = 1_793_523_600_000_000  # when the tests begin, in microseconds


def history() -> History:
    """Marks at 1 to 3 and 6; a day at 5 on a session at 4, one at 8 that supersedes 7, and a retracted mark at 9."""
    marks = [build_mark(1), build_mark(2), build_mark(3)]
    session = build_crystal(4, draft_of(marks[:2]))
    day = build_crystal(5, draft_of([session], level="day", period="day:x", text="the cookie"))
    late = build_mark(6, session="s2")
    first = build_crystal(7, draft_of([late], period="session:s2"))
    second = build_crystal(8, draft_of([late], period="session:s2", supersedes=[first]))
    retracted = build_mark(9)
    return [*marks, session, day, late, first, second, retracted, build(10, RETRACTED, {"mark": retracted.id})]


def test_the_start_time_is_as_in_the_builders() -> None:
    assert build(0).at.timestamp() * 1e6 == AT


def test_marks_without_references_need_no_memory() -> None:
    """A log of a million marks is verified without keeping all of them in memory."""
    log = [msgspec.structs.replace(event, position=position) for position, event in enumerate(history(), 1)]

    whole, lean = derive(log), DerivedCrystals(named := referenced_ids(log))
    lean.add_stored(log)

    assert log[2].id not in named
    assert sorted(lean.rows.marks or ()) == sorted(whole.rows.marks or ()) == [1, 2, 3, 6]
    assert (lean.rows.crystals, lean.rows.sources) == (whole.rows.crystals, whole.rows.sources)
    assert set(lean.rows.retracted) == set(whole.rows.retracted)
    assert broken_crystals(lean, whole.rows) == []
    assert broken_crystals(lean, whole.rows._replace(marks=[1, 2, 6])) != []


# -- Triggers enforce the laws ----------------------------------------------------------------------------------

SOURCE = "INSERT INTO {mica}crystal_sources ({space}crystal, source, tokens, is_live) VALUES ({number}{values})"
CRYSTAL = (
    "INSERT INTO {mica}crystals ({space}position, level, period, start_at, end_at, tokens) VALUES ({number}{values})"
)
TIMES = f"{AT}, {AT + 60_000_000}"
FORBIDDEN = {
    ("B-13, TB-01: no sources", "law of provenance"): [(CRYSTAL, f"20, 0, 'session:x', {TIMES}, 5")],
    ("B-14, TB-02: a session on a crystal", "law of levels"): [
        (SOURCE, "20, 5, 3, FALSE"),
        (CRYSTAL, f"20, 0, 'tree:x', {TIMES}, 1"),
    ],
    ("B-14, TB-02: a day on a mark", "law of levels"): [
        (SOURCE, "20, 3, 20, TRUE"),
        (CRYSTAL, f"20, 1, 'day:y', {TIMES}, 5"),
    ],
    ("B-14, TB-02: a day on a crystal and a mark", "law of levels"): [
        (SOURCE, "20, 4, 8, FALSE"),
        (SOURCE, "20, 3, 20, FALSE"),
        (CRYSTAL, f"20, 1, 'tree:x', {TIMES}, 5"),
    ],
    ("B-14: a week on a session", "law of levels"): [
        (SOURCE, "20, 4, 8, FALSE"),
        (CRYSTAL, f"20, 2, 'tree:x', {TIMES}, 5"),
    ],
    ("B-14: a level that is none", "law of levels|(?i:check)"): [
        (SOURCE, "20, 3, 20, TRUE"),
        (CRYSTAL, f"20, 4, 'x', {TIMES}, 5"),
    ],
    ("B-14: on what comes later", "(?i:check)"): [(SOURCE, "20, 21, 20, TRUE")],
    ("B-13: on a retracted mark", "law of levels"): [
        (SOURCE, "20, 9, 20, TRUE"),
        (CRYSTAL, f"20, 0, 'session:x', {TIMES}, 5"),
    ],
    ("B-13: on a superseded crystal", "law of levels"): [
        (SOURCE, "20, 7, 8, FALSE"),
        (CRYSTAL, f"20, 1, 'tree:x', {TIMES}, 5"),
    ],
    ("B-13: on what is nowhere", "law of levels"): [
        (SOURCE, "20, 19, 20, TRUE"),
        (CRYSTAL, f"20, 0, 'session:x', {TIMES}, 5"),
    ],
    ("B-15, TB-03: it begins too late", "law of time"): [
        (SOURCE, "20, 3, 20, TRUE"),
        (CRYSTAL, f"20, 0, 'session:x', {AT + 3_000_001}, {AT + 60_000_000}, 5"),
    ],
    ("B-15, TB-03: it ends too early", "law of time"): [
        (SOURCE, "20, 3, 20, TRUE"),
        (CRYSTAL, f"20, 0, 'session:x', {AT}, {AT + 2_999_999}, 5"),
    ],
    ("B-15, TB-03: a day shorter than its session", "law of time"): [
        (SOURCE, "20, 4, 8, FALSE"),
        (CRYSTAL, f"20, 1, 'tree:x', {AT + 2_000_000}, {AT + 60_000_000}, 5"),
    ],
    ("B-16, TB-04: as many tokens", "law of compression"): [
        (SOURCE, "20, 3, 20, TRUE"),
        (CRYSTAL, f"20, 0, 'session:x', {TIMES}, 20"),
    ],
    ("B-16, TB-04: no tokens", "law of compression"): [
        (SOURCE, "20, 3, 20, TRUE"),
        (CRYSTAL, f"20, 0, 'session:x', {TIMES}, 0"),
    ],
    ("B-16, TB-04: sources made larger than they are", "law of compression"): [
        (SOURCE, "20, 4, 900, FALSE"),
        (CRYSTAL, f"20, 1, 'tree:x', {TIMES}, 800"),
    ],
    ("TB-06: a second live crystal over the same mark", "(?i:unique)"): [(SOURCE, "20, 1, 20, TRUE")],
    ("TB-06: one that seals nothing", "law of overlap"): [
        (SOURCE, "20, 3, 20, FALSE"),
        (CRYSTAL, f"20, 0, 'session:x', {TIMES}, 5"),
    ],
    ("B-12: one more source", "law of immutability"): [(SOURCE, "4, 3, 20, TRUE")],
    ("B-12: other tokens", "law of immutability"): [
        ("UPDATE {mica}crystals SET tokens = 1 WHERE position = 4{here}", "")
    ],
    ("B-12: another level", "law of immutability"): [
        ("UPDATE {mica}crystals SET level = 1 WHERE position = 4{here}", "")
    ],
    ("B-12: another time", "law of immutability"): [
        ("UPDATE {mica}crystals SET end_at = end_at + 1 WHERE position = 4{here}", "")
    ],
    ("B-12: another period", "law of immutability"): [
        ("UPDATE {mica}crystals SET period = 'x' WHERE position = 4{here}", "")
    ],
    ("B-12: live again", "law of immutability"): [
        ("UPDATE {mica}crystals SET superseded_by = NULL WHERE position = 7{here}", "")
    ],
    ("B-12: superseded twice", "law of immutability"): [
        ("UPDATE {mica}crystals SET superseded_by = 20 WHERE position = 7{here}", "")
    ],
    ("B-12: removed", "law of immutability"): [("DELETE FROM {mica}crystals WHERE position = 4{here}", "")],
    ("B-12: another source", "law of immutability"): [
        ("UPDATE {mica}crystal_sources SET source = 3 WHERE source = 1{here}", "")
    ],
    ("B-12: a source of other tokens", "law of immutability"): [
        ("UPDATE {mica}crystal_sources SET tokens = 9 WHERE source = 1{here}", "")
    ],
    ("B-12: a source let go", "law of immutability"): [
        ("UPDATE {mica}crystal_sources SET is_live = FALSE WHERE source = 1{here}", "")
    ],
    ("B-12: a source taken again", "law of immutability"): [
        ("UPDATE {mica}crystal_sources SET is_live = TRUE WHERE crystal = 7{here}", "")
    ],
    ("B-12: a source removed", "law of provenance"): [("DELETE FROM {mica}crystal_sources WHERE source = 1{here}", "")],
    ("B-12: a mark changed", "never changed"): [("UPDATE {mica}events SET depth = 3 WHERE position = 1{here}", "")],
}
CASES = pytest.mark.parametrize(
    ("message", "statements"),
    [pytest.param(message, statements, id=name) for (name, message), statements in FORBIDDEN.items()],
)


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("laws") / "space.db"


@CASES
async def test_sqlite_refuses_rows_that_break_a_law(
    file: Path, message: str, statements: list[tuple[str, str]]
) -> None:
    """keeps: B-12, B-13, B-14, B-15, B-16, TB-01, TB-03, TB-04, TB-02. For statements that bypass the code."""
    store = await SqliteStore.open(file)
    await store.log.append(history())
    words = {"mica": "", "space": "", "number": "", "here": ""}
    with closing(sqlite3.connect(file, isolation_level=None)) as connection:
        connection.execute("BEGIN")
        for statement, values in statements[:-1]:
            connection.execute(statement.format(**words, values=values))
        statement, values = statements[-1]
        with pytest.raises(sqlite3.IntegrityError, match=message):
            connection.execute(statement.format(**words, values=values))
        connection.execute("ROLLBACK")
    assert await store.files.verify() == []
    await store.close()


@pytest.mark.parametrize("role", [APP, "postgres"])
@CASES
async def test_postgresql_refuses_rows_that_break_a_law(
    server: LocalPostgres, message: str, statements: list[tuple[str, str]], role: str
) -> None:
    """keeps: B-12, B-13, B-14, B-15, B-16, TB-01, TB-03, TB-04, TB-02. To who uses it, and to who is above all."""
    store = await PostgresStore.open(server.address(space="laws"))
    await store.log.append(history())
    number = store._space.number
    words = {"mica": "mica.", "space": "space, ", "number": f"{number}, ", "here": f" AND space = {number}"}
    connection = await asyncpg.connect(server.dsn(role=role), statement_cache_size=0)
    await connection.execute(f"SET mica.space = '{store.space}'")
    transaction = connection.transaction()
    await transaction.start()
    for statement, values in statements[:-1]:
        await connection.execute(statement.format(**words, values=values))
    statement, values = statements[-1]
    with pytest.raises(asyncpg.PostgresError, match=message if role == "postgres" else f"{message}|permission denied"):
        await connection.execute(statement.format(**words, values=values))
    await transaction.rollback()
    await connection.close()
    assert await store.files.verify() == []
    await store.close()


async def test_a_lawful_row_passes(server: LocalPostgres, tmp_path: Path) -> None:
    """The triggers do not refuse valid rows."""
    statements = [(SOURCE, "20, 3, 20, TRUE"), (CRYSTAL, f"20, 0, 'session:x', {TIMES}, 5")]
    store = await SqliteStore.open(tmp_path / "space.db")
    await store.log.append(history())
    await store.close()
    with closing(sqlite3.connect(tmp_path / "space.db")) as connection:
        for statement, values in statements:
            connection.execute(statement.format(mica="", space="", number="", values=values))
    shared = await PostgresStore.open(server.address())
    await shared.log.append(history())
    connection = await asyncpg.connect(server.dsn(role=APP), statement_cache_size=0)
    await connection.execute(f"SET mica.space = '{shared.space}'")
    for statement, values in statements:
        words = {"mica": "mica.", "space": "space, ", "number": f"{shared._space.number}, "}
        await connection.execute(statement.format(**words, values=values))
    await connection.close()
    await shared.close()


# -- Verification ---------------------------------------------------------------------------------------------

FOURTH = f"crystal {build(4).id}"
DAMAGES = {
    "UPDATE {mica}crystals SET level = 1 WHERE position = 4{here}": f"{FOURTH} .* in level;",
    "UPDATE {mica}crystals SET period = 'x' WHERE position = 4{here}": f"{FOURTH} .* in period;",
    "UPDATE {mica}crystals SET start_at = 1, end_at = 9 WHERE position = 4{here}": f"{FOURTH} .* in start_at, end_at;",
    "UPDATE {mica}crystals SET tokens = 1 WHERE position = 4{here}": f"{FOURTH} .* in tokens;",
    "UPDATE {mica}crystals SET superseded_by = 8 WHERE position = 4{here}": f"{FOURTH} .* in superseded_by;",
    "DELETE FROM {mica}crystals WHERE position = 4{here}": f"{FOURTH} .* in position, .*tokens",
    "DELETE FROM {mica}crystal_sources WHERE crystal = 4 AND source = 1{here}": f"{FOURTH} .* in sources;",
    "DELETE FROM {mica}crystal_sources WHERE crystal = 4{here}": f"{FOURTH} .* in sources;",
    "UPDATE {mica}crystal_sources SET is_live = FALSE WHERE crystal = 4{here}": f"{FOURTH} .* in sources;",
    "UPDATE {mica}crystal_sources SET tokens = 9 WHERE crystal = 4{here}": f"{FOURTH} .* in sources;",
    "UPDATE {mica}crystal_sources SET crystal = 20 WHERE crystal = 7{here}": "position 20, where the log has none",
    "UPDATE {mica}crystals SET position = 20 WHERE position = 7{here}": "position 20, where the log has none",
    "UPDATE {mica}texts SET is_mark = TRUE WHERE position = 9{here}": "mark at position 9 is not indexed as",
    "UPDATE {mica}texts SET is_mark = FALSE WHERE position = 1{here}": "mark at position 1 is not indexed as",
    "DELETE FROM {mica}retractions WHERE position = 10{here}": f"retraction of {build(9).id} differs",
}


def is_reported(problems: list[str], message: str) -> bool:
    return any(re.search(message, problem) for problem in problems)


@pytest.mark.parametrize(("statement", "message"), DAMAGES.items())
async def test_damaged_rows_are_found_in_a_file(tmp_path: Path, statement: str, message: str) -> None:
    """keeps: U-07. Verify reports each, and rebuild repairs it."""
    store = await SqliteStore.open(tmp_path / "space.db")
    await store.log.append(history())
    with closing(sqlite3.connect(tmp_path / "space.db")) as connection:
        for (trigger,) in connection.execute("SELECT name FROM sqlite_schema WHERE type = 'trigger'").fetchall():
            connection.execute(f"DROP TRIGGER {trigger}")
        connection.execute(statement.format(mica="", here=""))
        connection.commit()

    assert is_reported(await store.files.verify(), message)
    await store.files.rebuild()
    assert await store.files.verify() == []
    await store.close()


@pytest.mark.parametrize(("statement", "message"), DAMAGES.items())
async def test_damaged_rows_are_found_on_a_server(server: LocalPostgres, statement: str, message: str) -> None:
    """Verify reports each, and rebuild repairs it."""
    store = await PostgresStore.open(server.address())
    await store.log.append(history())
    here = f" AND space = {store._space.number}"
    server.run(f"SET session_replication_role = replica; {statement.format(mica='mica.', here=here)}")

    assert is_reported(await store.files.verify(), message)
    await store.files.rebuild()
    assert await store.files.verify() == []
    await store.close()


async def test_damage_is_found_in_memory() -> None:
    """The reference store also compares its state with its log."""
    store = EphemeralStore()
    await store.log.append(history())
    derived = store.state.derived
    derived.superseded[build(4).id] = 8
    del derived.crystals[build(5).id], derived.retracted[build(9).id]

    found = await store.files.verify()

    assert is_reported(found, f"{FOURTH} .* in superseded_by, sources;")
    assert is_reported(found, f"crystal {build(5).id} .* in position, ")
    assert is_reported(found, f"retraction of {build(9).id} differs")
    await store.files.rebuild()
    assert await store.files.verify() == []


# -- Copies and exports -----------------------------------------------------------------------------------------


async def crystal_answers(store: Store) -> list[object]:
    """All answers of a store about its crystals."""
    everything = [EventId(event.id) for event in await store.log.read(0, limit=1_000)]
    return [
        await store.crystals.query(CrystalQuery(is_live=None, limit=None)),
        await store.crystals.query(CrystalQuery()),
        await store.crystals.query(CrystalQuery(is_sealed=True)),
        await store.crystals.unsealed(limit=100),
        [await store.crystals.citing([identifier]) for identifier in everything],
        await store.files.verify(),
    ]


@pytest.mark.parametrize("target", ["ephemeral", "sqlite", "postgres"])
async def test_a_copy_carries_crystals(store: Store, server: LocalPostgres, tmp_path: Path, target: str) -> None:
    """From every engine to every engine, including what was superseded, retracted or purged."""
    await store.log.append(history())
    await store.log.append([build_crystal(11, draft_of([history()[2]], period="session:s3"))])
    await store.purges.bury([build(8).id, build(10).id], TOMBSTONE)
    other: Store
    if target == "ephemeral":
        other = EphemeralStore()
    elif target == "sqlite":
        other = await SqliteStore.open(tmp_path / "copy.db")
    else:
        other = await PostgresStore.open(server.address())

    assert (await copy(store, other)).stored == 11

    right = await crystal_answers(store)
    assert await crystal_answers(other) == right
    await other.files.rebuild()
    assert await crystal_answers(other) == right
    assert (await copy(store, other)).repeated == 11
    await other.close()


async def test_an_export_carries_crystals(memory: mica.Memory, home: Settings, tmp_path: Path) -> None:
    """Exported, imported elsewhere, and the crystals are identical."""
    await memory._store.log.append(history())
    await memory._store.purges.bury([build(8).id], TOMBSTONE)
    lines = [event_line(event) async for event in memory.events.log(EventQuery())]
    (tmp_path / "out.jsonl").write_bytes(b"\n".join(lines) + b"\n")

    async with mica.open(tmp_path / "other.db", settings=home) as other:
        done = await other.events.import_log(tmp_path / "out.jsonl")

        assert done.events == 10
        assert await crystal_answers(other._store) == await crystal_answers(memory._store)


class TestCrystals(CrystalContract):
    """The suite is in `mica.testing.contract.crystals`."""

"""Databases in files: one query, bound and read-only, with limits that SQLite keeps."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as some
from tests.sources.scripted_sources import ABOUT, NOW, ask, declared

from mica.errors import InvalidInput, SourceFailed
from mica.sources.answer import ask_once
from mica.sources.protocol import Concept, Partial
from mica.sources.registry import SourceRegistry

Declare = Callable[..., SourceRegistry]
FOREVER = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT max(i) AS value FROM n"


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    """A database of another program."""
    path = tmp_path / "shop.db"
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript(
            """
            PRAGMA journal_mode = wal;
            CREATE TABLE judgments (id TEXT, kind TEXT, verdict TEXT, confidence REAL, at TEXT);
            INSERT INTO judgments VALUES ('abc123', 'code_review', 'GROWL', 0.52, '2026-11-01 10:00:00');
            INSERT INTO judgments VALUES ('abc123', 'deploy', 'WAG', 0.9, '2026-11-02');
            INSERT INTO judgments VALUES ('other', 'code_review', 'BARK', 0.1, '2026-11-03');
            CREATE VIRTUAL TABLE notes USING fts5(text);
            INSERT INTO notes VALUES ('tests passed');
            """
        )
    return path


def table(query: str, **keys: str) -> str:
    keys = {"timeout_s": "60", **keys}  # on a busy machine; a test of time gives another
    said = "".join(f"{key} = {value}\n" for key, value in keys.items())
    return f'[sources.shop]\ndriver = "sqlite"\npath = "shop.db"\nquery = """{query}"""\n{said}'


async def test_a_query_is_bound_to_the_parts_of_a_concept(shop: Path, declare: Declare) -> None:
    """keeps: C-01, C-12. A table of another program is a source; the parts of a concept are parameters."""
    sources = declare(
        table(
            "SELECT 'verdict' AS key, verdict || ' (tests)' AS text, verdict AS value, confidence, at "
            "FROM judgments WHERE kind = $1 AND id = $2",
            parameters='["{type}", "{id}"]',
        )
    )

    [said] = await ask(sources, "shop")
    [asked] = sources.explain(ABOUT)

    assert (said.key, said.text, said.value, said.confidence) == ("verdict", "GROWL (tests)", "GROWL", 0.52)
    assert said.at.isoformat() == "2026-11-01T10:00:00+00:00"
    assert sources["shop"].declared.rank == 10
    assert asked.parameters == {"$1": "code_review", "$2": "abc123"}
    assert list(await ask(sources, "shop", Concept("judgment", "code_review", "nobody"))) == []


@pytest.mark.parametrize(
    "query",
    [
        "INSERT INTO judgments VALUES ('x', 'x', 'x', 1, 'x') RETURNING id",
        "DELETE FROM judgments",
        "UPDATE judgments SET verdict = 'WAG'",
        "DROP TABLE judgments",
        "SELECT 1; DELETE FROM judgments",
        "PRAGMA journal_mode = delete",
        "PRAGMA user_version = 7",
        "ATTACH 'other.db' AS other",
        "VACUUM INTO 'copy.db'",
        "CREATE TEMP TABLE t (a)",
        "SELECT load_extension('evil')",
        "BEGIN IMMEDIATE",
    ],
)
async def test_sql_that_writes_is_refused_by_the_database(query: str, shop: Path, declare: Declare) -> None:
    """Nothing in the file or beside it changes."""
    before = shop.read_bytes()
    sources = declare(table(query, parameters="[]"))

    with pytest.raises(SourceFailed, match="does more than read, and SQLite refused it"):
        await ask(sources, "shop")

    assert shop.read_bytes() == before
    assert not {"other.db", "copy.db"} & {file.name for file in shop.parent.iterdir()}


@given(
    identifier=some.text(min_size=1, max_size=40) | some.sampled_from(["' OR '1'='1", "x'; DROP TABLE judgments; --"])
)
async def test_no_id_is_ever_read_as_sql(identifier: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Injection through a concept id is impossible, for any text."""
    folder = tmp_path_factory.mktemp("injection")
    with closing(sqlite3.connect(folder / "shop.db")) as connection:
        connection.execute("CREATE TABLE t (id TEXT)")
        connection.executemany("INSERT INTO t VALUES (?)", [("safe",), ("other",)])
        connection.commit()
    sources = declared(table("SELECT id AS key, id AS text FROM t WHERE id = $1"), folder=folder)
    try:
        concept = Concept("judgment", "code_review", identifier)
    except InvalidInput:
        concept = ABOUT

    tested = await ask_once(sources["shop"], concept, now=NOW)
    await sources.close()

    assert tested.error == ""
    assert [each.key for each in tested.fragments] == ([concept.id] if concept.id in {"safe", "other"} else [])


async def test_a_million_rows_are_cut_and_reported(shop: Path, declare: Declare) -> None:
    sources = declare(
        table(
            "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n LIMIT 1000000) "
            "SELECT i AS key, i AS value FROM n",
            parameters="[]",
            fragments_max="5",
        )
    )

    said = await ask(sources, "shop")

    assert [each.value for each in said] == [1, 2, 3, 4, 5]
    assert isinstance(said, Partial)
    assert said.missing == ("only the first 5 rows are used; ask for fewer, or raise fragments_max of [sources.shop]")


async def test_bytes_are_limited_per_row_and_per_answer(shop: Path, declare: Declare) -> None:
    many = declare(
        table("SELECT id AS key, printf('%400c', 'x') AS text FROM judgments", parameters="[]", bytes_max="1000")
    )
    said = await ask(many, "shop")
    one = declare(table("SELECT 'a' AS key, zeroblob(2000000000) AS text", parameters="[]"))

    assert len(said) == 2
    assert isinstance(said, Partial)
    assert "rows after the first 2 go beyond bytes_max = 1,000" in said.missing
    with pytest.raises(SourceFailed, match=r"longer than bytes_max = 1,000,000; select a part"):
        await ask(one, "shop")


async def test_an_endless_query_is_stopped(shop: Path, declare: Declare) -> None:
    """keeps: TC-03. The time limit holds inside SQLite, and the thread is released."""
    sources = declare(table(FOREVER, parameters="[]", timeout_s="0.05"))

    for _ in range(6):  # more often than the source may hold threads
        with pytest.raises(SourceFailed, match=r"timeout_s = 0\.05|no answer within 0\.05 s"):
            await ask(sources, "shop")
        while sources.hanging("shop"):
            await asyncio.sleep(0)


async def test_a_cancelled_query_leaves_no_query_and_no_thread(shop: Path, declare: Declare) -> None:
    sources = declare(table(FOREVER, parameters="[]", timeout_s="60"))
    asking = asyncio.ensure_future(ask(sources, "shop"))
    while not any(thread.name == "mica-source" for thread in threading.enumerate()):
        await asyncio.sleep(0)

    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking

    async with asyncio.timeout(30):
        while sources.hanging("shop"):
            await asyncio.sleep(0)


async def test_full_text_and_functions_can_be_read(shop: Path, declare: Declare) -> None:
    sources = declare(
        table("SELECT 'note' AS key, upper(text) AS text FROM notes WHERE notes MATCH 'tests'", parameters="[]")
    )

    assert [each.text for each in await ask(sources, "shop")] == ["TESTS PASSED"]


async def test_a_replaced_file_is_read(shop: Path, declare: Declare) -> None:
    sources = declare(table("SELECT 'n' AS key, count(*) AS value FROM judgments", parameters="[]"))
    [before] = await ask(sources, "shop")
    with closing(sqlite3.connect(shop.parent / "new.db")) as connection:
        connection.execute("CREATE TABLE judgments (id TEXT)")
    (shop.parent / "new.db").replace(shop)

    [after] = await ask(sources, "shop")

    assert (before.value, after.value) == (3, 0)


@pytest.mark.parametrize(
    ("query", "reason"),
    [
        ("SELECT * FROM gone", "SQLite refuses the query: no such table: gone"),
        ("SELEC 1", 'SQLite refuses the query: near "SELEC"'),
        ("SELECT $1 AS key, $2 AS text", r"the query has \$2, but `parameters` has no value for it"),
        ("SELECT verdict AS value FROM judgments", r"it has no key \(it has value\)"),
    ],
)
async def test_an_unusable_query_is_reported(query: str, reason: str, shop: Path, declare: Declare) -> None:
    sources = declare(table(query))

    with pytest.raises(SourceFailed, match=reason):
        await ask(sources, "shop")


async def test_a_file_that_is_not_a_database_is_reported(tmp_path: Path, declare: Declare) -> None:
    (tmp_path / "shop.db").write_bytes(b"not a database at all, but long enough to be looked at" * 20)
    sources = declare(table("SELECT 1 AS key"))

    with pytest.raises(SourceFailed, match="is not a SQLite database, or damaged"):
        await ask(sources, "shop")
    (tmp_path / "shop.db").unlink()
    with pytest.raises(SourceFailed, match="there is no file"):
        await ask(sources, "shop")


async def test_many_concurrent_queries_share_few_connections(shop: Path, declare: Declare) -> None:
    sources = declare(table("SELECT id AS key, verdict AS value FROM judgments WHERE id = $1"))

    answers = await asyncio.gather(*(ask(sources, "shop") for _ in range(100)))
    held = open_files()
    await sources.close()

    assert {len(each) for each in answers} == {2}
    assert 1 <= held.count(str(shop)) <= 4
    assert str(shop) not in open_files()


def open_files() -> list[str]:
    """What this process has open."""
    links = [link for link in Path("/proc/self/fd").iterdir() if link.is_symlink()]
    return [str(link.readlink()) for link in links]

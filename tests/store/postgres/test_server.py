"""The server: its schema and roles, addresses, and error messages."""

from __future__ import annotations

import asyncio
import gzip
import multiprocessing
import re
import subprocess
import sys
from pathlib import Path
from urllib.parse import quote

import msgspec
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

import mica
from mica.cli import cli
from mica.errors import (
    InvalidInput,
    NotAStore,
    SchemaTooNew,
    StoreBusy,
    StoreFull,
    StoreUnavailable,
)
from mica.model.event import Appended
from mica.settings import Settings
from mica.store.migrations import load_schema
from mica.store.postgres import server as postgres_server
from mica.store.postgres.server import parse_address
from mica.store.postgres.store import PostgresStore, prepare
from mica.testing import build
from mica.testing.postgres import APP, HANGS_S, LOCKED, OTHER, OWNER, STRANGER, LocalPostgres, connected, opened

SCHEMA = load_schema("postgres")


FIRST_SCHEMA = Path(__file__).parents[2] / "fixtures" / "postgres-932c732.sql.gz"


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


async def test_the_schema_equals_its_migrations(server: LocalPostgres) -> None:
    """keeps: E-08"""
    described = {}
    async with connected(server.dsn(role=OWNER)) as connection:
        for name, files in {
            "from_schema": [SCHEMA.statements],
            "from_files": [gzip.decompress(FIRST_SCHEMA.read_bytes()).decode(), *SCHEMA.migrations],
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


async def test_processes_that_migrate_at_once_find_one_schema(server: LocalPostgres) -> None:
    """keeps: U-03. Two processes start together on an empty database; one creates the tables, the other uses them."""
    name = server.unused_schema()
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
        assert [row[0] for row in rows] == [SCHEMA.version]
        await connection.execute(f"DROP SCHEMA {name} CASCADE")


async def test_a_newer_schema_is_refused_with_the_remedy(server: LocalPostgres, schema: str) -> None:
    async with connected(server.dsn()) as connection:
        await connection.execute(f"INSERT INTO {schema}.migrations (version) VALUES (99)")
    with pytest.raises(SchemaTooNew, match=r"version 99.*upgrade"):
        await PostgresStore.open(server.address(schema=schema))


async def test_an_older_schema_is_migrated_by_its_owner_only(
    server: LocalPostgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error for other roles names the owner; the owner's new tables are granted to all admitted roles."""
    name = server.unused_schema()
    await server.make_schema(name)
    newer = msgspec.structs.replace(SCHEMA, migrations=(*SCHEMA.migrations, "CREATE TABLE notes (x text)"))
    monkeypatch.setattr(postgres_server, "load_schema", lambda _: newer)

    with pytest.raises(
        StoreUnavailable, match=rf"its owner '{OWNER}' must run: `mica server prepare 'postgresql://.*'`"
    ):
        await PostgresStore.open(server.address(schema=name))
    async with opened(server.address(role=OWNER, schema=name)), opened(server.address(schema=name)) as store:
        assert await store.files.verify() == []

    async with connected(server.dsn()) as connection:
        await connection.execute(f"DROP SCHEMA {name} CASCADE")


async def test_the_schema_of_the_first_version_is_migrated_with_its_events_and_rights(server: LocalPostgres) -> None:
    """keeps: E-08. Roles that were admitted before keep their rights, and others can be admitted."""
    name, old = server.unused_schema(), gzip.decompress(FIRST_SCHEMA.read_bytes()).decode()
    async with connected(server.dsn(role=OWNER)) as connection, connection.transaction():
        await connection.execute(f"CREATE SCHEMA {name}; SET LOCAL search_path = {name}, pg_temp")
        await connection.execute(old)
        await connection.execute(f"INSERT INTO migrations (version) VALUES ({SCHEMA.first}); SELECT admit('{APP}')")
        await connection.execute("INSERT INTO spaces (id, name, created_at) VALUES ('shop', 'shop', 0)")
    async with connected(server.dsn()) as connection:
        await connection.execute(f"UPDATE {name}.spaces SET role = '{APP}'")

    await prepare(server.address(role=OWNER, schema=name), admitted=(OTHER,))

    for role, space in ((APP, "shop"), (OTHER, "bakery")):
        async with opened(server.address(role=role, schema=name, space=space)) as store:
            event = build(1, "mark", {"text": "after the migration"})
            assert await store.log.append([event]) == Appended(stored=1)
            assert [each.id for each in await store.log.read(0, limit=9)] == [event.id]
            assert await store.files.verify() == []
    async with connected(server.dsn()) as connection:
        assert await connection.fetchval(f"SELECT max(version) FROM {name}.migrations") == SCHEMA.version
        await connection.execute(f"DROP SCHEMA {name} CASCADE")


async def test_a_foreign_schema_is_left_alone(server: LocalPostgres) -> None:
    async with connected(server.dsn()) as connection:
        await connection.execute(
            f"CREATE SCHEMA foreign_one AUTHORIZATION {OWNER}; CREATE TABLE foreign_one.notes (x text)"
        )
        with pytest.raises(NotAStore, match=r"'foreign_one'.*another program"):
            await PostgresStore.open(server.address(role=OWNER, schema="foreign_one"))
        await connection.execute("DROP SCHEMA foreign_one CASCADE")


async def test_the_error_for_a_role_without_access_says_what_the_owner_must_run(server: LocalPostgres) -> None:
    with pytest.raises(StoreUnavailable, match=rf"SELECT mica\.admit\('{STRANGER}'\)"):
        await PostgresStore.open(server.address(role=STRANGER))
    message = (
        r"no schema 'nowhere'.*`mica server prepare 'postgresql://.*&schema=nowhere' --admit"  # quoted for a shell
    )
    with pytest.raises(StoreUnavailable, match=message):
        await PostgresStore.open(server.address(role=STRANGER, schema="nowhere"))


def test_prepare_makes_a_database_ready_and_admits_roles(server: LocalPostgres) -> None:
    address = server.address(role=OWNER, schema="prepared")

    result = CliRunner().invoke(cli, ["server", "prepare", address, "--admit", APP, "--json"])

    assert result.exit_code == 0, result.output
    assert msgspec.json.decode(result.output) == {"ready": True, "admitted": [APP]}

    async def use() -> Appended:
        async with opened(server.address(schema="prepared")) as store:
            return await store.log.append([build(1)])

    assert asyncio.run(use()) == Appended(stored=1)
    server.run("DROP SCHEMA prepared CASCADE")
    wrong = CliRunner().invoke(cli, ["server", "prepare", "shop.db"])
    assert (wrong.exit_code, wrong.stderr) == (
        1,
        "mica: 'shop.db' is not an address; it looks like postgresql://user@host/database\n",
    )


@given(name=st.text(st.characters(exclude_categories=["Cs"]), max_size=30))
def test_a_space_name_in_an_address_is_used_or_refused(name: str) -> None:
    address = f"postgresql://host/database?space={quote(name)}"
    if name and name.isprintable():
        assert parse_address(address, space="default").space == name
    else:
        with pytest.raises(InvalidInput, match="space="):
            parse_address(address, space="default")


@pytest.mark.parametrize("host", [".", "a..b", "x" * 64])
async def test_an_invalid_host_is_reported_in_one_line(host: str) -> None:
    with pytest.raises(StoreUnavailable, match=f"'{re.escape(host)}' is not a host; give"):
        await PostgresStore.open(f"postgresql://nobody:x@/mica?host={host}")


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ("sslmode=bogus", "`sslmode` parameter must be one of"),
        ("target_session_attrs=bogus", "target_session_attrs is expected"),
        ("port=abc", "port='abc' is not usable; give a number"),
        ("sslmode=verify-full&sslrootcert=/nosuch.crt", "sslrootcert='/nosuch.crt' in the address is not a file"),
    ],
)
async def test_an_invalid_address_is_reported_in_one_line(server: LocalPostgres, wrong: str, message: str) -> None:
    with pytest.raises(InvalidInput, match=re.escape(message)):
        await PostgresStore.open(f"{server.address()}&{wrong}")


async def test_invalid_certificates_are_reported(tmp_path: Path) -> None:
    (tmp_path / "root.crt").write_text("nothing")
    address = f"postgresql://nobody@localhost:1/mica?sslmode=verify-full&sslrootcert={tmp_path}/root.crt"
    with pytest.raises(StoreUnavailable, match=r"no secure connection to .* check sslmode and the certificates"):
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


async def test_a_wrong_password_is_named_and_not_shown(server: LocalPostgres) -> None:
    address = server.address(role=f"{LOCKED}:wrong")
    with pytest.raises(StoreUnavailable, match=rf"refuses user '{LOCKED}'.*check user and password") as refused:
        await PostgresStore.open(address)
    assert "wrong" not in str(refused.value)
    with pytest.raises(StoreUnavailable, match=r"SELECT mica\.admit"):
        await PostgresStore.open(server.address(role=f"{LOCKED}:right"))
    with pytest.raises(StoreUnavailable, match="refuses user 'nobody_here'"):
        await PostgresStore.open(server.address(role="nobody_here"))


async def test_an_unknown_database_is_named(server: LocalPostgres) -> None:
    with pytest.raises(StoreUnavailable, match=r"no database 'elsewhere'; create it \(`createdb elsewhere`\)"):
        await PostgresStore.open(server.address().replace("/mica?", "/elsewhere?"))


async def test_a_database_that_cannot_hold_every_text_is_refused(server: LocalPostgres) -> None:
    async with connected(server.dsn()) as connection:
        await connection.execute("CREATE DATABASE latin ENCODING LATIN1 TEMPLATE template0 LC_COLLATE 'C' LC_CTYPE 'C'")
        with pytest.raises(StoreUnavailable, match=r"'latin'.*encoding LATIN1.*UTF8"):
            await PostgresStore.open(server.address(role="postgres").replace("/mica?", "/latin?"))
        await connection.execute("DROP DATABASE latin")


async def test_an_old_server_is_refused(server: LocalPostgres, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(postgres_server, "RELEASE_MIN", 99)
    with pytest.raises(StoreUnavailable, match="mica needs 99 or later"):
        await PostgresStore.open(server.address())


async def test_a_server_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(StoreUnavailable, match=rf"PostgreSQL at {tmp_path} does not answer.*is it running"):
        await PostgresStore.open(f"postgresql://ann@/shop?host={tmp_path}")
    with pytest.raises(StoreUnavailable, match=r"127\.0\.0\.1:1 does not answer"):
        await PostgresStore.open("postgresql://ann@127.0.0.1:1/shop")


async def test_a_standby_is_named_and_loses_nothing(server: LocalPostgres, home: Settings) -> None:
    """A read-only server, for example after a failover: events wait until a primary server is available."""
    address = server.address()
    async with mica.open(address, settings=home) as memory:
        memory.emit("before")
        assert await memory.events.position() == 1
        with server.as_standby():
            memory.emit("meanwhile")
            with pytest.raises(StoreUnavailable, match=r"is read-only .*give the address of the primary server"):
                await memory.events.query()
            with pytest.raises(StoreUnavailable, match=r"is read-only .*give the address of the primary server"):
                await PostgresStore.open(server.address())
        assert [event.name for event in await memory.events.query()] == ["before", "meanwhile"]


async def test_a_full_disk_of_the_server_is_named_and_keeps_nothing(
    server: LocalPostgres, schema: str, home: Settings
) -> None:
    """keeps: TE-03. All or nothing; the events wait, and are stored once when there is room."""
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
            with pytest.raises(StoreFull, match=r"no room left .*nothing was written"):
                await memory.events.query()
            assert (await memory.upkeep.backlog())[0] >= 5
            assert await connection.fetchval(f"SELECT count(*) FROM {schema}.events") == 0

            await connection.execute(f"DROP TRIGGER full_disk ON {schema}.keys")
            assert [event.data["n"] for event in await memory.events.query()] == [0, 1, 2, 3, 4]


async def test_no_connection_left_is_named(server: LocalPostgres) -> None:
    async with connected(server.dsn()) as connection:
        await connection.execute(f"ALTER ROLE {OTHER} CONNECTION LIMIT 0")
        with pytest.raises(StoreBusy, match="no connection left"):
            await PostgresStore.open(server.address(role=OTHER))
        await connection.execute(f"ALTER ROLE {OTHER} CONNECTION LIMIT -1")


async def test_connections_ended_by_an_administrator_are_replaced(server: LocalPostgres) -> None:
    async with opened(server.address()) as store, connected(server.dsn()) as other:
        for n in range(1, 5):
            await store.log.append([build(n)])
            await other.execute(f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = '{APP}'")
        assert (await store.files.sizes()).events == 4

        # Also during an append that waits for the lock of the space.
        await other.execute(f"BEGIN; SELECT FROM mica.spaces WHERE id = '{store.space}' FOR UPDATE")
        appending = asyncio.create_task(store.log.append([build(5)]))
        async with asyncio.timeout(HANGS_S):
            while not await other.fetchval(
                f"""SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
                WHERE usename = '{APP}' AND wait_event_type = 'Lock'"""
            ):
                pass
        await other.execute("COMMIT")
        assert await appending == Appended(stored=1)

"""Row-level security between spaces in PostgreSQL, and the store as Memory and the commands use it."""

from __future__ import annotations

import asyncio
import re
import threading
from pathlib import Path
from typing import Any

import asyncpg
import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

import mica
from mica.cli import cli
from mica.errors import (
    StoreUnavailable,
)
from mica.model.event import RETRACTED, Appended, Context, EventQuery
from mica.settings import Settings
from mica.store.postgres.server import parse_address
from mica.store.postgres.store import PostgresStore
from mica.testing import build
from mica.testing.contract.crystals import TEXT, build_crystal, draft_of
from mica.testing.postgres import APP, HANGS_S, OTHER, OWNER, LocalPostgres, connected, opened

WALLED = {
    "writers", "names", "sessions", "contexts", "payloads", "keys", "events", "texts", "terms", "postings", "work",
    "crystals", "crystal_sources", "retractions",
}  # fmt: skip


async def counts(connection: Any, schema: str = "mica") -> dict[str, int]:  # noqa: ANN401  # asyncpg is not typed
    return {table: await connection.fetchval(f"SELECT count(*) FROM {schema}.{table}") for table in sorted(WALLED)}


async def fill(store: PostgresStore) -> None:
    """Put a row into every table."""
    context = Context(session="s1", agent="scout")
    mark = build(1, "mark", {"text": f"secret plan: {TEXT}"}, context=context)
    await store.log.append([mark, build(2, data={"x": "y" * 6_000}), build_crystal(3, draft_of([mark]))])
    await store.log.append([build(4, RETRACTED, {"mark": build(2).id})])
    await store.work.plan("crystallize", due_at=build(1).at)


async def test_every_table_has_row_level_security(server: LocalPostgres) -> None:
    """keeps: U-09. No table is missing; partitions can be accessed only through their table."""
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
async def test_a_transaction_without_a_space_reads_and_writes_nothing(server: LocalPostgres, role: str) -> None:
    """keeps: U-09, TD-10. Fails closed, also for the owner of the tables."""
    async with opened(server.address()) as store:
        await fill(store)
        async with connected(server.dsn(role=role)) as connection:
            assert set((await counts(connection)).values()) == {0}
            for space in ("", store.space[:-1], "1"):
                await connection.execute("SELECT set_config('mica.space', $1, false)", space)
                assert set((await counts(connection)).values()) == {0}
                with pytest.raises(asyncpg.InsufficientPrivilegeError, match="row-level security"):
                    await connection.execute(
                        f"INSERT INTO mica.terms (space, name) VALUES ({store._space.number}, 'x')"
                    )


async def test_another_space_is_out_of_reach_even_for_hand_written_sql(server: LocalPostgres) -> None:
    """keeps: TD-10, U-09. A statement sees and creates only rows of its own space."""
    async with opened(server.address()) as mine, opened(server.address()) as theirs:
        await fill(mine)
        await fill(theirs)
        async with connected(server.dsn(role=APP)) as connection:
            await connection.execute(f"SET mica.space = '{mine.space}'")
            for table in sorted(WALLED):
                seen = await connection.fetch(f"SELECT DISTINCT space FROM mica.{table}")
                assert [row[0] for row in seen] == [mine._space.number], table
                assert not await connection.fetch(
                    f"SELECT * FROM mica.{table} WHERE space = {theirs._space.number} OR true IS NULL"
                )
            with pytest.raises(asyncpg.InsufficientPrivilegeError, match="row-level security"):
                await connection.execute(f"INSERT INTO mica.names (space, name) VALUES ({theirs._space.number}, 'x')")
            assert (
                await connection.execute(f"DELETE FROM mica.postings WHERE space = {theirs._space.number}")
                == "DELETE 0"
            )
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
        assert len(await theirs.log.query(EventQuery())) == 4
        assert await theirs.files.verify() == []


async def test_a_role_enters_only_spaces_that_are_its_own(server: LocalPostgres) -> None:
    """keeps: U-09. A tenant cannot enter another tenant's space, even with its name, number and id."""
    address = server.address()
    name = parse_address(address, space="x").space
    async with opened(address) as mine:
        await fill(mine)
        async with connected(server.dsn(role=OTHER)) as connection:
            await connection.execute(f"SET mica.space = '{mine.space}'")
            assert set((await counts(connection)).values()) == {0}
            assert not await connection.fetch(f"SELECT * FROM mica.spaces WHERE name = '{name}'")
        with pytest.raises(StoreUnavailable, match=rf"'{name}'.*belongs to another role"):
            await PostgresStore.open(server.address(role=OTHER, space=name))
        with pytest.raises(StoreUnavailable, match=rf"'{name}'.*belongs to another role"):
            await PostgresStore.open(
                server.address(role=OTHER, space=name), must_exist=True
            )  # opening does not create it

        async with connected(server.dsn(role=OWNER)) as connection:
            await connection.execute(f"UPDATE mica.spaces SET role = '{OTHER}' WHERE name = '{name}'")

        async with opened(server.address(role=OTHER, space=name)) as handed_over:
            assert len(await handed_over.log.query(EventQuery())) == 4
        with pytest.raises(StoreUnavailable, match="another role"):
            await mine.log.append([build(5)])
        with pytest.raises(StoreUnavailable, match="another role"):
            await mine.log.query(EventQuery())  # an empty result would be wrong


@settings(max_examples=60)
@given(
    space=st.one_of(
        st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"])), st.integers(-5, 500).map(str)
    )
)
async def test_a_fuzzed_space_never_leaks(server: LocalPostgres, space: str) -> None:
    """keeps: TD-10"""
    async with connected(server.dsn(role=APP)) as connection:
        await connection.execute("SELECT set_config('mica.space', $1, false)", space)
        assert set((await counts(connection)).values()) == {0}


async def test_a_space_keeps_its_id_and_is_shared_by_all_who_name_it(server: LocalPostgres, tmp_path: Path) -> None:
    address = server.address()
    async with opened(address) as one, opened(address) as two:
        assert one.space == two.space
        assert re.fullmatch(r"[0-9a-z]{26}", one.space)
        await one.log.append([build(1)])
        assert await two.log.append([build(1), build(2)]) == Appended(stored=1, repeated=1)
        assert [event.position for event in await one.log.read(0, limit=9)] == [1, 2]
        assert one.segments is None
    again = await PostgresStore.open(address, home=tmp_path)
    assert again.space == one.space
    assert again.segments == tmp_path / "segments" / one.space
    await again.close()


async def test_a_memory_opens_an_address(server: LocalPostgres, home: Settings) -> None:
    """keeps: K-31. Emitted events wait on this machine until the server has stored them."""
    address = server.address()
    async with mica.open(address, settings=home) as memory:
        assert "space=" in memory.location
        with memory.context(session="s1", agent="scout"):
            memory.mark("The cookie is set before the redirect", tags=("gotcha",))
        hits = await memory.search("redirect cookies")
    assert [hit.mark.agent for hit in hits.marks] == ["scout"]
    async with mica.open(address, settings=home) as memory:
        assert (await memory.upkeep.sizes()).marks == 1


async def test_a_space_moves_between_engines_whole(server: LocalPostgres, home: Settings, tmp_path: Path) -> None:
    """keeps: K-31, K-55. A copy of a copy is identical to the original."""
    there, back = server.address(), tmp_path / "back.db"
    async with mica.open(tmp_path / "space.db", settings=home) as memory:
        with memory.context(session="s1", agent="scout"):
            seen = memory.mark("The cookie is set before the redirect")
            memory.emit("tool.ran", {"output": "x\0y" * 5_000}, parent=seen)
        assert (await memory.upkeep.copy_to(there)).stored == 2
        events = await memory.events.query()
    async with mica.open(there, settings=home) as memory:
        assert (await memory.upkeep.copy_to(back)).stored == 2
        assert await memory.upkeep.verify() == []
    async with mica.open(back, settings=home) as memory:
        assert await memory.events.query() == events


def test_commands_name_a_space_and_never_show_a_password(server: LocalPostgres, tmp_path: Path) -> None:
    environment = {"HOME": str(tmp_path), "MICA_STORE": f"{server.dsn(role=f'{APP}:hidden%40')}&space=shop"}

    results = [
        CliRunner().invoke(cli, arguments, env=environment)
        for arguments in (
            ["mark", "a first look"],
            ["doctor"],
            ["up", "--once"],
            ["upkeep", "copy", f"{environment['MICA_STORE']}-copy"],
            ["upkeep", "copy", f"{server.dsn(role=APP)}&password=hidden&space=shop-copy"],
        )
    ]

    assert [result.exit_code for result in results] == [0, 0, 0, 0, 0], results
    assert "space=shop" in results[1].stdout
    assert "This is what shop holds" in results[2].stdout
    assert not [result.output for result in results if "hidden" in result.output]
    refused = CliRunner().invoke(cli, ["doctor", "--store", "mysql://ann:hidden@host/x"])
    assert refused.stderr.startswith("mica: no store for the address 'mysql://ann@host/x'")


async def test_no_connection_or_thread_is_left_open(server: LocalPostgres) -> None:
    before = threading.active_count()
    async with opened(server.address()) as store:
        await asyncio.gather(
            *(store.log.append([build(n)]) for n in range(5)), *(store.files.sizes() for _ in range(9))
        )
    async with connected(server.dsn()) as connection:
        async with asyncio.timeout(HANGS_S):
            while await connection.fetchval(f"SELECT count(*) FROM pg_stat_activity WHERE usename = '{APP}'"):
                pass  # a server process ends a moment after its connection
    assert not [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
    assert threading.active_count() >= before  # the event loop's own threads end with it


async def test_nothing_but_postgresql_itself_is_needed(server: LocalPostgres) -> None:
    """keeps: K-31. A plain server is enough: no pgvector, no other extension."""
    async with opened(server.address()) as store, connected(server.dsn()) as connection:
        await fill(store)
        assert await store.files.verify() == []
        extensions = await connection.fetch("SELECT extname FROM pg_extension")
        assert [row[0] for row in extensions] == ["plpgsql"]

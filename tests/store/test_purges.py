"""Purges beyond the contract: other processes and spaces, triggers, and the tables of a server."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from hashlib import blake2b
from pathlib import Path
from typing import Any

import asyncpg
import msgspec
import pytest
from tests.residue import with_frames
from tests.store.sqlite.direct_store import DirectStore

from mica.errors import StoreUnavailable
from mica.model.event import CRYSTAL, RETRACTED, Appended, Context, Tombstone, make_tombstone, tombstone_of
from mica.store import purged_values
from mica.store.postgres.store import PostgresStore
from mica.store.protocol import Store
from mica.store.purged_values import Reading
from mica.store.purges import Purge, PurgeFilter, Selection
from mica.store.sqlite.purges import BURY_BLOCKS
from mica.store.sqlite.store import SqliteStore
from mica.testing import build
from mica.testing.builders import START_AT, TOMBSTONE
from mica.testing.contract.purges import PurgeContract
from mica.testing.postgres import OTHER, OWNER, LocalPostgres

NEEDLE = "q7zx"
NAMED = Context(
    session=f"{NEEDLE}s",
    agent=f"{NEEDLE}a",
    user=f"{NEEDLE}u",
    task=f"{NEEDLE}t",
    labels=((f"{NEEDLE}k", f"{NEEDLE}v"),),
)
PLANTED = [
    build(1, "mark", {"text": f"{NEEDLE}word and more", "tags": [NEEDLE]}, context=NAMED),
    build(2, f"{NEEDLE}.name", {NEEDLE: [f"{NEEDLE}-{number}" for number in range(1_000)]}, context=NAMED),
    build(3, "mark", {"text": "and more"}, context=Context(session="s1")),
]
KEPT = Selection(value=NEEDLE).to_purge(at=START_AT + timedelta(days=1), tombstone=TOMBSTONE)


async def two_of_one(store: Store, tmp_path: Path, server: LocalPostgres) -> tuple[Store, Store]:
    """Two stores of one space, as in two processes."""
    if isinstance(store, SqliteStore):
        return store, await SqliteStore.open(Path(store.location))
    address = server.address()
    return await PostgresStore.open(address), await PostgresStore.open(address)


@pytest.mark.parametrize("store", ["sqlite", "postgres"], indirect=True)
async def test_other_processes_drop_purged_words_from_their_caches(
    store: Store, tmp_path: Path, server: LocalPostgres
) -> None:
    """They cache the numbers of words, which must not be used after the words are removed."""
    one, other = await two_of_one(store, tmp_path, server)
    first, again, new = (
        build(n, f"name.{n % 2}", {"text": f"word{n % 2}"}, context=Context(session=f"s{n % 2}", agent=f"a{n % 2}"))
        for n in (1, 3, 2)
    )
    await other.log.append([first])
    assert await other.log.get(first.id)

    await one.purges.bury([first.id], TOMBSTONE)
    await one.log.append([new])
    await other.log.append([again])

    for each in (one, other):
        assert [event.name for event in await each.log.read(0, limit=9)] == ["event.purged", "name.0", "name.1"]
        assert [event.context.session for event in await each.log.read(1, limit=9)] == ["s0", "s1"]
        assert await each.chains.agents() == ["a0", "a1"]
        assert await each.files.verify() == []
        assert each.purges.generation == one.purges.generation
    await one.close()
    await other.close()


@pytest.mark.parametrize("store", ["sqlite", "postgres"], indirect=True)
async def test_other_processes_apply_a_purge_with_their_next_append(
    store: Store, tmp_path: Path, server: LocalPostgres
) -> None:
    """keeps: U-08"""
    one, other = await two_of_one(store, tmp_path, server)
    await other.log.append([build(9)])
    assert KEPT is not None
    await one.purges.add(KEPT)

    assert await other.log.append(PLANTED) == Appended(stored=3)

    assert [event.name for event in await one.log.read(1, limit=9)] == ["event.purged", "event.purged", "mark"]
    await one.close()
    await other.close()


async def test_a_stored_purge_does_not_reveal_purged_content() -> None:
    """keeps: U-08. Neither values nor names; two purges of one value differ."""
    selection = Selection(value=NEEDLE, session=NEEDLE, agent=NEEDLE, user=NEEDLE)
    one, other = (selection.to_purge(at=START_AT, tombstone=TOMBSTONE) for _ in range(2))
    assert one is not None
    assert other is not None
    assert NEEDLE not in repr(one)
    assert {one.value, one.session} & {other.value, other.session} == set()


async def test_events_newer_than_every_purge_are_not_decoded() -> None:
    """The body here is not JSON, so decoding it would fail."""
    assert KEPT is not None
    newer = build(1, after_s=100_000)
    broken = type(newer)(**{name: getattr(newer, name) for name in newer.__struct_fields__} | {"body": b"\0"})
    assert PurgeFilter([KEPT]).apply(broken) is broken


# -- SQLite ---------------------------------------------------------------------------------------------------


async def test_events_that_are_not_purged_stay_in_their_blocks(tmp_path: Path) -> None:
    """No transaction changes more than a few blocks."""
    store = await SqliteStore.open(tmp_path / "space.db")
    events = [build(n, data={"n": n, "text": f"word{n % 9}"}) for n in range(1, 1_001)]
    await store.log.append(events)
    while await store.files.age(START_AT + timedelta(days=1), limit=50):
        pass
    chosen = [event.id for event in events[::25]]
    before = await store._worker.run(lambda core: core.one("SELECT generation FROM space")[0])

    assert await store.purges.bury(chosen, TOMBSTONE) == 40

    steps = await store._worker.run(lambda core: core.one("SELECT generation FROM space")[0]) - before
    assert steps == 20 // BURY_BLOCKS
    assert (await store.files.sizes()).aged == 960
    found = await store.log.read(0, limit=2_000)
    assert [event.id for event in found if event.name == "event.purged"] == chosen
    assert [event.data["n"] for event in found if event.name != "event.purged"] == [
        n for n in range(1, 1_001) if n % 25 != 1
    ]
    assert await store.files.verify() == []
    await store.close()


def test_a_tombstone_is_the_only_change_that_passes_the_trigger(tmp_path: Path) -> None:
    """keeps: K-53. With the authority of a purge, and only inside its transaction."""
    core = DirectStore(tmp_path / "space.db")
    core.log.append([build(1), build(2)])
    core.purges.bury([build(1).id], TOMBSTONE)
    core.close()
    connection = sqlite3.connect(tmp_path / "space.db")
    assert connection.execute("SELECT count(*) FROM authority").fetchone() == (0,)
    stone = "name = (SELECT id FROM names WHERE name = 'event.purged')"
    with pytest.raises(sqlite3.IntegrityError, match="never changed"):
        connection.execute(f"UPDATE events SET {stone} WHERE position = 2")
    connection.execute("INSERT INTO authority (work, at) VALUES ('purge', 1)")
    for change in ("data = '{}'", f"{stone}, at = 7", f"{stone}, depth = 7", f"{stone}, parent_writer = 1"):
        with pytest.raises(sqlite3.IntegrityError, match="never changed"):
            connection.execute(f"UPDATE events SET {change} WHERE position = 2")
    with pytest.raises(sqlite3.IntegrityError, match="never removed"):
        connection.execute("DELETE FROM events")
    connection.close()


# -- PostgreSQL -----------------------------------------------------------------------------------------------


@asynccontextmanager
async def superuser(server: LocalPostgres) -> AsyncIterator[Any]:
    connection = await asyncpg.connect(server.dsn(), statement_cache_size=0)
    try:
        yield connection
    finally:
        await connection.close()


async def dump(connection: Any, space: int) -> bytes:  # noqa: ANN401  # asyncpg is not typed
    """All rows of a space in all tables, with expanded frames."""
    tables = await connection.fetch(
        """SELECT DISTINCT table_name FROM information_schema.columns
        WHERE table_schema = 'mica' AND column_name = 'space'"""
    )
    found = b""
    for (table,) in tables:
        for row in await connection.fetch(f"SELECT * FROM mica.{table} WHERE space = $1", space):
            for value in row:
                found += with_frames(value) if isinstance(value, bytes) else str(value).encode()
    return found


async def test_nothing_is_left_in_the_tables_of_a_server(server: LocalPostgres) -> None:
    """keeps: U-08. For a role that owns no tables; another space with the same words keeps them."""
    spaces = [await PostgresStore.open(server.address()), await PostgresStore.open(server.address(role=OTHER))]
    for store in spaces:
        await store.log.append(PLANTED)
    async with superuser(server) as connection:
        assert NEEDLE.encode() in await dump(connection, spaces[0]._space.number)

        assert await spaces[0].purges.bury([event.id for event in PLANTED[:2]], TOMBSTONE) == 2
        assert KEPT is not None
        await spaces[0].purges.add(KEPT)

        assert NEEDLE.encode() not in await dump(connection, spaces[0]._space.number)
        assert NEEDLE.encode() in await dump(connection, spaces[1]._space.number)
        assert await connection.fetchval("SELECT count(*) FROM mica.authority") == 0
    assert [event.name for event in await spaces[1].log.read(0, limit=9)] == [event.name for event in PLANTED]
    assert await spaces[1].purges.all() == []
    for store in spaces:
        assert await store.files.verify() == []
        await store.close()


async def test_the_authority_of_one_space_does_not_apply_to_another(server: LocalPostgres) -> None:
    """keeps: U-09. It allows only tombstones."""
    one, other = [await PostgresStore.open(server.address()) for _ in range(2)]
    for store in (one, other):
        await store.log.append([build(1), build(2)])
        await store.purges.bury([build(1).id], Tombstone(purge=TOMBSTONE.purge, reason="x"))
    async with superuser(server) as connection:
        await connection.execute("INSERT INTO mica.authority VALUES ($1, 'purge', 1)", one._space.number)
        find = "SELECT id FROM mica.names WHERE space = $1 AND name = 'event.purged'"
        for store, change, passes in (
            (one, "data = ''", False),
            (one, "name = $2, depth = 7", False),
            (one, "name = $2", True),
            (other, "name = $2", False),
        ):
            number = await connection.fetchval(find, store._space.number)
            values = [store._space.number, *([number] if "$2" in change else [])]
            update = f"UPDATE mica.events SET {change} WHERE space = $1 AND position = 2"
            if passes:
                await connection.execute(update, *values)
            else:
                with pytest.raises(asyncpg.RestrictViolationError, match="never changed"):
                    await connection.execute(update, *values)
        for table in ("names", "contexts", "sessions", "terms", "payloads"):
            await connection.execute(f"DELETE FROM mica.{table} WHERE false")
        with pytest.raises(asyncpg.RestrictViolationError, match="never removed"):
            await connection.execute("DELETE FROM mica.names WHERE space = $1", other._space.number)
        await connection.execute("DELETE FROM mica.authority")
    await one.close()
    await other.close()


@pytest.mark.parametrize(
    ("role", "message"), [(OWNER, "write-ahead log and backups"), (OTHER, "its owner can run VACUUM")]
)
async def test_scrub_reports_copies_that_a_server_keeps(server: LocalPostgres, role: str, message: str) -> None:
    store = await PostgresStore.open(server.address(role=role))
    [problem] = await store.purges.scrub()
    assert message in problem
    await store.close()
    with pytest.raises(StoreUnavailable, match="closed"):
        await store.purges.scrub()


def test_a_tombstone_of_a_tombstone_is_itself() -> None:
    stone = make_tombstone(build(1, context=NAMED), TOMBSTONE)
    assert make_tombstone(stone, TOMBSTONE) == stone


def test_a_tombstone_keeps_ids_and_nothing_else() -> None:
    """keeps: K-53. The superseded or retracted ids of an event may be any text until it is stored."""
    known = build(7).id
    for event, left in (
        (build(1, CRYSTAL, {"supersedes": [known, NEEDLE], "text": NEEDLE}), {"supersedes": [known]}),
        (build(1, CRYSTAL, {"supersedes": NEEDLE}), {}),
        (build(1, RETRACTED, {"mark": known, "reason": NEEDLE}), {"retracts": known}),
        (build(1, RETRACTED, {"mark": NEEDLE}), {}),
        (build(1, "other", {"supersedes": [known], "mark": known}), {}),
    ):
        stone = make_tombstone(event, TOMBSTONE)
        assert stone.data == {"purge": TOMBSTONE.purge, "reason": TOMBSTONE.reason} | left
        assert make_tombstone(stone, TOMBSTONE) == stone
        tombstone_of(stone)


def test_a_text_is_folded_once_for_all_purges(monkeypatch: pytest.MonkeyPatch) -> None:
    """keeps: U-08. A large mark is not folded again for every purged value."""
    selections = [Selection(value=f"secret value number {number}") for number in range(30)]
    purges = [
        selection.to_purge(at=START_AT, tombstone=Tombstone(purge=build(1_000 + number).id, reason="leaked"))
        for number, selection in enumerate(selections)
    ]
    purge_filter = PurgeFilter([purge for purge in purges if purge is not None])
    readings = 0

    class Counted(Reading):
        def __init__(self, text: str) -> None:
            nonlocal readings
            readings += 1
            super().__init__(text)

    monkeypatch.setattr(purged_values, "Reading", Counted)

    assert purge_filter.find_purge("nothing of the kind " * 100) is None
    assert readings == 1
    assert purge_filter.find_purge("it says Secret-Value, number 7!") is not None


def test_a_purge_of_an_earlier_version_is_read_and_matches_as_it_did() -> None:
    """keeps: U-08. This is how such a version stored a purge of `Ann Lee`: hyphens separate words, zeros count."""
    told = {"purge": TOMBSTONE.purge, "reason": TOMBSTONE.reason}
    salt = b"0123456789abcdef"
    digest = blake2b(b"annlee", key=salt, digest_size=16).digest()
    fields = {"told": told, "at": START_AT + timedelta(days=1), "salt": salt, "session": None, "agent": None}
    value = {"user": None, "value": digest, "value_characters": 6, "is_spelled": True, "since": None, "until": None}

    purge = msgspec.json.decode(msgspec.json.encode(fields | value | {"lifts": None, "is_lifted": False}), type=Purge)

    assert purge.is_of("ann-lee")
    assert not purge.is_of("ann-lees")
    for text, matches in (("Ann-Lee-Backup", True), ("ann_lee", True), ("annlee", True), ("JoAnn Lee", False)):
        assert purge.fits(build(1, data={"text": text})) == matches
    assert purge.written_in("see the Ann-Lee-Backup") == "Ann-Lee"


class TestPurges(PurgeContract):
    """The suite is in `mica.testing.contract.purges`."""

"""A server that is down when a space is opened: events wait on this machine, and reads raise an error."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import pytest

import mica
from mica import EventQuery
from mica.errors import StoreUnavailable
from mica.settings import Settings
from mica.sources.protocol import Fragment, Question
from mica.store.postgres import server as postgres_server
from mica.store.postgres.server import parse_address
from mica.store.postgres.store import PostgresStore
from mica.store.space import recall_space, remember_space
from mica.testing import build
from mica.testing.postgres import APP, LOCKED, LocalPostgres

SOON_S = 30


@asynccontextmanager
async def away(server: LocalPostgres) -> AsyncIterator[None]:
    """Kill the server, and start it again afterwards unless it is running."""
    server.kill()
    try:
        yield
    finally:
        await asyncio.to_thread(server.restart)


async def test_a_space_that_was_opened_before_opens_without_its_server(server: LocalPostgres, home: Settings) -> None:
    """keeps: U-04, TE-03.

    PostgreSQL is down, segments wait, nothing is lost; when it is back, things go on by themselves.
    """
    address = server.address()
    async with mica.open(address, settings=home) as memory:
        memory.mark("The cookie is set before the redirect")
        space = memory.space

    async with away(server):
        async with mica.open(address, settings=home) as earlier:
            earlier.emit("step", {"n": 1})
            assert earlier.space == space
        memory = await mica.open(address, settings=home)
        memory.mark("It comes back", tags=["hope"])
        memory.emit("step", {"n": 2})
        await memory.durable()
        assert (await memory.upkeep.backlog())[0] >= 3
        for ask in (
            memory.events.query,
            memory.events.position,
            memory.upkeep.sizes,
            memory.upkeep.verify,
            lambda: memory.search("cookie"),
        ):
            with pytest.raises(StoreUnavailable, match=rf"PostgreSQL at {parse_address(address, space='x').host} "):
                await ask()
        brief = await memory.brief("cookie")
        assert brief.passages == ()
        assert {"latest", "marks"} <= brief.missing.keys()
        assert "does not answer" in brief.missing["marks"]
        following = asyncio.create_task(_names(memory, 5))

    async with asyncio.timeout(SOON_S):
        assert await following == ["mark", "step", "mark", "step", "brief"]
    assert [event.position for event in await memory.events.query(EventQuery(names=("step",)))] == [2, 4]
    assert await memory.upkeep.verify() == []
    assert (await memory.upkeep.backlog())[0] == 0
    await memory.close()


async def test_the_first_brief_after_reconnecting_omits_what_is_purged_meanwhile(
    server: LocalPostgres, home: Settings
) -> None:
    """keeps: U-08. A process that was opened without its server does not know the generation."""
    address, going = server.address(), ["The cookie is called hunter2"]
    async with mica.open(address, settings=home) as other:
        other.mark("The cookie is set before the redirect")
        other.mark(going[0])
    async with away(server):
        memory = await mica.open(address, settings=home)
    marks = memory.sources._own[1]

    class Marks:
        declared = marks.declared

        async def fragments(self, question: Question) -> Sequence[Fragment]:
            found = await marks.fragments(question)
            while going:
                async with mica.open(address, settings=home) as other:
                    await other.purge(value=going.pop())
            return found

        async def close(self) -> None:
            """Nothing to close."""

    memory.sources._own[1] = Marks()
    brief = await memory.brief("cookie", is_preview=True)
    await memory.close()

    assert going == []
    assert "hunter2" not in brief.text
    assert "before the redirect" in brief.text


async def _names(memory: mica.Memory, number: int) -> list[str]:
    following = memory.events.follow(after=0)
    return [(await anext(following)).name for _ in range(number)]


async def test_an_address_never_opened_before_needs_its_server(server: LocalPostgres, home: Settings) -> None:
    """Its space is unknown."""
    address = server.address()
    async with away(server):
        with pytest.raises(StoreUnavailable, match="is it running"):
            await mica.open(address, settings=home)
    async with mica.open(address, settings=home):
        pass
    async with away(server):
        with pytest.raises(StoreUnavailable, match="is it running"):
            await mica.open(f"{address} too", settings=home)
        with pytest.raises(StoreUnavailable, match="is it running"):
            await PostgresStore.open(address)  # without a folder, events could not wait
        async with mica.open(address, settings=home) as memory:
            memory.emit("step")
    async with mica.open(address, settings=home) as memory:
        assert await memory.events.position() == 1


async def test_a_server_that_never_answers_is_tried_once(
    server: LocalPostgres, home: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """keeps: U-05. A timeout is not retried."""
    monkeypatch.setattr(postgres_server, "CONNECT_S", 0.1)
    asked = 0

    async def ignore(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal asked
        asked += 1
        await reader.read(-1)
        writer.close()

    async def connection_count(expected: int) -> int:
        async with asyncio.timeout(SOON_S):  # the client may give up before the server counts it
            while asked < expected:
                await asyncio.sleep(0)
        return asked

    with tempfile.TemporaryDirectory() as folder:
        listening = await asyncio.start_unix_server(ignore, f"{folder}/.s.PGSQL.5432")
        address = f"postgresql://ann@/shop?host={folder}&space=x"
        remember_space(home.home, parse_address(address, space="x"), "0" * 26)
        store = await PostgresStore.open(address, home=home.home)
        assert await connection_count(1) == 1

        with pytest.raises(StoreUnavailable, match="did not answer in time"):
            await store.log.append([build(1)])
        with pytest.raises(StoreUnavailable, match="did not answer in time"):
            await store.log.query(EventQuery())

        assert await connection_count(3) == 3
        await store.close()
        listening.close()
        await listening.wait_closed()


async def test_no_password_is_stored(server: LocalPostgres, home: Settings) -> None:
    address = server.address(role=f"{APP}:hidden%40")
    async with mica.open(address, settings=home) as memory:
        memory.emit("step")
    contents = [file.read_bytes() for file in home.home.rglob("*") if file.is_file()]

    assert contents
    assert not [content for content in contents if b"hidden" in content]


async def test_a_refused_login_is_reported_on_opening(server: LocalPostgres, home: Settings) -> None:
    """Waiting does not help with a wrong password."""
    address = server.address(role=f"{LOCKED}:wrong")
    remember_space(home.home, parse_address(address, space="x"), "someone")
    with pytest.raises(StoreUnavailable, match="check user and password"):
        await mica.open(address, settings=home)


async def test_a_damaged_note_of_the_space_id_is_ignored(server: LocalPostgres, home: Settings) -> None:
    address = parse_address(server.address(), space="x")
    assert recall_space(home.home, address) is None
    remember_space(home.home, address, "a")
    assert recall_space(home.home, address) == "a"
    (note,) = (home.home / "addresses").iterdir()
    note.write_bytes(note.read_bytes()[:-5])
    assert recall_space(home.home, address) is None


async def test_a_space_that_was_deleted_while_the_server_was_down_is_reported(
    server: LocalPostgres, home: Settings
) -> None:
    """An empty space of the same name would look as if nothing had ever been stored."""
    address = server.address()
    async with away(server):
        remember_space(home.home, parse_address(address, space="x"), "0" * 26)
        store = await PostgresStore.open(address, home=home.home)
        assert store.space == "0" * 26
    with pytest.raises(StoreUnavailable, match="is gone from"):
        await store.log.append([build(1)])
    await store.close()

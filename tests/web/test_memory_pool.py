"""The pool of open memories of a server."""

from __future__ import annotations

import asyncio
import gc
from pathlib import Path

import httpx2
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from starlette.applications import Starlette
from starlette.routing import Route
from tests.web.conftest import BASE
from tests.web.server import web_server_at

import mica
from mica.errors import InvalidInput, StoreUnavailable, UnknownSpace
from mica.memory import open_on
from mica.settings import Settings
from mica.store.protocol import Store
from mica.store.target import open_store
from mica.testing.postgres import LocalPostgres
from mica.web.access import Access
from mica.web.app import application
from mica.web.memory_pool import MemoryPool
from mica.web.tokens import TokenFile


async def test_an_unknown_space_leaves_no_lock_behind(pool: MemoryPool) -> None:
    """Requests for unknown spaces must not use up memory."""
    for number in range(100):
        with pytest.raises(UnknownSpace):
            await pool.memory(f"nowhere-{number}")

    gc.collect()
    assert not [name for name in pool._locks if name.startswith("nowhere")]


async def test_the_least_recently_used_space_is_closed_at_the_limit(tmp_path: Path, home: Settings) -> None:
    pool = MemoryPool(tmp_path / "shop.db", settings=home, open_max=3)
    await pool.memory()
    first = await pool.memory("one", make=True)
    first.mark("The cookie is set before the redirect")
    await pool.memory("two", make=True)
    assert await pool.memory("one") is first

    await pool.memory("three", make=True)  # "two" is the least recently used
    assert [*pool.opened] == ["shop", "one", "three"]
    await pool.memory("two")
    assert [*pool.opened] == ["shop", "three", "two"]
    with pytest.raises(StoreUnavailable):
        await first.events.query()

    [mark] = await (await pool.memory("one")).events.query()  # nothing was lost
    assert mark.data["text"] == "The cookie is set before the redirect"
    await pool.close()


async def test_a_space_that_opens_while_the_pool_closes_is_closed_too(tmp_path: Path, home: Settings) -> None:
    opened: list[mica.Memory] = []

    async def opening(store: Store, target: Path, **_: object) -> mica.Memory:
        opened.append(await open_on(store, target, settings=home))
        await pool.close()
        return opened[0]

    pool = MemoryPool(tmp_path / "shop.db", settings=home, open_memory=opening)

    with pytest.raises(InvalidInput, match="is stopping"):
        await pool.memory()
    with pytest.raises(StoreUnavailable):
        await opened[0].events.query()


async def test_a_space_in_use_is_not_closed(tmp_path: Path, home: Settings) -> None:
    pool = MemoryPool(tmp_path / "shop.db", settings=home, open_max=2)
    async with pool.using("one", make=True) as memory:
        await pool.memory("two", make=True)
        async with pool.using("three", make=True):
            with pytest.raises(InvalidInput, match="2 spaces are in use already"):
                await pool.memory("four", make=True)
        memory.mark("still open")
        assert len(await memory.events.query()) == 1
    await pool.close()


@settings(max_examples=15, deadline=None)
@given(st.lists(st.sampled_from("abcdef"), min_size=6, max_size=24))
def test_concurrent_users_of_many_spaces_find_each_open(
    tmp_path_factory: pytest.TempPathFactory, names: list[str]
) -> None:
    """Each concurrent user has its space open until it is done, with everything recorded before."""
    folder = tmp_path_factory.mktemp("pool")
    own = mica.load_settings({"HOME": str(folder), "MICA_SEMANTIC": "off"})

    async def use_all() -> None:
        pool = MemoryPool(folder / "shop.db", settings=own, open_max=4)
        gate = asyncio.Semaphore(3)

        async def use(name: str) -> None:
            async with gate, pool.using(name, make=True) as memory:
                memory.mark(f"said in {name}")
                await memory.events.query()
                assert len(pool.opened) <= 6  # up to two more may be opening

        await asyncio.gather(*map(use, names))
        for name in set(names):
            async with pool.using(name) as memory:
                assert len(await memory.events.query()) == names.count(name)
        await pool.close()

    asyncio.run(use_all())


async def test_a_stream_keeps_its_space_open_and_a_request_does_not(tmp_path: Path) -> None:
    with web_server_at(tmp_path, open_store=open_store, open_max=2) as server:
        headers = {"authorization": f"Bearer {server.token}"}
        async with httpx2.AsyncClient(base_url=server.base, headers=headers) as client:

            async def mark(space: str) -> int:
                async with mica.open(server.address(space)) as memory:
                    memory.mark(f"said in {space}")
                    await memory.events.position()
                return (await client.get("/api/events/query", params={"space": space})).status_code

            async with mica.open(server.address("one")), client.stream("GET", "/api/events/follow?space=one") as stream:
                parts = stream.aiter_text()
                await anext(parts)
                assert [await mark(name) for name in ("two", "three", "one")] == [200, 200, 200]
                assert "said in one" in await anext(parts)


@pytest.mark.parametrize("engine", ["sqlite", "postgres"])
async def test_no_request_creates_a_space(
    engine: str, tmp_path: Path, home: Settings, request: pytest.FixtureRequest
) -> None:
    """Every route answers a missing space with an error. Only `mica.open` creates one."""
    server: LocalPostgres | None = request.getfixturevalue("server") if engine == "postgres" else None
    pool = MemoryPool(str(tmp_path / "shop.db") if server is None else server.address(), settings=home)
    access = Access(TokenFile(home.home), port=6422)
    app = application(pool, access=access)
    before = await pool.spaces()
    headers = {"authorization": f"Bearer {access.tokens.make('test')[0]}"}
    try:
        async with httpx2.AsyncClient(transport=httpx2.ASGITransport(app), base_url=BASE, headers=headers) as client:
            for path in _paths(app):
                answer = await client.get(path, params={"space": "typo"}, headers={"hx-request": "1"})
                assert answer.status_code in (400, 404, 405), (path, answer.status_code)
            answer = await client.post("/api/mark", params={"space": "typo"}, json={"text": "observed"})
            assert (answer.status_code, answer.json()["type"]) == (404, "/problems/UnknownSpace")
            assert "typo" in answer.json()["detail"]
        assert await pool.spaces() == before

        await pool.memory("made", make=True)
        assert sorted(await pool.spaces()) == sorted([*before, "made"])
    finally:
        await pool.close()


def _paths(app: Starlette) -> list[str]:
    """The paths of all GET routes of a space, with parameters filled in."""
    of_server = ("/health", "/enter", "/api/server/spaces", "/api/openapi.json", "/static")
    routes = [route for route in app.routes if isinstance(route, Route) and "GET" in (route.methods or ())]
    return [route.path.replace("{", "").replace("}", "") for route in routes if not route.path.startswith(of_server)]


async def test_all_spaces_of_a_database_that_a_token_opens_are_listed(server: LocalPostgres, home: Settings) -> None:
    """This includes spaces that were not opened since the server started."""
    for name in ("one", "two"):
        async with mica.open(server.address(space=name), settings=home) as memory:
            memory.mark(f"said in {name}")
    pool = MemoryPool(server.address(space="one"), settings=home)
    access = Access(TokenFile(home.home), port=6422)
    transport = httpx2.ASGITransport(application(pool, access=access))
    tokens = [access.tokens.make("all")[0], access.tokens.make("guest", spaces=["two"])[0]]
    listed = []
    for token in tokens:
        headers = {"authorization": f"Bearer {token}"}
        async with httpx2.AsyncClient(transport=transport, base_url=BASE, headers=headers) as client:
            listed.append((await client.get("/api/server/spaces")).json()["spaces"])
            shown = (await client.get("/")).text
            assert ("?space=two" in shown, "?space=one" in shown) == (True, token is tokens[0])
    await pool.close()

    assert {"one", "two"} <= set(listed[0])
    assert listed[0][0] == "one"
    assert listed[1] == ["two"]


@pytest.mark.parametrize(
    "name", ["../hidden", "../../etc/passwd", "..", "a/b", "/etc/passwd", "shop.db", "none", "%2e"]
)
async def test_a_space_name_cannot_leave_the_data_folder(client: httpx2.AsyncClient, home: Settings, name: str) -> None:
    """keeps: U-09"""
    async with mica.open(home.home / "hidden.db", settings=home) as memory:  # beside the folder of spaces
        memory.mark("this is private")
    (home.home / "spaces").mkdir(exist_ok=True)

    read = await client.get("/api/events/query", params={"space": name})

    assert read.status_code == 404
    assert read.json()["type"] == "/problems/UnknownSpace"

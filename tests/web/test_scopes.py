"""Scopes of tokens: every route declares the one that it needs, and refuses tokens without it."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Iterator, Sequence

import httpx2
import pytest
from starlette.applications import Starlette
from starlette.routing import Mount, Route, WebSocketRoute
from starlette.testclient import TestClient
from starlette.websockets import WebSocketDisconnect
from tests.web.conftest import Calling

from mica.mcp import http as mcp
from mica.settings import Settings
from mica.store.remote.wire import roles
from mica.web.access import OPEN, Access
from mica.web.api.server import STORE_SCOPES
from mica.web.app import application
from mica.web.memory_pool import MemoryPool, memory_at
from mica.web.scopes import ScopedEndpoint, token_at
from mica.web.tokens import SCOPES, TokenFile, TokenScope

WITHOUT: dict[TokenScope, tuple[TokenScope, ...]] = {"read": ("write",), "write": ("read",), "admin": ("read", "write")}
GATEWAY = "ws://127.0.0.1:6422/api/gateway"
EVENTS = ("/api/events/follow", "/api/crystals/stream")
# What can only be done with admin: it removes, gives access, or reaches other systems with a caller's words.
ADMIN = {
    "/api/purge",
    "/api/upkeep/allow",
    "/api/sources/gather",
    "/api/sources/warm",
    "/api/server/link",
    "/api/store/purges/add",
    "/api/store/purges/bury",
    "/api/store/purges/scrub",
    "/api/store/files/rebuild",
    "/purge/{reference}",
    "/sources/gathered",
}


@pytest.fixture
async def app(pool: MemoryPool, access: Access) -> AsyncIterator[Starlette]:
    """The whole server, with MCP."""
    endpoint = mcp.Endpoint(memory_at, token_at)
    yield application(pool, access=access, extra=[*mcp.routes(endpoint), *mcp.sse_routes(endpoint)])
    await endpoint.close()


def declared(app: Starlette) -> Iterator[tuple[Route | WebSocketRoute, TokenScope]]:
    for each in app.routes:
        if isinstance(each, Mount):
            assert each.path == "/static"
            continue
        assert isinstance(each, Route | WebSocketRoute)
        if each.path not in OPEN:
            assert isinstance(each.app, ScopedEndpoint), f"{each.path} declares no scope"
            yield each, each.app.needs


def filled(path: str) -> str:
    return re.sub(r"{\w+}", "1", path)


def test_every_route_declares_the_scope_it_needs(app: Starlette) -> None:
    """keeps: U-09"""
    scopes = {each.path: needs for each, needs in declared(app)}

    assert len(scopes) > 100
    assert {path for path, needs in scopes.items() if needs == "admin"} == ADMIN
    assert {scopes[path] for path in (*EVENTS, "/api/gateway", "/api/events/export", "/mcp", "/mcp/sse")} == {"read"}
    for path in ("mark", "emit", "retract", "sources/judge", "trails/import_walks", "store/log/append"):
        assert scopes[f"/api/{path}"] == "write"


def test_every_method_of_a_store_has_one_scope() -> None:
    known = [name for names in STORE_SCOPES.values() for name in names]

    assert sorted(known) == sorted(f"{role}.{name}" for role, methods in roles().items() for name in methods)


async def test_every_route_refuses_a_token_without_its_scope(app: Starlette, access: Access, calling: Calling) -> None:
    """The problem document names the missing scope, and the commands that give it."""
    secrets = {scope: access.tokens.make(f"no {scope}", scopes=WITHOUT[scope])[0] for scope in SCOPES}
    refused = 0
    for each, needs in declared(app):
        for method in (getattr(each, "methods", None) or {"GET", "POST", "DELETE"}) if isinstance(each, Route) else ():
            async with calling(secrets[needs]) as client:
                answer = await client.request(method, filled(each.path))
            assert answer.status_code == 403, (method, each.path, answer.text)
            if method != "HEAD":
                problem = answer.json()
                assert answer.headers["content-type"] == "application/problem+json"
                assert problem["type"] == "/problems/ScopeMissing"
                assert (problem["facts"]["scope"], problem["facts"]["scopes"]) == (needs, " and ".join(WITHOUT[needs]))
                assert f"needs the scope {needs}" in problem["detail"]
                assert "mica server token make NAME" in problem["detail"]
                assert ("--admin" in problem["detail"]) == (needs == "admin")
            refused += 1
    assert refused > 150


def test_a_websocket_refuses_a_token_that_may_not_read(app: Starlette, access: Access) -> None:
    secret, _ = access.tokens.make("writer", scopes=["write"])
    client = TestClient(app)

    headers = {"authorization": f"Bearer {secret}"}
    with pytest.raises(WebSocketDisconnect) as refused, client.websocket_connect(GATEWAY, headers=headers):
        pass

    assert (refused.value.code, refused.value.reason[:26]) == (1008, "this needs the scope read,")


@pytest.mark.parametrize(
    ("scopes", "statuses"),
    [(["read"], [200, 403, 403]), (["write"], [403, 200, 403]), (["admin"], [200, 200, 200])],
)
async def test_a_token_may_do_what_its_scopes_say(
    access: Access, calling: Calling, scopes: Sequence[TokenScope], statuses: list[int]
) -> None:
    async with calling(access.tokens.make("one", scopes=scopes)[0]) as client:
        answers = [
            await client.get("/api/search", params={"query": "cookie"}),
            await client.post("/api/mark", json={"text": "The cookie is set before the redirect"}),
            await client.post("/api/purge", json={"value": "cookie"}),
        ]

    assert [answer.status_code for answer in answers] == statuses


async def test_a_reading_token_gets_briefs_but_makes_no_space(access: Access, calling: Calling) -> None:
    secret, _ = access.tokens.make("reader", scopes=["read"])
    async with calling(secret, **{"content-type": "application/json"}) as client:
        assert (await client.post("/api/brief", json={"query": "cookie"})).status_code == 200
        made = await client.post("/api/store?space=new", content=b"\x81\xa4make\xc3")

    assert (made.status_code, made.json()["type"]) == (404, "/problems/UnknownSpace")


# -- The dashboard ------------------------------------------------------------------------------------------------


async def entered(client: httpx2.AsyncClient, access: Access, scopes: tuple[TokenScope, ...] | None = None) -> None:
    key = access.new_key() if scopes is None else access.new_key(scopes)
    assert (await client.get("/enter", params={"key": key})).status_code == 303


async def test_the_dashboards_link_may_read_and_write_but_not_purge(calling: Calling, access: Access) -> None:
    async with calling(access.tokens.make("agent")[0]) as agent:
        mark = (await agent.post("/api/mark", json={"text": "The cookie is set before the redirect"})).json()["id"]
    async with calling() as browser:
        await entered(browser, access)
        shown = await browser.get("/", headers={"accept": "text/html"})
        part = await browser.get(f"/purge/{mark}", headers={"hx-request": "true"})
        page = await browser.get(f"/purge/{mark}", headers={"accept": "text/html"})
        done = await browser.post(f"/retract/{mark}", data={"reason": "wrong file"}, headers={"hx-request": "true"})

    assert (shown.status_code, done.status_code) == (200, 200)
    assert [each.status_code for each in (part, page)] == [403, 403]
    for each in (part, page):
        assert "this needs the scope admin" in each.text
        assert "mica server open --admin" in each.text
    assert part.text.startswith("<div")
    assert page.text.startswith("<!doctype html>")


async def test_a_link_made_with_admin_may_purge(calling: Calling, access: Access) -> None:
    async with calling(access.tokens.make("server")[0]) as server:
        mark = (await server.post("/api/mark", json={"text": "The cookie is set before the redirect"})).json()["id"]
        path = (await server.post("/api/server/link?admin=1")).json()["path"]
    async with calling() as browser:
        assert (await browser.get(path)).status_code == 303
        assert (await browser.get(f"/purge/{mark}", headers={"hx-request": "true"})).status_code == 200


def test_a_token_file_from_before_scopes_keeps_its_rights(home: Settings) -> None:
    """Its tokens may do everything, as before, and the list says so."""
    secret, _ = TokenFile(home.home).make("old")
    assert "scopes" not in (home.home / "tokens.json").read_text(), "a token with all scopes is stored as before"

    found = TokenFile(home.home).find(secret)

    assert found is not None
    assert found.scopes == ("read", "write", "admin")

"""The application: its open paths, logging in, and errors as problem documents."""

from __future__ import annotations

import httpx2
from tests.web.conftest import Calling

from mica.web.access import Access


async def test_only_health_needs_no_token(calling: Calling) -> None:
    async with calling() as client:
        assert (await client.get("/health")).json()["status"] == "ok"

        refused = await client.get("/anything")

    assert refused.status_code == 401
    assert refused.headers["content-type"] == "application/problem+json"
    assert "a token is needed" in refused.json()["detail"]
    assert "mica server token make" in refused.json()["detail"]


async def test_a_login_link_works_once(calling: Calling, access: Access) -> None:
    key = access.new_key()
    async with calling() as browser, calling() as thief:
        entered = await browser.get(f"/enter?key={key}")
        assert entered.status_code == 303
        assert "HttpOnly" in entered.headers["set-cookie"]
        assert "samesite=strict" in entered.headers["set-cookie"].lower()
        assert (await browser.get("/anything")).status_code == 404

        assert (await thief.get(f"/enter?key={key}")).status_code == 401
        assert (await thief.get("/anything")).status_code == 401

        again = await browser.get(f"/enter?key={key}")  # it is already logged in
        assert (again.status_code, again.headers["location"]) == (303, "/")


async def test_a_link_preview_does_not_use_up_the_key(calling: Calling, access: Access) -> None:
    """Link previews and browser prefetching must not consume the key."""
    link = f"/enter?key={access.new_key()}"
    async with calling() as looking, calling() as browser:
        assert (await looking.head(link)).status_code == 405
        assert (await looking.get(link, headers={"sec-purpose": "prefetch;prerender"})).status_code == 503
        assert access.tokens.all() == []

        assert (await browser.get(link)).status_code == 303


async def test_an_unknown_path_is_a_problem_document(client: httpx2.AsyncClient) -> None:
    answer = await client.get("/api/nothing")

    assert (answer.status_code, answer.headers["content-type"]) == (404, "application/problem+json")
    assert answer.json()["title"] == "Not Found"


async def test_an_error_of_mica_is_a_problem_document_of_its_class(client: httpx2.AsyncClient) -> None:
    answer = await client.get("/api/events/get", params={"reference": "99"})

    assert answer.status_code == 404
    assert answer.json()["type"].endswith("UnknownEvent")

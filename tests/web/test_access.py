"""Access control: tokens, one-time links, hosts, origins, sizes and rates."""

from __future__ import annotations

import httpx2
import pytest
from starlette.types import Message, Receive, Scope, Send
from tests.web.conftest import Calling

from mica.settings import Settings
from mica.testing import HandClock
from mica.web.access import KEY_S, Access, Guard, Limits
from mica.web.tokens import TokenFile


@pytest.mark.parametrize("path", ["/healthy", "/health/more", "/enterprise", "/enter/", "/static"])
async def test_a_path_that_only_starts_like_an_open_one_needs_a_token(calling: Calling, path: str) -> None:
    async with calling() as client:
        assert (await client.get(path)).status_code == 401


async def test_a_wrong_token_is_refused(calling: Calling) -> None:
    async with calling("mica_wrong") as client:
        refused = await client.get("/anything")

    assert refused.status_code == 401
    assert "is unknown, expired or revoked" in refused.json()["detail"]


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1.evil.example", "", "a@127.0.0.1:80:80"])
async def test_a_foreign_host_is_refused(client: httpx2.AsyncClient, host: str) -> None:
    """A foreign name for this machine is refused even with a token (DNS rebinding)."""
    assert (await client.get("/health", headers={"host": host})).status_code == 421


@pytest.mark.parametrize("origin", ["http://evil.example", "null", "http://127.0.0.1:9999", "https://[bad"])
async def test_a_foreign_origin_is_refused(client: httpx2.AsyncClient, origin: str) -> None:
    assert (await client.post("/health", headers={"origin": origin})).status_code == 403


async def test_our_own_origin_is_allowed(client: httpx2.AsyncClient) -> None:
    answer = await client.get("/health", headers={"origin": "http://127.0.0.1:6422"})

    assert answer.status_code == 200
    assert "access-control-allow-origin" not in answer.headers


async def test_a_revoked_token_is_refused_at_once(calling: Calling, access: Access, home: Settings) -> None:
    secret, token = access.tokens.make("phone")
    async with calling(secret) as client:
        assert (await client.get("/anything")).status_code == 404

        TokenFile(home.home).revoke("phone")  # as another process would

        assert (await client.get("/anything")).status_code == 401
    assert token.id not in {each.id for each in access.tokens.all()}


def test_an_unused_link_expires(home: Settings, clock: HandClock) -> None:
    access = Access(TokenFile(home.home), port=6422, clock_s=clock.monotonic)
    used, late = access.new_key(), access.new_key()

    clock.move(seconds=KEY_S)
    assert access.enter(used) is not None
    assert access.enter("made up") is None
    clock.move(seconds=1)
    assert access.enter(late) is None


def test_a_rate_limited_caller_may_retry_when_its_bucket_refills(home: Settings, clock: HandClock) -> None:
    limits = Limits(requests_per_s=0.5, burst=2)
    access = Access(TokenFile(home.home), port=6422, limits=limits, clock_s=clock.monotonic)
    token, other = access.tokens.make("phone")[1], access.tokens.make("desk")[1]

    assert [access.wait_s(token, "here") for _ in range(3)] == [0, 0, 2]
    assert access.wait_s(other, "here") == 0
    clock.move(seconds=1)
    assert access.wait_s(token, "here") == 1
    clock.move(seconds=1)
    assert access.wait_s(token, "here") == 0
    clock.move(hours=1)
    assert [access.wait_s(token, "here") for _ in range(3)] == [0, 0, 2], "it holds no more than a burst"


@pytest.mark.parametrize(("is_whole", "ends"), [(True, [False]), (False, [True, False])])
async def test_a_response_ends_once_when_its_token_is_revoked(access: Access, is_whole: bool, ends: list[bool]) -> None:
    """A stream is ended by the guard; a complete response is not ended twice."""
    secret, _ = access.tokens.make("phone")
    sent: list[Message] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"one", "more_body": not is_whole})
        access.tokens.revoke("phone")
        if not is_whole:
            await send({"type": "http.response.body", "body": b"two", "more_body": True})

    async def receive() -> Message:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: Message) -> None:
        sent.append(message)

    headers = [(b"host", b"127.0.0.1:6422"), (b"authorization", f"Bearer {secret}".encode())]
    await Guard(app, access)({"type": "http", "method": "GET", "path": "/x", "headers": headers}, receive, send)

    assert [message.get("more_body", False) for message in sent[1:]] == ends
    assert b"two" not in [message.get("body") for message in sent]


async def test_unknown_http_methods_are_counted_together(calling: Calling, access: Access) -> None:
    """Requests without a token must not grow the counters without limit."""
    async with calling() as stranger:
        for number in range(20):
            await stranger.request(f"DANCE{number}", "/anything")

    assert {method for method, _ in access.response_counts} == {"other"}

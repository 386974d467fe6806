"""Streams over server-sent events and a WebSocket: no event is missed or repeated."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx2
import pytest
import websockets
from tests.web.server import WebServer, web_server_at
from websockets.exceptions import ConnectionClosed, InvalidStatus

import mica
from mica.settings import Settings
from mica.web import tail
from mica.web.tokens import TokenFile

HOUR_S = 3_600  # effectively no timeout


@pytest.fixture
async def remote(web_server: WebServer, home: Settings) -> AsyncIterator[mica.Memory]:
    """A new space of a real server, opened by the Python client."""
    async with mica.open(web_server.address(), settings=home) as memory:
        yield memory


@pytest.fixture
async def http(web_server: WebServer, remote: mica.Memory) -> AsyncIterator[httpx2.AsyncClient]:
    space = remote.location.partition("space=")[2]
    headers = {"authorization": f"Bearer {web_server.token}"}
    async with httpx2.AsyncClient(
        base_url=web_server.base, headers=headers, params={"space": space}, timeout=HOUR_S
    ) as client:
        yield client


class Line:
    """One event of a stream."""

    def __init__(self, block: str) -> None:
        fields = dict(line.split(": ", 1) for line in block.splitlines() if ": " in line and not line.startswith(":"))
        self.id = int(fields["id"]) if "id" in fields else None
        self.data = json.loads(fields["data"]) if "data" in fields else None


@asynccontextmanager
async def listening(
    http: httpx2.AsyncClient,
    path: str = "/api/events/follow",
    last_id: int | None = None,
    **params: str | int | list[str],
) -> AsyncIterator[AsyncIterator[Line]]:
    headers = {} if last_id is None else {"last-event-id": str(last_id)}
    async with http.stream("GET", path, params={**http.params, **params}, headers=headers) as answer:
        assert answer.status_code == 200, await answer.aread()
        assert answer.headers["content-type"].startswith("text/event-stream")

        async def lines() -> AsyncIterator[Line]:
            waiting = ""
            async for text in answer.aiter_text():
                *whole, waiting = (waiting + text).split("\n\n")
                for block in whole:
                    yield Line(block)

        yield lines()


async def receive(lines: AsyncIterator[Line], count: int) -> list[Line]:
    received: list[Line] = []
    async for line in lines:
        if line.data is not None:
            received.append(line)
        if len(received) == count:
            break
    return received


async def test_a_stream_sends_new_events(remote: mica.Memory, http: httpx2.AsyncClient) -> None:
    remote.mark("before")
    await remote.events.position()
    async with listening(http) as lines:
        assert (await anext(lines)).id == 1  # the first line has the position
        remote.mark("after")

        [line] = await receive(lines, 1)

    assert line.data is not None
    assert (line.id, line.data["data"]["text"]) == (2, "after")


async def test_a_disconnected_reader_resumes_at_its_position(remote: mica.Memory, http: httpx2.AsyncClient) -> None:
    """Each event arrives once and in order, however often the reader reconnects."""
    ids: list[int | None] = []
    last = 0
    for round_ in range(6):
        for number in range(10):
            remote.emit(f"step.{round_}.{number}", {})
        async with listening(http, last_id=last, after=0, bundle="minimal") as lines:
            ids += [line.id for line in await receive(lines, 7)]
        last = ids[-1] or 0
    async with listening(http, last_id=last) as lines:
        ids += [line.id for line in await receive(lines, 60 - len(ids))]

    assert ids == list(range(1, 61))


async def test_a_listener_far_behind_reads_the_log_first(
    remote: mica.Memory, http: httpx2.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tail, "BUFFERED_EVENTS", 4)
    monkeypatch.setattr(tail, "BATCH_EVENTS", 3)
    async with listening(http, after=0) as lines:
        await anext(lines)
        for number in range(50):
            remote.emit("step", {"number": number})
        await remote.events.position()
        numbers = [line.data["data"]["number"] for line in await receive(lines, 50) if line.data]
        async with listening(http, after=0) as others:
            assert [line.id for line in await receive(others, 50)] == list(range(1, 51))

    assert numbers == list(range(50))


async def test_a_stream_sends_only_matching_events_and_fields(remote: mica.Memory, http: httpx2.AsyncClient) -> None:
    async with listening(http, after=0, names="file.*", fields=["id", "data.path"]) as lines:
        with remote.context(session="s1"):
            remote.mark("not this")
            remote.emit("file.read", {"path": "a.py", "start_line": 1})
        [line] = await receive(lines, 1)

    assert line.data is not None
    assert line.data["data"] == {"path": "a.py"}


async def test_crystals_are_streamed_by_level(remote: mica.Memory, http: httpx2.AsyncClient) -> None:
    """keeps: B-31"""
    with remote.context(session="s1", agent="scout"):
        for number in range(12):
            remote.mark(f"Observation {number}: the cookie of the session is set before the redirect of the login page")
    async with (
        listening(http, "/api/crystals/stream", after=0, level="session") as sessions,
        listening(http, "/api/crystals/stream", after=0, level="day") as days,
    ):
        [made] = await remote.crystals.make(level="session")

        [line] = await receive(sessions, 1)
        begun, passed = await anext(days), await anext(days)

    assert line.data is not None
    assert (line.data["id"], line.data["text"]) == (made.id, made.text)
    assert (begun.id, passed.id, passed.data) == (0, line.id, None)  # another level: skipped, but its position is sent


@pytest.mark.parametrize("query", ["after=-1", "after=x", "colour=red", "bundle=none", "fields=nothing"])
async def test_an_invalid_stream_request_is_refused(http: httpx2.AsyncClient, query: str) -> None:
    name, _, value = query.partition("=")
    answer = await http.get("/api/events/follow", params={**http.params, name: value})

    assert answer.status_code in (400, 422)
    assert answer.headers["content-type"] == "application/problem+json"


async def test_the_gateway_serves_bundles_to_many_subscriptions(remote: mica.Memory, web_server: WebServer) -> None:
    """keeps: E-11, E-21, E-28. Subscribe, query, resolve, stats over one WebSocket, each with its own fields."""
    space = remote.location.partition("space=")[2]
    address = f"{web_server.base.replace('http', 'ws')}/api/gateway?space={space}"
    async with websockets.connect(
        address, additional_headers={"authorization": f"Bearer {web_server.token}"}
    ) as socket:

        async def ask(**message: object) -> None:
            await socket.send(json.dumps(message))

        async def answer() -> dict[str, object]:
            got: dict[str, object] = json.loads(await socket.recv())
            return got

        await ask(do="subscribe", id="a", bundle="minimal")
        assert await answer() == {"id": "a", "subscribed": True, "position": 0}
        await ask(do="subscribe", id="b", names=["file.*"])
        assert (await answer())["subscribed"]
        with remote.context(agent="scout"):
            remote.emit("file.read", {"path": "a.py"})
        got = {str(each["id"]): each for each in [await answer(), await answer()]}
        assert sorted(got["a"]["event"]) == ["correlation", "id", "name"]  # type: ignore[call-overload] # JSON
        assert got["b"]["event"]["data"] == {"path": "a.py"}  # type: ignore[index] # JSON

        await ask(do="unsubscribe", id="a")
        assert await answer() == {"id": "a", "unsubscribed": True}
        await ask(do="query", id="q", bundle="monitoring")
        assert (await answer())["events"][0]["context"] == {"agent": "scout"}  # type: ignore[index] # JSON
        await ask(do="resolve", id="r", references=["1", "99"], fields=["name"])
        assert await answer() == {"id": "r", "found": [{"name": "file.read"}], "missing": ["99"]}
        await ask(do="stats", id="s")
        assert (await answer())["position"] == 1
        await ask(do="dance", id="x")
        assert (await answer())["problem"]["status"] == 400  # type: ignore[index] # JSON
        await socket.send("not json")
        assert (await answer())["problem"]["status"] == 400  # type: ignore[index] # JSON


@pytest.mark.parametrize(
    "headers",
    [{}, {"authorization": "Bearer wrong"}, {"origin": "http://evil.example"}],
    ids=["no token", "wrong token", "foreign origin"],
)
async def test_the_gateway_refuses_strangers(web_server: WebServer, headers: dict[str, str]) -> None:
    if "origin" in headers:
        headers = {**headers, "authorization": f"Bearer {web_server.token}"}
    with pytest.raises(InvalidStatus, match="403"):
        await websockets.connect(f"{web_server.base.replace('http', 'ws')}/api/gateway", additional_headers=headers)


async def test_disconnected_listeners_are_removed(remote: mica.Memory, http: httpx2.AsyncClient) -> None:
    for _ in range(5):
        async with listening(http, after=0) as lines:
            await anext(lines)

    async def listeners() -> str:
        text = (await http.get("/metrics")).text
        return next(line for line in text.splitlines() if line.startswith("mica_listeners "))

    while await listeners() != "mica_listeners 0.0":
        await asyncio.sleep(0)  # until the server notices the closed connection


async def test_purged_events_are_not_sent_again(remote: mica.Memory, http: httpx2.AsyncClient) -> None:
    """keeps: U-08. Lines encoded for earlier listeners are not reused after a purge."""
    async with listening(http, after=0) as lines:
        remote.mark("We called it swordfish")
        [line] = await receive(lines, 1)
        await remote.purge(value="swordfish")
        await receive(lines, 1)  # the purge itself is an event
        async with listening(http, after=0) as later:
            [first] = await receive(later, 1)

    assert line.data is not None
    assert first.data is not None
    assert "swordfish" in line.data["data"]["text"]
    assert first.data["name"] == "event.purged"
    assert "swordfish" not in json.dumps(first.data)


async def test_a_stream_ends_when_its_token_is_revoked(tmp_path: Path) -> None:
    """An idle stream ends too, without waiting for an event or a heartbeat."""
    with web_server_at(tmp_path) as server:
        headers = {"authorization": f"Bearer {server.token}"}
        async with httpx2.AsyncClient(base_url=server.base, headers=headers, timeout=HOUR_S) as client:
            async with listening(client) as lines:
                await anext(lines)
                TokenFile(mica.load_settings({"HOME": str(tmp_path)}).home).revoke("tests")

                async for line in lines:  # it ends
                    assert line.data is None
            assert (await client.get("/api/upkeep/sizes")).status_code == 401


@pytest.mark.parametrize(
    "message", [{"do": "query", "id": "q"}, {"do": "stats", "id": "s"}, {"do": "subscribe", "id": "x"}]
)
async def test_the_gateway_closes_when_a_revoked_token_sends(tmp_path: Path, message: dict[str, str]) -> None:
    with web_server_at(tmp_path) as server:
        address = f"{server.base.replace('http', 'ws')}/api/gateway"
        headers = {"authorization": f"Bearer {server.token}"}
        async with websockets.connect(address, additional_headers=headers) as socket:
            await socket.send(json.dumps({"do": "stats", "id": "before"}))
            assert json.loads(await socket.recv())["position"] == 0
            TokenFile(mica.load_settings({"HOME": str(tmp_path)}).home).revoke("tests")
            await socket.send(json.dumps(message))

            with pytest.raises(ConnectionClosed, match="revoked"):
                await socket.recv()


async def test_an_idle_gateway_closes_when_its_token_is_revoked(tmp_path: Path) -> None:
    with web_server_at(tmp_path) as server:
        address = f"{server.base.replace('http', 'ws')}/api/gateway"
        headers = {"authorization": f"Bearer {server.token}"}
        async with websockets.connect(address, additional_headers=headers) as socket:
            TokenFile(mica.load_settings({"HOME": str(tmp_path)}).home).revoke("tests")

            with pytest.raises(ConnectionClosed, match="revoked"):
                await socket.recv()


@pytest.mark.parametrize("path", ["/api/events/follow", "/api/crystals/stream"])
async def test_a_stopping_server_ends_its_streams_at_once(
    tmp_path: Path, path: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Shutdown does not wait for listeners and logs no error."""
    with web_server_at(tmp_path) as server:
        headers = {"authorization": f"Bearer {server.token}"}
        client = httpx2.AsyncClient(base_url=server.base, headers=headers, timeout=HOUR_S)
        stream = await client.send(client.build_request("GET", path), stream=True)
        parts = stream.aiter_text()
        assert "id: 0" in await anext(parts)
        server.stop()
        rest = [part async for part in parts]  # a regular end of the response
        await client.aclose()

    assert rest == []
    assert [record.getMessage() for record in caplog.records if record.levelname in ("ERROR", "CRITICAL")] == []


async def test_no_event_is_streamed_after_a_token_was_revoked(tmp_path: Path, home: Settings) -> None:
    """Events stored after the revocation are not sent, even before the next check of the token."""
    with web_server_at(tmp_path) as server:
        tokens = TokenFile(mica.load_settings({"HOME": str(tmp_path)}).home)
        secret, token = tokens.make("guest")
        headers = {"authorization": f"Bearer {secret}"}
        params = {"space": "shop"}
        gate = f"{server.base.replace('http', 'ws')}/api/gateway?space=shop"
        async with (
            mica.open(server.address("shop"), settings=home) as memory,
            httpx2.AsyncClient(base_url=server.base, headers=headers, params=params, timeout=HOUR_S) as client,
            listening(client) as lines,
            websockets.connect(gate, additional_headers=headers) as socket,
        ):
            await anext(lines)
            await socket.send(json.dumps({"do": "subscribe", "id": "a"}))
            assert json.loads(await socket.recv())["subscribed"]
            tokens.revoke(token.id)
            memory.mark("This is private")
            await memory.events.position()

            assert [line async for line in lines] == []
            with pytest.raises(ConnectionClosed, match="revoked"):
                await socket.recv()


async def test_a_position_beyond_the_log_means_its_end(
    remote: mica.Memory, http: httpx2.AsyncClient, web_server: WebServer
) -> None:
    remote.mark("before")
    await remote.events.position()
    space = remote.location.partition("space=")[2]
    gate = f"{web_server.base.replace('http', 'ws')}/api/gateway?space={space}"
    headers = {"authorization": f"Bearer {web_server.token}"}
    async with listening(http, last_id=99_999) as lines, websockets.connect(gate, additional_headers=headers) as socket:
        assert (await anext(lines)).id == 1
        await socket.send(json.dumps({"do": "subscribe", "id": "a", "after": 99_999}))
        assert json.loads(await socket.recv())["position"] == 1
        remote.mark("after")

        [line] = await receive(lines, 1)
        assert line.id == 2
        assert json.loads(await socket.recv())["position"] == 2


@pytest.mark.parametrize("path", ["/api/events/follow", "/api/crystals/stream"])
async def test_a_head_request_of_a_stream_opens_no_listener(tmp_path: Path, path: str) -> None:
    """A response without a body leaves no listener behind."""
    with web_server_at(tmp_path) as server:
        headers = {"authorization": f"Bearer {server.token}"}
        async with httpx2.AsyncClient(base_url=server.base, headers=headers, timeout=HOUR_S) as client:
            answer = await client.head(path)
            listeners = (await client.get("/metrics")).text.partition("\nmica_listeners ")[2].partition("\n")[0]

    assert (answer.status_code, answer.headers["content-type"].partition(";")[0]) == (200, "text/event-stream")
    assert listeners == "0.0"


async def test_an_invalid_last_event_id_is_named_in_the_error(http: httpx2.AsyncClient) -> None:
    answer = await http.get("/api/events/follow", headers={"last-event-id": "abc"})

    assert (answer.status_code, "`Last-Event-ID`" in answer.json()["detail"]) == (400, True)

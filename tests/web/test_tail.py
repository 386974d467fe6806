"""Events as they happen, over server-sent events and a WebSocket: none is missed and none comes twice."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import cast

import httpx2
import pytest
import websockets
from tests.web.server import WebServer, web_server_at
from websockets.exceptions import ConnectionClosed, InvalidStatus

import mica
from mica.settings import Settings
from mica.web import tail as live
from mica.web.tokens import Tokens

HOUR_S = 3_600  # a test that hangs is stopped by whoever runs it


@pytest.fixture
async def remote(web_server: WebServer, home: Settings) -> AsyncIterator[mica.Memory]:
    """A new space of a real server, seen by its Python client."""
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
    http: httpx2.AsyncClient, path: str = "/api/stream", last_id: int | None = None, **params: str | int | list[str]
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


async def told(lines: AsyncIterator[Line], count: int) -> list[Line]:
    found: list[Line] = []
    async for line in lines:
        if line.data is not None:
            found.append(line)
        if len(found) == count:
            break
    return found


async def test_a_stream_sends_what_is_stored_after_it_began(remote: mica.Memory, http: httpx2.AsyncClient) -> None:
    remote.mark("before")
    await remote.position()
    async with listening(http) as lines:
        assert (await anext(lines)).id == 1  # it says where it begins
        remote.mark("after")

        [line] = await told(lines, 1)

    assert line.data is not None
    assert (line.id, line.data["data"]["text"]) == (2, "after")


async def test_a_reader_that_was_cut_off_goes_on_exactly_where_it_was(
    remote: mica.Memory, http: httpx2.AsyncClient
) -> None:
    """Whatever the reader loses its connection over, each event comes once, in order."""
    seen: list[int | None] = []
    last = 0
    for round_ in range(6):
        for number in range(10):
            remote.emit(f"step.{round_}.{number}", {})
        async with listening(http, last_id=last, after=0, bundle="minimal") as lines:
            seen += [line.id for line in await told(lines, 7)]
        last = seen[-1] or 0
    async with listening(http, last_id=last) as lines:
        seen += [line.id for line in await told(lines, 60 - len(seen))]

    assert seen == list(range(1, 61))


async def test_who_is_far_behind_reads_the_log_and_then_what_is_new(
    remote: mica.Memory, http: httpx2.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live, "KEPT_EVENTS", 4)
    monkeypatch.setattr(live, "BATCH_EVENTS", 3)
    async with listening(http, after=0) as lines:
        await anext(lines)
        for number in range(50):
            remote.emit("step", {"number": number})
        await remote.position()
        numbers = [line.data["data"]["number"] for line in await told(lines, 50) if line.data]
        async with listening(http, after=0) as others:
            assert [line.id for line in await told(others, 50)] == list(range(1, 51))

    assert numbers == list(range(50))


async def test_a_stream_sends_only_what_was_asked_for(remote: mica.Memory, http: httpx2.AsyncClient) -> None:
    async with listening(http, after=0, names="file.*", fields=["id", "data.path"]) as lines:
        with remote.context(session="s1"):
            remote.mark("not this")
            remote.emit("file.read", {"path": "a.py", "start_line": 1})
        [line] = await told(lines, 1)

    assert line.data is not None
    assert line.data["data"] == {"path": "a.py"}


async def test_crystals_are_streamed_by_level(remote: mica.Memory, http: httpx2.AsyncClient) -> None:
    """B-31"""
    with remote.context(session="s1", agent="scout"):
        for number in range(12):
            remote.mark(f"Observation {number}: the cookie of the session is set before the redirect of the login page")
    async with (
        listening(http, "/api/crystals/stream", after=0, level="session") as sessions,
        listening(http, "/api/crystals/stream", after=0, level="day") as days,
    ):
        [made] = await remote.crystallize(level="session")

        [line] = await told(sessions, 1)
        begun, passed = await anext(days), await anext(days)

    assert line.data is not None
    assert (line.data["id"], line.data["text"]) == (made.id, made.text)
    assert (begun.id, passed.id, passed.data) == (0, line.id, None)  # of another level: passed over, and remembered


@pytest.mark.parametrize("query", ["after=-1", "after=x", "colour=red", "bundle=none", "fields=nothing"])
async def test_a_stream_that_cannot_be_is_refused(http: httpx2.AsyncClient, query: str) -> None:
    name, _, value = query.partition("=")
    answer = await http.get("/api/stream", params={**http.params, name: value})

    assert answer.status_code in (400, 422)
    assert answer.headers["content-type"] == "application/problem+json"


async def test_the_gateway_serves_bundles_to_many_subscriptions(remote: mica.Memory, web_server: WebServer) -> None:
    """E-11, E-21, E-28: subscribe, query, resolve, stats over one WebSocket, each with its own fields."""
    space = remote.location.partition("space=")[2]
    address = f"{web_server.base.replace('http', 'ws')}/api/gateway?space={space}"
    async with websockets.connect(
        address, additional_headers={"authorization": f"Bearer {web_server.token}"}
    ) as socket:

        async def ask(**said: object) -> None:
            await socket.send(json.dumps(said))

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
async def test_the_gateway_lets_no_stranger_in(web_server: WebServer, headers: dict[str, str]) -> None:
    if "origin" in headers:
        headers = {**headers, "authorization": f"Bearer {web_server.token}"}
    with pytest.raises(InvalidStatus, match="403"):
        await websockets.connect(f"{web_server.base.replace('http', 'ws')}/api/gateway", additional_headers=headers)


async def test_listeners_that_leave_leave_nothing_behind(remote: mica.Memory, http: httpx2.AsyncClient) -> None:
    for _ in range(5):
        async with listening(http, after=0) as lines:
            await anext(lines)

    async def listeners() -> str:
        text = (await http.get("/metrics")).text
        return next(line for line in text.splitlines() if line.startswith("mica_listeners "))

    while await listeners() != "mica_listeners 0.0" and await listeners() != "mica_listeners 0":
        await asyncio.sleep(0)  # the server hears of it when the connection is closed


async def test_a_listener_is_told_now_and_then_that_nothing_happened() -> None:
    """B-67: a heartbeat with the position reached, so that a dead line is noticed and nothing is read twice."""
    async with mica.open(":memory:") as memory:
        memory.mark("one")
        tail = live.Tail(memory, quiet_s=0.001)
        batches = tail.batches(mica.EventQuery(), after=0)
        first, quiet = await anext(batches), await anext(batches)
        await batches.aclose()
        await tail.close()

    assert ([event.position for event in first[1]], quiet) == ([1], (1, []))
    assert tail.listeners == 0


async def test_what_was_purged_is_sent_to_nobody_any_more(remote: mica.Memory, http: httpx2.AsyncClient) -> None:
    """U-08: nothing that listeners were sent together is kept for those who come later."""
    async with listening(http, after=0) as lines:
        remote.mark("We called it swordfish")
        [line] = await told(lines, 1)
        await remote.purge(value="swordfish")
        await told(lines, 1)  # the purge itself is an event
        async with listening(http, after=0) as later:
            [first] = await told(later, 1)

    assert line.data is not None
    assert first.data is not None
    assert "swordfish" in line.data["data"]["text"]
    assert first.data["name"] == "event.purged"
    assert "swordfish" not in json.dumps(first.data)


class Dawdling:
    """A memory whose log is read to its end and, the first time, handed over only when it is let."""

    def __init__(self, memory: mica.Memory) -> None:
        self._memory = memory
        self.is_read, self.let = asyncio.Event(), asyncio.Event()

    def __getattr__(self, name: str) -> object:
        return getattr(self._memory, name)

    async def log(self, *, after: int) -> AsyncIterator[mica.Event]:
        found = [event async for event in self._memory.log(after=after)]
        if not self.is_read.is_set():
            self.is_read.set()
            await self.let.wait()
        for event in found:
            yield event


async def test_what_is_purged_while_somebody_reads_it_is_sent_to_nobody() -> None:
    """Neither to the one who was reading, nor to the next who asks the same."""
    async with mica.open(":memory:") as memory:
        secret = memory.mark("We called it swordfish")
        await memory.position()
        slow = Dawdling(memory)
        tail = live.Tail(cast(mica.Memory, slow))

        async def first_of(after: int) -> bytes:
            async with aclosing(
                tail.lines(mica.EventQuery(), after=after, fields=(), wrap=lambda event, line: event.body)
            ) as lines:
                return (await anext(lines))[1]

        reading = asyncio.create_task(first_of(0))
        await slow.is_read.wait()
        news = asyncio.create_task(first_of(await memory.position()))
        await memory.purge(ids=[secret.id])
        await news  # the tail has seen it
        slow.let.set()

        assert b"swordfish" not in await reading
        assert b"swordfish" not in await first_of(0)
        await tail.close()


async def test_a_stream_ends_when_its_token_is_revoked(tmp_path: Path) -> None:
    """Also where nothing happens: nobody waits for the next event, or for the next sign of life."""
    with web_server_at(tmp_path) as server:
        headers = {"authorization": f"Bearer {server.token}"}
        async with httpx2.AsyncClient(base_url=server.base, headers=headers, timeout=HOUR_S) as client:
            async with listening(client) as lines:
                await anext(lines)
                Tokens(mica.load_settings({"HOME": str(tmp_path)}).home).revoke("tests")

                async for line in lines:  # it ends
                    assert line.data is None
            assert (await client.get("/api/sizes")).status_code == 401


@pytest.mark.parametrize(
    "said", [{"do": "query", "id": "q"}, {"do": "stats", "id": "s"}, {"do": "subscribe", "id": "x"}]
)
async def test_the_gateway_answers_nobody_whose_token_is_revoked(tmp_path: Path, said: dict[str, str]) -> None:
    with web_server_at(tmp_path) as server:
        address = f"{server.base.replace('http', 'ws')}/api/gateway"
        headers = {"authorization": f"Bearer {server.token}"}
        async with websockets.connect(address, additional_headers=headers) as socket:
            await socket.send(json.dumps({"do": "stats", "id": "before"}))
            assert json.loads(await socket.recv())["position"] == 0
            Tokens(mica.load_settings({"HOME": str(tmp_path)}).home).revoke("tests")
            await socket.send(json.dumps(said))

            with pytest.raises(ConnectionClosed, match="revoked"):
                await socket.recv()


async def test_a_gateway_where_nothing_is_said_ends_with_its_token_too(tmp_path: Path) -> None:
    with web_server_at(tmp_path) as server:
        address = f"{server.base.replace('http', 'ws')}/api/gateway"
        headers = {"authorization": f"Bearer {server.token}"}
        async with websockets.connect(address, additional_headers=headers) as socket:
            Tokens(mica.load_settings({"HOME": str(tmp_path)}).home).revoke("tests")

            with pytest.raises(ConnectionClosed, match="revoked"):
                await socket.recv()


@pytest.mark.parametrize("path", ["/api/stream", "/api/crystals/stream"])
async def test_a_server_that_stops_lets_its_listeners_go_at_once(
    tmp_path: Path, path: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Nobody who follows events is waited for, and nothing is told as a fault."""
    with web_server_at(tmp_path) as server:
        headers = {"authorization": f"Bearer {server.token}"}
        client = httpx2.AsyncClient(base_url=server.base, headers=headers, timeout=HOUR_S)
        stream = await client.send(client.build_request("GET", path), stream=True)
        parts = stream.aiter_text()
        assert "id: 0" in await anext(parts)
        server.stop()
        rest = [part async for part in parts]  # it ends as an answer ends: nothing is cut off
        await client.aclose()

    assert rest == []
    assert [record.getMessage() for record in caplog.records if record.levelname in ("ERROR", "CRITICAL")] == []


async def test_nothing_is_streamed_after_a_token_was_revoked(tmp_path: Path, home: Settings) -> None:
    """At once: what is stored after it is sent to nobody, however short the time to the next heartbeat."""
    with web_server_at(tmp_path) as server:
        tokens = Tokens(mica.load_settings({"HOME": str(tmp_path)}).home)
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
            memory.mark("Nobody else may read this")
            await memory.position()

            assert [line async for line in lines] == []
            with pytest.raises(ConnectionClosed, match="revoked"):
                await socket.recv()


async def test_who_comes_from_beyond_the_end_of_the_log_goes_on_from_its_end(
    remote: mica.Memory, http: httpx2.AsyncClient, web_server: WebServer
) -> None:
    remote.mark("before")
    await remote.position()
    space = remote.location.partition("space=")[2]
    gate = f"{web_server.base.replace('http', 'ws')}/api/gateway?space={space}"
    headers = {"authorization": f"Bearer {web_server.token}"}
    async with listening(http, last_id=99_999) as lines, websockets.connect(gate, additional_headers=headers) as socket:
        assert (await anext(lines)).id == 1
        await socket.send(json.dumps({"do": "subscribe", "id": "a", "after": 99_999}))
        assert json.loads(await socket.recv())["position"] == 1
        remote.mark("after")

        [line] = await told(lines, 1)
        assert line.id == 2
        assert json.loads(await socket.recv())["position"] == 2


@pytest.mark.parametrize("path", ["/api/stream", "/api/crystals/stream"])
async def test_who_asks_only_for_the_head_of_a_stream_gets_it_and_no_more(tmp_path: Path, path: str) -> None:
    """Nothing goes on behind an answer that has no body."""
    with web_server_at(tmp_path) as server:
        headers = {"authorization": f"Bearer {server.token}"}
        async with httpx2.AsyncClient(base_url=server.base, headers=headers, timeout=HOUR_S) as client:
            told = await client.head(path)
            listeners = (await client.get("/metrics")).text.partition("\nmica_listeners ")[2].partition("\n")[0]

    assert (told.status_code, told.headers["content-type"].partition(";")[0]) == (200, "text/event-stream")
    assert listeners == "0"


async def test_a_last_id_that_is_none_is_told_by_its_name(http: httpx2.AsyncClient) -> None:
    answer = await http.get("/api/stream", headers={"last-event-id": "abc"})

    assert (answer.status_code, "`Last-Event-ID`" in answer.json()["detail"]) == (400, True)

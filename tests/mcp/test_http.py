"""MCP over HTTP: the official SDK's client in both eras, and requests that no correct client would send."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mcp import Client
from mcp.client.session import MessageHandlerFnT
from mcp.client.sse import sse_client
from mcp.client.streamable_http import streamable_http_client
from mcp.client.subscriptions import PromptsListChanged, ResourceUpdated
from mcp_types import CallToolResult, Implementation, TextContent
from tests.mcp.conftest import META
from tests.mcp.test_server import MALFORMED

import mica
from mica.mcp import http, streams
from mica.mcp.server import BEAT_S
from mica.mcp.tools import TOOLS
from mica.memory import Memory, open_on
from mica.model.event import EventQuery
from mica.model.walk import Step, step_of
from mica.settings import Settings
from mica.sources.protocol import Fragment, Question, SourceDeclaration
from mica.store.protocol import Store
from mica.testing.postgres import LocalPostgres
from mica.web.access import Access, Limits
from mica.web.app import application
from mica.web.memory_pool import MemoryPool, memory_at
from mica.web.process import HttpServer
from mica.web.scopes import token_at
from mica.web.tokens import TokenFile

Opens = Callable[..., Any]

ABOUT = Implementation(name="claude-code", version="2.1.325")
HANGS_S = 600  # for a busy machine
BOTH = "application/json, text/event-stream"
TYPES = {"content-type": "application/json", "accept": BOTH}


class Served:
    """A server on a free port, and a token for all spaces."""

    def __init__(self, pool: MemoryPool, tokens: TokenFile, server: HttpServer, address: str) -> None:
        self.pool = pool
        self.tokens = tokens
        self.server = server
        self.address = address
        self.url = f"{address}/mcp"
        self.token = tokens.make("test")[0]

    async def memory(self) -> Memory:
        return await self.pool.memory()

    def caller(self, token: str | None = None, **headers: str) -> httpx2.AsyncClient:
        sent = {"authorization": f"Bearer {self.token if token is None else token}", **headers}
        return httpx2.AsyncClient(base_url=self.address, headers=sent, timeout=HANGS_S)

    @asynccontextmanager
    async def connected(self, *, mode: str, on_message: MessageHandlerFnT | None = None) -> AsyncIterator[Client]:
        """The SDK's client."""
        async with (
            self.caller(**{"mica-session": "s1"}) as caller,
            Client(
                streamable_http_client(self.url, http_client=caller),
                mode=mode,
                client_info=ABOUT,
                message_handler=on_message,
            ) as client,
        ):
            yield client


@pytest.fixture
async def served(tmp_path: Path, home: Settings) -> AsyncIterator[Served]:
    async with serving(tmp_path / "shop.db", home) as made:
        yield made


@asynccontextmanager
async def serving(
    place: Path | str, home: Settings, *, opening: Opens = open_on, beat_s: float = BEAT_S
) -> AsyncIterator[Served]:
    listening = socket.create_server(("127.0.0.1", 0))
    port = listening.getsockname()[1]
    pool = MemoryPool(place, settings=home, open_memory=opening)
    tokens = TokenFile(home.home)
    endpoint = http.Endpoint(memory_at, token_at, beat_s=beat_s)
    extra = [*http.routes(endpoint), *http.sse_routes(endpoint)]
    app = application(pool, access=Access(tokens, port=port, limits=Limits(recheck_s=0.05)), extra=extra)
    server = HttpServer(app, leaving=endpoint.close)
    running = asyncio.create_task(server.serve([listening]))
    try:
        yield Served(pool, tokens, server, f"http://127.0.0.1:{port}")
    finally:
        server.stop()
        await running


def structured(result: CallToolResult) -> dict[str, object]:
    [content] = result.content
    assert isinstance(content, TextContent)
    assert not result.is_error, content.text
    return dict(result.structured_content or {})


def modern(method: str, *, name: str | None = None, **params: object) -> dict[str, Any]:
    """A request of the newer era, as keywords for a POST. The name of a tool is in the header and in the body."""
    headers = {**TYPES, "mcp-protocol-version": "2026-07-28", "mcp-method": method}
    if name is not None:
        headers["mcp-name"] = name
        params = {"name": name, **params}
    body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": {"_meta": META, **params}}
    return {"content": msgspec.json.encode(body), "headers": headers}


def older(method: str, *, session: str | None = None, id: int | None = 1, **params: object) -> dict[str, Any]:
    headers = TYPES if session is None else {**TYPES, "mcp-session-id": session, "mcp-protocol-version": "2025-11-25"}
    body: dict[str, object] = {"jsonrpc": "2.0", "method": method, "params": params}
    return {"content": msgspec.json.encode(body | ({} if id is None else {"id": id})), "headers": headers}


HELLO: dict[str, Any] = {
    "protocolVersion": "2025-11-25",
    "capabilities": {},
    "clientInfo": {"name": "by-hand", "version": "1"},
}


async def open_session(caller: httpx2.AsyncClient) -> str:
    """Open a session of the older era; return its id."""
    answer = await caller.post("/mcp", **older("initialize", **HELLO))
    assert answer.status_code == 200, answer.text
    session = answer.headers["mcp-session-id"]
    assert (
        await caller.post("/mcp", **older("notifications/initialized", session=session, id=None))
    ).status_code == 202
    return str(session)


# -- Real clients -----------------------------------------------------------------------------------------------


async def test_a_real_client_lists_and_calls_every_tool_over_http(era: str, served: Served) -> None:
    """keeps: TD-08, D-12, B-33. The same six tools as on standard output."""
    memory = await served.memory()
    earlier = "The login cookie needs the domain of the shop"
    with memory.context(session="earlier"):
        memory.mark(earlier)
    await memory.durable()
    async with served.connected(mode=era) as client:
        assert [tool.name for tool in (await client.list_tools()).tools] == [tool.name for tool in TOOLS]
        texts = [f"The session cookie is set before the redirect in step {number} of the login" for number in range(5)]
        marked = [structured(await client.call_tool("mark", {"text": text})) for text in texts]
        numbers = [str(each["number"]) for each in marked]
        found = structured(await client.call_tool("search", {"query": "session cookie redirect", "limit": 3}))
        brief = structured(await client.call_tool("brief", {"task": "login cookie", "budget_tokens": 500}))
        shown = structured(await client.call_tool("why", {"id": brief["receipt"]}))
        statement = {"text": "Login sets its cookie too early", "marks": numbers[:2]}
        crystal = structured(await client.call_tool("handoff", {"statements": [statement]}))
        structured(await client.call_tool("navigate", {"task": "login cookie"}))

    assert len(msgspec.convert(found["hits"], list[dict[str, object]])) == 3
    assert earlier in str(shown["because"])
    assert texts[4] not in str(shown["because"]), "the session itself said it"
    stored = await memory.events.query(EventQuery(names=("mark",), session="s1"))
    assert {dict(event.context.labels)["client"] for event in stored} == {"claude-code"}
    assert (crystal["marks"], crystal["not_cited"]) == (5, 3)


async def test_crystals_trails_and_briefs_are_resources(era: str, served: Served) -> None:
    """keeps: D-12, A-19. A real client lists and reads them; a crystal is found by number or id."""
    memory = await served.memory()
    read = memory.emit("file.read", {"path": "auth/session.py", "start_line": 1, "end_line": 2})
    step = step_of(await memory.events.get(read))
    assert step is not None
    memory.mark("The session cookie is set before the redirect of the login page")
    memory.mark("Whoever logs in twice gets two cookies, and the older one wins")
    brief = await memory.brief("cookie")
    async with served.connected(mode=era) as client:
        [crystal] = await memory.crystals.make(level="session")
        trail = await memory.trails.create("auth", [step], description="How the session is kept")
        listed = {resource.uri: resource for resource in (await client.list_resources()).resources}
        templates = [each.uri_template for each in (await client.list_resource_templates()).resource_templates]

        async def text(uri: str) -> str:
            [content] = (await client.read_resource(uri)).contents
            return str(getattr(content, "text", ""))

        assert {"mica://brief", "mica://crystals", "mica://trails", f"mica://crystals/{crystal.id}"} <= set(listed)
        assert "mica://trails/auth" in listed
        assert "mica://crystals/{id}" in templates
        assert "cookie" in await text("mica://brief/login%20cookie")
        assert await text(f"mica://crystals/{crystal.position}") == await text(f"mica://crystals/{crystal.id}")
        assert crystal.insight[0].text in await text("mica://crystals")
        assert "nav:auth" in await text("mica://trails")
        assert "(#2)" in await text(f"mica://receipts/{brief.receipt}")
        assert "auth/session.py" in await text("mica://trails/auth")

    used = await memory.events.query(EventQuery(names=("trail.used",)))
    assert [event.data["key"] for event in used] == [trail.key]


# -- Changes ----------------------------------------------------------------------------------------------------


async def test_a_subscriber_is_notified_only_of_what_it_requested(served: Served) -> None:
    """keeps: D-12. A crystal, a trail and a retraction cause notifications; uses of a trail do not."""
    memory = await served.memory()
    with memory.context(session="s1"):
        for number in range(4):
            memory.mark(f"The session cookie is set before the redirect in step {number} of the login page")
    async with (
        served.connected(mode="2026-07-28") as client,
        client.listen(
            prompts_list_changed=True, resource_subscriptions=["mica://crystals", "mica://trails/auth"]
        ) as listening,
    ):
        assert listening.honored.resource_subscriptions == ["mica://crystals", "mica://trails/auth"]
        [crystal] = await memory.crystals.make(level="session")
        assert await anext(listening) == ResourceUpdated(uri="mica://crystals")
        await memory.retract(crystal.id, reason="it was about another page")
        assert await anext(listening) == ResourceUpdated(uri="mica://crystals")
        await memory.trails.create("auth", [await record_step(memory)])
        changes = {await anext(listening), await anext(listening)}
        assert changes == {PromptsListChanged(), ResourceUpdated(uri="mica://trails/auth")}
        await client.read_resource("mica://trails/auth")
        await memory.trails.suspend("auth", reason="it leads nowhere")
        assert {await anext(listening), await anext(listening)} == changes

    assert len(await memory.events.query(EventQuery(names=("trail.used",)))) == 1


@pytest.mark.parametrize("engine", ["sqlite", "postgres"])
async def test_events_of_other_processes_are_notified_too(
    engine: str, tmp_path: Path, home: Settings, request: pytest.FixtureRequest
) -> None:
    """keeps: D-12. On both engines, the writer is a separate memory, and the client reads the change."""
    server: LocalPostgres | None = request.getfixturevalue("server") if engine == "postgres" else None
    place = str(tmp_path / "shared.db") if server is None else server.address()
    async with serving(place, home) as made, made.connected(mode="2026-07-28") as client:
        structured(await client.call_tool("mark", {"text": "The cookie is set before the redirect"}))
        async with client.listen(resource_subscriptions=["mica://brief"]) as listening:
            async with mica.open(place, settings=home) as other:
                other.mark("Whoever logs in twice gets two cookies")
                await other.search("cookies")
            assert await anext(listening) == ResourceUpdated(uri="mica://brief")
            [content] = (await client.read_resource("mica://brief")).contents

    assert "Whoever logs in twice" in str(getattr(content, "text", ""))


@pytest.mark.filterwarnings("ignore::mcp.shared.exceptions.MCPDeprecationWarning")
async def test_a_session_is_notified_of_its_subscriptions(served: Served) -> None:
    """The older era: `resources/subscribe`, and list changes once something was listed."""
    received: asyncio.Queue[str] = asyncio.Queue()

    async def handle(message: object) -> None:
        received.put_nowait(type(message).__name__ + ":" + str(getattr(getattr(message, "params", None), "uri", "")))

    memory = await served.memory()
    memory.mark("The session cookie is set before the redirect of the login page")
    memory.mark("Whoever logs in twice gets two cookies, and the older one wins over the newer")
    async with served.connected(mode="legacy", on_message=handle) as client:
        await client.list_prompts()
        await client.subscribe_resource("mica://crystals")
        await memory.crystals.make(level="session")
        first = {await received.get(), await received.get()}
        await client.unsubscribe_resource("mica://crystals")
        await memory.trails.create("auth", [await record_step(memory)])
        second = {await received.get(), await received.get()}

    assert first == {"ResourceListChangedNotification:", "ResourceUpdatedNotification:mica://crystals"}
    assert second == {"ResourceListChangedNotification:", "PromptListChangedNotification:"}


async def record_step(memory: Memory) -> Step:
    read = memory.emit("file.read", {"path": "auth/session.py", "start_line": 1, "end_line": 2})
    step = step_of(await memory.events.get(read))
    assert step is not None
    return step


async def test_a_subscription_ends_with_the_server(served: Served) -> None:
    async with served.connected(mode="2026-07-28") as client, client.listen(prompts_list_changed=True) as listening:
        served.server.stop()

        assert [event async for event in listening] == []


@pytest.mark.parametrize("kind", ["a subscription", "a session's stream", "the transport of 2024"])
@pytest.mark.parametrize("has_news", [False, True], ids=["quiet", "with news"])
async def test_no_stream_outlives_its_token(
    kind: str, has_news: bool, served: Served, caplog: pytest.LogCaptureFixture
) -> None:
    """After a token is revoked, nothing more is sent and the connection ends, idle or not."""
    memory = await served.memory()
    memory.mark("The session cookie is set before the redirect of the login page")
    memory.mark("Whoever logs in twice gets two cookies, and the older one wins over the newer")
    secret, token = served.tokens.make("guest")
    async with served.caller(secret) as caller:
        request: dict[str, Any]
        if kind == "a subscription":
            notifications = {"resourceSubscriptions": ["mica://crystals"]}
            request = {"method": "POST", "url": "/mcp", **modern("subscriptions/listen", notifications=notifications)}
        elif kind == "a session's stream":
            session = await open_session(caller)
            await caller.post("/mcp", **older("resources/subscribe", session=session, uri="mica://crystals"))
            request = {"method": "GET", "url": "/mcp", "headers": {"accept": BOTH, "mcp-session-id": session}}
        else:
            request = {"method": "GET", "url": "/mcp/sse"}
        async with caller.stream(**request) as answer:
            assert answer.status_code == 200
            served.tokens.revoke(token.id)
            if has_news:
                await memory.crystals.make(level="session")
            received = "".join([text async for text in answer.aiter_text()])  # it ends

        assert "resources/updated" not in received
        assert (await caller.post("/mcp", **modern("tools/list"))).status_code == 401
    assert [record.getMessage() for record in caplog.records if record.levelname in ("ERROR", "CRITICAL")] == []


async def test_a_quiet_stream_sends_comments(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "QUIET_S", 0.01)
    listen = modern("subscriptions/listen", notifications={"promptsListChanged": True})
    async with served.caller() as caller, caller.stream("POST", "/mcp", **listen) as answer:
        lines = answer.aiter_lines()
        received = [await anext(lines) for _ in range(5)]

    assert answer.headers["content-type"].startswith("text/event-stream")
    assert received[0] == "event: message"
    assert received[1].startswith('data: {"jsonrpc"')
    assert received[2:] == ["", ": quiet", ""]


# -- Progress, cancelling, resuming -----------------------------------------------------------------------------


class Hanging:
    """A source that answers only after it is released."""

    declared = SourceDeclaration(name="hanging", concepts=(), is_live=True, answers_tasks=True)

    def __init__(self) -> None:
        self.started = asyncio.Event()
        self.released = asyncio.Event()
        self.cancelled = asyncio.Event()

    async def fragments(self, question: Question) -> Sequence[Fragment]:
        self.started.set()
        try:
            await self.released.wait()
        except asyncio.CancelledError:
            self.cancelled.set()
            raise
        return []

    async def close(self) -> None:
        """There is nothing to close."""


@pytest.fixture
def hanging() -> Hanging:
    return Hanging()


@pytest.fixture
async def slow(tmp_path: Path, home: Settings, hanging: Hanging) -> AsyncIterator[Served]:
    """A server whose briefs hang, with frequent progress notifications."""

    async def opening(store: Store, _: Path | str, *, settings: Settings, **__: object) -> Memory:
        return Memory(store, settings=settings, sources=[hanging])

    async with serving(tmp_path / "slow.db", home, opening=opening, beat_s=0.01) as made:
        yield made


async def test_a_long_call_sends_progress(era: str, slow: Served, hanging: Hanging) -> None:
    received: list[float] = []

    async def on_progress(progress: float, total: float | None, message: str | None) -> None:
        received.append(progress)
        if len(received) == 3:
            hanging.released.set()

    async with slow.connected(mode=era) as client:
        structured(await client.call_tool("brief", {"task": "login"}, progress_callback=on_progress))

    assert received[:3] == [1, 2, 3]


async def test_closing_the_connection_cancels_a_request_of_the_newer_era(slow: Served, hanging: Hanging) -> None:
    async with slow.caller() as caller:
        call = modern("tools/call", name="brief", arguments={"task": "login"})
        calling = asyncio.create_task(caller.post("/mcp", **call))
        await hanging.started.wait()
        calling.cancel()

        await hanging.cancelled.wait()


async def test_a_session_cancels_by_a_notification_and_gets_no_answer(slow: Served, hanging: Hanging) -> None:
    async with slow.caller() as caller:
        session = await open_session(caller)
        call = older("tools/call", session=session, id=7, name="brief", arguments={"task": "login"})
        calling = asyncio.create_task(caller.post("/mcp", **call))
        await hanging.started.wait()
        await caller.post("/mcp", **older("notifications/cancelled", session=session, id=None, requestId=7))

        await hanging.cancelled.wait()
        answer = await calling
        assert (answer.status_code, answer.content) == (202, b"")


async def test_an_interrupted_stream_resumes_without_a_gap(slow: Served, hanging: Hanging) -> None:
    """The older era: losing a connection cancels nothing, and `Last-Event-ID` gives the rest, once."""
    async with slow.caller() as caller:
        session = await open_session(caller)
        call = older("tools/call", session=session, id=7, name="brief", arguments={}, _meta={"progressToken": "p"})
        async with caller.stream("POST", "/mcp", **call) as cut:
            received = events(cut)
            first = [await anext(received) for _ in range(3)]
        hanging.released.set()
        headers = {"accept": "text/event-stream", "mcp-session-id": session, "last-event-id": first[-1][0]}
        async with caller.stream("GET", "/mcp", headers=headers) as rest:
            later = [each async for each in events(rest)]

    messages = [message for _, message in [*first, *later] if message]
    assert first[0][1] == {}  # the priming event, from which a client can resume
    assert [each["params"]["progress"] for each in messages[:-1]] == list(range(1, len(messages)))
    assert messages[-1]["id"] == 7
    assert messages[-1]["result"]["isError"] is False


async def events(response: httpx2.Response) -> AsyncIterator[tuple[str, dict[str, Any]]]:
    """The events of a stream: id and message."""
    name, text = "", ""
    async for line in response.aiter_lines():
        if line.startswith("id:"):
            name = line[3:].strip()
        elif line.startswith("data:"):
            text = line[5:].strip()
        elif not line and name:
            yield name, msgspec.json.decode(text) if text else {}
            name, text = "", ""


async def test_an_unknown_stream_cannot_be_resumed(served: Served) -> None:
    async with served.caller(accept="text/event-stream") as caller:
        session = await open_session(caller)
        for last in ("9/1", "0/x", "nonsense", "0/" + "9" * 5_000):
            answer = await caller.get("/mcp", headers={"mcp-session-id": session, "last-event-id": last})
            assert answer.status_code == 404
            assert "start again" in answer.json()["error"]["message"]


# -- Refused requests------------------------------------------------------------------------------------------


async def test_headers_must_repeat_the_body(served: Served) -> None:
    """A proxy may route by the headers while the server uses the body, so they must agree."""
    call = modern("tools/call", name="search", arguments={"query": "x"})
    wrong: list[dict[str, str]] = [
        {"mcp-method": "tools/list"},
        {"mcp-name": "mark"},
        {"mcp-protocol-version": "2025-11-25"},
        {"mcp-name": "=?base64?!!!?="},
    ]
    async with served.caller() as caller:
        for headers in wrong:
            answer = await caller.post("/mcp", content=call["content"], headers=call["headers"] | headers)
            assert (answer.status_code, answer.json()["error"]["code"]) == (400, -32020), headers
        for name in ("mcp-method", "mcp-name", "mcp-protocol-version"):
            rest = {key: value for key, value in call["headers"].items() if key != name}
            answer = await caller.post("/mcp", content=call["content"], headers=rest)
            assert (answer.status_code, answer.json()["error"]["code"]) == (400, -32020), name
        encoded = {"mcp-name": "=?base64?c2VhcmNo?="}
        answer = await caller.post("/mcp", content=call["content"], headers=call["headers"] | encoded)
    assert answer.json()["result"]["structuredContent"] == {"hits": []}


async def test_an_unknown_revision_over_http_is_refused_with_the_supported_ones(served: Served) -> None:
    unknown = META | {"io.modelcontextprotocol/protocolVersion": "1900-01-01"}
    call = modern("tools/list", _meta=unknown)
    async with served.caller() as caller:
        newer = await caller.post(
            "/mcp", content=call["content"], headers=call["headers"] | {"mcp-protocol-version": "1900-01-01"}
        )
        session = await open_session(caller)
        plain = older("ping", session=session)
        older_one = await caller.post(
            "/mcp", content=plain["content"], headers=plain["headers"] | {"mcp-protocol-version": "1900-01-01"}
        )

    assert newer.status_code == older_one.status_code == 400
    assert newer.json()["error"]["data"] == {"supported": ["2026-07-28"], "requested": "1900-01-01"}
    assert "2025-11-25" in older_one.json()["error"]["message"]


@pytest.mark.parametrize("revision", [None, "2025-11-25", "2026-07-28"])
async def test_an_invalid_message_is_refused_with_its_code(revision: str | None, served: Served) -> None:
    headers = TYPES if revision is None else {**TYPES, "mcp-protocol-version": revision}
    async with served.caller() as caller:
        for body, code in MALFORMED:
            answer = await caller.post("/mcp", content=body, headers=headers)
            assert (answer.status_code, answer.json()["error"]["code"]) == (400, code), body[:40]
        assert (await caller.post("/mcp", **modern("tools/list"))).status_code == 200


bodies = st.one_of(
    st.binary(max_size=100),
    st.builds(
        lambda identifier, method, params: msgspec.json.encode(
            {"jsonrpc": "2.0", "id": identifier, "method": method, "params": params}
        ),
        st.sampled_from([None, 1, "a", 1.5, [], True]),
        st.sampled_from(
            "initialize ping server/discover tools/list tools/call prompts/get resources/read resources/subscribe "
            "resources/unsubscribe notifications/cancelled no/such".split()
        )
        | st.none(),
        st.dictionaries(
            st.sampled_from("_meta name arguments uri protocolVersion capabilities requestId".split()),
            st.sampled_from(
                [META, "brief", "mark", "mica://crystals", "mica://crystals/\x00", {}, {"text": 7}, None, 7, []]
            ),
            max_size=4,
        )
        | st.sampled_from([None, 7, [], "x"]),
    ),
)
sent_headers = st.fixed_dictionaries(
    {name: st.just(value) for name, value in TYPES.items()},
    optional={
        "mcp-protocol-version": st.sampled_from(["2025-11-25", "2026-07-28", "1900-01-01", ""]),
        "mcp-method": st.sampled_from(["tools/list", "tools/call", "ping", ""]),
        "mcp-name": st.sampled_from(["brief", "mark", "=?base64?AA?=", ""]),
        "mcp-session-id": st.sampled_from(["0" * 48, "", "x"]),
        "last-event-id": st.sampled_from(["0/0", "9/9", "/", ""]),
    },
)


@settings(max_examples=5)
@given(st.lists(st.tuples(bodies, sent_headers), min_size=30, max_size=50))
def test_no_request_makes_the_server_fail(
    home: Settings, tmp_path: Path, sent: list[tuple[bytes, dict[str, str]]]
) -> None:
    """keeps: TD-08. Any request gets a proper status, never a 500."""

    async def statuses() -> set[int]:
        async with serving(tmp_path / "shop.db", home) as made, made.caller() as caller:
            codes = {(await caller.post("/mcp", content=body, headers=headers)).status_code for body, headers in sent}
            assert (await caller.post("/mcp", **modern("tools/list"))).status_code == 200
            return codes

    assert asyncio.run(statuses()) <= {200, 202, 400, 404}


async def test_wrong_http_methods_and_types_are_refused(served: Served) -> None:
    call = modern("tools/list")
    async with served.caller() as caller:

        async def status(**changed: str) -> int:
            return (await caller.post("/mcp", content=call["content"], headers=call["headers"] | changed)).status_code

        assert await status(**{"content-type": "text/plain"}) == 415
        assert await status(accept="text/html") == 406
        assert await status(accept="*/*") == 200
        assert (await caller.put("/mcp", content=b"{}")).status_code == 405
        listing = modern("subscriptions/listen", notifications={})
        only_json = listing["headers"] | {"accept": "application/json"}
        assert (await caller.post("/mcp", content=listing["content"], headers=only_json)).status_code == 406
        large = b" " * (http.BODY_BYTES_MAX + 1)
        assert (await caller.post("/mcp", content=large, headers=call["headers"])).status_code == 413
        unknown = await caller.post("/mcp", **modern("no/such"))
        assert (unknown.status_code, unknown.json()["error"]["code"]) == (404, -32601)
        missing = await caller.post("/mcp", **modern("resources/read", name="mica://no", uri="mica://no"))
        assert (missing.status_code, missing.json()["error"]["code"]) == (400, -32602)
        assert (await caller.get("/mcp", headers={"mcp-protocol-version": "2026-07-28"})).status_code == 405


async def test_a_token_and_our_own_origin_are_required(served: Served) -> None:
    """keeps: U-09. The guard protects MCP like every other route."""
    call = modern("tools/list")
    async with httpx2.AsyncClient(base_url=served.address) as stranger:
        assert (await stranger.post("/mcp", **call)).status_code == 401
    async with served.caller() as caller:
        foreign = call["headers"] | {"origin": "https://evil.example"}
        assert (await caller.post("/mcp", content=call["content"], headers=foreign)).status_code == 403
        rebound = call["headers"] | {"host": "evil.example"}
        assert (await caller.post("/mcp", content=call["content"], headers=rebound)).status_code == 421


async def test_a_session_is_valid_until_it_ends_and_only_in_its_space(served: Served) -> None:
    """keeps: U-09. A session id is valid in one space, and a token only in the spaces it names."""
    async with served.caller() as caller:
        session = await open_session(caller)
        assert (await caller.post("/mcp", **older("ping", session=session))).json()["result"] == {}
        assert (await caller.post("/mcp", **older("ping"))).status_code == 400
        assert (await caller.post("/mcp", **older("ping", session="0" * 48))).status_code == 404
        await served.pool.memory("other", make=True)
        elsewhere = await caller.post("/mcp?space=other", **older("ping", session=session))
        assert elsewhere.status_code == 404
        assert (await caller.post("/mcp?space=nowhere", **older("initialize", **HELLO))).status_code == 404
        limited = served.tokens.make("of one space", spaces=("other",))[0]
        async with served.caller(limited) as guest:
            assert (await guest.post(f"/mcp?space={served.pool.default}", **modern("tools/list"))).status_code == 403
            assert (await guest.post("/mcp", **older("ping", session=session))).status_code == 404
        assert (await caller.delete("/mcp", headers={"mcp-session-id": session})).status_code == 204
        assert (await caller.post("/mcp", **older("ping", session=session))).status_code == 404


async def test_the_longest_idle_session_is_closed_at_the_limit(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "SESSIONS_MAX", 3)
    async with served.caller() as caller:
        sessions = [await open_session(caller) for _ in range(4)]

        alive = [(await caller.post("/mcp", **older("ping", session=each))).status_code for each in sessions]
    assert alive == [404, 200, 200, 200]


# -- Causality --------------------------------------------------------------------------------------------------


async def test_a_mark_continues_the_trace_of_its_caller_over_http(served: Served) -> None:
    """keeps: E-36. The trace is in `_meta`, or in a header set by a proxy."""
    memory = await served.memory()
    with memory.context(session="s9", agent="scout"):
        cause = memory.emit("task.began", {})
        with memory.context(parent=cause):
            carrier = memory.carrier()
    async with served.caller() as caller:
        call = modern("tools/call", name="mark", arguments={"text": "Seen"}, _meta=META | carrier)
        in_meta = (await caller.post("/mcp", **call)).json()
        call = modern("tools/call", name="mark", arguments={"text": "Seen again"})
        in_header = (await caller.post("/mcp", content=call["content"], headers=call["headers"] | carrier)).json()

    for answer in (in_meta, in_header):
        mark = await memory.events.get(answer["result"]["structuredContent"]["id"])
        assert mark.parent_id == cause.id
        assert (mark.context.session, mark.context.agent) == ("s9", "scout")


# -- The transport of 2024 --------------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore::mcp.shared.exceptions.MCPDeprecationWarning")
async def test_the_transport_of_2024_works(served: Served) -> None:
    """keeps: D-12. A stream and an address to write to, with the SDK's client."""
    headers = {"authorization": f"Bearer {served.token}"}
    async with Client(sse_client(f"{served.url}/sse", headers=headers), mode="legacy", client_info=ABOUT) as client:
        structured(await client.call_tool("mark", {"text": "The cookie is set before the redirect"}))
        found = structured(await client.call_tool("search", {"query": "cookie"}))

    assert len(msgspec.convert(found["hits"], list[object])) == 1


# -- Scopes of tokens ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["legacy", "2026-07-28"])
async def test_a_reading_token_sees_and_runs_only_tools_that_read(served: Served, mode: str) -> None:
    memory = await served.memory()
    memory.mark("The cookie is set before the redirect")
    await memory.durable()
    served.token = served.tokens.make("reader", scopes=["read"])[0]

    async with served.connected(mode=mode) as client:
        listed = [tool.name for tool in (await client.list_tools()).tools]
        refused = await client.call_tool("mark", {"text": "The cookie is set after it"})
        found = structured(await client.call_tool("search", {"query": "cookie"}))

    assert listed == [tool.name for tool in TOOLS if not tool.writes]
    assert refused.is_error
    [text] = refused.content
    assert isinstance(text, TextContent)
    assert text.text.startswith("mica: `mark` writes, and the token of this client may only read;")
    assert "`mica server token make NAME`" in text.text
    assert len(found["hits"]) == 1  # type: ignore[arg-type]  # a list
    assert len(await memory.events.query(EventQuery(names=("mark",)))) == 1


async def test_a_session_is_closed_to_other_tokens(served: Served) -> None:
    """A reader must not use the session that a writer opened."""
    body = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {"protocolVersion": "2025-11-25"}}
    async with served.caller(**TYPES) as writer:
        opened = await writer.post("/mcp", json=body)
        session = {"mcp-session-id": opened.headers["mcp-session-id"]}
        ping = {"jsonrpc": "2.0", "id": 2, "method": "ping"}
        own = await writer.post("/mcp", json=ping, headers=session)
    async with served.caller(served.tokens.make("reader", scopes=["read"])[0], **TYPES) as reader:
        foreign = await reader.post("/mcp", json=ping, headers=session)

    assert (own.status_code, foreign.status_code) == (200, 404)

"""Malformed, deep and huge bodies and queries: every route answers with a 4xx problem, and none fails."""

from __future__ import annotations

import asyncio
import json
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

import httpx2
import msgspec
import pytest
from starlette.applications import Starlette
from starlette.routing import Mount, Route
from starlette.testclient import TestClient
from tests.web.conftest import Calling
from tests.web.test_scopes import GATEWAY, app, filled

from mica.model.event import NESTING_MAX
from mica.store.remote.wire import PATH, roles
from mica.web.access import Access
from mica.web.api.server import MODULES
from mica.web.memory_pool import MemoryPool
from mica.web.operations import API, Operation, _any_schema

__all__ = ["app"]  # the fixture
DEEP = 100_000
PATIENCE_S = 600  # of a busy machine
JSON_VALUES = {
    "deep arrays": b"[" * DEEP + b"]" * DEEP,
    "deep objects": b'{"a":' * DEEP + b"1" + b"}" * DEEP,
    "just too deep": b"[" * (NESTING_MAX + 1) + b"]" * (NESTING_MAX + 1),
    "below the recursion limit": b"[" * 900 + b"]" * 900,
    "unclosed": b"[" * DEEP,
    "NaN": b"NaN",
    "Infinity": b"-Infinity",
    "too large a float": b"1e999",
    "huge integer": b"1" + b"0" * 5_000,
    "beyond 64 bits": b"18446744073709551616",
    "invalid UTF-8": b'"\xff\xfe"',
    "lone surrogate": b'"\\ud800"',
    "null character": b'"\\u0000"',
    "truncated": b'{"a": ',
    "UTF-16": '"x"'.encode("utf-16"),
}
TEXTS = [
    "\x00",
    "\ud800".encode("utf-16-le", "surrogatepass").decode("latin-1"),
    "9" * 5_000,
    "-1",
    "nan",
    "1e999",
    "%FF",
    "x" * 9_000,
]


def example(kind: str) -> object:
    return {"string": "1", "integer": 1, "number": 0.5, "boolean": True, "array": [], "object": {}}.get(kind, "1")


def bodies(operation: Operation) -> Iterator[tuple[str, bytes]]:
    """A body for each hostile value in each field; the other required fields have harmless values."""
    fields = msgspec.structs.fields(operation.request_type)
    schema = msgspec.json.schema_components([operation.request_type], schema_hook=_any_schema)[1]
    properties = schema[operation.request_type.__name__]["properties"]
    needed = {
        field.encode_name: example(str(properties[field.encode_name].get("type"))) for field in fields if field.required
    }
    for name, value in JSON_VALUES.items():
        yield f"whole: {name}", value
        for field in fields:
            rest = {key: each for key, each in needed.items() if key != field.encode_name}
            body = json.dumps(rest)[:-1] + (", " if rest else "") + json.dumps(field.encode_name) + ": "
            yield f"{field.encode_name}: {name}", body.encode() + value + b"}"
    nested = {"events": b'[{"name": "x", "data": {"a": %b}}]', "walks": b'[{"task": "x", "steps": [%b]}]'}
    for within, around in nested.items():
        if within in properties:
            for name, value in JSON_VALUES.items():
                yield f"inside {within}: {name}", b'{"%b": %b}' % (within.encode(), around % value)
    if "labels" in properties:
        yield "twice", b'{"text": "a", "text": "b", "labels": {"a": "b", "a": "c"}}'


def check(answer: httpx2.Response, about: object) -> None:
    assert answer.status_code < 500, (about, answer.text[:500])
    if answer.status_code >= 400:
        assert answer.headers["content-type"] == "application/problem+json", (about, answer.text[:500])
        assert len(answer.json()["detail"]) > 5, (about, answer.text[:500])


@pytest.mark.parametrize(
    "operation", [each for each in API.declared if each.method == "POST"], ids=lambda each: each.name
)
async def test_no_body_makes_an_operation_fail(client: httpx2.AsyncClient, operation: Operation) -> None:
    """keeps: U-09. Deep, huge, not finite and wrongly encoded values are refused with the reason."""
    assert MODULES
    for name, body in bodies(operation):
        answer = await client.post(operation.path, content=body, headers={"content-type": "application/json"})
        check(answer, (operation.name, name))
        if "deep" in name:
            assert answer.status_code in (400, 422), (operation.name, name, answer.text)


@pytest.mark.parametrize(
    "operation", [each for each in API.declared if each.method == "GET"], ids=lambda each: each.name
)
async def test_no_query_makes_an_operation_fail(client: httpx2.AsyncClient, operation: Operation) -> None:
    for field in msgspec.structs.fields(operation.request_type):
        for text in TEXTS:
            check(
                await client.get(operation.path, params={field.encode_name: text}),
                (operation.name, field.name, text[:20]),
            )
        answer = await client.get(f"{operation.path}?{field.encode_name}=%FF%00%ED%A0%80")
        check(answer, (operation.name, field.name))


async def test_no_packed_body_makes_a_store_fail(client: httpx2.AsyncClient) -> None:
    deep: list[Any] = []
    for _ in range(400):
        deep = [deep]
    values = [
        msgspec.msgpack.encode(each) for each in (float("nan"), float("inf"), 2**64 - 1, -(2**63), "x" * 9_000, deep)
    ]
    values += [b"\x91" * DEEP + b"\xc0", b"\xa2\xff\xfe", b"\xc1", b"\xdd\xff\xff\xff\xff", b""]
    for role, methods in roles().items():
        for name, method in methods.items():
            names = [field.encode_name for field in msgspec.structs.fields(method.request)] or ["x"]
            for value in values:
                bodies = [value, *(b"\x81" + msgspec.msgpack.encode(each) + value for each in names)]
                bodies.append(
                    bytes([0x80 | len(names)]) + b"".join(msgspec.msgpack.encode(each) + value for each in names)
                )
                for body in bodies:
                    check(await client.post(f"{PATH}/{role}/{name}", content=body), (role, name, body[:40]))
    for value in values:
        check(await client.post(PATH, content=value), value[:40])


async def test_no_body_makes_a_page_or_mcp_fail(app: Starlette, access: Access, calling: Calling) -> None:
    secret, _ = access.tokens.make("test")
    kinds = ("application/json", "application/x-www-form-urlencoded", "text/plain", "")
    async with calling(secret) as client:
        for each in app.routes:
            if isinstance(each, Mount) or not isinstance(each, Route) or each.path.startswith("/api/"):
                continue
            for method in {"POST", "DELETE"} & (each.methods or {"POST", "DELETE"}):
                for body in [*JSON_VALUES.values(), b"a=%FF&b=%00", b"&" * 1_000, b"number=" + b"9" * 5_000]:
                    for kind in kinds:
                        headers = {"content-type": kind, "accept": "application/json, text/event-stream"}
                        answer = await client.request(method, filled(each.path), content=body, headers=headers)
                        assert answer.status_code < 500, (method, each.path, kind, body[:40], answer.text[:300])


def test_no_message_ends_a_websocket(app: Starlette, access: Access) -> None:
    headers = {"authorization": f"Bearer {access.tokens.make('test')[0]}"}
    texts = [value.decode("utf-8", "replace") for value in JSON_VALUES.values()]
    with TestClient(app).websocket_connect(GATEWAY, headers=headers) as socket:
        for text in texts:
            for message in (text, f'{{"do": "query", "id": "a", "limit": {text}}}', f'{{"do": {text}, "id": "a"}}'):
                socket.send_text(message)
                answer = socket.receive_json()
                assert answer["problem"]["status"] in (400, 422), (message[:60], answer)


# -- Large bodies: the event loop stays free ------------------------------------------------------------------------


@contextmanager
def loop_work() -> Iterator[list[str]]:
    """Collect the calls of this thread, which has the event loop, that decode or redact a large text."""
    found: list[str] = []

    def is_large(frame: FrameType) -> bool:
        return any(isinstance(each, str | bytes) and len(each) > 5_000 for each in frame.f_locals.values())

    def profile(frame: FrameType, event: str, _: object) -> None:
        code = frame.f_code
        is_ours = code.co_filename.endswith("redact.py") or code.co_name == "_decode_body"
        if event == "call" and is_ours and is_large(frame):
            found.append(code.co_name)

    before = sys.getprofile()
    sys.setprofile(profile)
    try:
        yield found
    finally:
        sys.setprofile(before)


MEGABYTE = "the cookie is set before the redirect, password=hunter2hunter2 " * 15_800


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/api/mark", {"text": MEGABYTE}),
        ("/api/mark", {"text": "short", "why": MEGABYTE, "principles": [MEGABYTE]}),
        (
            "/api/sources/judge",
            {"concept": "a:b:c", "verdict": "yes", "confidence": 1, "reasons": [MEGABYTE[:10_000]] * 20},
        ),
        ("/api/trails/import_walks", {"walks": [{"task": MEGABYTE, "steps": [{"path": "a.py", "operation": "read"}]}]}),
        ("/api/trails/outcome", {"reference": "1", "outcome": "success", "reason": MEGABYTE}),
        ("/api/emit", {"events": [{"name": "step", "data": {"text": MEGABYTE}}]}),
    ],
)
async def test_a_large_body_is_decoded_and_redacted_outside_the_event_loop(
    client: httpx2.AsyncClient, path: str, body: dict[str, object]
) -> None:
    """The event loop hands the work to a thread, so other requests are answered meanwhile."""
    assert (await client.post("/api/mark", json={"text": "Find the cookie", "tags": ["prompt"]})).status_code == 200
    content = json.dumps(body).encode()

    with loop_work() as found:
        answer = await client.post(path, content=content, headers={"content-type": "application/json"})

    assert answer.status_code == 200, answer.text[:300]
    assert found == []


async def test_another_request_is_answered_while_a_mark_is_redacted(
    client: httpx2.AsyncClient, pool: MemoryPool
) -> None:
    """The thread that redacts is held until the other request has its answer."""
    is_held, may_go_on = threading.Event(), threading.Event()
    main = threading.get_ident()

    def hold(frame: FrameType, event: str, _: object) -> None:
        if event == "call" and frame.f_code.co_filename.endswith("redact.py") and threading.get_ident() != main:
            is_held.set()
            assert may_go_on.wait(PATIENCE_S)

    await pool.memory()
    threading.setprofile(hold)
    try:
        marking = asyncio.create_task(client.post("/api/mark", json={"text": MEGABYTE}))
        assert await asyncio.to_thread(is_held.wait, PATIENCE_S)
        other = await client.get("/api/events/query")
        assert not marking.done()
    finally:
        threading.setprofile(None)
        may_go_on.set()

    assert other.status_code == 200
    assert (await marking).status_code == 200

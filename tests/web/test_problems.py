"""Errors as problem documents."""

from __future__ import annotations

import httpx2
import pytest


@pytest.mark.parametrize(
    ("path", "body", "status"),
    [
        ("/api/mark", b"{", 400),
        ("/api/mark", b'{"text": "x", "colour": "red"}', 400),
        ("/api/mark", b'{"text": 7}', 400),
        ("/api/mark", b"\xff\xfe", 400),
        ("/api/mark", b'{"text": "  "}', 422),
        ("/api/mark", b'{"text": "x", "parent": "9999"}', 404),
        ("/api/mark?colour=red", b'{"text": "x"}', 400),
        ("/api/crystals/make", b'{"tree": "1", "level": "day"}', 404),
        ("/api/retract", b'{"reference": "1", "reason": ""}', 400),
        ("/api/nothing", b"{}", 404),
        ("/api/store/log/nothing", b"{}", 404),
        ("/api/store/log/append", b"\xc1", 400),
        ("/api/store/log/read", b"\x80", 400),
    ],
)
async def test_an_invalid_request_is_refused_with_a_reason(
    client: httpx2.AsyncClient, path: str, body: bytes, status: int
) -> None:
    answer = await client.post(path, content=body, headers={"content-type": "application/json"})

    assert answer.status_code == status
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.json()["detail"]


async def test_a_problem_has_the_class_and_attributes_of_the_error(client: httpx2.AsyncClient) -> None:
    problem = (await client.get("/api/events/get?reference=12345")).json()

    assert problem["type"] == "/problems/UnknownEvent"
    assert problem["facts"] == {"reference": "12345"}

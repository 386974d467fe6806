"""JSON-RPC messages and the two eras of the protocol."""

from __future__ import annotations

import pytest

from mica.mcp import protocol
from mica.mcp.protocol import RpcError, RpcMessage, handshake_revision, parse_message, response, stateless_revision

META: dict[str, object] = {protocol.VERSION: "2026-07-28", protocol.CAPABILITIES: {}}


def test_requests_notifications_and_responses_are_distinguished() -> None:
    request = parse_message(b'{"jsonrpc":"2.0","id":1,"method":"ping"}')
    notification = parse_message(b'{"jsonrpc":"2.0","method":"notifications/initialized"}')
    answer = parse_message(b'{"jsonrpc":"2.0","id":"a","result":{"roots":[]}}')

    assert (request.is_request, notification.is_request, answer.is_request) == (True, False, False)
    assert (answer.id, answer.method, answer.result) == ("a", None, {"roots": []})


@pytest.mark.parametrize(
    ("line", "code"),
    [
        (b"garbage", protocol.PARSE_ERROR),
        (b"[]", protocol.INVALID_REQUEST),
        (b'{"id":true,"method":"ping"}', protocol.INVALID_REQUEST),
        (b'{"id":1}', protocol.INVALID_REQUEST),
    ],
)
def test_a_malformed_message_raises_its_json_rpc_code(line: bytes, code: int) -> None:
    with pytest.raises(RpcError) as raised:
        parse_message(line)

    assert raised.value.code == code


def test_a_handshake_falls_back_to_the_latest_revision() -> None:
    assert handshake_revision({"protocolVersion": "2024-11-05"}) == "2024-11-05"
    assert handshake_revision({"protocolVersion": "1900-01-01"}) == protocol.HANDSHAKE[-1]
    assert handshake_revision({}) == protocol.HANDSHAKE[-1]


def test_an_unsupported_stateless_revision_lists_the_supported_ones() -> None:
    message = RpcMessage(id=1, method="tools/list", params={"_meta": META | {protocol.VERSION: "1900-01-01"}})

    with pytest.raises(RpcError) as raised:
        stateless_revision(message)

    assert raised.value.code == protocol.UNSUPPORTED_VERSION
    assert raised.value.data == {"supported": ["2026-07-28"], "requested": "1900-01-01"}


def test_only_stateless_responses_have_the_fields_of_the_newer_era() -> None:
    older = RpcMessage(id=1, method="tools/list")
    newer = RpcMessage(id=2, method="tools/list", params={"_meta": META})

    assert response(older, {"tools": []}, server={"name": "mica"})["result"] == {"tools": []}
    assert response(newer, {"tools": []}, server={"name": "mica"})["result"] == {
        "resultType": "complete",
        "tools": [],
        "_meta": {protocol.SERVER: {"name": "mica"}},
        "ttlMs": 0,
        "cacheScope": "private",
    }

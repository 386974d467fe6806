"""The words of MCP: JSON-RPC messages, its two eras, and what each of them adds to a result. Pure.

Until 2025-11-25 a client opens with `initialize`; since 2026-07-28 every request stands alone and says in `_meta` which
revision it speaks. A server tells them apart by each request, so one process serves both.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

HANDSHAKE = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")
STATELESS = ("2026-07-28",)

PARSE_ERROR, INVALID_REQUEST, UNKNOWN_METHOD, INVALID_PARAMS, INTERNAL_ERROR = -32700, -32600, -32601, -32602, -32603
RESOURCE_NOT_FOUND = -32002  # of the older era; the newer one says INVALID_PARAMS
HEADER_MISMATCH, UNSUPPORTED_VERSION = -32020, -32022

_META = "io.modelcontextprotocol/"
VERSION, CAPABILITIES, CLIENT = (_META + name for name in ("protocolVersion", "clientCapabilities", "clientInfo"))
SERVER, SUBSCRIPTION = _META + "serverInfo", _META + "subscriptionId"
CACHED = frozenset(
    "server/discover tools/list prompts/list resources/list resources/templates/list resources/read".split()
)

Id = str | int
Fields = Mapping[str, object]


class Refused(Exception):
    """A request that is answered by an error of the protocol."""

    def __init__(self, code: int, message: str, data: object = None) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.data = data


class Message(msgspec.Struct, frozen=True, kw_only=True):
    """What a client sent: a request has an id and a method, a notification no id, a response no method."""

    id: Id | None = None
    method: str | None = None
    params: dict[str, object] = {}
    result: object = None

    @property
    def meta(self) -> dict[str, object]:
        meta = self.params.get("_meta")
        return meta if isinstance(meta, dict) else {}

    @property
    def is_request(self) -> bool:
        return self.method is not None and self.id is not None

    @property
    def is_stateless(self) -> bool:
        """Whether the request says itself which revision it speaks."""
        return VERSION in self.meta

    @property
    def progress_token(self) -> Id | None:
        """By which the client wants to hear how far a request is."""
        token = self.meta.get("progressToken")
        return token if isinstance(token, str | int) and not isinstance(token, bool) else None


def read(line: bytes) -> Message:
    """The message on a line. Raises Refused with the code that JSON-RPC has for what is wrong."""
    try:
        found = msgspec.json.decode(line)
    except (msgspec.DecodeError, RecursionError) as error:
        raise Refused(PARSE_ERROR, f"this line is not JSON: {error}") from error
    if not isinstance(found, dict):
        raise Refused(INVALID_REQUEST, "a message is one JSON object; batches are not taken")
    identifier, method, params = (found.get(name) for name in ("id", "method", "params"))
    if identifier is not None and (not isinstance(identifier, str | int) or isinstance(identifier, bool)):
        raise Refused(INVALID_REQUEST, "an id is a string or an integer")
    if method is None and ("result" in found or "error" in found):
        return Message(id=identifier, result=found.get("result"))
    if not isinstance(method, str):
        raise Refused(INVALID_REQUEST, "a message needs a method", identifier)
    return Message(id=identifier, method=method, params=params if isinstance(params, dict) else {})


def agreed(message: Message) -> str:
    """The revision of a request that stands alone. Raises Refused when it cannot be served."""
    version = message.meta[VERSION]
    if not isinstance(version, str) or not isinstance(message.meta.get(CAPABILITIES), dict):
        raise Refused(INVALID_PARAMS, f"_meta needs {VERSION} as text and {CAPABILITIES} as an object")
    if version not in STATELESS:
        raise Refused(
            UNSUPPORTED_VERSION, "Unsupported protocol version", {"supported": list(STATELESS), "requested": version}
        )
    return version


def negotiated(params: Fields) -> str:
    """The revision in which a handshake goes on: the one that was asked for, else the latest that has a handshake."""
    asked = params.get("protocolVersion")
    return asked if isinstance(asked, str) and asked in HANDSHAKE else HANDSHAKE[-1]


def answer(message: Message, result: Fields, *, server: Fields) -> dict[str, object]:
    """The response to a request, with what its era adds."""
    if message.is_stateless:
        result = {"resultType": "complete", **result, "_meta": {**_meta(result), SERVER: server}}
        if message.method in CACHED:
            result |= {"ttlMs": 0, "cacheScope": "private"}
    return {"jsonrpc": "2.0", "id": message.id, "result": result}


def notification(method: str, params: Fields | None = None) -> dict[str, object]:
    told: dict[str, object] = {"jsonrpc": "2.0", "method": f"notifications/{method}"}
    return told if params is None else {**told, "params": params}


def refusal(identifier: Id | None, error: Refused) -> dict[str, object]:
    told = {"code": error.code, "message": error.message}
    return {"jsonrpc": "2.0", "id": identifier, "error": told if error.data is None else {**told, "data": error.data}}


def _meta(result: Fields) -> Fields:
    meta = result.get("_meta")
    return meta if isinstance(meta, dict) else {}

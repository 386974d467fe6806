"""The MCP protocol: JSON-RPC messages, protocol revisions, and the fields of results. No input or output.

There are two kinds of the protocol. With sessions (revisions until 2025-11-25), a client begins with `initialize`.
Without sessions (since 2026-07-28), every request is independent and has its revision in `_meta`. One process serves
both, because each request shows which kind it uses.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

HANDSHAKE = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")
STATELESS = ("2026-07-28",)

PARSE_ERROR, INVALID_REQUEST, UNKNOWN_METHOD, INVALID_PARAMS, INTERNAL_ERROR = -32700, -32600, -32601, -32602, -32603
RESOURCE_NOT_FOUND = -32002  # with sessions; without, it is INVALID_PARAMS
HEADER_MISMATCH, UNSUPPORTED_VERSION = -32020, -32022

_META = "io.modelcontextprotocol/"
VERSION, CAPABILITIES, CLIENT = (_META + name for name in ("protocolVersion", "clientCapabilities", "clientInfo"))
SERVER, SUBSCRIPTION = _META + "serverInfo", _META + "subscriptionId"
CACHED = frozenset(
    "server/discover tools/list prompts/list resources/list resources/templates/list resources/read".split()
)

Id = str | int
Fields = Mapping[str, object]


class RpcError(Exception):
    """Raised to answer a request with a JSON-RPC error."""

    def __init__(self, code: int, message: str, data: object = None) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.data = data


class RpcMessage(msgspec.Struct, frozen=True, kw_only=True):
    """A message from a client. A request has an id and a method, a notification has no id, a response has no method."""

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
        """True for the protocol without sessions, in which every request has its protocol revision in `_meta`."""
        return VERSION in self.meta

    @property
    def progress_token(self) -> Id | None:
        """The token to send with progress notifications; None if the client wants no notifications."""
        token = self.meta.get("progressToken")
        return token if isinstance(token, str | int) and not isinstance(token, bool) else None


def parse_message(line: bytes) -> RpcMessage:
    """Parse one JSON-RPC message. Raises RpcError, with the code for the fault, if it is not valid."""
    try:
        decoded = msgspec.json.decode(line)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise RpcError(PARSE_ERROR, f"this line is not JSON: {error}") from error
    if not isinstance(decoded, dict):
        raise RpcError(INVALID_REQUEST, "a message is one JSON object; batches are not supported")
    identifier, method, params = (decoded.get(name) for name in ("id", "method", "params"))
    if identifier is not None and (not isinstance(identifier, str | int) or isinstance(identifier, bool)):
        raise RpcError(INVALID_REQUEST, "an id is a string or an integer")
    if method is None and ("result" in decoded or "error" in decoded):
        return RpcMessage(id=identifier, result=decoded.get("result"))
    if not isinstance(method, str):
        raise RpcError(INVALID_REQUEST, "a message needs a method", identifier)
    return RpcMessage(id=identifier, method=method, params=params if isinstance(params, dict) else {})


def stateless_revision(message: RpcMessage) -> str:
    """Return the protocol revision in a request without a session. Raises RpcError if it is not supported."""
    version = message.meta[VERSION]
    if not isinstance(version, str) or not isinstance(message.meta.get(CAPABILITIES), dict):
        raise RpcError(INVALID_PARAMS, f"_meta needs {VERSION} as text and {CAPABILITIES} as an object")
    if version not in STATELESS:
        raise RpcError(
            UNSUPPORTED_VERSION, "Unsupported protocol version", {"supported": list(STATELESS), "requested": version}
        )
    return version


def handshake_revision(params: Fields) -> str:
    """Return the protocol revision for the answer to `initialize`.

    It is the requested revision if that is supported, else the latest one of the protocol with sessions.
    """
    requested = params.get("protocolVersion")
    return requested if isinstance(requested, str) and requested in HANDSHAKE else HANDSHAKE[-1]


def response(message: RpcMessage, result: Fields, *, server: Fields) -> dict[str, object]:
    """Build the response to a request. Without sessions, it also has the server's name and how long to cache it."""
    if message.is_stateless:
        result = {"resultType": "complete", **result, "_meta": {**_meta(result), SERVER: server}}
        if message.method in CACHED:
            result |= {"ttlMs": 0, "cacheScope": "private"}
    return {"jsonrpc": "2.0", "id": message.id, "result": result}


def notification(method: str, params: Fields | None = None) -> dict[str, object]:
    message: dict[str, object] = {"jsonrpc": "2.0", "method": f"notifications/{method}"}
    return message if params is None else {**message, "params": params}


def error_response(identifier: Id | None, error: RpcError) -> dict[str, object]:
    fields = {"code": error.code, "message": error.message}
    if error.data is not None:
        fields["data"] = error.data
    return {"jsonrpc": "2.0", "id": identifier, "error": fields}


def _meta(result: Fields) -> Fields:
    meta = result.get("_meta")
    return meta if isinstance(meta, dict) else {}

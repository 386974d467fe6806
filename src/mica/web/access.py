"""Access control: tokens, one-time links, hosts, origins, body sizes and request rates.

A browser logs in with a one-time link and gets a cookie; other clients send `Authorization: Bearer`. Unknown hosts are
refused, so that no foreign name can be pointed at this machine (DNS rebinding). Foreign origins are refused, so that no
foreign page can use a browser's cookie.
"""

from __future__ import annotations

import asyncio
import logging
import math
import re
import secrets
import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Collection
from contextlib import suppress
from http.cookies import CookieError, SimpleCookie
from urllib.parse import urlsplit

import msgspec
from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from mica.errors import MicaError
from mica.web.problems import error_problem, problem, problem_response
from mica.web.tokens import BROWSER_LIFETIME, EVERYDAY_SCOPES, AccessToken, TokenFile, TokenScope

LOOPBACK = ("127.0.0.1", "localhost", "::1")
STORE = "/api/store/"
OPEN = frozenset({"/health", "/enter"})  # paths without a token, besides static files; they show nothing of a space
FILES = "/static/"
METHODS = frozenset({"GET", "HEAD", "POST", "DELETE", "OPTIONS", "WEBSOCKET"})  # others are counted together
KEY_S = 600.0  # before an unused link expires
KEYS_MAX = 1_000
CALLERS_MAX = 10_000  # with a rate limit of their own
REVOKED = "the token was revoked"
_END: Message = {"type": "http.response.body", "body": b"", "more_body": False}
_HOST = re.compile(r"(\[[0-9a-f:.]+\]|[a-z0-9._-]+)(?::[0-9]{1,5})?")
LOG = logging.getLogger("mica.web")

TOKEN, NONCE = "mica.token", "mica.nonce"  # keys in the scope: the token of a request, and the nonce of its scripts


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """Limits of one caller: the size and speed of request bodies, and the rate of all requests and of refused ones."""

    body_bytes_max: int = 32 * 2**20  # a thousand events with large data
    store_bytes_max: int = 320 * 2**20  # for a store's own verbs: one event may have 256 MiB
    requests_per_s: float = 1_000.0  # of one token: a runaway loop leaves room for others
    burst: int = 2_000
    refusals_per_s: float = 5.0  # without a valid token, of one address: too slow to guess 256 bits
    refusals_burst: int = 50
    body_grace_s: float = 20.0  # for a body to arrive, plus the time that its bytes take at this speed:
    body_bytes_per_s: int = 16_384
    recheck_s: float = 1.0  # between checks whether the token of an open connection is still valid


class BodyRefused(Exception):
    """Raised when the body of a request is too large or arrives too slowly, with the status to answer."""

    def __init__(self, status: int, detail: str) -> None:
        super().__init__(detail)
        self.status = status
        self.detail = detail


class Revoked(OSError):
    """Raised if a token is revoked while an answer is being sent. The connection is then closed."""


class Access:
    """The tokens, one-time keys, host names and rate limits of one server.

    The name of the login cookie contains `port`, because a browser sends a host's cookies to all of its ports.
    `program` is the command that starts mica on this machine; answers use it in the commands that they suggest.
    """

    def __init__(
        self,
        tokens: TokenFile,
        *,
        port: int,
        hosts: Collection[str] = (),
        limits: Limits | None = None,
        program: str = "mica",
        clock_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self.tokens = tokens
        self.program = program
        self.limits = limits or Limits()
        self.cookie = f"mica_{port}"
        self.hosts = frozenset(name.lower().strip("[]") for name in (*LOOPBACK, *hosts))
        # One-time keys: when each expires, and the scopes of the browser that uses it.
        self._keys: OrderedDict[str, tuple[float, tuple[TokenScope, ...]]] = OrderedDict()
        self._clock_s = clock_s
        self.response_counts: Counter[tuple[str, int]] = Counter()  # requests by method and status
        self._request_rate = _TokenBucket(self.limits.requests_per_s, self.limits.burst, clock_s)
        self._refusal_rate = _TokenBucket(self.limits.refusals_per_s, self.limits.refusals_burst, clock_s)

    def new_key(self, scopes: tuple[TokenScope, ...] = EVERYDAY_SCOPES) -> str:
        """Make a key for a one-time login link, valid for KEY_S. The browser that uses it gets these scopes."""
        key = secrets.token_urlsafe(24)
        self._keys[key] = self._clock_s() + KEY_S, scopes
        while len(self._keys) > KEYS_MAX:
            self._keys.popitem(last=False)
        return key

    def enter(self, key: str) -> str | None:
        """Exchange a login key for a new browser token. A key works once. None if it is unknown or expired."""
        until, scopes = self._keys.pop(key, (0.0, EVERYDAY_SCOPES))
        if until < self._clock_s():
            return None
        return self.tokens.make("browser", scopes=scopes, lifetime=BROWSER_LIFETIME)[0]

    def token(self, headers: Headers) -> AccessToken | None:
        """Return the valid token that a request sends in its header or cookie, or None."""
        authorization = headers.get("authorization", "")
        scheme, _, secret = authorization.partition(" ")
        if scheme.lower() == "bearer" and secret:
            return self.tokens.find(secret.strip())
        if not authorization and (cookie := _cookie(headers, self.cookie)):
            return self.tokens.find(cookie)
        return None

    def wait_s(self, token: AccessToken | None, peer: str) -> float:
        """Count a request of `token`, or of address `peer` if `token` is None. Returns the seconds to wait, or 0."""
        return self._refusal_rate.wait_s(peer) if token is None else self._request_rate.wait_s(token.id)

    def is_ours(self, host: str) -> bool:
        """Return True if a Host header, with or without a port, is a name of this server."""
        match = _HOST.fullmatch(host.lower())
        return match is not None and match[1].strip("[]") in self.hosts


class Guard:
    """The outermost middleware: checks every request, and adds security headers to every response."""

    def __init__(self, app: ASGIApp, access: Access) -> None:
        self._app = app
        self._access = access

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
            return
        scope[NONCE] = secrets.token_urlsafe(16)
        started, status = time.perf_counter(), 0

        async def answer(message: Message) -> None:
            nonlocal status
            if message["type"] in ("http.response.start", "websocket.http.response.start"):
                status = message["status"]
                _harden(MutableHeaders(scope=message), scope[NONCE])
            await send(message)

        try:
            await self._check(scope, receive, answer)
        finally:
            took_ms = (time.perf_counter() - started) * 1_000
            method = scope.get("method", "WEBSOCKET")
            self._access.response_counts[method if method in METHODS else "other", status] += 1
            # The query is not logged, because it contains the key of a link.
            LOG.info("%s %s %d %.1f ms", scope.get("method", "WEBSOCKET"), ascii(scope["path"]), status, took_ms)

    async def _check(self, scope: Scope, receive: Receive, send: Send) -> None:
        access, headers = self._access, Headers(scope=scope)
        host, origin = headers.getlist("host"), headers.get("origin")
        if len(host) != 1 or not access.is_ours(host[0]):
            detail = f"this server is not called {', '.join(host)[:200]!r}; use the address that `mica up` printed"
            return await _refuse(scope, receive, send, status=421, detail=detail)
        if origin is not None and not _is_same(origin, host[0]):
            return await _refuse(
                scope, receive, send, status=403, detail=f"pages of {origin[:200]!r} have no access to this server"
            )
        peer = (scope.get("client") or ("?", 0))[0]
        try:
            token = access.token(headers)
        except MicaError as error:
            return await problem_response(error_problem(error))(scope, receive, send)
        is_open = scope["path"] in OPEN or scope["path"].startswith(FILES)
        wait_s = 0.0 if is_open and token is None else access.wait_s(token, peer)
        if wait_s:
            return await _refuse(
                scope, receive, send, status=429, detail=f"too many requests; wait {_tenths(wait_s)} s", retry_s=wait_s
            )
        if token is None and not is_open:
            is_wrong = "authorization" in headers or _cookie(headers, access.cookie)
            detail = "this token is unknown, expired or revoked" if is_wrong else "a token is needed"
            mica = access.program
            detail += f": open the link that `{mica} server open` prints, or send a token of `{mica} server token make`"
            return await _refuse(scope, receive, send, status=401, detail=detail)
        scope[TOKEN] = token
        return await self._forward(scope, receive, send, headers)

    async def _forward(self, scope: Scope, receive: Receive, send: Send, headers: Headers) -> None:
        """Pass the request on. Refuse a body that is too large or slow; cut off a client if its token is revoked."""
        limits = self._access.limits
        allowed = limits.store_bytes_max if scope["path"].startswith(STORE) else limits.body_bytes_max
        length = headers.get("content-length", "0")
        if not length.isdigit() or int(length) > allowed:
            return await _refuse(scope, receive, send, status=413, detail=_too_large(allowed))
        token: AccessToken | None = scope[TOKEN]
        is_socket = scope["type"] == "websocket"
        started, received_bytes, is_whole = asyncio.get_running_loop().time(), 0, is_socket
        has_begun = has_ended = False

        def is_revoked() -> bool:
            return token is not None and not self._access.tokens.is_valid(token)

        async def read_after_body() -> Message:
            """Receive a message after the body. If the token was revoked, return a disconnect message instead."""
            while True:
                with suppress(TimeoutError):
                    async with asyncio.timeout(limits.recheck_s):
                        return await receive()
                if is_revoked():
                    return {"type": "websocket.disconnect", "code": 1008} if is_socket else {"type": "http.disconnect"}

        async def read() -> Message:
            nonlocal received_bytes, is_whole
            if is_whole:
                return await read_after_body()
            try:
                async with asyncio.timeout_at(started + limits.body_grace_s + received_bytes / limits.body_bytes_per_s):
                    message = await receive()
            except TimeoutError:
                raise BodyRefused(408, "the body did not arrive in time; send it without pauses") from None
            received_bytes += len(message.get("body", b""))
            is_whole = not message.get("more_body", False)
            if received_bytes > allowed:
                raise BodyRefused(413, _too_large(allowed))
            return message

        async def answer(message: Message) -> None:
            nonlocal has_begun, has_ended
            continues = message.get("more_body", False) or message["type"] == "websocket.send"
            if continues and is_revoked():
                raise Revoked(REVOKED)
            has_begun = True
            has_ended = has_ended or not (continues or message["type"] in ("http.response.start", "websocket.accept"))
            if message["type"] == "websocket.close" and is_revoked():
                message = {**message, "code": 1008, "reason": REVOKED}
            await send(message)

        try:
            with suppress(Revoked):
                await self._app(scope, read, answer)
            if has_begun and not has_ended and is_revoked():
                await send(_END if not is_socket else {"type": "websocket.close", "code": 1008, "reason": REVOKED})
        except BodyRefused as error:
            if has_begun:
                raise
            await _refuse(scope, receive, send, status=error.status, detail=error.detail)
        except Exception:
            LOG.exception("%s %s failed", scope.get("method", "WEBSOCKET"), ascii(scope["path"]))
            if has_begun:
                raise
            fault = problem(500, "this is a fault of mica; the server's log has the details")
            await problem_response(fault)(scope, receive, send)


class _TokenBucket:
    """A rate limit: one token bucket per caller. Beyond CALLERS_MAX, the bucket unused for longest is dropped."""

    def __init__(self, per_s: float, burst: int, clock_s: Callable[[], float]) -> None:
        self._per_s = per_s
        self._burst = burst
        self._clock_s = clock_s
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def wait_s(self, caller: str) -> float:
        now = self._clock_s()
        tokens, last_s = self._buckets.pop(caller, (float(self._burst), now))
        tokens = min(float(self._burst), tokens + (now - last_s) * self._per_s)
        self._buckets[caller] = (tokens - 1 if tokens >= 1 else tokens, now)
        while len(self._buckets) > CALLERS_MAX:
            self._buckets.popitem(last=False)
        return 0.0 if tokens >= 1 else (1 - tokens) / self._per_s


async def _refuse(
    scope: Scope, receive: Receive, send: Send, *, status: int, detail: str, retry_s: float | None = None
) -> None:
    LOG.warning("refused %s with %d: %s", ascii(scope["path"]), status, ascii(detail))
    if scope["type"] == "websocket":
        await send({"type": "websocket.close", "code": 1008, "reason": detail[:120]})
        return
    headers = {"connection": "close"} if status in (408, 413) else {}
    if status == 401:
        headers["www-authenticate"] = 'Bearer realm="mica"'
    if retry_s is not None:
        headers["retry-after"] = str(int(retry_s) + 1)
    await problem_response(problem(status, detail), headers)(scope, receive, send)


def _tenths(seconds: float) -> float:
    """Round up to tenths, so that a wait is never 0.0."""
    return math.ceil(seconds * 10) / 10


def _too_large(allowed: int) -> str:
    return f"a body may have at most {allowed:,} bytes; send it in parts"


def _is_same(origin: str, host: str) -> bool:
    try:
        parts = urlsplit(origin)
    except ValueError:
        return False
    return parts.scheme in ("http", "https") and parts.netloc.lower() == host.lower()


def _cookie(headers: Headers, name: str) -> str | None:
    with suppress(CookieError):
        cookie = SimpleCookie(headers.get("cookie", "")).get(name)
        return None if cookie is None else cookie.value
    return None


def _harden(headers: MutableHeaders, nonce: str) -> None:
    headers.setdefault("cache-control", "no-store")
    headers["x-content-type-options"] = "nosniff"
    headers["referrer-policy"] = "no-referrer"
    headers["x-frame-options"] = "DENY"
    headers["cross-origin-resource-policy"] = "same-origin"
    headers["content-security-policy"] = (
        f"default-src 'self'; script-src 'self' 'nonce-{nonce}'; style-src 'self' 'unsafe-inline'; "
        "img-src 'self' data:; base-uri 'none'; form-action 'self'; frame-ancestors 'none'; object-src 'none'"
    )

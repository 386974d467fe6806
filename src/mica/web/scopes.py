"""The scope that a route needs, declared where the route is, and the check of a request's token against it.

The scope `read` allows queries, and `write` allows recording events. `admin` allows removing data, giving access to
others, and sending a caller's words to other systems. A query may record its results and who received them, but nothing
else.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

from starlette.requests import HTTPConnection, Request
from starlette.responses import Response
from starlette.routing import Route, WebSocketRoute, request_response, websocket_session
from starlette.types import ASGIApp, Receive, Scope, Send
from starlette.websockets import WebSocket

from mica.errors import ScopeMissing
from mica.web.access import TOKEN
from mica.web.tokens import AccessToken, TokenScope


class ScopedEndpoint:
    """An ASGI application that runs another one if the token of the request has the scope `needs`."""

    def __init__(self, app: ASGIApp, *, needs: TokenScope) -> None:
        self._app = app
        self.needs = needs

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            check_scope(HTTPConnection(scope), self.needs)
        except ScopeMissing as error:
            if scope["type"] == "websocket":
                await send({"type": "websocket.close", "code": 1008, "reason": str(error)[:120]})
                return
            raise
        await self._app(scope, receive, send)


def check_scope(request: HTTPConnection, needs: TokenScope) -> None:
    """Raise ScopeMissing if the token of a request does not have the scope `needs`."""
    token = token_of(request)
    if not token.allows(needs):
        raise ScopeMissing(needs, scopes=" and ".join(token.scopes))


def token_at(scope: Scope) -> AccessToken:
    """Return the token of a request, given the ASGI scope instead of a Request."""
    return token_of(HTTPConnection(scope))


def token_of(request: HTTPConnection) -> AccessToken:
    token = request.scope.get(TOKEN)
    assert isinstance(token, AccessToken)  # the guard lets nothing else reach a space
    return token


def route(
    path: str,
    function: Callable[[Request], Awaitable[Response]],
    *,
    needs: TokenScope,
    methods: Sequence[str] = ("GET",),
) -> Route:
    """Return a route that answers requests whose token has the scope `needs`."""
    return Route(path, ScopedEndpoint(request_response(function), needs=needs), methods=methods)


def with_scope(plain: Route, *, needs: TokenScope) -> Route:
    """Return the route of another application, which is called if the token has the scope `needs`."""
    return Route(plain.path, ScopedEndpoint(plain.app, needs=needs), methods=sorted(plain.methods or ()) or None)


def socket_route(path: str, function: Callable[[WebSocket], Awaitable[None]], *, needs: TokenScope) -> WebSocketRoute:
    """Return the route of a WebSocket, which is opened if the token has the scope `needs`."""
    return WebSocketRoute(path, ScopedEndpoint(websocket_session(function), needs=needs))

"""The application: routes behind one guard, and every error of ours as a problem document."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from importlib.metadata import version

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.routing import BaseRoute, Route

from mica.errors import MicaError
from mica.web import streams
from mica.web.access import TOKEN, Access, Guard
from mica.web.api import server, store
from mica.web.memory_pool import House
from mica.web.metrics import Durations, Uses, metrics
from mica.web.pages import routes as pages
from mica.web.pages.refusals import Refusals
from mica.web.problems import answered, of_error, problem
from mica.web.request_memory import Using
from mica.web.tail import Tails
from mica.web.tokens import LAST_DAYS


def application(house: House, *, access: Access, extra: Sequence[BaseRoute] = ()) -> Starlette:
    """Everything that one server answers, `extra` behind the same guard. It closes the house when it ends."""

    @asynccontextmanager
    async def living(_: Starlette) -> AsyncIterator[None]:
        try:
            yield
        finally:
            await app.state.tails.close()
            await house.close()

    app = Starlette(
        routes=[
            Route("/health", _health),
            Route("/enter", _enter),
            Route("/metrics", metrics),
            *streams.routes(),
            *server.routes(),
            *store.routes(),
            *extra,
            *pages(),
        ],
        middleware=[Middleware(Refusals), Middleware(Guard, access=access), Middleware(Using)],
        exception_handlers={MicaError: _told, HTTPException: _http},
        lifespan=living,
    )
    app.state.house = house
    app.state.access = access
    app.state.tails = Tails()
    house.leaving.append(app.state.tails.leave)
    app.state.uses = Uses()
    app.state.loads = defaultdict(Durations)  # how long loading trails took, by the id of their space
    return app


async def _health(request: Request) -> Response:
    """Whether the server is there; nothing of any space."""
    return JSONResponse({"status": "ok", "version": version("mica")})


async def _enter(request: Request) -> Response:
    """Let a browser in that brings a one-time key: it gets a cookie, and the key leaves the address bar."""
    access: Access = request.app.state.access
    # Whoever looks at a link ahead of a person must not use its key up.
    if request.method == "HEAD":
        return Response(status_code=405, headers={"allow": "GET"})
    if "prefetch" in request.headers.get("sec-purpose", ""):
        return Response(status_code=503)
    token = access.enter(request.query_params.get("key", ""))
    if token is None and request.scope[TOKEN] is not None:
        return RedirectResponse("/", status_code=303)  # it has come in before
    if token is None:
        return answered(problem(401, "this link was used already, or is too old; `mica open` makes a new one"))
    answer = RedirectResponse("/", status_code=303)
    answer.set_cookie(
        access.cookie, token, max_age=int(LAST_DAYS.total_seconds()), httponly=True, samesite="strict", path="/"
    )
    return answer


async def _told(request: Request, error: Exception) -> Response:
    assert isinstance(error, MicaError)
    return answered(of_error(error))


async def _http(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return answered(problem(error.status_code, error.detail), error.headers)

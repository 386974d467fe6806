"""The ASGI application: all routes behind one access check. Errors become problem documents (RFC 9457)."""

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
from starlette.routing import Route

from mica.errors import MicaError
from mica.web import streams
from mica.web.access import TOKEN, Access, Guard
from mica.web.api import server
from mica.web.memory_pool import MemoryPool, RequestSpaces
from mica.web.metrics import LoadDurations, Uses, metrics
from mica.web.operations import ApiVersion
from mica.web.pages import routes as pages
from mica.web.pages.templates import ProblemPages
from mica.web.problems import error_problem, problem, problem_response
from mica.web.scopes import route, with_scope
from mica.web.tail import Tails
from mica.web.tokens import BROWSER_LIFETIME


def application(pool: MemoryPool, *, access: Access, extra: Sequence[Route] = ()) -> Starlette:
    """Build the application of a server, which closes `pool` when it shuts down.

    Requests for `extra` routes are checked in the same way as all others, and need the scope `read`. Before an `extra`
    application writes, it must check the token's scope itself.
    """

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        try:
            yield
        finally:
            await app.state.tails.close()
            await pool.close()

    app = Starlette(
        routes=[
            Route("/health", _health),
            Route("/enter", _enter),
            route("/metrics", metrics, needs="read"),
            *streams.routes(),
            *server.routes(),
            *(with_scope(each, needs="read") for each in extra),
            *pages(),
        ],
        middleware=[
            Middleware(ProblemPages),
            Middleware(Guard, access=access),
            Middleware(ApiVersion),
            Middleware(RequestSpaces),
        ],
        exception_handlers={MicaError: _mica_error, HTTPException: _http},
        lifespan=lifespan,
    )
    app.state.pool = pool
    app.state.access = access
    app.state.tails = Tails()
    pool.leaving.append(app.state.tails.leave)
    app.state.uses = Uses()
    app.state.loads = defaultdict(LoadDurations)  # of loading trails, by space
    return app


async def _health(request: Request) -> Response:
    return JSONResponse({"status": "ok", "version": version("mica")})


async def _enter(request: Request) -> Response:
    """Log a browser in with a one-time key: set a cookie, and redirect to an address without the key."""
    access: Access = request.app.state.access
    # A link preview must not use up the key.
    if request.method == "HEAD":
        return Response(status_code=405, headers={"allow": "GET"})
    if "prefetch" in request.headers.get("sec-purpose", ""):
        return Response(status_code=503)
    token = access.enter(request.query_params.get("key", ""))
    if token is None and request.scope[TOKEN] is not None:
        return RedirectResponse("/", status_code=303)  # already logged in
    if token is None:
        hint = f"`{access.program} server open` makes a new one"
        return problem_response(problem(401, f"this link was used already, or is too old; {hint}"))
    answer = RedirectResponse("/", status_code=303)
    answer.set_cookie(
        access.cookie, token, max_age=int(BROWSER_LIFETIME.total_seconds()), httponly=True, samesite="strict", path="/"
    )
    return answer


async def _mica_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, MicaError)
    return problem_response(error_problem(error))


async def _http(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return problem_response(problem(error.status_code, error.detail), error.headers)

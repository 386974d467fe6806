"""Renders the templates of the dashboard, with filters for times and numbers. All values are escaped."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping
from datetime import datetime
from functools import cache, wraps
from pathlib import Path
from typing import TypeAlias
from urllib.parse import parse_qsl, urlencode

import msgspec
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from mica.errors import InvalidInput, MicaError, UnknownSpace
from mica.format.lines import ZONE, format_bytes, one_line, plural, strip_control, to_user_zone
from mica.model.event import utc_now
from mica.web.access import TOKEN
from mica.web.memory_pool import memory_of, pool_of, requested_space
from mica.web.problems import MEDIA_TYPE, Problem, status_of
from mica.web.tokens import AccessToken

FOLDER = Path(__file__).parent.parent
STREAM = "/api/events/follow"  # new events; a page reads their names and reloads the parts they change
FORM_BYTES_MAX = 64 * 1024
PAGES = (
    ("/", "Today", "today", "t"),
    ("/beliefs", "Beliefs", "beliefs", "l"),
    ("/crystals", "Crystals", "crystals", "c"),
    ("/admin/patterns", "Trails", "trails", "r"),
    ("/events", "Events", "events", "e"),
    ("/sources", "Sources", "sources", "s"),
    ("/briefs", "Briefs", "briefs", "b"),
    ("/status", "Health", "health", "h"),
)

PageFunction: TypeAlias = Callable[[Request], Awaitable[Response]]


def page(function: PageFunction) -> PageFunction:
    """Decorate a function that renders a page or a part of one. If it raises a MicaError, its message is shown.

    A space that does not exist, or that the token does not open, is reported before the function runs.
    """

    @wraps(function)
    async def respond(request: Request) -> Response:
        ZONE.set(pool_of(request).settings.zone())
        try:
            await memory_of(request)
            if not is_part(request):
                await pool_of(request).spaces()  # every page has a list of spaces
            return await function(request)
        except UnknownSpace as error:
            message = f"There is no space {requested_space(request)!r} here."
            return _failed(request, status_of(error), message, with_spaces=True)
        except MicaError as error:
            return _failed(request, status_of(error), str(error))

    return respond


def _failed(request: Request, status: int, error: str, *, with_spaces: bool = False) -> Response:
    name = "parts/error.html" if is_part(request) else "error.html"
    return render(request, name, status=status, error=error, with_spaces=with_spaces)


def is_part(request: Request) -> bool:
    """Return True if htmx requests only a part of a page."""
    return "hx-request" in request.headers


def render(
    request: Request, name: str, *, status: int = 200, headers: Mapping[str, str] | None = None, **values: object
) -> HTMLResponse:
    """Render a template with `values`. It also gets the space, a function for links within the space, and the time."""
    pool = pool_of(request)
    try:
        space = requested_space(request)
    except MicaError:
        space = pool.default
    if space not in pool.known:
        space = pool.default  # an error page must link to a space that exists
    token = request.scope.get(TOKEN)
    spaces = [each for each in pool.known if not isinstance(token, AccessToken) or token.opens(each)]
    now = utc_now()

    def url(path: str, **query: object) -> str:
        return link(path, space=space if space != pool.default else None, **query)

    shared = {
        "path": request.url.path,
        "pages": PAGES,
        "space": space,
        "spaces": [(each, link(request.url.path, space=each)) for each in spaces],
        "stream": url(STREAM, bundle="minimal"),
        "url": url,
        "now": now,
        "zone": zone_name(now),
        "ago": lambda at: ago(at, now=now),
    }
    return HTMLResponse(templates().get_template(name).render(shared | values), status_code=status, headers=headers)


def notice_headers(text: str, *events: str) -> dict[str, str]:
    """Return headers that make a page show a notice, close its dialog and reload the parts that listen for `events`."""
    triggers: dict[str, object] = {"mica:notice": text, "mica:done": "", **dict.fromkeys(events, "")}
    return {"hx-trigger": json.dumps(triggers)}  # headers are ASCII


def link(path: str, **query: object) -> str:
    """Build an address on this server. Parameters that are None, empty or False are omitted."""
    parameters = {name: str(value) for name, value in query.items() if value not in (None, "", False)}
    return f"{path}?{urlencode(parameters)}" if parameters else path


async def form(request: Request) -> Mapping[str, str]:
    """Parse the fields of a posted form. Raises InvalidInput if the body is too large or not a form."""
    body = await request.body()
    if len(body) > FORM_BYTES_MAX:
        raise InvalidInput(f"this form has {len(body):,} bytes; {FORM_BYTES_MAX:,} are allowed")
    try:
        return dict(parse_qsl(body.decode(), keep_blank_values=True, max_num_fields=50))
    except ValueError as error:
        raise InvalidInput(f"this is not a form: {error}") from error


class Static(StaticFiles):
    """Static files. Browsers cache vendored files and fonts for a year; they check other files at each use."""

    async def get_response(self, path: str, scope: Scope) -> Response:
        answer = await super().get_response(path, scope)
        is_permanent = path.startswith(("vendor/", "fonts/"))
        answer.headers["cache-control"] = "public, max-age=31536000, immutable" if is_permanent else "no-cache"
        return answer


@cache
def templates() -> Environment:
    """Return the template environment with its filters. It is created once."""
    environment = Environment(
        loader=FileSystemLoader(FOLDER / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "clock": lambda at: f"{to_user_zone(at):%H:%M:%S}",
        "minute": lambda at: f"{to_user_zone(at):%H:%M}",
        "day": lambda at: f"{to_user_zone(at):%A %-d %B}",
        "short_day": lambda at: f"{to_user_zone(at):%-d %b}",
        "full": lambda at: f"{to_user_zone(at):%A %-d %B %Y, %H:%M:%S %Z}",
        "iso": datetime.isoformat,
        "n": lambda number: f"{number:,.0f}",
        "signed": lambda number: f"{number:+,.0f}".replace("-", "−"),
        "compact": compact,
        "percent": lambda share: f"{share:.0%}",
        "size": format_bytes,
        "span": span,
        "plural": plural,
        "harmless": strip_control,
        "line": one_line,
        "pretty": lambda value: strip_control(msgspec.json.format(msgspec.json.encode(value), indent=2).decode()),
    }
    return environment


def compact(number: float) -> str:
    """Format a number in few characters: 940, 12.4k, 1.2M."""
    for unit, above in (("M", 1e6), ("k", 1e3)):
        if abs(number) >= above * 0.9995:
            return f"{number / above:.1f}".removesuffix(".0") + unit
    return f"{number:,.0f}"


def span(seconds: float) -> str:
    """Format a duration: 40 ms, 2.5 s, 12 min, 5 h, 4 days."""
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 100:
        return f"{seconds:.1f} s"
    minutes, hours = seconds / 60, seconds / 3600
    if minutes < 100:
        return f"{minutes:.0f} min"
    return f"{hours:.0f} h" if hours < 72 else f"{hours / 24:.0f} days"


def zone_name(now: datetime) -> str:
    """Return the name of the time zone in which all pages show times."""
    zone = ZONE.get()
    return f"{to_user_zone(now):%Z}, the server's" if zone is None else str(zone)


def ago(at: datetime, *, now: datetime) -> str:
    """Describe a time as people say it: just now, 5 min ago, 14:20, yesterday 14:20, 3 Nov."""
    seconds = (now - at).total_seconds()
    if -60 < seconds < 45:
        return "just now"
    if seconds < 0:
        return f"in {span(-seconds)}"
    if seconds < 3600:
        return f"{max(1, round(seconds / 60))} min ago"
    today, then = to_user_zone(now), to_user_zone(at)
    days = (today.date() - then.date()).days
    if days == 0:
        return f"{then:%H:%M}"
    if days == 1:
        return f"yesterday {then:%H:%M}"
    return f"{then:%-d %b}" if then.year == today.year else f"{then:%-d %b %Y}"


# -- Problems as pages ----------------------------------------------------------------------------------------------

TITLES = {401: "Log in with a link", 403: "Access denied", 404: "Not found"}


class ProblemPages:
    """Middleware that turns a problem document into a page for clients that accept HTML, and into a part for htmx.

    The status and the other headers stay the same. Other clients get the document.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = Headers(scope=scope) if scope["type"] == "http" else Headers()
        for_htmx = "hx-request" in headers
        if not (for_htmx or "text/html" in headers.get("accept", "")):
            await self._app(scope, receive, send)
            return
        start: Message | None = None
        body = b""

        async def answer(message: Message) -> None:
            nonlocal start, body
            if message["type"] == "http.response.start" and _is_problem(message):
                start = message
            elif start is None:
                await send(message)
            else:
                body += message.get("body", b"")
                if not message.get("more_body", False):
                    shown = _problem_page(body, is_part=for_htmx)
                    headers = MutableHeaders(scope=start)
                    headers["content-type"] = "text/html; charset=utf-8"
                    headers["content-length"] = str(len(shown))
                    await send(start)
                    await send({"type": "http.response.body", "body": shown})

        await self._app(scope, receive, answer)


def _is_problem(message: Message) -> bool:
    return Headers(raw=message["headers"]).get("content-type", "").startswith(MEDIA_TYPE)


def _problem_page(body: bytes, *, is_part: bool) -> bytes:
    problem = msgspec.json.decode(body, type=Problem)
    if is_part:
        return templates().get_template("parts/error.html").render(error=problem.detail).encode()
    title = TITLES.get(problem.status, "This cannot be shown")
    return templates().get_template("refused.html").render(title=title, problem=problem).encode()

"""Templates, and the words that they use for times and numbers. Whatever is shown is text: markup in it is escaped."""

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
from markupsafe import Markup
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.staticfiles import StaticFiles
from starlette.types import Scope

from mica.errors import InvalidInput, MicaError, UnknownSpace
from mica.format.lines import ZONE, counted, harmless, one_line, size, there
from mica.model.event import utc_now
from mica.web.access import TOKEN
from mica.web.problems import status_of
from mica.web.request_memory import house_of, memory_of, space_of
from mica.web.tokens import Token

FOLDER = Path(__file__).parent.parent
STREAM = "/api/stream"  # the log as it grows; a page reads names from it and asks again for what it shows
FORM_BYTES_MAX = 64 * 1024
PAGES = (
    ("/", "Today", "today", "t"),
    ("/crystals", "Crystals", "crystals", "c"),
    ("/admin/patterns", "Trails", "trails", "r"),
    ("/events", "Events", "events", "e"),
    ("/sources", "Sources", "sources", "s"),
    ("/briefs", "Briefs", "briefs", "b"),
    ("/status", "Health", "health", "h"),
)

Answers: TypeAlias = Callable[[Request], Awaitable[Response]]


def page(answers: Answers) -> Answers:
    """A page or a part of one: an error of ours is shown in its place, with its status.

    So is a space that is not there, or that the token does not open, before anything of it is asked for.
    """

    @wraps(answers)
    async def answered(request: Request) -> Response:
        ZONE.set(house_of(request).settings.zone())
        try:
            await memory_of(request)
            if not is_part(request):
                await house_of(request).spaces()  # for the choice of a space, which every page has
            return await answers(request)
        except UnknownSpace as error:
            told = f"There is no space {space_of(request)!r} here."
            return _failed(request, status_of(error), told, is_elsewhere=True)
        except MicaError as error:
            return _failed(request, status_of(error), str(error))

    return answered


def _failed(request: Request, status: int, error: str, *, is_elsewhere: bool = False) -> Response:
    name = "parts/error.html" if is_part(request) else "error.html"
    return render(request, name, status=status, error=error, is_elsewhere=is_elsewhere)


def is_part(request: Request) -> bool:
    """Whether htmx asks for a part of a page."""
    return "hx-request" in request.headers


def render(
    request: Request, name: str, *, status: int = 200, headers: Mapping[str, str] | None = None, **values: object
) -> HTMLResponse:
    """A template with what every one of them may use: the space, links that keep it, the moment."""
    house = house_of(request)
    try:
        space = space_of(request)
    except MicaError:
        space = house.default
    if space not in house.known:
        space = house.default  # links on the page that says so lead to one that is there
    token = request.scope.get(TOKEN)
    spaces = [each for each in house.known if not isinstance(token, Token) or token.opens(each)]
    now = utc_now()

    def url(path: str, **query: object) -> str:
        return link(path, space=space if space != house.default else None, **query)

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


def said(text: str, *events: str) -> dict[str, str]:
    """Headers by which a page shows a sentence, closes its dialog and asks again for what has changed."""
    told: dict[str, object] = {"mica:said": text, "mica:done": "", **dict.fromkeys(events, "")}
    return {"hx-trigger": json.dumps(told)}  # in ASCII, as headers are


def link(path: str, **query: object) -> str:
    """An address on this server; what is empty is left out."""
    given = {name: str(value) for name, value in query.items() if value not in (None, "", False)}
    return f"{path}?{urlencode(given)}" if given else path


async def form(request: Request) -> Mapping[str, str]:
    """The fields of a form. Raises InvalidInput when it is too large or no form."""
    body = await request.body()
    if len(body) > FORM_BYTES_MAX:
        raise InvalidInput(f"this form has {len(body):,} bytes; {FORM_BYTES_MAX:,} are allowed")
    try:
        return dict(parse_qsl(body.decode(), keep_blank_values=True, max_num_fields=50))
    except ValueError as error:
        raise InvalidInput(f"this is no form: {error}") from error


class Static(StaticFiles):
    """Files of ours. What carries its version in its name is kept by browsers; the rest is asked for again."""

    async def get_response(self, path: str, scope: Scope) -> Response:
        answer = await super().get_response(path, scope)
        lasting = path.startswith(("vendor/", "fonts/"))
        answer.headers["cache-control"] = "public, max-age=31536000, immutable" if lasting else "no-cache"
        return answer


@cache
def templates() -> Environment:
    """Every template, compiled once, with the words that they use."""
    made = Environment(
        loader=FileSystemLoader(FOLDER / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters |= {
        "clock": lambda at: f"{there(at):%H:%M:%S}",
        "minute": lambda at: f"{there(at):%H:%M}",
        "day": lambda at: f"{there(at):%A %-d %B}",
        "short_day": lambda at: f"{there(at):%-d %b}",
        "full": lambda at: f"{there(at):%A %-d %B %Y, %H:%M:%S %Z}",
        "iso": datetime.isoformat,
        "n": lambda number: f"{number:,.0f}",
        "signed": lambda number: f"{number:+,.0f}".replace("-", "−"),
        "compact": compact,
        "percent": lambda share: f"{share:.0%}",
        "size": size,
        "span": span,
        "counted": counted,
        "harmless": harmless,
        "line": one_line,
        "pretty": lambda value: harmless(msgspec.json.format(msgspec.json.encode(value), indent=2).decode()),
        "script": script,
    }
    return made


def script(value: object) -> Markup:
    """A value as JSON that can stand in a `script` element whatever its texts hold."""
    encoded = msgspec.json.encode(value).decode()
    return Markup(encoded.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026"))


def compact(number: float) -> str:
    """A number in few characters: 940, 12.4k, 1.2M."""
    for unit, above in (("M", 1e6), ("k", 1e3)):
        if abs(number) >= above * 0.9995:
            return f"{number / above:.1f}".removesuffix(".0") + unit
    return f"{number:,.0f}"


def span(seconds: float) -> str:
    """A length of time as people say it."""
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 100:
        return f"{seconds:.1f} s"
    minutes, hours = seconds / 60, seconds / 3600
    if minutes < 100:
        return f"{minutes:.0f} min"
    return f"{hours:.0f} h" if hours < 72 else f"{hours / 24:.0f} days"


def zone_name(now: datetime) -> str:
    """What the zone of all times is called."""
    zone = ZONE.get()
    return f"{there(now):%Z}, the server's" if zone is None else str(zone)


def ago(at: datetime, *, now: datetime) -> str:
    """How long ago something was, or when, if that is long."""
    seconds = (now - at).total_seconds()
    if -60 < seconds < 45:
        return "just now"
    if seconds < 0:
        return f"in {span(-seconds)}"
    if seconds < 3600:
        return f"{max(1, round(seconds / 60))} min ago"
    today, then = there(now), there(at)
    days = (today.date() - then.date()).days
    if days == 0:
        return f"{then:%H:%M}"
    if days == 1:
        return f"yesterday {then:%H:%M}"
    return f"{then:%-d %b}" if then.year == today.year else f"{then:%-d %b %Y}"

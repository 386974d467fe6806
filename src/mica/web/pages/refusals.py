"""Problems for people: where a browser asks for a page, a problem document is shown as one."""

from __future__ import annotations

import msgspec
from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from mica.web.pages.templates import templates
from mica.web.problems import MEDIA_TYPE, Problem

TITLES = {401: "Come in by a link", 403: "Not for this browser", 404: "Nothing is here"}


class Refusals:
    """The outermost layer but for headers: a problem that a person would see as JSON becomes a page.

    Its status, its headers and what it says stay the same. Programs, which do not ask for HTML, get the document.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or "text/html" not in Headers(scope=scope).get("accept", ""):
            await self._app(scope, receive, send)
            return
        began: Message | None = None
        body = b""

        async def answer(message: Message) -> None:
            nonlocal began, body
            if message["type"] == "http.response.start" and _is_problem(message):
                began = message
            elif began is None:
                await send(message)
            else:
                body += message.get("body", b"")
                if not message.get("more_body", False):
                    shown = _page(body)
                    headers = MutableHeaders(scope=began)
                    headers["content-type"] = "text/html; charset=utf-8"
                    headers["content-length"] = str(len(shown))
                    await send(began)
                    await send({"type": "http.response.body", "body": shown})

        await self._app(scope, receive, answer)


def _is_problem(message: Message) -> bool:
    return Headers(raw=message["headers"]).get("content-type", "").startswith(MEDIA_TYPE)


def _page(body: bytes) -> bytes:
    told = msgspec.json.decode(body, type=Problem)
    title = TITLES.get(told.status, "This cannot be shown")
    return templates().get_template("refused.html").render(title=title, problem=told).encode()

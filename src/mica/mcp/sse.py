"""The transport of 2024-11-05, for clients that know no other: a stream to read, and an address to write to.

It was replaced in 2025 and is off unless `server.mcp_sse` is set.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from urllib.parse import urlencode

from starlette.background import BackgroundTask
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from mica.format.documents import server_sent
from mica.mcp.http import Endpoint, Turned, message_of
from mica.mcp.streams import streamed


def routes(endpoint: Endpoint, path: str = "/mcp") -> list[BaseRoute]:
    """The two addresses, beside the endpoint whose sessions they share."""

    async def opened(request: Request) -> Response:
        try:
            session = await endpoint.begin(request)
        except Turned as turned:
            return turned.response()
        asked = {**request.query_params, "session": session.id}

        async def events() -> AsyncIterator[bytes]:
            yield server_sent(f"{path}/messages?{urlencode(asked)}".encode(), event="endpoint")
            async for event in session.standing.events():
                yield event

        answer = streamed(events())
        answer.background = BackgroundTask(endpoint.end, session)  # it lives as long as the stream
        return answer

    async def written(request: Request) -> Response:
        try:
            session = await endpoint.session(request)
            message = await message_of(request)
        except Turned as turned:
            return turned.response()
        if message.is_request:
            task = session.server.begin(message, session.standing.put)
            if message.method == "initialize":  # before all that follows it
                await task
        else:
            session.server.notice(message)
        return Response("Accepted", status_code=202)

    return [Route(f"{path}/sse", opened), Route(f"{path}/messages", written, methods=["POST"])]

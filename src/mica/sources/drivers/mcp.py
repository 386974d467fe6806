"""MCP servers as sources. For each question, a resource is read or a tool is called, through the official SDK."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from datetime import datetime
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Annotated
from urllib.parse import quote, urlsplit

import msgspec

from mica.errors import SourceFailed
from mica.sources.drivers.documents import Selecting, Selector
from mica.sources.drivers.http import HeaderVariables, headers, made_client
from mica.sources.drivers.live import Conditions
from mica.sources.drivers.rows import MappedRows
from mica.sources.drivers.tables import (
    About,
    Around,
    DeclaredSource,
    QueryTemplate,
    SourceQueryPreview,
    SourceTable,
    Where,
)
from mica.sources.protocol import Concept
from mica.sources.threads import imported

if TYPE_CHECKING:
    from mcp.client import Client
    from mcp_types import Tool

BYTES_MAX = 1_000_000  # of one answer
CONNECT_S = 20  # to start a server and connect, in the background; a question waits no longer than its own limit
PAGES_MAX = 20  # pages read of a server's list of tools


class McpTable(SourceTable, frozen=True, kw_only=True, tag="mcp"):
    """The settings of a source that uses an MCP server.

    With `command`, mica starts the server; with `url`, mica connects to a server that is running.
    """

    command: (
        Annotated[tuple[str, ...], About(min_length=1, description='a program and its words, as in ["mica", "mcp"]')]
        | None
    ) = None
    url: Annotated[str, About(pattern=r"^https?://", description='an address, as in "https://host/mcp"')] | None = None
    env: Annotated[tuple[str, ...], About(description="the names of environment variables to pass to the program")] = ()
    headers_env: HeaderVariables = msgspec.field(default_factory=dict)
    tool: Annotated[str, About(min_length=1, description="the name of a tool that only reads")] | None = None
    arguments: Annotated[dict[str, object], About(description='a table, as in { query = "{type} {id}" }')] = (
        msgspec.field(default_factory=dict)
    )
    resource: (
        Annotated[str, About(pattern=r"^[a-zA-Z][\w+.-]*:", description='an address, as in "memo://{type}/{id}"')]
        | None
    ) = None
    select: Selector | None = None
    where: Conditions = msgspec.field(default_factory=dict)
    bytes_max: Annotated[int, About(ge=1, le=100_000_000, description="a number of bytes")] = BYTES_MAX


class McpSource(DeclaredSource):
    """A source that asks an MCP server.

    The session with the server stays open between questions. If it is lost, a new one is opened.
    """

    driver = "mcp"
    needs = "mcp.client"
    table: McpTable

    def __init__(self, name: str, table: McpTable, around: Around) -> None:
        """Raises ValueError if the table does not name exactly one server, and exactly one resource or tool.

        ValueError is also raised if `url` contains a user or password.
        """
        super().__init__(name, table, around)
        if (table.command is None) == (table.url is None):
            raise ValueError('give either command = ["program", …] or url = "https://…"')
        if (table.tool is None) == (table.resource is None):
            raise ValueError('give either tool = "name" or resource = "address"')
        if table.url is not None and "@" in urlsplit(table.url).netloc:
            raise ValueError("url holds a user or password; use headers_env instead")
        self._folder = around.folder
        self._variables = around.variables
        self._unset = [each for each in (*table.env, *table.headers_env.values()) if each not in around.variables]
        self._headers = headers({}, table.headers_env, around.variables)
        self._arguments = {key: _parse_argument(value) for key, value in table.arguments.items()}
        self._resource = QueryTemplate(table.resource) if table.resource is not None else None
        self._where = Where(table.where)
        self._selecting = Selecting(name, table.select)
        self._session: McpConnection | None = None
        self._ending: set[asyncio.Task[None]] = set()

    @property
    def place(self) -> str:
        if self.table.command is not None:
            return f"the MCP server {Path(self.table.command[0]).name!r}"
        parts = urlsplit(self.table.url or "")
        return f"the MCP server at {parts.scheme}://{parts.netloc}{parts.path}"

    async def query(self, concept: Concept, *, now: datetime) -> MappedRows:
        text = await self._fetch(concept)
        return await self.blocking(lambda: self._map(text, concept, now))

    def _map(self, text: str, concept: Concept, now: datetime) -> MappedRows:
        root: object
        try:
            root = msgspec.json.decode(text)
        except (msgspec.DecodeError, RecursionError):
            if not text.strip():
                return MappedRows((), ())
            root = text
        if not isinstance(root, dict | list):
            root = {"key": str(concept), "text": root if isinstance(root, str) else text}
        return self.map_document(self._selecting.of(root), concept, self._where.of(concept), now=now)

    async def _fetch(self, concept: Concept) -> str:
        """Return the server's answer as text. If the session is lost, try once more with a new session.

        Raises SourceFailed if the server cannot be reached, if it refuses the request, or if its tool fails.
        """
        is_new = self._session is None
        while True:
            session = await self._opened()
            try:
                return await self._answer(await asyncio.shield(session.client), concept)
            except _SessionEnded as error:
                self._leave(session)
                if is_new:
                    reason = f"{self.place} ended the connection ({error}); try it by hand"
                    raise SourceFailed(self.name, reason) from error
                is_new = True  # the server ended or restarted meanwhile: try once more, then report it

    async def _answer(self, client: Client, concept: Concept) -> str:
        import anyio
        from mcp.shared.exceptions import MCPError
        from mcp_types import CONNECTION_CLOSED

        try:
            if self._resource is not None:
                uri = self._resource.of(concept, quoted=lambda part: quote(part, safe=""))
                read = await client.read_resource(uri)
                texts = [getattr(each, "text", None) for each in read.contents]
                return self._bounded(texts, None)
            arguments = {key: _filled(value, concept) for key, value in self._arguments.items()}
            called = await client.call_tool(self.table.tool or "", arguments)
        except MCPError as error:
            if error.error.code == CONNECTION_CLOSED:
                raise _SessionEnded(str(error)) from error
            raise SourceFailed(self.name, f"{self.place} refuses the request: {error}; check what it offers") from error
        except (anyio.ClosedResourceError, anyio.BrokenResourceError, OSError) as error:
            raise _SessionEnded(type(error).__name__) from error
        text = self._bounded([getattr(each, "text", None) for each in called.content], called.structured_content)
        if called.is_error:
            raise SourceFailed(self.name, f"the tool {self.table.tool!r} failed: {text[:300]}; check its arguments")
        return text

    def _bounded(self, texts: Sequence[str | None], structured: object) -> str:
        """Return the structured content of an answer as JSON, or its texts if there is no structured content.

        Raises SourceFailed if the content is only pictures or bytes, or if the result is too long.
        """
        if isinstance(structured, dict) and list(structured) == ["result"]:
            structured = structured["result"]  # the SDK wraps a result that is not an object
        text = msgspec.json.encode(structured).decode() if structured is not None else "\n".join(filter(None, texts))
        if texts and not any(texts) and structured is None:
            raise SourceFailed(self.name, f"{self.place} answers with pictures or bytes, and no text")
        if len(text) > self.table.bytes_max:
            raise SourceFailed(
                self.name, f"{self.place} answers with more than bytes_max = {self.table.bytes_max:,}; ask for less"
            )
        return text

    # -- The session ----------------------------------------------------------------------------------------------

    async def _opened(self) -> McpConnection:
        """Return the current session, or a new one that is still opening in the background.

        A caller that is cancelled does not stop the opening, so the next question can use the session. Raises
        SourceFailed if an environment variable is not set or the SDK is not installed.
        """
        if self._unset:
            raise SourceFailed(self.name, f"the variable {self._unset[0]!r} is not set; export it")
        await imported(self.pool, self.name, self.needs, extra="mcp")
        if self._session is None:
            self._session = McpConnection()
            self._session.task = asyncio.create_task(self._hold(self._session))
        return self._session

    async def _hold(self, session: McpConnection) -> None:
        """Open a session, keep it open and close it, all in one task, as the SDK requires."""
        try:
            async with AsyncExitStack() as stack:
                async with asyncio.timeout(CONNECT_S):
                    client = await self._entered(stack)
                session.client.set_result(client)
                await session.is_over.wait()
        except Exception as error:  # noqa: BLE001  # the SDK raises any error of its transport, alone or in groups
            first = _first(error)
            reason = f"{self.place} cannot be reached ({_reason(first)}); try it by hand"
            failure = first if isinstance(first, SourceFailed) else SourceFailed(self.name, reason)
            if not session.client.done():
                session.client.set_exception(failure)
        finally:
            session.client.cancel()
            if self._session is session:
                self._session = None

    async def _entered(self, stack: AsyncExitStack) -> Client:
        from mcp.client import Client
        from mcp.client.stdio import StdioServerParameters, stdio_client
        from mcp.client.streamable_http import streamable_http_client

        if self.table.command is not None:
            program, *words = self.table.command
            environment = {name: self._variables[name].reveal() for name in self.table.env}
            quiet = stack.enter_context(os.fdopen(os.open(os.devnull, os.O_WRONLY), "w"))
            parameters = StdioServerParameters(command=program, args=words, env=environment, cwd=self._folder)
            transport = stdio_client(parameters, errlog=quiet)
        else:
            sending = await stack.enter_async_context(made_client(self._headers, timeout_s=self.table.timeout_s))
            transport = streamable_http_client(self.table.url or "", http_client=sending)
        client = await stack.enter_async_context(Client(transport))
        if self.table.tool is not None:
            await self._check_tool(client, self.table.tool)
        return client

    async def _check_tool(self, client: Client, name: str) -> None:
        """Raise SourceFailed if there is no tool of this name, or if the server declares it as not read-only."""
        offered: dict[str, Tool] = {}
        cursor: str | None = None
        for _ in range(PAGES_MAX):
            page = await client.list_tools(cursor=cursor)
            offered |= {tool.name: tool for tool in page.tools}
            cursor = page.next_cursor
            if cursor is None:
                break
        if name not in offered:
            near = get_close_matches(name, offered, n=1) or sorted(offered)[:5]
            raise SourceFailed(self.name, f"{self.place} has no tool {name!r}; it has {', '.join(near) or 'none'}")
        hints = offered[name].annotations
        if hints is not None and hints.read_only_hint is False:
            raise SourceFailed(self.name, f"the tool {name!r} says that it changes things; name one that only reads")

    def _leave(self, session: McpConnection) -> None:
        """Begin to close a session. The next question opens another one."""
        if self._session is session:
            self._session = None
        if session.task is not None:
            self._ending.add(session.task)
            session.task.add_done_callback(self._ending.discard)
            if not session.client.done():
                session.task.cancel()  # only while it is opening: later, a cancel would disturb the closing
        session.is_over.set()

    def explain(self, concept: Concept) -> SourceQueryPreview:
        if self._resource is not None:
            uri = self._resource.of(concept, quoted=lambda part: quote(part, safe=""))
            return self.preview(f"read {uri}", self._where.of(concept))
        arguments = {key: str(_filled(value, concept)) for key, value in self._arguments.items()}
        return self.preview(f"call {self.table.tool}", arguments | self._where.of(concept))

    async def check(self) -> str:
        client = await asyncio.shield((await self._opened()).client)
        return f"{self.place} answers with protocol {client.protocol_version}"

    async def connect(self) -> None:
        await self.check()

    async def close(self) -> None:
        if self._session is not None:
            self._leave(self._session)
        if self._ending:
            await asyncio.wait(self._ending)


class McpConnection:
    """A session with a server that is open or opening.

    `client` is a future with the SDK's client, and `task` opens and closes the session. Setting `is_over` ends it.
    """

    def __init__(self) -> None:
        self.client: asyncio.Future[Client] = asyncio.get_running_loop().create_future()
        self.client.add_done_callback(_retrieve_exception)
        self.is_over = asyncio.Event()
        self.task: asyncio.Task[None] | None = None


class _SessionEnded(Exception):
    """Raised if the session with the server has ended, so that a new one can be opened."""


def _parse_argument(value: object) -> object:
    """Return an argument of a tool with every text in it parsed as a template.

    Raises ValueError for an invalid template.
    """
    if isinstance(value, str):
        return QueryTemplate(value)
    if isinstance(value, Mapping):
        return {str(key): _parse_argument(each) for key, each in value.items()}
    return [_parse_argument(each) for each in value] if isinstance(value, list) else value


def _filled(value: object, concept: Concept) -> object:
    if isinstance(value, QueryTemplate):
        return value.of(concept)
    if isinstance(value, Mapping):
        return {key: _filled(each, concept) for key, each in value.items()}
    return [_filled(each, concept) for each in value] if isinstance(value, list) else value


def _first(error: BaseException) -> BaseException:
    """Return the first error of an exception group, or the error itself."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


def _reason(error: BaseException) -> str:
    """Return a description of an error. The error's text is left out, because it may contain headers and variables."""
    if isinstance(error, FileNotFoundError | PermissionError):
        return "there is no program of this name, or it may not be run"
    return type(error).__name__


def _retrieve_exception(connected: asyncio.Future[Client]) -> None:
    """Retrieve the exception of a future, so that asyncio does not log it as never retrieved."""
    if not connected.cancelled():
        connected.exception()

"""Another MCP server: one of its resources is read, or one of its tools called, through the official SDK."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack, suppress
from datetime import datetime
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Annotated
from urllib.parse import quote, urlsplit

import msgspec

from mica.errors import SourceFailed
from mica.select.blocking import imported
from mica.select.fragments import Concept
from mica.select.sources.documents import Selecting, Selector
from mica.select.sources.http import HeaderVariables, client, headers
from mica.select.sources.live import Conditions
from mica.select.sources.mapping import Told
from mica.select.sources.tables import About, Around, Asking, DeclaredSource, Explained, SourceTable, Where

if TYPE_CHECKING:
    from mcp.client import Client
    from mcp_types import Tool

BYTES_MAX = 1_000_000  # of one answer
CONNECT_S = 20  # to start a server and shake hands, in the background: whoever asks waits no longer than its time
PAGES_MAX = 20  # of a server's list of tools


class McpTable(SourceTable, frozen=True, kw_only=True, tag="mcp"):
    """A resource or a tool of a server that is started here (`command`) or runs elsewhere (`url`)."""

    command: (
        Annotated[tuple[str, ...], About(min_length=1, description='a program and its words, as in ["mica", "mcp"]')]
        | None
    ) = None
    url: Annotated[str, About(pattern=r"^https?://", description='an address, as in "https://host/mcp"')] | None = None
    env: Annotated[tuple[str, ...], About(description="the names of variables that the program is handed")] = ()
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
    """One session with a server, kept open by a task of its own and opened again when it broke."""

    driver = "mcp"
    table: McpTable

    def __init__(self, name: str, table: McpTable, around: Around) -> None:
        """Raises ValueError when it is not clear which server, or what of it, is meant."""
        super().__init__(name, table, around)
        if (table.command is None) == (table.url is None):
            raise ValueError('give command = ["program", …] or url = "https://…", one of the two')
        if (table.tool is None) == (table.resource is None):
            raise ValueError('give tool = "name" or resource = "address", one of the two')
        if table.url is not None and "@" in urlsplit(table.url).netloc:
            raise ValueError("url holds a user or password; use headers_env instead")
        self._folder = around.folder
        self._variables = around.variables
        self._unset = [each for each in (*table.env, *table.headers_env.values()) if each not in around.variables]
        self._headers = headers({}, table.headers_env, around.variables)
        self._arguments = {key: _asked(value) for key, value in table.arguments.items()}
        self._resource = Asking(table.resource) if table.resource is not None else None
        self._where = Where(table.where)
        self._selecting = Selecting(name, table.select)
        self._serving: asyncio.Task[None] | None = None
        self._connected: asyncio.Future[Client] | None = None

    @property
    def place(self) -> str:
        if self.table.command is not None:
            return f"the MCP server {Path(self.table.command[0]).name!r}"
        parts = urlsplit(self.table.url or "")
        return f"the MCP server at {parts.scheme}://{parts.netloc}{parts.path}"

    async def told(self, concept: Concept, *, now: datetime) -> Told:
        text = await self._asked(concept)
        return await self.blocking(lambda: self._told(text, concept, now))

    def _told(self, text: str, concept: Concept, now: datetime) -> Told:
        root: object
        try:
            root = msgspec.json.decode(text)
        except (msgspec.DecodeError, RecursionError):
            if not text.strip():
                return Told((), ())
            root = text
        if not isinstance(root, dict | list):
            root = {"key": str(concept), "text": text}
        return self.told_from(self._selecting.of(root), concept, self._where.of(concept), now=now)

    async def _asked(self, concept: Concept) -> str:
        """What the server answers, as text. Raises SourceFailed."""
        from_before = self._connected is not None
        try:
            return await self._answer(await self._session(), concept)
        except _Gone as error:
            if not from_before:
                raise SourceFailed(self.name, f"{self.place} ended the connection: {error}; try it by hand") from error
        try:
            return await self._answer(await self._session(), concept)  # it was ended or restarted since
        except _Gone as error:
            raise SourceFailed(self.name, f"{self.place} ended the connection: {error}; try it by hand") from error

    async def _answer(self, session: Client, concept: Concept) -> str:
        import anyio
        from mcp.shared.exceptions import MCPError
        from mcp_types import CONNECTION_CLOSED

        try:
            if self._resource is not None:
                uri = self._resource.of(concept, quoted=lambda part: quote(part, safe=""))
                read = await session.read_resource(uri)
                texts = [getattr(each, "text", None) for each in read.contents]
                return self._bounded(texts, None)
            arguments = {key: _filled(value, concept) for key, value in self._arguments.items()}
            called = await session.call_tool(self.table.tool or "", arguments)
        except MCPError as error:
            if error.error.code == CONNECTION_CLOSED:
                self._forget()
                raise _Gone(str(error)) from error
            raise SourceFailed(self.name, f"{self.place} refuses: {error}; see what it offers") from error
        except (anyio.ClosedResourceError, anyio.BrokenResourceError, OSError) as error:
            self._forget()
            raise _Gone(type(error).__name__) from error
        said = self._bounded([getattr(each, "text", None) for each in called.content], called.structured_content)
        if called.is_error:
            raise SourceFailed(self.name, f"the tool {self.table.tool!r} failed: {said[:300]}; see its arguments")
        return said

    def _bounded(self, texts: Sequence[str | None], structured: object) -> str:
        """Structured content if there is any, else the texts, within the limit."""
        said = msgspec.json.encode(structured).decode() if structured is not None else "\n".join(filter(None, texts))
        if texts and not any(texts) and structured is None:
            raise SourceFailed(self.name, f"{self.place} answers with pictures or bytes, and no text")
        if len(said) > self.table.bytes_max:
            raise SourceFailed(
                self.name, f"{self.place} answers with more than bytes_max = {self.table.bytes_max:,}; ask for less"
            )
        return said

    # -- The session ----------------------------------------------------------------------------------------------

    async def _session(self) -> Client:
        """The open session. Opening goes on when nobody waits any more, so that the next finds it."""
        if self._unset:
            raise SourceFailed(self.name, f"the variable {self._unset[0]!r} is not set; export it")
        await imported(self.pool, self.name, "mcp", extra="mcp")
        if self._connected is None:
            self._connected = asyncio.get_running_loop().create_future()
            self._connected.add_done_callback(_heeded)
            self._serving = asyncio.create_task(self._serve(self._connected))
        return await asyncio.shield(self._connected)

    async def _serve(self, connected: asyncio.Future[Client]) -> None:
        """Hold a session open until it is cancelled; it begins and ends in this task."""
        try:
            async with AsyncExitStack() as held:
                async with asyncio.timeout(CONNECT_S):
                    session = await self._opened(held)
                if not connected.done():
                    connected.set_result(session)
                await asyncio.Event().wait()
        except Exception as error:  # noqa: BLE001  # the SDK raises what its transport raised, alone or in groups
            reason = f"{self.place} cannot be reached ({_reason(error)}); try it by hand"
            failure = error if isinstance(error, SourceFailed) else SourceFailed(self.name, reason)
            if not connected.done():
                connected.set_exception(failure)
        finally:
            connected.cancel()
            if self._connected is connected:
                self._connected = None

    async def _opened(self, held: AsyncExitStack) -> Client:
        from mcp.client import Client
        from mcp.client.stdio import StdioServerParameters, stdio_client
        from mcp.client.streamable_http import streamable_http_client

        if self.table.command is not None:
            program, *words = self.table.command
            handed = {name: self._variables[name].reveal() for name in self.table.env}
            quiet = held.enter_context(os.fdopen(os.open(os.devnull, os.O_WRONLY), "w"))
            parameters = StdioServerParameters(command=program, args=words, env=handed, cwd=self._folder)
            transport = stdio_client(parameters, errlog=quiet)
        else:
            sending = await held.enter_async_context(client(self._headers, timeout_s=self.table.timeout_s))
            transport = streamable_http_client(self.table.url or "", http_client=sending)
        session = await held.enter_async_context(Client(transport))
        if self.table.tool is not None:
            await self._check_tool(session, self.table.tool)
        return session

    async def _check_tool(self, session: Client, name: str) -> None:
        """Raise SourceFailed when there is no such tool, or when it says that it changes things."""
        offered: dict[str, Tool] = {}
        cursor: str | None = None
        for _ in range(PAGES_MAX):
            page = await session.list_tools(cursor=cursor)
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

    def _forget(self) -> None:
        """Let the next question open another session."""
        self._connected = None
        if self._serving is not None:
            self._serving.cancel()

    def explained(self, concept: Concept) -> Explained:
        if self._resource is not None:
            uri = self._resource.of(concept, quoted=lambda part: quote(part, safe=""))
            return self._explained(f"read {uri}", self._where.of(concept))
        arguments = {key: str(_filled(value, concept)) for key, value in self._arguments.items()}
        return self._explained(f"call {self.table.tool}", arguments | self._where.of(concept))

    async def check(self) -> str:
        session = await self._session()
        return f"{self.place} answers with protocol {session.protocol_version}"

    async def close(self) -> None:
        serving, self._serving, self._connected = self._serving, None, None
        if serving is not None:
            serving.cancel()
            with suppress(asyncio.CancelledError):
                await serving


class _Gone(Exception):
    """The session is over."""


def _asked(value: object) -> object:
    """An argument with the places of its texts read. Raises ValueError."""
    if isinstance(value, str):
        return Asking(value)
    if isinstance(value, Mapping):
        return {str(key): _asked(each) for key, each in value.items()}
    return [_asked(each) for each in value] if isinstance(value, list) else value


def _filled(value: object, concept: Concept) -> object:
    if isinstance(value, Asking):
        return value.of(concept)
    if isinstance(value, Mapping):
        return {key: _filled(each, concept) for key, each in value.items()}
    return [_filled(each, concept) for each in value] if isinstance(value, list) else value


def _reason(error: BaseException) -> str:
    """The kind of the first error in a group; its text may hold what is in headers and variables."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return (
        "there is no program of this name, or it cannot be run" if isinstance(error, OSError) else type(error).__name__
    )


def _heeded(connected: asyncio.Future[Client]) -> None:
    """Take note of a failure that nobody may be waiting for."""
    if not connected.cancelled():
        connected.exception()

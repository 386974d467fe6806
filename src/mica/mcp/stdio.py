"""MCP over standard input and output, for one project. Each message is one line.

Anything else that this process prints goes to standard error.
"""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from urllib.parse import unquote, urlsplit

import msgspec

from mica.errors import InvalidInput, UnknownSpace
from mica.mcp import protocol
from mica.mcp.protocol import RpcError
from mica.mcp.server import McpServer, Send
from mica.mcp.watcher import Watch
from mica.memory import Memory
from mica.memory import open as open_memory
from mica.settings import Settings

LINE_BYTES_MAX = 16 * 2**20  # a message is a few kilobytes; a longer line is cut, and then refused as invalid JSON
WAITING_MAX = 1_000  # lines read ahead
CHUNK_BYTES = 2**16
RUNNING_MAX = 64  # concurrent requests; further ones wait
DRAIN_S = 10.0  # for running requests when the client disconnects

ROOTS_S = 2.0  # for a client to answer roots/list, which is sent first
DIRECTORIES = ("CLAUDE_PROJECT_DIR", "COPILOT_PROJECT_DIR")  # variables in which a client names its project
SESSIONS = ("CLAUDE_CODE_SESSION_ID", "COPILOT_AGENT_SESSION_ID")  # variables in which a client names its session

Place = Callable[[Path], tuple[Path | str, Settings]]  # finds the store of a directory; raises InvalidSettings


def serve(project: Callable[[], Project]) -> None:
    """Serve the client on standard input and output until it disconnects or a signal arrives.

    Anything else that this process prints after the call goes to standard error.
    """
    wire = os.dup(1)
    os.dup2(2, 1)
    asyncio.run(_serve(project, wire))


async def _serve(project: Callable[[], Project], wire: int) -> None:
    lines = StdinLines()

    def send(message: Mapping[str, object]) -> None:
        rest = msgspec.json.encode(message) + b"\n"
        try:
            while rest:
                rest = rest[os.write(wire, rest) :]
        except OSError:  # the client has disconnected
            lines.end()

    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, lines.end)
    lines.begin()
    opened = project()
    watch = Watch(opened)
    server = McpServer(opened, watch, send)
    try:
        await answer(server, aiter(lines), send)
        await server.drain(DRAIN_S)
    finally:
        await watch.close()
        await opened.close()


async def answer(server: McpServer, lines: AsyncIterator[bytes], send: Send) -> None:
    """Answer every message, at most RUNNING_MAX of them at the same time. Returns at the end of the input."""
    room = asyncio.Semaphore(RUNNING_MAX)
    async for line in lines:
        try:
            message = protocol.parse_message(line)
        except RpcError as error:
            identifier = error.data if isinstance(error.data, str | int) else None
            send(protocol.error_response(identifier, RpcError(error.code, error.message)))
            continue
        if not message.is_request:
            server.notice(message)
            continue
        await room.acquire()
        task = server.begin(message, send)
        if message.method == "initialize":  # it must be answered before later messages
            await task
        if message.method == "subscriptions/listen":  # it stays open, so it must not occupy a slot
            room.release()
        else:
            task.add_done_callback(lambda _: room.release())


class StdinLines:
    """Iterates over the lines of standard input. A thread reads them: asyncio cannot wait for a regular file."""

    def __init__(self) -> None:
        self._queue: asyncio.Queue[bytes | None] = asyncio.Queue()  # None is the end
        self._room = threading.Semaphore(WAITING_MAX)
        self._loop = asyncio.get_running_loop()

    def begin(self) -> None:
        # A daemon thread that reads the descriptor directly holds no lock of sys.stdin when the process ends.
        threading.Thread(target=self._read, daemon=True).start()

    def end(self) -> None:
        self._queue.put_nowait(None)

    async def __aiter__(self) -> AsyncIterator[bytes]:
        while (line := await self._queue.get()) is not None:
            self._room.release()
            if line.strip():
                yield line

    def _read(self) -> None:
        with suppress(RuntimeError):  # the event loop has ended
            for line in split(lambda: os.read(0, CHUNK_BYTES)):
                self._room.acquire()
                self._loop.call_soon_threadsafe(self._queue.put_nowait, line)
            self._loop.call_soon_threadsafe(self.end)


def split(read: Callable[[], bytes], *, line_bytes_max: int = LINE_BYTES_MAX) -> Iterator[bytes]:
    """Join the chunks that `read` returns and yield their lines. A line longer than `line_bytes_max` bytes is cut."""
    line = bytearray()
    while chunk := _chunk(read):
        *ended, rest = chunk.split(b"\n")
        for part in ended:
            line += part[: line_bytes_max - len(line)]
            yield bytes(line)
            line.clear()
        line += rest[: line_bytes_max - len(line)]
    if line:
        yield bytes(line)


def _chunk(read: Callable[[], bytes]) -> bytes:
    try:
        return read()
    except OSError:
        return b""  # the terminal was closed


# -- The project --------------------------------------------------------------------------------------------------


class Project:
    """Provides the memory of one project to the server. The memory is opened at its first use."""

    def __init__(self, place: Place, *, root: Path | None, environment: Mapping[str, str]) -> None:
        named = next((value for name in DIRECTORIES if (value := environment.get(name))), None)
        self.session = next((value for name in SESSIONS if (value := environment.get(name))), None)
        self._place = place
        self._directory = root or (Path(named) if named and Path(named).is_dir() else None)
        self._roots: asyncio.Future[object] | None = None
        self._opening = asyncio.Lock()
        self._memory: Memory | None = None
        self._empty: Memory | None = None  # an empty memory, until the space exists

    @property
    def is_known(self) -> bool:
        return self._directory is not None

    @property
    def has_space(self) -> bool:
        """True once the space has been opened."""
        return self._memory is not None

    def expect_roots(self) -> asyncio.Future[object]:
        """Return a future. Its result must be set to the client's answer to roots/list (its project directories)."""
        self._roots = asyncio.get_running_loop().create_future()
        return self._roots

    async def memory(self, *, makes: bool) -> Memory:
        """Return the memory of the project.

        If the project has no space yet, one is created if `makes` is True; otherwise an empty memory is returned. If
        opening the space fails, the error is raised, and the next call tries again.
        """
        async with self._opening:
            if self._memory is not None:
                return self._memory
            place, settings = self._place(await self._resolve_directory())
            try:
                self._memory = await open_memory(place, settings=settings, must_exist=not makes)
            except UnknownSpace:
                if self._empty is None:
                    self._empty = await open_memory(":memory:", settings=settings)
                return self._empty
            return self._memory

    async def close(self) -> None:
        for memory in (self._memory, self._empty):
            if memory is not None:
                await memory.close()

    async def _resolve_directory(self) -> Path:
        if self._directory is None and self._roots is not None:
            with suppress(TimeoutError):
                self._directory = first_directory(await asyncio.wait_for(asyncio.shield(self._roots), ROOTS_S))
        self._directory = self._directory or current_project()
        os.chdir(self._directory)  # the whole process works for this project
        return self._directory


def current_project() -> Path:
    """Return the current directory. Raises InvalidInput if a client started the server in a plugin's folder."""
    directory = Path.cwd()
    if (directory / ".claude-plugin" / "plugin.json").is_file():
        raise InvalidInput(
            f"the client started the server in {directory}, which is no project; `mica install` writes it again, "
            "and `mica mcp --root` names a project"
        )
    return directory


def first_directory(answer: object) -> Path | None:
    """Return the first directory of this machine that an answer to roots/list contains, or None."""
    roots = answer.get("roots") if isinstance(answer, dict) else None
    for root in roots if isinstance(roots, list) else ():
        uri = root.get("uri") if isinstance(root, dict) else None
        if isinstance(uri, str) and uri.startswith("file://"):
            path = Path(unquote(urlsplit(uri).path))
            with suppress(OSError, ValueError):
                if path.is_dir():
                    return path
    return None

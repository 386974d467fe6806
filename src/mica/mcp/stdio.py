"""Standard input and output as a wire: lines in, lines out, and nothing that is printed by accident among them."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import suppress

import msgspec

from mica.mcp import protocol
from mica.mcp.project import Project
from mica.mcp.protocol import Refused
from mica.mcp.server import Send, Server
from mica.mcp.watcher import Watch

LINE_BYTES_MAX = 16 * 2**20  # a message is a few kilobytes; what is longer is cut, and refused as no JSON
WAITING_MAX = 1_000  # lines that are read ahead
CHUNK_BYTES = 2**16
RUNNING_MAX = 64  # requests at once; the next ones wait their turn
DRAIN_S = 10.0  # for what is under way when the client leaves


def serve(project: Callable[[], Project]) -> None:
    """Serve the client on standard input and output until it leaves or a signal ends it.

    What anything else prints goes to standard error.
    """
    wire = os.dup(1)
    os.dup2(2, 1)
    asyncio.run(_serve(project, wire))


async def _serve(project: Callable[[], Project], wire: int) -> None:
    lines = Lines()

    def send(message: Mapping[str, object]) -> None:
        rest = msgspec.json.encode(message) + b"\n"
        try:
            while rest:
                rest = rest[os.write(wire, rest) :]
        except OSError:  # the client is gone
            lines.end()

    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, lines.end)
    lines.begin()
    opened = project()
    watch = Watch(opened)
    server = Server(opened, watch, send)
    try:
        await answer(server, aiter(lines), send)
        await server.drain(DRAIN_S)
    finally:
        await watch.close()
        await opened.close()


async def answer(server: Server, lines: AsyncIterator[bytes], send: Send) -> None:
    """Have every line answered; returns when the input has ended."""
    room = asyncio.Semaphore(RUNNING_MAX)
    async for line in lines:
        try:
            message = protocol.read(line)
        except Refused as refused:
            identifier = refused.data if isinstance(refused.data, str | int) else None
            send(protocol.refusal(identifier, Refused(refused.code, refused.message)))
            continue
        if not message.is_request:
            server.notice(message)
            continue
        await room.acquire()
        task = server.begin(message, send)
        if message.method == "initialize":  # before all that follows it
            await task
        if message.method == "subscriptions/listen":  # it lasts, and must not take the room of others
            room.release()
        else:
            task.add_done_callback(lambda _: room.release())


class Lines:
    """The lines of standard input, read by a thread: a regular file cannot be waited for."""

    def __init__(self) -> None:
        self._queue: asyncio.Queue[bytes | None] = asyncio.Queue()  # None is the end
        self._room = threading.Semaphore(WAITING_MAX)
        self._loop = asyncio.get_running_loop()

    def begin(self) -> None:
        # A daemon, and reading from the descriptor itself: a process that ends while it waits leaves no lock behind.
        threading.Thread(target=self._read, daemon=True).start()

    def end(self) -> None:
        self._queue.put_nowait(None)

    async def __aiter__(self) -> AsyncIterator[bytes]:
        while (line := await self._queue.get()) is not None:
            self._room.release()
            if line.strip():
                yield line

    def _read(self) -> None:
        with suppress(RuntimeError):  # the loop is over
            for line in split(lambda: os.read(0, CHUNK_BYTES)):
                self._room.acquire()
                self._loop.call_soon_threadsafe(self._queue.put_nowait, line)
            self._loop.call_soon_threadsafe(self.end)


def split(read: Callable[[], bytes], *, line_bytes_max: int = LINE_BYTES_MAX) -> Iterator[bytes]:
    """The lines of what is read, the last one also without an end; one that is too long is cut."""
    kept = bytearray()
    while chunk := _chunk(read):
        *ended, rest = chunk.split(b"\n")
        for part in ended:
            kept += part[: line_bytes_max - len(kept)]
            yield bytes(kept)
            kept.clear()
        kept += rest[: line_bytes_max - len(kept)]
    if kept:
        yield bytes(kept)


def _chunk(read: Callable[[], bytes]) -> bytes:
    try:
        return read()
    except OSError:
        return b""  # a terminal that is gone

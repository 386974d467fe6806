"""A pooler in transaction mode before a PostgreSQL server, which can lose the answer to a COMMIT."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TypeAlias
from urllib.parse import quote

from mica.store.postgres.server import parse_address

KEY = b"K\0\0\0\x0c\x7f\xff\xff\xffmica"  # a process that no server has
Streams: TypeAlias = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class Pooler:
    """A pooler in transaction mode before the server: each transaction goes to another of its connections.

    As others do, it gives its clients keys of its own making for cancelling, and not those of the server's processes.
    It can lose the answer to the next COMMIT: the server has done it, and the client's connection ends.
    """

    def __init__(self, server: str) -> None:
        self._server = server
        self._idle: asyncio.Queue[Streams] = asyncio.Queue()
        self._greeting = b""
        self.used: set[int] = set()
        self.loses_commit = False

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        size = int.from_bytes(await reader.readexactly(4))
        startup = size.to_bytes(4) + await reader.readexactly(size - 4)
        if size == 16:  # a request to cancel, which this pooler does not know
            writer.close()
            return
        while self._idle.qsize() < 3:
            await self._connect(startup)
        writer.write(self._greeting)
        backend: Streams | None = None  # the connection that this client's transaction was given
        asking, answering = asyncio.ensure_future(self._message(reader)), None
        try:
            while True:
                await asyncio.wait({asking, answering or asking}, return_when=asyncio.FIRST_COMPLETED)
                if asking.done():
                    if (message := asking.result())[:1] == b"X":
                        return
                    backend = backend or await self._idle.get()
                    self.used.add(id(backend))
                    backend[1].write(message)
                    asking = asyncio.ensure_future(self._message(reader))
                    answering = answering or asyncio.ensure_future(self._message(backend[0]))
                elif answering and backend:
                    answer, answering = answering.result(), None
                    if self.loses_commit and answer == b"C\0\0\0\x0bCOMMIT\0":
                        self.loses_commit = False
                        return
                    writer.write(answer)
                    if answer == b"Z\0\0\0\5I":
                        self._idle.put_nowait(backend)
                        backend = None
                    else:
                        answering = asyncio.ensure_future(self._message(backend[0]))
        except asyncio.IncompleteReadError:
            pass  # the client is gone
        finally:
            asking.cancel()
            if answering:
                answering.cancel()
            if backend:
                backend[1].close()
            writer.close()

    async def _connect(self, startup: bytes) -> None:
        reader, writer = await asyncio.open_unix_connection(self._server)
        writer.write(startup)
        greeting = b""
        while not greeting.endswith(b"Z\0\0\0\5I"):
            message = await self._message(reader)
            greeting += KEY if message[:1] == b"K" else message
        self._greeting = greeting
        self._idle.put_nowait((reader, writer))

    @staticmethod
    async def _message(reader: asyncio.StreamReader) -> bytes:
        head = await reader.readexactly(5)
        return head + await reader.readexactly(int.from_bytes(head[1:]) - 4)

    def close(self) -> None:
        while not self._idle.empty():
            self._idle.get_nowait()[1].close()


@asynccontextmanager
async def pooled(address: str) -> AsyncIterator[tuple[Pooler, str]]:
    """A pooler, and the address by which it is used."""
    host = parse_address(address, space="x").host
    with tempfile.TemporaryDirectory() as folder:
        pooler = Pooler(f"{host}/.s.PGSQL.5432")
        listening = await asyncio.start_unix_server(pooler.serve, f"{folder}/.s.PGSQL.5432")
        try:
            yield pooler, address.replace(quote(host, safe=""), quote(folder, safe=""))
        finally:
            listening.close()
            pooler.close()
            await listening.wait_closed()

"""A server in this process, called without a network."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from pathlib import Path

import httpx2
import pytest
from starlette.applications import Starlette

from mica.settings import Settings
from mica.web.access import Access
from mica.web.app import application
from mica.web.memory_pool import MemoryPool
from mica.web.tokens import TokenFile

BASE = "http://127.0.0.1:6422"


@pytest.fixture
async def pool(tmp_path: Path, home: Settings) -> AsyncIterator[MemoryPool]:
    opened = MemoryPool(tmp_path / "shop.db", settings=home)
    yield opened
    await opened.close()


@pytest.fixture
def access(home: Settings) -> Access:
    return Access(TokenFile(home.home), port=6422)


@pytest.fixture
def app(pool: MemoryPool, access: Access) -> Starlette:
    return application(pool, access=access)


Calling = Callable[..., httpx2.AsyncClient]


@pytest.fixture
def calling(app: Starlette) -> Calling:
    """A factory for clients of the server that send this token."""

    def client(token: str | None = None, **headers: str) -> httpx2.AsyncClient:
        if token is not None:
            headers["authorization"] = f"Bearer {token}"
        return httpx2.AsyncClient(transport=httpx2.ASGITransport(app), base_url=BASE, headers=headers)

    return client


@pytest.fixture
async def client(calling: Calling, access: Access) -> AsyncIterator[httpx2.AsyncClient]:
    """A client with a token for all spaces."""
    async with calling(access.tokens.make("test")[0]) as opened:
        yield opened

"""Fixtures that start the server as a separate process, as clients do, and the revisions that clients speak."""

from __future__ import annotations

import os
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from mcp import Client, StdioServerParameters
from mcp_types import CallToolResult, Implementation, TextContent
from tests.mcp.stdio_client import StdioClient

import mica

SOURCES = Path(mica.__file__).parent.parent
SESSION = "89f4bcb0-c600-471f-8523-f8ca45a1d6d0"
META = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientInfo": {"name": "claude-code", "version": "2.1.325"},
    "io.modelcontextprotocol/clientCapabilities": {},
}
COMMAND = [sys.executable, "-P", "-m", "mica", "mcp"]


Start = Callable[..., StdioClient]


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "shop"
    (folder / ".git").mkdir(parents=True)
    return folder


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """The environment that a client passes on, with a temporary home."""
    inherited = {name: os.environ[name] for name in ("PATH", "LANG") if name in os.environ}
    return {
        **inherited,
        "HOME": str(tmp_path / "home"),
        "PYTHONPATH": str(SOURCES),
        "MICA_SEMANTIC": "off",
        "MICA_BRIEF_DEADLINE_S": "30",
    }


@pytest.fixture
def start(project: Path, environment: dict[str, str]) -> Iterator[Callable[..., StdioClient]]:
    """Start servers, and stop them after the test."""
    clients: list[StdioClient] = []

    def start_server(*words: str, directory: Path = project, **variables: str) -> StdioClient:
        clients.append(StdioClient([*COMMAND, *words], environment=environment | variables, directory=directory))
        return clients[-1]

    yield start_server
    for client in clients:
        if client.process.poll() is None:
            client.process.kill()
        client.process.communicate()


@pytest.fixture(params=["legacy", "2026-07-28", "auto"])
def era(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@asynccontextmanager
async def connected(
    environment: dict[str, str], directory: Path, *words: str, mode: str = "auto", **variables: str
) -> AsyncIterator[Client]:
    """The SDK's client, connected to our server in a separate process."""
    parameters = StdioServerParameters(
        command=sys.executable,
        args=["-P", "-m", "mica", "mcp", *words],
        env=environment | {"CLAUDE_CODE_SESSION_ID": SESSION} | variables,
        cwd=directory,
    )
    about = Implementation(name="claude-code", version="2.1.325")
    async with Client(parameters, mode=mode, client_info=about) as client:
        yield client


def structured(result: CallToolResult) -> dict[str, object]:
    """The structured content of a successful tool result."""
    [content] = result.content
    assert isinstance(content, TextContent)
    assert not result.is_error, content.text
    assert content.text.strip()
    return dict(result.structured_content or {})

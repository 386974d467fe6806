"""A server in a process of its own, as clients start it."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import mica
from mica.testing.stdio import StdioClient

SOURCES = Path(mica.__file__).parent.parent
COMMAND = [sys.executable, "-P", "-m", "mica", "mcp"]


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "shop"
    (folder / ".git").mkdir(parents=True)
    return folder


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """What a client hands down, in a home that is thrown away."""
    kept = {name: os.environ[name] for name in ("PATH", "LANG") if name in os.environ}
    return {
        **kept,
        "HOME": str(tmp_path / "home"),
        "PYTHONPATH": str(SOURCES),
        "MICA_SEMANTIC": "off",
        "MICA_BRIEF_DEADLINE_S": "30",
    }


@pytest.fixture
def start(project: Path, environment: dict[str, str]) -> Iterator[Callable[..., StdioClient]]:
    """Start servers; none is left behind."""
    clients: list[StdioClient] = []

    def started(*words: str, directory: Path = project, **variables: str) -> StdioClient:
        clients.append(StdioClient([*COMMAND, *words], environment=environment | variables, directory=directory))
        return clients[-1]

    yield started
    for client in clients:
        if client.process.poll() is None:
            client.process.kill()
        client.process.communicate()

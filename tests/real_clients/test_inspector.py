"""The official Inspector finds nothing to complain of, over standard output, HTTP and the transport of 2024."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import mica
from mica.mcp.tools import TOOLS

INSPECTOR = Path(os.environ["MICA_TEST_CLIENTS"]) / "node_modules" / ".bin" / "mcp-inspector"
TIMEOUT_S = 120
SOURCES = Path(mica.__file__).parent.parent


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    (tmp_path / "shop" / ".git").mkdir(parents=True)
    kept = {name: os.environ[name] for name in ("PATH", "LANG") if name in os.environ}
    own = {"HOME": str(tmp_path / "home"), "PYTHONPATH": str(SOURCES), "MICA_SEMANTIC": "off"}
    return kept | own | {"MICA_SERVER_MCP_SSE": "true"}


@pytest.fixture
def address(tmp_path: Path, environment: dict[str, str]) -> Iterator[str]:
    """A server as `mica up` starts it."""
    command = [sys.executable, "-P", "-m", "mica", "up", "--yes", "--no-browser", "--port", "0"]
    process = subprocess.Popen(
        command, env=environment, cwd=tmp_path / "shop", stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    assert process.stdout is not None
    link = next(line for line in process.stdout if line.startswith("Open http"))
    yield link.split()[1].partition("/enter")[0]
    process.terminate()
    process.communicate(timeout=TIMEOUT_S)


@pytest.fixture
def headers(tmp_path: Path, environment: dict[str, str]) -> list[str]:
    command = [sys.executable, "-P", "-m", "mica", "server", "token", "make", "inspector", "--json"]
    made = subprocess.run(command, env=environment, cwd=tmp_path / "shop", stdout=subprocess.PIPE, check=True)
    return ["--header", f"Authorization: Bearer {json.loads(made.stdout)['token']}"]


def inspected(*words: str, environment: dict[str, str], folder: Path) -> dict[str, Any]:
    """What the Inspector prints. It exits with 6 where a schema is not portable."""
    done = subprocess.run(
        [INSPECTOR, "--cli", *words], env=environment, cwd=folder, capture_output=True, timeout=TIMEOUT_S, check=False
    )
    assert done.returncode == 0, done.stderr.decode()
    told: dict[str, Any] = json.loads(done.stdout)
    return told


@pytest.mark.parametrize("era", ["legacy", "modern"])
def test_the_inspector_is_content_with_every_schema(
    era: str, tmp_path: Path, environment: dict[str, str], address: str, headers: list[str]
) -> None:
    """keeps: D-12, D-57, TD-08"""
    strictly = ["--method", "tools/list", "--strict", "--protocol-era", era]
    wires = [
        [*strictly, sys.executable, "-P", "-m", "mica.mcp"],
        [f"{address}/mcp", "--transport", "http", *headers, *strictly],
    ]
    if era == "legacy":
        wires.append([f"{address}/mcp/sse", "--transport", "sse", *headers, *strictly])
    for words in wires:
        told = inspected(*words, environment=environment, folder=tmp_path / "shop")
        assert [tool["name"] for tool in told["tools"]] == [tool.name for tool in TOOLS]


@pytest.mark.parametrize("era", ["legacy", "modern"])
def test_the_inspector_lists_calls_and_reads(
    era: str, tmp_path: Path, environment: dict[str, str], address: str, headers: list[str]
) -> None:
    """keeps: D-12"""
    common = [f"{address}/mcp", "--transport", "http", *headers, "--protocol-era", era, "--method"]
    asked = {
        "prompts/list": [],
        "resources/list": [],
        "resources/templates/list": [],
        "resources/read": ["--uri", "mica://crystals"],
        "prompts/get": ["--prompt-name", "handoff"],
        "tools/call": ["--tool-name", "search", "--tool-arg", "query=cookie"],
    }
    for method, words in asked.items():
        told = inspected(*common, method, *words, environment=environment, folder=tmp_path / "shop")
        assert "error" not in told, (method, told)

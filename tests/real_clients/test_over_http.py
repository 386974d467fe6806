"""Real coding agents reach the memory of a server: they list its tools over HTTP, and what they call is done."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest
from tests.real_clients.loopback import ScriptedCall, ScriptedModelServer, ScriptedStep
from tests.real_clients.test_agents import AGENTS, CHOSEN, TIMEOUT_S, Environment, environment_of, run_agent, run_mica

SAID = "The session cookie is set before the redirect"
Connect = Callable[[Path, Path, str, str], tuple[str, ...]]  # home, project, address, token; what is said beside


def connect_claude(home: Path, project: Path, address: str, token: str) -> tuple[str, ...]:
    server = {"type": "http", "url": address, "headers": {"Authorization": f"Bearer {token}"}}
    (home / "mcp.json").write_text(json.dumps({"mcpServers": {"mica": server}}))
    return ("--mcp-config", str(home / "mcp.json"), "--strict-mcp-config", "--allowedTools", "mcp__mica__mark")


def connect_codex(home: Path, project: Path, address: str, token: str) -> tuple[str, ...]:
    with (home / ".codex/config.toml").open("a") as file:
        file.write(f'[mcp_servers.mica]\nurl = "{address}"\nhttp_headers = {{ Authorization = "Bearer {token}" }}\n')
    return ()


def connect_copilot(home: Path, project: Path, address: str, token: str) -> tuple[str, ...]:
    server = {"type": "http", "url": address, "headers": {"Authorization": f"Bearer {token}"}, "tools": ["*"]}
    (home / ".copilot").mkdir(exist_ok=True)
    (home / ".copilot/mcp-config.json").write_text(json.dumps({"mcpServers": {"mica": server}}))
    return ()


def connect_gemini(home: Path, project: Path, address: str, token: str) -> tuple[str, ...]:
    server = {"httpUrl": address, "headers": {"Authorization": f"Bearer {token}"}}
    add(home / ".gemini/settings.json", "mcpServers", server)
    return ()


def connect_opencode(home: Path, project: Path, address: str, token: str) -> tuple[str, ...]:
    server = {"type": "remote", "url": address, "headers": {"Authorization": f"Bearer {token}"}, "oauth": False}
    add(home / ".config/opencode/opencode.json", "mcp", server)
    return ()


def add(path: Path, table: str, server: Mapping[str, object]) -> None:
    path.write_text(json.dumps(json.loads(path.read_text()) | {table: {"mica": server}}))


CONNECTED: dict[str, tuple[Connect, ScriptedCall]] = {
    "claude-code": (connect_claude, ScriptedCall("mcp__mica__mark", {"text": SAID})),
    "codex": (connect_codex, ScriptedCall("mark", {"text": SAID}, namespace="mcp__mica")),
    "copilot": (connect_copilot, ScriptedCall("mica-mark", {"text": SAID})),
    "gemini": (connect_gemini, ScriptedCall("mcp_mica_mark", {"text": SAID})),
    "opencode": (connect_opencode, ScriptedCall("mica_mark", {"text": SAID})),
}


@pytest.fixture
def address(home: Path, project: Path) -> Iterator[str]:
    """A server as `mica up` starts it."""
    command = [sys.executable, "-P", "-m", "mica", "up", "--yes", "--no-browser", "--no-import", "--port", "0"]
    process = subprocess.Popen(
        command, env=environment_of(home), cwd=project, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    assert process.stdout is not None
    link = next(line for line in process.stdout if line.startswith("Open http"))
    yield link.split()[1].partition("/enter")[0] + "/mcp"
    process.terminate()
    process.communicate(timeout=TIMEOUT_S)


@pytest.mark.parametrize("name", [each for each in CONNECTED if each in CHOSEN])
def test_a_real_agent_marks_over_http(name: str, home: Path, project: Path, address: str) -> None:
    """keeps: D-12, D-57"""
    token = json.loads(run_mica(home, project, "server", "token", "make", name, "--json"))["token"]
    agent, (connect, call) = AGENTS[name], CONNECTED[name]
    with ScriptedModelServer([ScriptedStep(calls=[call]), ScriptedStep("Noted.")]) as models:
        variables: Environment = agent.prepare(home, project, models.address)
        beside = connect(home, project, address, token)

        done = run_agent(agent, home, project, variables, *beside)

    assert done.returncode == 0, done.stdout + done.stderr
    assert agent.offer in json.dumps(models.requests[0]), "the tools are offered"
    found = run_mica(home, project, "search", "session cookie", "--json")
    assert SAID in found

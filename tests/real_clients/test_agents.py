"""Real coding agents with mica installed: they finish their script, receive the brief, and their work is recorded.

`MICA_TEST_CLIENTS` is the folder with their npm packages, and `MICA_TEST_CLIENTS_ONLY` may name some of them.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import msgspec
import pytest
from tests.real_clients.loopback import Body, ScriptedCall, ScriptedModelServer, ScriptedStep

import mica
from mica.model.event import Event, EventQuery
from mica.settings import Settings

PROGRAMS = Path(os.environ["MICA_TEST_CLIENTS"]) / "node_modules" / ".bin"
TIMEOUT_S = 240
PROMPT = "Explain how auth works"
KNOWN = "The session cookie is set before the redirect"
Environment = dict[str, str]
Done = subprocess.CompletedProcess[str]


class Agent(msgspec.Struct, frozen=True, kw_only=True):
    """A program, how to run it, and the events that its script leads to."""

    name: str  # as `mica install` calls it
    words: tuple[str, ...]
    steps: Callable[[Path], list[ScriptedStep]]
    prepare: Callable[[Path, Path, str], Environment]  # home, project, address of the models
    reads: tuple[tuple[str, int, int], ...]
    edits: tuple[str, ...] = ()
    conversation: Callable[[Body], list[object]]
    offer: str = "text for the next agent"  # in each request that offers mica's tools; by default from a description


def claude_steps(project: Path) -> list[ScriptedStep]:
    auth, db = str(project / "src/auth.py"), str(project / "src/db.py")
    return [
        ScriptedStep("Let me look.", [ScriptedCall("Read", {"file_path": auth, "offset": 10, "limit": 30})]),
        ScriptedStep(calls=[ScriptedCall("Bash", {"command": "sed -n '1,5p' src/db.py", "description": "Show lines"})]),
        ScriptedStep(calls=[ScriptedCall("Read", {"file_path": db})]),
        ScriptedStep(
            calls=[
                ScriptedCall(
                    "Edit", {"file_path": db, "old_string": "# db line 7\n", "new_string": "# db line SEVEN\n"}
                )
            ]
        ),
        ScriptedStep("All done: auth is in src/auth.py."),
    ]


def prepare_claude(home: Path, project: Path, address: str) -> Environment:
    return {
        "ANTHROPIC_BASE_URL": address,
        "ANTHROPIC_API_KEY": "dummy",
        "DISABLE_AUTOUPDATER": "1",
        "DISABLE_TELEMETRY": "1",
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        # By default it waits two seconds for MCP servers and then sends its first request without their tools.
        "MCP_CONNECTION_NONBLOCKING": "false",
        "MCP_CONNECT_TIMEOUT_MS": str(TIMEOUT_S * 1000),
        "MCP_TIMEOUT": str(TIMEOUT_S * 1000),
    }


def codex_steps(project: Path) -> list[ScriptedStep]:
    return [
        ScriptedStep(
            "Let me look.",
            [ScriptedCall("exec_command", {"cmd": "sed -n '10,39p' src/auth.py", "workdir": str(project)})],
        ),
        ScriptedStep(calls=[ScriptedCall("exec_command", {"cmd": "cat src/db.py | head -5", "workdir": str(project)})]),
        ScriptedStep("All done: auth is in src/auth.py."),
    ]


def prepare_codex(home: Path, project: Path, address: str) -> Environment:
    # By default it waits one second for MCP servers and then sends its first request without their tools; 0 means that
    # it waits until they have started.
    (home / ".codex").mkdir()
    (home / ".codex/config.toml").write_text(
        f"""model = "mock-model"
model_provider = "mock"
approval_policy = "never"
sandbox_mode = "danger-full-access"
check_for_update_on_startup = false
mcp_optional_startup_grace_ms = 0
[analytics]
enabled = false
[model_providers.mock]
name = "mock"
base_url = "{address}/v1"
wire_api = "responses"
env_key = "MOCK_KEY"
requires_openai_auth = false
supports_websockets = false
"""
    )
    return {"MOCK_KEY": "dummy"}


def copilot_steps(project: Path) -> list[ScriptedStep]:
    auth, db = str(project / "src/auth.py"), str(project / "src/db.py")
    return [
        ScriptedStep("Let me look.", [ScriptedCall("view", {"path": auth, "view_range": [10, 39]})]),
        ScriptedStep(calls=[ScriptedCall("bash", {"command": "sed -n '1,5p' src/db.py", "description": "Show lines"})]),
        ScriptedStep(
            calls=[ScriptedCall("edit", {"path": db, "old_str": "# db line 7\n", "new_str": "# db line SEVEN\n"})]
        ),
        ScriptedStep("All done: auth is in src/auth.py."),
    ]


def prepare_copilot(home: Path, project: Path, address: str) -> Environment:
    return {
        "COPILOT_PROVIDER_BASE_URL": f"{address}/v1",
        "COPILOT_MODEL": "mock-model",
        "COPILOT_OFFLINE": "true",
        "COPILOT_AUTO_UPDATE": "false",
    }


def gemini_steps(project: Path) -> list[ScriptedStep]:
    db = str(project / "src/db.py")
    edit: dict[str, object] = {
        "file_path": db,
        "instruction": "x",
        "old_string": "# db line 7\n",
        "new_string": "# SEVEN\n",
    }
    return [
        ScriptedStep(
            "Let me look.", [ScriptedCall("read_file", {"file_path": "src/auth.py", "start_line": 10, "end_line": 39})]
        ),
        ScriptedStep(
            calls=[
                ScriptedCall("run_shell_command", {"command": "sed -n '1,5p' src/db.py", "description": "Show lines"})
            ]
        ),
        ScriptedStep(calls=[ScriptedCall("replace", edit)]),
        ScriptedStep("All done: auth is in src/auth.py."),
    ]


def prepare_gemini(home: Path, project: Path, address: str) -> Environment:
    settings = {
        "security": {"auth": {"selectedType": "gemini-api-key"}, "folderTrust": {"enabled": False}},
        "privacy": {"usageStatisticsEnabled": False},
        "telemetry": {"enabled": False},
        "general": {"enableAutoUpdate": False},
    }
    (home / ".gemini").mkdir()
    (home / ".gemini/settings.json").write_text(json.dumps(settings))
    return {"GEMINI_API_KEY": "dummy", "GOOGLE_GEMINI_BASE_URL": address}


def opencode_steps(project: Path) -> list[ScriptedStep]:
    auth, db = str(project / "src/auth.py"), str(project / "src/db.py")
    return [
        ScriptedStep("Let me look.", [ScriptedCall("read", {"filePath": auth, "offset": 10, "limit": 30})]),
        ScriptedStep(calls=[ScriptedCall("bash", {"command": "sed -n '1,5p' src/db.py", "description": "Show lines"})]),
        ScriptedStep(calls=[ScriptedCall("read", {"filePath": db})]),
        ScriptedStep(
            calls=[ScriptedCall("edit", {"filePath": db, "oldString": "# db line 7\n", "newString": "# SEVEN\n"})]
        ),
        ScriptedStep("All done: auth is in src/auth.py."),
    ]


def prepare_opencode(home: Path, project: Path, address: str) -> Environment:
    model = {"name": "mock", "limit": {"context": 200_000, "output": 8_000}, "tool_call": True}
    provider = {
        "npm": "@ai-sdk/openai-compatible",
        "name": "mock",
        "options": {"baseURL": f"{address}/v1", "apiKey": "dummy"},
        "models": {"mock-model": model},
    }
    chosen = {"model": "mock/mock-model", "small_model": "mock/mock-model", "permission": {"*": "allow"}}
    settings = {"autoupdate": False, "share": "disabled", **chosen, "provider": {"mock": provider}}
    (home / ".config/opencode").mkdir(parents=True)
    (home / ".config/opencode/opencode.json").write_text(json.dumps(settings, indent=2))
    return {
        "OPENCODE_DISABLE_AUTOUPDATE": "1",
        "OPENCODE_DISABLE_MODELS_FETCH": "1",
        "OPENCODE_DISABLE_LSP_DOWNLOAD": "1",
    }


def messages_of(body: Body) -> list[object]:
    """A conversation, written in one way: without cache marks, and every content as a list."""

    def plain(value: object) -> object:
        if isinstance(value, dict):
            kept = {name: plain(inner) for name, inner in value.items() if name != "cache_control"}
            if isinstance(kept.get("content"), str):
                kept["content"] = [{"type": "text", "text": kept["content"]}]
            return kept
        return [plain(inner) for inner in value] if isinstance(value, list) else value

    return [plain(body.get("tools")), plain(body.get("system")), plain(body.get("systemInstruction"))] + [
        plain(message) for message in body.get("messages") or body.get("input") or body.get("contents") or []
    ]


AGENTS = {
    agent.name: agent
    for agent in (
        Agent(
            name="claude-code",
            words=("claude", "-p", PROMPT, "--allowedTools", "Read,Edit,Bash"),
            steps=claude_steps,
            prepare=prepare_claude,
            reads=(("src/auth.py", 10, 39), ("src/db.py", 1, 5), ("src/db.py", 1, 60)),
            edits=("src/db.py",),
            conversation=messages_of,
            offer="mica__handoff",  # it sends the names of MCP tools; descriptions follow when the model searches them
        ),
        Agent(
            name="codex",
            words=("codex", "exec", "--dangerously-bypass-hook-trust", PROMPT),
            steps=codex_steps,
            prepare=prepare_codex,
            reads=(("src/auth.py", 10, 39), ("src/db.py", 1, 5)),
            conversation=messages_of,
        ),
        Agent(
            name="copilot",
            words=("copilot", "-p", PROMPT, "--allow-all-tools"),
            steps=copilot_steps,
            prepare=prepare_copilot,
            reads=(("src/auth.py", 10, 39), ("src/db.py", 1, 5)),
            edits=("src/db.py",),
            conversation=messages_of,
        ),
        Agent(
            name="gemini",
            words=("gemini", "--yolo", "-m", "gemini-3.1-pro-preview", "-p", PROMPT),
            steps=gemini_steps,
            prepare=prepare_gemini,
            reads=(("src/auth.py", 10, 39), ("src/db.py", 1, 5)),
            edits=("src/db.py",),
            conversation=messages_of,
        ),
        Agent(
            name="opencode",
            words=("opencode", "run", PROMPT),
            steps=opencode_steps,
            prepare=prepare_opencode,
            reads=(("src/auth.py", 10, 39), ("src/db.py", 1, 5), ("src/db.py", 1, 60)),
            edits=("src/db.py",),
            conversation=messages_of,
        ),
    )
}
CHOSEN = os.environ.get("MICA_TEST_CLIENTS_ONLY", "").split() or list(AGENTS)


def environment_of(home: Path, **more: str) -> Environment:
    kept = {name: os.environ[name] for name in ("PATH", "LANG", "PYTHONPATH") if name in os.environ}
    return {**kept, "HOME": str(home), "MICA_SEMANTIC": "off", "MICA_BRIEF_DEADLINE_S": "30", **more}


def run_mica(home: Path, project: Path, *words: str) -> str:
    done = run(sys.executable, "-P", "-m", "mica", *words, environment=environment_of(home), folder=project)
    assert done.returncode == 0, done.stderr
    return done.stdout


def run_agent(agent: Agent, home: Path, project: Path, variables: Environment, *beside: str) -> Done:
    program, *words = agent.words
    return run(str(PROGRAMS / program), *words, *beside, environment=environment_of(home, **variables), folder=project)


def run(*command: str, environment: Environment, folder: Path) -> Done:
    return subprocess.run(
        command,
        env=environment,
        cwd=folder,
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        timeout=TIMEOUT_S,
        check=False,
    )


async def events_of(settings: Settings, project: Path) -> list[Event]:
    from mica.store.space import space_of

    async with mica.open(space_of(project, home=settings.home).file, settings=settings) as memory:
        await memory.clients.ingest()
        return await memory.events.query(EventQuery(limit=None))


@pytest.mark.parametrize("name", CHOSEN)
async def test_a_real_agent_is_told_what_is_known_and_leaves_what_it_did(name: str, home: Path, project: Path) -> None:
    """keeps: A-12, A-18, D-12.

    Hooks fire once and in order, a brief stands in the first request, and no cache is broken.
    """
    agent = AGENTS[name]
    run_mica(home, project, "mark", KNOWN, "--tag", "gotcha")
    with ScriptedModelServer(agent.steps(project)) as models:
        variables = agent.prepare(home, project, models.address)
        run_mica(home, project, "install", name, "--yes")
        run_mica(home, project, "ingest")  # renders the brief of the next session

        done = run_agent(agent, home, project, variables)

    assert done.returncode == 0, done.stdout + done.stderr
    assert len(models.requests) == len(agent.steps(project))
    assert KNOWN in json.dumps(models.requests[0]), "the brief stands in the first request"
    conversations = [agent.conversation(body) for body in models.requests]
    for before, after in pairwise(conversations):
        assert after[: len(before)] == before, "each request is a prefix of the next"
    assert any(agent.offer in json.dumps(body) for body in models.requests), "the tools are offered"

    events = await events_of(mica.load_settings(environment_of(home)), project)
    names = [event.name for event in events]
    reads = [
        (str(event.data["path"]), event.data["start_line"], event.data["end_line"])
        for event in events
        if event.name == "file.read"
    ]
    edits = [str(event.data["path"]) for event in events if event.name == "file.edit"]
    prompts = [event for event in events if event.name == "mark" and "prompt" in event.data["tags"]]  # type: ignore[operator]
    assert tuple(reads) == agent.reads
    assert tuple(edits) == agent.edits
    assert [str(event.data["text"]).strip('"') for event in prompts] == [PROMPT]  # OpenCode quotes what has blanks
    assert names.count("session.started") == 1
    assert len({event.context.session for event in events if event.name.startswith("file.")}) == 1


@pytest.mark.parametrize("ingests", [True, False], ids=["an ingest follows", "nothing ingests"])
@pytest.mark.parametrize("name", [name for name in ("claude-code", "codex") if name in CHOSEN])
def test_the_next_session_is_told_what_the_last_one_did(name: str, ingests: bool, home: Path, project: Path) -> None:
    """keeps: A-01, A-18. Also if it begins the moment the last one ended, and if only the spool has its words."""
    agent = AGENTS[name]
    run_mica(home, project, "mark", KNOWN, "--tag", "gotcha")
    steps = agent.steps(project)
    with ScriptedModelServer([*steps, *steps]) as models:
        variables = agent.prepare(home, project, models.address)
        run_mica(home, project, "install", name, "--yes")
        if not ingests:
            (home / ".local/share/mica/ingest-command").unlink()

        sessions = [run_agent(agent, home, project, variables) for _ in range(2)]

    assert [done.returncode for done in sessions] == [0, 0], sessions
    first, second = json.dumps(models.requests[0]), json.dumps(models.requests[len(steps)])
    assert KNOWN in first, "the first session after an install receives a brief"
    assert KNOWN in second
    assert steps[-1].text not in first
    assert steps[-1].text in second
    assert PROMPT in second.replace(PROMPT, "", 1), "the earlier prompt, besides its own"


@pytest.mark.skipif("claude-code" not in CHOSEN, reason="Claude Code was not asked for")
def test_claude_code_finds_the_plugin_valid(home: Path, project: Path) -> None:
    """Its own strict validation."""
    run_mica(home, project, "install", "claude-code", "--yes")
    plugin = home / ".local/share/mica/plugin"

    for folder in (plugin, plugin / "nav"):
        command = [str(PROGRAMS / "claude"), "plugin", "validate", "--strict", str(folder)]
        done = subprocess.run(command, env=environment_of(home), capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.skipif("claude-code" not in CHOSEN, reason="Claude Code was not asked for")
def test_taken_out_again_nothing_of_ours_is_left_in_claude_code(home: Path, project: Path) -> None:
    with ScriptedModelServer([ScriptedStep("Hello.")]) as models:
        variables = prepare_claude(home, project, models.address)
        run_mica(home, project, "install", "claude-code", "--yes")
        command = [str(PROGRAMS / "claude"), "-p", PROMPT]
        subprocess.run(
            command,
            env=environment_of(home, **variables),
            cwd=project,
            check=True,
            stdin=subprocess.DEVNULL,
            timeout=TIMEOUT_S,
        )
    run_mica(home, project, "uninstall", "--yes")

    listed = subprocess.run(
        [str(PROGRAMS / "claude"), "plugin", "list"],
        env=environment_of(home),
        capture_output=True,
        text=True,
        check=True,
    )
    assert "nav@mica" not in listed.stdout
    assert not (home / ".claude/settings.json").exists()

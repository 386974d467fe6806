"""The tools and prompts, as the official SDK's client sees them in both eras, and what they ask of memory."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
import pytest
from mcp import Client, StdioServerParameters
from mcp_types import CallToolResult, Implementation, TextContent

import mica
from mica.mcp.tools import TOOLS
from mica.model.event import EventQuery
from mica.model.walk import WALKED, step_of, walks_of
from mica.settings import Settings
from mica.testing.postgres import Server
from mica.testing.stdio import StdioClient

Start = Callable[..., StdioClient]

SCHEMA_TOKENS_MAX = 1_200
SESSION = "89f4bcb0-c600-471f-8523-f8ca45a1d6d0"


@pytest.fixture(params=["legacy", "2026-07-28", "auto"])
def era(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(params=["sqlite", "postgres"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Where the space is."""
    if request.param == "sqlite":
        return str(tmp_path / "space.db")
    server: Server = request.getfixturevalue("server")
    return server.address()


@asynccontextmanager
async def connected(
    environment: dict[str, str], directory: Path, *words: str, mode: str = "auto", **variables: str
) -> AsyncIterator[Client]:
    """The SDK's client, connected to our server in a process of its own."""
    parameters = StdioServerParameters(
        command=sys.executable,
        args=["-P", "-m", "mica", "mcp", *words],
        env=environment | {"CLAUDE_CODE_SESSION_ID": SESSION} | variables,
        cwd=directory,
    )
    about = Implementation(name="claude-code", version="2.1.325")
    async with Client(parameters, mode=mode, client_info=about) as client:
        yield client


def told(result: CallToolResult) -> dict[str, object]:
    """What a tool answered: the same as text and as a value."""
    [content] = result.content
    assert isinstance(content, TextContent)
    assert not result.is_error, content.text
    assert msgspec.json.decode(content.text) == result.structured_content
    return dict(result.structured_content or {})


async def test_a_real_client_lists_and_calls_every_tool(
    era: str, store: str, environment: dict[str, str], project: Path
) -> None:
    """TD-08, D-12, B-33: the SDK checks every answer against the tool's own output schema."""
    (project / "login").mkdir()
    (project / "login" / "cookie.py").write_text("def set_cookie(): ...\n")
    async with connected(environment, project, "--store", store, mode=era) as client:
        listed = {tool.name: tool for tool in (await client.list_tools()).tools}
        assert list(listed) == ["brief", "search", "mark", "navigate", "crystal_commit", "why"]
        texts = [f"The session cookie is set before the redirect in step {number} of the login" for number in range(5)]
        marked = [told(await client.call_tool("mark", {"text": text, "tags": ["gotcha"]})) for text in texts]
        numbers = [str(each["number"]) for each in marked]
        found = told(await client.call_tool("search", {"query": "session cookie redirect", "limit": 3}))
        brief = told(await client.call_tool("brief", {"query": "login cookie", "budget_tokens": 500}))
        shown = told(await client.call_tool("why", {"id": brief["receipt"]}))
        statement = {"text": "Login sets its cookie too early", "marks": numbers[:2]}
        crystal = told(await client.call_tool("crystal_commit", {"statements": [statement], "topics": ["login"]}))
        under = told(await client.call_tool("why", {"id": crystal["number"]}))
        files = told(await client.call_tool("navigate", {"task": "login cookie"}))

    assert [each["text"] for each in marked] == texts
    assert len(msgspec.convert(found["hits"], list[dict[str, object]])) == 3
    assert texts[0] in str(brief["text"])
    assert texts[0] in str(shown["because"])
    assert (crystal["period"], crystal["marks"], crystal["not_taken_up"]) == (f"session:{SESSION}", 5, 3)
    assert texts[1] in str(under["because"])
    assert texts[4] not in str(under["because"])
    assert [place["path"] for place in msgspec.convert(files["files"], list[dict[str, object]])] == ["login/cookie.py"]
    async with mica.open(store, settings=settings_of(environment)) as memory:
        stored = await memory.events(EventQuery(names=("mark",)))
        [made] = await memory.crystals()
    assert {event.origin for event in stored} == {"agent"}
    assert {event.context.session for event in stored} == {SESSION}
    assert {dict(event.context.labels)["client"] for event in stored} == {"claude-code"}
    assert made.method == "committed:claude-code"


async def test_a_crystallized_trail_is_a_prompt(start: Start, environment: dict[str, str], tmp_path: Path) -> None:
    """A-19: listed by its name, and read whenever somebody lists."""
    place = tmp_path / "space.db"
    client = start("--store", str(place))
    client.opened()
    assert [each["name"] for each in client.request("prompts/list")["result"]["prompts"]] == ["handoff"]

    async with mica.open(place, settings=settings_of(environment)) as memory:
        seen = memory.emit("file.read", {"path": "auth/session.py", "start_line": 40, "end_line": 92})
        step = step_of(await memory.event(seen))
        assert step is not None
        trail = await memory.trails.create("auth", [step], description="How the session cookie is set")

    listed = client.request("prompts/list")["result"]["prompts"]
    assert {each["name"]: each["description"] for each in listed}[f"nav_{trail.slug}"] == trail.description
    [message] = client.request("prompts/get", name="nav_auth")["result"]["messages"]
    assert "auth/session.py:40-92" in message["content"]["text"]
    assert "mica-hash" not in message["content"]["text"]


async def test_mark_reports_the_use_of_a_trail(start: Start, environment: dict[str, str], tmp_path: Path) -> None:
    """A-19: whoever followed a trail says how it ended, and its figures follow."""
    place = tmp_path / "space.db"
    client = start("--store", str(place), CLAUDE_CODE_SESSION_ID=SESSION)
    client.opened()
    async with mica.open(place, settings=settings_of(environment)) as memory:
        seen = memory.emit("file.read", {"path": "auth/session.py", "start_line": 40, "end_line": 92})
        step = step_of(await memory.event(seen))
        assert step is not None
        await memory.trails.create("auth", [step])

    told = client.call("mark", text="The cookie was found at once", trail="nav:auth", outcome="success")
    unknown = client.call("mark", text="It led nowhere", trail="nav:nowhere", outcome="failure")

    assert told["isError"] is False
    assert "nowhere" in unknown["content"][0]["text"]
    async with mica.open(place, settings=settings_of(environment)) as memory:
        [used] = await memory.events(EventQuery(names=("trail.used",)))
        trail = await memory.trails.show("auth")
        marks = await memory.search("cookie nowhere")
    assert (used.data["outcome"], used.context.session) == ("success", SESSION)
    assert (trail.runs, trail.successes) == (1, 1)
    assert len(marks) == 1  # what names no trail records nothing


async def test_mark_takes_the_walk_of_a_build_workflow(
    start: Start, environment: dict[str, str], tmp_path: Path
) -> None:
    """A-11, A-20: an orchestrator without hooks reports what an agent opened, and trails are learned from it."""
    place = tmp_path / "space.db"
    client = start("--store", str(place), CLAUDE_CODE_SESSION_ID=SESSION)
    client.opened()
    steps = [{"path": "src/login.py", "start_line": 1, "end_line": 9}, {"path": "src/page.py", "operation": "edit"}]
    for _ in range(2):
        told = client.call("mark", text="Build the login page", steps=steps, outcome="success", workflow="adw_build")
        assert told["isError"] is False

    async with mica.open(place, settings=settings_of(environment)) as memory:
        walks = walks_of(await memory.events(EventQuery(names=WALKED)))
        [trail] = await memory.trails.list()
    assert [(walk.task, walk.outcome) for walk in walks] == [("adw_build", "success")] * 2
    assert [step.operation for step in walks[0].steps] == ["read", "edit"]
    assert (trail.paths, trail.shape, trail.runs) == (("src/login.py", "src/page.py"), "adw_build", 2)


def test_a_server_that_was_started_in_its_own_plugin_says_so(start: Start, tmp_path: Path) -> None:
    """Copilot CLI and Codex start a plugin's server there, depending on how it is declared."""
    (tmp_path / ".claude-plugin").mkdir()
    (tmp_path / ".claude-plugin" / "plugin.json").touch()
    client = start(directory=tmp_path)
    client.opened()

    result = client.call("mark", text="Somebody was here")

    assert result["isError"] is True
    assert "which is no project" in result["content"][0]["text"]


def settings_of(environment: dict[str, str]) -> Settings:
    return mica.load_settings(environment)


def test_all_schemas_fit_into_the_budget_and_are_flat() -> None:
    """U-12, D-57: every client sends them with every request, so they are few, short and written out."""
    listed = [tool.listed() for tool in TOOLS]
    text = msgspec.json.encode(listed).decode()

    assert len(TOOLS) <= 6
    assert len(text) / 4 <= SCHEMA_TOKENS_MAX
    for word in ("$ref", "$defs", "enum", "anyOf", "oneOf"):
        assert f'"{word}"' not in text
    for tool in listed:
        assert tool["title"]
        assert tool["annotations"]


def test_the_list_of_tools_is_the_same_to_the_byte(start: Start) -> None:
    answers = []
    for _ in range(2):
        client = start()
        client.opened()
        answers += [msgspec.json.encode(client.request("tools/list")["result"]) for _ in range(2)]

    assert len(set(answers)) == 1


def test_every_tool_takes_what_its_schema_says() -> None:
    for tool in TOOLS:
        fields = {field.name: field.required for field in msgspec.structs.fields(tool.takes)}
        assert set(tool.inputs) == set(fields)
        assert set(tool.required) == {name for name, is_required in fields.items() if is_required}


def test_a_call_that_cannot_be_served_is_an_answer_that_says_why(start: Start) -> None:
    client = start()
    client.opened()

    refused: list[tuple[str, dict[str, object], str]] = [
        ("mark", {}, "`text`"),
        ("mark", {"text": "  "}, "needs a text"),
        ("mark", {"text": 7}, "$.text"),
        ("mark", {"text": "x", "tags": ["two words"]}, "tag"),
        ("mark", {"text": "x", "parent": "#999"}, "#999"),
        ("mark", {"text": "x", "steps": [{"path": "a.py", "operation": "fly"}]}, "fly"),
        ("mark", {"text": "x", "steps": [{"path": "a.py"}], "why": "y"}, "mark the rest by itself"),
        ("mark", {"text": "x", "outcome": "success"}, "give its steps"),
        ("search", {"query": ""}, "no word to search for"),
        ("search", {"query": "x", "limit": 0}, "limit"),
        ("search", {"query": "x", "since": "when pigs fly"}, "when pigs fly"),
        ("brief", {"budget_tokens": -1}, "budget_tokens"),
        ("brief", {"budget_tokens": 0}, "budget_tokens"),
        ("crystal_commit", {"statements": [{"text": "x", "marks": ["#1"]}]}, "#1"),
        ("why", {"id": "#999"}, "#999"),
    ]
    for name, arguments, reason in refused:
        result = client.call(name, **arguments)
        assert result["isError"] is True
        assert reason in result["content"][0]["text"], result
        assert "structuredContent" not in result


def test_numbers_may_be_written_as_text_and_what_is_not_known_is_ignored(start: Start) -> None:
    client = start()
    client.opened()

    assert client.call("search", query="x", limit="5", of_tomorrow=True)["structuredContent"] == {"hits": []}


def test_recalled_text_is_not_marked_again(start: Start) -> None:
    client = start()
    client.opened()
    client.call("mark", text="The cookie is set before the redirect")
    brief = client.call("brief", query="cookie")["structuredContent"]

    refused = client.call("mark", text=f"I learned: {brief['text']}")

    assert refused["isError"] is True
    assert "recalled" in refused["content"][0]["text"]


def test_secrets_do_not_pass(start: Start) -> None:
    client = start()
    client.opened()

    stored = client.call("mark", text="The key is AKIAIOSFODNN7EXAMPLE")["structuredContent"]

    assert "AKIAIOSFODNN7EXAMPLE" not in stored["text"]
    assert "AKIAIOSFODNN7EXAMPLE" not in str(client.call("search", query="key"))


def test_reading_makes_no_space_and_a_mark_does(start: Start, environment: dict[str, str]) -> None:
    client = start()
    client.opened()
    spaces = settings_of(environment).home / "spaces"

    assert client.call("brief")["isError"] is False
    assert client.call("search", query="x")["isError"] is False
    assert not list(spaces.glob("*.db"))
    client.call("mark", text="The cookie is set before the redirect")

    assert len(list(spaces.glob("*.db"))) == 1
    assert len(client.call("search", query="cookie")["structuredContent"]["hits"]) == 1


def test_the_project_is_named_by_option_then_variable_then_root_then_directory(
    start: Start, project: Path, tmp_path: Path, environment: dict[str, str]
) -> None:
    """A `.git` makes each folder a space of its own, which carries its name."""
    folders = {}
    for name in ("option", "variable", "root", "directory"):
        folders[name] = tmp_path / name
        (folders[name] / ".git").mkdir(parents=True)
    root = {"roots": [{"uri": "file:///no/such"}, {"uri": folders["root"].as_uri(), "name": "root"}]}
    named = {"CLAUDE_PROJECT_DIR": str(folders["variable"])}

    def marked(*words: str, variables: dict[str, str], offers_roots: bool = True) -> None:
        client = start(*words, directory=folders["directory"], **variables)
        client.opened(**({"roots": {}} if offers_roots else {}))
        if offers_roots and not words and not variables:
            asked = client.receive()
            assert asked["method"] == "roots/list"
            client.send({"jsonrpc": "2.0", "id": asked["id"], "result": root})
        client.call("mark", text="Somebody was here")
        client.leave()

    marked("--root", str(folders["option"]), variables=named)
    marked(variables=named)
    marked(variables={})
    marked(variables={}, offers_roots=False)

    made = (settings_of(environment).home / "spaces").glob("*.db")
    assert sorted(path.name.rpartition("-")[0] for path in made) == ["directory", "option", "root", "variable"]


async def test_a_mark_descends_from_what_the_caller_was_doing(
    start: Start, environment: dict[str, str], tmp_path: Path
) -> None:
    """E-36: `traceparent`, `tracestate` and `baggage` in `_meta` name the parent and the context."""
    async with mica.open(tmp_path / "space.db", settings=settings_of(environment)) as memory:
        with memory.context(session="s1", agent="scout"):
            cause = memory.emit("task.began", {})
            with memory.context(parent=cause):
                carrier = memory.carrier()
    client = start("--store", str(tmp_path / "space.db"), CLAUDE_CODE_SESSION_ID=SESSION)
    client.opened()

    result = client.request("tools/call", name="mark", arguments={"text": "Seen"}, _meta=carrier)["result"]

    async with mica.open(tmp_path / "space.db", settings=settings_of(environment)) as memory:
        seen = await memory.event(result["structuredContent"]["id"])
    assert seen.parent_id == cause.id
    assert (seen.context.session, seen.context.agent) == ("s1", "scout")


async def test_a_client_that_names_no_session_is_in_the_one_that_its_hooks_tell_of(
    start: Start, environment: dict[str, str], tmp_path: Path
) -> None:
    """Codex, Gemini CLI and OpenCode hand none down; where two are open, nobody guesses."""
    place = tmp_path / "space.db"

    async def marked(*sessions: str) -> str | None:
        async with mica.open(place, settings=settings_of(environment)) as memory:
            for session in sessions:
                with memory.context(session=session, client="codex"):
                    memory.emit("turn.started", {})
        client = start("--store", str(place))
        client.request("initialize", protocolVersion="2025-06-18", clientInfo={"name": "codex-mcp-client"})
        told = client.call("mark", text="Somebody was here")["structuredContent"]
        client.leave()
        async with mica.open(place, settings=settings_of(environment)) as memory:
            return (await memory.event(told["id"])).context.session

    assert await marked() is None
    assert await marked("first") == "first"
    assert await marked("second") is None


def test_what_clients_start_is_the_same_server(environment: dict[str, str], project: Path) -> None:
    """They start `python -m mica.mcp`, which leaves out the other commands."""
    client = StdioClient([sys.executable, "-P", "-m", "mica.mcp"], environment=environment, directory=project)
    client.opened()
    assert [tool["name"] for tool in client.request("tools/list")["result"]["tools"]] == [tool.name for tool in TOOLS]

    client.call("mark", text="The cookie is set before the redirect")

    assert len(client.call("search", query="cookie")["structuredContent"]["hits"]) == 1
    assert client.leave()[0] == 0
    assert [path.name[:4] for path in (settings_of(environment).home / "spaces").glob("*.db")] == ["shop"]


def test_a_broken_setting_is_told_to_the_model(start: Start) -> None:
    client = start(MICA_BRIEF_BUDGET_TOKENS="many")
    client.opened()

    result = client.call("brief")

    assert result["isError"] is True
    assert "MICA_BRIEF_BUDGET_TOKENS" in result["content"][0]["text"]


async def test_the_handoff_is_a_prompt(era: str, environment: dict[str, str], project: Path) -> None:
    async with connected(environment, project, mode=era) as client:
        told(await client.call_tool("mark", {"text": "Find out who sets the cookie", "tags": ["question"]}))
        names = [prompt.name for prompt in (await client.list_prompts()).prompts]
        text = str((await client.get_prompt("handoff")).messages[0].content)

    assert names == ["handoff"]
    assert "Find out who sets the cookie" in text
    assert "crystal_commit" in text

"""The tools, called by the official SDK's client in both eras and directly."""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
import sys
from collections.abc import AsyncIterator, Sequence
from datetime import timedelta
from pathlib import Path
from typing import cast

import msgspec
import pytest
from tests.hook_process import PATIENT_HOOK
from tests.mcp.conftest import SESSION, Start, connected, structured
from tests.mcp.stdio_client import StdioClient

import mica
from mica.errors import ReservedForUser
from mica.format.fence import CLOSING, OPENING
from mica.mcp.resources import read
from mica.mcp.tools import BY_NAME, TOOLS, ToolResult
from mica.model.event import EventQuery, utc_now
from mica.model.walk import WALK_EVENTS, step_of, walks_of
from mica.settings import Settings
from mica.sources.protocol import Fragment, Question, SourceDeclaration
from mica.store.reference.store import EphemeralStore
from mica.testing.postgres import LocalPostgres

SCHEMA_TOKENS_MAX = 1_200


@pytest.fixture
async def memory(home: Settings) -> AsyncIterator[mica.Memory]:
    async with mica.open(":memory:", settings=home) as opened:
        yield opened


@pytest.fixture(params=["sqlite", "postgres"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The address of the store."""
    if request.param == "sqlite":
        return str(tmp_path / "space.db")
    server: LocalPostgres = request.getfixturevalue("server")
    return server.address()


async def test_a_real_client_lists_and_calls_every_tool(
    era: str, store: str, environment: dict[str, str], project: Path
) -> None:
    """keeps: TD-08, D-12, B-33. The SDK checks every answer against the tool's own output schema."""
    (project / "login").mkdir()
    (project / "login" / "cookie.py").write_text("def set_cookie(): ...\n")
    earlier = "The login cookie needs the domain of the shop"
    async with mica.open(store, settings=mica.load_settings(environment)) as memory:
        with memory.context(session="earlier"):
            memory.mark(earlier, tags=("gotcha",))
    async with connected(environment, project, "--store", store, mode=era) as client:
        listed = {tool.name: tool for tool in (await client.list_tools()).tools}
        assert list(listed) == ["brief", "search", "mark", "navigate", "handoff", "why"]
        texts = [f"The session cookie is set before the redirect in step {number} of the login" for number in range(5)]
        marked = [structured(await client.call_tool("mark", {"text": text, "tags": ["gotcha"]})) for text in texts]
        numbers = [str(each["number"]) for each in marked]
        found = structured(await client.call_tool("search", {"query": "session cookie redirect", "limit": 3}))
        brief = structured(await client.call_tool("brief", {"task": "login cookie", "budget_tokens": 500}))
        shown = structured(await client.call_tool("why", {"id": brief["receipt"]}))
        statement = {"text": "Login sets its cookie too early", "marks": numbers[:2]}
        crystal = structured(await client.call_tool("handoff", {"statements": [statement], "topics": ["login"]}))
        under = structured(await client.call_tool("why", {"id": crystal["number"]}))
        files = structured(await client.call_tool("navigate", {"task": "login cookie"}))

    assert [each["text"] for each in marked] == texts
    assert len(msgspec.convert(found["hits"], list[dict[str, object]])) == 3
    assert earlier in str(brief["text"])
    assert texts[4] not in str(brief["text"]), "the session itself said it"
    assert earlier in str(shown["because"])
    assert (crystal["marks"], crystal["not_cited"]) == (5, 3)
    assert "Login sets its cookie too early" in str(crystal["text"])
    assert texts[1] in str(under["because"])
    assert texts[4] not in str(under["because"])
    assert [place["path"] for place in msgspec.convert(files["files"], list[dict[str, object]])] == ["login/cookie.py"]
    async with mica.open(store, settings=mica.load_settings(environment)) as memory:
        stored = (await memory.events.query(EventQuery(names=("mark",))))[1:]
        [made] = await memory.crystals.list()
    assert {event.origin for event in stored} == {"agent"}
    assert {event.context.session for event in stored} == {SESSION}
    assert {dict(event.context.labels)["client"] for event in stored} == {"claude-code"}
    assert (made.method, made.period) == ("committed:claude-code", f"session:{SESSION}")


async def test_mark_reports_the_use_of_a_trail(start: Start, environment: dict[str, str], tmp_path: Path) -> None:
    """keeps: A-19. An agent reports the outcome of a trail, and the figures of the trail include it."""
    place = tmp_path / "space.db"
    client = start("--store", str(place), CLAUDE_CODE_SESSION_ID=SESSION)
    client.initialize()
    async with mica.open(place, settings=mica.load_settings(environment)) as memory:
        read = memory.emit("file.read", {"path": "auth/session.py", "start_line": 40, "end_line": 92})
        step = step_of(await memory.events.get(read))
        assert step is not None
        await memory.trails.create("auth", [step])

    reported = client.call("mark", text="The cookie was found at once", trail="nav:auth", outcome="success")
    unknown = client.call("mark", text="It led nowhere", trail="nav:nowhere", outcome="failure")

    assert reported["isError"] is False
    assert "nowhere" in unknown["content"][0]["text"]
    async with mica.open(place, settings=mica.load_settings(environment)) as memory:
        [used] = await memory.events.query(EventQuery(names=("trail.used",)))
        trail = await memory.trails.show("auth")
        marks = await memory.search("cookie nowhere")
    assert (used.data["outcome"], used.context.session) == ("success", SESSION)
    assert (trail.runs, trail.successes) == (1, 1)
    assert len(marks) == 1  # the call with an unknown trail recorded nothing


async def test_mark_records_the_walk_of_a_build_workflow(
    start: Start, environment: dict[str, str], tmp_path: Path
) -> None:
    """keeps: A-20. An orchestrator without hooks reports opened files, and trails are learned from them."""
    place = tmp_path / "space.db"
    client = start("--store", str(place), CLAUDE_CODE_SESSION_ID=SESSION)
    client.initialize()
    steps = [{"path": "src/login.py", "start_line": 1, "end_line": 9}, {"path": "src/page.py", "operation": "edit"}]
    for _ in range(2):
        result = client.call("mark", text="Build the login page", steps=steps, outcome="success", workflow="adw_build")
        assert result["isError"] is False

    async with mica.open(place, settings=mica.load_settings(environment)) as memory:
        walks = walks_of(await memory.events.query(EventQuery(names=WALK_EVENTS)))
        [trail] = await memory.trails.list()
    assert [(walk.task, walk.outcome) for walk in walks] == [("adw_build", "success")] * 2
    assert [step.operation for step in walks[0].steps] == ["read", "edit"]
    assert (trail.paths, trail.shape, trail.runs) == (("src/login.py", "src/page.py"), "adw_build", 2)


# -- Beliefs


async def test_a_mark_replaces_what_the_agent_saw_in_a_brief(memory: mica.Memory) -> None:
    """By the number of the line or the id of the belief; the answer says what it replaced."""
    tool = BY_NAME["mark"]
    first = await tool.call(memory, {"text": "The queue holds 10 jobs", "tags": ["fact"]})
    second = await tool.call(memory, {"text": "The queue holds 20 jobs", "replaces": first.content["number"]})
    [held] = await memory.beliefs.list()
    third = await tool.call(memory, {"text": "The queue has no limit", "replaces": held.id})

    assert "It replaces: The queue holds 10 jobs" in second.text
    assert held.text == "The queue holds 20 jobs"
    assert third.content["ended"] == [{"id": held.id, "text": "The queue holds 20 jobs"}]
    assert [each.text for each in await memory.beliefs.in_force()] == ["The queue has no limit"]


async def test_a_mark_ends_an_open_task(memory: mica.Memory) -> None:
    task = await memory.beliefs.add("task", "Write the migration")

    await BY_NAME["mark"].call(memory, {"text": "The migration is written and merged", "ends": task.id})

    [ended] = await memory.beliefs.list("task", "ended")
    assert (ended.id, ended.ending) == (task.id, "done")


@pytest.mark.parametrize("argument", ["replaces", "ends"])
async def test_an_agent_cannot_end_a_rule_of_a_user(memory: mica.Memory, argument: str) -> None:
    """The error is typed, its text says who can, and nothing is recorded."""
    rule = await memory.beliefs.add("rule", "Always use uv run")

    with pytest.raises(ReservedForUser, match="is a rule of a user, and only a user can end or replace it"):
        await BY_NAME["mark"].call(memory, {"text": "Use pip", argument: rule.id})

    assert [each.state for each in await memory.beliefs.list()] == ["held"]
    assert not await memory.events.query(EventQuery(names=("mark",)))


async def test_a_mark_that_names_no_belief_is_refused(memory: mica.Memory) -> None:
    """Nothing is recorded for an id that does not exist, for an event without a belief, or for an ended belief."""
    old = await memory.beliefs.add("task", "Write the migration")
    await memory.beliefs.end(old, ending="done")
    other = memory.emit("custom", {"text": "something"})
    number = (await memory.events.get(other)).number

    for reference, message in {
        "bxxxxxxxxxxxx": "no belief bxxxxxxxxxxxx",
        "#999": "no event '#999'",
        number: f"no belief that event {number} supports",
        old.id: "has ended",
    }.items():
        with pytest.raises(mica.MicaError, match=message):
            await BY_NAME["mark"].call(memory, {"text": "It is different now", "replaces": reference})
    assert not await memory.events.query(EventQuery(names=("mark",)))


async def test_an_argument_that_is_almost_right_is_named(memory: mica.Memory) -> None:
    with pytest.raises(mica.MicaError, match="did you mean 'replaces'"):
        await BY_NAME["mark"].call(memory, {"text": "x", "replace": "#1"})


async def test_why_explains_a_belief_with_what_it_replaced(memory: mica.Memory) -> None:
    old = await memory.beliefs.add("decision", "We go with the unique index")
    new = await memory.beliefs.correct(old, "We go with a partial index")

    shown = await BY_NAME["why"].call(memory, {"id": new.id})

    assert "We go with a partial index (decision, held)" in shown.text
    assert f"We go with the unique index (decision, replaced by {new.id}" in shown.text


def test_all_schemas_fit_into_the_budget_and_are_flat() -> None:
    """keeps: U-12, D-57. Every client sends them with every request, so they are few, short and without references."""
    listed = [tool.listing() for tool in TOOLS]
    text = msgspec.json.encode(listed).decode()

    assert len(TOOLS) <= 6
    assert len(text) / 4 <= SCHEMA_TOKENS_MAX
    for word in ("$ref", "$defs", "enum", "anyOf", "oneOf"):
        assert f'"{word}"' not in text
    for tool in listed:
        assert tool["title"]
        assert tool["annotations"]


def test_the_list_of_tools_is_always_identical(start: Start) -> None:
    answers = []
    for _ in range(2):
        client = start()
        client.initialize()
        answers += [msgspec.json.encode(client.request("tools/list")["result"]) for _ in range(2)]

    assert len(set(answers)) == 1


def test_every_tool_accepts_the_arguments_of_its_schema() -> None:
    for tool in TOOLS:
        fields = {field.name: field.required for field in msgspec.structs.fields(tool.takes)}
        assert set(tool.inputs) == set(fields)
        assert set(tool.required) == {name for name, is_required in fields.items() if is_required}


def test_a_failed_call_returns_the_reason(start: Start) -> None:
    client = start()
    client.initialize()

    refused: list[tuple[str, dict[str, object], str]] = [
        ("mark", {}, "`text`"),
        ("mark", {"text": "  "}, "needs a text"),
        ("mark", {"text": 7}, "$.text"),
        ("mark", {"text": "x", "tags": ["two words"]}, "tag"),
        ("mark", {"text": "x", "parent": "#999"}, "#999"),
        ("mark", {"text": "x", "steps": [{"path": "a.py", "operation": "fly"}]}, "fly"),
        ("mark", {"text": "x", "steps": [{"path": "a.py"}], "why": "y"}, "make another mark"),
        ("mark", {"text": "x", "outcome": "success"}, "`outcome` needs `steps`"),
        ("search", {"query": ""}, "no word to search for"),
        ("search", {"query": "x", "limit": 0}, "limit"),
        ("search", {"query": "x", "since": "when pigs fly"}, "when pigs fly"),
        ("brief", {"budget_tokens": -1}, "budget_tokens"),
        ("brief", {"budget_tokens": 0}, "budget_tokens"),
        ("handoff", {"statements": [{"text": "x", "marks": ["#1"]}]}, "#1"),
        ("why", {"id": "#999"}, "#999"),
    ]
    for name, arguments, reason in refused:
        result = client.call(name, **arguments)
        assert result["isError"] is True
        assert reason in result["content"][0]["text"], result
        assert "structuredContent" not in result


def test_numbers_may_be_written_as_text(start: Start) -> None:
    client = start()
    client.initialize()

    assert client.call("search", query="x", limit="5")["structuredContent"] == {"hits": []}


@pytest.mark.parametrize(
    ("tool", "argument", "hint"),
    [
        ("brief", "tasks", "did you mean 'task'?"),
        ("brief", "query", "it takes task, budget_tokens"),
        ("search", "arround", "did you mean 'around'?"),
        ("mark", "tag", "did you mean 'tags'?"),
        ("why", "identifier", "it takes id"),
    ],
)
async def test_an_unknown_argument_is_refused_with_the_nearest_name(
    memory: mica.Memory, tool: str, argument: str, hint: str
) -> None:
    with pytest.raises(mica.InvalidInput, match=re.escape(f"{tool} has no argument {argument!r}; {hint}")):
        await BY_NAME[tool].call(memory, {argument: "x"})


async def test_a_result_has_readable_text_and_structured_content(memory: mica.Memory) -> None:
    with memory.context(session="s1"):
        marked = await BY_NAME["mark"].call(memory, {"text": "The cookie is set late", "tags": ["gotcha"]})
        found = await BY_NAME["search"].call(memory, {"query": "cookie"})
        why = await BY_NAME["why"].call(memory, {"id": marked.content["number"]})
    with memory.context(session="s2"):
        brief = await BY_NAME["brief"].call(memory, {"task": "cookie"})

    assert marked.text == "Recorded as #1: The cookie is set late"
    [line] = found.text.splitlines()[1:-1]
    assert re.fullmatch(r"- #1 \d{4}-\d\d-\d\d \d\d:\d\d \[gotcha\] The cookie is set late", line)
    assert brief.text == brief.content["text"]
    for result in (found, why, brief):
        assert (result.text.startswith(OPENING), result.text.endswith(CLOSING)) == (True, True)
    assert (await BY_NAME["search"].call(memory, {"query": "zebra"})).text == "Nothing matches."


async def test_a_budget_too_small_for_any_line_is_named_instead_of_knowing_nothing(memory: mica.Memory) -> None:
    memory.mark("The cookie is set late")

    small = await BY_NAME["brief"].call(memory, {"task": "cookie", "budget_tokens": 10})

    tokens = re.fullmatch(r"No line fits 10 tokens; the shortest needs (\d+)\.", small.text)
    assert tokens is not None, small.text
    enough = await BY_NAME["brief"].call(memory, {"task": "cookie", "budget_tokens": int(tokens[1])})
    assert "The cookie is set late" in enough.text


async def test_search_around_an_event_shows_its_neighbours(memory: mica.Memory) -> None:
    now = utc_now()
    marks = {-5: "The cookie was set early", -0.5: "A test failed", 0: "The cookie is set late", 0.2: "Fixed"}
    for hours, text in marks.items():
        memory.mark(text, at=now + timedelta(hours=hours))
    await memory.durable()

    around = await BY_NAME["search"].call(memory, {"around": "#3"})
    nearest = await BY_NAME["search"].call(memory, {"around": "#3", "limit": 2})
    matching = await BY_NAME["search"].call(memory, {"query": "cookie", "around": "#3"})

    def numbers(result: ToolResult) -> list[str]:
        return [each["number"] for each in cast(list[dict[str, str]], result.content["hits"])]

    assert numbers(around) == ["#2", "#3", "#4"]
    assert numbers(nearest) == ["#3", "#4"]
    assert numbers(matching) == ["#3"]
    with pytest.raises(mica.InvalidInput, match="not both"):
        await BY_NAME["search"].call(memory, {"query": "cookie", "around": "#3", "since": "yesterday"})
    with pytest.raises(mica.InvalidInput, match="no word to search for"):
        await BY_NAME["search"].call(memory, {"query": ""})


async def test_handoff_records_the_statements_and_returns_the_text_for_the_next_agent(memory: mica.Memory) -> None:
    """keeps: B-33"""
    with memory.context(session="s1"):
        for number in range(5):
            memory.mark(f"The session cookie is set before the redirect in step {number} of the login page")
        statement = {"text": "Login sets its cookie too early", "marks": ["#1", "#2"]}
        handed = await BY_NAME["handoff"].call(memory, {"statements": [statement]})
        again = await BY_NAME["handoff"].call(memory, {"statements": []})

    assert "Login sets its cookie too early" in handed.text
    assert (handed.content["marks"], handed.content["not_cited"]) == (5, 3)
    assert handed.content["text"] == handed.text
    assert again.content["number"] == ""
    assert "Login sets its cookie too early" in again.text


def test_recalled_text_is_not_marked_again(start: Start) -> None:
    client = start()
    client.initialize()
    client.call("mark", text="The cookie is set before the redirect")
    brief = client.call("brief", task="cookie")["structuredContent"]

    refused = client.call("mark", text=f"I learned: {brief['text']}")

    assert refused["isError"] is True
    assert "recalled" in refused["content"][0]["text"]


def test_secrets_in_a_mark_are_redacted(start: Start) -> None:
    client = start()
    client.initialize()

    stored = client.call("mark", text="The key is AKIAIOSFODNN7EXAMPLE")["structuredContent"]

    assert "AKIAIOSFODNN7EXAMPLE" not in stored["text"]
    assert "AKIAIOSFODNN7EXAMPLE" not in str(client.call("search", query="key"))


async def test_a_mark_continues_the_trace_of_its_caller(
    start: Start, environment: dict[str, str], tmp_path: Path
) -> None:
    """keeps: E-36. `traceparent`, `tracestate` and `baggage` in `_meta` name the parent and the context."""
    async with mica.open(tmp_path / "space.db", settings=mica.load_settings(environment)) as memory:
        with memory.context(session="s1", agent="scout"):
            cause = memory.emit("task.began", {})
            with memory.context(parent=cause):
                carrier = memory.carrier()
    client = start("--store", str(tmp_path / "space.db"), CLAUDE_CODE_SESSION_ID=SESSION)
    client.initialize()

    result = client.request("tools/call", name="mark", arguments={"text": "Seen"}, _meta=carrier)["result"]

    async with mica.open(tmp_path / "space.db", settings=mica.load_settings(environment)) as memory:
        mark = await memory.events.get(result["structuredContent"]["id"])
    assert mark.parent_id == cause.id
    assert (mark.context.session, mark.context.agent) == ("s1", "scout")


async def test_a_client_without_a_session_joins_the_one_of_its_hooks(
    start: Start, environment: dict[str, str], tmp_path: Path
) -> None:
    """Codex, Gemini CLI and OpenCode pass no session on; if two are open, none is chosen."""
    place = tmp_path / "space.db"

    async def marked_session(*sessions: str) -> str | None:
        async with mica.open(place, settings=mica.load_settings(environment)) as memory:
            for session in sessions:
                with memory.context(session=session, client="codex"):
                    memory.emit("turn.started", {})
        client = start("--store", str(place))
        client.request("initialize", protocolVersion="2025-06-18", clientInfo={"name": "codex-mcp-client"})
        mark = client.call("mark", text="A test was here")["structuredContent"]
        client.leave()
        async with mica.open(place, settings=mica.load_settings(environment)) as memory:
            return (await memory.events.get(mark["id"])).context.session

    assert await marked_session() is None
    assert await marked_session("first") == "first"
    assert await marked_session("second") is None


def test_the_module_and_the_command_start_the_same_server(environment: dict[str, str], project: Path) -> None:
    """Clients start `python -m mica.mcp`, which does not load the other commands."""
    client = StdioClient([sys.executable, "-P", "-m", "mica.mcp"], environment=environment, directory=project)
    client.initialize()
    assert [tool["name"] for tool in client.request("tools/list")["result"]["tools"]] == [tool.name for tool in TOOLS]

    client.call("mark", text="The cookie is set before the redirect")

    assert len(client.call("search", query="cookie")["structuredContent"]["hits"]) == 1
    assert client.leave()[0] == 0
    assert [path.name[:4] for path in (mica.load_settings(environment).home / "spaces").glob("*.db")] == ["shop"]


def test_a_broken_setting_is_reported_to_the_model(start: Start) -> None:
    client = start(MICA_BRIEF_BUDGET_TOKENS="many")
    client.initialize()

    result = client.call("brief")

    assert result["isError"] is True
    assert "MICA_BRIEF_BUDGET_TOKENS" in result["content"][0]["text"]


class SlowSource:
    """A source that answers later than a hook would wait, such as one whose files are not open yet."""

    declared = SourceDeclaration(name="slow", concepts=(), is_live=True, answers_tasks=True)

    async def fragments(self, question: Question) -> Sequence[Fragment]:
        await asyncio.sleep(0.5)
        said = "Deploys need the VPN"
        return [Fragment(key="note", text=said, value=said, confidence=0.9, at=question.now, source="?", locator="1")]

    async def close(self) -> None:
        """Nothing is held."""


@pytest.mark.parametrize("way", ["tool", "resource"])
async def test_a_brief_waits_for_what_a_hook_would_not_wait_for(home: Settings, way: str) -> None:
    """keeps: U-05. The first brief of a server on a busy machine is complete, or names what is missing."""
    settings = msgspec.structs.replace(home, brief=msgspec.structs.replace(home.brief, deadline_s=0.1))
    memory = mica.memory.Memory(EphemeralStore(), settings=settings, sources=[SlowSource()])

    if way == "tool":
        result = await BY_NAME["brief"].call(memory, {"task": "deploy"})
        text, missing = result.text, result.content["missing"]
    else:
        text, missing = await read(memory, "mica://brief/deploy"), {}

    assert "Deploys need the VPN" in text
    assert missing == {}
    await memory.close()


@pytest.mark.parametrize(("is_held_out", "says"), [(False, "`mica briefs on`"), (True, "brief.holdout")])
async def test_a_withheld_brief_does_not_look_like_an_empty_memory(
    home: Settings, is_held_out: bool, says: str
) -> None:
    share = 1.0 if is_held_out else 0.0
    settings = msgspec.structs.replace(home, brief=msgspec.structs.replace(home.brief, holdout=share))
    async with mica.open(":memory:", settings=settings) as memory:
        with memory.context(session="s1"):
            memory.mark("The cookie is set before the redirect")
            if not is_held_out:
                await memory.briefs.switch(on=False)
            result = await BY_NAME["brief"].call(memory, {"task": "cookie"})
            shown = await read(memory, "mica://brief")

    assert result.text == shown
    assert says in result.text
    assert "Nothing is known" not in result.text
    assert "\n" not in result.text
    assert result.content["missing"] == {"brief": result.text}


def test_work_that_is_a_second_old_is_in_the_brief(start: Start, environment: dict[str, str], project: Path) -> None:
    """The spool is read before the brief is made, although no ingest has run."""
    for event, fields in (
        ("UserPromptSubmit", {"prompt": "Move the queue to Redis streams", "prompt_id": "p1"}),
        ("Stop", {"last_assistant_message": "Moved. Still open: the dead letter queue.", "prompt_id": "p1"}),
        ("SessionEnd", {"reason": "other"}),  # otherwise the server joins this session, which knows what it said
    ):
        payload = {"session_id": "s1", "cwd": str(project), "hook_event_name": event, **fields}
        command = [*PATIENT_HOOK, "claude", event]
        subprocess.run(command, input=json.dumps(payload).encode(), env=environment, cwd=project, check=True)
    client = start()
    client.initialize()

    text = client.call("brief")["structuredContent"]["text"]

    assert "Move the queue to Redis streams" in text
    assert "Still open: the dead letter queue." in text

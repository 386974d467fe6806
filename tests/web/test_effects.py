"""Operations and tools declared as read-only change nothing, over HTTP and MCP."""

from __future__ import annotations

import httpx2
import msgspec
import pytest

from mica.mcp.tools import TOOLS
from mica.model.event import MARK, EventQuery
from mica.model.walk import step_of
from mica.web.memory_pool import MemoryPool
from mica.web.operations import API

ARGUMENTS = {"query": "cookie", "task": "login cookie", "name": "auth"}  # values for fields that do not name an event


async def prepare(pool: MemoryPool) -> str:
    """Record a crystal and a trail; return the id of the crystal."""
    memory = await pool.memory()
    with memory.context(session="s1"):
        for number in range(4):
            memory.mark(f"The session cookie is set before the redirect in step {number} of the login page")
    read = memory.emit("file.read", {"path": "auth/session.py", "start_line": 1, "end_line": 2})
    step = step_of(await memory.events.get(read))
    assert step is not None
    await memory.trails.create("auth", [step])
    await memory.beliefs.add("rule", "Always use uv run")
    [crystal] = await memory.crystals.make(level="session")
    return crystal.id


async def test_a_get_records_nothing(client: httpx2.AsyncClient, pool: MemoryPool) -> None:
    """keeps: B-33. Every GET operation leaves the log unchanged."""
    crystal = await prepare(pool)
    memory = await pool.memory()
    [belief] = await memory.beliefs.list("rule")
    reads = [operation for operation in API.declared if operation.method == "GET"]
    assert len(reads) > 20

    for operation in reads:
        required = [field.encode_name for field in msgspec.structs.fields(operation.request_type) if field.required]
        of_one = belief.id if operation.tag == "beliefs" else crystal
        fields = {name: ARGUMENTS.get(name, of_one) for name in required}
        before = await memory.events.position()
        answer = await client.get(operation.path, params=fields)
        assert answer.status_code == 200, (operation.path, answer.text)
        assert await memory.events.position() == before, f"GET {operation.path} recorded something"


@pytest.mark.parametrize("tool", TOOLS, ids=lambda tool: tool.name)
async def test_a_read_only_tool_changes_no_marks_or_crystals(tool: object, pool: MemoryPool) -> None:
    """keeps: B-33. `readOnlyHint` is correct, and tools that write destroy nothing."""
    assert isinstance(tool, type(TOOLS[0]))
    crystal = await prepare(pool)
    memory = await pool.memory()
    crystals = await memory.crystals.list()
    arguments: dict[str, object] = {"id": crystal, "text": "A new mark", **ARGUMENTS}

    with memory.context(session="s2"):
        memory.mark("The session of another day begins with a login page that forgets its cookie")
        now = await memory.events.query(EventQuery(names=(MARK,), limit=None))
        own = [event.id for event in now if event.context.session == "s2"]
        arguments["statements"] = [{"text": "Login forgets", "marks": own}]
        await tool.call(memory, {name: arguments[name] for name in tool.inputs if name in arguments})
    later = await memory.events.query(EventQuery(names=(MARK,), limit=None))
    after = await memory.crystals.list()

    assert {event.id for event in now} <= {event.id for event in later}
    assert {each.id for each in crystals} <= {each.id for each in after}
    annotations = tool.listing()["annotations"]
    assert isinstance(annotations, dict)
    changed = (len(later), len(after)) != (len(now), len(crystals))
    assert changed == tool.writes == (not annotations.get("readOnlyHint", False))
    assert annotations["openWorldHint"] is False

"""Prompts: the handoff, and one for each crystallized trail."""

from __future__ import annotations

from pathlib import Path

from tests.mcp.conftest import Start, connected, structured

import mica
from mica.model.walk import step_of


async def test_a_crystallized_trail_is_a_prompt(start: Start, environment: dict[str, str], tmp_path: Path) -> None:
    """keeps: A-19. It is listed by its name; the list is current on every request."""
    place = tmp_path / "space.db"
    client = start("--store", str(place))
    client.initialize()
    assert [each["name"] for each in client.request("prompts/list")["result"]["prompts"]] == ["handoff"]

    async with mica.open(place, settings=mica.load_settings(environment)) as memory:
        read = memory.emit("file.read", {"path": "auth/session.py", "start_line": 40, "end_line": 92})
        step = step_of(await memory.events.get(read))
        assert step is not None
        trail = await memory.trails.create("auth", [step], description="How the session cookie is set")

    listed = client.request("prompts/list")["result"]["prompts"]
    assert {each["name"]: each["description"] for each in listed}[f"nav_{trail.slug}"] == trail.description
    [message] = client.request("prompts/get", name="nav_auth")["result"]["messages"]
    assert "auth/session.py:40-92" in message["content"]["text"]
    assert "mica-hash" not in message["content"]["text"]


async def test_the_handoff_is_a_prompt(era: str, environment: dict[str, str], project: Path) -> None:
    async with connected(environment, project, mode=era) as client:
        structured(await client.call_tool("mark", {"text": "Find out who sets the cookie", "tags": ["question"]}))
        names = [prompt.name for prompt in (await client.list_prompts()).prompts]
        text = str((await client.get_prompt("handoff")).messages[0].content)

    assert names == ["handoff"]
    assert "Find out who sets the cookie" in text
    assert "call `handoff`" in text

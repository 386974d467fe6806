"""Trails over HTTP: an orchestrator makes, finds, loads and reports them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx2
import pytest
from tests.web.conftest import Calling

from mica.model.event import EventQuery
from mica.web.access import Access
from mica.web.memory_pool import MemoryPool


async def post(client: httpx2.AsyncClient, path: str, **body: object) -> dict[str, Any]:
    answer = await client.post(f"/api{path}", json=body)
    assert answer.status_code == 200, answer.text
    document: dict[str, Any] = answer.json()
    return document


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working tree in which the server was started."""
    folder = tmp_path / "shop"
    (folder / ".git").mkdir(parents=True)
    (folder / "src").mkdir()
    (folder / "src" / "login.py").write_text("".join(f"line {number} of the login\n" for number in range(1, 40)))
    monkeypatch.chdir(folder)
    return folder


async def test_a_trail_is_made_found_loaded_and_reported(
    client: httpx2.AsyncClient, pool: MemoryPool, project: Path
) -> None:
    """keeps: A-19, A-34, A-35. Create, search, load, track and metrics; load times are a histogram."""
    places = [{"path": "src/login.py", "start_line": 3, "end_line": 8}]
    made = await post(client, "/trails/create", slug="login", places=places, description="How people sign in")
    found = await post(client, "/trails/explore", query="src/login.py")
    loaded = await post(client, "/trails/load", name="login", budget_tokens=500)
    used = await post(client, "/trails/track", name="nav:login", outcome="success", tokens=321)
    listed = (await client.get("/api/trails/list")).json()["trails"]
    one = (await client.get("/api/trails/show?name=login")).json()
    metrics = (await client.get("/api/trails/stats")).json()
    exposed = (await client.get("/metrics")).text

    assert (made["command"], made["saving_tokens"]) == ("/nav:login", None)
    assert [choice["trail"]["name"] for choice in found["choices"]] == ["nav:login"]
    shown = [f"line {number} of the login" for number in range(1, 40) if f"line {number} of" in loaded["text"]]
    assert shown == [f"line {number} of the login" for number in range(3, 9)]
    assert loaded["tokens"] <= 500
    assert [each["name"] for each in listed] == ["nav:login"]
    assert (one["runs"], one["successes"]) == (1, 1)
    assert metrics["trails"] == 1
    assert 'crystal_load_duration_seconds_count{crystal_name="nav:login"} 1' in exposed
    memory = await pool.memory()
    uses = await memory.events.query(EventQuery(names=("trail.used",)))
    assert {event.id: event.data["tokens"] for event in uses}[used["event"]] == 321
    assert len(uses) == 2


@pytest.mark.parametrize("space", ["shop", "other"])
async def test_a_token_cannot_read_files_outside_of_its_working_tree(
    calling: Calling, access: Access, pool: MemoryPool, project: Path, tmp_path: Path, space: str
) -> None:
    """A session names its own directory; that must not give a token access to other files of the server."""
    await pool.memory("other", make=True)
    private = tmp_path / "private"
    private.mkdir()
    (private / "plans.md").write_text("The plans that are private\n")
    started = {"name": "session.started", "session": "s1", "data": {"cwd": str(private)}}
    async with calling(access.tokens.make("guest", spaces=[space])[0]) as guest:
        await post(guest, "/emit", events=[started])
        await post(guest, "/trails/create", slug="plans", places=[{"path": "plans.md"}])
        refused = await guest.post("/api/trails/load", json={"name": "plans"})
        places = (await guest.get("/api/navigate", params={"task": "the plans that are private"})).json()

    assert refused.status_code == 422
    assert "not of this space" in refused.json()["detail"]
    assert (places["places"], list(places["missing"])) == ([], ["files"])


async def test_a_space_without_a_session_cannot_read_the_servers_working_tree(
    calling: Calling, access: Access, pool: MemoryPool, project: Path
) -> None:
    await pool.memory("other", make=True)
    async with calling(access.tokens.make("guest", spaces=["other"])[0]) as guest:
        await post(guest, "/trails/create", slug="login", places=[{"path": "src/login.py"}])

        assert (await guest.post("/api/trails/load", json={"name": "login"})).status_code == 422
        assert (await guest.get("/api/navigate", params={"task": "the login"})).json()["places"] == []


async def test_metrics_name_no_trail_of_another_space(
    client: httpx2.AsyncClient, calling: Calling, access: Access, pool: MemoryPool, project: Path
) -> None:
    await pool.memory("other", make=True)
    await post(client, "/trails/create", slug="secret-merger", places=[{"path": "src/login.py"}])
    await post(client, "/trails/load", name="secret-merger")
    async with calling(access.tokens.make("guest", spaces=["other"])[0]) as guest:
        assert "secret-merger" not in (await guest.get("/metrics")).text

    assert "secret-merger" in (await client.get("/metrics")).text


async def test_imported_walks_become_hot_trails_once(client: httpx2.AsyncClient) -> None:
    """keeps: A-11, A-34. A repeated report counts once; a path walked often becomes hot and can be crystallized."""
    steps = [{"path": "src/login.py", "operation": "read"}, {"path": "src/page.py", "operation": "edit"}]
    walks: list[dict[str, Any]] = [
        {"task": f"Change step {number} of the login page", "steps": steps, "session": f"s{number}", "id": f"w{number}"}
        for number in range(4)
    ]
    for walk in walks:
        assert (await post(client, "/trails/import_walks", walks=[walk | {"outcome": "success"}]))["stored"] > 0
    again = await post(client, "/trails/import_walks", walks=[walks[-1] | {"outcome": "success"}])

    hot = await post(client, "/trails/learn", days=7)
    [trail] = hot["trails"]
    named = await post(client, "/trails/crystallize", name=trail["key"], slug="login-page")

    assert (again["stored"], again["repeated"]) == (0, 4)
    assert (trail["state"], trail["runs"]) == ("hot", 4)
    assert named["command"] == "/nav:login-page"
    assert (await post(client, "/trails/learn"))["trails"] == []


async def test_an_invalid_trail_or_walk_is_refused_with_a_reason(client: httpx2.AsyncClient) -> None:
    """keeps: A-34"""
    refused = [
        ("/trails/create", {"slug": "Not A Slug", "places": [{"path": "a.py"}]}, 422),
        ("/trails/create", {"slug": "login", "places": []}, 400),
        ("/trails/create", {"slug": "login", "places": [{"path": "a.py", "start_line": 9, "end_line": 3}]}, 422),
        ("/trails/load", {"name": "nowhere"}, 404),
        ("/trails/track", {"name": "nowhere"}, 404),
        ("/trails/track", {"name": "nowhere", "outcome": "splendid"}, 400),
        ("/trails/learn", {"days": 0}, 400),
        ("/trails/import_walks", {"walks": [{"task": "Build", "steps": [{"operation": "read"}]}]}, 422),
        ("/trails/import_walks", {"walks": [{"task": " ", "steps": []}]}, 422),
    ]
    for path, body, status in refused:
        answer = await client.post(f"/api{path}", json=body)
        assert answer.status_code == status, (path, body, answer.text)
        assert answer.json()["detail"]
    assert (await client.get("/api/trails/list")).json() == {"trails": []}

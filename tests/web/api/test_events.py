"""`memory.events` over HTTP."""

from __future__ import annotations

import httpx2


async def test_events_keep_their_chain_and_their_context(client: httpx2.AsyncClient) -> None:
    root = (await client.post("/api/emit", json={"events": [{"name": "task.begun", "session": "s1"}]})).json()
    parent = root["events"][0]["id"]
    step = {"name": "file.read", "data": {"path": "a.py"}, "parent": parent, "agent": "scout", "labels": {"host": "a"}}
    await client.post("/api/emit", json={"events": [step, {**step, "error": True}]})

    below = (await client.get("/api/events/descendants", params={"reference": parent})).json()["events"]
    above = (await client.get("/api/events/ancestors", params={"reference": below[0]["id"]})).json()["events"]
    failed = (await client.get("/api/events/failures")).json()["failures"]
    minimal = (await client.get("/api/events/query", params={"names": ["file.*"], "bundle": "minimal"})).json()[
        "events"
    ]

    assert [each["depth"] for each in below] == [1, 1]
    assert [each["id"] for each in above] == [parent]
    assert below[0]["context"] == {"agent": "scout", "labels": {"host": "a"}}
    assert [each["id"] for each in failed[0]["led"]] == [parent]
    assert [sorted(each) for each in minimal] == [["correlation", "id", "name"]] * 2


async def test_the_log_is_read_page_by_page_without_gap_or_repeat(client: httpx2.AsyncClient) -> None:
    await client.post("/api/emit", json={"events": [{"name": f"step.{number}"} for number in range(25)]})
    names: list[str] = []
    after: int | None = 0
    while after is not None:
        page = (await client.get("/api/events/log", params={"after": after, "limit": 7})).json()
        names += [each["name"] for each in page["events"]]
        after = page["next"]

    assert names == [f"step.{number}" for number in range(25)]

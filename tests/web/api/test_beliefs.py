"""`memory.beliefs` over HTTP."""

from __future__ import annotations

from typing import Any

import httpx2
import pytest

RULE = "Always use uv run, never python directly"


async def post(client: httpx2.AsyncClient, verb: str, **fields: object) -> dict[str, Any]:
    answer = await client.post(f"/api/{verb}", json=fields)
    assert answer.status_code == 200, answer.text
    body: dict[str, Any] = answer.json()
    return body


async def listed(client: httpx2.AsyncClient, **fields: str) -> list[dict[str, Any]]:
    beliefs: list[dict[str, Any]] = (await client.get("/api/beliefs/list", params=fields)).json()["beliefs"]
    return beliefs


async def test_a_belief_is_added_read_corrected_confirmed_and_ended(client: httpx2.AsyncClient) -> None:
    added = await post(client, "beliefs/add", kind="rule", text=RULE)
    one = (await client.get("/api/beliefs/get", params={"reference": added["id"]})).json()
    corrected = await post(client, "beliefs/correct", reference=added["id"], text="Always use uv run")
    confirmed = await post(client, "beliefs/confirm", reference=corrected["id"])
    ended = await post(client, "beliefs/end", reference=corrected["id"], reason="uv is gone")
    line = (await client.get("/api/beliefs/history", params={"reference": added["id"]})).json()["beliefs"]

    assert (one["text"], one["state"], one["by"]) == (RULE, "held", "user")
    assert (corrected["kind"], corrected["replaces"]) == ("rule", [added["id"]])
    assert confirmed["state"] == "settled"
    assert (ended["ending"], ended["reason"]) == ("withdrawn", "uv is gone")
    assert [each["id"] for each in line] == [added["id"], corrected["id"]]
    assert await listed(client) == []
    assert {each["id"] for each in await listed(client, state="ended")} == {added["id"], corrected["id"]}


async def test_the_file_of_beliefs_is_edited_over_http(client: httpx2.AsyncClient) -> None:
    await post(client, "beliefs/add", kind="rule", text=RULE)
    original = (await client.get("/api/beliefs/edit_text")).json()["text"]

    done = await post(client, "beliefs/apply_edit", text=original.replace("never", "and not"), original=original)
    refused = await client.post("/api/beliefs/apply_edit", json={"text": "", "original": original})

    assert [text for _, text in done["corrected"]] == [RULE.replace("never", "and not")]
    assert (refused.status_code, "nothing was changed" in refused.json()["detail"]) == (422, True)


async def test_memory_correct_takes_a_mark_or_a_belief(client: httpx2.AsyncClient) -> None:
    mark = await post(client, "mark", text="The queue holds 10 jobs", tags=["fact"])
    await post(client, "correct", reference=mark["id"], text="The queue holds 20 jobs")

    [belief] = await listed(client)
    await post(client, "correct", reference=belief["id"], text="The queue has no limit")

    assert [each["text"] for each in await listed(client)] == ["The queue has no limit"]


async def test_an_agent_is_refused_what_only_a_user_may_end(client: httpx2.AsyncClient) -> None:
    """A problem document of its own type says so; the same mark of the user is recorded."""
    rule = await post(client, "beliefs/add", kind="rule", text=RULE)

    refused = await client.post("/api/mark", json={"text": "Use pip", "replaces": [rule["id"]]})
    ended = await client.post("/api/beliefs/end", json={"reference": rule["id"], "origin": "agent"})
    await post(client, "mark", text="Use pip from now on", replaces=[rule["id"]], origin="user")

    assert (refused.status_code, ended.status_code) == (403, 403)
    assert refused.json()["type"].endswith("ReservedForUser")
    assert refused.json()["facts"] == {"belief": rule["id"], "kind": "rule"}
    assert [each["text"] for each in await listed(client)] == ["Use pip from now on"]


@pytest.mark.parametrize(
    ("verb", "fields", "status"),
    [
        ("add", {"kind": "law", "text": "x"}, 400),
        ("add", {"kind": "rule", "text": " "}, 422),
        ("end", {"reference": "bxxxxxxxxxxxx"}, 404),
        ("end", {"reference": "bxxxxxxxxxxxx", "ending": "gone"}, 400),
        ("correct", {"reference": "999", "text": "x"}, 404),
    ],
)
async def test_bad_input_is_a_problem_document(
    client: httpx2.AsyncClient, verb: str, fields: dict[str, str], status: int
) -> None:
    answer = await client.post(f"/api/beliefs/{verb}", json=fields)

    assert answer.status_code == status
    assert answer.headers["content-type"] == "application/problem+json"

"""`memory.crystals` over HTTP."""

from __future__ import annotations

from typing import Any

import httpx2
import pytest

WORDS = ("first", "second", "third", "fourth", "fifth", "sixth")


@pytest.fixture
async def made(client: httpx2.AsyncClient) -> dict[str, Any]:
    """The crystal of a session."""
    for word in WORDS:
        text = f"The {word} cookie is set before the redirect, so the session of {word} is lost on every login"
        await client.post("/api/mark", json={"text": text, "session": "s1"})
    [crystal] = (await client.post("/api/crystals/make", json={})).json()["crystals"]
    document: dict[str, Any] = crystal
    return document


async def test_a_crystal_is_made_listed_read_and_expanded(client: httpx2.AsyncClient, made: dict[str, Any]) -> None:
    """keeps: B-33, B-66"""
    listed = (await client.get("/api/crystals/list", params={"level": "session"})).json()["crystals"]
    one = (await client.get("/api/crystals/get", params={"reference": made["id"]})).json()
    expanded = (await client.get("/api/crystals/expand", params={"reference": made["id"]})).json()

    assert [each["id"] for each in listed] == [made["id"]]
    assert (one["text"], one["marks"]) == (made["text"], len(WORDS))
    assert len(expanded["sources"]) == len(WORDS)
    dropped = {identifier for identifier, *_ in one["dropped"]}
    assert {each["id"] for each in expanded["sources"] if each["left_out"] is not None} == dropped


async def test_a_dry_run_makes_no_crystal(client: httpx2.AsyncClient) -> None:
    await client.post("/api/mark", json={"text": "The cookie is set before the redirect", "session": "s1"})

    tried = (await client.post("/api/crystals/make", json={"dry_run": True})).json()

    assert tried["dry_run"] is True
    assert (await client.get("/api/crystals/list")).json() == {"crystals": []}


async def test_a_promoted_crystal_is_a_teaching_until_it_is_withdrawn(
    client: httpx2.AsyncClient, made: dict[str, Any]
) -> None:
    promoted = await client.post("/api/crystals/promote", json={"reference": made["id"], "reason": "it holds"})
    current = (await client.get("/api/crystals/teachings")).json()["teachings"]
    withdrawal = {"reference": promoted.json()["id"], "reason": "it was fixed"}
    ended = await client.post("/api/crystals/withdraw", json=withdrawal)

    assert (promoted.status_code, ended.status_code) == (200, 200)
    assert len(current) == 1
    assert (await client.get("/api/crystals/teachings")).json() == {"teachings": []}
    assert len((await client.get("/api/crystals/teachings", params={"with_ended": True})).json()["teachings"]) == 1

"""`memory.upkeep` over HTTP."""

from __future__ import annotations

import httpx2


async def test_a_purged_value_may_be_marked_again_once_it_is_allowed(client: httpx2.AsyncClient) -> None:
    """keeps: K-53. Purged events stay purged."""
    mark = {"text": "The login page is slow", "session": "s1"}
    await client.post("/api/mark", json=mark)
    preview = (await client.post("/api/purge", json={"value": "login"})).json()
    done = (await client.post("/api/purge", json={"value": "login", "confirm": preview["confirm"]})).json()
    refused = await client.post("/api/mark", json=mark)

    allowed = await client.post("/api/upkeep/allow", json={"value": "Login"})

    assert (refused.status_code, "was purged" in refused.json()["detail"]) == (422, True)
    assert (allowed.status_code, allowed.json()) == (200, {"allowed": [done["record"]]})
    assert (await client.post("/api/mark", json=mark)).status_code == 200
    again = await client.post("/api/upkeep/allow", json={"value": "Login"})
    assert (again.status_code, "no purge of the value" in again.json()["detail"]) == (422, True)
    assert [each["name"] for each in (await client.get("/api/events/query")).json()["events"]].count("mark") == 1

"""`memory.briefs` over HTTP."""

from __future__ import annotations

import httpx2


async def test_briefs_are_switched_measured_and_gathered_in_advance(client: httpx2.AsyncClient) -> None:
    judged = {"concept": "judgment:code_review:1", "verdict": "GROWL", "confidence": 0.5}
    assert (await client.post("/api/sources/judge", json=judged)).status_code == 200

    assert (await client.get("/api/briefs/is_on")).json() == {"on": True}
    assert (await client.post("/api/briefs/switch", json={"on": False})).json() == {"on": False}
    assert (await client.post("/api/briefs/switch", json={})).status_code == 400
    assert (await client.get("/api/briefs/is_on")).json() == {"on": False}
    [ahead] = (await client.post("/api/sources/warm", json={"limit": 1})).json()["gathered"]
    quality = (await client.get("/api/briefs/quality", params={"weeks": 2})).json()

    assert ahead["concept"] == judged["concept"]
    assert quality["verdict"]
    assert len(quality["weeks"]) >= 2

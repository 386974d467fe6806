"""`memory.sources` over HTTP."""

from __future__ import annotations

import httpx2


async def test_a_judgment_is_part_of_the_gathered_account(client: httpx2.AsyncClient) -> None:
    judgment = {
        "concept": "judgment:code_review:abc123",
        "verdict": "approve",
        "confidence": 0.9,
        "reasons": ["tests pass"],
    }
    assert (await client.post("/api/sources/judge", json=judgment)).status_code == 200

    account = (await client.post("/api/sources/gather", json={"concept": judgment["concept"], "deadline_s": 30})).json()
    listed = (await client.get("/api/sources/judgments", params={"concept": str(judgment["concept"])})).json()
    wrong = await client.post("/api/sources/gather", json={"concept": "nothing"})

    assert "approve" in account["injection"]
    assert [each["verdict"] for each in listed["judgments"]] == ["approve"]
    assert (wrong.status_code, "domain:type:id" in wrong.text) == (422, True)
